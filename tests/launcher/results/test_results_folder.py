import dataclasses
from pathlib import Path

import pytest

from autoconf_launch.core import ResultsFolderError
from autoconf_launch.launcher.results.journal import Fingerprint
from autoconf_launch.launcher.results.paths import ResultsPaths
from autoconf_launch.launcher.results.results_folder import open_folder

PRINT = Fingerprint(script="a", arguments=(), config="b", hardware=("cpu",), versions=())


@pytest.fixture
def paths(tmp_path: Path) -> ResultsPaths:
    return ResultsPaths(results=tmp_path / "results", exps=tmp_path / "exps")


def test_the_same_fingerprint_goes_on_in_the_same_folder(paths: ResultsPaths) -> None:
    with open_folder(paths, PRINT, fresh=False):
        pass
    with open_folder(paths, PRINT, fresh=False) as folder:
        assert folder.contents.fingerprint == PRINT
        assert folder.notes == ()


def test_asking_for_a_fresh_start_moves_the_old_folder_aside(paths: ResultsPaths) -> None:
    with open_folder(paths, PRINT, fresh=False):
        (paths.results / "kept").write_text("x")
    with open_folder(paths, PRINT, fresh=True):
        assert (paths.results.with_name("results.1") / "kept").exists()
        assert not (paths.results / "kept").exists()


def test_results_of_another_script_are_moved_aside_and_the_change_is_named(
    paths: ResultsPaths,
) -> None:
    with open_folder(paths, PRINT, fresh=False):
        pass
    changed = dataclasses.replace(PRINT, script="other")
    with open_folder(paths, changed, fresh=False) as folder:
        assert "script changed" in folder.notes[0]
        assert folder.contents.records == ()


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
