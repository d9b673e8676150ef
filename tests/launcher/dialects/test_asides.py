"""Evaluation and checkpoint flags of a soak's launch, in every dialect."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import RawConfig
from autoconf_launch.launcher.dialects import (
    AccelerateDialect,
    BuiltinDialect,
    HfTrainerDialect,
    MegatronDialect,
    TorchtitanDialect,
)
from autoconf_launch.launcher.dialects.any_script import ArgumentsDialect
from autoconf_launch.launcher.dialects.lightning import LightningDialect
from autoconf_launch.launcher.script import NamedFile, ScriptSource
from autoconf_launch.launcher.spelling import Dialect, TrialNeeds, parse_toml

from .sources import allowing, say_of, script

SOAK = TrialNeeds(folder="trial", steps=20, accumulation=2, evaluates=True, saves=True)
SAVE, EVALUATE = str(SOAK.save_after), str(SOAK.evaluate_after)
DATA = Path(__file__).parents[2] / "data" / "dialects"
BATCH = ("--per_device_train_batch_size", "2")
TRAINER = "t = Trainer(model, args, train_dataset=a, eval_dataset=b)"
VALIDATES = "def validation_step(self, batch): ..."
LIGHTNING = f"import lightning as L\nL.Trainer()\n{VALIDATES}"
CLI = "from lightning.pytorch.cli import LightningCLI\nLightningCLI()"


def soak(dialect: Dialect, source: ScriptSource, needs: TrialNeeds = SOAK) -> tuple[str, ...]:
    """The script's arguments in a soak."""
    user = dialect.read(allowing(source), world_size=1)
    made = dialect.render(user.baseline, source, "trial/config.json")
    return dialect.in_trial(made, source, needs).script_args


def train(*words: str, text: str = TRAINER, version: str = "5.0.0") -> set[tuple[str, str]]:
    """Neighbouring words of a Trainer's soak."""
    source = script(*BATCH, *words, text=text, versions=(("transformers", version),))
    return set(pairwise(soak(HfTrainerDialect(), source)))


@given(st.integers(3, 1000))
def test_each_comes_once_within_the_steps_and_a_step_follows(steps: int) -> None:
    needs = TrialNeeds(folder="trial", steps=steps)
    for after in (needs.save_after, needs.evaluate_after):
        assert 2 <= after < steps < 2 * after


@given(st.integers(3, 1000))
def test_no_two_steps_in_a_row_have_a_pause_before_them(steps: int) -> None:
    needs = TrialNeeds(folder="trial", steps=steps)
    assert needs.evaluate_after - needs.save_after in (0, 2)


EVAL, OLD, SAVING = "--eval_strategy", "--evaluation_strategy", "--save_strategy"


@pytest.mark.parametrize(
    ("line", "text", "version", "pairs"),
    [
        *(
            (f"{name} epoch", TRAINER, version, {(name, "steps"), ("--eval_delay", "0")})
            for version, name in (("4.40.2", OLD), ("4.44.0", EVAL))
        ),
        (f"{OLD} epoch", TRAINER, "4.44.0", {(EVAL, "steps")}),
        ("--do_eval true", TRAINER, "5.0.0", {(EVAL, "steps"), ("--eval_steps", EVALUATE)}),
        ("--do_eval true", "t = Trainer(model)", "5.0.0", {(EVAL, "no"), (SAVING, "steps")}),
        (f"{SAVING} no", TRAINER, "5.0.0", {(SAVING, "no"), (EVAL, "no")}),
        (
            "--push_to_hub true --report_to wandb",
            TRAINER,
            "5.0.0",
            {("--push_to_hub", "false"), ("--report_to", "none")},
        ),
        ("", TRAINER, "5.0.0", {("--save_steps", SAVE), ("--output_dir", "trial/output")}),
    ],
)
def test_a_trainer_evaluates_what_it_is_given_and_saves_once_unless_that_is_off(
    line: str, text: str, version: str, pairs: set[tuple[str, str]]
) -> None:
    words = train(*line.split(), text=text, version=version)
    assert pairs <= words
    assert (OLD, "epoch") not in words


def test_a_trainers_file_of_arguments_is_told_likewise() -> None:
    text = json.dumps({"per_device_train_batch_size": 2, "eval_strategy": "epoch"})
    file = NamedFile(position=0, flag="", path="a.json", text=text)
    source, dialect = script("a.json", files=(file,)), HfTrainerDialect()
    made = dialect.render(dialect.read(source, world_size=1).baseline, source, "trial/c.json")
    (written,) = dialect.in_trial(made, source, SOAK).files
    found = json.loads(written.text)
    assert (found["eval_steps"], found["save_steps"]) == (int(EVALUATE), int(SAVE))


def of_lightning(text: str) -> dict[str, str]:
    source, dialect = script("--batch_size=2", text=text), LightningDialect()
    made = dialect.render(dialect.read(source, world_size=1).baseline, source, "c")
    return dict(dialect.in_trial(made, source, SOAK).environment)


def test_lightning_evaluates_once_counted_in_batches_and_saves_then() -> None:
    found = of_lightning(LIGHTNING)
    assert found["PL_TRAINER_VAL_CHECK_INTERVAL"] == str(2 * SOAK.evaluate_after)
    assert found["PL_TRAINER_CHECK_VAL_EVERY_N_EPOCH"] == "None"
    assert "PL_TRAINER_ENABLE_CHECKPOINTING" not in found
    assert found["PL_TRAINER_DEFAULT_ROOT_DIR"] == "trial/output"


@pytest.mark.parametrize(
    "words", ["check_val_every_n_epoch=2", "val_check_interval=0.5", "**more"]
)
def test_a_lightning_trainer_that_may_say_when_itself_is_left_to_it(words: str) -> None:
    found = of_lightning(f"import lightning as L\nL.Trainer({words})\n{VALIDATES}")
    assert not {"PL_TRAINER_VAL_CHECK_INTERVAL", "PL_TRAINER_CHECK_VAL_EVERY_N_EPOCH"} & {*found}


def test_a_lightning_cli_is_told_in_its_own_words() -> None:
    text = f"{CLI}\n{VALIDATES}"
    words = soak(LightningDialect(), script("fit", "--data.batch_size=2", text=text))
    assert "--trainer.check_val_every_n_epoch=null" in words
    assert f"--trainer.val_check_interval={2 * SOAK.evaluate_after}" in words


def test_lightning_without_a_validation_saves_after_a_short_epoch() -> None:
    source = script("fit", "--data.batch_size=2", "--trainer.max_epochs=1", text=CLI)
    words = soak(LightningDialect(), source)
    assert f"--trainer.limit_train_batches={2 * SOAK.save_after}" in words
    assert "--trainer.max_epochs=-1" in words
    assert not any("val_check_interval" in word for word in words)


def titan(sections: str) -> dict[str, dict[str, object]]:
    file = NamedFile(position=1, flag="--job.config_file", path="a.toml", text=sections)
    source, dialect = script("--job.config_file", "a.toml", files=(file,)), TorchtitanDialect()
    user = dialect.read(allowing(source), world_size=1)
    made = dialect.render(user.baseline, source, "trial/config.json")
    found: dict[str, dict[str, object]] = parse_toml(
        dialect.in_trial(made, source, SOAK).files[0].text
    ).to_dict()
    return found


@pytest.mark.parametrize("on", ["enable", "enabled"])
def test_torchtitan_saves_and_evaluates_a_few_steps_where_that_is_on(on: str) -> None:
    text = f"[checkpoint]\nenable = true\ninterval = 500\n[validation]\n{on} = true\nsteps = -1\n"
    found = titan(text)
    assert found["checkpoint"] == {"enable": True, "interval": SOAK.save_after}
    assert found["validation"] == {on: True, "steps": 10, "freq": SOAK.evaluate_after}
    assert found["job"]["dump_folder"] == "trial/output"


def test_torchtitan_leaves_off_what_is_off() -> None:
    found = titan("[checkpoint]\nenable_checkpoint = false\n[validation]\nenable = false\n")
    assert found["checkpoint"] == {"enable_checkpoint": False}
    assert found["validation"] == {"enable": False}


def test_megatron_saves_to_the_trials_folder_and_evaluates_a_few_iterations() -> None:
    own = (DATA / "megatron.txt").read_text().split()
    kept = [word for word in own if word != "--save"]
    source = script(*kept, "--save", "out", "--eval-iters", "50")
    dialect = MegatronDialect()
    made = dialect.render(dialect.read(source, world_size=16).baseline, source, "c")
    words = set(pairwise(dialect.in_trial(made, source, SOAK).script_args))
    assert {("--save", "trial/output"), ("--save-interval", SAVE)} <= words
    assert {("--eval-iters", "10"), ("--eval-interval", EVALUATE)} <= words


def test_megatron_without_a_place_to_save_saves_nowhere() -> None:
    source = script("--micro-batch-size", "2", "--global-batch-size", "4", text="import megatron")
    assert "--save" not in soak(MegatronDialect(), source)


OWN = "p.add_argument('--batch_size', default=2)\np.add_argument('--eval-every', default=1000)"
ACCELERATOR = f"from accelerate import Accelerator\na = Accelerator()\n{OWN}"


@pytest.mark.parametrize(
    ("dialect", "text"), [(ArgumentsDialect(), OWN), (AccelerateDialect(), ACCELERATOR)]
)
def test_arguments_of_a_script_with_its_own_are_brought_forward(
    dialect: Dialect, text: str
) -> None:
    words = soak(dialect, script("--checkpointing_steps=500", text=text))
    assert f"--checkpointing_steps={SAVE}" in words
    assert f"--eval-every={EVALUATE}" in words


def test_those_of_a_script_on_our_engine_are_brought_forward() -> None:
    document = RawConfig({"train_micro_batch_size_per_gpu": 2})
    source = script("--config", "c.json", "--save-every=500", text=OWN)
    source = dataclasses.replace(source, config=document, config_argument=1)
    words = soak(BuiltinDialect(), source)
    assert {f"--save-every={SAVE}", EVALUATE} <= set(words)
    trial = soak(BuiltinDialect(), source, TrialNeeds(folder="trial", steps=20))
    assert trial == ("--config", "trial/config.json", "--save-every=500")


@pytest.mark.parametrize("given", ["3", "epoch", "0", "-1"])
def test_what_comes_early_enough_or_never_is_left_alone(given: str) -> None:
    source = script("--batch_size=2", f"--save_steps={given}")
    assert soak(ArgumentsDialect(), source) == source.script_args


def test_an_argument_that_is_searched_is_left_to_the_search() -> None:
    source = say_of(script("--batch_size=2", "--eval_steps=500"), knobs=(("eval_steps", (500,)),))
    assert "--eval_steps=500" in soak(ArgumentsDialect(), source)


def test_a_trial_that_is_no_soak_is_told_nothing_of_it() -> None:
    source = script("--batch_size=2", "--save_steps=500", "--eval_steps=500")
    trial = TrialNeeds(folder="trial", steps=20)
    assert soak(ArgumentsDialect(), source, trial) == source.script_args
