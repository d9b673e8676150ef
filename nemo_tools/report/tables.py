"""The tables of a training search: candidates as text and JSON, runs as JSON and NVIDIA's CSV.

Columns are declared by name, so that a value cannot get under another heading. NVIDIA's headings
are spelled correctly; our own columns follow them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from autoconf_launch.core import GIB
from autoconf_launch.launcher.report import (
    Column,
    each,
    rows_documents,
)
from autoconf_launch.launcher.results import ResultsPaths

from .outcome import (
    SearchOutcome,
    SearchRun,
    failed_runs,
    failure_kind,
    fastest_first,
    named_failure,
    optimum,
    round_figure,
)
from .sentences import extrapolation, top_text
from .serving import Columns, columns_csv, four_digits

MESH = (
    each("tensor_parallel", "layout.tensor_parallel", "tp"),
    each("pipeline_parallel", "layout.pipeline_parallel", "pp"),
    each("context_parallel", "layout.context_parallel", "cp"),
    each("expert_parallel", "layout.expert_parallel", "ep"),
    each("micro_batch", "layout.micro_batch", "mbs"),
)
_RUNS: Columns = (
    each("name"),
    *MESH,
    each("recompute_layers", "point.recompute_layers"),
    each("knobs", lambda a, run: dict(run.knobs)),
    each("global_batch"),
    each("steps", "whole_steps"),
    each("extrapolated_from_micro_batches", "extrapolated_from"),
    *(each("step_s"), each("step_spread_s"), each("peak_bytes")),
    each("failure", data=failure_kind),
    each("detail", "failure.detail"),
)
_VIRTUAL = each("VP", "run.point.virtual")
_RECOMPUTE: Columns = (
    each("Act Ckpt Layers", "run.point.recompute_layers"),
    each("Act Ckpt Micro Batches", "run.point.recompute_micro_batches"),
    each("Act Ckpt Layers per Pipeline", "run.point.recompute_layers_per_pipeline"),
)
_REASON = each("Error Message", "failure", data=named_failure)
FINAL_RESULTS = "final_results"
NEMO2 = "nemo2"
"""Folder inside for the tables of NeMo 2.0, with the same names as in 1.0."""


def _recompute_text(answer: Any, one: Any) -> str:
    kind, layers = one.layout.recompute.value, one.point.recompute_layers
    return f"{kind} {layers}" if layers else kind


CANDIDATES: Columns = (
    *MESH,
    each("virtual_pipeline", "layout.virtual_pipeline", "vp"),
    each("accumulation", "layout.accumulation", "gas"),
    each("data_parallel", "layout.data_parallel"),
    each("recompute", "layout.recompute.value"),
    each("recompute_layers", "point.recompute_layers"),
    each("zero_stage", "layout.zero_stage"),
    each("", _recompute_text, "recompute", is_left=True),
    each("predicted_step_s", "step_s", "s/step", four_digits),
    each("predicted_peak_bytes", "peak_bytes", "GiB", lambda size: four_digits(size / GIB)),
    each("name", header="name", is_left=True),
)
"""Rows are candidates of a search."""


def run_documents(runs: Sequence[SearchRun]) -> list[dict[str, Any]]:
    """Runs as JSON objects."""
    return rows_documents(_RUNS, runs)


def _answer(name: str, of: Callable[[SearchOutcome], object]) -> Column:
    return each(name, lambda outcome, row: of(outcome))


def _figure(name: str, of: str, decimals: int = 2) -> Column:
    return each(name, of, data=lambda value: round_figure(value, decimals))


_MODEL: Columns = (
    _answer("Model Name", lambda found: found.shape.family.name),
    _answer("Model Size", lambda found: f"{found.size_b:.10g}"),
    _answer("Seq Length", lambda found: found.shape.sequence),
    each("TP", "run.layout.tensor_parallel"),
    each("PP", "run.layout.pipeline_parallel"),
    each("CP", "run.layout.context_parallel"),
    each("EP", "run.layout.expert_parallel"),
    each("MBS", "run.layout.micro_batch"),
)
_SHAPE: Columns = (
    _answer("Num Layers", lambda found: found.shape.layers * found.stacks),
    _answer("Hidden Size", lambda found: found.shape.hidden),
    _answer("FFN Hidden Size", lambda found: found.shape.ffn),
    each("GBS", "run.global_batch"),
    _answer("Nodes", lambda found: found.nodes),
    _answer("GPUs per Node", lambda found: found.gpus_per_node),
)
_SPEED: Columns = (
    _figure("Time per Step", "step_s", 4),
    _figure("Samples per Second", "samples_per_s"),
    _figure("Model TFLOPS / GPU", "model_tflops_per_gpu"),
    _figure("Model TFLOPS Aggregate", "model_tflops"),
)
_OURS: Columns = (
    _figure("Days to Train", "days"),
    _figure("Cost [USD]", "usd"),
    each("Steps", "run.whole_steps"),
    each("Extrapolated from", lambda found, one: extrapolation(one.run) or None),
    _figure("Step Time Spread", "run.step_spread_s", 4),
    each("Peak Memory [GiB]", "run.peak_bytes", data=lambda size: round_figure(size / GIB)),
    _figure("Loss", "run.loss"),
)
_CONFIG = each("Config Name", lambda found, one: config_name(one.run))
NEMO1_SUMMARY: Columns = (*_MODEL, *_RECOMPUTE, *_SHAPE, *_SPEED, _CONFIG, *_OURS)
NEMO1_FAILED: Columns = (*_MODEL, *_RECOMPUTE, *_SHAPE, _REASON)
NEMO2_SUMMARY: Columns = (*_MODEL, _VIRTUAL, *_SHAPE, *_SPEED, _RECOMPUTE[0])
NEMO2_FAILED: Columns = (*_MODEL, _VIRTUAL, *_SHAPE, _REASON, _RECOMPUTE[0])


def summary_csv(outcome: SearchOutcome, columns: Columns) -> str:
    """Measured runs, the fastest first."""
    return columns_csv(columns, fastest_first(outcome), outcome)


def failed_csv(outcome: SearchOutcome, columns: Columns) -> str:
    """Runs that failed, each with its reason."""
    return columns_csv(columns, failed_runs(outcome), outcome)


def config_name(run: SearchRun) -> str:
    """``tp2_pp1_cp1_ep1_mbs4_act_0_num_mbs_act_None_act_per_pipe_None`` and other knobs."""
    point = run.point
    tensor, pipeline, context, expert = point.layout.mesh
    start = (
        f"tp{tensor}_pp{pipeline}_cp{context}_ep{expert}"
        f"_mbs{point.layout.micro_batch}_act_{point.recompute_layers}"
        f"_num_mbs_act_{point.recompute_micro_batches}"
        f"_act_per_pipe_{point.recompute_layers_per_pipeline}"
    )
    return "_".join((start, *(f"{name}_{value}" for name, value in run.knobs)))


def write_final_results(logs: Path, outcome: SearchOutcome, *, top: int = 10) -> tuple[Path, ...]:
    """Write every table, the best configuration and the ranking below ``logs/final_results``.

    Each file is written whole or not at all. Without a measurement there is no optimal
    configuration, and an earlier search's is removed.

    Args:
        logs: folder of the search, made if it is not there.
        outcome: with any number of successes and failures.
        top: how many configurations the ranking lists; 0 lists all.

    Returns:
        The files, the best configuration first if there is one.
    """
    folder = logs / FINAL_RESULTS
    name = f"optimal_config_{outcome.size_b:.10g}b_{outcome.nodes}nodes.yaml"
    path, best, texts = folder / name, optimum(outcome), dict[Path, str]()
    if best is not None:
        texts[path] = yaml.safe_dump(best.config.to_dict(), sort_keys=False, width=99)
    texts |= _tables(folder, outcome, NEMO1_SUMMARY, NEMO1_FAILED)
    texts[folder / f"top_{top or 'all'}.log"] = top_text(outcome, top)
    texts |= _tables(folder / NEMO2, outcome, NEMO2_SUMMARY, NEMO2_FAILED)
    _write(logs, texts, absent=() if best else (path,))
    return tuple(texts)


def write_nemo2_tables(folder: Path, outcome: SearchOutcome) -> tuple[Path, ...]:
    """Write the two tables of NeMo 2.0 into a folder: measured runs, failed ones."""
    texts = _tables(folder, outcome, NEMO2_SUMMARY, NEMO2_FAILED)
    _write(folder, texts)
    return tuple(texts)


def _tables(
    folder: Path, outcome: SearchOutcome, measured: Columns, failed: Columns
) -> dict[Path, str]:
    end = f"{outcome.nodes}nodes.csv"
    return {
        folder / f"final_summary_{end}": summary_csv(outcome, measured),
        folder / f"failed_jobs_{end}": failed_csv(outcome, failed),
    }


def _write(root: Path, texts: Mapping[Path, str], absent: tuple[Path, ...] = ()) -> None:
    paths = ResultsPaths(results=root, exps=root, chosen_by="base_results_dir")
    for path in absent:
        paths.make_below(path.parent)
        path.unlink(missing_ok=True)
    for path, text in texts.items():
        paths.write(path, text)
