from __future__ import annotations

import os
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import TASK_VARIABLE, Mode, RankTask, RawConfig
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.hosts import WHOLE, Share, find_cluster
from autoconf_launch.launcher.hosts.slots import find_shares, shares_text
from autoconf_launch.launcher.launch import plan_launch
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.spelling import Rendered

from ..conftest import Driver

GIGABYTE = 10**9
TWO = "--max-parallel-trials=2"


def shares_of(*flags: str) -> tuple[Share, ...]:
    request = parse_request([*flags, "train.py"])
    return find_shares(request, find_cluster(request))


@pytest.fixture
def eight_cores(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU of eight cores, without GPUs and without a word on threads."""
    driver()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.fixture
def gpus(tmp_path: Path, driver: Driver) -> None:
    """Four GPUs of a kind, and a GPU of another."""
    driver()
    rows = [f"{n}, GPU-{n}, X, 8000" for n in range(4)] + ["4, GPU-4, Y, 8000"]
    program = tmp_path / "driver" / "nvidia-smi"
    program.write_text("#!/bin/sh\ncat <<END\n" + "\n".join(rows) + "\nEND\n")


def plan(*, threads: str | None = "8", limit_bytes: int | None = None) -> LaunchPlan:
    task = RankTask(mode=Mode.MEASURE, folder="/x", attempt="a", memory_limit_bytes=limit_bytes)
    variables = [(TASK_VARIABLE, task.to_variable()), ("CUDA_VISIBLE_DEVICES", "0")]
    if threads:
        variables.append(("OMP_NUM_THREADS", threads))
    rank = RankPlan(rank=0, local_rank=0, argv=("x",), environment=tuple(variables))
    return LaunchPlan(name="x", ranks=(rank,), working_directory="/", folder="/x", task=task)


def variable(placed: LaunchPlan, name: str) -> str | None:
    return dict(placed.ranks[0].environment).get(name)


@pytest.mark.usefixtures("eight_cores")
class TestOnCpu:
    def test_one_trial_runs_at_a_time_unless_more_are_asked_for(self) -> None:
        assert shares_of("--num_gpus=1") == WHOLE

    def test_two_trials_of_one_process_run_at_once_where_they_are_asked_to(self) -> None:
        assert [share.cores for share in shares_of("--num_gpus=1", TWO)] == [
            ((0, 1, 2, 3),),
            ((4, 5, 6, 7),),
        ]

    def test_each_rank_has_cores_of_its_own(self) -> None:
        assert [share.cores for share in shares_of("--num_gpus=2", TWO)] == [
            ((0, 1), (2, 3)),
            ((4, 5), (6, 7)),
        ]

    def test_a_launch_that_needs_all_cores_runs_alone(self) -> None:
        assert shares_of("--num_gpus=8", TWO) == WHOLE

    def test_as_many_run_as_there_are_cores_for_the_threads_asked_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert len(shares_of("--num_gpus=1", "--max-parallel-trials=99")) == 4

    def test_threads_that_take_all_cores_leave_no_room_for_a_second_trial(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", "8")
        assert shares_of("--num_gpus=1", TWO) == WHOLE

    @pytest.mark.parametrize(("most", "count"), [(1, 1), (2, 2), (3, 3), (99, 8)])
    def test_the_flag_sets_how_many_run(self, most: int, count: int) -> None:
        assert len(shares_of("--num_gpus=1", f"--max-parallel-trials={most}")) == count

    @pytest.mark.parametrize(
        "flag", ["--bind_cores_to_rank", "--master_port=29500", "--include=localhost:0"]
    )
    def test_what_all_trials_would_share_keeps_them_apart(self, flag: str) -> None:
        assert shares_of(flag, TWO) == WHOLE

    def test_slots_of_a_hostfile_limit_them(self, tmp_path: Path) -> None:
        hosts = tmp_path / "hosts"
        hosts.write_text("localhost slots=2\n")
        assert len(shares_of(f"--hostfile={hosts}", "--num_gpus=1", TWO)) == 2
        assert shares_of(f"--hostfile={hosts}", "--num_gpus=2", TWO) == WHOLE

    def test_the_memory_is_divided(self) -> None:
        request = parse_request(["--num_gpus=1", TWO, "train.py"])
        cluster = find_cluster(request)
        (limit,) = {share.memory_bytes for share in find_shares(request, cluster)}
        assert limit == pytest.approx(cluster.least_memory_bytes / 2, rel=0.2)

    def test_a_small_limit_of_the_user_is_not_divided(self) -> None:
        shares = shares_of("--num_gpus=1", TWO, "--memory-limit=10MB")
        assert {share.memory_bytes for share in shares} == {None}

    def test_the_sentence_counts_trials_and_cores(self) -> None:
        assert shares_text(shares_of("--num_gpus=1", TWO)).startswith(
            "2 trials run at a time, each rank on 4 cores of its own; "
        )


@pytest.mark.usefixtures("gpus")
class TestOnGpus:
    def test_each_trial_has_gpus_of_its_own(self) -> None:
        found = [[d.visible_as for d in share.devices] for share in shares_of("--num_gpus=2")]
        assert found == [["GPU-0", "GPU-1"], ["GPU-2", "GPU-3"]]

    def test_a_gpu_of_another_kind_gets_no_trial(self) -> None:
        assert len(shares_of("--num_gpus=1")) == 4

    def test_gpus_that_are_hidden_get_no_trial(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
        found = [share.devices[0].visible_as for share in shares_of("--num_gpus=1")]
        assert found == ["GPU-1", "GPU-3"]

    def test_all_gpus_are_one_trial_without_a_number(self) -> None:
        assert shares_of() == WHOLE

    def test_a_plan_sees_the_gpus_of_its_share(self) -> None:
        placed = shares_of("--num_gpus=2")[1].place(plan())
        assert variable(placed, "CUDA_VISIBLE_DEVICES") == "GPU-2,GPU-3"


@given(cores=st.integers(1, 64), ranks=st.integers(1, 16), most=st.integers(1, 16))
def test_no_core_is_in_two_shares(cores: int, ranks: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
        patch.delenv("OMP_NUM_THREADS", raising=False)
        patch.setenv("PATH", "")
        shares = shares_of(f"--num_gpus={ranks}", f"--max-parallel-trials={most}")
    used = list(chain.from_iterable(chain.from_iterable(share.cores for share in shares)))
    assert len(used) == len(set(used))
    assert set(used) <= set(range(cores))
    assert 1 <= len(shares) <= most


SHARE = Share(cores=((2, 3),), threads=2, memory_bytes=4 * GIGABYTE)


def test_a_rank_is_bound_to_its_cores_and_has_as_many_threads() -> None:
    placed = SHARE.place(plan())
    assert (placed.ranks[0].cores, variable(placed, "OMP_NUM_THREADS")) == ((2, 3), "2")


def test_threads_that_the_user_has_set_are_left() -> None:
    assert variable(SHARE.place(plan(threads=None)), "OMP_NUM_THREADS") is None


@pytest.mark.parametrize(("alone", "limit"), [(False, 4 * GIGABYTE), (True, 8 * GIGABYTE)])
def test_the_task_has_the_limit_of_the_share_unless_it_runs_alone(alone: bool, limit: int) -> None:
    placed = SHARE.place(plan(limit_bytes=8 * GIGABYTE), alone=alone)
    told = RankTask.from_variable(variable(placed, TASK_VARIABLE) or "")
    assert placed.task == told
    assert told.memory_limit_bytes == limit


def test_the_whole_machine_changes_nothing() -> None:
    assert WHOLE[0].place(plan()) == plan()


def test_a_placed_plan_is_a_launch_like_any_other(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    request = parse_request(["--num_gpus=1", str(script)])
    whole = plan_launch(
        request, find_cluster(request), Rendered(config=RawConfig({}), script_args=())
    )
    placed = SHARE.place(whole)
    assert placed.ranks[0].argv == whole.ranks[0].argv
