from pathlib import Path

from autoconf_launch.core import END_FILE, Mode, RankTask, StepRecord
from autoconf_launch.launcher.results import SlowestRanks, StepsTail, tell_end

LINE = '{"rank": 0, "step": %d, "wall_s": 0.5, "samples": 4}\n'


def test_each_step_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    tail = StepsTail(path)
    path.write_text(LINE % 1)
    assert [step.step for step in tail.new()] == [1]
    with path.open("a") as file:
        file.write(LINE % 2 + LINE % 3)
    assert [step.step for step in tail.new()] == [2, 3]
    assert tail.new() == ()


def test_a_line_that_is_still_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    whole = LINE % 1
    path.write_text(whole[:20])
    tail = StepsTail(path)
    assert tail.new() == ()
    path.write_text(whole)
    assert [step.step for step in tail.new()] == [1]


def test_a_step_that_took_no_time_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text((LINE % 1).replace("0.5", "-0.5") + (LINE % 2).replace("0.5", "0.0"))
    assert StepsTail(path).new() == ()


def test_a_file_that_is_not_there_yet_has_no_steps(tmp_path: Path) -> None:
    assert StepsTail(tmp_path / "steps.jsonl").new() == ()


def test_the_age_of_a_file_without_steps_is_nothing(tmp_path: Path) -> None:
    assert StepsTail(tmp_path / "steps.jsonl").age_s() == 0.0


def step(rank: int, number: int, wall_s: float) -> StepRecord:
    return StepRecord(rank=rank, step=number, wall_s=wall_s, samples=1)


def test_a_step_counts_once_all_ranks_have_made_it_and_as_its_slowest() -> None:
    slowest = SlowestRanks(2)
    for seen in (step(0, 1, 1.0), step(1, 1, 3.0), step(0, 2, 5.0)):
        slowest.take(seen)
    assert slowest.step_s == (3.0,)


def test_ranks_are_told_their_end_under_the_token_of_their_launch(tmp_path: Path) -> None:
    task = RankTask(mode=Mode.MEASURE, folder=str(tmp_path), attempt="now", most_steps=9)
    tell_end(task, 4)
    tell_end(task, 7)
    assert [path.name for path in tmp_path.iterdir()] == [END_FILE]
    assert (tmp_path / END_FILE).read_text() == "now 7"
