"""A candidate as a whole configuration of its framework. Not: which candidates there are.

Edits on the base configuration, by full path, in the words of NeMo 1.0 or of a recipe of 2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from autoconf_launch.autotuner.recommend.nemo_candidates import minutes_limit
from autoconf_launch.autotuner.recommend.search_rules import are_ends_counted
from autoconf_launch.core import KeyPath, RawConfig, Recompute

from ..planner.base_config_file import write_base_config
from .candidates import SearchCandidate
from .described import RECIPE, batch_path
from .folder import SearchFolder
from .question import SearchQuestion

_DISTRIBUTED_OPTIMIZER = 1
_STRATEGY: KeyPath = ("trainer", "strategy")
_STEPS: tuple[KeyPath, ...] = (
    ("trainer", "max_steps"),
    *(("optim", "lr_scheduler", name) for name in ("max_steps", "warmup_steps", "constant_steps")),
    *(("model", "optim", "sched", name) for name in ("warmup_steps", "constant_steps")),
)


def training_document(question: SearchQuestion, candidate: SearchCandidate) -> RawConfig:
    """The base configuration with the candidate's layout: a whole training, without limits."""
    return _edited(question.base, layout_edits(question, candidate))


def candidate_document(
    question: SearchQuestion, candidate: SearchCandidate, nodes: int
) -> RawConfig:
    """The same with the limits of a run of the search."""
    document = training_document(question, candidate)
    return _edited(document, run_edits(question, candidate, nodes))


def write_documents(
    question: SearchQuestion, folder: SearchFolder, candidates: Iterable[SearchCandidate]
) -> None:
    """The base configuration and each candidate's, in place of those of an earlier search.

    Raises:
        ConfigError: a file cannot be written.
    """
    write_base_config(question.base, folder.base(question))
    folder.clear_candidates()
    for one in candidates:
        nodes = one.layout.world_size // question.gpus_per_node
        write_base_config(candidate_document(question, one, nodes), folder.candidate(one.name))


def knobs_of(candidate: SearchCandidate) -> tuple[tuple[str, int | float | str | bool], ...]:
    """What a candidate has that NVIDIA's terms cannot say; their optimizer is ZeRO 1."""
    layout = candidate.layout
    found: list[tuple[str, int | float | str | bool]] = []
    if layout.recompute is Recompute.SELECTIVE:
        found.append(("recompute", layout.recompute.value))
    if layout.zero_stage != _DISTRIBUTED_OPTIMIZER:
        found.append(("zero", layout.zero_stage))
    return tuple(found)


def layout_edits(
    question: SearchQuestion, candidate: SearchCandidate
) -> Iterator[tuple[KeyPath, Any]]:
    """What a candidate changes of the training."""
    is_recipe = RECIPE in question.base
    yield from (
        _recipe_edits(question, candidate) if is_recipe else _nemo1_edits(question, candidate)
    )
    yield from _ends_edits(RECIPE if is_recipe else ("model",), question, candidate)
    yield from _batch_edits(question, candidate)


def _batch_edits(
    question: SearchQuestion, candidate: SearchCandidate
) -> Iterator[tuple[KeyPath, Any]]:
    """Settings of a candidate with another global batch: as many tokens in other steps."""
    usual, batch = question.model.global_batch, candidate.layout.global_batch
    if batch == usual:
        return
    yield batch_path(question.base), batch
    for path in _STEPS:
        if isinstance(steps := question.base.get(path), int):
            yield path, steps * usual // batch


def run_edits(
    question: SearchQuestion, candidate: SearchCandidate, nodes: int
) -> Iterator[tuple[KeyPath, Any]]:
    """What bounds a run of the search, and names it."""
    train = question.settings.train
    yield ("run", "name"), candidate.name
    yield ("run", "time_limit"), minutes_limit(max(1, round(train.max_minutes)))
    yield ("trainer", "num_nodes"), nodes
    yield ("trainer", "devices"), question.gpus_per_node
    yield ("trainer", "max_steps"), train.max_steps
    yield ("trainer", "val_check_interval"), train.max_steps
    if ("log", "name") in question.base:
        yield ("name",), candidate.name
        yield ("log", "name"), candidate.name
        yield ("log", "log_dir"), str(SearchFolder(train.logs).run(candidate.name))
        yield ("log", "ckpt", "save_last"), False


def _edited(document: RawConfig, edits: Iterable[tuple[KeyPath, Any]]) -> RawConfig:
    for path, value in edits:
        document = document.with_value(path, value)
    return document


def _ends_edits(
    where: KeyPath, question: SearchQuestion, candidate: SearchCandidate
) -> Iterator[tuple[KeyPath, Any]]:
    """Fields of Megatron-LM's TransformerConfig, which NeMo 1.0 reads from ``model``."""
    if are_ends_counted(candidate.layout, question.architecture):
        yield (*where, "account_for_embedding_in_pipeline_split"), True
        yield (*where, "account_for_loss_in_pipeline_split"), True


def _nemo1_edits(
    question: SearchQuestion, candidate: SearchCandidate
) -> Iterator[tuple[KeyPath, Any]]:
    point = candidate.point
    yield ("model", "tensor_model_parallel_size"), point.tensor
    yield ("model", "pipeline_model_parallel_size"), point.pipeline
    yield ("model", "virtual_pipeline_model_parallel_size"), point.virtual
    yield ("model", "micro_batch_size"), point.micro_batch
    if candidate.layout.zero_stage:
        yield ("model", "optim", "name"), "mcore_distributed_optim"
    is_t5 = question.family.is_encoder_decoder
    yield from _t5_edits(candidate) if is_t5 else _gpt_edits(candidate)


def _gpt_edits(candidate: SearchCandidate) -> Iterator[tuple[KeyPath, Any]]:
    """What NeMo 1.0 has for models of one stack alone."""
    point = candidate.point
    yield ("model", "context_parallel_size"), point.context
    yield ("model", "expert_model_parallel_size"), point.expert
    yield ("model", "sequence_parallel"), candidate.layout.sequence_parallel
    yield from _checkpoint_edits(("model",), candidate, point.recompute_layers)
    micro_batches = "num_micro_batches_with_partial_activation_checkpoints"
    yield ("model", micro_batches), point.recompute_micro_batches
    per_stage = "activations_checkpoint_layers_per_pipeline"
    yield ("model", per_stage), point.recompute_layers_per_pipeline


def _t5_edits(candidate: SearchCandidate) -> Iterator[tuple[KeyPath, Any]]:
    """NVIDIA's number of recomputed layers counts both stacks."""
    layers = candidate.point.recompute_layers
    half = None if layers is None else layers // 2
    for stack in ("encoder", "decoder"):
        yield from _checkpoint_edits(("model", stack), candidate, half)


def _checkpoint_edits(
    where: KeyPath, candidate: SearchCandidate, layers: int | None
) -> Iterator[tuple[KeyPath, Any]]:
    kind = candidate.layout.recompute
    yield (*where, "activations_checkpoint_num_layers"), layers
    if kind is Recompute.SELECTIVE:
        yield (*where, "activations_checkpoint_granularity"), "selective"
        yield (*where, "activations_checkpoint_method"), None
    elif kind is Recompute.FULL:
        yield (*where, "activations_checkpoint_granularity"), "full"
        yield (*where, "activations_checkpoint_method"), "block"


def _recipe_edits(
    question: SearchQuestion, candidate: SearchCandidate
) -> Iterator[tuple[KeyPath, Any]]:
    point, layout = candidate.point, candidate.layout
    yield (*_STRATEGY, "tensor_model_parallel_size"), point.tensor
    yield (*_STRATEGY, "pipeline_model_parallel_size"), point.pipeline
    yield (*_STRATEGY, "virtual_pipeline_model_parallel_size"), point.virtual
    yield (*_STRATEGY, "context_parallel_size"), point.context
    yield (*_STRATEGY, "expert_model_parallel_size"), point.expert
    yield (*_STRATEGY, "sequence_parallel"), layout.sequence_parallel
    yield ("data", "micro_batch_size"), point.micro_batch
    is_full = layout.recompute is Recompute.FULL
    kind = None if layout.recompute is Recompute.NONE else layout.recompute.value
    for name, value in (
        ("recompute_granularity", kind),
        ("recompute_method", "block" if is_full else None),
        ("recompute_num_layers", point.recompute_layers if is_full else None),
    ):
        if value is not None or question.base.get((*RECIPE, name)) is not None:
            yield (*RECIPE, name), value
