from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.launcher.dialects import choose_dialect
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import batch_in_source

from .sources import say_of, script

TRAINER = "from transformers import HfArgumentParser, TrainingArguments"
ACCELERATOR = "from accelerate import Accelerator\nAccelerator()"


def test_two_dialects_that_fit_are_said_and_the_first_is_taken() -> None:
    choice = choose_dialect(script(text=f"{TRAINER}\n{ACCELERATOR}"))
    assert choice.dialect.name == "hf_trainer"
    assert choice.notes == (
        "hf_trainer and accelerate both match this script; using hf_trainer "
        "(change it with --dialect).",
    )


MAPPED = (("train_micro_batch_size_per_gpu", "--n"),)
OWN = "from transformers import Trainer, TrainingArguments\nTrainingArguments('o')"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (say_of(script(text=TRAINER), dialect="accelerate"), "accelerate"),
        (script("--batch_size=2", text=TRAINER), "hf_trainer"),
        (script("--batch_size=2"), "arguments"),
        (say_of(script("--n=2"), arguments=MAPPED), "arguments"),
    ],
)
def test_a_named_dialect_or_a_framework_or_the_scripts_arguments_are_taken_without_a_word(
    source: ScriptSource, name: str
) -> None:
    choice = choose_dialect(source)
    assert (choice.dialect.name, choice.notes) == (name, ())


@pytest.mark.parametrize(
    ("source", "says", "loader"),
    [
        (
            say_of(script(), dialect="acelerate"),
            "'acelerate' is unknown; did you mean 'acc",
            False,
        ),
        (script(text=OWN), r"makes its TrainingArguments itself.*dataloader", True),
        (script("--lr=2"), "--arg train_micro_batch_size_per_gpu=--NAME", True),
        (script(text="DataLoader(d, batch_size=4)"), "its batch of 4", True),
        (script(text="batch_size = 64\nDataLoader(d, batch_size=batch_size)"), "of 64", True),
        (script(text="c = {'batch_size': 16}\nDataLoader(d, c['batch_size'])"), "of 16", True),
        (script(text="DataLoader(data, 2 * size)"), "--dialect dataloader", True),
    ],
)
def test_a_script_of_which_no_batch_is_known_is_refused_with_what_to_do(
    source: ScriptSource, says: str, loader: bool
) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        choose_dialect(source)
    assert ("dataloader" in str(error.value)) is loader
    assert says.startswith(("its", "of")) is ("in its source" in str(error.value))


@pytest.mark.parametrize(("name", "tool"), [("megatron", "Megatron-LM"), ("torchtitan", None)])
def test_a_dialect_that_no_run_has_proven_is_experimental(name: str, tool: str | None) -> None:
    (note,) = choose_dialect(say_of(script(), dialect=name)).notes
    assert note.startswith(f"Dialect {name} is experimental")
    assert f"by a run of {tool or name};" in note


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with a dialect that knows every script."""
    (tmp_path / "their_words.py").write_text(
        "from autoconf_launch.launcher.dialects.any_script import ArgumentsDialect\n"
        "class Theirs(ArgumentsDialect):\n"
        "    name = 'theirs'\n"
        "    def detects(self, source): return True\n"
    )
    installed = tmp_path / "their_words-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[autoconf_launch.dialect]\ntheirs = their_words:Theirs\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("theirs")
def test_a_dialect_of_another_package_is_asked_before_ours_and_taken_by_its_name() -> None:
    choice = choose_dialect(script(text=TRAINER))
    assert choice.dialect.name == "theirs"
    assert "theirs and hf_trainer both match this script" in choice.notes[0]
    assert choose_dialect(say_of(script(), dialect="theirs")).dialect.name == "theirs"


@pytest.mark.parametrize(
    ("line", "text", "name"),
    [
        ("--deepspeed ds.json", "", "native"),
        (
            "--deepspeed ds.json",
            "from autoconf_launch.runtime import initialize\nimport transformers",
            "native",
        ),
        ("--deepspeed ds.json", "import deepspeed", "deepspeed"),
        ("--deepspeed ds.json", f"import deepspeed\n{TRAINER}", "hf_trainer"),
        ("--deepspeed --deepspeed_config=ds.json", "from training import main", "deepspeed"),
        ("--deepspeed --deepspeed_config=ds.json", "import autoconf_launch", "native"),
    ],
)
def test_a_document_of_deepspeed_belongs_to_the_framework_of_the_script(
    line: str, text: str, name: str
) -> None:
    document = RawConfig({"train_micro_batch_size_per_gpu": 1})
    source = script(*line.split(), text=text, config=document, config_argument=1)
    assert choose_dialect(source).dialect.name == name


TORCHVISION = "DataLoader(MNIST('d', train={}), batch_size={})\n"


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        ("B = 16\na = DataLoader(t, batch_size=B)\ntest_dl = DataLoader(x, batch_size=250)", 16),
        ("def go():\n  n = 8\n  a = DataLoader(t, n)\n  testloader = DataLoader(x, 250)", 8),
        ("a = DataLoader(t, batch_size=16)\nb = DataLoader(val_ds, batch_size=250)", 16),
        ("def val_dataloader(self):\n  return DataLoader(self.x, batch_size=250)", None),
        ("train, test = DataLoader(a, batch_size=4), DataLoader(b, batch_size=250)", 4),
        ("d = {'train': DataLoader(a, batch_size=4), 'x': DataLoader(b, batch_size=9)}", 4),
        ("a = " + TORCHVISION.format(True, 4) + "b = " + TORCHVISION.format(False, 250), 4),
        ("a = DataLoader(t, batch_size=16)\nb = DataLoader(u, batch_size=250)", None),
        ("BATCH = 16\ntest_dl = DataLoader(x, batch_size=250)", 16),
        ("BATCH = 16\na = DataLoader(t, batch_size=2 * n)", None),
        ("batch_size = 4\nbatch_size = 8", None),
        ("EVAL_BATCH = 9\nBATCH = 3\na = DataLoader(t, batch_size=EVAL_BATCH)", 3),
    ],
)
def test_the_batch_in_a_source_is_that_of_training_or_none_is_named(
    text: str, batch: int | None
) -> None:
    assert batch_in_source(script(text=text)) == batch
