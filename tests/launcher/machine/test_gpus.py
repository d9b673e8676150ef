"""GPUs as ``nvidia-smi`` lists them, or as torch counts them if there is no ``nvidia-smi``.

The outputs have the form of those in NVIDIA's MIG user guide (``-L``, ``mig -lgip``) and in the
tests of exporters that read ``-q -x`` on real machines; the sizes are an A100's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.launcher.machine import Gpu, gpus, list_gpus, seen_at_once
from autoconf_launch.launcher.machine.gpus import GpuUser

FULL = "--query-gpu=index,uuid,name,memory.total,memory.free,compute_mode,mig.mode.current"
BASIC = "--query-gpu=index,uuid,name,memory.total"
PROCESSES = "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name"
CARD = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"
SLICES = ("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb")
LISTING = f"""\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: {CARD})
  MIG 3g.20gb     Device  0: (UUID: {SLICES[0]})
  MIG 1c.1g.5gb+me Device  1: (UUID: {SLICES[1]})
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1)
"""
DOCUMENT = f"""\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <gpu id="00000000:0F:00.0">
    <mig_mode><current_mig>Enabled</current_mig></mig_mode>
    <mig_devices>
      <mig_device>
        <index>0</index>
        <fb_memory_usage><total>20096 MiB</total><used>19 MiB</used><free>20077 MiB</free>
        </fb_memory_usage>
      </mig_device>
      <mig_device>
        <index>1</index>
        <fb_memory_usage><total>4864 MiB</total><used>3 MiB</used><free>4861 MiB</free>
        </fb_memory_usage>
      </mig_device>
    </mig_devices>
    <uuid>{CARD}</uuid>
  </gpu>
</nvidia_smi_log>
"""
SLICED = {
    FULL: f"0, {CARD}, NVIDIA A100-SXM4-40GB, 40960, [N/A], Default, Enabled\n"
    "1, GPU-1, NVIDIA A100-SXM4-40GB, 40960, 40338, Default, Disabled\n",
    "-L": LISTING,
}


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Output of ``nvidia-smi``, by its first argument; others end with an error."""
    answers: dict[str, str] = {}
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"text = json.load(open({str(tmp_path / 'answers')!r})).get(sys.argv[1])\n"
        "sys.exit(6) if text is None else print(text, end='')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    class Answers(dict[str, str]):
        def update(self, *mappings: object, **more: str) -> None:
            super().update(*mappings, **more)
            (tmp_path / "answers").write_text(json.dumps(self))

    answers = Answers()
    answers.update({})
    return answers


L4 = "0, GPU-0, NVIDIA L4, 23034, 22571, Default, [N/A]\n"


def test_free_memory_is_what_the_driver_says_also_to_an_agent_that_runs_the_module(
    answer: dict[str, str],
) -> None:
    answer.update({FULL: L4})
    (gpu,) = list_gpus()
    assert (gpu.memory_bytes >> 20, gpu.used_bytes >> 20, gpu.users) == (23034, 463, ())
    said = subprocess.run(
        (sys.executable, "-I", gpus.__file__), capture_output=True, text=True, check=True
    )
    (row,) = json.loads(said.stdout)
    assert (row["name"], row["free_bytes"]) == ("NVIDIA L4", 22571 << 20)


def test_an_old_driver_that_knows_fewer_columns_is_asked_for_those(
    answer: dict[str, str],
) -> None:
    answer.update({BASIC: "0, GPU-0, Tesla T4, 15360\n"})
    assert list_gpus() == (
        Gpu(index=0, uuid="GPU-0", visible_as="0", name="Tesla T4", memory_bytes=15360 << 20),
    )


def test_processes_are_named_if_they_hold_a_notable_part(answer: dict[str, str]) -> None:
    answer.update(
        {
            FULL: "0, GPU-0, NVIDIA L4, 23034, 12000, Default, [N/A]\n",
            PROCESSES: "GPU-0, 1234, 10900, /usr/bin/python3\n"
            "GPU-0, 77, [N/A], [Not Found]\nGPU-9, 5, 1, x\n",
        }
    )
    (gpu,) = list_gpus()
    assert gpu.users == (
        GpuUser(pid=1234, name="python3", memory_bytes=10900 << 20),
        GpuUser(pid=77, name="[Not Found]", memory_bytes=None),
    )


def test_slices_of_a_card_stand_for_it(answer: dict[str, str]) -> None:
    answer.update({**SLICED, "-q": DOCUMENT})
    first, second, whole = list_gpus()
    assert (first.uuid, second.uuid) == (first.visible_as, second.visible_as) == SLICES
    assert first.name == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    assert [g.memory_bytes >> 20 for g in (first, second)] == [20096, 4864]
    assert first.free_bytes == 20077 << 20
    assert (whole.index, whole.visible_as) == (1, "GPU-1")


def test_a_slices_memory_follows_from_its_profile_and_cuda_shows_one_slice_and_nothing_else(
    answer: dict[str, str],
) -> None:
    answer.update(SLICED)  # of which the driver reports no memory
    first, second, whole = listed = list_gpus()
    assert 18.5 < first.memory_bytes / 2**30 < 19.6
    assert 4.5 < second.memory_bytes / 2**30 <= 4.75
    assert (seen_at_once(listed), seen_at_once((whole,))) == ((first,), (whole,))
    answer.update({"-L": LISTING.partition("\n")[0]})  # a card with MIG and without a slice
    assert [gpu.index for gpu in list_gpus()] == [1]


def test_a_prohibited_card_is_none_to_use(answer: dict[str, str]) -> None:
    answer.update(
        {
            FULL: "0, GPU-0, NVIDIA T400, 1875, 1800, Prohibited, [N/A]\n"
            "1, GPU-1, NVIDIA L4, 23034, 22571, Exclusive_Process, [N/A]\n",
            PROCESSES: "",
        }
    )
    (gpu,) = seen_at_once(list_gpus())
    assert (gpu.index, gpu.is_exclusive) == (1, True)


@pytest.fixture
def no_driver_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def python_that_says(folder: Path, text: str) -> str:
    """An interpreter whose torch answers ``text``; it counts how often it is asked."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\necho >> {folder}/asked\necho '{text}'\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.usefixtures("no_driver_program")
class TestWithoutNvidiaSmi:
    def test_torch_is_asked_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpus, "_DRIVER_FILES", ("/dev/null",))
        rows = [["AMD Instinct MI300X", 206_141_652_992, 205_000_000_000]]
        python = python_that_says(tmp_path, f"a warning\n{json.dumps([True, rows * 2])}")
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3, 5")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        for _ in range(2):
            first, second = list_gpus(python)
        assert (first.name, first.free_bytes) == ("AMD Instinct MI300X", 205_000_000_000)
        assert [(g.index, g.visible_as) for g in (first, second)] == [(3, "3"), (5, "5")]
        assert len((tmp_path / "asked").read_text().splitlines()) == 1

    def test_torch_is_not_asked_on_a_machine_without_a_drivers_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gpus, "_DRIVER_FILES", ("/dev/absent",))
        monkeypatch.setattr(gpus, "_DRIVER_LIBRARY", "libabsent.so.1")
        assert list_gpus(python_that_says(tmp_path, "[false, []]")) == ()
        assert not (tmp_path / "asked").exists()

    @pytest.mark.parametrize("value", ["", "-1"])
    def test_torch_is_not_asked_for_gpus_that_are_hidden(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        monkeypatch.setattr(gpus, "_DRIVER_FILES", ("/dev/null",))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert list_gpus(python_that_says(tmp_path, "[false, []]")) == ()
        assert not (tmp_path / "asked").exists()

    def test_a_torch_without_cuda_and_hip_is_seen_without_importing_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit(1)")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        version = tmp_path / "torch" / "version.py"
        heads = "from typing import Optional\n__version__ = '2.11.0'\n"
        for text, built in (
            ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", False),
            ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", True),
            ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n", True),
        ):
            version.write_text(heads + text)
            assert gpus._is_torch_for_gpus() is built
