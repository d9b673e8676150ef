"""Findings of ``doctor`` about one GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.autotuner.space import GpuState
from autoconf_launch.core import ClusterSpec, Device, Node
from autoconf_launch.launcher.doctor import GpuCheck, HostChecks, SlotCheck, read_gpu
from autoconf_launch.launcher.report import doctor_document, doctor_lines
from autoconf_launch.launcher.report.doctor import gpu_notes, gpu_problems
from autoconf_launch.runtime.host_checks.driver import has_pending_rows, read_gpus, users_of

from ...fake_driver import USUAL, put_driver

H100 = GpuCheck(name="NVIDIA H100 80GB HBM3", driver="580.1", state=GpuState(slot=3))
USUAL_PACE = H100.usual_flops_per_s or 0.0


def problem(gpu: GpuCheck, share: float = 1.0) -> str:
    """The one thing that is wrong; empty if nothing is."""
    found = list(gpu_problems("a", gpu, share * USUAL_PACE))
    assert len(found) < 2, found
    return "".join(found)


def test_a_gpu_as_fast_as_the_tables_say_has_nothing_wrong() -> None:
    assert problem(H100, 0.95) == ""
    assert list(gpu_notes("a", H100)) == []


def test_one_gpu_alone_is_slow_by_the_tables() -> None:
    state = GpuState(slot=3, sm_clock_mhz=900, throttle_reasons=0x4)
    said = problem(replace(H100, state=state), 0.5)
    assert said.startswith("GPU 3 of host a multiplies at ")
    assert "50 % of" in said
    assert "(at 900 MHz)" in said


def test_a_pace_above_the_peak_is_said_to_be_impossible() -> None:
    said = problem(replace(H100, name="NVIDIA A100-SXM4-80GB"), 597e12 / USUAL_PACE)
    assert "multiplies at 597 TFLOP/s, above the peak of NVIDIA A100-SXM4-80GB (312)" in said


def test_a_gpu_that_the_tables_lack_is_not_compared() -> None:
    unknown = replace(H100, name="NVIDIA A100-SXM4-80GB MIG 1g.10gb")
    assert problem(unknown, 0.01) == ""
    assert "cannot be compared" in next(gpu_notes("a", unknown))
    cluster = ClusterSpec(
        nodes=(Node(host="a", devices=(Device(name=unknown.name, memory_bytes=1 << 30),)),)
    )
    slot = SlotCheck(host="a", flops_per_s=1e12, clock_s=0.0, sees_folder=True, gpu=unknown)
    checks = HostChecks(slots=(slot,), links=())
    assert "Nothing is wrong." in "\n".join(doctor_lines(cluster, checks))
    assert doctor_document(cluster, checks)["hosts"][0]["gpu"]["name"] == unknown.name


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [(0x1, False), (0x4, False), (0x8, True), (0x20, True), (0x40, True), (0x84, True)],
)
def test_heat_and_power_brakes_are_throttling(reasons: int, throttled: bool) -> None:
    said = problem(replace(H100, state=GpuState(slot=0, throttle_reasons=reasons)))
    assert ("is throttled" in said) == throttled


def test_faulty_memory_and_other_users_are_said() -> None:
    assert "2 uncorrected memory errors" in problem(replace(H100, uncorrected_errors=2))
    assert "reset it" in problem(replace(H100, repair_pending=True))
    assert "also used by python3" in problem(replace(H100, users=("python3 (process 7, 1 MiB)",)))


def test_slices_and_compute_modes_are_noted() -> None:
    notes = gpu_notes("a", replace(H100, has_slices=True, compute_mode="Exclusive_Process"))
    slices, mode = notes
    assert "(MIG)" in slices
    assert "Exclusive_Process" in mode


@pytest.mark.parametrize(
    ("cuda", "words"),
    [
        ("13.0", ("driver 470.57", "built for CUDA 13.0", "update the driver")),
        (None, ("without",)),
    ],
)
def test_a_torch_that_cannot_use_the_gpu_is_said_with_its_cuda(
    cuda: str | None, words: tuple[str, ...]
) -> None:
    found: dict[str, Any] = {
        **dict.fromkeys(("slot", "compute_mode", "mig_mode", "uncorrected_errors")),
        "name": H100.name,
        "driver": "470.57",
        "users": [],
        "repair_pending": False,
        "is_usable": False,
        "torch": "2.11.0",
        "cuda": cuda,
    }
    gpu = read_gpu(found)
    assert gpu
    said = problem(gpu, 0.01)
    assert all(word in said for word in words)


def test_the_driver_is_asked_until_it_knows_every_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    unknown = {"mig__mode__current": "", "clocks_event_reasons__active": ""}
    put_driver(tmp_path, clocks_throttle_reasons__active="0x40", **unknown)
    (gpu,) = read_gpus()
    assert "mig_mode" not in gpu
    assert (gpu["throttle_reasons"], gpu["retired_pending"]) == (0x40, None)


def test_other_processes_and_rows_to_be_repaired_are_those_of_one_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    uuid = USUAL["uuid"]
    put_driver(tmp_path, apps=f"{uuid}, 7, /usr/bin/python3, 3000", rows=f"{uuid}, 1")
    assert users_of(uuid) == ["python3 (process 7, 3000 MiB)"]
    assert has_pending_rows(uuid)
    assert (users_of("GPU-2"), has_pending_rows("GPU-2")) == ([], False)
