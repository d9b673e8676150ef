"""Work of a script on our engine between steps and after its epoch, in trials and soaks."""

import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import Aside, Asides, FailureKind, Mode, RankResult, WentOn, decode

STEPS, SHORT, LONG, SLOW_S = 8, 8, 24, 0.5
SOAK = {"mode": Mode.MEASURE, "soak": True, "ends_epoch": True, "end_step": STEPS}
EVERY = list(range(1, STEPS + 1))


@pytest.fixture(scope="module")
def soaked(launch: Any) -> Any:
    """``soaked(how, ranks=1, **task)``: run to the end, once each."""
    ended: dict[str, Any] = {}

    def run(how: str, ranks: int = 1, **task: Any) -> Any:
        key = f"{how} {ranks} {task}"
        if key not in ended:
            ended[key] = launch("epochs.py", how, ranks=ranks, **{**SOAK, **task})
        return ended[key]

    return run


def asides_of(ended: Any, rank: int = 0) -> Asides:
    asides = ended.result(rank).asides
    assert isinstance(asides, Asides), ended.errors
    return asides


def lengths(ended: Any, prefix: str = "") -> list[int]:
    """Batches that rank 0 trained on, or with the prefix evaluated."""
    words = (line.removeprefix(prefix) for line in ended.outputs[0].splitlines())
    return [int(word) for word in words if word.isdecimal()]


def work(ended: Any) -> Path:
    return Path(f"{ended.folder}-work")


def take(ended: Any) -> dict[str, Path]:
    """Names of the files that the trial moved away."""
    saved = ended.folder / "saved" / work(ended).relative_to("/")
    return {path.name: path for path in saved.iterdir()}


def steps(ended: Any, rank: int = 0) -> list[int]:
    return [record.step for record in ended.result(rank).steps]


@pytest.mark.parametrize("how", ["within", "inside"])
def test_an_evaluation_and_a_checkpoint_are_seen(soaked: Any, how: str) -> None:
    asides = asides_of(soaked(how))
    assert (asides.evaluations, asides.evaluation_batches, asides.checkpoints) == (1, 3, 1)
    assert asides.saved_bytes > 4 * 16 * 4


def test_a_model_can_be_saved_whole_without_what_listens_to_it(soaked: Any) -> None:
    ended = soaked("whole")
    assert (ended.failure_kind(), asides_of(ended).checkpoints) == (None, 1), ended.errors
    assert b"BetweenSteps" not in take(ended)["checkpoint.pt"].read_bytes()


def test_the_evaluation_of_a_copy_is_seen(soaked: Any) -> None:
    asides = asides_of(soaked("average"))
    assert (asides.evaluations, asides.evaluation_batches) == (1, 3)


@pytest.mark.parametrize("task", [{}, {"soak": False, "ends_epoch": False}], ids=str)
def test_their_time_is_in_no_step(soaked: Any, task: dict[str, bool]) -> None:
    result = soaked("within", **task).result()
    assert result.asides.before_steps == (5,)
    assert max(record.wall_s for record in result.steps[1:]) < SLOW_S


def test_a_soak_with_both_within_its_steps_ends_with_the_last_one(soaked: Any) -> None:
    ended = soaked("within")
    assert (asides_of(ended).went_on, len(lengths(ended))) == (None, STEPS * 2)


@pytest.mark.parametrize(
    ("how", "ranks"), [("plain", 1), ("ahead", 1), ("plain", 2), ("sharded", 2)]
)
def test_both_are_met_after_the_epoch(soaked: Any, how: str, ranks: int) -> None:
    ended = soaked(how, ranks)
    for rank in range(ranks):
        asides = asides_of(ended, rank)
        assert (asides.went_on, asides.evaluations) == (WentOn.EPOCH, 1), ended.errors
        assert steps(ended, rank) == EVERY
    assert asides_of(ended).checkpoints == 1
    assert ended.exit_codes == (0,) * ranks


def test_the_next_epochs_first_step_is_not_made(soaked: Any) -> None:
    ended = soaked("plain")
    assert len(lengths(ended)) == STEPS * 2
    assert "the end" not in ended.outputs[0]


def test_only_what_the_script_wrote_before_it_trained_is_left_and_named(soaked: Any) -> None:
    ended = soaked("plain")
    assert [path.name for path in work(ended).iterdir()] == ["data.txt"]
    assert take(ended).keys() == {"checkpoint.pt", "losses.txt"}
    assert ended.result().left_behind == ("data.txt",)


def test_a_script_that_does_nothing_after_its_epoch_is_no_failure(soaked: Any) -> None:
    ended = soaked("nothing")
    assert (ended.failure_kind(), asides_of(ended).evaluations) == (None, 0)


def test_a_script_that_comes_to_its_end_is_seen_to_it(soaked: Any) -> None:
    asides = asides_of(soaked("plain", end_step=60))
    assert (asides.went_on, asides.evaluations) == (WentOn.END, 2)


@pytest.mark.parametrize("end_step", [STEPS, 60])
def test_steps_are_taken_apart_wherever_the_script_ends(soaked: Any, end_step: int) -> None:
    result = soaked("nothing", end_step=end_step).result()
    assert {"forward", "backward", "update"} <= dict(result.phases).keys()


@pytest.mark.parametrize(("how", "task"), [("by_hand", {}), ("plain", {"ends_epoch": False})])
def test_a_script_by_hand_and_a_second_attempt_end_with_their_last_step(
    soaked: Any, how: str, task: dict[str, bool]
) -> None:
    ended = soaked(how, **task)
    assert (asides_of(ended).went_on, steps(ended)) == (None, EVERY)


@pytest.mark.parametrize("how", ["broken", "no_metric"])
def test_a_script_that_cannot_go_on_is_no_failure_and_its_words_are_kept(
    soaked: Any, how: str
) -> None:
    ended = soaked(how)
    words = {"broken": "20 batches", "no_metric": "nothing to divide by"}
    places = {"broken": None, "no_metric": Aside.EVALUATION}
    assert (ended.failure_kind(), steps(ended)) == (None, EVERY)
    assert words[how] in asides_of(ended).broke
    assert asides_of(ended).broke_in == places[how]


def test_memory_that_the_evaluation_lacks_is_a_failure_with_its_place(soaked: Any) -> None:
    failure = soaked("no_memory").result().failure
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert failure.detail.endswith(
        f"in or after the evaluation that followed optimizer step {STEPS})"
    )


def test_what_a_rank_has_to_say_stands_before_its_end(soaked: Any) -> None:
    ended = soaked("plain")
    (path,) = (ended.folder / "probe").glob("unfinished_rank0.*")
    found = decode(RankResult, json.loads(path.read_text()))
    assert (len(found.steps), found.end_step) == (STEPS, STEPS)
    assert found.asides
    assert found.asides.went_on is WentOn.EPOCH
    assert found.left_behind == ("data.txt",)


@pytest.mark.parametrize("how", ["plain", "by_hand"])
def test_the_last_step_takes_the_longest_batch(soaked: Any, how: str) -> None:
    ended = soaked(how)
    made = lengths(ended)[: 2 * STEPS]
    assert made == [SHORT] * 2 + [LONG] * 2 + [SHORT] * 10 + [LONG] * 2
    assert asides_of(ended).longest_batch


def test_a_trial_does_not(soaked: Any) -> None:
    ended = soaked("plain", soak=False, ends_epoch=False)
    assert lengths(ended)[2 * STEPS - 1] == SHORT
    assert not asides_of(ended).longest_batch
