from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.autotuner.space.trial import Conditions, GpuState
from autoconf_launch.launcher.machine.conditions import Weather

DRIVER = """#!/bin/sh
echo "0, 1980, 61, 0x0000000000000000"
echo "1, 1200, 88, 0x0000000000000020"
echo "2, [N/A], [N/A], [N/A]"
"""


def see(folder: Path, monkeypatch: pytest.MonkeyPatch, driver: str) -> Conditions:
    """The conditions of a trial beside a driver that answers so."""
    program = folder / "nvidia-smi"
    program.write_text(driver)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    weather = Weather()
    weather.look()
    return weather.conditions()


def test_clocks_and_throttling_are_what_the_driver_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cool = GpuState(slot=0, sm_clock_mhz=1980, temperature_c=61, throttle_reasons=0)
    hot = GpuState(slot=1, sm_clock_mhz=1200, temperature_c=88, throttle_reasons=32)
    assert see(tmp_path, monkeypatch, DRIVER).gpus == (cool, hot, GpuState(slot=2))


@pytest.mark.parametrize("driver", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\necho No devices\n"])
def test_a_driver_that_does_not_answer_shows_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    assert see(tmp_path, monkeypatch, driver).gpus == ()


def test_the_load_is_seen_before_and_after() -> None:
    conditions = Weather().conditions()
    assert conditions.load_before is not None
    assert conditions.load_after is not None
