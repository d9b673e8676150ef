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

from .sources import facts_of, require_facts

MICRO, STEPS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
ZERO = "zero_optimization"
ANY: dict[str, Any] = {"allow_global_batch_change": True}
NO_STAGE: tuple[dict[str, Any], ...] = ({MICRO: 1}, {ZERO: "all"}, {ZERO: {}})


def source(document: dict[str, Any], *arguments: str, space: str = "") -> ScriptSource:
    file = SpaceFile(name="my.hjson", document=RawConfig(hjson.loads(space))) if space else None
    return ScriptSource(
        script_args=arguments, config=RawConfig(document), config_argument=None, space=file
    )


def read(
    document: dict[str, Any], *arguments: str, space: str = "", ranks: int = 2, **words: Any
) -> UserSettings:
    given = source(document, *arguments, space=space)
    given = dataclasses.replace(given, words=UserWords(**words))
    return BuiltinDialect().read(given, world_size=ranks)


def render(document: dict[str, Any], *arguments: str, **layout: Any) -> dict[str, Any]:
    """The document of a candidate that differs from the baseline only in its layout."""
    changed = dataclasses.replace(read(document, *arguments).baseline.layout, **layout)
    candidate = Candidate(layout=changed, extras=())
    return BuiltinDialect().render(candidate, source(document, *arguments), "c").config.to_dict()


def choice(user: UserSettings, knob: str) -> KnobChoice:
    return next(choice for choice in user.choices if choice.knob == knob)


def sizes_of(values: list[int], **more: Any) -> dict[str, Any]:
    return {MICRO: values, **more}


PIPES = {"pipeline": [1, 2], "pipeline_schedule": "gpipe", "pipeline_split": [1, 3]}


@pytest.mark.parametrize(
    ("document", "facts"),
    [
        (
            {"activation_checkpointing": {"mode": ["none", "full"]}},
            {"recompute?": (Recompute.NONE, Recompute.FULL)},
        ),
        (
            {"train_batch_size": 32, "autotuning": {"max_train_batch_size": 64}},
            {"pinned": 32, "maximum": None},
        ),
        ({"autotuning": {"max_train_batch_size": 64}}, {"pinned": None, "maximum": 64}),
        ({MICRO: 3, STEPS: 4}, {"pinned": 24}),
        (sizes_of([1, 2, 4]), {"pinned": 2}),
        (sizes_of([4, 1]), {"pinned": 8}),
        (sizes_of([4]), {"pinned": 8}),
        (sizes_of([1, 2], **{STEPS: 3}), {"pinned": None, "accumulation?": (3,)}),
        (sizes_of([1, 2], train_batch_size=8), {"pinned": 8, "accumulation": 4}),
        ({}, {"tensor_parallel?": (), "sequence_parallel?": ()}),
        ({"parallelism": "all"}, {"tensor_parallel?": (1, 2), "tensor_parallel": 1}),
        ({"parallelism": {"tensor": "all"}}, {"tensor_parallel?": (1, 2)}),
        (
            {"autotuning": {"mp_size": 2}, "parallelism": "all"},
            {"tensor_parallel": 2, "tensor_parallel?": ()},
        ),
        ({"parallelism": {"micro_batch_split": [5, 3]}}, {"micro_batch": 4}),
        (
            {"parallelism": {"micro_batch_split": [[5, 3], [6, 2]]}},
            {"micro_batch_split?": ((5, 3), (6, 2))},
        ),
        (
            {ZERO: {"stage": 2}, "autotuning": {"fast": False}},
            {"2blocks_per_unit?": (None, 2, 4), "2forward_prefetch?": (None, 1, 2)},
        ),
        (
            {ZERO: {"bucket_cap_mb": [25, 5]}},
            {
                "0bucket_cap_mb?": (25, 5),
                "1bucket_cap_mb?": (25, 5),
                "2bucket_cap_mb?": None,
                "bucket_cap_mb": 25,
            },
        ),
        ({ZERO: {"stage": [2, 1], "bucket_cap_mb": 25}}, {"extras": ()}),
        (
            {"activation_checkpointing": {"mode": ["none", "full"], "layers": [1, 2]}},
            {"extras": (), "recompute_layers?": (1, 2)},
        ),
    ],
)
def test_a_document_says_what_is_searched_and_how_its_batch_may_change(
    document: dict[str, Any], facts: dict[str, Any]
) -> None:
    require_facts(read(document), **facts)


@pytest.mark.parametrize("document", [{}, {MICRO: [1, 2]}])
def test_the_flag_lets_the_global_batch_change(document: dict[str, Any]) -> None:
    require_facts(read(document, **ANY), pinned=None, maximum=None)


@pytest.mark.parametrize(
    ("document", "knob", "values", "how"),
    [
        *(
            (document, "zero_stage", (0, 1, 2, 3), ChoiceKind.FREE)
            for document in (*NO_STAGE, {ZERO: {"stage": "all"}})
        ),
        ({ZERO: {"stage": [2, 3]}}, "zero_stage", (2, 3), ChoiceKind.LISTED),
        ({ZERO: {"stage": 1}}, "zero_stage", (1,), ChoiceKind.PINNED),
        ({MICRO: 4}, "micro_batch", (4,), ChoiceKind.MINIMUM),
    ],
)
def test_a_list_limits_the_search_and_a_number_pins_it_or_is_the_least(
    document: dict[str, Any], knob: str, values: tuple[int, ...], how: ChoiceKind
) -> None:
    user = read(document)
    assert choice(user, knob) == KnobChoice(knob, values, how)
    assert facts_of(user)[knob] == values[0]


@pytest.mark.parametrize(
    ("arguments", "micro"),
    [(("--per_device_batch", "8"), 8), (("--per_device_batch=8",), 8), ((), 1)],
)
def test_auto_is_the_mapped_value_of_the_command_line_which_follows_the_candidate(
    arguments: tuple[str, ...], micro: int
) -> None:
    mapped = {f"{MICRO} ": " --per_device_batch"}  # blanks as in a documented block
    document = {MICRO: "auto", "autotuning": {"arg_mappings": mapped}}
    baseline = read(document, *arguments).baseline
    assert baseline.layout.micro_batch == micro
    bigger = dataclasses.replace(baseline.layout, micro_batch=6)
    script = source(document, *arguments, "--lr", "1")
    made = BuiltinDialect().render(dataclasses.replace(baseline, layout=bigger), script, "c")
    if arguments:
        changed = tuple(word.replace("8", "6") for word in arguments)
        assert made.script_args == (*changed, "--lr", "1")


def test_a_flag_outweighs_the_section() -> None:
    document = {"autotuning": {"tuner_type": "random"}}
    user = read(document, overrides=(("tuner_type", "gridsearch"),))
    assert user.settings.tuner_type == "gridsearch"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"autotuning": {"tuner_num_trial": 3}}, "did you mean 'tuner_num_trials'"),
        ({"autotuning": {"metric": "speed"}}, "autotuning.metric is 'speed'"),
        ({"autotuning": {"start_profile_step": 9}}, "end_profile_step is 5"),
        ({ZERO: {"stage": []}}, "empty list"),
        ({ZERO: {"stage": [0, 7]}}, "stages 0 to 3"),
        ({MICRO: [1, "x"]}, "at least 1"),
        ({STEPS: [1, 2]}, "is not searched by itself"),
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
        ({ZERO: {"reduce_bucket_size": [1, 2]}}, "no such knob"),
        (
            {ZERO: {"offload_param": {"device": ["none", "cpu"]}}},
            "offload_param.device is .* cannot offload",
        ),
        ({ZERO: {"stage": 2, "bucket_cap_mb": 5}}, "bucket_cap_mb is 5 in"),
        ({ZERO: {"stage": [2, 3], "bucket_cap_mb": [5]}}, "not stage 3"),
        ({ZERO: {"stage": "some"}}, "stage is 'some'"),
        ({"activation_checkpointing": {"layers": 2}}, r'is 2, but .*mode is "none"'),
    ],
)
def test_what_cannot_be_searched_is_refused_with_its_key(
    document: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        read(document)


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


def test_betas_are_one_value_and_auto_elsewhere_is_the_mapped_value_or_left_out() -> None:
    document = {
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}},
        "autotuning": {"arg_mappings": {"lr": "--learning_rate"}},
    }
    found = render(document, "--learning_rate", "2e-5")
    assert found["optimizer"]["params"] == {"lr": 2e-5, "betas": [0.9, 0.95]}
    assert "gradient_clipping" not in found


def test_a_tuning_space_is_searched_in_fast_mode_too() -> None:
    space = "{native: {zero_optimization: {stage: 3, blocks_per_unit: [2, 4]}}}"
    require_facts(read({}, space=space), **{"3blocks_per_unit?": (2, 4), "forward_prefetch": None})
    space = '{native: {parallelism: {tensor: "all", sequence_parallel: [false, true]}}}'
    found = read({"parallelism": "all"}, space=space)
    require_facts(found, **{"sequence_parallel?": (False, True)})


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


def test_a_knob_stands_in_the_document_of_those_candidates_alone_that_have_it() -> None:
    document = {ZERO: {"bucket_cap_mb": [25, 5], "reduce_bucket_size": 5e8}}
    assert render(document, zero_stage=2)[ZERO] == {"stage": 2, "reduce_bucket_size": 5e8}
    baseline = read(document).baseline
    own = BuiltinDialect().render(baseline, source(document), "c").config.to_dict()
    assert own[ZERO] == {"bucket_cap_mb": 25, "reduce_bucket_size": 5e8}


def test_a_candidate_with_further_knobs_is_read_back_as_itself() -> None:
    document = {ZERO: {"stage": [3, 2]}, "autotuning": {"fast": False}}
    layout = dataclasses.replace(read(document).baseline.layout, zero_stage=3)
    candidate = Candidate(layout=layout, extras=(("blocks_per_unit", 2), ("forward_prefetch", 1)))
    made = BuiltinDialect().render(candidate, source(document), "c").config.to_dict()
    assert read(made).baseline == candidate


DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")


@pytest.mark.parametrize(
    ("section", "fast", "facts"),
    [
        ("all", True, {**{f"{name}?": (1, 2, 4) for name in DEGREES}, "virtual_pipeline?": ()}),
        (
            {"pipeline": "all"},
            False,
            {
                "virtual_pipeline?": (1, 2),
                "pipeline_schedule?": (None, "gpipe"),
                "sequence_parallel?": (),
            },
        ),
        (
            {
                "pipeline": [2, 1],
                "pipeline_schedule": ["1f1b", "gpipe"],
                "pipeline_split": [[1, 3], [2, 2]],
            },
            True,
            {
                "pipeline_parallel?": (2, 1),
                "pipeline_schedule?": ("1f1b", "gpipe"),
                "pipeline_split?": ((1, 3), (2, 2)),
            },
        ),
        ({"pipeline": 2, "pipeline_split": [1, 3]}, True, {"pipeline_split?": ((1, 3),)}),
        # keys that the first degree listed cannot have stay, and its baseline has none of them
        (PIPES, True, {"pipeline_schedule?": ("gpipe",), "extras": (), "pipeline_split": None}),
        ({"pipeline": [1, 2], "virtual_pipeline": 2}, True, {"virtual_pipeline?": (2,)}),
        ({"tensor": [1, 2], "sequence_parallel": True}, True, {"sequence_parallel?": (True,)}),
        (
            {"tensor": "all", "sequence_parallel": True},
            True,
            {"data_parallel": 4, "sequence_parallel": False},
        ),
    ],
)
def test_degrees_are_searched_by_lists_with_the_keys_of_their_family(
    section: object, fast: bool, facts: dict[str, Any]
) -> None:
    document = {"parallelism": section, "autotuning": {"fast": fast}, STEPS: 4}
    require_facts(read(document, ranks=4), **facts)


def test_a_candidate_is_written_with_all_of_its_parallelism_and_no_other() -> None:
    layout = Layout(
        tensor_parallel=2,
        pipeline_parallel=2,
        sequence_parallel=True,
        pipeline_split=(1, 3),
        zero_stage=1,
        accumulation=4,
    )
    candidate = Candidate(layout=layout, extras=(("pipeline_schedule", "gpipe"),))
    found = resolve(document_of(RawConfig({}), candidate), world_size=4)
    assert Candidate(layout=found.layout, extras=found.extras) == candidate
    given = RawConfig({"parallelism": {**PIPES, "pipeline": 2}})
    written = document_of(given, Candidate(layout=Layout())).to_dict()
    assert written["parallelism"] == {"pipeline": 1}


def test_recomputed_layers_stand_beside_full_recomputation_alone() -> None:
    section = {"mode": ["none", "full"], "layers": [1, 2]}
    given = source({"activation_checkpointing": section})
    none = BuiltinDialect().read(given, world_size=2).baseline
    full = dataclasses.replace(none.layout, recompute=Recompute.FULL)
    for candidate, written in (
        (Candidate(layout=full, extras=(("recompute_layers", 2),)), {"mode": "full", "layers": 2}),
        (none, {"mode": "none"}),
    ):
        document = BuiltinDialect().render(candidate, given, "c").config.to_dict()
        assert document["activation_checkpointing"] == written
