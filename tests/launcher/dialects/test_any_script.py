from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.core import ConfigError, Recompute
from autoconf_launch.launcher.dialects.any_script import ArgumentsDialect
from autoconf_launch.launcher.script import NamedFile, ScriptSource
from autoconf_launch.launcher.spelling import Rendered, TrialNeeds, on_no_batch

from .sources import allowing, layout, render_with, require_facts, say_of, script, strategy_of

DIALECT = ArgumentsDialect()
DECLARES = 'p.add_argument("-b", "--batch-size", type=int, default=64)\n'
PARSER = "import argparse\np = argparse.ArgumentParser()\n"
SWITCH = 'p.add_argument("--compile", action="store_true")'
NANO = """
batch_size = 12
gradient_accumulation_steps = 5 * 8
exec(open("configurator.py").read())
gradient_accumulation_steps //= ddp_world_size
"""


def micro_batch(source: ScriptSource, ranks: int = 1) -> int:
    user = DIALECT.read(allowing(source), world_size=ranks)
    return user.baseline.layout.micro_batch


def change(source: ScriptSource, micro: int, ranks: int = 1) -> tuple[str, ...]:
    """The script's arguments with another micro-batch."""
    user = DIALECT.read(allowing(source), world_size=ranks)
    return DIALECT.render(layout(user, micro_batch=micro), source, "c").script_args


def with_extras(source: ScriptSource, **extras: Any) -> Rendered:
    """The baseline with other values of knobs."""
    baseline = DIALECT.read(source, world_size=1).baseline
    return DIALECT.render(replace(baseline, extras=tuple(extras.items())), source, "c")


@pytest.mark.parametrize(
    "line",
    [
        "--batch_size 8",
        "--batch-size=8",
        "train.batch_size=8",
        "--trainer.batch_size=8",
        "--per_device_train_batch_size 8 --per_device_eval_batch_size 3",
        "--test-batch-size 3 --batch-size 8",
        "--train.global_batch_size 64 --train.micro_batch_size 8",
        "--bs=8 data.val.batch_size=3",
        "--batchSize 8",
        "+trainer.batchSize=8",
        "SOLVER.BATCH_SIZE=8",
        "--trainBatchSize=8 --valBatchSize=3",
    ],
)
def test_common_names_are_recognised(line: str) -> None:
    assert micro_batch(script(*line.split())) == 8


def test_what_is_recognised_is_said() -> None:
    user = DIALECT.read(script("--bsz=8", "--grad_accum=2"), world_size=1)
    names = [text.removeprefix("Using ").partition(" as ")[0] for text in user.notes]
    assert names == ["--bsz", "--grad_accum"]
    assert not any("Using" in text for text in user.warnings)


FIRE = "import fire\ndef train(lr=1): ...\ndef load(batch_size=8): ...\nfire.Fire(train)"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--test-batch-size 8", ""),
        ("-vb 8", ""),
        ("--per_device_eval_batch_size=8", ""),
        ("val.batch_size=8", ""),
        ("--seed 8", ""),
        ("", FIRE),  # parameters of other functions
    ],
)
def test_look_alikes_are_not(line: str, text: str) -> None:
    assert not DIALECT.detects(script(*line.split(), text=text))


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("-b 16 -vb 3", "-b 32 -vb 3"),
        ("-b16 -vb3", "-b32 -vb3"),
        ("--batch 16", "--batch 32"),  # the beginning of a declared name
        ("--lr 1", "--lr 1 --batch-size 32"),
    ],
)
def test_a_declared_argument_is_known_by_any_of_its_names(line: str, changed: str) -> None:
    source = script(*line.split(), text=DECLARES)
    assert micro_batch(source) == (16 if "16" in line else 64)
    assert " ".join(change(source, 32)) == changed


def test_the_beginning_of_two_names_is_neither() -> None:
    text = DECLARES + 'p.add_argument("--batch-sizes")\n'
    assert micro_batch(script("--batch-siz", "16", text=text)) == 64


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("import fire\ndef train(batch_size=8): ...\nfire.Fire(train)", "--batch_size"),
        ("import fire\ndef train(*, batch_size=8): ...\nfire.Fire()", "--batch_size"),
        (
            "import typer\n@app.command()\ndef main(batch_size: int = 8): ...",
            "--batch-size",
        ),
        (
            "import typer\ndef main(n: int = typer.Option(8, '--bs')): ...\ntyper.run(main)",
            "--bs",
        ),
        (
            "import typer\n@app.command()\n"
            "def main(n: Annotated[int, typer.Option('--bs')] = 8): ...",
            "--bs",
        ),
        (
            "import jsonargparse\n@dataclass\nclass A:\n    batch_size: int = 8\n"
            "def setup(train: A = A()): ...\nCLI(setup)",
            "--train.batch_size",
        ),
        (
            "import tyro\n@dataclass\nclass A:\n    batch_size: int = 8\n"
            "@dataclass\nclass B:\n    train: 'A'\n    data: A\n"
            "def main(config: B): ...\nmain(tyro.cli(B))",
            "--data.batch_size",
        ),
        ("@click.option('--bs', default=8)\ndef main(bs): ...", "--bs"),
        ("flags.DEFINE_integer('batch_size', 8, 'of each rank')", "--batch_size"),
        ("import tyro\n@dataclass\nclass A:\n    batch_size: int = 8", "--batch_size"),
    ],
)
def test_defaults_are_read_wherever_a_command_line_is_made_of(text: str, added: str) -> None:
    assert change(script(text=text), 16) == (added, "16")


def test_a_variable_that_the_script_reads_is_its_argument() -> None:
    source = script(text='B = int(os.environ.get("BATCH_SIZE", "8"))')
    assert micro_batch(source) == 8
    user = DIALECT.read(allowing(source), world_size=1)
    made = DIALECT.render(layout(user, micro_batch=16), source, "c")
    assert (made.script_args, made.environment) == ((), (("BATCH_SIZE", "16"),))


def test_arguments_may_be_declared_in_a_module_of_the_script() -> None:
    assert micro_batch(script(text="from options import parser", modules=(DECLARES,))) == 64


def test_a_key_of_a_composed_configuration_is_set_by_a_word() -> None:
    source = script("lr=1", composed=(("val.batch_size", 3), ("trainer.batch_size", 8)))
    assert micro_batch(source) == 8
    assert change(source, 16) == ("lr=1", "trainer.batch_size=16")


@pytest.mark.parametrize(
    ("words", "composed", "added"),
    [
        ((), (), ("hydra.run.dir=trial/hydra",)),
        (("hydra.run.dir=runs",), (), ()),
        ((), (("hydra.run.dir", "./"),), ()),
    ],
)
def test_dated_folders_of_hydra_stand_below_the_trials(
    words: tuple[str, ...], composed: tuple[tuple[str, str], ...], added: tuple[str, ...]
) -> None:
    source = script("batch_size=8", *words, text="import hydra", composed=composed)
    user = DIALECT.read(allowing(source), world_size=1)
    made = DIALECT.render(user.baseline, source, "c")
    needs = TrialNeeds(folder="trial", steps=5)
    assert DIALECT.in_trial(made, source, needs).script_args == (*made.script_args, *added)


def test_a_given_word_outweighs_the_composed_key() -> None:
    source = script("trainer.batch_size=4", composed=(("trainer.batch_size", 8),))
    assert change(source, 16) == ("trainer.batch_size=16",)


def test_a_batch_that_is_passed_on_divided_is_for_all_ranks() -> None:
    text = DECLARES + "make_loader(batch_size=options.batch_size // WORLD_SIZE)"
    assert micro_batch(script("-b", "16", text=text), ranks=2) == 8


def test_a_batch_that_is_divided_by_the_accumulation_holds_it() -> None:
    text = DECLARES + (
        "p.add_argument('--accum_steps', type=int, default=1)\n"
        "args.batch_size = args.batch_size // args.accum_steps\n"
    )
    source = script("-b", "32", "--accum_steps=4", text=text)
    user = DIALECT.read(source, world_size=2)
    baseline = user.baseline.layout
    assert (baseline.micro_batch, baseline.accumulation, baseline.global_batch) == (8, 4, 64)
    kept = DIALECT.render(layout(user, micro_batch=16, accumulation=2), source, "c")
    assert kept.script_args == ("-b", "32", "--accum_steps=2")
    grown = DIALECT.render(layout(user, micro_batch=16), source, "c")
    assert grown.script_args == ("-b", "64", "--accum_steps=4")


def test_what_changes_is_told_against_the_default() -> None:
    source = script(text=DECLARES)
    user = DIALECT.read(allowing(source), world_size=1)
    made = DIALECT.render(layout(user, micro_batch=32), source, "c")
    assert made.before
    (edit,) = made.before.diff(made.config)
    assert (edit.path, edit.before, edit.after) == (("--batch-size",), 64, "32")


def test_names_of_an_executed_module_are_arguments_with_an_equals_sign() -> None:
    config = NamedFile(position=0, flag="", path="config/small.py", text="batch_size = 6")
    source = script("config/small.py", text=NANO, files=(config,))
    made = render_with(DIALECT, source, 2, micro_batch=3, accumulation=40)
    user = DIALECT.read(source, world_size=2)
    assert (user.baseline.layout.micro_batch, user.baseline.layout.accumulation) == (6, 20)
    assert made.script_args == (
        "config/small.py",
        "--batch_size=3",
        "--gradient_accumulation_steps=80",
    )


def test_a_mapped_argument_weighs_more_than_a_recognised_one() -> None:
    mapped = (("train_micro_batch_size_per_gpu", "--n"),)
    source = say_of(script("--batch_size=8", "--n", "3"), arguments=mapped)
    assert micro_batch(source) == 3
    assert DIALECT.read(allowing(source), world_size=1).notes == ()


def test_an_argument_that_is_mapped_to_the_global_batch_is_for_all_ranks() -> None:
    source = say_of(script("-b", "32"), arguments=(("train_batch_size", "-b"),))
    assert micro_batch(source, ranks=4) == 8
    assert change(source, 16, ranks=4) == ("-b", "64")


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        (("train_micro_batch_size_per_gpu", "--nope"), "--nope is mapped to train_micro"),
        (("train_micro_batch", "--lr"), "did you mean 'train_micro_batch_size_per_gpu'"),
    ],
)
def test_a_mapping_without_a_value_is_refused(mapping: tuple[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DIALECT.read(say_of(script("--lr", "1"), arguments=(mapping,)), world_size=1)


PARSES = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--batch_size", type=int)
p.add_argument("--workers", type=int, default=0)
{}
p.parse_args()
"""


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("--wrkers", "--workers"),
        ("wrkers", "--workers"),
        ("train_micro_batch", "train_micro_batch_size_per_gpu"),
    ],
)
def test_a_knob_that_the_parser_does_not_know_is_refused(name: str, meant: str) -> None:
    source = say_of(script("--batch_size=8", text=PARSES.format("")), knobs=((name, (0, 2)),))
    with pytest.raises(ConfigError, match=f"{name}, which .* does not take; .* '{meant}'"):
        DIALECT.read(source, world_size=1)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("workers", ""),
        ("OMP_PROC_BIND", ""),
        ("loader.workers", 'p.add_argument("overrides", nargs="*")'),
    ],
)
def test_a_knob_that_the_script_may_take_is_searched(name: str, line: str) -> None:
    source = say_of(script("--batch_size=8", text=PARSES.format(line)), knobs=((name, (1, 2)),))
    assert name in {choice.knob for choice in DIALECT.read(source, world_size=1).choices}


REMAT = 'p.add_argument("--remat", action=BooleanOptionalAction, default=True)'


@pytest.mark.parametrize(
    ("source", "knob", "values", "facts"),
    [
        (script("--bs=8", "--workers", "1"), "--workers", (0, 2), {"workers?": (1, 0, 2)}),
        (script("--bs=8"), "OMP_X", ("true", "close"), {"OMP_X?": (None, True, "close")}),
        (script("--bs=8", text=REMAT), "--remat", (True, False), {"remat": True}),
        (script("--bs=8", "--no-remat", text=REMAT), "--remat", (True, False), {"remat": False}),
        (script("--bs=8", "--remat", text=REMAT), "--remat", (True, False), {"remat": True}),
    ],
)
def test_own_knobs_are_searched_beside_the_value_of_today_if_there_is_one(
    source: ScriptSource, knob: str, values: tuple[Any, ...], facts: dict[str, Any]
) -> None:
    source = say_of(source, knobs=((knob, values),))
    require_facts(DIALECT.read(source, world_size=1), **facts)


@pytest.mark.parametrize(
    ("text", "given", "knob", "value", "words"),
    [
        (SWITCH, (), "compile", True, ("--compile",)),
        (SWITCH, (), "compile", False, ()),
        (REMAT, (), "remat", False, ("--no-remat",)),
        (REMAT, ("--no-remat",), "remat", True, ("--remat",)),
        (REMAT, ("--remat",), "remat", False, ("--no-remat",)),
    ],
)
def test_a_switch_is_given_or_not_and_a_switch_with_an_opposite_is_named(
    text: str, given: tuple[str, ...], knob: str, value: bool, words: tuple[str, ...]
) -> None:
    source = script("--bs=8", *given, text=text)
    source = say_of(source, knobs=((f"--{knob}", (False, True)),))
    assert with_extras(source, **{knob: value}).script_args == ("--bs=8", *words)


@pytest.mark.parametrize("given", [None, True, False])
@pytest.mark.parametrize("default", [True, False])
def test_a_switch_with_an_opposite_is_turned_on_and_off_by_name(
    given: bool | None, default: bool
) -> None:
    action = "argparse.BooleanOptionalAction"
    text = f'p.add_argument("-r", "--remat", action={action}, default={default})'
    mode, names = "activation_checkpointing.mode", {True: "--remat", False: "--no-remat"}
    words = () if given is None else (names[given],)
    source = say_of(
        script("--batch_size=8", *words, "--lr=1", text=text),
        arguments=((mode, "--remat"),),
        knobs=((mode, ("none", "full")),),
    )
    user = DIALECT.read(source, world_size=1)
    is_on = default if given is None else given
    for recompute in (Recompute.FULL, Recompute.NONE):
        turned_on = recompute is Recompute.FULL
        made = DIALECT.render(layout(user, recompute=recompute), source, "c").script_args
        if turned_on == is_on:
            assert user.baseline.layout.recompute is recompute
            assert made == source.script_args
        else:
            assert {*made} == {"--batch_size=8", names[turned_on], "--lr=1"}


def test_a_variable_is_a_knob_by_its_capitals() -> None:
    source = script("--batch_size=8", environment=(("MALLOC_X", "1"),))
    source = say_of(source, knobs=(("MALLOC_X", (1, 2)),))
    assert with_extras(source, MALLOC_X=2).environment == (("MALLOC_X", "2"),)


def test_without_accumulation_another_micro_batch_needs_consent() -> None:
    with pytest.raises(ConfigError, match="--allow-global-batch-change"):
        DIALECT.read(script("--batch_size=8", text="import torch"), world_size=1)


def test_a_source_that_cannot_be_read_is_profiled_before_consent_is_asked_for() -> None:
    assert DIALECT.read(script("--batch_size=8"), world_size=1).batch_rule.pinned == 8


def test_with_other_knobs_the_need_of_consent_is_said_and_they_are_searched() -> None:
    plain = script("--batch_size=8", text="import torch")
    user = DIALECT.read(say_of(plain, knobs=(("--num_workers", (0, 2)),)), world_size=1)
    assert any("--allow-global-batch-change" in text for text in user.warnings)
    assert user.batch_rule.pinned == 8


def test_with_consent_the_accumulation_stays_what_the_script_does() -> None:
    user = DIALECT.read(allowing(script("--batch_size=8")), world_size=1)
    (fixed,) = (choice for choice in user.choices if choice.knob == "accumulation")
    assert fixed.values == (1,)


@pytest.mark.parametrize("value", ["0", "many", "2.5"])
def test_a_batch_that_is_no_whole_number_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"--batch_size is .* whole number"):
        DIALECT.read(script(f"--batch_size={value}", "--grad_accum=2"), world_size=1)


def test_no_known_name_says_how_to_name_one() -> None:
    with pytest.raises(ConfigError, match="--arg train_micro_batch_size_per_gpu=--NAME"):
        DIALECT.read(script("--lr=1"), world_size=1)


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("'--gradient_accumulate_every', default=8", 8),
        ("'--grad-accum-every', default=8", 8),
        ("'--grad_accumulation_factor', default=8", 8),
        ("'--accumulate', default=8", 8),
        ("'--batch_multiplier', default=8", 8),
        ("'--accumulate_on_cpu', action='store_true'", None),
        ("'--eval_accumulation', default=3", None),
    ],
)
def test_an_argument_named_after_accumulation_is_the_accumulation(
    argument: str, found: int | None
) -> None:
    text = f"{PARSER}p.add_argument('--micro_batch', default=2)\np.add_argument({argument})\n"
    if found is None:
        with pytest.raises(ConfigError, match="No gradient accumulation was found"):
            DIALECT.read(script(text=text), world_size=1)
    else:
        require_facts(DIALECT.read(script(text=text), world_size=1), accumulation=found)


OF_CONFIGARGPARSE = """
import configargparse
group = configargparse.ArgumentParser().add_argument_group("train")
group.add("--batch_size", "-batch_size", type=int, default=64)
group.add("--accum_count", "-accum_count", type=int, nargs="+", default=[1])
group.add("--accum_steps", "-accum_steps", type=int, nargs="+", default=[0])
"""


@pytest.mark.parametrize("text", [OF_CONFIGARGPARSE, "import options"])
def test_long_names_after_one_dash_are_arguments(text: str) -> None:
    source = script("-batch_size", "16", "-accum_count", "2", text=text)
    found = DIALECT.read(source, world_size=1).baseline.layout
    assert (found.micro_batch, found.accumulation) == (16, 2)
    made = render_with(DIALECT, source, micro_batch=8, accumulation=4)
    assert made.script_args == ("-batch_size", "8", "-accum_count", "4")


@pytest.mark.parametrize(
    ("text", "has_loader"),
    [
        ("BATCH = 32\nfor x in cycle(): pass", False),
        ("from torch.utils.data import DataLoader", True),
        ("", True),
    ],
)
def test_the_loaders_batch_is_offered_only_to_a_script_that_has_one(
    text: str, has_loader: bool
) -> None:
    sentence = on_no_batch(script(text=text))
    assert ("--dialect dataloader" in sentence) == has_loader
    assert ("it has no DataLoader" in sentence) != has_loader


def test_a_program_of_which_only_a_part_was_read_may_accumulate() -> None:
    source = replace(script("batch=8", text="import argparse"), is_whole=False)
    assert DIALECT.read(source, world_size=1).awaits_profile


def test_steps_of_one_micro_batch_are_not_called_the_rule_of_a_program_read_in_part() -> None:
    source = script("batch=8", text="import argparse")
    source = replace(source, is_whole=False, applied=strategy_of(accumulation=1))
    with pytest.raises(ConfigError, match=r"were seen of .* had one micro-batch each; if all"):
        DIALECT.read(source, world_size=1)


@pytest.mark.parametrize(
    "line",
    [
        "steps = a.batch_size // a.micro_batch_size",
        "loss = loss / (args.global_batch / (args.micro_batch * world))",
        "accum_every = total // b",
    ],
)
def test_a_division_of_batches_may_be_the_accumulation_and_is_looked_into(line: str) -> None:
    text = f"{PARSER}p.add_argument('--micro_batch_size', type=int, default=4)\n{line}\n"
    assert DIALECT.read(script(text=text), world_size=1)


@pytest.mark.parametrize(
    ("flags", "default", "is_it"),
    [
        ("--micro --micro-bsz --trainer.micro_bs --microBsz --batch_per_gpu", 4, True),
        ("--micro_steps --n_batches --num_batches --max_batches --eval.micro_bsz", 4, False),
        ("--eval_bs --per_device", 4, False),
        ("--batch_norm", 1, False),
        ("--batch_first", True, False),
        ("--total_batch --mb", 64, False),
        ("--micro", "a", False),
    ],
)
def test_an_argument_whose_parts_all_say_the_micro_batch_is_it(
    flags: str, default: object, is_it: bool
) -> None:
    for flag in flags.split():
        source = script(text=f"p.add_argument('{flag}', default={default!r})\n")
        assert DIALECT.detects(source) is is_it, flag
        assert not is_it or micro_batch(source) == 4


def test_a_script_without_arguments_is_offered_no_name_of_one() -> None:
    sentence = on_no_batch(script(text="BATCH = 16\ndl = DataLoader(data, batch_size=BATCH)"))
    assert "--arg" not in sentence
    assert "its batch of 16" in sentence
    assert "--dialect dataloader" in sentence
