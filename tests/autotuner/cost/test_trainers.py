import pytest

from autoconf_launch.autotuner.cost.training import TRAINERS, Framework, TrainingSetup, trainer
from autoconf_launch.core import ConfigError


def test_habits_replace_what_a_setup_says() -> None:
    setup = trainer("megatron-2021").applied(TrainingSetup(sequence_length=1))
    habits = (setup.framework, setup.flash_attention, setup.dropout)
    assert habits == (Framework.MEGATRON, False, True)


def test_an_unknown_trainer_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="'megatron'"):
        trainer("megatrom")


@pytest.mark.parametrize("name", TRAINERS)
def test_habits_leave_the_sequence_alone(name: str) -> None:
    assert TRAINERS[name].applied(TrainingSetup(sequence_length=7)).sequence_length == 7
