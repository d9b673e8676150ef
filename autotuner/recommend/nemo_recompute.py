"""Which activation checkpointing NVIDIA's grid tries for a pipeline. Not: what is fastest.

Source: NeMo-Framework-Launcher, auto_configurator, ``_set_activations_checkpoint_params`` (24.12);
its lists hold some values twice, ours each once.
"""

from __future__ import annotations

from dataclasses import dataclass

from .families import Family

BLOCK = "block"
_INTERLEAVED_ABOVE = 2
_INTERVAL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeQuestion:
    """A pipeline of a model; ``method`` is the file's ``activations_checkpoint_method``."""

    family: Family
    size_b: float
    layers: int
    pipeline: int
    method: str | None

    @property
    def all_layers(self) -> int:
        """Of both stacks of T5."""
        return self.layers * (2 if self.family.is_encoder_decoder else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeChoices:
    """Values of each dimension; (None,) where it is none.

    Attributes:
        virtual: layers of a stage as virtual stages; None without interleaving.
        layers: checkpointed in each (virtual) stage.
        micro_batches: that checkpoint, of those in flight.
        layers_per_pipeline: checkpointed in each stage.
    """

    virtual: int | None
    layers: tuple[int | None, ...] = (None,)
    micro_batches: tuple[int | None, ...] = (None,)
    layers_per_pipeline: tuple[int | None, ...] = (None,)


def recompute_choices(asked: RecomputeQuestion) -> RecomputeChoices:
    """What the grid tries; nothing where the file names no method."""
    stages = asked.pipeline
    is_gpt = not asked.family.is_encoder_decoder
    virtual = asked.layers // stages if is_gpt and stages > _INTERLEAVED_ABOVE else None
    if asked.method != BLOCK:
        return RecomputeChoices(virtual=virtual)
    interval = _interval(asked)
    layers = range(0, asked.all_layers // stages // (virtual or 1) + 1, 1 if virtual else interval)
    if stages == 1 or not is_gpt:
        return RecomputeChoices(virtual=virtual, layers=tuple(layers))
    micro_batches, most_layers = _interleaved(asked, virtual)
    return RecomputeChoices(
        virtual=virtual,
        layers=tuple(layers),
        micro_batches=micro_batches,
        layers_per_pipeline=tuple(range(0, most_layers + 1, interval)),
    )


def _interval(asked: RecomputeQuestion) -> int:
    """Layers between two values: larger models try fewer."""
    if asked.size_b >= 60:
        steps = 32
    elif asked.size_b >= 11.3:
        steps = 16
    else:
        steps = 8 if asked.size_b >= 1 else 4
    return max(1, steps // asked.pipeline)


def _interleaved(
    asked: RecomputeQuestion, virtual: int | None
) -> tuple[tuple[int | None, ...], int]:
    """Micro-batches that checkpoint, and the most layers of a stage that do."""
    stages = asked.pipeline
    if virtual is None:
        most, step, most_layers = stages, 1, asked.all_layers
    else:
        most = stages * (virtual - 1) + (stages - 1) * 2 + 1
        step = virtual * _INTERVAL
        most_layers = asked.all_layers // stages // virtual + 1
    numbers = dict.fromkeys(max(1, number) for number in range(0, most + 1, step))
    return tuple(numbers), most_layers
