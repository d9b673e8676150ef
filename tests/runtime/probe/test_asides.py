from dataclasses import replace

import pytest

from autoconf_launch.core import Aside, Failure, FailureKind, Mode, RankTask, WentOn
from autoconf_launch.runtime.observe import PauseRule
from autoconf_launch.runtime.soak import Beside

CRASH = Failure(kind=FailureKind.CRASHED, detail="no room")
OUT_OF_MEMORY = replace(CRASH, kind=FailureKind.OUT_OF_MEMORY)


def watch_of(*events: str) -> Beside:
    """A watch that has received these: its methods, or ``epoch``, the end of the task's steps."""
    task = RankTask(mode=Mode.MEASURE, folder="", attempt="a1")
    watch = Beside(task, 0, PauseRule(lambda: 0.0), lambda: None)
    for event in events:
        if event == "epoch":
            assert watch.goes_on(lambda wanted: True)
        elif event == "on_save":
            watch.on_save(7)
        else:
            getattr(watch, event)()
    return watch


@pytest.mark.parametrize(
    ("events", "place"),
    [
        pytest.param(["saves"], "(in the checkpoint", id="save"),
        pytest.param(["saves", "on_evaluation"], "(in or after the evaluation", id="outlived"),
        pytest.param(["epoch", "saves"], "(in the checkpoint", id="save after the steps"),
        pytest.param(
            ["epoch", "on_evaluation", "fails"],
            "(in or after the evaluation",
            id="call after them",
        ),
    ],
)
def test_a_failure_in_an_aside_says_so(events: list[str], place: str) -> None:
    failure = watch_of(*events).judge(CRASH, 9)
    assert failure
    assert place in failure.detail


@pytest.mark.parametrize(
    ("events", "failure"),
    [
        pytest.param([], CRASH, id="within the steps"),
        pytest.param(["saves", "on_save", "on_resume"], CRASH, id="once the training goes on"),
        pytest.param(["epoch"], OUT_OF_MEMORY, id="out of memory after the steps"),
    ],
)
def test_other_failures_stay_as_they_are(events: list[str], failure: Failure) -> None:
    assert watch_of(*events).judge(failure, 9) == failure


@pytest.mark.parametrize(
    ("detail", "broke_in"),
    [
        pytest.param("no room", Aside.EVALUATION, id="crash"),
        pytest.param("StopIteration", None, id="end of data"),
        pytest.param("RuntimeError: generator raised StopIteration", None, id="of a generator"),
    ],
)
def test_after_the_steps_a_failure_elsewhere_is_kept_and_not_blamed(
    detail: str, broke_in: Aside | None
) -> None:
    watch = watch_of("epoch", "on_evaluation")
    assert watch.judge(replace(CRASH, detail=detail), 9) is None
    seen = watch.summary()
    assert (seen.broke, seen.broke_in, seen.under_way) == (detail, broke_in, None)


@pytest.mark.parametrize(
    ("events", "went_on"),
    [
        pytest.param(["epoch", "saves", "on_save"], WentOn.EPOCH, id="checkpoint is written"),
        pytest.param(["on_evaluation", "on_end"], WentOn.END, id="the script's own end"),
        pytest.param(["epoch", "on_end"], WentOn.EPOCH_END, id="its end as data ended early"),
    ],
)
def test_what_is_over_is_not_under_way(events: list[str], went_on: WentOn) -> None:
    seen = watch_of(*events).summary()
    assert (seen.under_way, seen.went_on) == (None, went_on)
