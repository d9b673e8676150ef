from typing import Any

import pytest

from autoconf_launch.core import RUNTIME_KNOBS, ZERO_STAGES, ConfigError, RawConfig, resolve
from autoconf_launch.core.config_keys import check_keys


def extras_of(stage: int, **knobs: Any) -> dict[str, Any]:
    ranks = knobs.pop("ranks", 4)
    raw = RawConfig({"zero_optimization": {"stage": stage, **knobs}})
    return dict(resolve(raw, world_size=ranks).extras)


def test_further_knobs_stand_beside_the_stage() -> None:
    assert extras_of(1) == {}
    assert extras_of(1, bucket_cap_mb=5, parameters_as_bucket_view=True) == {
        "bucket_cap_mb": 5,
        "parameters_as_bucket_view": True,
    }
    assert extras_of(0, bucket_cap_mb=1e2) == {"bucket_cap_mb": 100}
    assert extras_of(0, bucket_cap_mb=None) == {}


@pytest.mark.parametrize("name", [n for n, k in RUNTIME_KNOBS.items() if k.stages != ZERO_STAGES])
def test_every_knob_is_refused_by_name_at_a_stage_that_lacks_it(name: str) -> None:
    knob = RUNTIME_KNOBS[name]
    other = next(stage for stage in range(4) if stage not in knob.stages)
    with pytest.raises(ConfigError, match=rf"{name} is .* can apply it, not stage {other}"):
        extras_of(other, **{name: knob.default})


@pytest.mark.parametrize("name", RUNTIME_KNOBS)
def test_every_default_is_a_value_of_its_knob(name: str) -> None:
    knob = RUNTIME_KNOBS[name]
    assert knob.read(knob.default) == knob.default
    assert all(knob.obstacle(zero_stage=s, data_parallel=4) is None for s in knob.stages)


@pytest.mark.parametrize(
    ("stage", "name", "value", "says"),
    [
        (0, "bucket_cap_mb", 0, "a whole number of at least 1"),
        (0, "bucket_cap_mb", True, "a whole number of at least 1"),
        (0, "gradient_as_bucket_view", 1, "true or false"),
        (2, "forward_prefetch", -1, "at least 0"),
        (2, "blocks_per_unit", "two", "at least 1"),
        (3, "reshard_after_forward", False, "true or a whole number of at least 2"),
        (3, "reshard_after_forward", 3, "3 must divide the 4 data-parallel ranks"),
        (3, "reshard_after_forward", 4, "and be less than them"),
        (2, "shard_ranks", 3, "3 must divide the 4 data-parallel ranks"),
        (3, "shard_ranks", 4, "and be less than them"),
        (1, "shard_ranks", 2, "ZeRO 1 of whole copies shards the optimizer over all ranks"),
        (0, "bucket_cap_mb", [5, 25], "resolved by autoconf-launch"),
        (0, "bucket_cap_mb", "auto", "resolved by autoconf-launch"),
    ],
)
def test_a_value_that_cannot_be_applied_is_refused_with_its_key(
    stage: int, name: str, value: object, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        extras_of(stage, **{name: value})
    assert f"zero_optimization.{name} is" in str(caught.value)


@pytest.mark.parametrize("name", ["bucket_cap_mb", "gradient_as_bucket_view"])
def test_one_rank_averages_no_gradients(name: str) -> None:
    with pytest.raises(ConfigError, match="one data-parallel rank has no gradients to average"):
        extras_of(0, ranks=1, **{name: RUNTIME_KNOBS[name].default})


def test_a_knob_outside_of_zero_is_read_at_its_own_key() -> None:
    raw = RawConfig({"compile_mode": "default"})
    assert check_keys(raw) == ()
    assert resolve(raw, world_size=1).extras == (("compile_mode", "default"),)


@pytest.mark.parametrize("value", ["fast", 1, True])
def test_a_mode_that_the_compiler_lacks_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"compile_mode is .*, but must be off or def"):
        resolve(RawConfig({"compile_mode": value}), world_size=1)


def test_keys_of_knobs_are_known_or_warned_of_with_the_nearest() -> None:
    assert check_keys(RawConfig({"zero_optimization": {"stage": 0, "bucket_cap_mb": 5}})) == ()
    (warning,) = check_keys(RawConfig({"zero_optimization": {"reduce_bucket_size": 5e8}}))
    assert warning == (
        "zero_optimization.reduce_bucket_size is not supported by this runtime and is ignored."
    )
    (warning,) = check_keys(RawConfig({"zero_optimization": {"bucket_cap": 5}}))
    assert "did you mean 'bucket_cap_mb'?" in warning


@pytest.mark.parametrize("name", ["reduce_bucket_size", "overlap_comm", "bucket_cap"])
def test_a_list_for_a_knob_that_we_do_not_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is a list to search, but"):
        check_keys(RawConfig({"zero_optimization": {name: [1, 2]}}))


@pytest.mark.parametrize("device", ["cpu", ["none", "cpu"]])
@pytest.mark.parametrize("section", ["offload_optimizer", "offload_param"])
def test_offload_is_refused_as_a_value_and_as_a_list(section: str, device: object) -> None:
    raw = RawConfig({"zero_optimization": {"stage": 3, section: {"device": device}}})
    with pytest.raises(ConfigError, match=f"{section}.device is .* cannot offload; remove it"):
        resolve(raw, world_size=2)


def test_shards_are_over_a_part_of_the_ranks() -> None:
    knobs = {"shard_ranks": 4, "reshard_after_forward": 2}
    assert extras_of(3, ranks=8, **knobs) == knobs
    with pytest.raises(ConfigError, match="2 must divide the 2 data-parallel ranks that shard"):
        extras_of(3, shard_ranks=2, reshard_after_forward=2)
    raw = {"zero_optimization": {"stage": 1, "shard_ranks": 2}, "parallelism": {"tensor": 2}}
    assert resolve(RawConfig(raw), world_size=8).extras == (("shard_ranks", 2),)
