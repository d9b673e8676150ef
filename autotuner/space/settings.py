"""The ``autotuning`` section of a configuration."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

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


class ModelInfo(BaseModel):
    """DeepSpeed's names. With ``num_params`` there is no profile run.

    ``activation_mem_per_gpu`` is what one sample's forward pass keeps, in bytes; without it no
    memory is predicted. ``profile`` asks for the profile run, as leaving the section out does.
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
        """The model as equal blocks; None where the profile run is wanted."""
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


ALIASES = {
    "args_mapping": "arg_mappings",
    "start_step": "start_profile_step",
    "end_step": "end_profile_step",
}
"""Other names in DeepSpeed's documentation, and ours."""

MetricName = Literal["throughput", "latency", "FLOPS"]
EffortName = Literal["quick", "normal", "thorough"]
"""Keys of ``measurement.EFFORTS``."""


class AutotuningSettings(BaseModel):
    """Settings of one tuning run; names and defaults are those of the DeepSpeed Autotuner.

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
    tuner_early_stopping: PositiveInt = Field(
        default=5, description="trials in a row without a better one that end a phase (default: 5)"
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
        description="how small a difference is resolved: quick 6 % (the playoff takes 15 % of the "
        "search's time), normal 3 % (30 %; the default), thorough 1.5 % (70 %)",
    )

    @field_validator("metric", "tuner_type", "strategy", "effort", mode="before")
    @classmethod
    def _strip_name(cls, name: Any) -> Any:
        return name.strip() if isinstance(name, str) else name

    @field_validator("effort", mode="before")
    @classmethod
    def _is_effort(cls, name: Any) -> Any:
        if name not in (known := get_args(EffortName)):
            near = nearest_known(str(name), known)
            more = f"; {near}" if near.endswith("?") else ""
            raise ValueError(f"it must be quick, normal or thorough{more}")
        return name

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
        """The model, where the user says enough of it to leave the profile run out."""
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


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(("autotuning", *map(str, problem["loc"])))
    message = problem["msg"].removeprefix("Value error, ")
    scalar = problem["loc"] and not isinstance(problem["input"], (dict, BaseModel))
    given = f" is {problem['input']!r}" if scalar else ""
    return f"{where}{given}: {message}{'' if message.endswith('?') else '.'}"
