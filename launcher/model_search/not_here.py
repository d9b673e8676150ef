"""Why candidates cannot run on this machine, in words. Not: which can (this_machine)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from autoconf_launch.core import Recompute

from .candidates import Rejected, SearchCandidate
from .known_keys import TRAIN
from .question import SearchQuestion

_PREFIX = ".".join(TRAIN)
_OF_NODE = f"{_PREFIX}.gpus_per_node"
_FEWEST_BLOCKS = 2
"""Layers in a row by which the runtime knows what is repeated."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of model parallelism: in words, and the key of its sizes."""

    words: str
    key: str


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "tensor": _Kind("tensor parallelism", "tensor_parallel_sizes"),
        "pipeline": _Kind("pipeline parallelism", "pipeline_parallel_sizes"),
        "context": _Kind("context parallelism", "context_parallel_sizes"),
        "expert": _Kind("expert parallelism", "expert_parallel_sizes"),
    }
)


def why_not_here(question: SearchQuestion, one: SearchCandidate) -> str:
    """Why this machine cannot run a candidate, as the end of a sentence; "" where it can."""
    wide = [
        f"{kind.words} {getattr(one.point, name)}"
        for name, kind in _KINDS.items()
        if getattr(one.point, name) > 1
    ]
    if wide:
        return f"{' and '.join(wide)}: the runtime on this machine is data-parallel"
    return _recompute_not_here(question, one)


def layers_of_stage(question: SearchQuestion, stages: int) -> int:
    """Layers of the fullest stage; an encoder's layer counts as a decoder's."""
    model = question.architecture
    return -(-(model.layers + model.encoder_layers) // stages)


def why_nothing(question: SearchQuestion, rejected: tuple[Rejected, ...]) -> str:
    """Why no candidate is left, and what to give instead."""
    batch, ranks = question.model.global_batch, question.gpus
    if batch % ranks:
        valid = [str(count) for count in range(1, 2 * ranks + 2) if batch % count == 0]
        return (
            f"No candidate for {question.name} splits a global batch of {batch} over {ranks} "
            f"ranks; {_OF_NODE}={' or '.join(valid)} divides it, or take another "
            "global_batch_size."
        )
    if rejected:
        return (
            f"None of {len(rejected)} candidates can run here, such as "
            f"{rejected[0].candidate.name}: {rejected[0].why}; search other sizes."
        )
    given = "; ".join(_given_in_vain(question, batch // ranks))
    return f"No candidate for {question.name} on {ranks} ranks has the sizes given: {given}."


def _recompute_not_here(question: SearchQuestion, one: SearchCandidate) -> str:
    layers, whole = one.point.recompute_layers, layers_of_stage(question, 1)
    if layers and layers != whole:
        return (
            f"{layers} of {whole} layers recomputed: the runtime on this machine recomputes all "
            "layers or none"
        )
    if one.point.recompute_micro_batches or one.point.recompute_layers_per_pipeline:
        return "some micro-batches recomputed: the runtime on this machine recomputes all or none"
    recomputes = one.layout.recompute is not Recompute.NONE
    if recomputes and question.model.layers < _FEWEST_BLOCKS:
        return "recomputation: the model has no repeated layers, and the runtime recomputes those"
    return ""


def _given_in_vain(question: SearchQuestion, samples: int) -> Iterator[str]:
    """Each key of the user's that leaves nothing, with what it could be."""
    train = question.settings.train
    micro = train.grid.micro_batch
    if micro is not None and not any(samples % size == 0 for size in micro):
        valid = [str(size) for size in range(1, samples + 1) if samples % size == 0]
        yield (
            f"none of {_PREFIX}.micro_batch_sizes={list(micro)} divides the {samples} samples of "
            f"a rank, as {', '.join(valid)} do"
        )
        return
    least = train.grid.least_product
    for name, kind in _KINDS.items():
        sizes = getattr(train.grid, name)
        if sizes is not None and 1 not in sizes:
            yield f"{_PREFIX}.{kind.key}={list(sizes)} must have 1 on this machine"
    if least is not None and least > 1:
        yield f"{_PREFIX}.min_model_parallel_size={least} must be 1 on this machine"
    if train.recompute_layers is not None:
        whole = layers_of_stage(question, 1)
        yield f"of {_PREFIX}.act_ckpt_layers={list(train.recompute_layers)} only 0 and {whole} run"
