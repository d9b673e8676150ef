"""The local backend and its agent against the real process tree."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Measurement
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.commands.launch import run_to_end
from autoconf_launch.launcher.engines import JobEnd, LocalEngine, LocalJob, agents
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan

from .conftest import DEAF, LEAVE_BEHIND, Lab, eventually, in_child

TIMED_OUT = Failure(kind=FailureKind.TIMED_OUT, detail="took too long")
PTRACE_ATTACH = 16
HANG = "ready(); time.sleep(100)"


def failure_of(end: JobEnd) -> Failure:
    assert isinstance(end.outcome, FailedTrial), end
    return end.outcome.failure


@pytest.mark.undisturbed
def test_the_time_of_a_job_ends_with_its_last_process(lab: Lab) -> None:
    job = lab.backend.submit(lab.plan("time.sleep(0.2); report()"))
    time.sleep(0.6)
    assert 0.2 <= lab.end_of(job).wall_s < 0.6


def test_output_goes_to_the_logs_behind_what_is_there(lab: Lab) -> None:
    (lab.folder / "stdout.log").write_text("before\n")
    lab.run("print('out'); print('err', file=sys.stderr)")
    logs = [(lab.folder / name).read_text() for name in ("stdout.log", "stderr.log")]
    assert logs == ["before\nout\n", "err\n"]


def test_a_crash_ends_the_other_rank(lab: Lab) -> None:
    end = lab.run("if rank == 1: sys.exit(3)\ntime.sleep(100)", ranks=2)
    assert (end.exit_code, failure_of(end).detail) == (
        3,
        "rank 1 ended with exit code 3 and did not report why",
    )


def test_the_last_lines_of_a_crash_are_shown_without_those_of_an_earlier_launch(lab: Lab) -> None:
    lab.run("raise KeyError('first')")
    tail = failure_of(lab.run("raise KeyError('second')")).log_tail
    assert (tail[-1], "first" in str(tail)) == ("KeyError: 'second'", False)


def test_out_of_memory_of_one_rank_wins_over_the_crash_that_it_causes(lab: Lab) -> None:
    script = """
if rank == 0:
    report("crashed"); sys.exit(1)
time.sleep(0.2); report("out_of_memory"); sys.exit(1)
"""
    assert failure_of(lab.run(script, ranks=2)).kind is FailureKind.OUT_OF_MEMORY


def test_nobody_waits_for_the_peers_of_a_rank_that_is_out_of_memory(lab: Lab) -> None:
    script = "if rank: time.sleep(100)\nreport('out_of_memory'); sys.exit(1)"
    patient = LocalEngine(linger_s=60)
    end = replace(lab, backend=patient).run(script, ranks=2)
    assert failure_of(end).kind is FailureKind.OUT_OF_MEMORY


def test_a_program_that_does_not_exist_is_named(lab: Lab) -> None:
    plan = lab.plan("")
    ranks = tuple(replace(rank, argv=("no-such-program",)) for rank in plan.ranks)
    end = lab.end_of(lab.backend.submit(replace(plan, ranks=ranks)))
    assert (end.exit_code, failure_of(end).log_tail) == (
        127,
        (
            f"autoconf-launch: cannot start no-such-program in {lab.folder}: "
            "No such file or directory",
        ),
    )


def test_a_hung_rank_is_cancelled_with_the_reason_given(lab: Lab) -> None:
    job = lab.start_and_await(HANG, ranks=2)
    lab.backend.cancel(job, TIMED_OUT)
    end = lab.end_of(job)
    assert (end.exit_code, failure_of(end)) == (143, TIMED_OUT)


def test_a_cancel_at_once_reaches_ranks_that_are_still_starting(lab: Lab) -> None:
    patient = replace(lab, backend=LocalEngine(grace_s=60))
    for _ in range(10):
        job = patient.backend.submit(lab.plan(HANG, ranks=2))
        patient.backend.cancel(job, TIMED_OUT)
        assert patient.end_of(job).exit_code == 143


@pytest.mark.parametrize("script", [DEAF, "ready(); os.kill(os.getpid(), signal.SIGSTOP)"])
def test_a_rank_that_ignores_sigterm_or_is_stopped_is_killed(lab: Lab, script: str) -> None:
    job = lab.start_and_await(script)
    lab.backend.cancel(job, TIMED_OUT)
    assert lab.end_of(job, timeout_s=2).exit_code == 137


def test_a_stopped_agent_obeys_a_cancel(lab: Lab) -> None:
    job = lab.start_and_await(HANG, ranks=2)
    assert isinstance(job, LocalJob)
    os.kill(job.pid, signal.SIGSTOP)
    lab.backend.cancel(job, TIMED_OUT)
    end = lab.end_of(job, timeout_s=2)
    assert (end.exit_code, failure_of(end)) == (143, TIMED_OUT)


def test_an_agent_that_obeys_nobody_is_killed_with_its_ranks(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "OBEYS_WITHIN_S", 0.3)
    job = lab.start_and_await(HANG, ranks=2)
    assert isinstance(job, LocalJob)
    assert ctypes.CDLL(None).ptrace(PTRACE_ATTACH, job.pid, 0, 0) == 0  # as a debugger does
    lab.backend.cancel(job, TIMED_OUT)
    end = lab.end_of(job, timeout_s=3)
    assert (end.exit_code, failure_of(end)) == (137, TIMED_OUT)


def test_a_peer_that_ignores_sigterm_is_killed(lab: Lab) -> None:
    script = f"""
if rank: {DEAF}
while not os.path.exists("ready1"): time.sleep(0.01)
sys.exit(5)
"""
    assert lab.run(script, ranks=2).exit_code == 5


def test_nothing_that_a_rank_started_outlives_its_success(lab: Lab) -> None:
    assert lab.run(LEAVE_BEHIND + "report()").exit_code == 0
    assert lab.living() == []


UPLOAD = """
import subprocess
upload = "import time; open('begun', 'w').close(); time.sleep(0.5); open('done', 'w').close()"
if rank == 0:
    subprocess.Popen((sys.executable, "-I", "-S", "-c", upload))
while not os.path.exists("begun"): time.sleep(0.01)
"""


def train(lab: Lab, script: str, *codes: str) -> int:
    """A plain launch of ranks, each with its word, by a child of ours; its number."""
    argv = lab.plan(script).ranks[0].argv
    ranks = tuple(
        RankPlan(
            rank=rank,
            local_rank=rank,
            argv=(*argv, code),
            environment=(("RANK", str(rank)), ("WORLD_SIZE", str(len(codes)))),
        )
        for rank, code in enumerate(codes)
    )
    plan = LaunchPlan(name="x", ranks=ranks, working_directory=str(lab.folder))
    return in_child(lambda: run_to_end(plan, lab.backend))


def code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(("second", "goes_on"), [("0", True), ("3", False)])
def test_what_a_training_leaves_behind_goes_on_as_with_python_unless_a_rank_fails(
    lab: Lab, second: str, goes_on: bool
) -> None:
    assert code_of(train(lab, f"{UPLOAD}sys.exit(int(sys.argv[1]))", "0", second)) == int(second)
    if goes_on:
        eventually((lab.folder / "done").exists)
    else:
        assert lab.living() == []


def test_what_a_training_leaves_behind_ends_where_it_was_told_to_stop(lab: Lab) -> None:
    script = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nready(); time.sleep(100)"
    child = train(lab, UPLOAD.replace("0.5", "100") + script, "0")
    eventually((lab.folder / "ready0").exists)
    os.kill(child, signal.SIGTERM)
    assert code_of(child) == 0
    assert lab.living() == []


def test_a_plain_launch_has_our_own_input_and_output(lab: Lab) -> None:
    (lab.folder / "in").write_text("hi")
    script = "print(sys.stdin.read().upper()); print('err', file=sys.stderr)"
    plan = replace(lab.plan(script, task=False), folder=None)

    def run() -> int:
        for descriptor, name in enumerate(("in", "out", "err")):
            flags = os.O_RDONLY if descriptor == 0 else os.O_CREAT | os.O_WRONLY
            os.dup2(os.open(lab.folder / name, flags), descriptor)
        return run_to_end(plan, lab.backend)

    assert code_of(in_child(run)) == 0
    assert [(lab.folder / name).read_text() for name in ("out", "err")] == ["HI\n", "err\n"]


def test_nothing_that_a_rank_started_outlives_a_cancel(lab: Lab) -> None:
    job = lab.start_and_await(LEAVE_BEHIND + DEAF)
    lab.backend.cancel(job, TIMED_OUT)
    lab.end_of(job)
    assert lab.living() == []


def test_a_killed_controller_leaves_nothing_behind_after_2_seconds(lab: Lab) -> None:
    jobs: list[object] = []
    plan = lab.plan(LEAVE_BEHIND + DEAF)

    def run() -> int:
        jobs.append(lab.backend.submit(plan))
        time.sleep(100)
        return 0

    controller = in_child(run)
    eventually((lab.folder / "ready0").exists)
    os.kill(controller, signal.SIGKILL)
    os.waitpid(controller, 0)
    eventually(lambda: lab.living() == [], timeout_s=2)


def test_a_killed_agent_leaves_nothing_behind(lab: Lab) -> None:
    job = lab.start_and_await(LEAVE_BEHIND + DEAF, ranks=2)
    assert isinstance(job, LocalJob)
    os.kill(job.pid, signal.SIGKILL)
    end = lab.end_of(job, timeout_s=2)
    assert lab.living() == []
    assert (end.exit_code, failure_of(end).detail) == (
        137,
        "the process that watched the ranks was killed by SIGKILL",
    )


def test_a_full_report_outlives_its_agent(lab: Lab) -> None:
    job = lab.start_and_await("report();" + HANG)
    assert isinstance(job, LocalJob)
    os.kill(job.pid, signal.SIGKILL)
    assert isinstance(lab.end_of(job).outcome, Measurement)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_pass_through_to_the_ranks(lab: Lab, number: signal.Signals) -> None:
    script = f"""
signal.signal({number:d}, lambda *_: os._exit(42))
ready(); time.sleep(100)
"""
    job = lab.start_and_await(script, ranks=2, task=False)
    lab.backend.send_signal(job, number)
    assert lab.end_of(job).exit_code == 42


def test_a_rank_may_live_on_after_a_signal(lab: Lab) -> None:
    script = """
signal.signal(signal.SIGUSR1, lambda *_: None)
ready(); signal.pause(); report()
"""
    job = lab.start_and_await(script)
    lab.backend.send_signal(job, signal.SIGUSR1)
    assert isinstance(lab.end_of(job).outcome, Measurement)


def test_ctrl_c_of_a_plain_launch_is_130(lab: Lab) -> None:
    job = lab.start_and_await(HANG, task=False)
    lab.backend.send_signal(job, signal.SIGINT)
    end = lab.end_of(job)
    assert (end.exit_code, end.outcome) == (130, None)


def test_the_agent_itself_is_deaf_to_ctrl_c(lab: Lab) -> None:
    job = lab.start_and_await("ready(); time.sleep(0.3); report()")
    assert isinstance(job, LocalJob)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(job.pid, number)
    assert isinstance(lab.end_of(job).outcome, Measurement)


def test_ranks_share_a_process_group_and_a_session_apart_from_ours(lab: Lab) -> None:
    lab.run("print(os.getpgid(0), os.getsid(0), os.environ['AUTOCONF_LAUNCH_JOB'])", ranks=2)
    lines = (lab.folder / "stdout.log").read_text().splitlines()
    assert len(set(lines)) == 1
    assert str(os.getsid(0)) not in lines[0].split()[:2]


def test_a_rank_finds_its_signals_as_python_leaves_them(lab: Lab) -> None:
    script = """
with open("/proc/self/status") as status:
    print(*[line.split()[1] for line in status if line.startswith(("SigBlk", "SigIgn"))])
"""
    lab.run(script)
    # What it inherits besides depends on the caller, but a rank can always be interrupted.
    command = (sys.executable, "-c", script)
    plain = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ).stdout
    assert (lab.folder / "stdout.log").read_text() == plain


def test_a_rank_inherits_no_descriptor_but_the_three(lab: Lab) -> None:
    lab.run("print(sorted(os.listdir('/proc/self/fd')))")
    # the fourth lists them
    assert (lab.folder / "stdout.log").read_text() == "['0', '1', '2', '3']\n"


def test_arguments_and_variables_arrive_as_they_are(lab: Lab) -> None:
    odd = "a b$HOME'\"\n*é\udcff"
    rank = RankPlan(
        rank=0,
        local_rank=0,
        argv=(
            sys.executable,
            "-c",
            "import os, sys; print(ascii(sys.argv[1:]), ascii(os.environ['ODD']))",
            odd,
            "",
        ),
        environment=(("ODD", odd),),
    )
    plan = replace(lab.plan("", task=False), ranks=(rank,))
    lab.end_of(lab.backend.submit(plan))
    assert (lab.folder / "stdout.log").read_text() == f"{[odd, '']!a} {odd!a}\n"


def test_a_folder_that_cannot_be_written_is_an_error_and_starts_nothing(lab: Lab) -> None:
    (lab.folder / "file").write_text("")
    plan = replace(lab.plan(HANG), folder=str(lab.folder / "file" / "x"))
    with pytest.raises(NotADirectoryError):
        lab.backend.submit(plan)


@pytest.mark.parametrize("came_before", [False, True])
def test_waiting_ends_with_a_signal(lab: Lab, came_before: bool) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        if came_before:
            signal.raise_signal(signal.SIGALRM)
        else:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        start_s = time.monotonic()
        lab.backend.wait([], 10)
        assert time.monotonic() - start_s < 5
    finally:
        signal.signal(signal.SIGALRM, before)


def test_waiting_ends_with_its_time(lab: Lab) -> None:
    job = lab.start_and_await(HANG)
    lab.backend.wait([job], 0.05)
    assert lab.backend.poll([job]) == (None,)
    lab.backend.cancel(job, TIMED_OUT)
    lab.end_of(job)


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_many_jobs_leak_no_descriptor(lab: Lab) -> None:
    plan = replace(lab.plan(""), task=None)
    true = replace(plan, ranks=(replace(plan.ranks[0], argv=("true",)),))
    lab.end_of(lab.backend.submit(true))
    before = open_descriptors()
    for _ in range(3):
        for job in [lab.backend.submit(true) for _ in range(10)]:
            assert lab.end_of(job).exit_code == 0
    assert open_descriptors() == before


def test_a_job_that_is_dropped_ends(lab: Lab) -> None:
    job = lab.start_and_await(HANG)
    assert isinstance(job, LocalJob)
    with pytest.warns(ResourceWarning):
        del job
    eventually(lambda: lab.living() == [], timeout_s=2)
