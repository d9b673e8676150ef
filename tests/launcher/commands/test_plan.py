"""The verb through the command's entry point: text, document, file, exit code."""

import csv
import re
from pathlib import Path

import pytest

from ..conftest import Driver
from .verb import Run

LLAMA = ("--model", "llama3.1-8b", "--seq", "8192", "--global-batch", "64")
TIGHT = ("--model", "llama-3.2-3b", "--seq", "2048", "--global-batch", "32")
WORK = (*LLAMA, "--cluster", "8xH100-SXM-80GB")
KEYS = {
    *("schema_version", "considered", "valid", "fit", "safe", "headroom", "limit_gib"),
    *("seconds", "best", "faster_if_it_works", "nearest_changes", "rejected", "faster_formats"),
    *("trainer", "cluster", "why_nothing", "notes", "peak_memory_band"),
}
ROW = {
    *(
        "family",
        "candidate",
        "step_time_s",
        "step_time_band",
        "step_time_unchecked",
        "tokens_per_s_per_gpu",
        "mfu",
    ),
    *(
        "peak_memory_gib",
        "host_memory_gib",
        "free_memory",
        "fits",
        "usd_per_step",
        "training_days",
        "training_usd",
    ),
    *("tokens_per_s", "usd_per_hour", "parts", "runs_here", "runnable", "plan_only_by"),
}


def test_the_document_has_the_agreed_fields(plan: Run) -> None:
    ran = plan(*WORK, "--json")
    assert (ran.code, set(ran.document), ran.document["schema_version"]) == (0, KEYS, 2)
    assert all(set(row) == ROW for row in ran.document["best"])


def test_every_layout_is_ruled_out_once_or_fits(plan: Run) -> None:
    found = plan(*WORK, "--json").document
    assert found["considered"] - found["fit"] == sum(found["rejected"].values())
    assert found["fit"] == found["valid"] - found["rejected"]["memory"]


def test_the_best_stand_first_and_their_parts_add_up(plan: Run) -> None:
    rows = plan(*WORK, "--json", "--top", "5").document["best"]
    times = [row["step_time_s"] for row in rows]
    assert (len(rows), times) == (5, sorted(times))
    assert all(row["free_memory"] >= 0.1 for row in rows)
    assert all(sum(row["parts"].values()) == pytest.approx(row["step_time_s"]) for row in rows)


@pytest.mark.parametrize("rank", [0, 3, 5])
def test_fit_says_the_same_of_the_same_layout(run: Run, plan: Run, rank: int) -> None:
    row = plan(*WORK, "--json").document["best"][rank]
    layout = row["candidate"]
    flags = [f"--{'' if layout['sequence_parallel'] else 'no-'}sequence-parallel"]
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
    if layout["recompute_layers"]:
        flags += ["--recompute-layers", str(layout["recompute_layers"])]
    found = run("fit", *WORK, *flags, "--json").document
    assert found["step_time_s"] == pytest.approx(row["step_time_s"], rel=1e-12)
    assert found["peak_memory_gib"] == row["peak_memory_gib"]


def test_money_follows_from_the_price_of_an_hour(plan: Run) -> None:
    row = plan(*WORK, "--json", "--usd-per-gpu-hour", "3").document["best"][0]
    assert row["usd_per_step"] == pytest.approx(8 * 3 / 3600 * row["step_time_s"])


def test_without_a_known_price_no_money_is_named(plan: Run) -> None:
    ran = plan(*LLAMA, "--cluster", "8xMI300X", "--json")
    assert {row["usd_per_step"] for row in ran.document["best"]} == {None}
    assert "No price of MI300X-192GB is known" in plan(*LLAMA, "--cluster", "8xMI300X").out


def test_what_our_runtime_can_run_is_marked(plan: Run) -> None:
    rows = plan(*WORK, "--json", "--top", "40").document["best"]
    for row in rows:
        layout = row["candidate"]
        if row["runnable"]:
            assert layout["offload"] == "none"
            assert layout["tensor_parallel"] <= 8  # its key-value heads


GPT = ("--model", "gpt2", "--seq", "512", "--global-batch", "32", "--cluster", "4xH100")
MIXED = "1x4xH100-SXM-80GB+1x4xA100-SXM-80GB"
STATES = {
    "adapters": ((*LLAMA, "--cluster", "1xH100", "--lora-rank", "8"), {"with huggingface"}),
    "offload": ((*TIGHT, "--cluster", "2xRTX-3090"), {"plan-only"}),
    "their offload": (
        (*TIGHT, "--cluster", "2xRTX-3090", "--trainer", "deepspeed"),
        {"plan-only"},
    ),
    "another trainer": ((*GPT, "--trainer", "megatron", "--top", "30"), {"yes", "with megatron"}),
    "ours": ((*GPT, "--trainer", "native", "--top", "0"), {"yes", "plan-only"}),
    "adapters on unequal nodes": (
        (*LLAMA, "--cluster", MIXED, "--lora-rank", "8"),
        {"with huggingface"},
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_a_row_has_one_state_in_table_notes_json_and_csv(
    plan: Run, tmp_path: Path, name: str
) -> None:
    words, states = STATES[name]
    path = tmp_path / "plan.csv"
    document = plan(*words, "--json", "--csv", str(path)).document
    rows = document["best"] + document["faster_if_it_works"]
    labels = [row["runs_here"] for row in rows]
    assert {*labels} == states
    for row in rows:
        assert row["runnable"] == (row["runs_here"] == "yes")
        assert bool(row["plan_only_by"]) == (row["runs_here"] == "plan-only")
    with path.open(newline="") as file:
        lines = [*csv.DictReader(file)]
    assert [one["runs_here"] for one in lines][: len(labels)] == labels
    table = plan(*words).out
    shown = re.findall(r"^ *\d+  .*?  (yes|plan-only|with [\w-]+)$", table, re.M)
    assert shown[: len(labels)] == labels
    for label, start in (("plan-only", "Plan-only, as"), ("with ", "Runs with ")):
        assert (start in table) == any(label in one for one in labels)


@pytest.mark.parametrize("name", ["adapters", "offload", "their offload"])
def test_fit_gives_a_layout_the_state_that_plan_gives_it(run: Run, plan: Run, name: str) -> None:
    words, _ = STATES[name]
    row = plan(*words, "--json").document["best"][0]
    layout = row["candidate"]
    flags = [
        *("--tp", str(layout["tensor_parallel"]), "--zero", str(layout["zero_stage"])),
        *("--micro-batch", str(layout["micro_batch"]), "--recompute", layout["recompute"]),
        *("--offload", layout["offload"]),
    ]
    assert run("fit", *words, *flags, "--json").document["runs_here"] == row["runs_here"]
    sentence = "Plan-only, as" if row["runs_here"] == "plan-only" else f"Runs {row['runs_here']}"
    assert sentence in run("fit", *words, *flags).out


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
    [(("--deadline", "1h"), "the deadline is 1 hour;"), (("--max-cost", "7"), "--max-cost is $7")],
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
    assert " or with --exclude-offload, 128x4xT4-16GB." in ran.err
    assert "\n--exclude-offload, 128x4xT4-16GB  " in ran.out


def test_a_world_that_no_layout_can_use_names_the_rule(plan: Run) -> None:
    ran = plan("--model", "gpt2", "--seq", "1023", "--global-batch", "1", "--cluster", "13xH100")
    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert "none of 360 layouts is valid" in ran.err
    assert "TP does not divide the attention heads" in ran.err


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
    shown = [*found["best"], *found["faster_if_it_works"]]
    assert [float(row["step_time_s"]) for row in rows] == [one["step_time_s"] for one in shown]
    assert len(rows) == found["fit"]


def test_where_only_offload_fits_all_forms_name_the_nearest_changes(
    plan: Run, tmp_path: Path
) -> None:
    pytest.importorskip("plotly")
    path, page = tmp_path / "plan.csv", tmp_path / "plan.html"
    words = (*TIGHT, "--cluster", "2xRTX-3090")
    text = plan(*words, "--csv", str(path), "--html", str(page)).out
    changes = plan(*words, "--json").document["nearest_changes"]
    names = [one["change"] for one in changes]
    assert names == ["--optimizer adamw8bit", "--lora-rank 16", "1x4xRTX-3090-24GB"]
    assert [one["runnable"] for one in changes] == [False, False, True]
    assert all(one["candidate"]["offload"] == "none" for one in changes)
    with path.open(newline="") as file:
        blocks = [row["block"] for row in csv.DictReader(file)]
    assert blocks[-3:] == [f"helps: {name}" for name in names]
    assert set(blocks[:-3]) == {"best"}
    for name in names:
        assert f"\n{name}  " in text
        assert name in page.read_text()


def test_a_lead_within_the_band_is_a_second_block_in_all_forms(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    model = ("--model", "gpt3-175b", "--seq", "2k", "--global-batch", "512")
    words = (*model, "--cluster", "16x8xA100-SXM-80GB")
    found = plan(*words, "--csv", str(path), "--json").document
    text = plan(*words).out
    with path.open(newline="") as file:
        blocks = [row["block"] for row in csv.DictReader(file)]
    apart = len(found["faster_if_it_works"])
    assert apart
    assert blocks == ["best"] * len(found["best"]) + ["faster if it works"] * apart
    assert found["best"][0]["runnable"]
    assert "Faster if it works (by up to " in text
    assert f"\n{len(blocks)} " in text.partition("Faster if it works")[2]


def test_a_file_may_mix_nodes(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n- {gpu: H100, count: 1, gpus: 4}\n- {gpu: A100-SXM-40GB, gpus: 4}\n")
    ran = plan(*LLAMA, "--cluster", str(path))
    assert ran.code == 0
    assert "on 1x4xH100-SXM-80GB + 1x4xA100-SXM-40GB" in ran.out


def test_a_price_in_the_cluster_file_is_used(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n- {gpu: H100, count: 1, gpus: 8, usd_per_hour: 16}\n")
    assert "$2.00 per GPU hour (by the cluster file)" in plan(*LLAMA, "--cluster", str(path)).out


def test_the_rows_are_of_different_families_and_all_are_listed_on_demand(plan: Run) -> None:
    rows = plan(*WORK, "--json").document["best"]
    names = [row["family"] for row in rows]
    assert len(names) == len(set(names)) > 5
    every = plan(*WORK, "--json", "--top", "0").document
    assert len(every["best"]) == every["fit"]


def test_the_first_row_leaves_the_headroom_that_was_asked_for(plan: Run) -> None:
    for percent in (0, 10, 40):
        first = plan(*WORK, "--json", "--headroom", str(percent)).document["best"][0]
        assert first["free_memory"] >= percent / 100


def test_a_family_without_headroom_stands_below_and_is_warned_of(plan: Run) -> None:
    ran = plan(*WORK, "--trainer", "torchtitan", "--headroom", "70%")
    assert "Layouts that leave 70 % of memory free (--headroom) come first" in ran.out
    assert "With --headroom 0 the best is" in ran.out


def test_rows_within_the_error_band_below_the_limit_are_marked_and_the_mark_is_explained(
    plan: Run,
) -> None:
    ran = plan(*WORK, "--headroom", "0", "--top", "0")
    rows = ran.out.split("\n\n")[1].splitlines()
    free = rows[0].index("free") + len("free")
    shares = [int(row[:free].split()[-2]) for row in rows[2:]]
    marked = ["marginal" in row for row in rows[2:]]
    assert min(shares) >= 0
    assert all(mark for mark, share in zip(marked, shares, strict=True) if share < 9)
    assert not any(mark for mark, share in zip(marked, shares, strict=True) if share > 9)
    assert ran.out.count("marginal: below the memory limit by less than the error band") == 1
    assert "marginal" not in plan(*WORK).out


def test_rows_that_the_predictions_cannot_distinguish_from_the_first_are_counted(
    plan: Run,
) -> None:
    ran = plan(*WORK, "--json")
    first, *others = ran.document["best"]
    longest_s = first["step_time_s"] * (1 + first["step_time_band"])
    near = sum(row["step_time_s"] <= longest_s for row in others)
    all_rows = near == len(others)
    which = "All rows are" if all_rows else f"{near} of the other {len(others)} rows are"
    assert f"{which} within the error band of #1" in plan(*WORK).out
    assert "within the error band of #1" not in plan(*WORK, "--top", "1").out


def test_a_slow_network_is_named_and_headroom_only_if_it_is_used(
    plan: Run, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n- {gpu: A100-SXM-80GB, gpus: 8, count: 4, network_gb_per_s: 0.39}\n")
    ran = plan(
        "--model", "llama2-13b", "--seq", "4k", "--global-batch", "256", "--cluster", str(path)
    )
    assert "With --headroom 0" not in ran.out
    assert "The network is slow for #1: 48 % of its sends between pipeline stages" in ran.out
    path.write_text(path.read_text().replace("0.39", "39"))
    ran = plan(
        "--model", "llama2-13b", "--seq", "4k", "--global-batch", "256", "--cluster", str(path)
    )
    assert "The network is slow" not in ran.out


def test_where_every_layout_is_above_the_memory_none_is_shown(plan: Run) -> None:
    small = ("--model", "llama3.1-8b", "--seq", "8k", "--global-batch", "8", "--cluster", "H100")
    need = plan(*small, "--json", "--top", "0").document["best"]
    least = min(row["peak_memory_gib"] for row in need)
    ran = plan(*small, "--memory-limit", f"{0.98 * least:.3f}GiB")
    assert (ran.code, "\n 1 " in ran.out) == (3, False)
    assert "±10 % of" in ran.err
    assert "without --memory-limit" in ran.err


def test_speed_and_utilization_follow_from_the_step(plan: Run) -> None:
    row = plan(*WORK, "--json").document["best"][0]
    speed = 64 * 8192 / 8 / row["step_time_s"]
    assert row["tokens_per_s_per_gpu"] == pytest.approx(speed)
    dense = 6 * (8.03e9 - 128256 * 4096) * speed  # embeddings are looked up, not multiplied
    causal = 6 * 32 * 4096 * 8192 * speed
    assert row["mfu"] == pytest.approx((dense + causal) / 989.4e12, rel=0.01)


def test_operations_that_tensor_ranks_repeat_are_not_the_models(plan: Run) -> None:
    """Llama-3 has 8 key and value heads, which 16 ranks hold twice."""
    work = ("--model", "llama3-8b", "--seq", "8k", "--global-batch", "64", "--cluster", "2x8xH100")
    rows = plan(*work, "--top", "0", "--json").document["best"]
    assert 16 in {row["candidate"]["tensor_parallel"] for row in rows}
    shares = [row["mfu"] / row["tokens_per_s_per_gpu"] for row in rows]
    assert max(shares) == pytest.approx(min(shares))


def test_the_table_says_what_was_ruled_out_in_words(plan: Run) -> None:
    out = plan(*WORK).out
    assert "sequence parallelism needs TP" in out
    assert "sp_tp" not in out


def test_no_number_has_an_exponent(plan: Run) -> None:
    flags = ("--model", "llama3.1-405b", "--seq", "128k", "--global-batch", "4096")
    out = plan(*flags, "--cluster", "32x8xA100", "--tokens", "15T").out
    assert "131072 tokens" in out
    assert "e+0" not in out


BIG = ("--model", "llama2-70b", "--seq", "2048", "--global-batch", "64")


def test_host_memory_of_offload_is_a_column_and_a_limit(plan: Run, tmp_path: Path) -> None:
    roomy = plan(*BIG, "--cluster", "8xA100")
    assert "host memory" in roomy.out
    assert "A node has 1152.0 GiB of host memory." in roomy.out
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n- {gpu: A100, gpus: 8, host_memory_gib: 256}\n")
    tight = plan(*BIG, "--cluster", str(path))
    assert "offloads more than the host memory of a node holds" in tight.out
    assert tight.code == 3


def test_offload_may_be_excluded_from_the_rows_and_what_they_are_compared_with(
    plan: Run,
) -> None:
    work = ("--model", "gpt2", "--cluster", "2xA100", "--seq", "1024", "--global-batch", "64")
    words = (*work, "--trainer", "deepspeed", "--top", "0", "--explain")
    kinds = [
        {row["candidate"]["offload"] for row in plan(*words, *more, "--json").document["best"]}
        for more in ((), ("--exclude-offload",))
    ]
    assert kinds == [{"none", "optimizer", "parameters"}, {"none"}]
    assert "the best with offload" in plan(*words).out
    assert "offload" not in plan(*words, "--exclude_offload").out


def test_an_unknown_host_memory_is_said_once(plan: Run) -> None:
    ran = plan("--model", "llama2-7b", *BIG[2:], "--cluster", "2xRTX-4090")
    assert ran.out.count("Host memory is not checked") == 1


def test_this_machine_without_a_gpu_is_planned_roughly_and_without_offload(
    plan: Run, driver: Driver
) -> None:
    driver()
    work = ("--model", "gpt2", "--cluster", "2xlocal", "--seq", "128", "--global-batch", "4")
    assert "Times on a CPU are rough" in plan(*work).out
    rows = plan(*work, "--json", "--top", "0").document["best"]
    assert rows
    assert {row["candidate"]["offload"] for row in rows} == {"none"}


ADAPTERS = ("--model", "llama3-8b", "--global-batch", "16", "--lora-rank", "16", "--json")


def test_the_nearest_changes_of_adapters_are_adapters(plan: Run) -> None:
    document = plan(*ADAPTERS, "--seq", "8192", "--cluster", "1xRTX-4090").document
    changes = [one["change"] for one in document["nearest_changes"]]
    assert all("lora" not in change and "optimizer" not in change for change in changes)
    assert any("--weights nf4" in change for change in changes)
    assert any("--seq" in change for change in changes)
    assert any(change.endswith("xRTX-4090-24GB") for change in changes)
    assert {one["trainer"] for one in document["nearest_changes"]} == {"huggingface"}


def test_adapters_that_fit_need_no_change(plan: Run) -> None:
    ran = plan(*ADAPTERS, "--seq", "2048", "--cluster", "1xRTX-4090").document
    assert (ran["trainer"], ran["nearest_changes"]) == ("huggingface", [])


def test_a_change_names_the_trainer_that_runs_it_and_is_priced_by_its_rules(plan: Run) -> None:
    work = ("--model", "llama3-70b", "--seq", "8192", "--global-batch", "64")
    where = ("--cluster", "8xA100", "--top", "1", "--json")
    changes = plan(*work, *where, "--trainer", "torchtitan").document["nearest_changes"]
    lora = next(one for one in changes if "--lora-rank" in one["change"])
    assert lora["change"] == "--lora-rank 16, --trainer huggingface"
    light = [one["change"] for one in changes if "adamw8bit" in one["change"]]
    assert all("--trainer" in change for change in light)
    asked = (*work, *where, "--trainer", "huggingface", "--lora-rank", "16")
    best = plan(*asked).document["best"][0]
    assert best["step_time_s"] == pytest.approx(lora["step_time_s"])


def test_a_trainer_without_pipelines_has_none_ranked(plan: Run) -> None:
    ran = plan(*WORK, "--trainer", "huggingface", "--top", "0", "--json").document
    layouts = [one["candidate"] for one in ran["best"]]
    assert {one["pipeline_parallel"] for one in layouts} == {1}
    assert not any(one["sequence_parallel"] for one in layouts)
    assert ran["rejected"]["trainer_pp"] > 0
    assert "the trainer has no pipelines" in plan(*WORK, "--trainer", "huggingface").out
