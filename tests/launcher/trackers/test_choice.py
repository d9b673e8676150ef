"""The flags that choose trackers."""

from __future__ import annotations

import pytest

from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.request import TrackingChoice


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
