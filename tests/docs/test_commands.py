"""Commands in README and the documents: each is parsed, and each that can be is run."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.launcher.asked import VerbParser
from autoconf_launch.launcher.cli import main
from autoconf_launch.launcher.extension_points import load_reference
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.verbs import LAUNCHING, VERBS

from .commands import DOCUMENTS, FIVE_MINUTES, ROOT, Block, blocks, has_unmarked_commands

ALL = [block for document in DOCUMENTS for block in blocks(document)]
LINES = [(block, line) for block in ALL for line in block.lines]
SCRIPT = ROOT / "examples" / "04_any_script" / "train.py"


class ParsedError(Exception):
    """The parser of a verb has taken the arguments."""


def parse(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give arguments of ``autoconf-launch`` to the parser that they are for, and no further."""
    verb = next((v for n in (2, 1) if (v := " ".join(words[:n])) in VERBS), None)
    if verb is None:
        first = [f"--autotuning={words[0]}"] if words[0] in LAUNCHING else [words[0]]
        parse_request([*first, *words[1:]])
        return

    def parse_args(self: VerbParser, *given: Any) -> None:
        argparse.ArgumentParser.parse_args(self, *given)
        raise ParsedError

    monkeypatch.setattr(VerbParser, "parse_args", parse_args)
    with pytest.raises(ParsedError):
        list(load_reference(VERBS[verb].reference)(words[len(verb.split()) :]))


def name(value: Block | tuple[str, ...]) -> str:
    return value.document.name if isinstance(value, Block) else " ".join(value)


@pytest.mark.parametrize(("block", "line"), LINES, ids=name)
def test_a_command_is_one_that_there_is(
    block: Block, line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *rest = line[line.index("autoconf-launch") :] if "autoconf-launch" in line else line
    if program == "autoconf-launch":
        if rest[0] != "search":  # its keys are read by what runs it
            parse(rest, monkeypatch)
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert set(rest) <= set(targets)
    elif program == "python":
        assert (ROOT / rest[0]).is_file()
    else:
        assert program == "pip", f"{block.document.name} has a command of another program"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_are_in_blocks_that_these_tests_see(document: Path) -> None:
    assert not has_unmarked_commands(document)


def test_what_is_not_run_says_why() -> None:
    marks = {block.mark for block in ALL if not block.is_run} - {FIVE_MINUTES}
    assert all(re.fullmatch(r"not run: \w.*", mark) for mark in marks), marks


def test_the_readme_shows_what_fit_answers(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text()
    (command,) = [
        line for block in blocks(ROOT / "README.md") if block.is_run for line in block.lines
    ]
    assert main(command[1:]) == 0
    assert capsys.readouterr().out.rstrip().splitlines()[-1] in readme


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_commands_of_a_document_run_in_order(document: Path, tmp_path: Path) -> None:
    shutil.copy(SCRIPT, tmp_path)
    programs = {
        "autoconf-launch": (sys.executable, "-m", "autoconf_launch.launcher.cli"),
        "python": (sys.executable,),
    }
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_DATA_HOME": str(tmp_path),
    }
    for block in blocks(document):
        for program, *rest in block.lines if block.is_run else ():
            done = subprocess.run(
                (*programs[program], *rest),
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
                env=environment,
            )
            good = (0, 1) if rest[0] == "fit" else (0,)  # "no" is an answer
            assert done.returncode in good, f"{program} {' '.join(rest)}\n{done.stderr[-3000:]}"
