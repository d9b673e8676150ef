"""The help of each verb: grouped, explained, with examples that are read, and at once."""

import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import AutotuningSettings
from autoconf_launch.launcher import cli
from autoconf_launch.launcher.asked import VerbParser
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.verbs import LAUNCHING, VERBS, question_of_verb

QUESTIONS = ("tune", *VERBS)


def parser_of(verb: str) -> VerbParser:
    return question_of_verb(verb).parser()


def cpu_s(words: list[str]) -> float:
    """CPU seconds of a real process with these words."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "autoconf_launch", *words]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.undisturbed
@pytest.mark.parametrize(
    ("words", "most_s"), [(["--help"], 0.3), (["tune", "--help"], 0.5), (["plan", "--help"], 0.5)]
)
def test_help_takes_little_cpu(words: list[str], most_s: float) -> None:
    """The help of other verbs waits for no numeric library, as the next test shows."""
    assert any(cpu_s(words) < most_s for _ in range(3))


def test_help_waits_for_no_numeric_library() -> None:
    code = (
        "import sys; from autoconf_launch.launcher import cli\n"
        f"for verb in {QUESTIONS!r}:\n"
        "    cli.main([*verb.split(), '--help'])\n"
        "    heavy = {'numpy', 'hydra', 'jinja2', 'plotly', 'rich', 'xgboost'} & {*sys.modules}\n"
        "    if heavy: sys.exit(f'{verb}: {heavy}')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""


@pytest.mark.parametrize("verb", QUESTIONS)
def test_every_flag_is_explained(verb: str) -> None:
    silent = [action.option_strings for action in parser_of(verb)._actions if not action.help]
    assert not silent


@pytest.mark.parametrize("verb", QUESTIONS)
def test_the_long_tail_of_flags_stands_in_named_groups(verb: str) -> None:
    groups = {group.title: group._group_actions for group in parser_of(verb)._action_groups}
    assert len(groups["options"]) <= 5
    assert max(map(len, groups.values())) <= 15


def examples(verb: str) -> list[str]:
    """Command lines of the help, each in one line."""
    text = "\n".join(parser_of(verb).examples).replace("\\\n", " ")
    return [line.partition(" > ")[0] for line in text.splitlines()]


@pytest.mark.parametrize(("verb", "line"), [(v, line) for v in QUESTIONS for line in examples(v)])
def test_the_examples_of_the_help_are_read(verb: str, line: str) -> None:
    command, *words = shlex.split(line)
    assert command == "autoconf-launch"
    if verb == "tune":
        assert words.pop(0) in LAUNCHING
        assert parse_request(words).script
        return
    own = " ".join(words[:2]) if " ".join(words[:2]) in VERBS else words[0]
    assert own in QUESTIONS
    words = words[len(own.split()) :]
    words = words[: words.index("--")] if "--" in words else words
    known = {*parser_of(own)._option_string_actions}
    if own == "show spaces":  # takes those of a launch and a training command, too
        known |= {*parser_of("tune")._option_string_actions, "--batch_size"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


ASKED = [
    next(line for line in examples(verb) if " -- " not in line)
    for verb in ("fit", "plan", "recommend")
]
"""An example of each verb; the test above reads the flags of the others."""


@pytest.mark.parametrize("line", ASKED)
def test_the_examples_of_questions_are_answered(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(line)[1:]) == cli.OK
    assert capsys.readouterr().out


def test_every_setting_of_the_autotuning_section_is_a_flag_in_the_help() -> None:
    text = parser_of("tune").format_help()
    not_flags = {"enabled", "arg_mappings"}
    assert all(f"--{name}" in text for name in AutotuningSettings.model_fields.keys() - not_flags)


@pytest.mark.parametrize("words", [["plan", "--seq", "8", "-h"], ["search", "a=b", "--help"]])
def test_help_is_given_wherever_it_is_asked_for(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == cli.OK
    assert "examples:" in capsys.readouterr().out
