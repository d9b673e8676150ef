"""NVIDIA's tools have these defects, ours must not; one test for each.

Numbered as found in NeMo-Framework-Launcher's auto_configurator (24.07 to 24.12, main 26e42fa)
and in NeMo 2.0 (``nemo/collections/llm/tools/auto_configurator``, main 8cfedd7).
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch import AutoConfigurator
from autoconf_launch.autotuner.sizing import (
    BatchRow,
    Family,
    Grid,
    GridQuestion,
    ModelQuestion,
    base_batch,
    nemo_grid,
    parse_model_name,
    recompute_choices,
)
from autoconf_launch.core import Degrees, Failure, FailureKind
from autoconf_launch.nemo.candidate_grids import (
    SearchedModel,
    limit_candidates,
    minutes_limit,
    nemo_candidates,
)
from autoconf_launch.nemo.configurator.results import point_of
from autoconf_launch.nemo.report import (
    NEMO1_FAILED,
    NEMO2_SUMMARY,
    failed_csv,
    summary_csv,
    top_text,
    write_final_results,
)
from autoconf_launch.tuning_spaces import grid_rows, tables

from ..search.asked import SMALL, ask_for, train
from .found import OUT_OF_MEMORY, outcome, point, rows, run
from .logged import log_steps


def grid(**axes: Any) -> Grid:
    start: dict[str, Any] = {
        "tensor_parallel": (1, 2, 4, 8),
        "pipeline_parallel": (1, 2, 4, 6),
        "micro_batch": (1, 2, 4, 8),
        "least_product": 1,
        "most_product": 256,
    }
    return Grid(degrees=Degrees(**{**start, **axes}))


def search(**changes: Any) -> SearchedModel:
    start: dict[str, Any] = {
        "family": Family("llama"),
        "size_b": 13,
        "layers": 48,
        "heads": 64,
        "global_batch": 2048,
        "gpus": 16,
    }
    return SearchedModel(**{**start, **changes})


def configurator(logs: Path, **arguments: Any) -> AutoConfigurator:
    start: dict[str, Any] = {"num_nodes": 16, "seq_length": 4096, "global_batch_size": 512}
    start["grid"] = "nemo"
    return AutoConfigurator(path_to_logs=logs, **{**start, **arguments})


# NeMo 1.0


def test_1_the_optimum_is_the_run_with_the_least_time_not_the_first_folder(tmp_path: Path) -> None:
    """NVIDIA's sorts by the column of nodes, which are all equal, and prints the batch as time."""
    found = outcome(run("a_first", 9.0), run("b_fast", 2.0), run("c", 5.0))
    best, *_ = write_final_results(tmp_path, found)
    table = rows(tmp_path / "final_results" / "final_summary_16nodes.csv")
    assert [float(row["Time per Step"]) for row in table] == [2.0, 5.0, 9.0]
    assert "b_fast" in best.read_text()
    assert "Config #1: b_fast with 2.0000s" in top_text(found, 1)


def test_2_a_failed_run_has_its_degrees_under_their_own_headings(tmp_path: Path) -> None:
    """NVIDIA's writes tensor, context, expert, pipeline under TP, PP, CP, EP."""
    one = run("a", failure=OUT_OF_MEMORY, point=point(2, 3, 5, 7))
    write_final_results(tmp_path, outcome(one))
    (row,) = rows(tmp_path / "final_results" / "failed_jobs_16nodes.csv")
    assert [row[name] for name in ("TP", "PP", "CP", "EP")] == ["2", "3", "5", "7"]


def test_3_no_candidate_has_more_model_parallelism_than_gpus() -> None:
    """NVIDIA's keeps llama2_13b with 8 x 4 on 16 GPUs: it divides in floating point."""
    found = nemo_candidates(grid(), search(gpus=16))
    assert found
    assert max(prod(one.layout.mesh) for one in found) <= 16


def test_3_no_candidate_has_a_broken_number_of_replicas() -> None:
    """NVIDIA's keeps bert/100b with 4 x 6 on 1024 GPUs: 42.67 replicas."""
    found = nemo_candidates(grid(), search(gpus=1024, family=Family("bert"), layers=96))
    assert found
    assert all(1024 % prod(one.layout.mesh) == 0 for one in found)


def test_4_a_candidate_that_divides_thanks_to_context_ranks_is_kept() -> None:
    """NVIDIA's second check leaves context and expert ranks out."""
    axes = grid(
        tensor_parallel=(2,), pipeline_parallel=(1,), context_parallel=(4,), micro_batch=(8,)
    )
    (one,) = nemo_candidates(axes, search(gpus=1024, size_b=70, layers=80))
    assert (one.layout.tensor_parallel, one.layout.context_parallel, one.layout.micro_batch) == (
        2,
        4,
        8,
    )


@pytest.mark.parametrize("pipeline", [1, 2, 4, 8])
def test_5_no_number_of_checkpointed_micro_batches_stands_twice(pipeline: int) -> None:
    """NVIDIA's replaces 0 by 1 beside another 1: 1260 files for 855 runs of llama2_7b."""
    found = recompute_choices(Family("llama"), 7, 32, pipeline=pipeline, method="block")
    numbers = found.micro_batches
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(("minutes", "text"), [(1500, "1-1:0:00"), (3600, "2-12:0:00")])
def test_6_a_day_has_1440_minutes(minutes: int, text: str) -> None:
    """NVIDIA's takes 3600 minutes for a day, and writes 25 hours."""
    assert minutes_limit(minutes) == text


def test_7_a_micro_batch_larger_than_the_layers_is_sorted_like_others() -> None:
    """NVIDIA's buckets have as many places as there are layers."""
    axes = grid(tensor_parallel=(8,), pipeline_parallel=(1,), micro_batch=(64, 128))
    found = nemo_candidates(axes, search(layers=4, gpus=8))
    assert [one.layout.micro_batch for one in found] == [64, 128]


@pytest.mark.parametrize(
    ("model", "nodes", "sequence", "batch", "degrees"),
    [
        ("gpt3_175b", 64, 2048, 2048, "_tp_4_pp_8_cp_1_ep_1_mbs_1_"),
        ("gpt3_20b", 8, 2048, 256, "_tp_2_pp_1_cp_1_ep_1_mbs_2_"),
        ("llama3-8b", 1, 8192, 128, "_tp_1_pp_1_cp_2_ep_1_mbs_1_"),
        ("llama3-70b", 8, 8192, 128, "_tp_4_pp_4_cp_2_ep_1_mbs_1_"),
        ("llama2-13b", 2, 4096, 128, "_tp_1_pp_4_cp_1_ep_1_mbs_1_"),
    ],
)
def test_8_the_planner_has_what_nvidia_tuned_and_its_own_grid_has_not(
    tmp_path: Path, model: str, nodes: int, sequence: int, batch: int, degrees: str
) -> None:
    """NVIDIA's grid misses 21 of the 55 configurations that it ships."""
    found = configurator(
        tmp_path,
        model=model,
        num_nodes=nodes,
        seq_length=sequence,
        global_batch_size=batch,
        context_parallel_sizes="auto",
        grid="planner",
        limit_search_runs=0,
    )
    assert any(degrees in f"{name}_" for name in found.generate_configs()[1])


def test_9_a_run_without_its_log_does_not_stop_the_summary(tmp_path: Path) -> None:
    """NVIDIA's summary makes a number of the words MISSING_LOG and FAILURE."""
    found = configurator(tmp_path, model="llama3-8b", micro_batch_sizes=[1, 2])
    names = list(found.generate_configs()[1])
    log_steps(tmp_path / names[0], [1.0] * 12)
    (tmp_path / names[1]).mkdir()
    results = found.get_results()
    assert len(rows(results.summary)) == 1
    assert len(rows(results.failed)) == len(names) - 1


@pytest.mark.parametrize("limit", range(1, 12))
def test_10_a_limit_never_cuts_the_largest_micro_batches_first(limit: int) -> None:
    """NVIDIA's goes by micro-batch ascending, and the large ones are usually the fastest."""
    found = nemo_candidates(grid(), search(gpus=16))
    largest = max(one.layout.micro_batch for one in found)
    assert limit_candidates(found, limit)[0].layout.micro_batch == largest


def test_10_a_limited_search_on_this_machine_begins_with_the_largest_micro_batch() -> None:
    pytest.importorskip("hydra")
    words = (*SMALL, "grid=nemo", *train(seq_length=2048))
    everything = ask_for(*words).found.candidates
    (kept,) = ask_for(*words, *train(limit_search_runs=1)).found.candidates
    assert kept.layout.micro_batch == max(one.layout.micro_batch for one in everything)


def test_11_no_row_of_the_batch_tables_is_dead() -> None:
    """NVIDIA's row for T5 up to 0.5 B at 40 GB is overwritten by the next one."""
    for row in tables().batches:
        assert _answer(row) == (row.global_batch, row.tensor, row.pipeline)


def _answer(row: BatchRow) -> tuple[int, int | None, int | None]:
    family = "mt5" if row.family == "t5/mt5" else row.family
    asked = ModelQuestion(
        vocabulary=51200,
        family=Family(family),
        size_b=row.bound_b,
        sequence=row.sequence,
        gpu_memory_gb=row.gpu_memory_gb,
    )
    found = base_batch(tables().batches, asked)
    return found.global_batch, found.tensor, found.pipeline


def test_12_a_mean_comes_with_its_spread_and_what_is_within_it() -> None:
    """NVIDIA's has a bare mean, so that noise chooses."""
    runs = (run("a", 5.0, step_spread_s=0.5), run("b", 5.05, step_spread_s=0.5))
    text = top_text(outcome(*runs), 10)
    assert "+- 0.5s" in text
    assert "as fast as the first within the noise" in text


@pytest.mark.parametrize("kind", list(FailureKind))
def test_every_kind_of_failure_is_told_not_only_memory(kind: FailureKind) -> None:
    """NVIDIA's knows of a failed run only by the words CUDA out of memory."""
    found = outcome(run("a", failure=Failure(kind=kind, detail="Why.")))
    assert f"{kind.value}: Why." in failed_csv(found, NEMO1_FAILED)


# NeMo 2.0


def test_a_one_missing_file_shifts_no_other_run(tmp_path: Path) -> None:
    """NVIDIA's walks logs, event files and folders apart and pairs them by their places."""
    found = configurator(tmp_path, model="llama3-8b", micro_batch_sizes=[1])
    names = list(found.generate_configs()[1])
    for number, name in enumerate(names[1:], start=2):
        log_steps(tmp_path / name, [1.0] * 2 + [float(number)] * 12)
    speeds = {one.name: one.step_s for one in found.get_results().outcome.runs}
    assert speeds[names[0]] is None
    assert [round(speeds[name] or 0) for name in names[1:]] == list(range(2, len(names) + 1))


def test_b_steps_of_milliseconds_are_neither_zero_nor_ties() -> None:
    """NVIDIA's rounds to hundredths of a second, and divides by the zero that is left."""
    found = outcome(run("a", 0.0012), run("b", 0.0011))
    assert "0.0012" in (text := summary_csv(found, NEMO2_SUMMARY))
    assert text.index("0.0011") < text.index("0.0012")


@pytest.mark.parametrize(
    ("name", "size_b"),
    [("Qwen2Config1P5B", 1.5), ("Qwen3Config1P7B", 1.7), ("GPTConfig126M", 0.126)],
)
def test_c_a_size_with_a_fraction_is_read_whole(name: str, size_b: float) -> None:
    """NVIDIA's reads 5, 7 and 126."""
    assert parse_model_name(name).size_b == pytest.approx(size_b)


def test_c_a_mixture_is_as_large_as_all_its_experts(tmp_path: Path) -> None:
    """NVIDIA's takes Mixtral 8x7B for 7 B."""
    found = configurator(tmp_path, model="mixtral-8x7b")
    size_b = float(next(iter(found.generate_configs()[1])).split("_")[1].removesuffix("b"))
    assert size_b == pytest.approx(46.7, abs=0.1)


def test_d_no_result_at_all_is_an_answer(tmp_path: Path) -> None:
    """NVIDIA's fails with an IndexError."""
    text = configurator(tmp_path, model="llama3-8b").get_results().text
    assert text.startswith("No configuration was measured")


def test_e_teraflops_of_one_gpu_are_called_so() -> None:
    """NVIDIA's tool prints numbers of all GPUs as numbers of one."""
    assert "(214.07 model TFLOPS / GPU" in top_text(outcome(run("a", 5.0)), 1)


def test_f_bert_has_its_own_grid() -> None:
    """NVIDIA's lists BERT among GPTs, so that its own class is never reached."""
    asked = GridQuestion(
        family=Family("bert"), size_b=20, layers=48, sequence=512, gpu_memory_gb=80
    )
    found = nemo_grid(grid_rows(2), asked)
    assert isinstance(found, Grid)
    assert (found.degrees.tensor_parallel, found.note) == ((4, 8), "")


def test_g_activations_are_recomputed_in_some_candidates(tmp_path: Path) -> None:
    """NVIDIA's searches none, so that models which need it never fit."""
    found = configurator(tmp_path, model="llama3-70b", num_nodes=4, grid="planner")
    configs = found.generate_configs()[1].values()
    assert {one["model"]["config"].get("recompute_granularity") for one in configs} >= {"full"}


def test_i_a_gpu_of_another_memory_has_candidates(tmp_path: Path) -> None:
    """NVIDIA's tool takes only 40 and 80 GB."""
    found = configurator(tmp_path, model="llama3-8b", gpu_memory_gb=141)
    assert found.generate_configs()[1]


def test_h_minutes_bound_each_run(tmp_path: Path) -> None:
    """NVIDIA's takes max_minutes_per_run and never uses it."""
    found = configurator(tmp_path, model="llama3-8b", max_minutes_per_run=90)
    for config in found.generate_configs()[1].values():
        assert config["trainer"]["max_time"] == "00:01:30:00"


def test_j_a_fine_tuning_keeps_its_adapter_and_its_checkpoint(tmp_path: Path) -> None:
    """NVIDIA's makes each run a pretraining without either."""
    recipe = {
        "model": "llama3-8b",
        "peft": {"scheme": "lora", "dim": 8},
        "resume": {"restore_config": {"path": "nemo://llama3"}},
    }
    found = configurator(
        tmp_path,
        recipe=recipe,
        mode="finetune",
        tensor_parallel_sizes=[1, 2],
        pipeline_parallel_sizes=[1],
    )
    for config in found.generate_configs()[1].values():
        assert config["peft"] == recipe["peft"]
        assert config["resume"] == recipe["resume"]


def test_k_expert_and_context_ranks_count_in_nemo2_s_candidates_too(tmp_path: Path) -> None:
    """NVIDIA's second check leaves them out here as well."""
    found = configurator(
        tmp_path,
        model="llama3-70b",
        num_nodes=128,
        global_batch_size=2048,
        tensor_parallel_sizes=[2],
        pipeline_parallel_sizes=[1],
        context_parallel_sizes=[4],
        micro_batch_sizes=[8],
    )
    (name,) = found.generate_configs()[1]
    one = point_of(name)
    assert one is not None
    assert (one.layout.tensor_parallel, one.layout.context_parallel, one.layout.micro_batch) == (
        2,
        4,
        8,
    )
