from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.measurement import AGAIN_SUFFIX, FINAL_SUFFIX
from autoconf_launch.launcher.cli import main
from autoconf_launch.launcher.commands.show import show
from autoconf_launch.launcher.results.lease import Lease

from ..report.fixed import (
    RECORDS,
    RUNNING,
    finish,
    golden,
    record,
    start,
    steps_of,
    write_folder,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder that is named as users name theirs."""
    monkeypatch.chdir(tmp_path)
    return write_folder(Path("results"))


def text_of(*arguments: str) -> str:
    return "".join(f"{piece}\n" for piece in show(arguments))


@pytest.mark.parametrize(
    ("words", "name"),
    [((), "show.txt"), (("--format", "md"), "show.md"), (("--follow",), "follow.txt")],
)
def test_a_finished_tune_is_as_it_was_looked_at(
    folder: Path, words: tuple[str, ...], name: str
) -> None:
    finish(folder)
    assert text_of("results", *words) == golden(name)


def test_a_machine_that_was_slower_for_a_while_is_said_once(tmp_path: Path) -> None:
    (first, *others) = RECORDS
    name = f"{first.trial.name}{AGAIN_SUFFIX}"
    again = record(replace(first.trial, name=name, again=len(RECORDS)), steps_of(3.2))
    folder = write_folder(tmp_path / "results", (first, *others, again))
    (said,) = json.loads(text_of(str(folder), "--json"))["findings"]
    assert said.startswith("The machine was about ")
    assert said in text_of(str(folder))
    finish(folder)
    (folder / "summary.txt").write_text(f"| the summary |\n\n{said}\n")
    assert text_of(str(folder)).count(said) == 1


def test_details_are_shown_where_they_are_asked_for(folder: Path) -> None:
    finish(folder)
    (folder / "summary.txt").write_text("Best: x\n\nDetails\n12 skipped.\n")
    assert "12 skipped." not in text_of("results")
    assert "12 skipped." not in text_of("results", "--follow")
    assert text_of("results", "--details").endswith("Details\n12 skipped.\n")


def test_a_running_tune_shows_the_step_of_what_runs(folder: Path) -> None:
    start(folder)
    with Lease(folder / "controller.lease"):
        text = text_of("results")
    assert text.startswith("results: running, 5 trials.\n")
    assert text.splitlines()[-4].split() == ["5", RUNNING.name, *"----", "step", "3"]


def test_a_tune_that_was_killed_shows_what_was_interrupted(folder: Path) -> None:
    start(folder)
    text = text_of("results")
    assert "stopped before its end; the same command continues from here" in text
    assert f"{RUNNING.name} " in text
    assert "interrupted" in text


def test_a_tune_without_a_trial_says_why(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "results", ())
    with Lease(folder / "controller.lease"):
        assert text_of(str(folder)).endswith("running, 0 trials.\n\nNo trial has come back yet.\n")
    why = "The budget of 40 s has no room for a trial. Use --budget 3m for two trials."
    (folder / "env.json").write_text(json.dumps({"refused": why}))
    text = text_of(str(folder))
    assert f"stopped by its budget, 0 trials. {why}\n" in text
    assert "the same command" not in text


def test_csv_and_followed_json_have_each_trial(folder: Path) -> None:
    names = [done.trial.name for done in RECORDS]
    text = text_of("results", "--format=csv")
    assert [row["name"] for row in csv.DictReader(io.StringIO(text))] == names
    assert text_of("results", "--follow", "--format=csv") == text
    pieces = show(("results", "--follow", "--json"))
    assert [json.loads(piece)["trial"]["name"] for piece in pieces] == names


@pytest.mark.parametrize("flags", [("--json",), ("--format", "json")])
def test_json_is_one_document_with_a_version(folder: Path, flags: Sequence[str]) -> None:
    start(folder)
    document = json.loads(text_of("results", *flags))
    assert (document["schema_version"], document["state"]) == (1, "stopped")
    assert (document["best"], document["baseline"]) == ("z1_gas2_tmbspg8", "z0_gas16_tmbspg1")
    assert document["open"] == [{"number": 5, "name": RUNNING.name, "step": 3}]
    assert [trial["outcome"] for trial in document["trials"]][2:] == [
        "out_of_memory",
        "measured",
        "crashed",
    ]


def test_the_word_spaces_is_left_to_another_verb(folder: Path) -> None:
    assert text_of("spaces", "train.py") == ""


def test_runs_of_different_scripts_are_not_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_folder(Path("other"))
    for path, script in ((folder, "train.py"), (other, "finetune.py")):
        (path / "env.json").write_text(json.dumps({"script": script}))
    assert main(["compare", str(folder), str(other)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("the script is train.py in A, finetune.py in B.")


def test_a_configuration_has_one_speed_in_every_form(tmp_path: Path) -> None:
    steps = ((RECORDS[3], 0.128), (RECORDS[0], 0.4))
    rounds = [
        record(
            replace(r.trial, name=f"{r.trial.name}{FINAL_SUFFIX}", final=True, attempt=number),
            steps_of(step_s),
        )
        for number in (1, 2)
        for r, step_s in steps
    ]
    folder = str(write_folder(tmp_path / "results", (*RECORDS, *rounds)))
    found = json.loads(text_of(folder, "--json"))
    rows = list(csv.DictReader(io.StringIO(text_of(folder, "--format=csv"))))
    speed = found["spaces"][-1]["best_metric_val"]
    (trial,) = [trial for trial in found["trials"] if trial["name"] == found["best"]]
    (row,) = [row for row in rows if row["name"] == found["best"]]
    assert trial["throughput"] == float(row["throughput"]) == speed == 250.0
    assert "250 samples/s" in text_of(folder)
    assert "250.00" in text_of(folder)
