from autoconf_launch.core import BUILTIN_PRECISIONS, Mode, Precision, RankTask


def task(turn_steps: int) -> RankTask:
    return RankTask(mode=Mode.MEASURE, folder="f", attempt="a", turn_steps=turn_steps)


def test_longer_turns_begin_with_the_first_step_that_counts() -> None:
    assert [task(1).turns_before(step) for step in range(9)] == list(range(9))
    assert [task(3).turns_before(step) for step in range(10)] == [0, 1, 2, 2, 2, 3, 3, 3, 4, 4]
    assert RankTask.from_variable(task(3).to_variable()) == task(3)


def test_formats_have_their_bytes_and_scales() -> None:
    found = [kind.value for kind in Precision if kind.is_fp8]
    assert found == ["fp8", "fp8_current", "fp8_blockwise", "fp8_rowwise", "mxfp8"]
    assert [kind.value for kind in Precision if kind.value_bytes == 4] == ["fp32", "tf32"]
    assert {kind.value_bytes for kind in Precision} == {2, 4}
    assert [kind.value for kind in BUILTIN_PRECISIONS] == ["fp32", "bf16", "fp16"]
