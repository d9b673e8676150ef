"""The user's ``autotuning`` section, typed; the limits of a search, and its metric.

A budget of ``20m``, ``1h30m`` or ``90s`` is time; ``30trials`` is a number of trials, the trial of
the user's configuration included; ``$15`` is money, which is time at the price of the machine.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from autoconf_launch.core import BlockSpec, ConfigError, Grade, ModelSpec, nearest_known

from .trial import Measurement, Record

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "min": 60.0, "s": 1.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)")
_TIME = re.compile(rf"(?:{_PART.pattern}\s*)+")
_TRIALS = re.compile(r"(\d+)\s*trials?")
_MONEY = re.compile(r"\$\s*(\d+(?:\.\d+)?)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")
_ROUND = ((90.0, 30.0, 1.0, "s"), (600.0, 60.0, 60.0, "m"), (3_600.0, 300.0, 60.0, "m"))
"""Up to how many seconds a budget is rounded to which multiple, and its unit in seconds."""
ALIASES = {
    "args_mapping": "arg_mappings",
    "start_step": "start_profile_step",
    "end_step": "end_profile_step",
}
"""Other names in DeepSpeed's documentation, and ours."""
_KINDS = {
    "int_": "it must be a whole number",
    "bool_": "it must be true or false",
    "string_": "it must be text",
    "dict_": "it must be a section ({…})",
    "model_": "it must be a section ({…})",
}
"""By the first word of pydantic's kind of error, what the value must be."""
MetricName = Literal["throughput", "latency", "FLOPS"]
EffortName = Literal["quick", "normal", "thorough"]
"""Keys of ``measurement.EFFORTS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """The limits that were given; None if there is none."""

    seconds: float | None = None
    trials: int | None = None
    usd: float | None = None

    def limit_s(self, usd_per_hour: float | None) -> float | None:
        """Seconds until time or money is spent; None if neither is limited.

        Args:
            usd_per_hour: price of the whole machine.

        Raises:
            ConfigError: money is limited and the machine has no price.
        """
        if self.usd is None:
            return self.seconds
        if not usd_per_hour:
            raise ConfigError(
                f"--budget is ${self.usd:g}, but the price of this machine is not known; give a "
                "time, such as --budget 20m."
            )
        paid_s = 3600.0 * self.usd / usd_per_hour
        return paid_s if self.seconds is None else min(self.seconds, paid_s)


def parse_budget(text: str) -> SearchBudget:
    """Read one limit, or several with commas between them.

    Raises:
        ConfigError: a part is of no known form, or is nothing.
    """
    limits: dict[str, float] = {}
    for part in text.lower().split(","):
        kind, amount = _limit(part.strip(), text)
        limits[kind] = min(amount, limits.get(kind, math.inf))
    trials = limits.get("trials")
    return SearchBudget(
        seconds=limits.get("seconds"),
        trials=None if trials is None else int(trials),
        usd=limits.get("usd"),
    )


def _limit(part: str, text: str) -> tuple[str, float]:
    found: tuple[str, float] | None = None
    if _TIME.fullmatch(part):
        found = "seconds", sum(float(n) * _SECONDS[unit] for n, unit in _PART.findall(part))
    elif match := _TRIALS.fullmatch(part):
        found = "trials", float(match[1])
    elif match := _MONEY.fullmatch(part):
        found = "usd", float(match[1])
    if found is None:
        raise ConfigError(
            f"--budget is {text!r}, but must be a time (90s, 20m, 1h30m), a number of trials "
            "(30trials), money ($15), or several of them separated by commas."
        )
    if not found[1]:
        raise ConfigError(
            f"--budget is {text!r}, but must be more than zero; omit it for no limit."
        )
    return found


def longer_budget(seconds: float) -> str:
    """The shortest round time of at least ``seconds``, as ``--budget`` takes it."""
    hours = (math.inf, 3_600.0, 3_600.0, "h")
    _, step_s, unit_s, unit = next(row for row in (*_ROUND, hours) if seconds <= row[0])
    return f"{max(1, math.ceil(seconds / step_s)) * step_s / unit_s:.0f}{unit}"


def parse_share(text: str, flag: str) -> float:
    """``2%`` or ``0.02`` as 0.02.

    Raises:
        ConfigError: it is not a share between 0 and 1.
    """
    match = _SHARE.fullmatch(text.strip())
    share = float(match[1]) / (100.0 if match[2] else 1.0) if match else math.nan
    if not 0.0 <= share < 1.0:
        raise ConfigError(f"{flag} is {text!r}, but must be a share such as 2% or 0.02.")
    return share


class ModelInfo(BaseModel):
    """DeepSpeed's names. With ``num_params`` there is no profile run.

    ``activation_mem_per_gpu`` is the memory in bytes that a sample's forward pass keeps; without
    it no memory is predicted. ``profile`` requests the profile run, as does omitting the section.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: bool = False
    num_params: PositiveInt | None = None
    trainable_num_params: PositiveInt | None = None
    activation_mem_per_gpu: PositiveInt | None = None
    hidden_size: PositiveInt | None = None
    num_layers: PositiveInt | None = None

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        for key in given:
            if key not in cls.model_fields:
                raise ValueError(f"{key} is unknown; {nearest_known(key, cls.model_fields)}")
        return given

    @field_validator("trainable_num_params")
    @classmethod
    def _part_of_all(cls, trainable: int | None, info: Any) -> int | None:
        everything = info.data.get("num_params")
        if trainable is not None and everything is not None and trainable > everything:
            raise ValueError(f"it must be at most num_params = {everything}")
        return trainable

    @model_validator(mode="after")
    def _suffices(self) -> ModelInfo:
        if self.num_params is None and not self.profile:
            raise ValueError(
                "num_params is missing; give the number of parameters, "
                "or remove model_info and let the profile run find out"
            )
        return self

    def model_spec(self) -> ModelSpec | None:
        """The model as equal blocks; None if the profile run is wanted."""
        if self.num_params is None or self.profile:
            return None
        layers = self.num_layers or 1
        frozen = self.num_params - (self.trainable_num_params or self.num_params)
        kept_bytes = self.activation_mem_per_gpu or 0
        block = BlockSpec(
            name="block",
            count=layers,
            parameters=self.num_params // layers,
            frozen_parameters=frozen // layers,
            activation_bytes=kept_bytes // layers,
        )
        rest = BlockSpec(
            name="rest",
            parameters=self.num_params % layers,
            frozen_parameters=frozen % layers,
            activation_bytes=kept_bytes % layers,
        )
        return ModelSpec(
            grade=Grade.ARCHITECTURE if kept_bytes else Grade.OPAQUE,
            blocks=(block, rest),
            hidden_size=self.hidden_size,
            layers=self.num_layers,
            notes=("Given in autotuning.model_info, not profiled.",),
        )


def from_text(value: Any) -> Any:
    """The section as a flag gives it: JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error


class AutotuningSettings(BaseModel):
    """Settings of one tuning run; names and defaults are from the DeepSpeed Autotuner.

    ``effort`` is ours. Batch sizes count samples; profile steps count optimizer steps from 1,
    both inclusive.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    enabled: bool = Field(default=False, description="accepted; the launcher's flag decides")
    results_dir: str | None = Field(
        default=None, description="folder of the results (default: autotuning_results)"
    )
    exps_dir: str | None = Field(
        default=None, description="folder of what each trial runs (default: autotuning_exps)"
    )
    overwrite: bool = Field(default=False, description="move old results aside")
    metric: MetricName = Field(
        default="throughput",
        description="what is best: samples/s, time per step or FLOP/s (ranked by samples/s)",
    )
    start_profile_step: PositiveInt = Field(
        default=3, description="first optimizer step that is measured (default: 3)"
    )
    end_profile_step: PositiveInt = Field(
        default=5, description="last optimizer step that is measured (default: 5)"
    )
    fast: bool = Field(
        default=True, description="false: also search the further knobs of each ZeRO stage"
    )
    max_train_batch_size: PositiveInt | None = Field(
        default=None, description="consent to another global batch of up to so many samples"
    )
    min_train_micro_batch_size_per_gpu: PositiveInt = Field(
        default=1, description="smallest micro-batch that is searched (default: 1)"
    )
    max_train_micro_batch_size_per_gpu: PositiveInt = Field(
        default=1024, description="largest micro-batch that is searched (default: 1024)"
    )
    num_tuning_micro_batch_sizes: PositiveInt = Field(
        default=3, description="micro-batches of each stage that other knobs are tried with"
    )
    mp_size: PositiveInt = Field(
        default=1, description="tensor-parallel ranks that the script itself uses (default: 1)"
    )
    model_info: ModelInfo | None = Field(
        default=None,
        description="facts of the model in place of the profile run: '{\"num_params\": 7e9}'",
    )
    tuner_type: str = Field(
        default="model_based",
        description="what chooses trials: model_based (default), xgboost, gridsearch, random or "
        "optuna:SAMPLER",
    )
    strategy: Literal["global", "staged"] | None = Field(
        default=None, description="all ZeRO stages together, or one after the other"
    )
    tuner_early_stopping: PositiveInt | None = Field(
        default=None,
        description="trials in a row without a better one that end a phase (default: 5; 3 with "
        "effort quick)",
    )
    tuner_num_trials: PositiveInt = Field(
        default=50, description="most trials of a phase (default: 50)"
    )
    arg_mappings: dict[str, str] | None = Field(
        default=None, description="the script's argument for a key, as --arg KEY=FLAG says it"
    )
    seed: int = Field(default=0, ge=0, description="seed of random draws (default: 0)")
    effort: EffortName = Field(
        default="normal",
        description="the best are measured again for an expected gain of 3 % (quick, at most "
        "15 % of the search's time), 1 % (normal, 30 %; the default) or 0.3 % (thorough, 70 %)",
    )

    @field_validator("metric", "tuner_type", "strategy", "effort", mode="before")
    @classmethod
    def _strip_name(cls, name: Any) -> Any:
        return name.strip() if isinstance(name, str) else name

    @field_validator("model_info", mode="before")
    @classmethod
    def _read_flag(cls, section: Any) -> Any:
        return from_text(section)

    @field_validator("arg_mappings")
    @classmethod
    def _strip(cls, mappings: dict[str, str] | None) -> dict[str, str] | None:
        if mappings is None:
            return None
        return {key.strip(): value.strip() for key, value in mappings.items()}

    @property
    def patience(self) -> int:
        """Number of consecutive trials without improvement after which a phase ends."""
        return self.tuner_early_stopping or (3 if self.effort == "quick" else 5)

    @model_validator(mode="after")
    def _steps_in_order(self) -> AutotuningSettings:
        if self.end_profile_step < self.start_profile_step:
            raise ValueError(
                f"end_profile_step is {self.end_profile_step}, but must be at least "
                f"start_profile_step = {self.start_profile_step}"
            )
        return self

    @model_validator(mode="after")
    def _bounds_in_order(self) -> AutotuningSettings:
        least = self.min_train_micro_batch_size_per_gpu
        most = self.max_train_micro_batch_size_per_gpu
        if most < least:
            raise ValueError(
                f"max_train_micro_batch_size_per_gpu is {most}, but must be at least "
                f"min_train_micro_batch_size_per_gpu = {least}"
            )
        return self

    @model_validator(mode="after")
    def _flops_are_profiled(self) -> AutotuningSettings:
        if self.metric == "FLOPS" and self.known_model():
            raise ValueError(
                "metric is FLOPS, but model_info says nothing of FLOPs; remove it, so that the "
                "profile run counts them"
            )
        return self

    def known_model(self) -> ModelSpec | None:
        """The model, if the user describes it well enough to skip the profile run."""
        return self.model_info.model_spec() if self.model_info else None


def parse_settings(section: dict[str, Any]) -> AutotuningSettings:
    """Read the section strictly.

    Raises:
        ConfigError: an unknown key (with the nearest known one) or a wrong value.
    """
    given: dict[str, Any] = {}
    for key, value in section.items():
        name = ALIASES.get(key, key)
        if name not in AutotuningSettings.model_fields:
            known = nearest_known(key, AutotuningSettings.model_fields)
            raise ConfigError(f"autotuning.{key} is unknown; {known}")
        if name in given and given[name] != value:
            raise ConfigError(
                f"autotuning.{key} and another name of the same setting ({name}) have different "
                "values; remove one of them."
            )
        given[name] = value
    try:
        return AutotuningSettings(**given)
    except ValidationError as error:
        raise ConfigError(_first(error)) from error


def setting_fault(name: str, value: Any) -> str | None:
    """The end of a sentence on a wrong value of one key; None for a right one."""
    try:
        AutotuningSettings(**{name: value})
    except ValidationError as error:
        own = (one for one in error.errors() if one["loc"][:1] == (name,))
        return next(map(_must, own), None)
    return None


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(("autotuning", *map(str, problem["loc"])))
    scalar = problem["loc"] and not isinstance(problem["input"], (dict, BaseModel))
    given = f" is {problem['input']!r}" if scalar else ""
    must = _must(problem)
    return f"{where}{given}: {must}{'' if must.endswith('?') else '.'}"


def _must(problem: ErrorDetails) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "literal_error":
        known = re.findall("'(.*?)'", context["expected"])
        near = nearest_known(str(problem["input"]), known)
        more = f"; {near}" if near.endswith("?") else ""
        return f"it must be {', '.join(known[:-1])} or {known[-1]}{more}"
    if kind in ("greater_than", "greater_than_equal"):
        return (
            f"it must be a whole number of at least {context.get('ge', context.get('gt', 0) + 1)}"
        )
    words = (must for start, must in _KINDS.items() if kind.startswith(start))
    return next(words, problem["msg"].removeprefix("Value error, "))


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A metric of a measurement.

    Attributes:
        name: as in the user's settings.
        unit: for people.
        value: the metric as it is shown; None if the measurement lacks it.
        rank: value that orders trials; None if the measurement lacks the metric.
        higher_is_better: its direction.
        per_sample: compares work done, so that a larger global batch may take longer.
    """

    name: MetricName
    unit: str
    value: Callable[[Measurement], float | None]
    rank: Callable[[Measurement], float | None]
    higher_is_better: bool
    per_sample: bool

    def better(self, a: float, b: float) -> bool:
        """True if ``a`` is strictly better than ``b``."""
        return a > b if self.higher_is_better else a < b

    def of(self, record: Record) -> float | None:
        """The value that orders a record; None if the trial failed."""
        return None if record.measurement is None else self.rank(record.measurement)

    def metric_of(self, record: Record) -> float | None:
        """The metric of a record; None if the trial failed."""
        return None if record.measurement is None else self.value(record.measurement)

    def cost_s(self, step_s: float, samples: int) -> float:
        """Seconds to compare by, less is better: of a step, or of a sample."""
        return step_s / samples if self.per_sample else step_s


def _samples_per_s(measured: Measurement) -> float | None:
    """Samples per second and rank, if operations were counted.

    A sample needs the same operations in every configuration of a model, so a count that is wrong
    for a configuration (recomputed operations, steps of fewer samples) cannot make it win.
    """
    if measured.flops_per_step is None:
        return None
    return measured.throughput_per_s / measured.world_size


OBJECTIVES: dict[MetricName, Objective] = {
    "throughput": Objective(
        name="throughput",
        unit="samples/s",
        value=lambda m: m.throughput_per_s,
        rank=lambda m: m.throughput_per_s,
        higher_is_better=True,
        per_sample=True,
    ),
    "latency": Objective(
        name="latency",
        unit="ms",
        value=lambda m: m.latency_ms,
        rank=lambda m: m.latency_ms,
        higher_is_better=False,
        per_sample=False,
    ),
    "FLOPS": Objective(
        name="FLOPS",
        unit="FLOP/s per rank",
        value=lambda m: m.flops_per_gpu_per_s,
        rank=_samples_per_s,
        higher_is_better=True,
        per_sample=True,
    ),
}
