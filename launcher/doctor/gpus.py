"""The GPUs of slots as ``doctor`` saw them under load, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autoconf_launch.autotuner.space import GpuState
from autoconf_launch.tuning_spaces import known_accelerator, machine

SLOW_GPU = 0.8
"""Share of the pace in our tables below which a GPU counts as slow."""
_TERA = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCheck:
    """One GPU; what the driver does not report counts as in order.

    Attributes:
        name: as torch names it, a slice with its profile.
        state: clocks and throttling while it multiplied.
        driver: version.
        compute_mode: who may use it.
        has_slices: MIG is enabled.
        uncorrected_errors: of its memory, since its last reset.
        repair_pending: its memory is repaired by its next reset.
        users: other processes on it, in words.
        unusable: why torch cannot use it and what to do, in words; empty if it can.
    """

    name: str
    state: GpuState
    driver: str = ""
    compute_mode: str = "Default"
    has_slices: bool = False
    uncorrected_errors: int = 0
    repair_pending: bool = False
    users: tuple[str, ...] = ()
    unusable: str = ""

    @property
    def peak_flops_per_s(self) -> float | None:
        """The datasheet's 16-bit rate; None if our tables lack the GPU."""
        known = known_accelerator(self.name)
        if known is None or self.unusable:
            return None
        return machine(known).accelerator.half_flops_per_s

    @property
    def usual_flops_per_s(self) -> float | None:
        """The fastest 16-bit product of such GPUs, by our tables; None if they lack it."""
        peak, known = self.peak_flops_per_s, known_accelerator(self.name)
        return None if peak is None or known is None else peak * machine(known).accelerator.reached


def read_gpu(found: Mapping[str, Any] | None) -> GpuCheck | None:
    """What a rank printed of its GPU."""
    if found is None:
        return None
    return GpuCheck(
        name=found["name"] or "GPU",
        driver=str(found.get("driver") or ""),
        compute_mode=found.get("compute_mode") or "Default",
        has_slices=found.get("mig_mode") == "Enabled",
        state=GpuState(
            slot=found.get("slot") or 0,
            sm_clock_mhz=found.get("sm_clock_mhz"),
            temperature_c=found.get("temperature_c"),
            throttle_reasons=found.get("throttle_reasons"),
        ),
        uncorrected_errors=found.get("uncorrected_errors") or 0,
        repair_pending=found["repair_pending"],
        users=tuple(found["users"]),
        unusable="" if found["is_usable"] else _why_unusable(found),
    )


def _why_unusable(found: Mapping[str, Any]) -> str:
    if not found["cuda"]:
        return f"torch {found['torch']} is built without CUDA; install one with CUDA"
    return (
        f"its driver {found.get('driver') or ''} does not support torch {found['torch']}, which "
        f"is built for CUDA {found['cuda']}; update the driver, or install a torch for an older "
        "CUDA"
    )


def gpu_problems(host: str, gpu: GpuCheck, flops_per_s: float) -> Iterator[str]:
    """One sentence for each thing that a launch on this GPU would suffer from."""
    where = f"GPU {gpu.state.slot} of host {host}"
    if gpu.unusable:
        yield f"{where} ({gpu.name}) cannot be used: {gpu.unusable}."
        return
    if gpu.state.is_throttled:
        yield f"{where} is throttled{_clock_text(gpu.state)}; check its cooling and power supply."
    elif (usual := gpu.usual_flops_per_s) and flops_per_s < SLOW_GPU * usual:
        yield (
            f"{where} multiplies at {flops_per_s / _TERA:.0f} TFLOP/s, "
            f"{100 * flops_per_s / usual:.0f} % of the {usual / _TERA:.0f} that {gpu.name} "
            f"reaches{_clock_text(gpu.state)}; check its clocks and its power limit."
        )
    if (peak := gpu.peak_flops_per_s) and flops_per_s > peak:
        yield (
            f"{where} multiplies at {flops_per_s / _TERA:.0f} TFLOP/s, above the peak of "
            f"{gpu.name} ({peak / _TERA:.0f}): the driver's name or the measured time is wrong."
        )
    if gpu.users:
        yield f"{where} is also used by {', '.join(gpu.users)}; end that, or use other GPUs."
    if gpu.uncorrected_errors:
        yield (
            f"{where} has had {gpu.uncorrected_errors} uncorrected memory errors since its last "
            "reset; reset it, and replace it if they come again."
        )
    if gpu.repair_pending:
        yield f"{where} has faulty memory that its next reset replaces; reset it."


def gpu_notes(host: str, gpu: GpuCheck) -> Iterator[str]:
    """Sentences that a user should know, though nothing is wrong."""
    where = f"GPU {gpu.state.slot} of host {host}"
    if gpu.usual_flops_per_s is None and not gpu.unusable:
        yield f"{where} ({gpu.name}) is not in our tables, so its pace cannot be compared."
    if gpu.has_slices:
        yield f"{where} is divided into slices (MIG); a process can use one slice only."
    if gpu.compute_mode != "Default":
        yield (
            f"{where} is in compute mode {gpu.compute_mode}: it refuses further processes while "
            "one uses it."
        )


def _clock_text(state: GpuState) -> str:
    words = (
        "" if state.sm_clock_mhz is None else f"{state.sm_clock_mhz} MHz",
        "" if state.temperature_c is None else f"{state.temperature_c} °C",
    )
    seen = ", ".join(filter(None, words))
    return f" (at {seen})" if seen else ""
