"""What runs below ``path_to_logs`` left, as an outcome. Not: how one folder is read (elsewhere).

Each run is looked for in the folder of its own name. Where nobody says which runs are meant, other
folders whose names say their degrees are runs, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.sizing import SampleShape, step_flops
from autoconf_launch.core import Failure, FailureKind, Layout, RawConfig
from autoconf_launch.launcher.estimates import ChosenPrice

from ..report import SearchOutcome, SearchRun, read_run
from ..rules import NemoCandidate
from ..search import SearchQuestion, batch_path, gpu_peak_flops_per_s

_DEGREE = re.compile(r"_(tp|pp|cp|ep|mbs|vp|act_ckpt|num_mbs_act|act_per_pipe)_(\d+|None)(?=_|$)")
_DATA: tuple[tuple[str, ...], ...] = (("model", "data"), ("data",))
_NEEDED = {"tp", "pp", "mbs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRun:
    """A run to look for."""

    name: str
    point: NemoCandidate
    config: RawConfig


def read_runs(
    question: SearchQuestion,
    logs: Path,
    expected: Iterable[ExpectedRun],
    *,
    log_prefix: str,
    price: ChosenPrice | None,
    with_others: bool,
) -> SearchOutcome:
    """Every expected run and, ``with_others``, every further one in the folder.

    Raises:
        ConfigError: the package tensorboard is not installed.
    """
    known = {one.name: one for one in expected}
    others = _others(logs, known, question.base) if with_others else ()
    wanted = [*known.values(), *others]
    return SearchOutcome(
        family=question.family,
        size_b=question.size_b,
        nodes=question.nodes,
        gpus_per_node=question.gpus_per_node,
        tokens_b=question.settings.train.tokens_b,
        shape=_shape(question),
        base=question.base,
        runs=tuple(_run(question, logs, one, log_prefix) for one in wanted),
        usd_per_gpu_hour=price.usd_per_gpu_hour if price else None,
        price=price.how if price else "",
    )


def _shape(question: SearchQuestion) -> SampleShape:
    train, model = question.settings.train, question.model
    shape = SampleShape(
        layers=model.layers,
        hidden=model.hidden,
        ffn=model.ffn,
        vocabulary=train.vocabulary,
        sequence=train.sequence,
    )
    written = (question.base.get((*where, "seq_length_dec")) for where in _DATA)
    found = next((value for value in written if isinstance(value, int)), None)
    return shape if found is None else replace(shape, decoder_sequence=found)


def point_of(name: str) -> NemoCandidate | None:
    """Degrees that a run's name says; None where it says too few."""
    found = {key: _degree(value) for key, value in _DEGREE.findall(name)}
    if any(found.get(key) is None for key in _NEEDED):
        return None
    layout = Layout(
        tensor_parallel=found["tp"] or 1,
        pipeline_parallel=found["pp"] or 1,
        context_parallel=found.get("cp") or 1,
        expert_parallel=found.get("ep") or 1,
        micro_batch=found["mbs"] or 1,
    )
    return NemoCandidate(
        layout=layout,
        virtual=found.get("vp"),
        recompute_layers=found.get("act_ckpt"),
        recompute_micro_batches=found.get("num_mbs_act"),
        recompute_layers_per_pipeline=found.get("act_per_pipe"),
    )


def _degree(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _others(
    logs: Path, known: Mapping[str, ExpectedRun], base: RawConfig
) -> Iterator[ExpectedRun]:
    folders = sorted(path for path in logs.iterdir() if path.is_dir()) if logs.is_dir() else []
    for folder in folders:
        point = None if folder.name in known else point_of(folder.name)
        if point is not None:
            yield ExpectedRun(name=folder.name, point=point, config=base)


def _run(question: SearchQuestion, logs: Path, one: ExpectedRun, log_prefix: str) -> SearchRun:
    found = read_run(logs / one.name, log_prefix)
    batch = one.config.get(batch_path(one.config)) or question.model.global_batch
    run = SearchRun(name=one.name, point=one.point, global_batch=batch, config=one.config)
    if isinstance(found, Failure):
        return replace(run, failure=found)
    if why := _why_impossible(question, found.step_s, batch):
        return replace(run, failure=Failure(kind=FailureKind.NO_STEPS, detail=why))
    return replace(
        run,
        steps=found.steps,
        step_s=found.step_s,
        step_spread_s=found.step_spread_s,
        loss=found.loss,
    )


def _why_impossible(question: SearchQuestion, step_s: float, batch: int) -> str:
    """Why no GPU makes such steps; "" where one may."""
    precision = question.base.get(("trainer", "precision"))
    peak = gpu_peak_flops_per_s(question.settings, str(precision)) / 1e12
    flops = step_flops(question.family, _shape(question), batch)
    made = flops / step_s / question.gpus / 1e12
    if made <= peak:
        return ""
    return (
        f"Steps of {step_s:.4g} s would be {made:,.0f} TFLOP/s per GPU, above the peak of "
        f"{peak:,.0f}: not a measurement of {question.name} on {question.gpus} GPUs."
    )
