"""A recipe's document and what bounds a run of it, in either layout. Not: candidates' degrees.

NeMo 2.0's sections (trainer, data, model.config) or a file of NeMo 1.0 (run, trainer, model).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autoconf_launch.core import KeyPath, RawConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBounds:
    """What ends a run of the search, and where its logs go.

    Attributes:
        max_minutes: of one run, for the trainer's own limit of time.
    """

    log_folder: str
    max_steps: int
    max_minutes: int
    is_finetune: bool


_NEMO1_SHAPES: tuple[KeyPath, ...] = (("model", "num_layers"), ("model", "encoder", "num_layers"))
_NEMO1_SIGNS: tuple[KeyPath, ...] = (
    *(("run",), ("exp_manager",), ("model", "optim"), ("model", "data")),
    ("model", "encoder_seq_length"),
)


def is_nemo1(document: RawConfig) -> bool:
    """Whether a document has the layout of NeMo 1.0, not only a model without a section."""
    return _has_any(document, _NEMO1_SHAPES) and _has_any(document, _NEMO1_SIGNS)


def _has_any(document: RawConfig, paths: tuple[KeyPath, ...]) -> bool:
    return any(path in document for path in paths)


def bounded(document: RawConfig, name: str, bounds: RunBounds) -> RawConfig:
    """A candidate's configuration, bounded for a short run.

    What a fine-tuning starts from and trains (``resume``, ``peft``) stays as it is; a
    pretraining resumes nothing.
    """
    for path, value in bound_edits(document, name, bounds):
        document = document.with_value(path, value)
    return document if is_nemo1(document) else document.without(("run",))


def overlaid(base: RawConfig, given: RawConfig) -> RawConfig:
    """The base with every value that the other has.

    A section stays where the other has none of its values. None of the other says that a number
    of the model, the optimizer or the schedule follows from others: then the base's stays.
    """
    for path, value in given.leaves():
        if path and not (_is_empty(value) and _stays(base, path)):
            base = base.with_value(path, value)
    return base


def _is_empty(value: Any) -> bool:
    return value is None or value == {}


def _stays(base: RawConfig, path: KeyPath) -> bool:
    is_worked_out = path[0] == "model" or (path[0] == "optim" and path in base)
    return is_worked_out or isinstance(base.get(path), dict)


def bound_edits(
    document: RawConfig, name: str, bounds: RunBounds
) -> Iterator[tuple[KeyPath, Any]]:
    """What bounds a run, and where its logs go."""
    days, minutes = divmod(bounds.max_minutes, 24 * 60)
    hours, minutes = divmod(minutes, 60)
    yield ("trainer", "max_steps"), bounds.max_steps
    yield ("trainer", "max_time"), f"{days:02d}:{hours:02d}:{minutes:02d}:00"
    yield ("trainer", "log_every_n_steps"), 1
    if is_nemo1(document):
        yield ("trainer", "val_check_interval"), bounds.max_steps
        yield ("run", "name"), name
        yield ("run", "results_dir"), bounds.log_folder
        yield ("exp_manager", "create_checkpoint_callback"), False
        return
    yield ("log", "name"), name
    yield ("log", "log_dir"), bounds.log_folder
    yield ("log", "ckpt", "save_last"), False
    if not bounds.is_finetune:
        yield ("resume",), None
