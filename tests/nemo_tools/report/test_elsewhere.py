"""Runs made elsewhere, read from real event files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.core import ConfigError, Failure, FailureKind
from autoconf_launch.nemo.report import read_run
from autoconf_launch.nemo.report.event_files import event_files, read_numbers

from .logged import STEP_TIME, log_damaged_record, log_steps, log_tensor

_TIMES = [9.0, *[2.0, 4.0] * 6]


def read(folder: Path, prefix: str = "log-") -> Outcome:
    return read_run(folder, prefix, samples=8, gpus=2, gpu_bytes=80 * 10**9)


def measure(folder: Path, prefix: str = "log-") -> Measurement:
    found = read(folder, prefix)
    assert isinstance(found, Measurement)
    return found


def failure(folder: Path, prefix: str = "log-") -> Failure:
    found = read(folder, prefix)
    assert isinstance(found, FailedTrial)
    return found.failure


def reason(folder: Path) -> str:
    return failure(folder).detail


def test_the_first_step_is_left_out_of_the_mean(tmp_path: Path) -> None:
    log_steps(tmp_path, _TIMES, [5.0, 4.0])
    found = measure(tmp_path)
    assert (len(found.step_s), found.mean_step_s, found.losses) == (12, 3.0, (4.0,))
    assert (found.samples_per_step, found.world_size) == (8, 2)


def test_files_deep_in_the_folder_are_found_and_a_restart_goes_on_in_another(
    tmp_path: Path,
) -> None:
    log_steps(tmp_path / "tb_logs" / "version_0", _TIMES[:5])
    log_steps(tmp_path / "tb_logs" / "version_1", _TIMES)
    assert len(measure(tmp_path).step_s) == 12


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_run_that_left_nothing_is_not_said_to_have_failed(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert reason(tmp_path / name) == f"not started, or it left nothing in {tmp_path / name}."


def test_a_run_without_an_event_file_tells_the_last_line_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "log-node0").write_text("starting\nRuntimeError: NCCL watchdog timeout\n\n")
    assert reason(tmp_path) == (
        "The run wrote no TensorBoard file. Its log ends: RuntimeError: NCCL watchdog timeout"
    )


@pytest.mark.parametrize(
    ("times_s", "says"),
    [
        ([1.0, 1.0, 1.0], "logged 3 step times"),
        (
            [9.0, *[float("nan")] * 12],
            "logged 13 .* 0 after the first are numbers above 0",
        ),
        ([], "logged 0 step times"),
    ],
)
def test_too_few_steps_are_a_failure_with_their_number(
    tmp_path: Path, times_s: list[float], says: str
) -> None:
    if times_s:
        log_steps(tmp_path, times_s)
    else:
        (tmp_path / "events.out.tfevents.1").write_bytes(b"no events at all" * 50)
    assert re.search(says, reason(tmp_path))


def test_times_that_are_no_numbers_do_not_count(tmp_path: Path) -> None:
    log_steps(tmp_path, [1.0, float("nan"), 2.0, 0.0, 2.0, 2.0])
    assert measure(tmp_path).step_s == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("prefix", ["log-[", "log-*", "/log", "../log"])
def test_a_prefix_of_logs_is_no_pattern(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "log-node0").write_text("RuntimeError: NCCL watchdog timeout\n")
    assert failure(tmp_path, prefix).detail == "The run wrote no TensorBoard file."


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_a_file_that_was_cut_gives_what_stands_before(tmp_path: Path, kept: float) -> None:
    file = log_steps(tmp_path, _TIMES)
    file.write_bytes(file.read_bytes()[: int(kept * file.stat().st_size)])
    times = read_numbers(event_files(tmp_path), (STEP_TIME,))[STEP_TIME]
    assert len(times) < len(_TIMES)
    assert list(times) == _TIMES[: len(times)]


def test_without_tensorboard_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_steps(tmp_path, _TIMES)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'autoconf-launch\[tensorboard\]'"):
        read(tmp_path)


_OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize("log", ["log-account_gpt3_5b", "results/log_12.error"])
def test_a_log_that_ends_in_out_of_memory_is_out_of_memory(log: str, tmp_path: Path) -> None:
    log_steps(tmp_path, _TIMES)
    path = tmp_path / log
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"step 1\n{_OUT_OF_MEMORY}\n" + "srun: error: task 3: exit code 1\n" * 20)
    found = failure(tmp_path)
    assert (found.kind, found.detail) == (FailureKind.OUT_OF_MEMORY, _OUT_OF_MEMORY)


def test_an_early_word_of_memory_decides_nothing(tmp_path: Path) -> None:
    log_steps(tmp_path, _TIMES)
    later = "".join(f"step {number}\n" for number in range(200))
    (tmp_path / "log-a").write_text(f"retried after {_OUT_OF_MEMORY}\n{later}")
    assert len(measure(tmp_path).step_s) == 12


@pytest.mark.parametrize(
    "fields",
    [
        {"dtype": 1, "float_val": [1.0, 2.0], "sizes": (2,)},
        {"dtype": 1, "float_val": [1.0], "sizes": (2**40,)},
        {"dtype": 1, "tensor_content": b"abc", "sizes": (1,)},
        {"dtype": 7, "string_val": [b"abc"]},
        {"dtype": 20},
        {"dtype": 99},
    ],
)
def test_a_value_that_is_not_a_number_is_skipped(tmp_path: Path, fields: dict[str, Any]) -> None:
    log_steps(tmp_path, [9.0, 1.0, 1.0, 1.0])
    log_damaged_record(tmp_path)
    log_tensor(tmp_path, **fields)
    assert len(measure(tmp_path, "log_").step_s) == 3
