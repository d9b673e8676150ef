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


SLEEP = "while :; do sleep 0.1; done"


@pytest.mark.parametrize(
    ("program", "left"),
    [
        (("trap 'exit 75' USR1", "kill -USR1 $PPID", SLEEP), (75, "requeue 17\n")),
        (("kill -USR1 $PPID", SLEEP), (75, "requeue 17\n")),
        (("trap 'exit 75' TERM", "kill -TERM $PPID", SLEEP), (75, "")),
        *(((f"exit {code}",), (code, "")) for code in (0, 3, 75)),
    ],
    ids=["limit", "limit before it listens", "cancelled", "ends", "fails", "can be resumed"],
)
def test_a_job_ends_as_its_tune_and_is_requeued_only_at_its_limit(
    tmp_path: Path, program: tuple[str, ...], left: tuple[int, str]
) -> None:
    text = resumable_job(("tune", "train.py"), "", tmp_path)
    assert run_job(text, tmp_path, *program) == left


def test_the_users_options_come_last_and_secrets_stand_in_no_script(tmp_path: Path) -> None:
    words = ("train.py", "--hub_token", "hf_abcdefghijklmnopqrs")
    text = resumable_job(words, "-N 2 --comment='a b'", tmp_path)
    assert text.splitlines()[1].startswith("#SBATCH --signal=")
    assert text.splitlines()[2] == "#SBATCH -N 2 '--comment=a b'"
    assert "hf_abc" not in text
    assert "HUB_TOKEN" in text


@pytest.mark.parametrize(
    ("words", "options", "says"),
    [
        (("train.py",), "--comment='open", "--sbatch is"),
        (("train.py",), "wrap", "--sbatch is"),
        ((), "-t 1", "command of a tune after --"),
    ],
)
def test_options_must_be_words_and_a_job_needs_a_command(
    tmp_path: Path, words: tuple[str, ...], options: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        resumable_job(words, options, tmp_path)
    one_line = resumable_job(("train.py",), "-t 1\n#SBATCH --wrap=x", tmp_path)
    assert "\n#SBATCH --wrap" not in one_line
