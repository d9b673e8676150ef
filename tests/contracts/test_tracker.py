"""The contract of trackers, read back with their own libraries. A new one adds a row to KINDS.

Each works in a process of its own, as in a tune.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from autoconf_launch.launcher.events import Note
from autoconf_launch.launcher.trackers import find_tracker
from autoconf_launch.launcher.trackers.base import Entry, TrackedStudy
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
    """Runs that were kept after each session, and the messages about the tracker."""

    sessions: list[Kept]
    notes: list[Note]

    @property
    def kept(self) -> Kept:
        return self.sessions[-1]


@pytest.fixture(scope="module")
def offline() -> Iterator[pytest.MonkeyPatch]:
    """Nothing reaches the network, and the user's own settings do not count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        for name in _FOREIGN:
            patch.delenv(name, raising=False)
        yield patch


@pytest.fixture(scope="module", params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture(scope="module")
def story(kind: str, offline: object, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell(kind, tmp_path_factory.mktemp(kind), STUDY)


@pytest.fixture(scope="module")
def resumed(kind: str, offline: object, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Interrupted after the second trial; the next session is told of everything again."""
    return tell(kind, tmp_path_factory.mktemp(kind), STUDY[:3], STUDY)


def tell(kind: str, folder: Path, *sessions: Sequence[Entry]) -> Story:
    kept, notes = list[Kept](), list[Note]()
    for entries in sessions:
        study = TrackedStudy(name="gpt3_126m", project="ours", folder=str(folder))
        outlet = Outlet(kind, find_tracker(kind), study, folder / "tracker.log")
        for entry in entries:
            notes += outlet.send(entry)
        notes += finish_all([outlet], 60)
        kept.append(KINDS[kind](folder))
    return Story(sessions=kept, notes=notes)


def test_it_says_where_the_runs_are_and_warns_of_nothing(story: Story) -> None:
    assert [note.warning for note in story.notes] == [False]
    assert "runs are sent to" in story.notes[0].text


def test_each_trial_is_a_run_of_its_name(story: Story) -> None:
    assert set(story.kept.runs) == {_FIRST, _SECOND, _FULL}


def test_every_parameter_of_a_trial_is_there(story: Story) -> None:
    kept = story.kept.runs[_SECOND].parameters
    assert {name: kept[name] for name, _ in PARAMETERS} == {n: str(v) for n, v in PARAMETERS}


def test_what_was_predicted_and_measured_is_there(story: Story) -> None:
    kept = story.kept.runs[_SECOND].metrics
    assert {name: kept[name] for name, _ in MEASURED} == pytest.approx(dict(MEASURED))


def test_a_failed_trial_is_a_failed_run_with_its_kind(story: Story) -> None:
    run = story.kept.runs[_FULL]
    assert (run.failed, run.failure) == (True, "out_of_memory")


def test_a_failed_trial_keeps_what_is_known_of_it(story: Story) -> None:
    kept = story.kept.runs[_FULL].metrics
    assert {name: kept[name] for name, _ in FULL} == pytest.approx(dict(FULL))


def test_a_measured_trial_is_no_failed_run(story: Story) -> None:
    run = story.kept.runs[_FIRST]
    assert (run.failed, run.failure) == (False, None)


def test_the_best_so_far_is_a_series_over_finished_launches(story: Story) -> None:
    assert story.kept.best == {1: 64.0, 2: 128.0, 3: 128.0}


def test_the_choice_is_kept_with_the_study(story: Story) -> None:
    assert story.kept.choice == CHOICE.run
    assert dict(BETTER)["throughput_samples_per_s"] == story.kept.best[3]


def test_a_study_with_a_choice_is_complete(story: Story) -> None:
    assert story.kept.complete


def test_a_project_is_named_as_asked(story: Story) -> None:
    assert story.kept.project in ("ours", None)


def test_a_resumed_study_has_each_run_once(resumed: Story) -> None:
    assert set(resumed.kept.runs) == {_FIRST, _SECOND, _FULL}
    assert resumed.kept.best == {1: 64.0, 2: 128.0, 3: 128.0}


def test_a_resumed_study_is_completed(resumed: Story) -> None:
    assert (resumed.kept.choice, resumed.kept.complete) == (CHOICE.run, True)


def test_a_study_without_a_choice_is_not_complete(resumed: Story) -> None:
    assert not resumed.sessions[0].complete
