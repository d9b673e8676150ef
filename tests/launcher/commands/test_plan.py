"""The verb through the command's entry point: text, document, file, exit code."""

import csv
from pathlib import Path

import pytest

from .verb import Run

LLAMA = ("--model", "llama3.1-8b", "--seq", "8192", "--global-batch", "64")
WORK = (*LLAMA, "--cluster", "8xH100-SXM-80GB")
KEYS = {"schema_version", "considered", "valid", "fit", "seconds", "best", "rejected"}
ROW = {
    "candidate",
    "step_time_s",
    "step_time_band",
    "peak_memory_gb",
    "usd_per_step",
    "parts",
    "runnable",
}


def test_the_document_has_the_agreed_fields(plan: Run) -> None:
    ran = plan(*WORK, "--json")
    assert (ran.code, set(ran.document), ran.document["schema_version"]) == (0, KEYS, 1)
    assert all(set(row) == ROW for row in ran.document["best"])


def test_every_layout_is_ruled_out_once_or_fits(plan: Run) -> None:
    found = plan(*WORK, "--json").document
    assert found["considered"] - found["fit"] == sum(found["rejected"].values())
    assert found["fit"] == found["valid"] - found["rejected"]["memory"]


def test_the_best_stand_first_and_their_parts_add_up(plan: Run) -> None:
    rows = plan(*WORK, "--json", "--top", "5").document["best"]
    times = [row["step_time_s"] for row in rows]
    assert (len(rows), times) == (5, sorted(times))
    assert all(sum(row["parts"].values()) == pytest.approx(row["step_time_s"]) for row in rows)


@pytest.mark.parametrize("rank", [0, 3, 9])
def test_fit_says_the_same_of_the_same_layout(run: Run, plan: Run, rank: int) -> None:
    row = plan(*WORK, "--json").document["best"][rank]
    layout = row["candidate"]
    flags = ["--sequence-parallel"] if layout["sequence_parallel"] else []
    for flag, knob in (
        ("--tp", "tensor_parallel"),
        ("--pp", "pipeline_parallel"),
        ("--vpp", "virtual_pipeline"),
        ("--cp", "context_parallel"),
        ("--zero", "zero_stage"),
        ("--micro-batch", "micro_batch"),
        ("--recompute", "recompute"),
        ("--offload", "offload"),
    ):
        flags += [flag, str(layout[knob])]
    found = run("fit", *WORK, *flags, "--json").document
    assert found["step_time_s"] == pytest.approx(row["step_time_s"], rel=1e-12)
    assert found["peak_memory_gb"] == row["peak_memory_gb"]


def test_money_follows_from_the_price_of_an_hour(plan: Run) -> None:
    row = plan(*WORK, "--json", "--usd-per-gpu-hour", "3").document["best"][0]
    assert row["usd_per_step"] == pytest.approx(8 * 3 / 3600 * row["step_time_s"])


def test_without_a_known_price_no_money_is_named(plan: Run) -> None:
    ran = plan(*LLAMA, "--cluster", "8xMI300X", "--json")
    assert {row["usd_per_step"] for row in ran.document["best"]} == {None}
    assert "No price of this GPU is known" in plan(*LLAMA, "--cluster", "8xMI300X").out


def test_what_our_runtime_can_run_is_marked(plan: Run) -> None:
    rows = plan(*WORK, "--json", "--top", "40").document["best"]
    for row in rows:
        layout = row["candidate"]
        degrees = [layout[f"{kind}_parallel"] for kind in ("tensor", "pipeline", "context")]
        if row["runnable"]:
            assert degrees == [1, 1, 1]
    assert {row["runnable"] for row in rows} == {True, False}


def test_the_table_shows_days_and_money_of_all_tokens(plan: Run) -> None:
    text = plan(*WORK, "--tokens", "1T").out
    assert " days " in text
    assert "The training takes 1,907,349 steps." in text


def test_a_price_says_where_it_is_from(plan: Run) -> None:
    assert "Price: $3.99 per GPU hour (lambda gpu_8x_h100_sxm5" in plan(*WORK).out


def test_a_deadline_leaves_out_what_is_too_slow(plan: Run) -> None:
    free = plan(*WORK, "--json", "--top", "0").document
    steps = -(-(10**12) // (64 * 8192))
    days = 1.1 * free["best"][0]["step_time_s"] * steps / 86400
    flags = ("--tokens", "1T", "--deadline", f"{days:.6f}d", "--top", "0", "--json")
    kept = plan(*WORK, *flags).document
    assert 0 < len(kept["best"]) < len(free["best"])
    assert kept["rejected"]["deadline"] == free["fit"] - len(kept["best"])


@pytest.mark.parametrize(
    ("limit", "says"),
    [(("--deadline", "1h"), "the deadline is 1 hours"), (("--max-cost", "7"), "--max-cost is $7")],
)
def test_a_limit_that_nothing_keeps_ends_with_code_3(
    plan: Run, limit: tuple[str, ...], says: str
) -> None:
    ran = plan(*WORK, "--tokens", "1T", *limit)
    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert "the fastest that fits takes" in ran.err
    assert says in ran.err


def test_where_nothing_fits_the_smallest_need_and_what_would_help_are_named(plan: Run) -> None:
    flags = ("--model", "gpt3-175b", "--seq", "2048", "--global-batch", "64")
    ran = plan(*flags, "--cluster", "1xT4-16GB", "--precision", "fp16")
    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert "the smallest need is" in ran.err
    assert "nodes like these or on " in ran.err


def test_a_world_that_no_layout_can_use_names_the_rule(plan: Run) -> None:
    ran = plan("--model", "gpt2", "--seq", "1023", "--global-batch", "1", "--cluster", "13xH100")
    assert (ran.code, "none of" in ran.err, "break " in ran.err) == (3, True, True)


def test_explanations_name_well_known_layouts_and_draw_the_step(plan: Run) -> None:
    text = plan(*WORK, "--explain").out
    assert "plain DDP" in text
    assert "GiB too much" in text
    assert "kernel efficiency" in text
    document = plan(*WORK, "--explain", "--json").document
    assert set(document) == {*KEYS, "explanation", "waterfall"}


def test_the_file_has_a_line_for_each_ranked_layout(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    found = plan(*WORK, "--csv", str(path), "--top", "0", "--json").document
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["step_time_s"]) for row in rows] == [x["step_time_s"] for x in found["best"]]
    assert len(rows) == found["fit"]


def test_unequal_nodes_are_refused(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n- {gpu: H100, count: 1, gpus: 4}\n- {gpu: A100-SXM-40GB, gpus: 4}\n")
    ran = plan(*LLAMA, "--cluster", str(path))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "this cluster mixes 4xA100-SXM-40GB, 4xH100-SXM-80GB" in ran.err


def test_a_price_in_the_cluster_file_is_used(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n- {gpu: H100, count: 1, gpus: 8, usd_per_hour: 16}\n")
    assert "$2.00 per GPU hour (by the cluster file)" in plan(*LLAMA, "--cluster", str(path)).out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*WORK, "--model", "lama3.1-8b"), "did you mean 'llama3.1-8b'?"),
        ((*LLAMA, "--cluster", "8xH1000"), "did you mean 'H100-SXM-80GB'?"),
        ((*LLAMA, "--cluster", "8xV100"), "V100-SXM-32GB does not compute in bf16"),
        ((*WORK, "--csv", "/no/such/folder/plan.csv"), "cannot be written"),
        ((*LLAMA, "--cluster", "8xMI300X", "--objective", "cost"), "--usd-per-gpu-hour"),
        ((*WORK, "--tp", "2"), "Unknown flag --tp"),
    ],
)
def test_bad_input_is_one_line_that_helps(
    plan: Run, arguments: tuple[str, ...], says: str
) -> None:
    ran = plan(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1
