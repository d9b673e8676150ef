"""Completion in real shells; zsh and fish where they are installed."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.launcher import cli

CASES = (
    ("pl", "plan"),
    ("plan --glob", "--global-batch"),
    ("plan --precision b", "bf16"),
    ("plan --model llama3-70", "llama3-70b"),
    ("tune --max_par", "--max_parallel_trials"),
    ("tune --budget 20m my_tra", "my_train.py"),
    ("show my_res", "my_results"),
    ("export --to torchtitan_", "torchtitan_module"),
    ("compare --js", "--json"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script, results, and what each shell reads."""
    made = tmp_path_factory.mktemp("completed")
    (made / "my_train.py").touch()
    (made / "my_results").mkdir()
    for shell in ("bash", "zsh", "fish"):
        written = io.StringIO()
        with contextlib.redirect_stdout(written):
            assert cli.main(["--completion", shell]) == cli.OK
        (made / f"script.{shell}").write_text(written.getvalue())
    return made


def say(folder: Path, *command: str) -> list[str]:
    environment = {**os.environ, "HOME": str(folder), "TERM": "dumb"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return [line.rstrip("/ ") for line in done.stdout.splitlines()]


BASH = """
source script.bash
for line; do
  words=(autoconf-launch $line)
  COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1)) COMP_LINE="${words[*]}"
  COMP_POINT=${#COMP_LINE}
  $(complete -p autoconf-launch | sed "s/.*-F \\([^ ]*\\).*/\\1/") \
    autoconf-launch "${words[-1]}" "${words[-2]}"
  echo "${COMPREPLY[@]}"
done
"""
FISH = """
source script.fish
for line in $argv; echo (complete -C "autoconf-launch $line" | cut -f 1); end
"""
ZSH = r"""
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1=; autoload -U compinit; compinit -u -D; eval "$(cat script.zsh)"; print ready''.'
until [[ $out == *ready.* ]]; do zpty -r -t z piece && out+=$piece || sleep 0.05; done
zpty -w -n z "autoconf-launch $1"$'\t'
out= ; for i in {1..400}; do
  zpty -r -t z piece && out+=$piece || sleep 0.05
  [[ $out == *" $2"* ]] && break
done
print -r -- $out
"""


def require_whole(answers: list[str]) -> None:
    assert len(answers) == len(CASES)
    for (line, whole), answer in zip(CASES, answers, strict=True):
        assert whole in [word.rstrip("/") for word in answer.split()], line


def test_bash_completes(folder: Path) -> None:
    lines = (line for line, _ in CASES)
    require_whole(say(folder, "bash", "--norc", "-c", BASH, "bash", *lines))


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(folder: Path) -> None:
    require_whole(say(folder, "fish", "-N", "-c", FISH, *(line for line, _ in CASES)))


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes(folder: Path) -> None:
    line, whole = CASES[1]
    assert whole in "\n".join(say(folder, "zsh", "-f", "-c", ZSH, "zsh", line, whole))


@pytest.mark.parametrize("words", [["--completion"], ["--completion", "tcsh"]])
def test_another_shell_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == cli.USAGE
    assert "known: bash, fish, zsh" in capsys.readouterr().err


def test_without_shtab_the_install_line_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["--completion", "bash"]) == cli.USAGE
    assert "pip install 'autoconf-launch[completion]'" in capsys.readouterr().err
