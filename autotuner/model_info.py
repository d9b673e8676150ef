"""What a user says of the model in ``autotuning.model_info``. Not: a profile run's finding."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt, field_validator, model_validator

from autoconf_launch.core import BlockSpec, Grade, ModelSpec, nearest_known


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
                "num_params is missing, so it says too little; give the number of parameters, "
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
        raise ValueError(f"it is no JSON: {error}") from error
