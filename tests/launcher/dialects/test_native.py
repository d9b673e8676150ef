from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from autoconf_launch.autotuner.space import ChoiceKind, KnobChoice
from autoconf_launch.core import ConfigError, RawConfig, Recompute
from autoconf_launch.launcher.dialects import ScriptSource, UserSettings
from autoconf_launch.launcher.dialects.native import NativeDialect


def source(document: dict[str, Any], *arguments: str) -> ScriptSource:
    return ScriptSource(script_args=arguments, config=RawConfig(document), config_argument=None)


def read(document: dict[str, Any], *arguments: str, **options: Any) -> UserSettings:
    return NativeDialect().read(source(document, *arguments), world_size=2, **options)


def choice(user: UserSettings, knob: str) -> KnobChoice:
    return next(choice for choice in user.choices if choice.knob == knob)


@pytest.mark.parametrize(
    "document",
    [
        {"train_micro_batch_size_per_gpu": 1},
        {"zero_optimization": "all"},
        {"zero_optimization": {}},
        {"zero_optimization": {"stage": "all"}},
    ],
)
def test_stages_0_to_3_are_explored_where_none_is_chosen(document: dict[str, Any]) -> None:
    chosen = choice(read(document), "zero_stage")
    assert (chosen.values, chosen.how) == ((0, 1, 2, 3), ChoiceKind.FREE)


def test_a_list_of_stages_limits_the_search_and_its_first_is_the_baseline() -> None:
    user = read({"zero_optimization": {"stage": [2, 3]}})
    assert choice(user, "zero_stage") == KnobChoice("zero_stage", (2, 3), ChoiceKind.LISTED)
    assert user.baseline.layout.zero_stage == 2


def test_a_scalar_stage_pins_it() -> None:
    assert choice(read({"zero_optimization": {"stage": 1}}), "zero_stage").how is ChoiceKind.PINNED


def test_a_scalar_micro_batch_is_the_least_to_search() -> None:
    chosen = choice(read({"train_micro_batch_size_per_gpu": 4}), "micro_batch")
    assert chosen == KnobChoice("micro_batch", (4,), ChoiceKind.MINIMUM)


def test_auto_is_the_mapped_value_of_the_command_line() -> None:
    mapped = {"train_micro_batch_size_per_gpu ": " --per_device_train_batch_size"}
    document = {
        "train_micro_batch_size_per_gpu": "auto",
        "autotuning": {"arg_mappings": mapped},
    }
    assert read(document, "--per_device_train_batch_size", "8").baseline.layout.micro_batch == 8
    assert read(document, "--per_device_train_batch_size=8").baseline.layout.micro_batch == 8
    assert read(document).baseline.layout.micro_batch == 1


def test_a_mapped_argument_follows_the_candidate_in_the_form_it_was_given() -> None:
    mapping = {"train_micro_batch_size_per_gpu": "--bs"}
    document = {"train_micro_batch_size_per_gpu": "auto", "autotuning": {"arg_mappings": mapping}}
    script = source(document, "--bs=2", "--lr", "1")
    baseline = read(document, "--bs=2").baseline
    bigger = dataclasses.replace(
        baseline, layout=dataclasses.replace(baseline.layout, micro_batch=6)
    )
    assert NativeDialect().render(bigger, script, "c").script_args == ("--bs=6", "--lr", "1")


def test_listed_recomputation_is_searched() -> None:
    user = read({"activation_checkpointing": {"mode": ["none", "full"]}})
    assert choice(user, "recompute").values == (Recompute.NONE, Recompute.FULL)


def test_a_stated_global_batch_is_pinned() -> None:
    user = read({"train_batch_size": 32, "autotuning": {"max_train_batch_size": 64}})
    assert (user.batch_rule.pinned, user.batch_rule.maximum) == (32, None)


def test_a_maximum_is_consent_up_to_its_value() -> None:
    rule = read({"autotuning": {"max_train_batch_size": 64}}).batch_rule
    assert (rule.pinned, rule.maximum) == (None, 64)


def test_otherwise_todays_product_is_pinned() -> None:
    document = {"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4}
    assert read(document).batch_rule.pinned == 24


def test_the_flag_lets_the_global_batch_change() -> None:
    rule = read({}, allow_global_batch_change=True).batch_rule
    assert (rule.pinned, rule.maximum) == (None, None)


def test_a_flag_outweighs_the_section() -> None:
    user = read(
        {"autotuning": {"tuner_type": "random"}}, overrides=(("tuner_type", "gridsearch"),)
    )
    assert user.settings.tuner_type == "gridsearch"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"autotuning": {"tuner_num_trial": 3}}, "did you mean 'tuner_num_trials'"),
        ({"autotuning": {"metric": "speed"}}, "autotuning.metric is 'speed'"),
        ({"autotuning": {"start_profile_step": 9}}, "end_profile_step is 5"),
        ({"zero_optimization": {"stage": []}}, "empty list"),
        ({"zero_optimization": {"stage": [0, 7]}}, "stages 0 to 3"),
        ({"train_micro_batch_size_per_gpu": [1, "x"]}, "at least 1"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_its_key(
    document: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        read(document)
