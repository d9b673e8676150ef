import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn, TypeAlias

import pytest

from autoconf_launch.core import NothingFeasibleError
from autoconf_launch.launcher import cli, launching
from autoconf_launch.launcher.extension_points import load_reference
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.verbs import LAUNCHING, VERBS

Captured: TypeAlias = pytest.CaptureFixture[bytes]
HEAVY = ("numpy", "psutil", "tabulate", "hjson", "rich", "hydra")
"""Packages that only some commands need."""


def test_the_command_itself_waits_for_no_import_of_a_verb() -> None:
    code = f"import sys, autoconf_launch.launcher.cli; print({{*{HEAVY}}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


_INTERRUPTED = """
import os, runpy, signal, sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "autoconf_launch.launcher.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
runpy.run_module("autoconf_launch", run_name="__main__")
"""


def test_ctrl_c_before_the_command_is_imported_shows_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_verb_has_a_command(name: str) -> None:
    assert callable(load_reference(VERBS[name].reference))


@pytest.mark.parametrize("words", [["plan", "--help"], []])
def test_a_reader_that_has_seen_enough_is_no_error(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "autoconf_launch.launcher.cli", *words]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (cli.OK if words else cli.USAGE, "")


def test_what_a_terminal_cannot_encode_is_escaped(capfdbinary: Captured) -> None:
    code = "from autoconf_launch.launcher import cli\nwith cli._lasting_output(): print('\\udc80')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert capfdbinary.readouterr().out == b"\\udc80\n"


CONTROLS = ("\x1b[2J", "\x9b2J", "\r", "\b", "\u202e", "\u2028", "\x00", "\udc80")


@pytest.mark.parametrize("text", CONTROLS)
def test_no_control_character_reaches_a_terminal(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(arguments: Sequence[str]) -> NoReturn:
        raise NothingFeasibleError(text, (text,))

    cli._print(lambda: (f"kept\t{text}\nkept",))
    monkeypatch.setattr(cli, "load_reference", lambda where: failing)
    cli.main(["show"])
    written = capsys.readouterr()
    escaped = text.encode("unicode_escape").decode()
    assert written.out == f"kept\t{escaped}\nkept\n"
    assert written.err == f"autoconf-launch: {escaped}\n  | {escaped}\n"


def ending(number: int, name: str | None, monkeypatch: pytest.MonkeyPatch) -> int:
    """Exit code of a verb that this error ends."""

    def failing(arguments: Sequence[str]) -> NoReturn:
        raise OSError(number, os.strerror(number), name)

    monkeypatch.setattr(cli, "load_reference", lambda where: failing)
    return cli.main(["show"])


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, cli.USAGE),
        (errno.EROFS, cli.USAGE),
        (errno.ENOSPC, cli.HARDWARE),
        (errno.ESTALE, cli.HARDWARE),
    ],
)
def test_a_file_system_that_fails_ends_in_one_sentence_with_the_path(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(number, "/results/lease", monkeypatch) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert "/results/lease" in line


def test_an_error_that_is_a_mistake_of_ours_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(FileNotFoundError):
        ending(errno.ENOENT, "/results/lease", monkeypatch)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Exit code and all output of a command."""

    def run(*words: str) -> tuple[int, str]:
        code = cli.main(words)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def test_the_help_has_every_verb_and_no_flag_of_a_launch(
    say: Callable[..., tuple[int, str]],
) -> None:
    code, text = say("--help")
    assert code == cli.OK
    assert all(f"\n  {verb} " in text for verb in (*LAUNCHING, *VERBS))
    assert "--num_nodes" not in text
    assert len(text.splitlines()) <= 32
    assert "--num_nodes" in say("tune", "--help")[1]


def test_the_version_is_that_of_the_package(say: Callable[..., tuple[int, str]]) -> None:
    assert say("--version") == (cli.OK, f"autoconf-launch {version('autoconf-launch')}\n")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("plam", "did you mean 'plan'?"),
        ("Tune", "did you mean 'tune'?"),
        ("plam.py", "give its path after the launcher's flags."),
        ("whatever", "give its path after the launcher's flags."),
    ],
)
def test_a_mistyped_verb_gets_the_nearest(
    word: str, hint: str, say: Callable[..., tuple[int, str]]
) -> None:
    code, text = say(word, "--model", "x")
    assert (code, len(text.splitlines())) == (cli.USAGE, 1)
    assert text.endswith(f"; {hint}\n")


def test_tune_and_run_say_what_the_flag_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LaunchRequest] = []

    def hear(request: LaunchRequest, write_line: object, began_s: float) -> int:
        asked.append(request)
        return cli.OK

    monkeypatch.setattr(launching, "_run", hear)
    for mode in ("tune", "run"):
        cli.main([mode, "--num_gpus", "2", "train.py", "--help"])
        cli.main([f"--autotuning={mode}", "--num_gpus", "2", "train.py", "--help"])
    assert [request.autotuning for request in asked] == ["tune", "tune", "run", "run"]
    assert asked[::2] == asked[1::2]


def test_a_deleted_working_directory_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert cli.main(["tune", "../t.py"]) == 2
    expected = "autoconf-launch: The working directory was deleted; change to another one.\n"
    assert capsys.readouterr().err == expected
