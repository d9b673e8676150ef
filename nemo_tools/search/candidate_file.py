"""A candidate as a whole configuration of its framework.

Edits on the base configuration, by full path, in the words of NeMo 1.0 or of a recipe of 2.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.sizing import are_ends_counted
from autoconf_launch.core import ConfigError, KeyPath, RawConfig, Recompute
from autoconf_launch.launcher.estimates import base_config_text
from autoconf_launch.launcher.results import ResultsPaths

from ..candidate_grids import minutes_limit
from .candidates import SearchCandidate
from .question import RECIPE, SearchQuestion, batch_path, data_path, with_data

_RANKS = "local"
_RUNS = "training_logs"


@dataclass(frozen=True, slots=True)
class SearchFolder:
    """The folder that ``search_config.train_settings.logs`` names; absolute."""

    logs: Path

    def base(self, question: SearchQuestion) -> Path:
        return self.logs / question.file_name

    def candidate(self, name: str) -> Path:
        """A candidate's whole configuration."""
        return self.logs / "candidate_configs" / f"{name}.yaml"

    def script(self, name: str) -> Path:
        """A candidate's recipe of NeMo 2.0 as a script that runs it."""
        return self.logs / "candidate_configs" / f"{name}.py"

    def job(self, name: str) -> Path:
        """The script that starts a candidate on a cluster."""
        return self.logs / "jobs" / f"{name}.sh"

    def run(self, name: str) -> Path:
        return self.logs / _RUNS / name

    @property
    def submit_all(self) -> Path:
        return self.logs / "submit_all.sh"

    @property
    def runs(self) -> ResultsPaths:
        """Journal and folders of the runs."""
        logs = self.logs / _RUNS
        asked = self.logs / _RANKS / "asked"
        return ResultsPaths(results=logs, exps=asked, chosen_by="base_results_dir")

    @property
    def files(self) -> ResultsPaths:
        """The whole folder, to write files below it."""
        return ResultsPaths(results=self.logs, exps=self.logs, chosen_by="base_results_dir")

    def write_config(self, path: Path, document: RawConfig) -> None:
        self.files.write(path, base_config_text(document))

    def clear_candidates(self) -> None:
        for folder in (self.candidate("").parent, self.job("").parent):
            self.files.make_below(folder)
            for path in (*folder.glob("*.yaml"), *folder.glob("*.py"), *folder.glob("*.sh")):
                path.unlink(missing_ok=True)

    def write_for_ranks(self, kind: str, document: RawConfig) -> Path:
        """A file that ranks read, named by its content: a search that runs keeps its own."""
        text = document.to_json() + "\n"
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        path = self.logs / _RANKS / f"{kind}_{digest}.json"
        self.files.write(path, text)
        return path


_DISTRIBUTED_OPTIMIZER = 1
_WANDB: KeyPath = ("exp_manager", "create_wandb_logger")
_STRATEGY: KeyPath = ("trainer", "strategy")
_STEPS: tuple[KeyPath, ...] = (
    ("trainer", "max_steps"),
    *(("optim", "lr_scheduler", name) for name in ("max_steps", "warmup_steps", "constant_steps")),
    *(("model", "optim", "sched", name) for name in ("warmup_steps", "constant_steps")),
)


def training_document(question: SearchQuestion, candidate: SearchCandidate) -> RawConfig:
    """The base configuration with the candidate's layout: a whole training, without limits."""
    return question.base.with_values(layout_edits(question, candidate))


def candidate_document(
    question: SearchQuestion, candidate: SearchCandidate, nodes: int
) -> RawConfig:
    """A candidate's document with the limits of a run of the search."""
    document = training_document(question, candidate)
    return document.with_values(run_edits(question, candidate, nodes))


def write_documents(
    question: SearchQuestion, folder: SearchFolder, candidates: Iterable[SearchCandidate]
) -> None:
    """The base configuration and each candidate's, in place of an earlier search's files."""
    folder.write_config(folder.base(question), question.base)
    folder.clear_candidates()
    for one in candidates:
        nodes = one.layout.world_size // question.gpus_per_node
        folder.write_config(folder.candidate(one.name), candidate_document(question, one, nodes))


def knobs_of(candidate: SearchCandidate) -> tuple[tuple[str, int | float | str | bool], ...]:
    """Knobs of a candidate that NVIDIA's terms lack; their optimizer is ZeRO 1."""
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
    """A candidate's changes of the training."""
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
    usual, batch = question.global_batch, candidate.layout.global_batch
    if batch == usual:
        return
    yield batch_path(question.base), batch
    for path in _STEPS:
        if isinstance(steps := question.base.get(path), int):
            yield path, steps * usual // batch


def run_edits(
    question: SearchQuestion, candidate: SearchCandidate, nodes: int
) -> Iterator[tuple[KeyPath, Any]]:
    """Settings that bound a run of the search and name it."""
    scope = question.scope
    yield ("run", "name"), candidate.name
    yield ("run", "time_limit"), minutes_limit(max(1, round(scope.max_minutes)))
    yield ("trainer", "num_nodes"), nodes
    yield ("trainer", "devices"), question.gpus_per_node
    yield ("trainer", "max_steps"), scope.max_steps
    yield ("trainer", "val_check_interval"), scope.max_steps
    if question.base.get(_WANDB):
        yield (*_WANDB[:1], "wandb_logger_kwargs", "name"), candidate.name
    if ("log", "name") in question.base:
        yield ("name",), candidate.name
        yield ("log", "name"), candidate.name
        yield ("log", "log_dir"), str(SearchFolder(scope.logs).run(candidate.name))
        yield ("log", "ckpt", "save_last"), False


def _ends_edits(
    where: KeyPath, question: SearchQuestion, candidate: SearchCandidate
) -> Iterator[tuple[KeyPath, Any]]:
    """Fields of Megatron-LM's TransformerConfig, which NeMo 1.0 reads from ``model``."""
    if are_ends_counted(candidate.layout, question.model.architecture):
        yield (*where, "account_for_embedding_in_pipeline_split"), True
        yield (*where, "account_for_loss_in_pipeline_split"), True


def _nemo1_edits(
    question: SearchQuestion, candidate: SearchCandidate
) -> Iterator[tuple[KeyPath, Any]]:
    layout = candidate.layout
    yield ("model", "tensor_model_parallel_size"), layout.tensor_parallel
    yield ("model", "pipeline_model_parallel_size"), layout.pipeline_parallel
    yield ("model", "virtual_pipeline_model_parallel_size"), candidate.point.virtual
    yield ("model", "micro_batch_size"), layout.micro_batch
    if layout.zero_stage:
        yield ("model", "optim", "name"), "mcore_distributed_optim"
    is_t5 = question.family.is_encoder_decoder
    yield from _t5_edits(candidate) if is_t5 else _gpt_edits(candidate)


def _gpt_edits(candidate: SearchCandidate) -> Iterator[tuple[KeyPath, Any]]:
    """Settings that NeMo 1.0 has only for models of one stack."""
    point = candidate.point
    yield ("model", "context_parallel_size"), candidate.layout.context_parallel
    yield ("model", "expert_model_parallel_size"), candidate.layout.expert_parallel
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
    yield (*_STRATEGY, "tensor_model_parallel_size"), layout.tensor_parallel
    yield (*_STRATEGY, "pipeline_model_parallel_size"), layout.pipeline_parallel
    yield (*_STRATEGY, "virtual_pipeline_model_parallel_size"), point.virtual
    yield (*_STRATEGY, "context_parallel_size"), layout.context_parallel
    yield (*_STRATEGY, "expert_model_parallel_size"), layout.expert_parallel
    yield (*_STRATEGY, "sequence_parallel"), layout.sequence_parallel
    yield ("data", "micro_batch_size"), layout.micro_batch
    is_full = layout.recompute is Recompute.FULL
    kind = None if layout.recompute is Recompute.NONE else layout.recompute.value
    for name, value in (
        ("recompute_granularity", kind),
        ("recompute_method", "block" if is_full else None),
        ("recompute_num_layers", point.recompute_layers if is_full else None),
    ):
        if value is not None or question.base.get((*RECIPE, name)) is not None:
            yield (*RECIPE, name), value


_TOKENS, _INDEX = ".bin", ".idx"
"""Megatron's data set is two files of the same name, which its frameworks take as its path."""


def with_data_sets(
    question: SearchQuestion, folder: str | None, *, is_needed: bool
) -> SearchQuestion:
    """The question with the data sets in its base configuration, weighted by their sizes.

    A configuration that names its data keeps them.

    Args:
        question: of runs on a cluster.
        folder: that the user named; None keeps the base configuration.
        is_needed: whether a folder without a data set is refused.
    """
    if folder is None or question.base.get(data_path(question.base)) is not None:
        return question
    try:
        found, empty = _data_sets(Path(folder))
    except OSError as error:
        raise ConfigError(f"data_dir: it cannot be read: {error.strerror}.") from error
    if not found and is_needed:
        has = (
            f"holds only an empty Megatron data set ({empty[0].name} has 0 bytes)"
            if empty
            else "has no Megatron data set (a .bin beside an .idx)"
        )
        raise ConfigError(
            f"data_dir: {folder} {has}, so jobs would have no data; give the folder that has "
            "one, or a custom_config that names its data."
        )
    return replace(question, base=with_data(question.base, found, None)) if found else question


def _data_sets(folder: Path) -> tuple[list[float | str], list[Path]]:
    """A weight and a path without suffix of each, as Megatron reads a blend; then empty ones."""
    found = {
        path: path.stat().st_size
        for path in sorted(folder.rglob(f"*{_TOKENS}"))
        if path.with_suffix(_INDEX).is_file()
    }
    parts = ((size, path) for path, size in found.items() if size)
    whole = sum(found.values())
    blend = [part for size, path in parts for part in (size / whole, str(path.with_suffix("")))]
    return blend, [path for path, size in found.items() if not size]
