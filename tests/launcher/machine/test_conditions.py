from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import Conditions, GpuState
from autoconf_launch.launcher.machine import Weather

DRIVER = """#!/bin/sh
case "$1" in *UNKNOWN*) echo 'Field "UNKNOWN" is not a valid field to query.'; exit 2;; esac
case "$1" in *CLOCKS*) ;; *) exit 3;; esac
card() { echo "$1, GPU-$1, A card, 535.1, Default, [N/A], $2, $3, $4, 0, [N/A]"; }
card 0 1980 61 0x0000000000000000
card 1 1200 88 0x0000000000000020
card 2 "[N/A]" "[N/A]" "[N/A]"
"""
OLD_NAME, NEW_NAME = "clocks_throttle_reasons.active", "clocks_event_reasons.active"
NO_FIELD = "no_such_field"


def see(folder: Path, monkeypatch: pytest.MonkeyPatch, driver: str) -> Conditions:
    """The conditions of a trial beside a driver that answers so."""
    program = folder / "nvidia-smi"
    program.write_text(driver)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    weather = Weather()
    weather.look()
    return weather.conditions()


@pytest.mark.parametrize(
    ("known", "unknown"), [(OLD_NAME, NEW_NAME), (NEW_NAME, OLD_NAME), (NEW_NAME, NO_FIELD)]
)
def test_clocks_and_throttling_are_what_drivers_of_either_name_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str, unknown: str
) -> None:
    driver = DRIVER.replace("UNKNOWN", unknown).replace("CLOCKS", known)
    cool = GpuState(slot=0, sm_clock_mhz=1980, temperature_c=61, throttle_reasons=0)
    hot = GpuState(slot=1, sm_clock_mhz=1200, temperature_c=88, throttle_reasons=32)
    assert see(tmp_path, monkeypatch, driver).gpus == (cool, hot, GpuState(slot=2))


@pytest.mark.parametrize("driver", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\necho No devices\n"])
def test_a_driver_that_does_not_answer_shows_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    assert see(tmp_path, monkeypatch, driver).gpus == ()


def test_the_load_is_seen_before_and_after() -> None:
    conditions = Weather().conditions()
    assert conditions.load_before is not None
    assert conditions.load_after is not None
