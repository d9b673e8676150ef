import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.export import resumable_job
from autoconf_launch.launcher.machine import OUR_COMMAND

WORDS = ("--autotuning=tune", "train.py", "a b", "$(id)", "it's", "-x", "line\nline")


def run_job(text: str, folder: Path, *program: str) -> tuple[int, str]:
    """The exit code of a job's script, and what its stand-ins for programs wrote down."""
    said = folder / "said"
    (folder / "scontrol").write_text(f'#!/bin/sh\necho "$@" >>{said}\n')
    (folder / "python").write_text("#!/bin/sh\n" + "\n".join(program) + "\n")
    for name in ("scontrol", "python"):
        (folder / name).chmod(0o755)
    script = folder / "job.sh"
    script.write_text(text.replace(sys.executable, str(folder / "python")))
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": path, "SLURM_JOB_ID": "17", "SAID": str(said)}
    done = subprocess.run(("bash", script), env=variables, check=False, timeout=30)
    return done.returncode, said.read_text() if said.exists() else ""


def test_words_reach_the_tune_whole(tmp_path: Path) -> None:
    text = resumable_job(WORDS, "-t 10", tmp_path)
    code, said = run_job(
        text, tmp_path, f"shift {len(OUR_COMMAND) - 1}", 'printf "%s\\0" "$@" >"$SAID"'
    )
    assert (code, tuple(said.split("\0")[:-1])) == (0, WORDS)


def test_a_job_is_requeued_where_its_limit_stopped_the_tune(tmp_path: Path) -> None:
    text = resumable_job(("tune", "train.py"), "", tmp_path)
    stop = ("trap 'exit 75' USR1", "kill -USR1 $PPID", "while :; do sleep 0.1; done")
    assert run_job(text, tmp_path, *stop) == (75, "requeue 17\n")


def test_a_tune_that_does_not_listen_yet_is_requeued_too(tmp_path: Path) -> None:
    text = resumable_job(("tune", "train.py"), "", tmp_path)
    stop = ("kill -USR1 $PPID", "while :; do sleep 0.1; done")
    assert run_job(text, tmp_path, *stop) == (75, "requeue 17\n")


@pytest.mark.parametrize("code", [0, 3, 75])
def test_a_tune_that_ends_by_itself_ends_the_job(tmp_path: Path, code: int) -> None:
    text = resumable_job(("tune", "train.py"), "", tmp_path)
    assert run_job(text, tmp_path, f"exit {code}") == (code, "")


def test_a_cancelled_job_passes_its_signal_on(tmp_path: Path) -> None:
    text = resumable_job(("tune", "train.py"), "", tmp_path)
    stop = ("trap 'exit 75' TERM", "kill -TERM $PPID", "while :; do sleep 0.1; done")
    assert run_job(text, tmp_path, *stop) == (75, "")


def test_the_users_options_come_last_and_on_one_line(tmp_path: Path) -> None:
    lines = resumable_job(("train.py",), "-N 2 --comment='a b'", tmp_path).splitlines()
    assert lines[1].startswith("#SBATCH --signal=")
    assert lines[2] == "#SBATCH -N 2 '--comment=a b'"


def test_secrets_stand_in_no_script(tmp_path: Path) -> None:
    text = resumable_job(("train.py", "--hub_token", "hf_abcdefghijklmnopqrs"), "", tmp_path)
    assert "hf_abc" not in text
    assert "HUB_TOKEN" in text


@pytest.mark.parametrize("options", ["--comment='open", "-t 1\n#SBATCH --wrap=x", "wrap"])
def test_options_must_be_words_of_one_line(tmp_path: Path, options: str) -> None:
    if "\n" in options:
        assert "\n#SBATCH --wrap" not in resumable_job(("train.py",), options, tmp_path)
        return
    with pytest.raises(ConfigError, match="--sbatch is"):
        resumable_job(("train.py",), options, tmp_path)


def test_a_job_needs_a_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="command of a tune after --"):
        resumable_job((), "-t 1", tmp_path)
