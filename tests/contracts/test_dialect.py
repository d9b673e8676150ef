"""The contract of dialects; a new one joins by its row in DIALECTS and a source here."""

from __future__ import annotations

import dataclasses
from pathlib import Path, PurePath

import pytest

from autoconf_launch.core import Candidate, RawConfig
from autoconf_launch.launcher.asked import OwnKnob, UserWords
from autoconf_launch.launcher.dialects import DIALECTS, choose_dialect
from autoconf_launch.launcher.extension_points import load_reference, references
from autoconf_launch.launcher.script import NamedFile, ScriptSource
from autoconf_launch.launcher.spelling import Dialect, Rendered, TrialNeeds

from ..launcher.dialects.sources import script
from .toy_words import ToyDialect, install_toys

UNPROVEN = {"megatron", "torchtitan"}
"""Frameworks that were never run with a tune."""

RANKS = 2
DOCUMENT = RawConfig(
    {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 8,
        "model": {"layers": 3},
        "autotuning": {"enabled": True},
    }
)
TOML = """# of a colleague
[job]
dump_folder = "./outputs"  # big disk

[custom]
key = [1, 2]

[training]
local_batch_size = 2
global_batch_size = 32

[parallelism]
data_parallel_shard_degree = -1
"""
YAML = """# of a colleague
custom:
  key: [1, 2]
train: {bs: 2, eval_bs: 7}  # per GPU
optim:
  accumulate_every: 8
"""


HF = "from transformers import HfArgumentParser, Trainer, TrainingArguments\nTrainer(1)"
DEEPSPEED = dataclasses.replace(
    script("--lr", "0.1", "--deepspeed_config=ds.json", text="import deepspeed"),
    config=DOCUMENT,
    config_argument=2,
)
SOURCES = {
    "native": ScriptSource(
        script_args=("--lr", "0.1", "--config", "c.json"), config=DOCUMENT, config_argument=3
    ),
    "deepspeed": DEEPSPEED,
    "hf_trainer": script(
        "--per_device_train_batch_size",
        "2",
        "--gradient_accumulation_steps=8",
        "--output_dir",
        "out",
        text=HF,
    ),
    "accelerate": script(
        "--batch_size",
        "2",
        text="from accelerate import Accelerator\n"
        "a = Accelerator(gradient_accumulation_steps=8)\na.accumulate(1)",
    ),
    "lightning": script(
        "fit",
        "--data.batch_size=2",
        "--trainer.accumulate_grad_batches=8",
        text="from lightning.pytorch.cli import LightningCLI\nLightningCLI()",
    ),
    "torchtitan": script(
        "--job.config_file",
        "conf.toml",
        "--training.seq_len=64",
        files=(NamedFile(position=1, flag="--job.config_file", path="conf.toml", text=TOML),),
    ),
    "megatron": script(
        "--micro-batch-size",
        "2",
        "--global-batch-size",
        "32",
        "--save",
        "checkpoints",
        text="from megatron.training import pretrain",
    ),
    "document": script(
        "--lr",
        "0.1",
        "--cfg=conf/own.yaml",
        files=(NamedFile(position=2, flag="--cfg", path="conf/own.yaml", text=YAML),),
    ),
    "arguments": script("--batch-size=2", "--test-batch-size=7", "--grad-accum=8"),
    "dataloader": script(
        "--grad_accum",
        "8",
        text="DataLoader(data, batch_size=2)",
        words=UserWords(dialect="dataloader"),
    ),
}
CASES = [
    pytest.param(load_reference(reference)(), SOURCES[name], id=name)
    for name, reference in DIALECTS.items()
]
TOY = script(text="import toytrain", environment=(("TOY_BATCH", "2"), ("TOY_STEPS", "8")))
CASES.append(pytest.param(ToyDialect(), TOY, id="toy"))
NEEDS = TrialNeeds(folder="trial", steps=5)
SOAK = TrialNeeds(folder="trial", steps=20, evaluates=True, saves=True)
ONE_TO_3 = {
    **dict.fromkeys(("native", "deepspeed", "megatron"), 1),
    **dict.fromkeys(("arguments", "document", "dataloader", "toy")),
}
each_dialect = pytest.mark.parametrize(("dialect", "source"), CASES)


def change(dialect: Dialect, candidate: Candidate) -> Candidate:
    """Another micro-batch with the same global batch, and another stage where there is one."""
    layout = dataclasses.replace(candidate.layout, micro_batch=4, accumulation=4)
    stage = ONE_TO_3.get(dialect.name, 0 if layout.zero_stage else 3)
    return dataclasses.replace(
        candidate,
        layout=layout if stage is None else dataclasses.replace(layout, zero_stage=stage),
    )


def again(source: ScriptSource, rendered: Rendered) -> ScriptSource:
    """The source that a user would have who had written what was rendered."""
    texts = {file.name: file.text for file in rendered.files}
    return dataclasses.replace(
        source,
        config=rendered.config if source.config_argument is not None else source.config,
        script_args=rendered.script_args,
        environment=(*source.environment, *rendered.environment),
        files=tuple(
            dataclasses.replace(file, text=next(iter(texts.values()), file.text))
            for file in source.files
        ),
    )


@pytest.fixture(autouse=True)
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with the toy dialect."""
    install_toys(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@each_dialect
def test_it_is_taken_for_its_own_scripts_by_the_name_of_its_row(
    dialect: Dialect, source: ScriptSource
) -> None:
    choice = choose_dialect(source)
    assert choice.dialect.name == dialect.name
    assert len(choice.notes) == (dialect.name in UNPROVEN)
    assert all("is experimental" in note for note in choice.notes)
    found = references("dialect", DIALECTS)[dialect.name]
    assert load_reference(found).__name__ == type(dialect).__name__


@each_dialect
def test_the_baseline_is_what_the_user_gave_and_the_global_batch_stays(
    dialect: Dialect, source: ScriptSource
) -> None:
    user = dialect.read(source, world_size=RANKS)
    layout = user.baseline.layout
    assert (layout.micro_batch, layout.accumulation, layout.data_parallel) == (2, 8, RANKS)
    assert user.batch_rule.pinned == 32


@each_dialect
def test_rendering_the_baseline_changes_nothing_but_paths_of_files(
    dialect: Dialect, source: ScriptSource
) -> None:
    baseline = dialect.read(source, world_size=RANKS).baseline
    rendered = dialect.render(baseline, source, "trial/c.json")
    before = rendered.before or source.config.without(("autotuning",))
    assert before.diff(rendered.config) == ()
    assert all(PurePath(file.name).name == file.name for file in rendered.files)
    paths = {f"trial/{file.name}" for file in rendered.files} | {"trial/c.json"}
    for old, new in zip(source.script_args, rendered.script_args, strict=True):
        assert new == old or new.rpartition("=")[2] in paths
    assert rendered.environment == ()
    assert all(file.text in {given.text for given in source.files} for file in rendered.files)
    assert rendered.checked is None or "micro_batch" in dict(rendered.checked)


@each_dialect
def test_a_candidate_is_read_back_as_itself_beside_the_scripts_own_words(
    dialect: Dialect, source: ScriptSource
) -> None:
    candidate = change(dialect, dialect.read(source, world_size=RANKS).baseline)
    rendered = dialect.render(candidate, source, "trial/c.json")
    assert dialect.read(again(source, rendered), world_size=RANKS).baseline == candidate
    assert (rendered.before or source.config.without(("autotuning",))).diff(rendered.config)
    for argument in ("--lr", "--test-batch-size=7", "--training.seq_len=64", "fit"):
        assert (argument in source.script_args) == (argument in rendered.script_args)
    if source.config_argument is not None:
        assert rendered.config.get(("model", "layers")) == 3
    for file in rendered.files:
        assert "# of a colleague" in file.text
        assert "[1, 2]" in file.text


@each_dialect
@pytest.mark.parametrize("needs", [NEEDS, SOAK], ids=["trial", "soak"])
def test_in_a_trial_and_in_a_soak_trackers_are_silent_and_the_candidate_stays(
    dialect: Dialect, source: ScriptSource, needs: TrialNeeds
) -> None:
    candidate = change(dialect, dialect.read(source, world_size=RANKS).baseline)
    rendered = dialect.render(candidate, source, "trial/c.json")
    trial = dialect.in_trial(rendered, source, needs)
    assert ("WANDB_MODE", "disabled") in trial.environment
    assert dialect.read(again(source, trial), world_size=RANKS).baseline == candidate


@each_dialect
def test_listed_micro_batches_are_searched(dialect: Dialect, source: ScriptSource) -> None:
    knob = OwnKnob(name="train_micro_batch_size_per_gpu", values=(2, 4))
    words = dataclasses.replace(source.words, knobs=(knob,))
    user = dialect.read(dataclasses.replace(source, words=words), world_size=RANKS)
    (choice,) = (choice for choice in user.choices if choice.knob == "micro_batch")
    assert choice.values == (2, 4)
