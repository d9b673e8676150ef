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


SLOW = GpuState(slot=3, sm_clock_mhz=900, throttle_reasons=0x4)
A100 = "NVIDIA A100-SXM4-80GB"
IMPOSSIBLE = f"multiplies at 597 TFLOP/s, above the peak of {A100} (312)"


def with_throttle(reasons: int) -> GpuCheck:
    return replace(H100, state=GpuState(slot=0, throttle_reasons=reasons))


@pytest.mark.parametrize(
    ("gpu", "share", "words"),
    [
        (H100, 0.95, ()),
        (
            replace(H100, state=SLOW),
            0.5,
            ("GPU 3 of host a multiplies at ", "50 % of", "(at 900 MHz)"),
        ),
        (replace(H100, name=A100), 597e12 / USUAL_PACE, (IMPOSSIBLE,)),
        (with_throttle(0x1), 1.0, ()),
        (with_throttle(0x4), 1.0, ()),
        *((with_throttle(reasons), 1.0, ("is throttled",)) for reasons in (0x8, 0x20, 0x40, 0x84)),
        (replace(H100, uncorrected_errors=2), 1.0, ("2 uncorrected memory errors",)),
        (replace(H100, repair_pending=True), 1.0, ("reset it",)),
        (replace(H100, users=("python3 (process 7, 1 MiB)",)), 1.0, ("also used by python3",)),
    ],
)
def test_a_gpu_that_is_slow_throttled_faulty_or_used_is_named(
    gpu: GpuCheck, share: float, words: tuple[str, ...]
) -> None:
    said = problem(gpu, share)
    assert bool(said) == bool(words)
    assert all(word in said for word in words)


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


def test_slices_and_compute_modes_are_noted() -> None:
    assert list(gpu_notes("a", H100)) == []
    odd = replace(H100, has_slices=True, compute_mode="Exclusive_Process")
    slices, mode = gpu_notes("a", odd)
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


def test_the_driver_is_asked_until_it_knows_every_field_of_the_gpu_in_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    unknown = {"mig__mode__current": "", "clocks_event_reasons__active": ""}
    put_driver(tmp_path, clocks_throttle_reasons__active="0x40", **unknown)
    (gpu,) = read_gpus()
    assert "mig_mode" not in gpu
    assert (gpu["throttle_reasons"], gpu["retired_pending"]) == (0x40, None)
    uuid = USUAL["uuid"]
    put_driver(tmp_path, apps=f"{uuid}, 7, /usr/bin/python3, 3000", rows=f"{uuid}, 1")
    assert users_of(uuid) == ["python3 (process 7, 3000 MiB)"]
    assert has_pending_rows(uuid)
    assert (users_of("GPU-2"), has_pending_rows("GPU-2")) == ([], False)
