"""Frameworks whose settings are arguments: Megatron-LM and Hugging Face Trainer. Not: files."""

from __future__ import annotations

import shlex

from autoconf_launch.autotuner.space import LAYOUT_KNOBS
from autoconf_launch.core import Layout, Offload, Precision, RawConfig

from ..dialects import HfTrainerDialect, MegatronDialect
from ..dialects import hf_deepspeed as hf_names
from ..dialects import megatron as names
from ..script import ScriptSource
from ..spelling import (
    GLOBAL_BATCH,
    LaunchInputs,
    Spelled,
    TableDialect,
    find_argument,
    put_argument,
)
from .page import Exported, Optimum, Page, comments

_HALVES = (Precision.BF16, Precision.FP16)
_NOTHING = ScriptSource(script_args=(), config=RawConfig({}), config_argument=None)


def megatron(optimum: Optimum) -> Exported:
    """Megatron-LM's arguments, one on each line."""
    layout, page = optimum.layout, Page(optimum)
    inputs = _written(MegatronDialect(), page, but=("zero_stage",))
    more: list[str] = []
    if layout.zero_stage:
        more.append(names.DISTRIBUTED_OPTIMIZER)
    if layout.zero_stage in names.SHARDINGS:
        more += [names._FSDP, names.SHARDING, names.SHARDINGS[layout.zero_stage]]
    page.done("zero_stage", "accumulation")
    if layout.offload is Offload.OPTIMIZER:
        more.append(names.OPTIMIZER_OFFLOAD)
        page.done("offload")
    if optimum.precision in _HALVES:
        more.append(f"--{optimum.precision.value}")
    return _lines((*inputs.arguments, *more), page)


def hf_trainer(optimum: Optimum) -> Exported:
    """Arguments of TrainingArguments, one on each line."""
    page = Page(optimum)
    only_deepspeed = optimum.layout.zero_stage == 1
    if only_deepspeed:
        page.cannot("zero_stage", "only DeepSpeed has it: export --to deepspeed and pass its file")
    but = ("zero_stage",) if only_deepspeed else ()
    inputs = _written(HfTrainerDialect(), page, but=but)
    more: list[str] = []
    bucket = dict(optimum.candidate.extras).get("bucket_cap_mb")
    if bucket is not None:
        more += ["--ddp_bucket_cap_mb", str(bucket)]
        page.done("bucket_cap_mb")
    if optimum.precision in _HALVES:
        more.append(f"--{optimum.precision.value}")
    return _lines((*_with_offload(inputs.arguments, page), *more), page)


def _with_offload(arguments: tuple[str, ...], page: Page) -> tuple[str, ...]:
    """FSDP keeps weights on the host by one more word of ``--fsdp``."""
    given = find_argument(arguments, (hf_names._FSDP,))
    if page.optimum.layout.offload is not Offload.PARAMETERS or given is None:
        return arguments
    page.done("offload")
    return put_argument(arguments, given, hf_names._FSDP, f"{given.value} {hf_names.FSDP_OFFLOAD}")


def _written(dialect: TableDialect, page: Page, but: tuple[str, ...]) -> LaunchInputs:
    """All knobs of the table with their values, defaults of the batch included."""
    layout, inputs = page.optimum.layout, LaunchInputs()
    for row in dialect.table(_NOTHING, layout.world_size):
        if row.knob == GLOBAL_BATCH and row.names()[0].startswith("--"):
            inputs = row.write(inputs, layout.global_batch)
        elif row.knob in LAYOUT_KNOBS and row.knob not in but:
            inputs = _with_row(row, inputs, layout)
            page.done(row.knob)
    return inputs


def _with_row(row: Spelled, inputs: LaunchInputs, layout: Layout) -> LaunchInputs:
    value = getattr(layout, row.knob)
    places = getattr(row, "places", ())
    if row.knob in ("micro_batch", "accumulation") and places:
        return places[0].put(inputs, value)  # type: ignore[no-any-return]
    return row.write(inputs, value)


def _lines(arguments: tuple[str, ...], page: Page) -> Exported:
    lines: list[str] = []
    for argument in arguments:
        if argument.startswith("--") or not lines:
            lines.append(shlex.quote(argument))
        else:
            lines[-1] += f" {shlex.quote(argument)}"
    left_out = page.left_out()
    return Exported(text=comments(left_out) + "\n".join(lines) + "\n", left_out=left_out)
