from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.launcher.dialects import choose_dialect
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


def test_the_named_dialect_is_taken_without_a_word() -> None:
    choice = choose_dialect(say_of(script(text=TRAINER), dialect="accelerate"))
    assert (choice.dialect.name, choice.notes) == ("accelerate", ())


@pytest.mark.parametrize(("name", "tool"), [("megatron", "Megatron-LM"), ("torchtitan", None)])
def test_a_dialect_that_no_run_has_proven_is_experimental(name: str, tool: str | None) -> None:
    (note,) = choose_dialect(say_of(script(), dialect=name)).notes
    assert note.startswith(f"Dialect {name} is experimental")
    assert f"by a run of {tool or name};" in note


def test_an_unknown_dialect_gets_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="'acelerate' is unknown; did you mean 'accelerate'"):
        choose_dialect(say_of(script(), dialect="acelerate"))


def test_arguments_of_the_script_are_for_what_no_framework_knows() -> None:
    assert choose_dialect(script("--batch_size=2", text=TRAINER)).notes == ()
    assert choose_dialect(script("--batch_size=2")).dialect.name == "arguments"


def test_a_mapping_makes_any_script_known() -> None:
    source = say_of(script("--n=2"), arguments=(("train_micro_batch_size_per_gpu", "--n"),))
    assert choose_dialect(source).dialect.name == "arguments"


def test_training_arguments_in_the_source_are_said() -> None:
    text = "from transformers import Trainer, TrainingArguments\nTrainingArguments('o')"
    with pytest.raises(ConfigError, match=r"makes its TrainingArguments itself.*dataloader"):
        choose_dialect(script(text=text))


def test_nothing_known_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="--arg train_micro_batch_size_per_gpu=--NAME"):
        choose_dialect(script("--lr=2"))


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
def test_a_dialect_of_another_package_is_asked_before_ours() -> None:
    choice = choose_dialect(script(text=TRAINER))
    assert choice.dialect.name == "theirs"
    assert "theirs and hf_trainer both match this script" in choice.notes[0]


@pytest.mark.usefixtures("theirs")
def test_a_dialect_of_another_package_is_taken_by_its_name() -> None:
    assert choose_dialect(say_of(script(), dialect="theirs")).dialect.name == "theirs"


def test_the_dataloader_is_never_reached_into_unasked() -> None:
    with pytest.raises(ConfigError):
        choose_dialect(script(text="DataLoader(d, batch_size=4)"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "native"),
        ("from autoconf_launch.runtime import initialize\nimport transformers", "native"),
        ("import deepspeed", "deepspeed"),
        (f"import deepspeed\n{TRAINER}", "hf_trainer"),
    ],
)
def test_a_document_of_deepspeed_belongs_to_the_framework_of_the_script(
    text: str, name: str
) -> None:
    source = dataclasses.replace(
        script("--deepspeed", "ds.json", text=text),
        config=RawConfig({"train_micro_batch_size_per_gpu": 1}),
        config_argument=1,
    )
    assert choose_dialect(source).dialect.name == name


def test_a_batch_that_was_not_seen_in_the_source_is_not_said_to_be_there() -> None:
    with pytest.raises(ConfigError, match="--dialect dataloader") as error:
        choose_dialect(script(text="DataLoader(data, 2 * size)"))
    assert "in its source" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch_size = 64\nDataLoader(data, batch_size=batch_size)", "its batch of 64"),
        ("config = {'batch_size': 16}\nDataLoader(data, config['batch_size'])", "batch of 16"),
    ],
)
def test_a_batch_in_the_source_alone_leads_to_the_dataloader(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match="--dialect dataloader") as error:
        choose_dialect(script(text=text))
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [("from training import main", "deepspeed"), ("import autoconf_launch", "native")],
)
def test_deepspeeds_own_argument_tells_where_a_module_imports_it(text: str, name: str) -> None:
    source = dataclasses.replace(
        script("--deepspeed", "--deepspeed_config=ds.json", text=text),
        config=RawConfig({"train_micro_batch_size_per_gpu": 1}),
        config_argument=1,
    )
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
