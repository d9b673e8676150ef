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
from autoconf_launch.launcher.config_file import read_config, read_document
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

RANKS = 2
TRAINING = ("--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "2")


def source(folder: Path, block: str, *arguments: str) -> ScriptSource:
    path = folder / "ds_config.json"
    path.write_text(block)
    return find_source((*arguments, "--deepspeed", str(path)))


def read(folder: Path, block: str, *arguments: str) -> UserSettings:
    return BuiltinDialect().read(source(folder, block, *arguments), world_size=RANKS)


def space_of(user: UserSettings) -> SearchSpace:
    return build_space(user.baseline, user.choices, user.batch_rule, user.settings)


def choice(user: UserSettings, knob: str) -> KnobChoice:
    return next(choice for choice in user.choices if choice.knob == knob)


def arguments_of(folder: Path, block: str, *arguments: str) -> dict[str, str]:
    """Flags of the script in a trial with micro-batch 16 and accumulation 1."""
    trial = Candidate(layout=Layout(data_parallel=RANKS, micro_batch=16))
    rendered = BuiltinDialect().render(trial, source(folder, block, *arguments), "trial.json")
    return dict(zip(rendered.script_args[::2], rendered.script_args[1::2], strict=True))


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_can_be_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(BLOCKS[name])
    assert read_config(path).to_dict()


@pytest.mark.parametrize("name", BLOCKS)
def test_a_closing_brace_that_the_print_dropped_is_warned_of(tmp_path: Path, name: str) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(BLOCKS[name])
    warned = bool(read_document(path).warnings)
    assert warned == (name in ("one_mapping", "two_mappings"))


@pytest.mark.parametrize("name", sorted(BLOCKS.keys() - {"space_of_stage_1", "override"}))
def test_the_warning_reaches_the_user(tmp_path: Path, name: str) -> None:
    warnings = read(tmp_path, BLOCKS[name], *TRAINING).warnings
    dropped = [warning for warning in warnings if "closing brace" in warning]
    assert len(dropped) == (name in ("one_mapping", "two_mappings"))


def test_a_mapped_argument_is_the_baselines_micro_batch(tmp_path: Path) -> None:
    layout = read(tmp_path, ONE_MAPPING, *TRAINING).baseline.layout
    assert (layout.micro_batch, layout.accumulation) == (8, 1)


def test_a_mapped_argument_gets_the_trials_micro_batch(tmp_path: Path) -> None:
    flags = arguments_of(tmp_path, ONE_MAPPING, *TRAINING)
    assert flags["--per_device_train_batch_size"] == "16"
    assert flags["--gradient_accumulation_steps"] == "2"


def test_a_mapping_whose_key_has_a_blank_is_read_and_written(tmp_path: Path) -> None:
    layout = read(tmp_path, TWO_MAPPINGS, *TRAINING).baseline.layout
    flags = arguments_of(tmp_path, TWO_MAPPINGS, *TRAINING)
    assert (layout.micro_batch, layout.accumulation) == (8, 2)
    assert flags["--gradient_accumulation_steps"] == "1"


def test_the_training_gets_the_value_and_no_mappings(tmp_path: Path) -> None:
    baseline = read(tmp_path, TWO_MAPPINGS, *TRAINING).baseline
    script = source(tmp_path, TWO_MAPPINGS, *TRAINING)
    rendered = BuiltinDialect().render(baseline, script, "trial.json")
    assert rendered.config.to_dict() == {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 2,
    }


def test_listed_stages_limit_the_exploration(tmp_path: Path) -> None:
    assert choice(read(tmp_path, STAGES_2_AND_3), "zero_stage").values == (2, 3)


@pytest.mark.parametrize("name", ["one_mapping", "auto", "maximum", "listed", "defaults"])
def test_without_a_zero_section_stages_0_to_3_are_explored(tmp_path: Path, name: str) -> None:
    assert choice(read(tmp_path, BLOCKS[name], *TRAINING), "zero_stage").values == (0, 1, 2, 3)


def test_a_number_is_the_minimum_and_the_argument_is_ignored(tmp_path: Path) -> None:
    user = read(tmp_path, MINIMUM_OF_4, *TRAINING)
    assert choice(user, "micro_batch") == KnobChoice("micro_batch", (4,), ChoiceKind.MINIMUM)
    assert user.baseline.layout.micro_batch == 4


def test_mappings_at_the_top_level_count(tmp_path: Path) -> None:
    assert arguments_of(tmp_path, MINIMUM_OF_4, *TRAINING)["--per_device_train_batch_size"] == "16"


@pytest.mark.parametrize("block", [AUTO, HUGGING_FACE], ids=["auto", "hugging_face"])
def test_auto_is_the_value_of_the_mapped_argument(tmp_path: Path, block: str) -> None:
    user = read(tmp_path, block, *TRAINING)
    assert choice(user, "micro_batch") == KnobChoice("micro_batch", (8,), ChoiceKind.MINIMUM)
    assert user.baseline.layout.accumulation == 2


@pytest.mark.parametrize("block", [AUTO, HUGGING_FACE], ids=["auto", "hugging_face"])
def test_auto_without_its_argument_is_1(tmp_path: Path, block: str) -> None:
    layout = read(tmp_path, block).baseline.layout
    assert (layout.micro_batch, layout.accumulation) == (1, 1)


def test_a_maximum_lets_the_global_batch_grow_to_it(tmp_path: Path) -> None:
    found = space_of(read(tmp_path, MAXIMUM, "--per_device_train_batch_size", "1"))
    assert found.table.global_batch_C.max() == 1024
    assert found.table["micro_batch"].max() == 1024 // RANKS


def test_listed_micro_batches_are_used_with_the_accumulation_given(tmp_path: Path) -> None:
    user = read(tmp_path, LISTED)
    table = space_of(user).table
    sizes, times = table["micro_batch"].tolist(), table["accumulation"].tolist()
    tried = {(1, 2), *zip(sizes, times, strict=True)}
    assert tried == {(1, 2), (4, 2), (16, 2)}
    assert any("so the global batch varies" in note for note in user.notes)


def test_a_maximum_constrains_listed_micro_batches(tmp_path: Path) -> None:
    block = LISTED.replace("2\n}", '2, "autotuning": {"max_train_batch_size": 16}}')
    assert set(space_of(read(tmp_path, block)).table["micro_batch"].tolist()) == {1, 4}


def test_a_list_of_one_fixes_the_micro_batch(tmp_path: Path) -> None:
    assert set(space_of(read(tmp_path, FIXED_AT_4)).table["micro_batch"].tolist()) == {4}


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


def test_the_default_space_of_stage_1_has_9_combinations(tmp_path: Path) -> None:
    rows = deepspeed_rows(tmp_path, '{"zero_optimization": {"stage": 1}}')
    assert len([row for row in rows if row]) == 9


def test_an_override_leaves_2_combinations(tmp_path: Path) -> None:
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
    assert parse_settings(documented) == AutotuningSettings()


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
