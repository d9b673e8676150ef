"""Step times of a script whose profile run timed nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import (
    BlockSpec,
    Grade,
    MemoryUse,
    MicroBatchTiming,
    ModelSpec,
    RankResult,
    encode,
    result_file,
)
from autoconf_launch.launcher.events import Event
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.tuning import TuningJob, datasheet_times, read_job

from ..conftest import Driver

SCRIPT = """import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
"""
FLAGS = ("--num_gpus=1", "--allow-global-batch-change")
SPEC = ModelSpec(
    grade=Grade.MEASURED, blocks=(BlockSpec(name="model", parameters=100, flops=1e9),)
)
TIMED = replace(
    SPEC,
    timings=(MicroBatchTiming(micro_batch=1, forward_backward_s=1.0, activation_bytes=1),),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def job_on(driver: Driver, gpu: str) -> TuningJob:
    def listen(event: Event) -> None:
        pass

    driver(81_559, names=[gpu])
    return read_job(parse_request([*FLAGS, "train.py", "--batch_size=4"]), listen)


def write_result(job: TuningJob, reserved_bytes: int | None) -> None:
    memory = MemoryUse(
        free_before_bytes=1, peak_bytes=1, limit_bytes=1, reserved_bytes=reserved_bytes
    )
    result = RankResult(
        rank=0, world_size=1, attempt="a", ended_unix_s=1.0, steps=(), memory=memory
    )
    job.paths.profile.mkdir(parents=True)
    (job.paths.profile / result_file(0)).write_text(json.dumps(encode(result)))


def test_a_gpu_of_our_tables_gives_times_to_what_was_not_timed(
    folder: Path, driver: Driver
) -> None:
    job = job_on(driver, "NVIDIA H100 80GB HBM3")
    assert datasheet_times(replace(job, spec=SPEC)) is not None
    assert datasheet_times(replace(job, spec=TIMED)) is None
    assert datasheet_times(replace(job, spec=None)) is None


def test_an_unknown_gpu_gives_no_times(folder: Path, driver: Driver) -> None:
    assert datasheet_times(replace(job_on(driver, "NVIDIA Nonesuch 9000"), spec=SPEC)) is None


@pytest.mark.parametrize(("reserved_bytes", "has_times"), [(None, False), (1, True)])
def test_a_script_that_trains_on_the_cpu_gets_no_times_of_the_gpu(
    folder: Path, driver: Driver, reserved_bytes: int | None, has_times: bool
) -> None:
    job = job_on(driver, "NVIDIA H100 80GB HBM3")
    write_result(job, reserved_bytes)
    assert (datasheet_times(replace(job, spec=SPEC)) is not None) is has_times
