"""Scripts that one process starts: which they are, and what a profile run teaches of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    FailedTrial,
    GlobalBatchRule,
    Measurement,
    Record,
    Trial,
)
from autoconf_launch.core import (
    Candidate,
    ClusterSpec,
    Device,
    Failure,
    FailureKind,
    Layout,
    Mode,
    Node,
    NothingFeasibleError,
    RankResult,
    RankTask,
    RawConfig,
    Workload,
    encode,
    result_file,
)
from autoconf_launch.launcher.dialects import BuiltinDialect
from autoconf_launch.launcher.dialects.any_script import ArgumentsDialect
from autoconf_launch.launcher.events import Event, ModelProfiled, Note
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.launch import started_ranks
from autoconf_launch.launcher.machine import our_python
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.results import ResultsPaths
from autoconf_launch.launcher.script import ScriptSource, facts_of
from autoconf_launch.launcher.spelling import UserSettings
from autoconf_launch.launcher.tuning import (
    BudgetSpentError,
    OtherStartError,
    ProfileFailedError,
    TimeBudget,
    TuningJob,
    as_script_starts,
    first_that_starts,
    job_crash,
    late_crash,
    read_job,
    recall_start,
)
from autoconf_launch.launcher.tuning.plain_start import check_ranks, remember_start
from autoconf_launch.launcher.tuning.prepared import require_ranks

DECLARES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
"""
SPAWNS = "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n"
REQUEST = LaunchRequest(script="train.py")
ALONE = LaunchRequest(script="train.py", alone=True)
CRASH = Failure(kind=FailureKind.CRASHED, detail="rank 0 ended with exit code 1 and …")
DIALECT = ArgumentsDialect()
USER = UserSettings(
    baseline=Candidate(layout=Layout(micro_batch=1)),
    choices=(),
    batch_rule=GlobalBatchRule(),
    workload=Workload(),
    settings=AutotuningSettings(),
)


RANKED = "import os, torch\nrank = int(os.environ.get('RANK', 0))"


def source(text: str = "") -> ScriptSource:
    return ScriptSource(script_args=(), config=RawConfig({}), config_argument=None, text=text)


def crash_of(
    request: LaunchRequest, source: ScriptSource, error: ProfileFailedError, ranks: int = 1
) -> Exception:
    job = TuningJob(
        request=request,
        source=source,
        dialect=DIALECT,
        cluster=cluster(ranks),
        user=USER,
        paths=ResultsPaths(results=Path("results"), exps=Path("exps")),
        listener=lambda event: None,
        budget=TimeBudget(),
    )
    return job_crash(job, error, error.failure)


def cluster(devices: int, visible_as: str | None = None) -> ClusterSpec:
    device = Device(name="cpu", memory_bytes=1, visible_as=visible_as)
    return ClusterSpec(nodes=(Node(host="a", devices=(device,) * devices),))


def reporting(folder: Path, ranks: int) -> RankTask:
    """The task of a launch in which one process made this many ranks."""
    task = RankTask(mode=Mode.PROFILE, folder=str(folder), attempt="a")
    for rank in range(ranks):
        result = RankResult(rank=rank, world_size=ranks, attempt="a", ended_unix_s=0.0)
        (folder / result_file(rank)).write_text(json.dumps(encode(result)))
    return task


@pytest.mark.parametrize(
    "text",
    [
        SPAWNS,
        "import torch\ntorch.multiprocessing.spawn(main)",
        "from torch.multiprocessing import spawn\nspawn(main)",
    ],
)
def test_a_script_that_spawns_is_known_by_its_source(text: str) -> None:
    assert facts_of(text).starts_ranks


@pytest.mark.parametrize(
    "text",
    [
        "import torch, multiprocessing\nmultiprocessing.Pool().map(f, x)",
        "import torch\nnp.random.SeedSequence(0).spawn(2)",
        "import torch.multiprocessing as mp\nmp.set_start_method('spawn')",
    ],
)
def test_other_things_spawn_too(text: str) -> None:
    assert not facts_of(text).starts_ranks


def test_a_script_that_spawns_is_started_once() -> None:
    assert as_script_starts(REQUEST, DIALECT, source(SPAWNS)).alone
    assert not as_script_starts(REQUEST, DIALECT, source()).alone


def test_our_own_scripts_are_left_to_us() -> None:
    assert not as_script_starts(REQUEST, BuiltinDialect(), source(SPAWNS)).alone


def test_a_plain_script_has_one_rank_and_a_data_parallel_one_all_devices() -> None:
    assert as_script_starts(ALONE, DIALECT, source()).processes == 1
    spreads = source("import torch\nmodel = torch.nn.DataParallel(model)")
    assert as_script_starts(ALONE, DIALECT, spreads).processes is None


@pytest.mark.parametrize(
    "text",
    [
        RANKED,
        "import torch.distributed as dist",
        "from accelerate import Accelerator",
        "import accelerate",
        "",
    ],
)
def test_a_crash_with_the_variables_of_a_launch_is_tried_without_them(text: str) -> None:
    error = ProfileFailedError("fails", CRASH)
    found = crash_of(REQUEST, source(text), error)
    assert isinstance(found, OtherStartError)
    assert (found.request.alone, found.first) == (True, error)


@pytest.mark.parametrize(
    ("request_", "failure"),
    [
        (ALONE, CRASH),
        (REQUEST, Failure(kind=FailureKind.NO_STEPS, detail="none")),
        (REQUEST, Failure(kind=FailureKind.CRASHED, detail="rank 0 ended with exit code 2 …")),
    ],
)
def test_other_failures_are_the_scripts_own(request_: LaunchRequest, failure: Failure) -> None:
    error = ProfileFailedError("fails", failure)
    assert crash_of(request_, source(RANKED), error) is error


def test_a_crash_of_several_ranks_names_the_line_that_starts_the_script_once() -> None:
    error = ProfileFailedError("It fails.", CRASH)
    request = replace(REQUEST, processes=2, script_args=("--lr", "1"))
    found = str(crash_of(request, source(RANKED), error, ranks=2))
    line = f"autoconf-launch tune -- {our_python()} train.py --lr 1"
    assert found == f"It fails. If the script starts its ranks itself, use: {line}"


def test_the_line_of_another_start_keeps_the_flags_that_were_typed() -> None:
    typed = ("--allow-global-batch-change", "--budget", "40s", "--num_gpus", "1")
    request = parse_request(("--autotuning=tune", *typed, "train.py", "--bs", "8"))
    found = str(crash_of(request, source(RANKED), ProfileFailedError("It fails.", CRASH)))
    line = f"autoconf-launch tune {' '.join(typed)} -- {our_python()} train.py --bs 8"
    assert found.endswith(f"To begin with that: {line}")


def test_a_crash_of_a_script_that_never_asks_for_its_rank_is_not_tried_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "models.py").write_text("")
    request = replace(REQUEST, script=str(tmp_path / "train.py"))
    plain = source("import argparse, torch\nfrom torchvision import datasets\nimport models")
    error = ProfileFailedError("fails", CRASH)
    plain = replace(plain, modules=("import torch.nn as nn, math",))
    assert crash_of(request, plain, error) is error
    asks = replace(plain, modules=("import os\nmain = os.environ['LOCAL_RANK'] == '0'",))
    assert crash_of(request, asks, error) is not error


def test_ranks_that_the_script_made_are_counted_by_what_they_say(tmp_path: Path) -> None:
    assert started_ranks(reporting(tmp_path, 2)) == 2


def test_other_ranks_than_counted_on_are_found_out(tmp_path: Path) -> None:
    with pytest.raises(OtherStartError, match="starts 2 ranks by itself") as found:
        check_ranks(ALONE, cluster(1), reporting(tmp_path, 2))
    assert (found.value.request.processes, found.value.request.started) == (2, 2)


def test_one_rank_may_have_several_gpus(tmp_path: Path) -> None:
    with pytest.raises(OtherStartError) as found:
        check_ranks(ALONE, cluster(2, "0"), reporting(tmp_path, 1))
    assert (found.value.request.processes, found.value.request.started) == (None, 1)


def test_ranks_that_a_started_script_starts_in_turn_are_found_out(tmp_path: Path) -> None:
    with pytest.raises(
        OtherStartError, match=r"starts 2 ranks by itself; .* instead of 1"
    ) as found:
        check_ranks(REQUEST, cluster(1), reporting(tmp_path, 2))
    assert found.value.request == replace(REQUEST, alone=True, processes=2, started=2)


@pytest.mark.parametrize(("request_", "ranks"), [(ALONE, 1), (REQUEST, 1)])
def test_ranks_as_counted_pass(tmp_path: Path, request_: LaunchRequest, ranks: int) -> None:
    check_ranks(request_, cluster(1), reporting(tmp_path, ranks))


def test_the_start_is_remembered_for_a_tune_that_goes_on(tmp_path: Path) -> None:
    paths = ResultsPaths(results=tmp_path / "results", exps=tmp_path / "exps")
    paths.profile.mkdir(parents=True)
    assert recall_start(REQUEST, paths) == REQUEST
    remember_start(LaunchRequest(script="train.py", alone=True, processes=2), paths)
    found = recall_start(REQUEST, paths)
    assert (found.alone, found.processes) == (True, 2)


def other_start(request: LaunchRequest) -> str:
    """Works only by itself."""
    if not request.alone:
        raise OtherStartError(ALONE, "alone it is", first=ProfileFailedError("first", CRASH))
    return "works"


def no_start(request: LaunchRequest) -> str:
    if not request.alone:
        return other_start(request)
    raise ProfileFailedError("second", CRASH)


@pytest.fixture
def paths(tmp_path: Path) -> ResultsPaths:
    made = ResultsPaths(results=tmp_path / "results", exps=tmp_path / "exps")
    made.profile.mkdir(parents=True)
    return made


def test_the_other_start_is_made_said_and_remembered(paths: ResultsPaths) -> None:
    said: list[Event] = []
    assert first_that_starts(REQUEST, other_start, paths, said.append) == "works"
    assert said == [Note(text="alone it is", warning=True)]
    assert recall_start(REQUEST, paths).alone


def test_a_script_that_fails_in_each_start_shows_its_first_error(paths: ResultsPaths) -> None:
    with pytest.raises(NothingFeasibleError, match=r"^first As python starts it, .*: second$"):
        first_that_starts(REQUEST, no_start, paths, lambda event: None)


def test_a_script_that_crashes_alike_in_each_start_has_its_own_error(paths: ResultsPaths) -> None:
    tail = ("Traceback …", "ValueError: own")
    crash = replace(CRASH, log_tail=tail)

    def attempt(request: LaunchRequest) -> str:
        error = ProfileFailedError("fails.", crash)
        raise error if request.alone else OtherStartError(ALONE, "once more", first=error)

    with pytest.raises(NothingFeasibleError, match=r"^fails\. It crashes alike as") as found:
        first_that_starts(REQUEST, attempt, paths, lambda event: None)
    assert found.value.log_tail == tail


def trial_of(number: int, micro: int, kind: FailureKind | None = None) -> Record:
    """A trial that was measured, or failed."""
    layout = Layout(data_parallel=1, micro_batch=micro)
    trial = Trial(
        number=number, name=f"z0_{micro}", space="z0", candidate=Candidate(layout=layout)
    )
    if kind is None:
        measured = Measurement(step_s=(1.0,), samples_per_step=micro, world_size=1)
        return Record(trial=trial, outcome=measured, wall_s=1.0)
    failed = FailedTrial(failure=Failure(kind=kind, detail="x"))
    return Record(trial=trial, outcome=failed, wall_s=1.0)


@dataclass(frozen=True, kw_only=True)
class Ended:
    records: tuple[Record, ...]
    repeats: tuple[Record, ...] = ()


OWN, OTHER = trial_of(0, 2), trial_of(1, 4)
OWN_CRASH, OTHER_CRASH = trial_of(0, 2, FailureKind.CRASHED), trial_of(1, 4, FailureKind.CRASHED)


@pytest.mark.parametrize(
    ("records", "later", "crash"),
    [
        ((OWN, OTHER), (OWN_CRASH,), OWN_CRASH),
        ((OWN, OTHER), (OTHER_CRASH, OWN), OTHER_CRASH),
        ((OWN, OTHER), (OTHER_CRASH, OTHER), None),
        ((OWN, OTHER_CRASH), (), OTHER_CRASH),
        ((OWN, OTHER, OTHER_CRASH), (OWN,), None),
        ((OWN, trial_of(1, 4, FailureKind.OUT_OF_MEMORY)), (OWN,), None),
    ],
)
def test_a_crash_after_a_trial_that_ran_may_be_of_the_start(
    records: tuple[Record, ...], later: tuple[Record, ...], crash: Record | None
) -> None:
    assert late_crash(Ended(records=records), later) is crash


@pytest.mark.parametrize(
    ("spent_s", "kind", "text"),
    [
        (25.0, OtherStartError, "starts 2 ranks by itself"),
        (
            45.0,
            BudgetSpentError,
            "no room to profile it with them: .* Use --budget 2m.",
        ),
    ],
)
def test_a_profile_run_is_repeated_with_other_ranks_only_if_the_budget_has_room(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spent_s: float,
    kind: type[Exception],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(DECLARES)
    flags = ("--autotuning=tune", "--num_gpus=1", "--budget=60s", "--allow-global-batch-change")
    request = parse_request([*flags, "train.py"])
    job = read_job(request, lambda event: None)
    job.paths.profile.mkdir(parents=True)
    budget = replace(job.budget, began_s=0.0, clock=lambda: spent_s)
    with pytest.raises(kind, match=text):
        require_ranks(
            replace(job, budget=budget),
            reporting(tmp_path, 2),
            ModelProfiled(spec=None, wall_s=20.0),
        )
    started = recall_start(job.request, job.paths).started
    assert started == (2 if kind is BudgetSpentError else job.request.started)
