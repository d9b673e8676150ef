"""A traced script as what can be predicted of it: a known architecture, or its pieces.

Not: predictions. A script whose model is not known may be laid out by data parallelism alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoconf_launch.autotuner.cost import parameters
from autoconf_launch.core import (
    OPTIMIZER_STATES,
    Architecture,
    ConfigError,
    FirstForward,
    ModelSpec,
    Optimizer,
    RawConfig,
    TracedPeak,
)
from autoconf_launch.tuning_spaces import from_hugging_face, is_known_type

from .command import ScriptCommand
from .stopping import first_forward

_NEAR = 0.005
"""Share of the weights that an architecture's formulas may be off by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedScript:
    """What was found.

    Attributes:
        name: of the script.
        architecture: of its model, where that is known and has as many weights as were traced.
        why_pieces: why it is None.
    """

    name: str
    found: FirstForward
    architecture: Architecture | None
    why_pieces: str = ""

    @property
    def optimizer(self) -> str:
        """The optimizer's name as flags have it; AdamW where it is not one that we know."""
        name = (self.found.optimizer or "").lower()
        if name == "sgd" and self.states:
            return "momentum"
        return name if name in OPTIMIZER_STATES else "adamw"

    @property
    def states(self) -> float:
        """Values that the optimizer keeps for each trained weight."""
        trained = self.found.model.trainable_parameters * self.found.model.parameter_bytes_each
        if self.found.state_bytes is None:
            return Optimizer.from_name(self.found.optimizer).states
        return int(self.found.state_bytes / trained + 0.5) if trained else 0

    @property
    def spec(self) -> ModelSpec:
        """The model with its peaks, the optimizer's state in them."""
        model = self.found.model
        state_bytes = int(self.states * model.trainable_parameters * model.parameter_bytes_each)
        peaks = tuple(
            replace(peak, peak_bytes=peak.peak_bytes + state_bytes)
            for peak in (*(self.found.peaks or self._forward_peaks()), *self._doubled_peaks())
            if peak.phase != "optimizer"
        )
        return replace(model, traced_peaks=peaks, vocabulary_size=None)

    def _forward_peaks(self) -> tuple[TracedPeak, ...]:
        """Peaks of a pass without a backward one: the weights, and what would be kept for one."""
        model = self.found.model
        weights = int(model.parameters * model.parameter_bytes_each)
        return tuple(
            TracedPeak(
                phase="forward",
                micro_batch=samples,
                peak_bytes=weights + samples * model.activation_bytes_per_sample,
            )
            for samples in (1, 2)
        )

    def _doubled_peaks(self) -> tuple[TracedPeak, ...]:
        """Peaks at twice the size where only one size was seen: all but weights grows."""
        size = self.found.micro_batch
        if any(peak.micro_batch != size for peak in self.found.peaks):
            return ()
        model = self.found.model
        weights = int(model.parameters * model.parameter_bytes_each)
        gradients = int(model.trainable_parameters * model.parameter_bytes_each)
        fixed = {"forward": weights, "backward": weights + gradients}
        forward = next((p.peak_bytes for p in self.found.peaks if p.phase == "forward"), 0)
        return tuple(
            replace(
                peak,
                micro_batch=2 * size,
                peak_bytes=peak.peak_bytes
                + max(forward - weights, peak.peak_bytes - fixed.get(peak.phase, weights), 0),
            )
            for peak in self.found.peaks
        )


def trace_script(command: ScriptCommand, time_limit_s: float) -> TracedScript:
    """Run the script up to its first forward pass.

    Raises:
        NothingFeasibleError: it does not reach one.
    """
    found = first_forward(command, time_limit_s)
    architecture, why = _architecture(found, command.name)
    return TracedScript(name=command.name, found=found, architecture=architecture, why_pieces=why)


def _architecture(found: FirstForward, name: str) -> tuple[Architecture | None, str]:
    if found.config is None:
        return None, "its model has no configuration as Hugging Face's models have"
    document: dict[str, Any] = json.loads(found.config)
    config, kind = RawConfig(document), document.get("model_type")
    if not is_known_type(config):
        return None, f"model_type {kind!r} is not among those whose shapes are known"
    try:
        read = from_hugging_face(config, _title(document, name))
    except ConfigError as error:
        return None, str(error).rstrip(".")
    counted, expected = found.model.parameters, parameters(read)
    if abs(counted - expected) > _NEAR * counted:
        return None, (
            f"its model has {counted:,} weights, but a {kind} of its shapes has {expected:,}"
        )
    if found.model.trainable_parameters != counted:
        return None, "some of its weights are frozen"
    return read, ""


def _title(document: dict[str, Any], name: str) -> str:
    classes: Sequence[str] = document.get("architectures") or ()
    path = str(document.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    return path or (classes[0] if classes else f"{document.get('model_type')} of {name}")
