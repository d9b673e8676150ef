"""Inputs and outputs of an export, with an account of settings that cannot be expressed.

``megatron/training/arguments.py`` of Megatron-LM 0.6.0 and later, ``transformer/moe/moe_layer.py``
and ``transformer/transformer_config.py`` of megatron-core 0.16.1 (PyPI).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from autoconf_launch.autotuner.sizing import Pretraining, pretraining
from autoconf_launch.autotuner.space import KNOBS, LAYOUT_KNOBS, RECOMPUTE_LAYERS
from autoconf_launch.core import (
    BUILTIN_PRECISIONS,
    Candidate,
    ConfigError,
    KeyPath,
    Layout,
    Precision,
    RawConfig,
    Recompute,
    States,
    Workload,
    nearest_known,
    visible,
)

from ..exporters import BASE_EXPORTERS, EXPORTERS, LAYOUT_EXPORTERS
from ..extension_points import load_extension, references
from ..script import ScriptSource
from ..spelling import (
    GLOBAL_BATCH,
    LaunchInputs,
    Spelled,
    TableDialect,
)

_FOLLOWS = ("data_parallel",)
NEMO_DEGREES = {
    "tensor_parallel": "tensor_model_parallel_size",
    "pipeline_parallel": "pipeline_model_parallel_size",
    "context_parallel": "context_parallel_size",
    "expert_parallel": "expert_model_parallel_size",
}
"""NeMo's keys for the degrees of a mesh."""
HALVES = (Precision.BF16, Precision.FP16)
_NOTHING = ScriptSource(script_args=(), config=RawConfig({}), config_argument=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The winner of a results folder, a row of a plan, or the layout of a base configuration.

    ``plan_only``: why our own runtime does not run it, as a phrase. ``job``: the nodes of a row on
    unequal nodes, in the order of its ranks. ``training``: the whole training of a base
    configuration, whose keys are in ``document``. None for unknown values.
    """

    name: str
    candidate: Candidate
    nodes: int = 1
    precision: Precision | None = None
    sequence_length: int | None = None
    optimizer: str | None = None
    states: States | None = None
    plan_only: str | None = None
    job: NodeJob | None = None
    training: Pretraining | None = None
    document: RawConfig = field(default_factory=lambda: RawConfig({}))

    @property
    def layout(self) -> Layout:
        return self.candidate.layout

    @property
    def ranks_per_node(self) -> int:
        return self.layout.world_size // self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A framework's file or arguments.

    Attributes:
        suffix: end of its file's name.
        left_out: sentences on settings that it does not express.
        changed: the sentences on settings that no user of the framework can add, so that another
            layout than the optimum would run.
        files: other files, by the end of their names, which replaces the text's own suffix.
        precisions: precisions that its text states or implies.
    """

    text: str
    suffix: str
    left_out: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    precisions: tuple[Precision, ...] = BUILTIN_PRECISIONS


class Exporter(Protocol):
    """Writes a framework's file or arguments of an optimum.

    It writes the whole ``training`` if there is one and the framework is among
    ``BASE_EXPORTERS``, else the layout.
    """

    def __call__(self, optimum: Optimum, /) -> Exported: ...


@dataclass(slots=True)
class Page:
    """A document in the making that tracks which knobs it has expressed."""

    optimum: Optimum
    document: RawConfig = field(default_factory=lambda: RawConfig({}))
    _said: set[str] = field(default_factory=set)
    _notes: list[str] = field(default_factory=list)
    _changed: list[str] = field(default_factory=list)

    def say(self, path: KeyPath, value: Any, *knobs: str) -> None:
        """Set a key, which expresses these knobs."""
        self.document = self.document.with_value(path, value)
        self._said.update(knobs)

    def mark_done(self, *knobs: str) -> None:
        """Count knobs as expressed, by the page or by the framework's defaults."""
        self._said.update(knobs)

    def cannot(self, knob: str, instead: str) -> None:
        """Note that a knob cannot be expressed; ``instead`` is the reader's alternative."""
        self._said.add(knob)
        self._notes.append(f"{knob} = {plain_value(self._value(knob))}: {instead}")

    def layers_of_block(self) -> int | None:
        """Layers of a stage that are recomputed in full, if not all are; counts as expressed."""
        layers = dict(self.optimum.candidate.extras).get(RECOMPUTE_LAYERS)
        if not isinstance(layers, int) or self.optimum.layout.recompute is not Recompute.FULL:
            return None
        if self.optimum.layout.virtual_pipeline > 1:
            self.change(RECOMPUTE_LAYERS, "each virtual stage would recompute so many")
            return None
        self.mark_done(RECOMPUTE_LAYERS)
        return layers

    def change(self, knob: str, why: str) -> None:
        """Note that a knob has another value here, and why."""
        self.cannot(knob, why)
        self._changed.append(self._notes[-1])

    def export(self, text: str, suffix: str, *, mark: str = "#") -> Exported:
        """Comment on every knob that is neither at its default nor expressed, above the text."""
        rest = [
            f"{knob} = {plain_value(self._value(knob))}: the framework has no such setting"
            for knob in self._unusual()
            if knob not in self._said
        ]
        exported = comment_on(text, suffix, (*self._notes, *rest), mark=mark)
        return replace(exported, changed=(*self._changed, *rest))

    def _unusual(self) -> list[str]:
        layout = self.optimum.layout
        names = [
            knob.name
            for knob in KNOBS
            if knob.name not in _FOLLOWS
            and getattr(layout, knob.name) != getattr(Layout(), knob.name)
        ]
        return [*names, *(name for name, _ in self.optimum.candidate.extras)]

    def _value(self, knob: str) -> Any:
        extras = dict(self.optimum.candidate.extras)
        return extras[knob] if knob in extras else getattr(self.optimum.layout, knob)


def comment_on(text: str, suffix: str, left_out: tuple[str, ...], *, mark: str = "#") -> Exported:
    """A text below the sentences on what it does not express, each a line of comment."""
    lines = (visible(" ".join(sentence.splitlines())) for sentence in left_out)
    head = "".join(f"{mark} not expressed: {line}\n" for line in lines)
    return Exported(text=head + text, suffix=suffix, left_out=left_out)


def plain_value(value: Any) -> Any:
    """A value as text for people."""
    return value.value if isinstance(value, Enum) else value


def with_whole_steps(base: Pretraining) -> tuple[Pretraining, tuple[str, ...]]:
    """The training with a micro-batch that divides a replica's share of a batch, and why.

    NVIDIA's base configurations start a search, which divides the batch itself; without it, such a
    training fails before its first step.
    """
    split = base.split
    each, rest = divmod(split.global_batch, split.data)
    if rest:
        return base, (
            f"whole steps: a global batch of {split.global_batch} is not a multiple of "
            f"{split.data} replicas; give fewer nodes, more model parallelism or a larger batch",
        )
    usual = split.layout.micro_batch
    micro = next(size for size in range(min(usual, each), 0, -1) if each % size == 0)
    if micro == usual:
        return base, ()
    note = (
        f"{split.data} replicas get {each} samples each; micro_batch changed from "
        f"{usual} to {micro}"
    )
    layout = replace(split.layout, micro_batch=micro)
    return replace(base, split=replace(split, layout=layout)), (note,)


def splits_sequence(base: Pretraining) -> bool:
    """True if norms and dropouts are split along the sequence.

    This needs tensor parallelism, and experts need it then; the losses are the same.
    """
    layout = base.split.layout
    needs_it = layout.sequence_parallel or base.model.form.experts > 0
    return layout.tensor_parallel > 1 and needs_it


def groups_told(base: Pretraining) -> tuple[str, ...]:
    """A sentence if tensor parallelism exceeds the groups of keys and values.

    Megatron-core 0.16.1 copies groups to ranks; 0.15.0 and earlier refuse.
    """
    groups, tensor = base.model.form.groups, base.split.layout.tensor_parallel
    if groups % tensor == 0:
        return ()
    return (
        f"{groups} groups of keys and values on {tensor} tensor-parallel ranks, for Megatron-core "
        "before 0.16: there tensor parallelism must divide them",
    )


def layers_per_stage(base: Pretraining) -> int | None:
    """Layers of a virtual pipeline stage; None without one, or if stages are not equal."""
    split = base.split
    stages = split.layout.pipeline_parallel * (split.virtual or 0)
    if split.layout.pipeline_parallel < 2 or not stages or base.model.shape.layers % stages:
        return None
    return base.model.shape.layers // stages


def export_optimum(optimum: Optimum, framework: str) -> Exported:
    """The optimum as this framework's file or arguments.

    Raises:
        ConfigError: the framework is unknown.
    """
    return _find_exporter(framework, LAYOUT_EXPORTERS, f"--to is {framework!r}")(optimum)


def export_base(document: RawConfig, framework: str) -> Exported:
    """A base configuration of either layout as this framework's file, code or arguments.

    Raises:
        ConfigError: the framework is unknown or has no such models, or the document lacks values.
    """
    problem = f"A base configuration cannot be exported to {framework!r}"
    exporter = _find_exporter(framework, BASE_EXPORTERS, problem)
    base, notes = with_whole_steps(pretraining(document))
    optimum = Optimum(
        name=base.name,
        candidate=Candidate(layout=base.split.layout),
        nodes=base.split.nodes,
        sequence_length=base.model.sequence,
        training=base,
        document=document,
    )
    exported = exporter(optimum)
    text = comment_on(exported.text, exported.suffix, notes).text
    return replace(exported, text=text, left_out=(*notes, *exported.left_out))


def _find_exporter(framework: str, ours: Sequence[str], problem: str) -> Exporter:
    known = references("exporter", EXPORTERS)
    names = (*ours, *(known.keys() - EXPORTERS.keys()))
    if framework not in names:
        raise ConfigError(f"{problem}; {nearest_known(framework, names)}")
    exporter: Exporter = load_extension("exporter", known[framework])
    return exporter


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNode:
    """A node in the order of ranks: its kind's name, GPUs that train, and all GPUs that it has."""

    name: str
    gpus: int
    owned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """A training on nodes that may differ; rank 0 is on the first one."""

    workload: Workload
    nodes: tuple[JobNode, ...]


def write_table(dialect: TableDialect, page: Page, but: tuple[str, ...]) -> LaunchInputs:
    """All knobs of the table with their values, defaults of the batch included."""
    layout, inputs = page.optimum.layout, LaunchInputs()
    for row in dialect.table(_NOTHING, layout.world_size):
        if row.knob == GLOBAL_BATCH and row.names()[0].startswith("--"):
            inputs = row.write(inputs, layout.global_batch)
        elif row.knob in LAYOUT_KNOBS and row.knob not in but:
            inputs = _with_row(row, inputs, layout)
            page.mark_done(row.knob)
    return write_extras(dialect, page, inputs)


def write_extras(
    dialect: TableDialect,
    page: Page,
    inputs: LaunchInputs | None = None,
    source: ScriptSource = _NOTHING,
) -> LaunchInputs:
    """All extras that the dialect spells, if it has a word for their values."""
    extras, inputs = dict(page.optimum.candidate.extras), inputs or LaunchInputs()
    for row in dialect.extra_rows(source, extras):
        try:
            inputs = row.write(inputs, row.value_of(extras[row.knob]))
        except ConfigError:
            continue  # the page says that it is not expressed
        page.mark_done(row.knob)
    return inputs


def _with_row(row: Spelled, inputs: LaunchInputs, layout: Layout) -> LaunchInputs:
    value = getattr(layout, row.knob)
    if row.knob in ("micro_batch", "accumulation") and row.places:
        return row.places[0].put(inputs, value)
    return row.write(inputs, value)


def argument_lines(arguments: tuple[str, ...], page: Page) -> Exported:
    """Arguments with one flag on each line, and an account of the rest."""
    lines: list[str] = []
    for argument in arguments:
        if argument.startswith("--") or not lines:
            lines.append(shlex.quote(argument))
        else:
            lines[-1] += f" {shlex.quote(argument)}"
    return page.export("\n".join(lines) + "\n", ".args")
