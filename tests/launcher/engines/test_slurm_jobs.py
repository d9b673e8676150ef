import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError, FailureKind
from autoconf_launch.launcher.engines import (
    SlurmQueue,
    cancel_jobs,
    pending_text,
    slurm,
    submit_job,
)
from autoconf_launch.launcher.engines.slurm import SlurmStarter, find_job_states
from autoconf_launch.launcher.request import RemoteAccess


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Stand-ins for Slurm's commands, each a line of shell; their words stand in a file."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")

    def make(**lines: str) -> Path:
        for name in ("sbatch", "squeue", "scontrol", "scancel"):
            line = lines.get(name, "exit 1")
            (tools / name).write_text(
                f'#!/bin/sh\nprintf "%s\\n" {name} "$@" >>{tools}/said\n{line}'
            )
            (tools / name).chmod(0o755)
        for name in set(lines) - {"sbatch", "squeue", "scontrol", "scancel"}:
            (tools / name).write_text(f"#!/bin/sh\n{lines[name]}")
            (tools / name).chmod(0o755)
        return tools / "said"

    return make


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("echo '17;cluster'", None),
        ("echo sbatch: error: no such partition >&2; exit 1", "no such partition"),
        ("echo 'rm -rf'", "Slurm refuses the job"),
    ],
)
def test_a_jobs_number_is_what_sbatch_prints_unless_it_refuses_the_job(
    answers: Callable[..., Path], line: str, reason: str | None
) -> None:
    said = answers(sbatch=line, scancel="exit 0")
    if reason is None:
        cancel_jobs(submit_job(("job.sh",), {}), 2)
        assert said.read_text().split()[-4:] == ["scancel", "--quiet", "17", "2"]
    else:
        with pytest.raises(ConfigError, match=reason):
            submit_job(("job.sh",), {})


def test_a_missing_sbatch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="sbatch, which is not installed"):
        submit_job((), {})


def test_states_come_from_squeue_then_scontrol_then_sacct(answers: Callable[..., Path]) -> None:
    answers(
        squeue="echo '1|RUNNING'; echo 'odd line'",
        scontrol='[ "$3" = 2 ] && echo "JobId=2 JobState=NODE_FAIL Reason=x"',
        sacct='[ "$1" = --jobs=3 ] && echo "CANCELLED by 0"',
    )
    assert find_job_states([1, 2, 3, 4]) == {1: "RUNNING", 2: "NODE_FAIL", 3: "CANCELLED"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("echo Resources", " (Resources)"),
        ("echo None", ""),
        ("exit 1", ""),
        (
            "echo PartitionTimeLimit",
            " (PartitionTimeLimit) and will not start; scancel 1, and ask for what Slurm allows",
        ),
    ],
)
def test_why_a_job_waits_is_slurms_word(
    answers: Callable[..., Path], line: str, said: str
) -> None:
    answers(squeue=line)
    assert pending_text(1) == f"job 1 of Slurm is pending{said}"


def test_a_slurm_that_does_not_answer_leaves_states_as_they_were(
    answers: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers()
    monkeypatch.setattr(slurm, "_FIRST_LOOK_S", -1.0)
    queue = SlurmQueue()
    queue.add(5)
    assert queue.state(5) == "PENDING"


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("NODE_FAIL", FailureKind.NODE_LOST),
        ("PREEMPTED", FailureKind.PREEMPTED),
        ("CANCELLED", FailureKind.PREEMPTED),
        ("TIMEOUT", FailureKind.TIMED_OUT),
        ("OUT_OF_MEMORY", FailureKind.OUT_OF_MEMORY),
        ("COMPLETED", FailureKind.CRASHED),
    ],
)
def test_how_a_job_ended_is_a_kind_of_failure(
    answers: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    state: str,
    kind: FailureKind,
) -> None:
    answers(sbatch="echo 7", squeue=f"echo '7|{state}'")
    monkeypatch.setattr(slurm, "_FIRST_LOOK_S", -1.0)
    starter = SlurmStarter(tmp_path, 1, SlurmQueue())
    starter.submit(RemoteAccess(), secrets={})
    over = starter.why_over(0)
    assert over is not None
    assert (over.kind, state in over.detail) == (kind, True)


def test_jobs_are_asked_for_all_at_once(
    answers: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = answers(squeue="echo '1|RUNNING'; echo '2|PENDING'")
    monkeypatch.setattr(slurm, "_FIRST_LOOK_S", -1.0)
    queue = SlurmQueue()
    queue.add(1)
    queue.add(2)
    monkeypatch.setattr(slurm, "_FIRST_LOOK_S", 100.0)
    assert (queue.state(1), queue.state(2)) == ("RUNNING", "PENDING")
    assert said.read_text().count("--jobs=1,2") == 1


def test_a_job_script_quotes_its_folder_and_the_users_words_come_last(
    answers: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "it's $HOME %j\n`x`"
    folder.mkdir()
    said = answers(sbatch="echo 1")
    access = RemoteAccess(arguments=("--qos=x y", "--comment=$(id)"))
    SlurmStarter(folder, 3, SlurmQueue()).submit(access, "--job-name=j", secrets={"KEY": "s3cret"})
    words = said.read_text().split("\n")
    script = str(folder / "job.sh").split("\n")
    assert words[-5:] == ["--qos=x y", "--comment=$(id)", *script, ""]
    assert "--nodes=3" in words
    assert "s3cret" not in said.read_text() + (folder / "job.sh").read_text()
    assert subprocess.run(("sh", "-n", folder / "job.sh"), check=False).returncode == 0
