"""What rows of a group share, by the names of columns (``--group-by``). Not: reading the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autoconf_launch.core import Candidate, ConfigError, KnobValue, Layout, nearest_known

from .measurement_row import Row

GROUP_BY = ("model", "gpu", "n_gpus", "gbs")
"""What rows of a group share unless said otherwise."""

FIELDS: dict[str, Callable[[Row], KnobValue]] = {
    "model": lambda one: one.shape.name,
    "gpu": lambda one: one.gpu,
    "n_gpus": lambda one: one.gpus,
    "gpus_per_node": lambda one: one.gpus_per_node,
    "gbs": lambda one: one.global_batch,
    "seq": lambda one: one.shape.seq,
    "layers": lambda one: one.shape.layers,
    "precision": lambda one: one.precision,
    "interconnect": lambda one: one.interconnect,
    "compile": lambda one: one.compiled,
    "async_tp": lambda one: one.async_tensor,
}
"""Columns of a table that are no part of a layout."""

_LAYOUT_FIELDS: dict[str, Callable[[Layout], KnobValue]] = {
    "tp": lambda layout: layout.tensor_parallel,
    "pp": lambda layout: layout.pipeline_parallel,
    "vpp": lambda layout: layout.virtual_pipeline,
    "dp": lambda layout: layout.data_parallel,
    "cp": lambda layout: layout.context_parallel,
    "ep": lambda layout: layout.expert_parallel,
    "mbs": lambda layout: layout.micro_batch,
    "zero_dist_opt": lambda layout: layout.zero_stage,
    "recompute": lambda layout: layout.recompute.value,
    "sequence_parallel": lambda layout: layout.sequence_parallel,
}
_OF_A_JOURNAL: dict[str, Callable[[Layout], KnobValue]] = {
    "n_gpus": lambda layout: layout.world_size,
    "gbs": lambda layout: layout.global_batch,
    **_LAYOUT_FIELDS,
}
_COLUMNS = (*FIELDS, *_LAYOUT_FIELDS)


def parse_group_by(text: str | None) -> tuple[str, ...]:
    """Names of ``--group-by model,gpu``.

    Raises:
        ConfigError: one of them is unknown.
    """
    names = GROUP_BY if text is None else tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in _COLUMNS:
            raise ConfigError(f"--group-by has {name!r}; {nearest_known(name, _COLUMNS)}")
    return names


def key_of_row(one: Row, names: Sequence[str]) -> tuple[KnobValue, ...]:
    """What a row of a table is grouped by."""
    return tuple(
        FIELDS[name](one) if name in FIELDS else _LAYOUT_FIELDS[name](one.layout) for name in names
    )


def key_of_candidate(one: Candidate, names: Sequence[str]) -> tuple[KnobValue, ...]:
    """What a trial of a journal is grouped by; None for what all its trials have in common."""
    extras = dict(one.extras)
    return tuple(
        _OF_A_JOURNAL[name](one.layout) if name in _OF_A_JOURNAL else extras.get(name)
        for name in names
    )
