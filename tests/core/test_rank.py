from autoconf_launch.core import Mode, RankTask


def task(turn_steps: int) -> RankTask:
    return RankTask(mode=Mode.MEASURE, folder="f", attempt="a", turn_steps=turn_steps)


def test_longer_turns_begin_with_the_first_step_that_counts() -> None:
    assert [task(1).turns_before(step) for step in range(9)] == list(range(9))
    assert [task(3).turns_before(step) for step in range(10)] == [0, 1, 2, 2, 2, 3, 3, 3, 4, 4]
    assert RankTask.from_variable(task(3).to_variable()) == task(3)
