"""Conditions of the machine during a trial: load, GPU clocks, throttling."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.space import Conditions, GpuState
from autoconf_launch.core import Device

_DRIVER = Path(__file__).resolve().parents[2] / "runtime" / "host_checks" / "driver.py"
_PATIENCE_S = 5.0
_EVERY_S = 10.0
"""Between two looks: a GPU throttles once it is hot, not in its first step."""


class Weather:
    """Load and clocks during a trial; ``look`` while it computes, ``conditions`` at its end.

    A separate process queries the GPUs meanwhile, so that nothing waits for the driver.
    """

    def __init__(self, devices: Sequence[Device] = ()) -> None:
        self._slots = tuple(device.slot for device in devices if device.visible_as is not None)
        self._load_before = _load()
        self._query: subprocess.Popen[str] | None = None
        self._asked_s = -_EVERY_S
        self._states: dict[int, GpuState] = {}

    def look(self) -> None:
        """Query the driver, if there is one and it was not queried just now."""
        if time.monotonic() < self._asked_s + _EVERY_S or shutil.which("nvidia-smi") is None:
            return
        if self._query is not None and self._query.poll() is None:
            return
        self._take_answer()
        self._asked_s = time.monotonic()
        try:
            self._query = subprocess.Popen(
                (sys.executable, "-I", str(_DRIVER)),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError:
            return

    def conditions(self) -> Conditions:
        """The conditions so far; without GPUs if the driver does not answer."""
        self._take_answer()
        return Conditions(
            load_before=self._load_before,
            load_after=_load(),
            gpus=tuple(self._states.values()),
        )

    def _take_answer(self) -> None:
        """The last state of each GPU, with the reasons of all looks."""
        query, self._query = self._query, None
        if query is None:
            return
        try:
            text, _ = query.communicate(timeout=_PATIENCE_S)
            states = [_state(gpu) for gpu in json.loads(text)]
        except subprocess.TimeoutExpired:
            query.kill()
            query.communicate()
            return
        except ValueError:
            return
        for state in states:
            if not self._slots or state.slot in self._slots:
                self._states[state.slot] = _with_reasons(state, self._states.get(state.slot))


def _state(gpu: dict[str, Any]) -> GpuState:
    def number(name: str) -> int | None:
        value = gpu.get(name)
        return value if isinstance(value, int) else None

    return GpuState(
        slot=number("slot") or 0,
        sm_clock_mhz=number("sm_clock_mhz"),
        temperature_c=number("temperature_c"),
        throttle_reasons=number("throttle_reasons"),
    )


def _with_reasons(state: GpuState, before: GpuState | None) -> GpuState:
    known = [
        one.throttle_reasons for one in (state, before) if one and one.throttle_reasons is not None
    ]
    reasons = 0
    for one in known:
        reasons |= one
    return replace(state, throttle_reasons=reasons if known else None)


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
