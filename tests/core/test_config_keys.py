import pytest

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.core.config_keys import check_keys


def test_unknown_keys_are_warned_of_or_refused_with_the_nearest() -> None:
    assert check_keys(RawConfig({"model": {"layers": 4}, "bf16": {"enabled": True}})) == ()
    (warning,) = check_keys(RawConfig({"gradient_acumulation_steps": 4}))
    assert "did you mean 'gradient_accumulation_steps'?" in warning
    with pytest.raises(ConfigError, match=r"parallelism.tensr is unknown; did you mean 'tensor'"):
        check_keys(RawConfig({"parallelism": {"tensr": 2}}))
    with pytest.raises(ConfigError, match="optimizer is 3, but must be a section"):
        check_keys(RawConfig({"optimizer": 3}))
    (warning,) = check_keys(RawConfig({"bfloat16": {"enabled": True}}))
    assert warning == "bfloat16 is read by DeepSpeed only; this runtime reads bf16."
