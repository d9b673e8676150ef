import pytest

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.core.config_keys import check_keys


def test_a_scripts_own_sections_pass_untouched() -> None:
    assert check_keys(RawConfig({"model": {"layers": 4}, "bf16": {"enabled": True}})) == ()


def test_a_near_miss_of_a_known_name_is_warned_of() -> None:
    (warning,) = check_keys(RawConfig({"gradient_acumulation_steps": 4}))
    assert "did you mean 'gradient_accumulation_steps'?" in warning


def test_an_unknown_key_of_parallelism_gets_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"parallelism.tensr is unknown; did you mean 'tensor'"):
        check_keys(RawConfig({"parallelism": {"tensr": 2}}))


def test_a_section_that_is_a_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="optimizer is 3, but must be a section"):
        check_keys(RawConfig({"optimizer": 3}))


def test_a_key_of_deepspeed_with_another_name_here_is_named() -> None:
    (warning,) = check_keys(RawConfig({"bfloat16": {"enabled": True}}))
    assert warning == "bfloat16 is read by DeepSpeed only; this runtime reads bf16."
