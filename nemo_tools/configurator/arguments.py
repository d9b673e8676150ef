"""What is read of an ``AutoConfigurator`` beside its model: machines, days, bounds of the search.

Not: the model (model_facts), nor what follows from all of it (training).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from autoconf_launch.autotuner.sizing import Budget, Family, recommended_size_b
from autoconf_launch.core import ConfigError, Degrees, nearest_known

from ..search import GridKind, is_whole, number, whole_number
from .recipe import Recipe

AUTO = "auto"
Sizes: TypeAlias = "Sequence[int] | str | None"
_DATA_SUFFIXES = ("", ".bin", ".idx")
"""Megatron's data sets are named by the part of their files' names before the suffix."""


def sizes(name: str, value: object) -> tuple[int, ...] | None:
    """A list of sizes, each once; None for "auto" and None.

    Raises:
        ConfigError: it is neither.
    """
    if value is None or value == AUTO:
        return None
    listed = tuple(value) if isinstance(value, (list, tuple, range)) else ()
    if listed and all(is_whole(one, 1) for one in listed):
        return tuple(dict.fromkeys(listed))
    raise ConfigError(
        f'{name} is {value!r}, but must be "auto" or a list of whole numbers of at least 1, such '
        "as [1, 2, 4]."
    )


def size(name: str, value: object) -> int | None:
    """One size; None for "auto" and None.

    Raises:
        ConfigError: it is neither.
    """
    return None if value is None or value == AUTO else whole_number(name, value)


def one_of(name: str, value: object, known: Iterable[str]) -> str:
    """One of some words.

    Raises:
        ConfigError: it is another.
    """
    words = tuple(known)
    if isinstance(value, str) and value in words:
        return value
    raise ConfigError(f"{name} is {value!r}; {nearest_known(str(value), words)}")


def plain_paths(value: object) -> Any:
    """Paths of data as documents hold them: a text, a list or a mapping; None without any.

    Raises:
        ConfigError: the value is none of these.
    """
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain_paths(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [plain_paths(inner) for inner in value]
    raise ConfigError(f"data_paths is {value!r}, but must be a path, a list or a mapping.")


def plain_tokenizer(value: object) -> str | None:
    """A path as a text, or None.

    Raises:
        ConfigError: it is neither.
    """
    if value is None or isinstance(value, (str, Path)):
        return None if value is None else str(value)
    raise ConfigError(f"tokenizer_path is {value!r}, but must be a file or a folder.")


def require_paths(data: Any, tokenizer: str | None) -> None:
    """See that data and tokenizer are there; weights between paths are left out.

    Raises:
        ConfigError: one does not exist.
    """
    for path in _paths(data):
        if not any(Path(f"{path}{suffix}").exists() for suffix in _DATA_SUFFIXES):
            raise ConfigError(
                f"data_paths names {path}, which does not exist (nor {path}.bin); give data that "
                "is there."
            )
    if tokenizer is not None and not Path(tokenizer).exists():
        raise ConfigError(f"tokenizer_path is {tokenizer}, but there is no such file or folder.")


def _paths(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield from () if _is_weight(data) else (data,)
    elif isinstance(data, (dict, list)):
        for inner in data.values() if isinstance(data, dict) else data:
            yield from _paths(inner)


def _is_weight(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


class Arguments(Protocol):
    """What is read of an ``AutoConfigurator``."""

    recipe: object
    model: object
    mode: str
    num_nodes: int | None
    gpus_per_node: int | None
    seq_length: int | None
    global_batch_size: int | str | None
    data_paths: object
    tokenizer_path: object
    gpu_memory_gb: float
    num_tokens_in_b: float
    tflops_per_gpu: float
    max_training_days: float
    vocab_size: int | None
    calculate_model_size: bool
    usd_per_gpu_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBounds:
    """How far a search goes.

    Attributes:
        logs: absolute.
        limit_runs: 0 for all candidates.
    """

    grid: GridKind
    degrees: Degrees
    logs: Path
    limit_runs: int
    max_steps: int
    max_minutes: float


class Machines:
    """Nodes, GPUs and tokens of a sample; ``note`` says which of them nobody gave."""

    def __init__(self, asked: Arguments, recipe: Recipe) -> None:
        self._assumed: list[str] = []
        found = recipe.whole("num_nodes", "trainer.num_nodes")
        self.nodes = self._known("num_nodes", asked.num_nodes, found, 1)
        found = recipe.whole("gpus_per_node", "trainer.devices", "num_gpus_per_node")
        self.gpus_per_node = self._known("gpus_per_node", asked.gpus_per_node, found, 8)
        found = recipe.whole(
            *("seq_length", "data.seq_length", "model.config.seq_length", "model.seq_length"),
            *("model.encoder_seq_length", "model.data.seq_length"),
        )
        self.sequence = self._known("seq_length", asked.seq_length, found, 2048)

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.nodes * self.gpus_per_node

    @property
    def note(self) -> str:
        """What was assumed, as a sentence; "" where nothing was."""
        if not self._assumed:
            return ""
        return f"Not given, so assumed: {', '.join(self._assumed)}."

    def _known(self, name: str, given: int | None, found: int | None, usual: int) -> int:
        if given is not None:
            return whole_number(name, given)
        if found is None:
            self._assumed.append(f"{name} {usual}")
        return found or usual


def given_batch(asked: Arguments, recipe: Recipe) -> int | None:
    """Samples of a step by the argument, else by the recipe; None where neither has them.

    Raises:
        ConfigError: it is not a whole number.
    """
    value = asked.global_batch_size
    if value not in (None, AUTO):
        return whole_number("global_batch_size", value)
    return recipe.whole("global_batch_size", "data.global_batch_size", "model.global_batch_size")


def calculated(asked: Arguments, gpus: int) -> Callable[[Family], float] | None:
    """What gives a family's size for the days; None where none is to be calculated.

    Raises:
        ConfigError: a number of the formula is none; calling it, the budget gives no size.
    """
    if not asked.calculate_model_size:
        return None
    budget = Budget(
        gpus=gpus,
        tflops_per_gpu=number("tflops_per_gpu", asked.tflops_per_gpu),
        tokens_b=number("num_tokens_in_b", asked.num_tokens_in_b),
    )
    days = number("max_training_days", asked.max_training_days)
    return lambda family: recommended_size_b(family.name, budget, days)


def notes_on_size(asked: Arguments, family: Family, size_b: float) -> Iterator[str]:
    """Why the model has this size, where it was calculated."""
    if asked.calculate_model_size:
        yield (
            f"A {family.name} model of {size_b:g} B is what the machines train on "
            f"{asked.num_tokens_in_b:g} B tokens in {asked.max_training_days:g} days, if each GPU "
            f"achieves {asked.tflops_per_gpu:g} TFLOP/s."
        )
