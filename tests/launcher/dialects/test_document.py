"""A batch in a document that the script reads: YAML, JSON or TOML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.dialects import choose_dialect
from autoconf_launch.launcher.dialects.any_script import DocumentDialect
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.launch import find_script_source
from autoconf_launch.launcher.script import NamedFile, ScriptSource
from autoconf_launch.launcher.spelling import TrialNeeds
from autoconf_launch.launcher.spelling.own_documents import edit_leaves, leaves_of

from .sources import allowing, layout, render_with, say_of, script, strategy_of

DIALECT = DocumentDialect()
SMALL = "batch_size: 2\naccum_steps: 8\n"


def document(held: str, path: str = "c.yaml", *more: str, **rest: Any) -> ScriptSource:
    """A script that is given one document by ``--cfg``."""
    file = NamedFile(position=1, flag="--cfg", path=path, text=held)
    return script("--cfg", path, *more, files=(file,), **rest)


def batch_of(source: ScriptSource) -> tuple[int, int]:
    assert choose_dialect(source).dialect.name == "document"
    found = DIALECT.read(source, world_size=1).baseline.layout
    return found.micro_batch, found.accumulation


SPEECHBRAIN = """\
seed: 1986
__set_seed: !apply:speechbrain.utils.seed_everything [!ref <seed>]
batch_size: 2  # of each rank
grad_accumulation_factor: 8
train_dataloader_opts:
    batch_size: !ref <batch_size>
test_dataloader_opts:
    batch_size: 64
model: !new:torch.nn.Linear
    in_features: 64
"""
AXOLOTL = """\
base_model: some/model
datasets:
  - path: mhenrichsen/alpaca_2k_test
    type: alpaca
gradient_accumulation_steps: 8
micro_batch_size: 2
eval_batch_size: 4
optimizer: adamw_bnb_8bit
bf16: auto
learning_rate: 0.0002
"""
TORCHTUNE = """\
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /tmp/${name}/tokenizer.model
optimizer:
  lr: 1e-5
name: x
batch_size: 2
gradient_accumulation_steps: 8
"""
PITFALLS = """\
%YAML 1.1
---
defaults: &defaults {lr: 1e-5, amp: on, since: 2024-01-01, port: 0o17, at: 1:30}
name: 'no'
train:
  <<: *defaults
  loaders:
    - {kind: eval, test_batch_size: 4}
    - batch_size: &bs 2   # micro
      also: *bs
  accumulate_every: 8
empty: ~
text: |
  batch_size: 3
"""


@pytest.mark.parametrize("text", [SMALL, SPEECHBRAIN, AXOLOTL, TORCHTUNE, PITFALLS])
def test_only_the_batch_changes_in_the_copy_of_a_trial(text: str) -> None:
    source = document(text)
    assert batch_of(source) == (2, 8)
    made = render_with(DIALECT, source, micro_batch=4, accumulation=4)
    (copy,) = made.files
    lines = zip(text.splitlines(), copy.text.splitlines(), strict=True)
    changed = [new for old, new in lines if new != old]
    numbers = [line.partition("#")[0].replace(",", " ").split()[-1] for line in changed]
    assert numbers == ["4", "4"]
    assert made.script_args == ("--cfg", "trial/c.yaml")


def test_json_and_toml_keep_their_other_text_too() -> None:
    text = '{\n\t"a": 1e-5, "train": {\n\t\t"micro_batch_size":2, "accum": 8}, "b": "\\/"}\n'
    (copy,) = render_with(DIALECT, document(text, "c.json"), micro_batch=16, accumulation=1).files
    assert copy.name == "script_c.json"
    expected = text.replace(":2", ":16").replace(": 8", ": 1")
    assert copy.text == expected
    json.loads(copy.text)


def test_toml_keeps_its_other_text_too() -> None:
    text = (
        'name = "x = 2"\nsince = 2024-01-01\nmodel.batch = "2"\n[[loop]]\nbatch_size = 2 # micro\n'
        "opt = {accum = 8, lr = 1e-5}\n[[loop]]\n"
        'text = """\nbatch_size = 2\n"""\n[loop.eval]\nbatch_size = 2\n'
    )
    source = document(text, "c.toml")
    assert batch_of(source) == (2, 8)
    (copy,) = render_with(DIALECT, source, micro_batch=16, accumulation=1).files
    assert copy.text == text.replace("= 2 #", "= 16 #").replace("accum = 8", "accum = 1")


def test_the_users_own_file_is_read_where_nothing_changes() -> None:
    made = render_with(DIALECT, document(SMALL))
    assert (made.files, made.script_args) == ((), ("--cfg", "c.yaml"))


@pytest.mark.parametrize(
    ("arguments", "position", "flag", "rendered"),
    [
        (("run", "d/c.yaml", "lr=1"), 1, "", ("run", "trial/c.yaml", "lr=1")),
        (("-x", "--config=d/c.yaml"), 1, "--config", ("-x", "--config=trial/c.yaml")),
        (("config=d/c.yaml",), 0, "config", ("config=trial/c.yaml",)),
        (("--lr", "1"), None, "--cfg", ("--lr", "1", "--cfg", "trial/c.yaml")),
    ],
)
def test_the_path_of_the_copy_stands_where_the_users_stood(
    arguments: tuple[str, ...], position: int | None, flag: str, rendered: tuple[str, ...]
) -> None:
    file = NamedFile(position=position, flag=flag, path="d/c.yaml", text=SMALL)
    made = render_with(DIALECT, script(*arguments, files=(file,)), micro_batch=4, accumulation=4)
    assert made.script_args == rendered


def test_a_path_is_replaced_where_a_switch_before_it_was_dropped() -> None:
    file = NamedFile(position=1, flag="", path="c.yaml", text=SMALL)
    text = "p.add_argument('--amp', action='store_true')"
    source = script("--amp", "c.yaml", text=text, files=(file,))
    source = say_of(source, knobs=(("--amp", (True, False)),))
    off = (("amp", False),)
    user = DIALECT.read(source, world_size=1)
    candidate = layout(user, micro_batch=4, accumulation=4)
    made = DIALECT.render(type(candidate)(layout=candidate.layout, extras=off), source, "t/c.json")
    assert made.script_args == ("t/c.yaml",)


@pytest.mark.parametrize("override", [("batch_size=4",), ("--batch_size", "4")])
def test_an_argument_outweighs_the_key_of_the_same_name(override: tuple[str, ...]) -> None:
    source = document(SMALL, "c.yaml", *override)
    assert batch_of(source) == (4, 8)
    made = render_with(DIALECT, source, micro_batch=16, accumulation=2)
    assert made.script_args[2:] == tuple(word.replace("4", "16") for word in override)
    assert [file.text for file in made.files] == [SMALL.replace("8", "2")]


@pytest.mark.parametrize(
    "text",
    [
        "eval: {batch_size: 4}\n",
        "valLoader: {batch_size: 4}\n",
        "test_dataloader_opts: {batch_size: 4}\n",
        "batch_size: auto\n",
        "batch_size: ${other}\n",
        "batch_size: -1\n",
        "batch_size: true\n",
        "lr: 4\n",
        "a: b: c\n",
    ],
)
def test_another_batch_than_that_of_training_is_left_alone(text: str) -> None:
    with pytest.raises(ConfigError, match="is known to be the micro-batch"):
        choose_dialect(document(text))


@pytest.mark.parametrize(
    "text",
    [
        "export: {batch_size: 1}\ntrain: {batch_size: 2, accum: 8}\n",
        "batch_size: {eval: 4, train: 2}\naccum: 8\n",
    ],
)
def test_of_several_batches_that_of_training_is_taken(text: str) -> None:
    assert batch_of(document(text)) == (2, 8)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("data: [{n: 2}]\naccum: 8\n", "data.0.n"),
        ("SOLVER: {IMS_PER_BATCH: 2}\naccum: 8\n", "SOLVER.IMS_PER_BATCH"),  # no variable
    ],
)
def test_a_key_can_be_named_like_an_argument(text: str, key: str) -> None:
    source = say_of(document(text), arguments=(("train_micro_batch_size_per_gpu", key),))
    assert batch_of(source) == (2, 8)
    made = render_with(DIALECT, source, micro_batch=4, accumulation=4)
    assert made.files[0].text == text.replace("2", "4").replace("8", "4")


def test_a_declared_argument_that_is_not_given_does_not_outweigh_a_key() -> None:
    source = document(SMALL, text="p.add_argument('--batch_size', type=int, default=32)")
    assert batch_of(source) == (2, 8)


@pytest.mark.parametrize(
    ("micro_batch", "read"),
    [
        (8, 8),
        (4, 4),  # of each of two ranks
    ],
)
def test_the_profile_run_tells_a_total_of_the_ranks_from_a_micro_batch(
    micro_batch: int, read: int
) -> None:
    ran = strategy_of(micro_batch=micro_batch, accumulation=8)
    source = document("batch_size: 8\naccum: 8\n", applied=ran)
    assert DIALECT.read(source, world_size=2).baseline.layout.micro_batch == read
    made = render_with(DIALECT, source, 2, micro_batch=16, accumulation=1)
    assert yaml.safe_load(made.files[0].text)["batch_size"] == 16 * (8 // micro_batch)


def test_the_last_of_two_documents_decides_and_both_change() -> None:
    files = tuple(
        NamedFile(position=1 + n, flag="--config" if n == 0 else "", path=f"{n}/c.yaml", text=text)
        for n, text in enumerate(("batch_size: 32\nlr: 1\n", SMALL))
    )
    source = script("--config", "0/c.yaml", "1/c.yaml", files=files)
    assert batch_of(source) == (2, 8)
    made = render_with(DIALECT, source, micro_batch=4, accumulation=4)
    assert made.script_args == ("--config", "trial/c.yaml", "trial/2_c.yaml")
    assert [yaml.safe_load(file.text)["batch_size"] for file in made.files] == [4, 4]


def test_a_name_that_is_neither_argument_nor_key_is_refused_with_both() -> None:
    text = "import argparse\np.add_argument('--n', type=int)"
    source = document(SMALL, text=text)
    source = say_of(source, arguments=(("train_micro_batch_size_per_gpu", "train.n"),))
    with pytest.raises(ConfigError) as error:
        DIALECT.read(allowing(source), world_size=1)
    assert "train.n" in str(error.value)


def test_another_key_is_searched_by_its_values() -> None:
    knobs = (("optim.lr", (1e-5, 0.001)),)
    source = say_of(document(f"{SMALL}optim: {{lr: 0.001, name: x}}\n"), knobs=knobs)
    user = DIALECT.read(source, world_size=1)
    assert next(c.values for c in user.choices if c.knob == "optim.lr") == (0.001, 1e-5)
    candidate = type(user.baseline)(layout=user.baseline.layout, extras=(("optim.lr", 1e-5),))
    (copy,) = DIALECT.render(candidate, source, "t/c.json").files
    assert yaml.safe_load(copy.text)["optim"] == {"lr": 1e-5, "name": "x"}


def test_which_key_of_which_file_was_taken_is_said() -> None:
    notes = DIALECT.read(document(SMALL), world_size=1).notes
    assert notes[0] == "Using batch_size in c.yaml as the micro-batch (change it with --arg)."


def test_a_key_that_the_script_does_not_follow_is_found_out_by_the_profile_run() -> None:
    ran = strategy_of(micro_batch=4, accumulation=8)
    with pytest.raises(
        ConfigError, match=r"in c\.yaml is 2, but .* have 4 .*--dialect dataloader"
    ):
        DIALECT.read(document(SMALL, applied=ran), world_size=1)


def test_the_setting_that_has_the_number_of_the_profile_run_is_taken() -> None:
    ran = strategy_of(micro_batch=32, accumulation=8)
    text = "p.add_argument('--batch_size', type=int, default=32)"
    source = document("train: {batch_size: 2, accum: 8}\n", text=text, applied=ran)
    user = DIALECT.read(source, world_size=1)
    assert user.baseline.layout.micro_batch == 32
    assert "Using --batch_size as the micro-batch" in user.notes[0]


def test_a_checkpoint_of_the_verification_run_is_moved_in_the_copy() -> None:
    source = document(f"{SMALL}save_steps: 500\n")
    needs = TrialNeeds(folder="trial", steps=20, saves=True)
    for changes in ({}, {"micro_batch": 4, "accumulation": 4}):
        trial = DIALECT.in_trial(render_with(DIALECT, source, **changes), source, needs)
        assert yaml.safe_load(trial.files[0].text)["save_steps"] == needs.save_after
        assert trial.script_args == ("--cfg", "trial/c.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("root = Path(args.cfg).parent", True),
        ("import os\nroot = os.path.dirname(os.path.abspath(config_path))", True),
        ("root = Path(sys.argv[1]).resolve().parent", True),
        ("root = Path(__file__).parent", False),
        ("Path(args.output).parent.mkdir()", False),
    ],
)
def test_a_script_that_uses_the_folder_of_its_document_is_warned_of(text: str, said: bool) -> None:
    warnings = " ".join(DIALECT.read(document(SMALL, text=text), world_size=1).warnings)
    assert ("another folder" in warnings) == said


def test_a_document_that_includes_others_is_warned_of() -> None:
    user = DIALECT.read(document(f"_base_: ./base.yaml\n{SMALL}"), world_size=1)
    assert "c.yaml includes other files" in user.warnings[0]


def test_without_a_batch_the_documents_that_were_looked_at_are_named() -> None:
    text = "DataLoader(data, size)"
    with pytest.raises(ConfigError) as error:
        choose_dialect(document("lr: 1\n", text=text))
    assert str(error.value) == (
        "No argument of train.py and no key of c.yaml is known to be the micro-batch. Name it "
        "with --arg train_micro_batch_size_per_gpu=--NAME (or =SECTION.KEY for a key), or have it "
        "changed inside DataLoader: --dialect dataloader --allow-global-batch-change."
    )


def test_an_accelerate_script_is_tuned_by_its_document() -> None:
    text = "from accelerate import Accelerator\na = Accelerator()"
    source = document(SMALL, text=text)
    dialect = choose_dialect(source).dialect
    assert dialect.name == "accelerate"
    made = render_with(dialect, source, micro_batch=4, accumulation=4)
    assert yaml.safe_load(made.files[0].text) == {"batch_size": 4, "accum_steps": 4}


def test_a_division_of_keys_is_seen_as_a_derived_accumulation() -> None:
    text = "c = load()\nfor _ in range(c['global_batch'] // c['train']['micro_batch_size']): pass"
    source = document("global_batch: 16\ntrain: {micro_batch_size: 2}\n", text=text)
    assert DIALECT.read(source, world_size=1).awaits_profile


def test_a_document_that_is_too_large_or_grows_so_by_aliases_is_not_read() -> None:
    assert leaves_of(f"batch_size: 2\n{'# x' * 2**20}", ".yaml") == ()
    lines = ["a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [
        f"{c}: &{c} [{', '.join([f'*{b}'] * 9)}]"
        for b, c in zip("abcdefg", "bcdefgh", strict=True)
    ]
    assert leaves_of("\n".join(lines), ".yaml") == ()


@pytest.mark.parametrize(
    "text", ["a: &a [*a, *a]\nbatch_size: 2\n", "[" * 5000, "a: &a {b: *a}\n", "", "5", "- 1"]
)
def test_a_document_that_no_reader_would_end_does_no_harm(text: str) -> None:
    assert all(
        edit_leaves(text, ".yaml", {(leaf.path): leaf.value}) for leaf in leaves_of(text, "")
    )


@pytest.mark.parametrize(
    "written",
    [
        "'code/c.yaml'",
        "HERE / 'c.yaml'",
        "str(HERE / 'c.yaml')",
        "Path(__file__).parent / 'c.yaml'",
        "Path(__file__).resolve().parent.joinpath('c.yaml')",
        "Path(__file__).with_name('c.yaml')",
        "os.path.join(os.path.dirname(os.path.abspath(__file__)), 'c.yaml')",
        "Path(__file__).parent.parent / 'code' / 'c.yaml'",
    ],
)
def test_a_default_path_may_start_at_the_folder_of_the_script(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("code").mkdir()
    Path("code/c.yaml").write_text(SMALL)
    declares = f"p.add_argument('--cfg', type=Path, default={written})\n"
    Path("code/train.py").write_text(f"HERE = Path(__file__).parent\n{declares}")
    source = find_script_source(parse_request(["code/train.py"]))
    assert batch_of(source) == (2, 8)
    assert render_with(DIALECT, source).script_args == ()
    made = render_with(DIALECT, source, micro_batch=4, accumulation=4)
    assert made.script_args == ("--cfg", "trial/c.yaml")


@pytest.mark.parametrize("words", [("--config", "gone.yaml"), ("gone.yaml",), ("--c=gone.yaml",)])
def test_a_document_that_does_not_exist_is_named_as_the_cause(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import sys, yaml\nyaml.safe_load(open(sys.argv[-1]))\n")
    with pytest.raises(ConfigError, match=r"^gone\.yaml, named by .* does not exist"):
        choose_dialect(find_script_source(parse_request(["train.py", *words])))


def test_a_document_that_the_script_writes_may_not_exist_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import argparse\n")
    source = find_script_source(parse_request(["train.py", "--output", "made.json"]))
    with pytest.raises(ConfigError) as error:
        choose_dialect(source)
    assert "made.json" not in str(error.value)
