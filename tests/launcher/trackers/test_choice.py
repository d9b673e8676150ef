"""The flags that choose trackers."""

from __future__ import annotations

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.request import TrackingChoice


def choice(*flags: str) -> TrackingChoice:
    return parse_request([*flags, "train.py"]).tracking


def test_no_tracker_is_the_default() -> None:
    assert choice() == TrackingChoice()


@pytest.mark.parametrize("flag", ["--report-to=wandb,mlflow", "--report_to=WandB, mlflow,wandb"])
def test_names_stand_between_commas_and_count_once(flag: str) -> None:
    assert choice(flag).trackers == ("wandb", "mlflow")


def test_none_is_no_tracker() -> None:
    assert choice("--report-to", "none").trackers == ()


@pytest.mark.parametrize("names", ["wandb,none", "wandb,,mlflow", " ", ","])
def test_other_lists_are_refused(names: str) -> None:
    with pytest.raises(ConfigError, match="must be names of trackers with commas between them"):
        choice(f"--report-to={names}")


def test_project_and_key_file_are_taken_as_they_are() -> None:
    given = choice("--report-to=wandb", "--tracker-project=p", "--wandb-api-key-file", "~/key")
    assert given == TrackingChoice(trackers=("wandb",), project="p", wandb_key_file="~/key")
