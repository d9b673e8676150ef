import dataclasses
import os
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Record, Trial
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout, ResultsFolderError
from autoconf_launch.launcher.results import (
    Fingerprint,
    FolderState,
    ResultsPaths,
    open_folder,
    read_results,
)

PRINT = Fingerprint(script="a", arguments=(), config="b", hardware=("cpu",), versions=())
OTHER = dataclasses.replace(PRINT, arguments=("--quiet",))


@pytest.fixture
def paths(tmp_path: Path) -> ResultsPaths:
    return ResultsPaths(results=tmp_path / "results", exps=tmp_path / "exps")


def test_a_fresh_start_moves_the_old_folder_and_what_was_asked_of_trials_aside(
    paths: ResultsPaths,
) -> None:
    with open_folder(paths, PRINT, fresh=False):
        asked_of(paths, "z0")
    with open_folder(paths, PRINT, fresh=True):
        aside = paths.results.with_name("results.1")
        assert (aside / "z0").exists()
        assert not paths.trial("z0").exists()
        assert read_results(aside).state is FolderState.STOPPED
        assert not paths.experiment("z0").exists()
        assert (paths.exps.with_name("exps.1") / "z0.json").exists()


def test_what_was_asked_goes_along_where_it_is_kept_inside(tmp_path: Path) -> None:
    paths = ResultsPaths(results=tmp_path / "results", exps=tmp_path / "results" / "exps")
    with open_folder(paths, PRINT, fresh=False):
        paths.experiment("z0").write_text("{}")
        paths.trial("z0").mkdir()
    with open_folder(paths, PRINT, fresh=True):
        assert (tmp_path / "results.1" / "exps" / "z0.json").exists()
        assert list(paths.exps.iterdir()) == []


@pytest.mark.parametrize("line", [b'{"nonsense": 1}\n', b'{"version": 2, "fingerprint": {}}\n'])
def test_fresh_moves_a_damaged_journal_aside(paths: ResultsPaths, line: bytes) -> None:
    paths.results.mkdir()
    paths.journal.write_bytes(line)
    with open_folder(paths, PRINT, fresh=True):
        assert (paths.results.with_name("results.1") / paths.journal.name).read_bytes() == line


def test_what_another_tune_asked_in_the_same_folder_stays(paths: ResultsPaths) -> None:
    other = dataclasses.replace(paths, results=paths.results.with_name("others"))
    with open_folder(paths, PRINT, fresh=False), open_folder(other, PRINT, fresh=False):
        asked_of(other, "z0")
    with open_folder(paths, PRINT, fresh=True):
        assert other.experiment("z0").exists()


def test_results_of_another_script_are_moved_aside_and_the_change_is_named(
    paths: ResultsPaths,
) -> None:
    with open_folder(paths, PRINT, fresh=False):
        pass
    changed = dataclasses.replace(PRINT, script="other")
    with open_folder(paths, changed, fresh=False) as folder:
        assert "script changed" in folder.notes[0]
        assert folder.contents.records == ()


def test_results_that_another_command_moved_aside_come_back(paths: ResultsPaths) -> None:
    tell(paths, None)
    asked_of(paths, name_of(0))
    with open_folder(paths, OTHER, fresh=False) as folder:
        assert folder.contents.records == ()
    with open_folder(paths, PRINT, fresh=False) as folder:
        assert [record.trial.name for record in folder.contents.records] == [name_of(0)]
        assert "results are back from" in folder.notes[0]
        assert paths.experiment(name_of(0)).exists()
    with open_folder(paths, PRINT, fresh=False) as folder:
        assert (len(folder.contents.records), folder.notes) == (1, ())


def test_results_that_were_moved_aside_as_asked_stay_there(paths: ResultsPaths) -> None:
    tell(paths, None)
    with open_folder(paths, PRINT, fresh=True) as folder:
        assert folder.contents.records == ()
    tell(paths, FailureKind.CRASHED)
    with open_folder(paths, PRINT, fresh=False) as folder:
        assert folder.contents.records == ()


def test_results_in_use_elsewhere_do_not_come_back(paths: ResultsPaths) -> None:
    tell(paths, None)
    with open_folder(paths, OTHER, fresh=False):
        pass
    aside = dataclasses.replace(paths, results=paths.results.with_name("results.1"))
    with open_folder(aside, PRINT, fresh=False), open_folder(paths, PRINT, fresh=False) as folder:
        assert folder.contents.records == ()


def test_the_last_written_of_several_comes_back(paths: ResultsPaths) -> None:
    for number in (0, 1):
        tell(paths, None, number=number)
        with open_folder(paths, PRINT, fresh=True):
            pass
    for number, unix_s in ((1, 10), (2, 20), (3, 5)):
        journal = paths.results.with_name(f"results.{number}") / paths.journal.name
        if journal.exists():
            os.utime(journal, (unix_s, unix_s))
    with open_folder(paths, OTHER, fresh=False):
        pass
    with open_folder(paths, PRINT, fresh=False) as folder:
        assert [record.trial.name for record in folder.contents.records] == [name_of(1)]


def name_of(number: int) -> str:
    return f"z0_gas1_tmbspg{number}"


def tell(paths: ResultsPaths, outcome: FailureKind | None, number: int = 0) -> None:
    """A session whose trial of that number failed so, or was measured."""
    made = Measurement(step_s=(1.0,), samples_per_step=1, world_size=1)
    failed = Failure(kind=outcome, detail="it did") if outcome else None
    trial = Trial(
        number=number, name=name_of(number), candidate=Candidate(layout=Layout()), space="z0"
    )
    record = Record(
        trial=trial, outcome=FailedTrial(failure=failed) if failed else made, wall_s=1.0
    )
    with open_folder(paths, PRINT, fresh=False) as folder:
        folder.journal.write_record(record)


def test_a_folder_in_use_is_not_moved_even_for_a_fresh_start(paths: ResultsPaths) -> None:
    with (
        open_folder(paths, PRINT, fresh=False),
        pytest.raises(ResultsFolderError, match="in use by process"),
        open_folder(paths, PRINT, fresh=True),
    ):
        pass


def test_a_path_that_cannot_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    paths = ResultsPaths(results=tmp_path / "file" / "results", exps=tmp_path / "exps")
    with (
        pytest.raises(ResultsFolderError, match="cannot be written"),
        open_folder(paths, PRINT, fresh=False),
    ):
        pass


def asked_of(paths: ResultsPaths, name: str) -> None:
    """The files of a trial."""
    paths.trial(name).mkdir()
    paths.experiment(name).write_text("{}")


@pytest.mark.parametrize("name", ["results", "./a/results", "..", ".", "a/../b"])
def test_files_are_written_below_a_relative_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    paths = ResultsPaths(results=Path(name), exps=Path(name))
    for path in (Path(name) / "deep" / "er" / "file", paths.results / "deep" / "other"):
        paths.write(path, "x")
        assert path.read_text() == "x"
    assert paths.results.is_absolute()


@pytest.mark.parametrize(
    ("outcomes", "kept"),
    [
        ([(0, FailureKind.CRASHED)], 0),
        ([(0, None)], 1),
        ([(0, FailureKind.OUT_OF_MEMORY)], 1),
        ([(0, FailureKind.PREEMPTED)], 1),
        ([(1, None), (0, FailureKind.CRASHED)], 2),
    ],
)
def test_the_same_command_goes_on_unless_nothing_was_measured_and_the_baseline_failed(
    paths: ResultsPaths, outcomes: list[tuple[int, FailureKind | None]], kept: int
) -> None:
    for number, outcome in outcomes:
        tell(paths, outcome, number=number)
    with open_folder(paths, PRINT, fresh=False) as folder:
        assert len(folder.contents.records) == kept
        if kept:
            assert (folder.contents.fingerprint, folder.notes) == (PRINT, ())
        else:
            assert "nothing was measured before (crashed)" in folder.notes[0]
