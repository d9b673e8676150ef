"""The contract of trackers, read back with their own libraries. A new one adds a row to KINDS.

Each works in a separate process, as in a tune.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from autoconf_launch.launcher.events import Note
from autoconf_launch.launcher.trackers import find_tracker
from autoconf_launch.launcher.trackers.base import TrackedStudy
from autoconf_launch.launcher.trackers.outlet import Outlet, finish_all

from ..launcher.trackers.read_back import Kept, read_mlflow, read_tensorboard, read_wandb
from ..launcher.trackers.told import BETTER, CHOICE, FULL, MEASURED, PARAMETERS, STUDY

KINDS: dict[str, Callable[[Path], Kept]] = {
    "mlflow": read_mlflow,
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
}
_FOREIGN = ("WANDB_DIR", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME")
_FIRST, _SECOND, _FULL = (
    f"gpt3_126m_{name}"
    for name in ("z0_gas4_tmbspg1", "z1_gas2_tmbspg8", "z1_rbs5.0e+07_gas1_tmbspg16")
)


@dataclass(frozen=True, kw_only=True)
class Story:
    """Runs that were kept after each session, and the messages of each about the tracker.

    The first session is interrupted after the second trial; the next one is told everything again.
    """

    sessions: list[Kept]
    notes: list[list[Note]]

    @property
    def kept(self) -> Kept:
        return self.sessions[-1]


@pytest.fixture(scope="module")
def offline() -> Iterator[None]:
    """Nothing reaches the network, and the user's own settings do not count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        for name in _FOREIGN:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module", params=sorted(KINDS))
def story(
    request: pytest.FixtureRequest, offline: None, tmp_path_factory: pytest.TempPathFactory
) -> Story:
    kind: str = request.param
    if find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed")
    folder = tmp_path_factory.mktemp(kind)
    found = Story(sessions=[], notes=[])
    for entries in (STUDY[:3], STUDY):
        study = TrackedStudy(name="gpt3_126m", project="ours", folder=str(folder))
        outlet = Outlet(kind, find_tracker(kind), study, folder / "tracker.log")
        notes = [note for entry in entries for note in outlet.send(entry)]
        found.notes.append([*notes, *finish_all([outlet], 60)])
        found.sessions.append(KINDS[kind](folder))
    return found


def test_it_says_where_the_runs_are_and_warns_of_nothing(story: Story) -> None:
    for (note,) in story.notes:
        assert not note.warning
        assert "runs are sent to" in note.text


def test_each_trial_is_one_run_of_its_name_and_the_best_is_a_series_over_them(
    story: Story,
) -> None:
    assert set(story.kept.runs) == {_FIRST, _SECOND, _FULL}
    assert story.kept.best == {1: 64.0, 2: 128.0, 3: 128.0}
    assert story.kept.project in ("ours", None)


def test_parameters_predictions_and_measurements_of_a_trial_are_there(story: Story) -> None:
    run = story.kept.runs[_SECOND]
    parameters = {name: run.parameters[name] for name, _ in PARAMETERS}
    assert parameters == {name: str(value) for name, value in PARAMETERS}
    metrics = {name: run.metrics[name] for name, _ in MEASURED}
    assert metrics == pytest.approx(dict(MEASURED))
    assert (run.failed, run.failure) == (False, None)


def test_a_failed_trial_is_a_failed_run_with_its_kind_and_what_is_known_of_it(
    story: Story,
) -> None:
    run = story.kept.runs[_FULL]
    assert (run.failed, run.failure) == (True, "out_of_memory")
    assert {name: run.metrics[name] for name, _ in FULL} == pytest.approx(dict(FULL))


def test_a_study_is_complete_with_its_choice_only(story: Story) -> None:
    assert [kept.complete for kept in story.sessions] == [False, True]
    assert story.kept.choice == CHOICE.run
    assert dict(BETTER)["throughput_samples_per_s"] == story.kept.best[3]
