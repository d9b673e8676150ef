"""The choice of trackers: their flags, libraries and key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.flags import parse_request
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


@pytest.mark.usefixtures("toys")
def test_an_installed_package_can_bring_a_tracker_that_is_not_imported_here() -> None:
    assert find_tracker("Recorder") == "toy_trackers:Recorder"
    check_tracking(TrackingChoice(trackers=("Recorder",)))
    assert "toy_trackers" not in sys.modules
    check_tracking(TrackingChoice(wandb_key_file="/nowhere/key"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "must have the Weights & Biases key on its first line"),
        (b"\n", "must have the Weights & Biases key on its first line"),
        (b" \nabc\n", "must have the Weights & Biases key on its first line"),
        (None, "cannot be read: No such file or directory"),
        (b"\xffsecret\n", "key"),
    ],
)
def test_a_file_without_a_key_on_its_first_line_is_refused_without_showing_it(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=says) as caught:
        read_key(str(path))
    assert "secret" not in str(caught.value)
    path.write_text(" abc \nsecond line\n")
    assert read_key(str(path)) == "abc"


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


def choice(*flags: str) -> TrackingChoice:
    return parse_request([*flags, "train.py"]).tracking


@pytest.mark.parametrize(
    ("flags", "given"),
    [
        ((), TrackingChoice()),
        (("--report-to", "none"), TrackingChoice()),
        (("--report-to=wandb,mlflow",), TrackingChoice(trackers=("wandb", "mlflow"))),
        (("--report_to=WandB, mlflow,wandb",), TrackingChoice(trackers=("wandb", "mlflow"))),
        (
            ("--report-to=wandb", "--tracker-project=p", "--wandb-api-key-file", "~/key"),
            TrackingChoice(trackers=("wandb",), project="p", wandb_key_file="~/key"),
        ),
    ],
)
def test_trackers_are_those_of_the_flags_each_once(
    flags: tuple[str, ...], given: TrackingChoice
) -> None:
    assert choice(*flags) == given
