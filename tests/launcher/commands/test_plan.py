"""The verb through the command's entry point: text, document, file, exit code."""

import re
from pathlib import Path

import pytest

from ..conftest import Driver
from .verb import Run, flags_of, table

LLAMA = ("--model", "llama3.1-8b", "--seq", "8192", "--global-batch", "64")
TIGHT = ("--model", "llama-3.2-3b", "--seq", "2048", "--global-batch", "32")
WORK = (*LLAMA, "--cluster", "8xH100-SXM-80GB")


def test_activations_are_offloaded_if_nothing_else_fits(plan: Run) -> None:
    unsloth = ("--model", "llama3.1-8b", "--cluster", "1xRTX-4090", "--trainer", "unsloth")
    long = (*unsloth, "--lora-rank", "32", "--weights", "nf4", "--global-batch", "1")
    fitting, too_long = (plan(*long, "--seq", tokens, "--json") for tokens in ("16384", "65536"))
    offloads = [ran.document["best"][0]["candidate"]["offload"] for ran in (fitting, too_long)]
    assert offloads == ["none", "activations"]


def test_layouts_are_counted_once_and_the_best_come_first(plan: Run) -> None:
    found = plan(*WORK, "--json", "--top", "5").document
    assert found["considered"] - found["fit"] == sum(found["rejected"].values())
    assert found["fit"] == found["valid"] - found["rejected"]["memory"]
    rows = found["best"]
    times = [row["step_time_s"] for row in rows]
    assert (len(rows), times) == (5, sorted(times))
    assert all(sum(row["parts"].values()) == pytest.approx(row["step_time_s"]) for row in rows)


@pytest.mark.parametrize("rank", [0, 3, 5])
def test_fit_says_the_same_of_the_same_layout(run: Run, plan: Run, rank: int) -> None:
    row = plan(*WORK, "--json").best[rank]
    found = run("fit", *WORK, *flags_of(row["candidate"]), "--json").document
    assert found["step_time_s"] == pytest.approx(row["step_time_s"], rel=1e-12)
    assert found["peak_memory_gib"] == row["peak_memory_gib"]


def test_money_follows_from_the_price_of_an_hour(plan: Run) -> None:
    row = plan(*WORK, "--json", "--usd-per-gpu-hour", "3").best[0]
    assert row["usd_per_step"] == pytest.approx(8 * 3 / 3600 * row["step_time_s"])


def test_without_a_known_price_no_money_is_named(plan: Run) -> None:
    ran = plan(*LLAMA, "--cluster", "8xMI300X", "--json")
    assert {row["usd_per_step"] for row in ran.best} == {None}
    assert "No price of MI300X-192GB is known" in plan(*LLAMA, "--cluster", "8xMI300X").out


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
def test_a_row_has_one_state_in_all_forms_and_by_fit(
    run: Run, plan: Run, tmp_path: Path, name: str
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
    assert [row["runs_here"] for row in table(path)][: len(labels)] == labels
    text = plan(*words).out
    shown = re.findall(r"^ *\d+  .*?  (yes|plan-only|with [\w-]+)$", text, re.M)
    assert shown[: len(labels)] == labels
    for label, start in (("plan-only", "Plan-only, as"), ("with ", "Runs with ")):
        assert (start in text) == any(label in one for one in labels)
    flags = flags_of(document["best"][0]["candidate"])
    assert run("fit", *words_of_fit(words), *flags, "--json").document["runs_here"] == labels[0]
    sentence = {"plan-only": "Plan-only, as", "yes": ""}.get(labels[0], f"Runs {labels[0]}")
    assert sentence in run("fit", *words_of_fit(words), *flags).out


def words_of_fit(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[: words.index("--top")] if "--top" in words else words


def test_a_deadline_leaves_out_what_is_too_slow(plan: Run) -> None:
    free = plan(*WORK, "--json", "--top", "0").document
    steps = -(-(10**12) // (64 * 8192))
    days = 1.1 * free["best"][0]["step_time_s"] * steps / 86400
    flags = ("--tokens", "1T", "--deadline", f"{days:.6f}d", "--top", "0", "--json")
    kept = plan(*WORK, *flags).document
    assert 0 < len(kept["best"]) < len(free["best"])
    assert kept["rejected"]["deadline"] == free["fit"] - len(kept["best"])
    ran = plan(*WORK, "--tokens", "1T", "--max-cost", "7")
    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert "the fastest that fits takes" in ran.err
    assert "--max-cost is $7" in ran.err


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
    assert "none of 480 layouts is valid" in ran.err
    assert "TP does not divide the attention heads" in ran.err


def test_explanations_name_well_known_layouts_and_draw_the_step(plan: Run) -> None:
    text = plan(*WORK, "--explain").out
    for words in ("plain DDP", "GiB too much", "kernel efficiency"):
        assert words in text
    plain, explained = (plan(*WORK, *more, "--json").document for more in ((), ("--explain",)))
    assert explained.keys() - plain.keys() == {"explanation", "waterfall"}


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
    blocks = [row["block"] for row in table(path)]
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
    apart = len(found["faster_if_it_works"])
    assert apart
    blocks = ["best"] * len(found["best"]) + ["faster if it works"] * apart
    assert [row["block"] for row in table(path)] == blocks
    assert found["best"][0]["runnable"]
    assert "Faster if it works (by up to " in text
    assert f"\n{len(blocks)} " in text.partition("Faster if it works")[2]


def test_the_rows_are_of_different_families_and_all_are_listed_on_demand(
    plan: Run, tmp_path: Path
) -> None:
    path = tmp_path / "plan.csv"
    names = [row["family"] for row in plan(*WORK, "--json").best]
    assert len(names) == len(set(names)) > 5
    every = plan(*WORK, "--json", "--top", "0", "--csv", str(path)).document
    assert len(every["best"]) == every["fit"]
    shown = [*every["best"], *every["faster_if_it_works"]]
    times = [row["step_time_s"] for row in shown]
    assert [float(row["step_time_s"]) for row in table(path)] == times


def test_the_headroom_that_was_asked_for_is_left_by_the_first_rows(plan: Run) -> None:
    for percent in (0, 10, 40):
        first = plan(*WORK, "--json", "--headroom", str(percent)).best[0]
        assert first["free_memory"] >= percent / 100
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
    work = ("--model", "llama2-13b", "--seq", "4k", "--global-batch", "256")

    def answer(network: float) -> str:
        node = f"{{gpu: A100-SXM-80GB, gpus: 8, count: 4, network_gb_per_s: {network}}}"
        path.write_text(f"nodes:\n- {node}\n")
        return plan(*work, "--cluster", str(path)).out

    slow = answer(0.39)
    assert "With --headroom 0" not in slow
    assert "The network is slow for #1: 48 % of its sends between pipeline stages" in slow
    assert "The network is slow" not in answer(39)


def test_where_every_layout_is_above_the_memory_none_is_shown(plan: Run) -> None:
    small = ("--model", "llama3.1-8b", "--seq", "8k", "--global-batch", "8", "--cluster", "H100")
    least = min(row["peak_memory_gib"] for row in plan(*small, "--json", "--top", "0").best)
    ran = plan(*small, "--memory-limit", f"{0.98 * least:.3f}GiB")
    assert (ran.code, "\n 1 " in ran.out) == (3, False)
    assert "±10 % of" in ran.err
    assert "without --memory-limit" in ran.err


def test_speed_and_utilization_follow_from_the_step(plan: Run) -> None:
    row = plan(*WORK, "--json").best[0]
    speed = 64 * 8192 / 8 / row["step_time_s"]
    assert row["tokens_per_s_per_gpu"] == pytest.approx(speed)
    dense = 6 * (8.03e9 - 128256 * 4096) * speed  # embeddings are looked up, not multiplied
    causal = 6 * 32 * 4096 * 8192 * speed
    assert row["mfu"] == pytest.approx((dense + causal) / 989.4e12, rel=0.01)


def test_operations_that_tensor_ranks_repeat_are_not_the_models(plan: Run) -> None:
    """Llama-3 has 8 key and value heads, which 16 ranks hold twice."""
    work = ("--model", "llama3-8b", "--seq", "8k", "--global-batch", "64", "--cluster", "2x8xH100")
    rows = plan(*work, "--top", "0", "--json").best
    assert 16 in {row["candidate"]["tensor_parallel"] for row in rows}
    shares = [row["mfu"] / row["tokens_per_s_per_gpu"] for row in rows]
    assert max(shares) == pytest.approx(min(shares))


def test_no_number_has_an_exponent(plan: Run) -> None:
    flags = ("--model", "llama3.1-405b", "--seq", "128k", "--global-batch", "4096")
    out = plan(*flags, "--cluster", "32x8xA100", "--tokens", "15T").out
    assert "131072 tokens" in out
    assert "e+0" not in out


BIG = ("--model", "llama2-70b", "--seq", "2048", "--global-batch", "64")


def test_host_memory_of_offload_is_a_column_and_a_limit(plan: Run, tmp_path: Path) -> None:
    roomy = plan(*BIG, "--cluster", "8xA100").out
    assert "host memory" in roomy
    assert "A node has 1152.0 GiB of host memory." in roomy
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n- {gpu: A100, gpus: 8, host_memory_gib: 256}\n")
    tight = plan(*BIG, "--cluster", str(path))
    assert "offloads more than the host memory of a node holds" in tight.out
    assert tight.code == 3
    unknown = plan("--model", "llama2-7b", *BIG[2:], "--cluster", "2xRTX-4090").out
    assert unknown.count("Host memory is not checked") == 1


def test_offload_may_be_excluded_from_the_rows_and_what_they_are_compared_with(
    plan: Run,
) -> None:
    work = ("--model", "gpt2", "--cluster", "2xA100", "--seq", "1024", "--global-batch", "64")
    words = (*work, "--trainer", "deepspeed", "--top", "0", "--explain")
    kinds = [
        {row["candidate"]["offload"] for row in plan(*words, *more, "--json").best}
        for more in ((), ("--exclude-offload",))
    ]
    assert kinds == [{"none", "optimizer", "parameters"}, {"none"}]
    assert "the best with offload" in plan(*words).out
    assert "offload" not in plan(*words, "--exclude_offload").out


def test_this_machine_without_a_gpu_is_planned_roughly_and_without_offload(
    plan: Run, driver: Driver
) -> None:
    driver()
    work = ("--model", "gpt2", "--cluster", "2xlocal", "--seq", "128", "--global-batch", "4")
    assert "Times on a CPU are rough" in plan(*work).out
    rows = plan(*work, "--json", "--top", "0").best
    assert {row["candidate"]["offload"] for row in rows} == {"none"}


ADAPTERS = ("--model", "llama3-8b", "--global-batch", "16", "--lora-rank", "16", "--json")


def test_the_nearest_changes_of_adapters_are_adapters(plan: Run) -> None:
    long, short = (
        plan(*ADAPTERS, "--seq", length, "--cluster", "1xRTX-4090").document["nearest_changes"]
        for length in ("8192", "2048")
    )
    changes = [one["change"] for one in long]
    assert all("lora" not in change and "optimizer" not in change for change in changes)
    for part in ("--weights nf4", "--seq", "xRTX-4090-24GB"):
        assert any(part in change for change in changes)
    assert {one["trainer"] for one in long} == {"huggingface"}
    assert short == []


def test_a_change_names_the_trainer_that_runs_it_and_is_priced_by_its_rules(plan: Run) -> None:
    work = ("--model", "llama3-70b", "--seq", "8192", "--global-batch", "64")
    where = ("--cluster", "8xA100", "--top", "1", "--json")
    changes = plan(*work, *where, "--trainer", "torchtitan").document["nearest_changes"]
    lora = next(one for one in changes if "--lora-rank" in one["change"])
    assert lora["change"] == "--lora-rank 16, --trainer huggingface"
    light = [one["change"] for one in changes if "adamw8bit" in one["change"]]
    assert all("--trainer" in change for change in light)
    asked = (*work, *where, "--trainer", "huggingface", "--lora-rank", "16")
    assert plan(*asked).best[0]["step_time_s"] == pytest.approx(lora["step_time_s"])


def test_a_trainer_without_pipelines_has_none_ranked(plan: Run) -> None:
    ran = plan(*WORK, "--trainer", "huggingface", "--top", "0", "--json").document
    layouts = [one["candidate"] for one in ran["best"]]
    assert {one["pipeline_parallel"] for one in layouts} == {1}
    assert not any(one["sequence_parallel"] for one in layouts)
    assert ran["rejected"]["trainer_pp"] > 0
    assert "the trainer has no pipelines" in plan(*WORK, "--trainer", "huggingface").out


def test_a_change_names_a_flag_that_it_drops(plan: Run) -> None:
    asked = ("--model", "llama3-8b", "--cluster", "8xH100", "--seq", "8k", "--global-batch", "64")
    changes = plan(*asked, "--trainer", "huggingface", "--loss", "fused", "--json").document[
        "nearest_changes"
    ]
    assert any("without --loss" in one["change"] for one in changes)
