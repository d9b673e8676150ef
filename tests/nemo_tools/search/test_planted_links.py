"""Links planted in the folder of a search lead no file of it elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoconf_launch.core import RawConfig, ResultsFolderError
from autoconf_launch.nemo.search import SearchFolder

DOCUMENT = RawConfig({"a": 1})


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "mine.yaml").write_text("precious")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> SearchFolder:
    made = SearchFolder(tmp_path / "logs")
    made.write_config(made.candidate("x"), DOCUMENT)
    return made


def is_untouched(victim: Path) -> bool:
    files = list(victim.iterdir())
    return [file.name for file in files] == ["mine.yaml"] and files[0].read_text() == "precious"


def test_a_link_in_place_of_a_folder_is_refused(folder: SearchFolder, victim: Path) -> None:
    for path in (folder.job("x").parent, folder.run("x").parent, folder.logs / "final_results"):
        path.symlink_to(victim)
    with pytest.raises(ResultsFolderError, match="symbolic link"):
        folder.files.write(folder.job("x"), "echo")
    with pytest.raises(ResultsFolderError, match="symbolic link"):
        folder.files.make_below(folder.run("x"))
    with pytest.raises(ResultsFolderError, match="symbolic link"):
        folder.clear_candidates()
    assert is_untouched(victim)


def test_a_link_in_place_of_a_file_is_replaced(folder: SearchFolder, victim: Path) -> None:
    folder.submit_all.symlink_to(victim / "mine.yaml")
    folder.files.write(folder.submit_all, "echo")
    assert (folder.submit_all.read_text(), folder.submit_all.is_symlink()) == ("echo", False)
    assert is_untouched(victim)


def test_a_folder_that_others_can_write_is_refused(folder: SearchFolder) -> None:
    folder.logs.chmod(0o775)
    with pytest.raises(ResultsFolderError, match="another folder with base_results_dir"):
        folder.write_config(folder.candidate("y"), DOCUMENT)


def test_folders_are_ours_alone_under_a_loose_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        made = SearchFolder(tmp_path / "new" / "logs")
        for name in ("x", "y"):
            made.write_config(made.candidate(name), DOCUMENT)
    finally:
        os.umask(before)
    assert made.candidate("y").parent.stat().st_mode & 0o022 == 0
