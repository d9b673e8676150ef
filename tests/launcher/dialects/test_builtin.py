from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import hjson
import pytest

from autoconf_launch.autotuner.space import ChoiceKind, KnobChoice
from autoconf_launch.core import Candidate, ConfigError, Layout, RawConfig, Recompute, resolve
from autoconf_launch.launcher.asked import UserWords
from autoconf_launch.launcher.dialects import BuiltinDialect, document_of
from autoconf_launch.launcher.script import ScriptSource, SpaceFile
from autoconf_launch.launcher.spelling import UserSettings


def source(document: dict[str, Any], *arguments: str, space: str = "") -> ScriptSource:
    file = SpaceFile(name="my.hjson", document=RawConfig(hjson.loads(space))) if space else None
    return ScriptSource(
        script_args=arguments, config=RawConfig(document), config_argument=None, space=file
    )


def read(document: dict[str, Any], *arguments: str, space: str = "", **words: Any) -> UserSettings:
    given = source(document, *arguments, space=space)
    given = dataclasses.replace(given, words=UserWords(**words))
    return BuiltinDialect().read(given, world_size=2)


def render(user: UserSettings, given: ScriptSource, **layout: Any) -> dict[str, Any]:
    """The document of a candidate that differs from the baseline only in its layout."""
    changed = dataclasses.replace(user.baseline.layout, **layout)
    candidate = Candidate(layout=changed, extras=())
    return BuiltinDialect().render(candidate, given, "c").config.to_dict()


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
    assert BuiltinDialect().render(bigger, script, "c").script_args == ("--bs=6", "--lr", "1")


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
        ({"gradient_accumulation_steps": [1, 2]}, "is not searched by itself"),
        ({"train_batch_size": [8, 16]}, "train_batch_size is .* is never searched; list train_"),
        ({"gradient_clipping": [1.0, 0.5]}, "gradient_clipping is .* is never searched"),
        ({"bf16": {"enabled": [True, False]}}, "bf16.enabled is .* is never searched"),
        ({"optimizer": {"type": "SGD", "params": {"lr": [0.1, 1]}}}, "are never searched"),
        ({"optimizer": {"type": "SGD", "params": {"lr": "auto"}}}, "maps no given argument to lr"),
        (
            {"autotuning": {"mp_size": 2}, "parallelism": {"tensor": 1}},
            "mp_size is 2, but parallelism.tensor is 1",
        ),
        ({"parallelism": {"tensor": [1, 3]}}, "product is one of 1, 2"),
        ({"zero_optimization": {"reduce_bucket_size": [1, 2]}}, "no such knob"),
        (
            {"zero_optimization": {"offload_param": {"device": ["none", "cpu"]}}},
            "offload_param.device is .* cannot offload",
        ),
        ({"zero_optimization": {"stage": 2, "bucket_cap_mb": 5}}, "bucket_cap_mb is 5 in"),
        ({"zero_optimization": {"stage": [2, 3], "bucket_cap_mb": [5]}}, "not stage 3"),
        ({"zero_optimization": {"stage": "some"}}, "stage is 'some'"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_its_key(
    document: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        read(document)


@pytest.mark.parametrize("section", ["all", {"tensor": "all"}])
def test_all_opens_every_tensor_degree_of_the_ranks(section: object) -> None:
    user = read({"parallelism": section})
    choice = next(c for c in user.choices if c.knob == "tensor_parallel")
    assert choice.values == (1, 2)
    assert user.baseline.layout.tensor_parallel == 1


def test_nothing_said_of_parallelism_searches_none() -> None:
    choices = {c.knob: c.values for c in read({}).choices}
    assert choices["tensor_parallel"] == choices["sequence_parallel"] == ()


def test_mp_size_pins_the_tensor_degree() -> None:
    user = read({"autotuning": {"mp_size": 2}, "parallelism": "all"})
    assert user.baseline.layout.tensor_parallel == 2
    assert not next(c for c in user.choices if c.knob == "tensor_parallel").values


@pytest.mark.parametrize(("sizes", "today"), [([1, 2, 4], 2), ([4, 1], 8)])
def test_listed_micro_batches_without_a_stated_batch_keep_that_of_the_first(
    sizes: list[int], today: int
) -> None:
    assert read({"train_micro_batch_size_per_gpu": sizes}).batch_rule.pinned == today


def test_listed_micro_batches_change_the_batch_with_the_flag() -> None:
    document = {"train_micro_batch_size_per_gpu": [1, 2]}
    assert read(document, allow_global_batch_change=True).batch_rule.pinned is None


def test_listed_micro_batches_are_each_used_with_a_stated_accumulation() -> None:
    document = {"train_micro_batch_size_per_gpu": [1, 2], "gradient_accumulation_steps": 3}
    user = read(document)
    assert user.batch_rule.pinned is None
    assert choice(user, "accumulation").values == (3,)


def test_listed_micro_batches_keep_a_batch_that_is_stated() -> None:
    document = {"train_micro_batch_size_per_gpu": [1, 2], "train_batch_size": 8}
    user = read(document)
    assert user.batch_rule.pinned == 8
    assert user.baseline.layout.accumulation == 4


def test_one_listed_micro_batch_keeps_todays_batch() -> None:
    assert read({"train_micro_batch_size_per_gpu": [4]}).batch_rule.pinned == 8


def test_betas_are_one_value() -> None:
    optimizer = {"type": "AdamW", "params": {"lr": 0.1, "betas": [0.9, 0.95]}}
    document = {"optimizer": optimizer, "zero_optimization": {"stage": 0}}
    user = read(document)
    assert render(user, source(document), micro_batch=1)["optimizer"] == optimizer


INITIALIZES = "from autoconf_launch import runtime\nruntime.initialize(model, path{})\n"


@pytest.mark.parametrize(
    ("script", "document", "is_refused"),
    [
        (INITIALIZES.format(""), {}, True),
        (INITIALIZES.format(""), {"optimizer": None}, True),
        (INITIALIZES.format(""), {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}}, False),
        (INITIALIZES.format(", optimizer=make"), {}, False),
        (INITIALIZES.format(", **more"), {}, False),
        (f"config['optimizer'] = own\n{INITIALIZES.format('')}", {}, False),
        ("import elsewhere\n", {}, False),
    ],
)
def test_a_document_without_an_optimizer_is_refused_where_the_script_has_none(
    script: str, document: dict[str, Any], is_refused: bool
) -> None:
    given = dataclasses.replace(source(document), text=script)
    refused = pytest.raises(ConfigError, match="has no optimizer; add")
    with refused if is_refused else contextlib.nullcontext():
        BuiltinDialect().read(given, world_size=2)


def test_auto_elsewhere_is_the_mapped_value_or_left_out() -> None:
    document = {
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "SGD", "params": {"lr": "auto"}},
        "autotuning": {"arg_mappings": {"lr": "--learning_rate"}},
    }
    user = read(document, "--learning_rate", "2e-5")
    found = render(user, source(document, "--learning_rate", "2e-5"))
    assert found["optimizer"]["params"]["lr"] == 2e-5
    assert "gradient_clipping" not in found


def extras(user: UserSettings) -> dict[str, tuple[Any, ...]]:
    """Values of further knobs, by stage and name."""
    return {
        f"{choice.stages[0]}.{choice.knob}": choice.values
        for choice in user.choices
        if choice.stages
    }


def test_fast_mode_searches_no_further_knobs() -> None:
    assert extras(read({})) == {}


def test_full_mode_searches_the_shipped_lists_of_each_searched_stage() -> None:
    found = extras(read({"zero_optimization": {"stage": 2}, "autotuning": {"fast": False}}))
    assert found == {"2.blocks_per_unit": (None, 2, 4), "2.forward_prefetch": (None, 1, 2)}


def test_a_users_list_is_searched_in_fast_mode_too() -> None:
    found = extras(read({"zero_optimization": {"bucket_cap_mb": [25, 5]}}))
    assert found == {"0.bucket_cap_mb": (25, 5), "1.bucket_cap_mb": (25, 5)}


def test_a_tuning_space_is_searched_in_fast_mode_too() -> None:
    space = "{native: {zero_optimization: {stage: 3, blocks_per_unit: [2, 4]}}}"
    assert extras(read({}, space=space)) == {"3.blocks_per_unit": (2, 4)}


def test_the_baseline_has_the_first_value_of_a_list() -> None:
    user = read({"zero_optimization": {"bucket_cap_mb": [25, 5]}})
    assert user.baseline.extras == (("bucket_cap_mb", 25),)


def test_the_baseline_has_no_knob_that_its_stage_lacks() -> None:
    user = read({"zero_optimization": {"stage": [2, 1], "bucket_cap_mb": 25}})
    assert user.baseline.extras == ()


def test_a_knob_stands_in_the_document_of_those_candidates_alone_that_have_it() -> None:
    document = {"zero_optimization": {"bucket_cap_mb": [25, 5], "reduce_bucket_size": 5e8}}
    user = read(document)
    given = source(document)
    other = render(user, given, zero_stage=2)
    own = BuiltinDialect().render(user.baseline, given, "c").config.to_dict()
    assert other["zero_optimization"] == {"stage": 2, "reduce_bucket_size": 5e8}
    assert own["zero_optimization"] == {"bucket_cap_mb": 25, "reduce_bucket_size": 5e8}


def test_a_candidate_with_further_knobs_is_read_back_as_itself() -> None:
    document = {"zero_optimization": {"stage": [3, 2]}, "autotuning": {"fast": False}}
    layout = dataclasses.replace(read(document).baseline.layout, zero_stage=3)
    candidate = Candidate(layout=layout, extras=(("blocks_per_unit", 2), ("forward_prefetch", 1)))
    made = BuiltinDialect().render(candidate, source(document), "c").config.to_dict()
    assert read(made).baseline == candidate


def search(section: object, world: int = 4, **autotuning: Any) -> dict[str, tuple[Any, ...]]:
    batch = {"gradient_accumulation_steps": 4}
    given = source({"parallelism": section, "autotuning": autotuning, **batch})
    user = BuiltinDialect().read(given, world_size=world)
    return {choice.knob: choice.values for choice in user.choices if choice.values}


DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")


def test_all_opens_every_degree_that_the_runtime_applies() -> None:
    found = search("all")
    assert {name: found[name] for name in DEGREES} == dict.fromkeys(DEGREES, (1, 2, 4))
    assert "virtual_pipeline" not in found


def test_the_further_keys_of_a_family_are_searched_with_it_where_it_is_not_fast() -> None:
    found = search({"pipeline": "all"}, fast=False)
    assert found["virtual_pipeline"] == (1, 2)
    assert found["pipeline_schedule"] == (None, "gpipe")
    assert "sequence_parallel" not in found


def test_the_keys_of_parallelism_are_searched_by_lists() -> None:
    found = search(
        {
            "pipeline": [2, 1],
            "pipeline_schedule": ["1f1b", "gpipe"],
            "pipeline_split": [[1, 3], [2, 2]],
        }
    )
    assert found["pipeline_parallel"] == (2, 1)
    assert found["pipeline_schedule"] == ("1f1b", "gpipe")
    assert found["pipeline_split"] == ((1, 3), (2, 2))


@pytest.mark.parametrize(
    ("section", "knob", "value"),
    [
        ({"pipeline": [1, 2], "pipeline_schedule": "gpipe"}, "pipeline_schedule", "gpipe"),
        ({"pipeline": [1, 2], "virtual_pipeline": 2}, "virtual_pipeline", 2),
        ({"tensor": [1, 2], "sequence_parallel": True}, "sequence_parallel", True),
    ],
)
def test_a_key_stays_though_the_first_degree_listed_cannot_have_it(
    section: dict[str, Any], knob: str, value: object
) -> None:
    assert search(section)[knob] == (value,)


def test_a_split_is_one_value() -> None:
    assert search({"pipeline": 2, "pipeline_split": [1, 3]})["pipeline_split"] == ((1, 3),)


def test_a_family_of_a_tuning_space_file_is_searched_though_it_is_fast() -> None:
    user = read(
        {"parallelism": "all"},
        space='{native: {parallelism: {tensor: "all", sequence_parallel: [false, true]}}}',
    )
    assert choice(user, "sequence_parallel").values == (False, True)


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ("{parallelism: {tensr: 'all'}}", "my.hjson: parallelism.tensr is unknown; did you mean"),
        ("{parallelism: {sequence_parallel: [true]}}", "beside the degree that it is for"),
        ("{parallelism: [1]}", "must be a section"),
    ],
)
def test_a_wrong_family_of_a_tuning_space_is_refused(space: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read({"parallelism": "all"}, space=space)


def test_a_candidate_is_written_with_all_of_its_parallelism() -> None:
    layout = Layout(
        tensor_parallel=2,
        pipeline_parallel=2,
        sequence_parallel=True,
        pipeline_split=(1, 3),
        zero_stage=1,
        accumulation=4,
    )
    extras = (("pipeline_schedule", "gpipe"),)
    candidate = Candidate(layout=layout, extras=extras)
    document = document_of(RawConfig({}), candidate)
    found = resolve(document, world_size=4)
    assert Candidate(layout=found.layout, extras=found.extras) == candidate


def test_what_a_candidate_lacks_of_parallelism_leaves_the_document() -> None:
    given = {
        "parallelism": {"pipeline": 2, "pipeline_schedule": "gpipe", "pipeline_split": [1, 3]}
    }
    document = document_of(RawConfig(given), Candidate(layout=Layout()))
    assert document.to_dict()["parallelism"] == {"pipeline": 1}


def test_recomputed_layers_are_searched_with_full_recomputation_alone() -> None:
    section = {"mode": ["none", "full"], "layers": [1, 2]}
    given = source({"activation_checkpointing": section})
    user = BuiltinDialect().read(given, world_size=2)
    assert user.baseline.extras == ()
    assert choice(user, "recompute_layers").values == (1, 2)
    full = dataclasses.replace(user.baseline.layout, recompute=Recompute.FULL)
    candidate = Candidate(layout=full, extras=(("recompute_layers", 2),))
    document = BuiltinDialect().render(candidate, given, "c").config.to_dict()
    assert document["activation_checkpointing"] == {"mode": "full", "layers": 2}
    document = BuiltinDialect().render(user.baseline, given, "c").config.to_dict()
    assert document["activation_checkpointing"] == {"mode": "none"}


def test_layers_without_full_recomputation_are_refused() -> None:
    with pytest.raises(ConfigError, match=r'is 2, but .*mode is "none"'):
        read({"activation_checkpointing": {"layers": 2}})


def test_uneven_micro_batches_are_one_value_and_several_are_searched() -> None:
    assert read({"parallelism": {"micro_batch_split": [5, 3]}}).baseline.layout.micro_batch == 4
    user = read({"parallelism": {"micro_batch_split": [[5, 3], [6, 2]]}})
    assert choice(user, "micro_batch_split").values == ((5, 3), (6, 2))


@pytest.mark.parametrize(
    "section",
    [
        {"pipeline": [1, 2], "pipeline_schedule": "gpipe", "pipeline_split": [1, 3]},
        {"tensor": "all", "sequence_parallel": True},
    ],
)
def test_the_baseline_has_no_key_that_its_own_degree_leaves_idle(section: object) -> None:
    given = source({"parallelism": section})
    user = BuiltinDialect().read(given, world_size=4)
    assert user.baseline.layout == Layout(data_parallel=4)
    assert user.baseline.extras == ()
