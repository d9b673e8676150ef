from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.search import baseline_trial
from autoconf_launch.core import (
    BlockSpec,
    ConfigError,
    Grade,
    MemoryUse,
    MicroBatchTiming,
    ModelSpec,
    RankResult,
    encode,
    result_file,
)
from autoconf_launch.launcher.engines.fork_server import _server_key
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.launch import early_variables, forked_imports
from autoconf_launch.launcher.tuning import (
    TrialFiles,
    TuningJob,
    datasheet_times,
    make_study,
    read_job,
)

from ..conftest import Driver

NATIVE = "from autoconf_launch.runtime import initialize\n"
DEEPSPEEDS = "import deepspeed\ndeepspeed.initialize()\n"
OPENS = (
    "A global batch of 2 on 1 data-parallel rank leaves only micro-batch 2 of those from 2 "
    "up; --allow-global-batch-change searches others."
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    document = {"train_micro_batch_size_per_gpu": 2, "autotuning": {"enabled": True}}
    (tmp_path / "ds.json").write_text(json.dumps(document))
    return tmp_path


def first_line(folder: Path, script: str, *flags: str) -> str | None:
    (folder / "train.py").write_text(script)
    heard: list[Event] = []
    words = ("train.py", "--deepspeed_config", "ds.json")
    read_job(parse_request([*flags, "--num_gpus=1", *words]), heard.append)
    return next((event.text for event in heard if isinstance(event, Note)), None)


def test_a_batch_that_leaves_one_candidate_is_the_first_thing_said(folder: Path) -> None:
    assert first_line(folder, NATIVE) == OPENS


def test_deepspeeds_own_file_leaves_more(folder: Path) -> None:
    assert first_line(folder, DEEPSPEEDS) != OPENS


def test_it_leaves_one_where_the_flag_keeps_the_batch(folder: Path) -> None:
    assert first_line(folder, DEEPSPEEDS, "--keep-global-batch") == OPENS


def test_predictions_have_the_network_that_doctor_saved(folder: Path, driver: Driver) -> None:
    driver(81_559, 81_559, names=["NVIDIA H100 80GB HBM3"] * 2)
    (folder / "cluster.yaml").write_text(
        "nodes: [{gpu: NVIDIA H100 80GB HBM3, gpus: 8, network_gb_per_s: 20}]"
    )
    (folder / "train.py").write_text(NATIVE)
    words = ("--cluster", "cluster.yaml", "train.py", "--deepspeed_config", "ds.json")
    (node,) = read_job(parse_request(words), lambda event: None).cluster.nodes
    assert (node.network_bytes_per_s, len(node.devices)) == (40e9, 2)


def test_a_cluster_without_the_hosts_gpus_is_refused(folder: Path, driver: Driver) -> None:
    driver(16_000, names=["Tesla T4"])
    (folder / "train.py").write_text(NATIVE)
    words = ("--cluster", "2x8xH100", "train.py", "--deepspeed_config", "ds.json")
    with pytest.raises(ConfigError, match=r"--cluster has H100-SXM-80GB, but .+ has Tesla T4"):
        read_job(parse_request(words), lambda event: None)


def test_a_memory_limit_below_the_context_of_a_gpu_is_refused(
    folder: Path, driver: Driver
) -> None:
    driver(16_000, names=["Tesla T4"])
    (folder / "train.py").write_text(NATIVE)
    words = ("--memory_limit", "90MB", "train.py", "--deepspeed_config", "ds.json")
    with pytest.raises(ConfigError, match=r"--memory_limit is 0\.08 GiB, but the CUDA context"):
        read_job(parse_request(words), lambda event: None)
    words = ("--memory_limit", "2GB", "train.py", "--deepspeed_config", "ds.json")
    job = read_job(parse_request(words), lambda event: None)
    assert job.cluster.least_memory_bytes == 2 * 10**9


def test_flops_that_the_profile_could_not_count_are_refused_as_a_metric(folder: Path) -> None:
    (folder / "train.py").write_text(NATIVE)
    words = ("--num_gpus=1", "--metric=FLOPS", "train.py", "--deepspeed_config", "ds.json")
    job = read_job(parse_request(words), lambda event: None)
    uncounted = ModelSpec(grade=Grade.MEASURED, blocks=(BlockSpec(name="model", parameters=1),))
    with pytest.raises(ConfigError, match="could not count this script's FLOPs; use throughput"):
        make_study(replace(job, spec=uncounted))


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
def plain_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    plain_folder: Path, driver: Driver
) -> None:
    job = job_on(driver, "NVIDIA H100 80GB HBM3")
    assert datasheet_times(replace(job, spec=SPEC)) is not None
    assert datasheet_times(replace(job, spec=TIMED)) is None
    assert datasheet_times(replace(job, spec=None)) is None


def test_an_unknown_gpu_gives_no_times(plain_folder: Path, driver: Driver) -> None:
    assert datasheet_times(replace(job_on(driver, "NVIDIA Nonesuch 9000"), spec=SPEC)) is None


@pytest.mark.parametrize(("reserved_bytes", "has_times"), [(None, False), (1, True)])
def test_a_script_that_trains_on_the_cpu_gets_no_times_of_the_gpu(
    plain_folder: Path, driver: Driver, reserved_bytes: int | None, has_times: bool
) -> None:
    job = job_on(driver, "NVIDIA H100 80GB HBM3")
    write_result(job, reserved_bytes)
    assert (datasheet_times(replace(job, spec=SPEC)) is not None) is has_times


EXTERNAL = """
import argparse
import torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int)
parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
"""


@pytest.mark.parametrize(
    ("script", "words", "imports"),
    [
        pytest.param(NATIVE, ("--deepspeed_config", "ds.json"), (), id="our runtime"),
        pytest.param(
            EXTERNAL, ("--batch_size=4",), ("torch", "torch.utils.data:DataLoader"), id="external"
        ),
    ],
)
def test_the_early_fork_server_has_the_variables_of_the_profile_run(
    folder: Path, script: str, words: tuple[str, ...], imports: tuple[str, ...]
) -> None:
    (folder / "train.py").write_text(script)
    request = parse_request(("--autotuning=tune", "--num_gpus=2", "train.py", *words))
    is_ours = script is NATIVE
    assert forked_imports(request, is_ours=is_ours) == imports
    job = read_job(request, lambda event: None)
    job.paths.exps.mkdir()
    plan = TrialFiles.of_job(job).plan_profile(baseline_trial(job.user.baseline), "one")
    of_ranks = {**os.environ, **dict(plan.ranks[1].environment)}
    early = early_variables(request, is_ours=is_ours)
    assert _server_key(early, "/", ()) == _server_key(of_ranks, "/", ())
