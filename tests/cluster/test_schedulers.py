"""Launches and a tune with every engine that reaches several hosts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import namespaces
from .clusters import HOSTS, PROGRAMS, SCHEDULERS, Scheduler
from .launching import (
    MEET,
    SAYS_WORDS,
    WORDS,
    await_ranks,
    launch,
    make_script,
    run_line,
    write_example,
)
from .namespaces import Hosts

pytestmark = pytest.mark.cluster
on_all = pytest.mark.parametrize("scheduler", [*SCHEDULERS, *HOSTS], indirect=True, scope="module")
on_schedulers = pytest.mark.parametrize("scheduler", SCHEDULERS, indirect=True, scope="module")


@pytest.fixture
def script(tmp_path: Path, scheduler: Scheduler) -> Iterator[Path]:
    yield make_script(tmp_path, scheduler.host)
    assert scheduler.is_idle_within(30)


@on_all
def test_ranks_of_all_hosts_meet(scheduler: Scheduler, script: Path) -> None:
    with scheduler.launch(script) as process:
        printed, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    placed = dict(sorted((line.split()[1], line.split()[3]) for line in printed.splitlines()))
    hosts = list(placed.values())
    assert list(placed) == ["0", "1", "2", "3"]
    assert (hosts[0], hosts[2]) == (hosts[1], hosts[3])
    assert hosts[0] != hosts[2]
    assert [path.name for path in script.parent.iterdir()] == ["meet.py"]


@on_all
def test_words_of_a_script_pass_whole_and_secrets_stand_in_no_file(
    scheduler: Scheduler, script: Path
) -> None:
    script.write_text(SAYS_WORDS)
    with scheduler.launch(script, *WORDS) as process:
        printed, said = process.communicate(timeout=300)
    lines = [json.loads(line) for line in printed.splitlines()]
    has_files = scheduler.engine != "ssh"  # in the folder, which ranks look through
    token = "" if scheduler.engine == "pdsh" else "hf_ab"  # pdsh can pass no variable
    assert lines == [[has_files, False, token, WORDS]] * 4, said


@on_all
def test_the_code_of_a_rank_that_fails_is_the_launches(scheduler: Scheduler, script: Path) -> None:
    with scheduler.launch(script, "fails") as process:
        process.communicate(timeout=300)
    assert process.returncode == 7


@on_all
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_launcher_that_ends(
    scheduler: Scheduler, script: Path, number: signal.Signals
) -> None:
    with scheduler.launch(script, "forever") as process:
        await_ranks(process, 4)
        process.send_signal(number)
        process.wait(60)
    if number == signal.SIGKILL:
        scheduler.after_kill()


@on_schedulers
def test_a_launch_that_waits_for_busy_nodes_can_be_ended(
    scheduler: Scheduler, script: Path
) -> None:
    if not scheduler.whole:
        pytest.skip("it is said of a job of Slurm below")
    with scheduler.launch(script, "forever", flags=scheduler.whole) as first:
        assert first.stdout
        first.stdout.readline()
        with scheduler.launch(script, flags=scheduler.whole) as second:
            time.sleep(8)
            assert second.poll() is None
            second.send_signal(signal.SIGINT)
            second.communicate(timeout=30)
        assert second.returncode == 130
        assert first.poll() is None
        first.terminate()
        first.communicate(timeout=30)


REFUSED: dict[str, tuple[tuple[tuple[str, ...], dict[str, str], int, str], ...]] = {
    "sbatch": (
        (("--launcher_args=--partition=nowhere",), {}, 2, "Invalid partition name specified"),
        (
            ("--launcher_args=--gres=gpu:99",),
            {},
            2,
            "Requested node configuration is not available",
        ),
    ),
    "ray": (
        (("--num_nodes", "9"), {}, 2, "--num_nodes is 9, but"),
        (("--include", "w7"), {}, 2, "--include names host 'w7'"),
        (("--launcher_args", "--x"), {}, 2, "RAY_ADDRESS says which"),
        ((), {"RAY_ADDRESS": "127.0.0.1:9"}, 4, "No Ray cluster answers at 127.0.0.1:9"),
        ((), {"RAY_ADDRESS": "local"}, 4, "would start a new cluster"),
    ),
    "kubernetes": (
        (("--launcher_args=pod.yaml", "--num_gpus=1"), {}, 4, "does not see"),  # says its log
    ),
}


@on_schedulers
def test_what_cannot_be_launched_is_one_line(scheduler: Scheduler, script: Path) -> None:
    if scheduler.engine == "kubernetes":
        pod = scheduler.running.pod_file().read_text()
        (script.parent / "pod.yaml").write_text(pod.replace("train:1", "elsewhere:1"))
    for flags, variables, code, reason in REFUSED[scheduler.engine]:
        own = scheduler.variables | {"RAY_TMPDIR": str(script.parent)} | variables
        size = ("--num_nodes=2", "--num_gpus=2") if scheduler.engine == "sbatch" else ()
        words = ("--launcher", scheduler.engine, *size, *flags)
        found, line = run_line(words, script, own)
        assert (found, reason in line) == (code, True), line


@on_schedulers
def test_doctor_measures_the_hosts(scheduler: Scheduler, tmp_path: Path) -> None:
    if not scheduler.names_host:
        pytest.skip("each job gets other hosts")
    with scheduler.start(tmp_path, "doctor", *scheduler.size_flags(2, 1), "--json") as process:
        printed, said = process.communicate(timeout=300)
    assert scheduler.names_host in printed, said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheduler", [*SCHEDULERS, HOSTS[0]], indirect=True, scope="module")
def test_a_tune_ends_with_a_winner(scheduler: Scheduler, tmp_path: Path) -> None:
    write_example(tmp_path, zero_optimization={"stage": [0, 1]})
    words = ("--autotuning=tune", "--tuner_num_trials", "2", "--soak-steps", "0")
    quick = ("--effort", "quick", "train.py", "--config", "config.json")
    with scheduler.start(tmp_path, *scheduler.size_flags(2, 1), *words, *quick) as process:
        _, said = process.communicate(timeout=900)
    assert process.returncode == 0, said
    results = tmp_path / "autotuning_results"
    assert json.loads((results / "summary.json").read_text())["winner"] is not None
    assert '"world_size":2' in (results / "journal.jsonl").read_text().replace(" ", "")
    assert list(results.rglob(".agents-*")) == []


@pytest.mark.parametrize("engine", ["pdsh", "openmpi"])
def test_a_folder_that_is_not_shared_is_named(tmp_path: Path, engine: str) -> None:
    if not (namespaces.CAN_RUN and shutil.which(PROGRAMS[engine])):
        pytest.skip(namespaces.REASON)
    (tmp_path / "meet.py").write_text(MEET)
    with namespaces.running(hidden=tmp_path) as hosts:
        flags = hosts.flags_of(engine)
        code, line = run_line(flags, tmp_path / "meet.py", hosts.variables)
        assert code == 4
        assert f"Host {hosts.names[2]} does not see " in line
        assert "all hosts share" in line
        assert hosts.are_idle_within(15)


@pytest.mark.skipif(not namespaces.CAN_RUN, reason=namespaces.REASON)
@pytest.mark.parametrize(
    ("engine", "how"), [*((engine, "kill") for engine in PROGRAMS), ("ssh", "cut")]
)
def test_a_lost_host_is_named_and_nothing_is_left(
    hosts: Hosts, tmp_path: Path, engine: str, how: str
) -> None:
    if not shutil.which(PROGRAMS[engine]):
        pytest.skip(f"{PROGRAMS[engine]} is not installed")
    by_itself = engine == "ssh"  # a program for all hosts may name another one
    script, flags = make_script(tmp_path), hosts.flags_of(engine)
    with launch(flags, script, "forever", variables=hosts.variables) as process:
        await_ranks(process, 6)
        assert process.stderr
        getattr(hosts, how)(hosts.names[1])
        lost_s = time.monotonic()
        assert process.wait(40) == 137
        took_s = time.monotonic() - lost_s
        assert f"warning: Host {hosts.names[1] if by_itself else ''}" in process.stderr.read()
    assert took_s < (15 if by_itself else 40)
    assert hosts.are_idle_within(max(1, 15 - took_s))


@pytest.mark.skipif(not namespaces.CAN_RUN, reason=namespaces.REASON)
@pytest.mark.parametrize("how", ["kill", "cut"])
def test_a_tune_that_needs_a_host_which_is_lost_ends_and_names_it(
    hosts: Hosts, tmp_path: Path, how: str
) -> None:
    write_example(tmp_path, zero_optimization={"stage": [0, 1]})
    journal = tmp_path / "autotuning_results" / "journal.jsonl"
    words = (*hosts.flags, "--num_nodes", "3", "--num_gpus", "1", "--autotuning=tune")
    script = tmp_path / "train.py"
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}  # the hosts have the same cores
    with launch(words, script, "--config", "config.json", variables=variables) as process:
        while not (
            journal.exists()
            and '"started"' in journal.read_text()
            and hosts.run_script(str(script))
        ):
            assert process.poll() is None
            time.sleep(0.1)
        getattr(hosts, how)(hosts.names[1])
        lost_s = time.monotonic()
        _, error = process.communicate(timeout=60)
    assert time.monotonic() < lost_s + 15
    assert process.returncode == 4
    assert f"needs 3 hosts, but too few are left: {hosts.names[1]} failed twice." in error
    assert hosts.are_idle_within(lost_s + 15 - time.monotonic())


def tune(hosts: Hosts, engine: str, folder: Path) -> set[str]:
    """The winner, and the configurations that are as fast within noise."""
    folder.mkdir()
    sizes = {"train_micro_batch_size_per_gpu": [1, 8], "gradient_accumulation_steps": 2}
    write_example(folder, zero_optimization={"stage": 0}, **sizes)  # a launch takes 15 s
    words = ("--autotuning=tune", "--tuner_num_trials", "3", "--effort", "quick")
    own = (*hosts.flags_of(engine), *words, "--soak-steps", "0")
    with launch(
        own, folder / "train.py", "--config", "config.json", variables=hosts.variables
    ) as process:
        _, said = process.communicate(timeout=500)
    assert process.returncode == 0, (engine, said)
    summary = json.loads((folder / "autotuning_results" / "summary.json").read_text())
    return {summary["winner"], *summary["ties"], *summary["undecided"]}


@pytest.mark.skipif(
    not namespaces.CAN_RUN or not all(map(shutil.which, PROGRAMS.values())),
    reason="needs pdsh and openmpi-bin",
)
def test_every_engine_finds_the_same_winner_or_names_a_tie(hosts: Hosts, tmp_path: Path) -> None:
    found = {engine: tune(hosts, engine, tmp_path / engine) for engine in PROGRAMS}
    assert set.intersection(*found.values()), found
