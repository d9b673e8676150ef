from pathlib import Path

from autoconf_launch.launcher.steps import StepsTail

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


def test_a_file_that_is_not_there_yet_has_no_steps(tmp_path: Path) -> None:
    assert StepsTail(tmp_path / "steps.jsonl").new() == ()
