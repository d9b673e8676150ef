"""What the machine did beside a trial: load, GPU clocks, throttling."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from autoconf_launch.autotuner.space import Conditions, GpuState
from autoconf_launch.core import Device

_QUERY = "index,clocks.sm,temperature.gpu,clocks_throttle_reasons.active"
_PATIENCE_S = 5.0


class Weather:
    """Load and clocks during a trial; ``look`` once while it computes, ``conditions`` at its end.

    The GPUs are asked by a process of its own meanwhile, so that nothing waits for the driver.
    """

    def __init__(self, devices: Sequence[Device] = ()) -> None:
        self._slots = tuple(device.slot for device in devices if device.visible_as is not None)
        self._load_before = _load()
        self._query: subprocess.Popen[str] | None = None

    def look(self) -> None:
        """Ask the driver, where there is one."""
        program = shutil.which("nvidia-smi")
        if program is None or self._query is not None:
            return
        command = (program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")
        try:
            self._query = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            return

    def conditions(self) -> Conditions:
        """Everything that was seen; without GPUs where the driver does not answer."""
        return Conditions(
            load_before=self._load_before, load_after=_load(), gpus=self._gpu_states()
        )

    def _gpu_states(self) -> tuple[GpuState, ...]:
        if self._query is None:
            return ()
        try:
            text, _ = self._query.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._query.kill()
            self._query.communicate()
            return ()
        states = (_state(line) for line in text.splitlines())
        return tuple(s for s in states if s and (not self._slots or s.slot in self._slots))


def _state(line: str) -> GpuState | None:
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 4 or not parts[0].isdecimal():
        return None
    return GpuState(
        slot=int(parts[0]),
        sm_clock_mhz=_number(parts[1]),
        temperature_c=_number(parts[2]),
        throttle_reasons=_number(parts[3]),
    )


def _number(text: str) -> int | None:
    """A decimal or hexadecimal number; None for what the driver does not say."""
    try:
        return int(text, 0)
    except ValueError:
        return None


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
