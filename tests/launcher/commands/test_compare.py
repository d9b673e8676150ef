from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.measurement import AGAIN_SUFFIX
from autoconf_launch.autotuner.space import Record
from autoconf_launch.launcher.commands.show import compare

from ..report.fixed import PRINT, RECORDS, golden, record, steps_of, trial, write_folder


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``a``, and ``b`` on another torch, with a slower baseline and one more candidate."""
    monkeypatch.chdir(tmp_path)
    slower = record(trial(0, 0, 1), steps_of(0.4))
    more = record(trial(5, 2, 8), steps_of(0.05))
    newer = replace(PRINT, versions=(("python", "3.11.7"), ("torch", "2.14.0")))
    write_folder(Path("a"))
    write_folder(Path("b"), [slower, *RECORDS[1:4], more], newer)


def text_of(*arguments: str) -> str:
    return "".join(f"{piece}\n" for piece in compare(arguments))


def test_the_text_is_as_it_was_looked_at() -> None:
    assert text_of("a", "b") == golden("compare.txt")


def test_a_machine_that_drifted_is_said_of_its_run() -> None:
    (first, *others) = RECORDS
    name = f"{first.trial.name}{AGAIN_SUFFIX}"
    again = record(replace(first.trial, name=name, again=len(RECORDS)), steps_of(3.2))
    write_folder(Path("c"), (first, *others, again))
    assert text_of("a", "c").splitlines()[-1].startswith("In B: The machine was about ")


def test_json_is_one_document_with_a_version() -> None:
    document = json.loads(text_of("a", "b", "--json"))
    assert (document["schema_version"], document["faster"]) == (1, "b")
    assert document["best"]["ratio"]["ratio"] == pytest.approx(1.28)
    assert [pair["faster"] for pair in document["common"]] == ["a", "tie", None, "tie"]
    assert document["differences"] == [{"part": "version of torch", "a": "2.13.0", "b": "2.14.0"}]


def test_a_run_compared_with_itself_is_no_faster() -> None:
    text = text_of("a", "a")
    assert "Script, configuration, hardware and versions are the same." in text
    assert text.endswith("equally fast within noise (ratio 0.85 to 1.17).\n")


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([record(trial(0, 3, 1), steps_of(0.1))], "No candidate was tried in both."),
        (RECORDS[2:3], "measured nothing, so they cannot be compared.\n"),
    ],
)
def test_runs_that_share_nothing_say_so(records: Sequence[Record], says: str) -> None:
    write_folder(Path("other"), records)
    assert says in text_of("a", "other")


def test_a_speed_above_the_peak_of_its_gpus_is_said_of_its_run() -> None:
    why = "600 TFLOP/s per GPU is above the peak of A100-SXM-80GB (312 TFLOP/s)"
    measured = next(one for one in RECORDS if one.measurement)
    folder = Path("b") / measured.trial.name
    folder.mkdir(exist_ok=True)
    assert "above the peak" not in text_of("a", "b")
    (folder / "metrics.json").write_text(json.dumps({"impossible": why}))
    assert f"In B, {measured.trial.name}: {why}" in text_of("a", "b")
    document = json.loads(text_of("a", "b", "--json"))
    assert document["a"]["impossible"] is None
    assert why in document["b"]["impossible"]
