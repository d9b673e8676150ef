"""What the verbs of Python are asked with: names, types and ranges of their keywords."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

from autoconf_launch.autotuner.inference import ENGINE_HABITS
from autoconf_launch.autotuner.sizing import Goodput
from autoconf_launch.autotuner.space import EffortName, SearchBudget
from autoconf_launch.core import (
    OPTIMIZER_STATES,
    Architecture,
    ConfigError,
    Offload,
    Precision,
    Recompute,
    WeightFormat,
    nearest_known,
)
from autoconf_launch.tuning_spaces import TRAINER_NAMES

from .estimates import MOST, MOST_DEGREE, MOST_RUNS, PRECISIONS, Goal
from .request import Processes

_WHOLE = {
    "zero": (0, 3),
    "seq": (1, MOST),
    "global_batch": (1, MOST),
    "lora_rank": (1, 65536),
    "top": (1, MOST),
    "tokens": (1, 10**18),
    "input_len": (1, MOST),
    "output_len": (1, MOST),
    "verify": (1, MOST_RUNS),
}
_AMOUNTS = (
    *("deadline_s", "max_cost_usd", "usd_per_gpu_hour", "tokens_b", "max_latency_ms"),
    "verify_budget_usd",
)
_DEGREES = ("tp", "pp", "vpp", "cp", "ep", "micro_batch", "recompute_layers", "batch")
_ENUMS: Mapping[str, type[Enum]] = MappingProxyType(
    {
        "precision": Precision,
        "recompute": Recompute,
        "offload": Offload,
        "objective": Goal,
        "weights": WeightFormat,
    }
)
_CHOICES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "precision": frozenset(PRECISIONS),
        "recompute": frozenset(kind.value for kind in Recompute),
        "offload": frozenset(kind.value for kind in Offload),
        "objective": frozenset(goal.value for goal in Goal),
        "optimizer": frozenset(OPTIMIZER_STATES),
        "trainer": frozenset(TRAINER_NAMES),
        "engine": frozenset(ENGINE_HABITS),
        "weights": frozenset(one.value for one in WeightFormat),
    }
)
_FLAGS = {
    "assume": "goodput",
    "deadline": "deadline_s",
    "max_cost": "max_cost_usd",
    "memory_limit": "memory_bytes",
    "model_size": "model_size_b",
    "num_gpus": "processes",
    "num_nodes": "nodes",
    "seq": "sequence",
    "tokens": "tokens_b",
    "verify_budget": "verify_budget_usd",
    "vocab": "vocabulary",
}
"""Flags whose keyword may have another name."""
_OPTIONAL = frozenset({"lora_rank", "recompute_layers", "top", "tokens", "verify", "weights"})
"""Keywords that may be None."""
_FLAG = re.compile(r"--([A-Za-z][\w-]*)")
_SHAPES = frozenset(field.name for field in fields(Architecture))


class _Required(TypedDict):
    seq: int
    global_batch: int


class _WorkKeywords(_Required, total=False):
    """What is trained; :func:`~.questions.fit` says what each one means."""

    model: str
    shapes: Mapping[str, int | bool]
    precision: Precision | str
    optimizer: str
    trainer: str
    lora_rank: int | None
    weights: WeightFormat | str | None
    flash_attention: bool | None
    compile: bool
    memory_bytes: int | None


class TrainingKeywords(_WorkKeywords):
    """What is trained, and on what."""

    cluster: str


class FitKeywords(TrainingKeywords, total=False):
    """A training and one layout of it; see :func:`~.questions.fit`."""

    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    zero: int
    micro_batch: int
    recompute: Recompute | str
    recompute_layers: int | None
    offload: Offload | str
    sequence_parallel: bool


class PlanKeywords(_WorkKeywords, total=False):
    """A training and how its layouts are ranked; see :func:`~.questions.plan`."""

    top: int | None
    headroom: float
    gpus_needed: bool
    explain: bool
    objective: Goal | str
    tokens: int | None
    deadline_s: float | None
    max_cost_usd: float | None
    usd_per_gpu_hour: float | None
    measured: str | Path | None
    verify: int | None
    verify_budget_usd: float | None


class _Served(TypedDict):
    cluster: str
    input_len: int
    output_len: int


class ServingKeywords(_Served, total=False):
    """What generates text; :func:`~.questions.fit_inference` says what each one means."""

    model: str
    shapes: Mapping[str, int | bool]
    precision: Precision | str
    engine: str
    memory_bytes: int | None
    usd_per_gpu_hour: float | None


class FitInferenceKeywords(ServingKeywords, total=False):
    """A model that generates text, and one point; see :func:`~.questions.fit_inference`."""

    tp: int
    pp: int
    batch: int


class PlanInferenceKeywords(ServingKeywords, total=False):
    """A model that generates text, and which points are ranked, and how.

    See :func:`~.questions.plan_inference`.
    """

    tp: Sequence[int]
    pp: Sequence[int]
    batch: Sequence[int]
    max_latency_ms: float
    top: int | None
    headroom: float


class _Recommended(TypedDict):
    tokens_b: float


class RecommendKeywords(_Recommended, total=False):
    """Machines, and days, a size or a model; see :func:`~.questions.recommend`."""

    family: str | None
    model: str | None
    gpus: int | None
    nodes: int | None
    cluster: str | None
    gpu_memory_gb: float | None
    tflops_per_gpu: float | None
    max_days: float | None
    model_size_b: float | None
    vocabulary: int | None
    sequence: int | None
    global_batch: int | None
    goodput: Goodput
    usd_per_gpu_hour: float | None
    measured: str | Path | None
    verify: int | None
    verify_budget_usd: float | None


class TuneKeywords(TypedDict, total=False):
    """How a script is launched and searched; see :func:`~.questions.tune`."""

    processes: Processes | None
    effort: EffortName
    budget: SearchBudget | str | None
    good_enough: float
    memory_limit_bytes: int | None
    max_parallel_trials: int | None
    trial_timeout_s: float
    stall_timeout_s: float
    soak_steps: int | None
    tuning_space: str | None
    dialect: str | None
    fresh: bool
    trust_results: bool
    history: bool
    allow_global_batch_change: bool
    keep_global_batch: bool


@contextmanager
def keyword_errors(verb: str, known: Any, given: Mapping[str, Any]) -> Iterator[None]:
    """Check the names of keywords; errors inside name keywords instead of flags."""
    names = given if known is None else known.__annotations__
    if known is not None:
        _check_names(verb, known, given)
    try:
        yield
    except ConfigError as error:
        text = _FLAG.sub(lambda flag: _keyword(flag[1], names) or flag[0], str(error))
        raise ConfigError(text) from error


def check_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values in their types.

    Raises:
        ConfigError: one is of another type, or out of range.
    """
    return {name: _check_value(name, value) for name, value in given.items()}


def check_sizes(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """Degrees or batches to look at, each once, in order.

    Raises:
        ConfigError: one is of another type, or out of range.
    """
    for value in values:
        _check_value(name, value)
    return tuple(sorted(set(values)))


def _keyword(flag: str, known: Container[str]) -> str | None:
    """The keyword for a flag; None where there is none."""
    name = flag.replace("-", "_")
    own = next((one for one in (name, _FLAGS.get(name)) if one in known), None)
    return f"shapes[{name!r}]" if own is None and "shapes" in known and name in _SHAPES else own


def _check_names(verb: str, known: Any, given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in known.__annotations__:
            hint = nearest_known(name, known.__annotations__)
            raise ConfigError(f"{verb} has no keyword {name}; {hint}")
    missing = sorted(known.__required_keys__ - given.keys())
    if missing:
        raise ConfigError(f"{verb} needs {', '.join(missing)}.")


def _check_value(name: str, value: Any) -> Any:
    """The value in its type.

    Raises:
        ConfigError: it is of another one, or out of range.
    """
    if value is None and name in _OPTIONAL:
        return None
    choices: Iterable[str] | None = _CHOICES.get(name)
    if choices is not None and value not in choices:
        raise ConfigError(f"{name} is {value!r}; {nearest_known(str(value), choices)}")
    if name in _ENUMS:
        return _ENUMS[name](value)
    if name in _WHOLE or name in _DEGREES:
        _check_whole(name, value, *_WHOLE.get(name, (1, MOST_DEGREE)))
    if name == "headroom" and not (isinstance(value, (int, float)) and 0.0 <= value < 1.0):
        raise ConfigError(f"headroom is {value!r}; it must be a share from 0 to below 1.")
    if name == "measured" and value is not None:
        return Path(value)
    if name in _AMOUNTS and not (value is None and name != "tokens_b"):
        _check_amount(name, value)
    return value


def _check_whole(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(
            f"{name} is {value!r}; it must be a whole number from {least} to {most}."
        )


def _check_amount(name: str, value: Any) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0.0 < value < math.inf:
        raise ConfigError(f"{name} is {value!r}; it must be a number above 0.")
