from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.request import TrackingChoice
from autoconf_launch.launcher.trackers import (
    TRACKERS,
    base,
    check_tracking,
    find_tracker,
    read_key,
)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"tracker 'wandbb' is unknown; did you mean 'wandb'\?"):
        check_tracking(TrackingChoice(trackers=("wandbb",)))


@pytest.mark.parametrize("name", sorted(TRACKERS))
def test_a_missing_library_is_said_with_the_extra_that_brings_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=rf"pip install 'autoconf-launch\[{name}\]'"):
        check_tracking(TrackingChoice(trackers=(name,)))


def test_a_folder_of_the_name_is_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(ConfigError, match="needs the package wandb, which is not installed"):
        check_tracking(TrackingChoice(trackers=("wandb",)))


def test_no_tracker_needs_nothing() -> None:
    check_tracking(TrackingChoice(wandb_key_file="/nowhere/key"))


@pytest.mark.usefixtures("toys")
def test_an_installed_package_can_bring_a_tracker() -> None:
    assert find_tracker("Recorder") == "toy_trackers:Recorder"


@pytest.mark.usefixtures("toys")
def test_a_tracker_of_a_package_is_not_imported_here() -> None:
    check_tracking(TrackingChoice(trackers=("Recorder",)))
    assert "toy_trackers" not in sys.modules


def test_no_library_of_a_tracker_is_imported_by_the_check() -> None:
    code = (
        "import sys, autoconf_launch.launcher.trackers as t\n"
        "from autoconf_launch.launcher.request import TrackingChoice\n"
        "for name in t.TRACKERS:\n"
        "    try: t.check_tracking(TrackingChoice(trackers=(name,)))\n"
        "    except ValueError: pass\n"
        "sys.exit(bool({'torch', 'wandb', 'mlflow', 'tensorboard'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_key_is_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(" abc \nsecond line\n")
    assert read_key(str(path)) == "abc"


@pytest.mark.parametrize("text", ["", "\n", " \nabc\n"])
def test_a_file_without_a_key_on_its_first_line_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(ConfigError, match="must have the Weights & Biases key on its first line"):
        read_key(str(path))


def test_a_missing_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        read_key(str(tmp_path / "key"))


def test_what_is_wrong_with_a_key_file_does_not_show_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"\xffsecret\n")
    with pytest.raises(ConfigError) as caught:
        read_key(str(path))
    assert "secret" not in str(caught.value)
