from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.dialects.lightning import LightningDialect
from autoconf_launch.launcher.script import NamedFile
from autoconf_launch.launcher.spelling import TrialNeeds

from .sources import layout, render_with, say_of, script, strategy_of

DIALECT = LightningDialect()
NEEDS = TrialNeeds(folder="trial", steps=7)
CLI = "from lightning.pytorch.cli import LightningCLI\nLightningCLI()"
OWN = "import lightning as L\nL.Trainer(max_epochs=3)"
CONFIG = "trainer:\n  accumulate_grad_batches: 4\ndata:\n  init_args:\n    batch_size: 2\n"


def with_file() -> NamedFile:
    return NamedFile(position=2, flag="--config", path="c.yaml", text=CONFIG)


def test_the_file_is_read_and_arguments_after_it_outweigh_it() -> None:
    source = script("fit", "--config", "c.yaml", text=CLI, files=(with_file(),))
    found = DIALECT.read(source, world_size=2).baseline.layout
    assert (found.micro_batch, found.accumulation) == (2, 4)
    made = render_with(DIALECT, source, 2, micro_batch=4, accumulation=2)
    assert made.script_args == (
        *source.script_args,
        "--data.batch_size",
        "4",
        "--trainer.accumulate_grad_batches",
        "2",
    )


@pytest.mark.parametrize(
    ("strategy", "stage"), [("auto", 0), ("ddp", 0), ("fsdp", 3), ("deepspeed_stage_2", 2)]
)
def test_a_strategy_is_a_stage(strategy: str, stage: int) -> None:
    source = script("--data.batch_size=2", f"--trainer.strategy={strategy}", text=CLI)
    assert DIALECT.read(source, world_size=2).baseline.layout.zero_stage == stage


def test_a_trainer_in_the_source_is_told_by_variables() -> None:
    source = script("--batch_size=2", text=OWN)
    made = render_with(DIALECT, source, 2, micro_batch=1, accumulation=2, zero_stage=3)
    assert made.environment == (
        ("PL_TRAINER_ACCUMULATE_GRAD_BATCHES", "2"),
        ("PL_TRAINER_STRATEGY", "fsdp"),
    )
    assert DIALECT.read(source, world_size=2).notes == (
        "Using --batch_size as the micro-batch (change it with --arg).",
        "Using PL_TRAINER_ACCUMULATE_GRAD_BATCHES as gradient accumulation "
        "(change it with --arg).",
    )


def test_a_trial_neither_logs_nor_saves_unless_a_callback_needs_it() -> None:
    callbacks = f"{OWN}\nLearningRateMonitor()\nModelCheckpoint()"
    plain, needing = (
        dict(DIALECT.in_trial(render_with(DIALECT, source), source, NEEDS).environment)
        for source in (script("--batch_size=2", text=text) for text in (OWN, callbacks))
    )
    assert plain["PL_TRAINER_LOGGER"] == plain["PL_TRAINER_ENABLE_CHECKPOINTING"] == "False"
    assert plain["PL_TRAINER_MAX_STEPS"] == "8"
    assert plain["PL_TRAINER_DEFAULT_ROOT_DIR"] == "trial/output"
    assert not {"PL_TRAINER_LOGGER", "PL_TRAINER_ENABLE_CHECKPOINTING"} & needing.keys()


def test_what_the_source_says_itself_is_left_to_it() -> None:
    text = "import lightning as L\nL.Trainer(accumulate_grad_batches=4)"
    with pytest.raises(ConfigError, match=r"No gradient accumulation was found in train\.py"):
        DIALECT.read(script("--batch_size=2", text=text), world_size=1)


SPREAD = "import lightning as L\ncfg = load(sys.argv[1])\nL.Trainer(**cfg['trainer'])"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("accumulate_grad_batches", SPREAD),
        ("grad_accum_every", "import lightning as L\nL.Trainer(accumulate_grad_batches=n)"),
        ("accum", OWN),  # the module accumulates itself
    ],
)
def test_an_accumulation_of_the_scripts_document_is_set_there_and_by_no_variable(
    key: str, text: str
) -> None:
    held = f"trainer:\n  {key}: 8\ndata:\n  batch_size: 4\n"
    file = NamedFile(position=0, flag="", path="exp.yaml", text=held)
    source = script("exp.yaml", text=text, files=(file,))
    user = DIALECT.read(source, world_size=1)
    assert (user.baseline.layout.micro_batch, user.baseline.layout.accumulation) == (4, 8)
    made = DIALECT.render(layout(user, micro_batch=16, accumulation=2), source, "c")
    assert not any("ACCUM" in name for name, _ in made.environment)
    (copy,) = made.files
    assert f"{key}: 2" in copy.text


def test_a_strategy_in_the_scripts_document_is_set_there() -> None:
    held = "trainer:\n  strategy: ddp\n  accumulate_grad_batches: 8\ndata:\n  batch_size: 4\n"
    file = NamedFile(position=0, flag="", path="exp.yaml", text=held)
    source = script("exp.yaml", text=SPREAD, files=(file,))
    made = render_with(DIALECT, source, 2, zero_stage=3)
    assert made.environment == ()
    assert 'strategy: "fsdp"' in made.files[0].text


def test_an_argument_that_only_the_profile_run_knows_may_be_mapped() -> None:
    text = "from lightning.pytorch.cli import LightningCLI\nLightningCLI()"
    flag = "--data.loader.samples"
    source = script("fit", text=text)
    source = say_of(source, arguments=(("train_micro_batch_size_per_gpu", flag),))
    assert render_with(DIALECT, source).script_args == ("fit",)
    known = replace(source, applied=strategy_of(micro_batch=6))
    made = render_with(DIALECT, known, micro_batch=3, accumulation=2)
    accumulation = ("--trainer.accumulate_grad_batches", "2")
    assert made.script_args == ("fit", flag, "3", *accumulation)


HYDRA = (
    ("batch_size", 8),
    ("trainer._target_", "lightning.pytorch.Trainer"),
    ("trainer.max_epochs", 3),
    ("callbacks.0._target_", "lightning.pytorch.callbacks.ModelCheckpoint"),
)


def test_a_trainer_that_hydra_makes_is_lightnings() -> None:
    source = script(text="import hydra\nfrom hydra.utils import instantiate\n", composed=HYDRA)
    assert DIALECT.detects(source)
    user = DIALECT.read(source, world_size=1)
    made = DIALECT.render(layout(user, micro_batch=4, accumulation=2), source, "c")
    assert made.script_args == ("batch_size=4",)
    assert dict(made.environment)["PL_TRAINER_ACCUMULATE_GRAD_BATCHES"] == "2"


def test_a_setting_in_hydras_configuration_is_given_there_and_its_callbacks_count() -> None:
    composed = (*HYDRA, ("trainer.accumulate_grad_batches", 4))
    source = script(text="import hydra", composed=composed)
    user = DIALECT.read(source, world_size=1)
    assert user.baseline.layout.accumulation == 4
    made = DIALECT.render(layout(user, micro_batch=16, accumulation=2), source, "c")
    assert set(made.script_args) == {"batch_size=16", "trainer.accumulate_grad_batches=2"}
    trial = DIALECT.in_trial(made, source, TrialNeeds(folder="t", steps=5))
    assert "PL_TRAINER_ENABLE_CHECKPOINTING" not in dict(trial.environment)
