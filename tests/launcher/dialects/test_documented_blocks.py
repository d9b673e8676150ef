"""Each JSON block of the DeepSpeed Autotuning page, as it is printed there, does what it says."""

from __future__ import annotations

from pathlib import Path

import hjson
import pytest

from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    SearchSpace,
    build_space,
    parse_settings,
)
from autoconf_launch.core import Candidate, ConfigError, KnobValue, Layout, RawConfig
from autoconf_launch.launcher.config_file import read_document
from autoconf_launch.launcher.dialects import BuiltinDialect
from autoconf_launch.launcher.launch import find_source
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import UserSettings
from autoconf_launch.tuning_spaces import (
    EXTERNAL_RULES,
    Section,
    ZeroSearch,
    default_space,
    given_knobs,
    parse_space,
    zero_choices,
)

from .documented_blocks import (
    AUTO,
    BLOCKS,
    DEFAULTS,
    FIXED_AT_4,
    HUGGING_FACE,
    LISTED,
    MAXIMUM,
    MINIMUM_OF_4,
    ONE_MAPPING,
    OVERRIDE,
    SPACE_OF_STAGE_1,
    STAGES_2_AND_3,
    TWO_MAPPINGS,
)
from .sources import require_facts

RANKS = 2
ALL = (0, 1, 2, 3)
TRAINING = ("--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "2")


def source(folder: Path, block: str, *arguments: str) -> ScriptSource:
    path = folder / "ds_config.json"
    path.write_text(block)
    return find_source((*arguments, "--deepspeed", str(path)))


def read(folder: Path, block: str, *arguments: str) -> UserSettings:
    return BuiltinDialect().read(source(folder, block, *arguments), world_size=RANKS)


def space_of(user: UserSettings) -> SearchSpace:
    return build_space(user.baseline, user.choices, user.batch_rule, user.settings)


def arguments_of(folder: Path, block: str, *arguments: str) -> dict[str, str]:
    """Flags of the script in a trial with micro-batch 16 and accumulation 1."""
    trial = Candidate(layout=Layout(data_parallel=RANKS, micro_batch=16))
    rendered = BuiltinDialect().render(trial, source(folder, block, *arguments), "trial.json")
    return dict(zip(rendered.script_args[::2], rendered.script_args[1::2], strict=True))


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_is_read_with_a_warning_if_the_print_dropped_a_brace(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(BLOCKS[name])
    document = read_document(path)
    assert document.config.to_dict()
    is_torn = name in ("one_mapping", "two_mappings")
    assert bool(document.warnings) is is_torn
    if name not in ("space_of_stage_1", "override"):
        warnings = " ".join(read(tmp_path, BLOCKS[name], *TRAINING).warnings)
        assert ("closing brace" in warnings) is is_torn


@pytest.mark.parametrize(
    ("block", "arguments", "facts"),
    [
        (ONE_MAPPING, TRAINING, {"micro_batch": 8, "accumulation": 1, "zero_stage?": ALL}),
        (TWO_MAPPINGS, TRAINING, {"micro_batch": 8, "accumulation": 2}),
        (STAGES_2_AND_3, (), {"zero_stage?": (2, 3)}),
        (MINIMUM_OF_4, TRAINING, {"micro_batch": 4, "micro_batch?": (4,)}),
        *(
            (block, arguments, {"micro_batch": micro, "accumulation": steps, "zero_stage?": ALL})
            for block in (AUTO, HUGGING_FACE)
            for arguments, micro, steps in ((TRAINING, 8, 2), ((), 1, 1))
        ),
        *((block, TRAINING, {"zero_stage?": ALL}) for block in (MAXIMUM, LISTED, DEFAULTS)),
    ],
)
def test_a_block_says_what_the_page_says(
    tmp_path: Path, block: str, arguments: tuple[str, ...], facts: dict[str, object]
) -> None:
    require_facts(read(tmp_path, block, *arguments), **facts)


@pytest.mark.parametrize(
    ("block", "steps"), [(ONE_MAPPING, "2"), (TWO_MAPPINGS, "1"), (MINIMUM_OF_4, "2")]
)
def test_a_mapped_argument_gets_the_trials_value_and_others_stay(
    tmp_path: Path, block: str, steps: str
) -> None:
    flags = arguments_of(tmp_path, block, *TRAINING)
    assert flags["--per_device_train_batch_size"] == "16"
    assert flags["--gradient_accumulation_steps"] == steps


def test_the_training_gets_the_value_and_no_mappings(tmp_path: Path) -> None:
    baseline = read(tmp_path, TWO_MAPPINGS, *TRAINING).baseline
    script = source(tmp_path, TWO_MAPPINGS, *TRAINING)
    rendered = BuiltinDialect().render(baseline, script, "trial.json")
    assert rendered.config.to_dict() == {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 2,
    }


@pytest.mark.parametrize(
    ("block", "arguments", "sizes"),
    [
        (LISTED, (), {(1, 2), (4, 2), (16, 2)}),
        (
            LISTED.replace("2\n}", '2, "autotuning": {"max_train_batch_size": 16}}'),
            (),
            {(1, 2), (4, 2)},
        ),
        (FIXED_AT_4, (), {(4, 1)}),
        (MAXIMUM, ("--per_device_train_batch_size", "1"), None),
    ],
)
def test_micro_batches_of_a_block_are_searched_up_to_its_maximum(
    tmp_path: Path, block: str, arguments: tuple[str, ...], sizes: set[tuple[int, int]] | None
) -> None:
    user = read(tmp_path, block, *arguments)
    table = space_of(user).table
    if sizes is None:
        assert table.global_batch_C.max() == 1024
        assert table["micro_batch"].max() == 1024 // RANKS
        return
    own = (user.baseline.layout.micro_batch, user.baseline.layout.accumulation)
    pairs = zip(table["micro_batch"].tolist(), table["accumulation"].tolist(), strict=True)
    assert {own, *pairs} == sizes
    assert block != LISTED or any("so the global batch varies" in note for note in user.notes)


def test_the_documented_space_of_stage_1_is_the_one_shipped() -> None:
    documented = parse_space(
        RawConfig(hjson.loads(SPACE_OF_STAGE_1)), Section.DEEPSPEED, "zero_1.hjson"
    )
    shipped = default_space(Section.DEEPSPEED)
    assert documented == tuple(knob for knob in shipped if knob.stages == (1,))


def deepspeed_rows(folder: Path, block: str) -> list[dict[str, KnobValue]]:
    """Further knobs that full mode explores at stage 1 for a script on DeepSpeed."""
    search = ZeroSearch(
        stages=(1,),
        given=given_knobs(source(folder, block).config),
        default=default_space(Section.DEEPSPEED),
    )
    baseline = Candidate(layout=Layout(zero_stage=1, micro_batch=9, data_parallel=RANKS))
    choices = (
        KnobChoice("micro_batch", (1,), ChoiceKind.LISTED),
        *zero_choices(search, EXTERNAL_RULES),
    )
    rule = GlobalBatchRule(pinned=baseline.layout.global_batch)
    space = build_space(baseline, choices, rule, AutotuningSettings())
    return [dict(space.table.row(i).extras) for i in range(len(space.table))]


def test_the_default_space_of_stage_1_has_9_combinations_and_an_override_2(
    tmp_path: Path,
) -> None:
    rows = deepspeed_rows(tmp_path, '{"zero_optimization": {"stage": 1}}')
    assert len([row for row in rows if row]) == 9
    assert deepspeed_rows(tmp_path, OVERRIDE) == [
        {"reduce_bucket_size": 50_000_000, "allgather_bucket_size": 500_000_000},
        {"reduce_bucket_size": 500_000_000, "allgather_bucket_size": 500_000_000},
    ]


@pytest.mark.parametrize("block", [OVERRIDE, SPACE_OF_STAGE_1])
def test_our_runtime_refuses_to_search_what_it_does_not_have(tmp_path: Path, block: str) -> None:
    with pytest.raises(ConfigError, match=r"_bucket_size is a list to search, but this runtime"):
        read(tmp_path, block)


def test_the_documented_defaults_are_ours(tmp_path: Path) -> None:
    documented = source(tmp_path, DEFAULTS).config.get(("autotuning",))
    ours = AutotuningSettings()
    assert parse_settings(documented) == AutotuningSettings(tuner_early_stopping=ours.patience)


@pytest.mark.parametrize("metric", ["latency", "throughput", "FLOPS"])
def test_the_documented_metrics_can_be_chosen(metric: str) -> None:
    assert parse_settings({"metric": metric}).metric == metric


@pytest.mark.parametrize("tuner", ["random", " gridsearch", "model_based"])
def test_the_documented_tuners_can_be_chosen_as_they_are_printed(tuner: str) -> None:
    assert parse_settings({"tuner_type": tuner}).tuner_type == tuner.strip()


def test_the_other_names_of_the_documentation_are_read() -> None:
    section = {"args_mapping": {"a": "--a"}, "start_step": 4, "end_step": 6}
    settings = parse_settings(section)
    assert settings.arg_mappings == {"a": "--a"}
    assert (settings.start_profile_step, settings.end_profile_step) == (4, 6)


def test_two_names_of_one_setting_must_agree() -> None:
    with pytest.raises(ConfigError, match=r"autotuning.end_step and another name"):
        parse_settings({"end_profile_step": 5, "end_step": 6})
