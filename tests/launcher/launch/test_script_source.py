"""A script's words, files, configuration and versions, as the launch finds them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.launcher.asked import OwnKnob
from autoconf_launch.launcher.dialects import choose_dialect
from autoconf_launch.launcher.dialects.deepspeed import encode_document
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.launch import find_script_source, find_source, read_script
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import UserSettings

OURS = {"train_micro_batch_size_per_gpu": 2}
OWN = {"layers": 3}
OF_OTHER_TOOLS = (
    "optimizer:\n  lr: 1e-5\nbf16: auto\nbatch_size: 2\ngradient_accumulation_steps: 8\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def find(*words: str, **files: str | dict[str, Any]) -> ScriptSource:
    """The source of a command, once these files (NAME_SUFFIX) are in the working directory."""
    for name, text in files.items():
        path = Path(name.replace("_", "."))
        path.write_text(text if isinstance(text, str) else json.dumps(text))
    return find_script_source(parse_request(words))


def read(source: ScriptSource) -> UserSettings:
    return choose_dialect(source).dialect.read(source, world_size=1)


def test_flags_are_the_users_words() -> None:
    knobs = ("--knob=--num_workers=[0, 2]", "--knob", "--optim=[adamw_torch, sgd]")
    words = find(
        "--dialect=arguments", "--arg=train_micro_batch_size_per_gpu=--bs", *knobs, "t.py"
    ).words
    assert words.dialect == "arguments"
    assert words.arguments == (("train_micro_batch_size_per_gpu", "--bs"),)
    assert words.knobs == (
        OwnKnob(name="--num_workers", values=(0, 2)),
        OwnKnob(name="--optim", values=("adamw_torch", "sgd")),
    )


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        *(
            ("--knob", value, "has no list of values; write for example")
            for value in ("--num_workers", "--num_workers=[]", "--num_workers=4", "=[1]")
        ),
        *(("--arg", value, "must be KEY=FLAG") for value in ("batch", "batch=", "=--batch")),
    ],
)
def test_a_knob_without_values_and_a_mapping_without_a_side_are_refused(
    flag: str, value: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_request([flag, value, "t.py"])


def test_the_scripts_source_and_files_are_read() -> None:
    held = "[a]\nb = 1\n"
    words = ("t.py", "--job.config_file=c.toml", "--x", "1")
    source = find(*words, t_py="\ufeffimport deepspeed\n", c_toml=held)
    (file,) = source.files
    assert source.facts.imports("deepspeed")  # also behind a byte order mark
    assert (file.position, file.flag, file.text) == (0, "--job.config_file", held)


@pytest.mark.parametrize(
    ("script", "name"), [("src/t.py", "src/t.py"), ("/env/bin/toytrain", "toytrain")]
)
def test_an_installed_command_is_called_by_its_name(script: str, name: str) -> None:
    source = ScriptSource(
        script_args=(), config=RawConfig({}), config_argument=None, script=script
    )
    assert source.name == name


def test_a_list_of_files_too_long_to_be_a_path_is_no_file_and_no_configuration() -> None:
    files = ",".join(f"data/part_{number:05}.json" for number in range(80))
    assert find("t.py", files).files == ()
    with pytest.raises(ConfigError, match="given by --config, does not exist"):
        find_source(("--config", files.replace("data/", "")))


def another_python(folder: Path, text: str = "") -> str:
    path = folder / "python3"
    path.write_text(text or f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_versions_are_those_of_the_named_python_whose_measurements_are_its_own(
    folder: Path,
) -> None:
    package = folder / "transformers-4.99.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: transformers\nVersion: 4.99.0\n")
    request = parse_request(["t.py"])
    other = find_script_source(replace(request, python=another_python(folder)))
    assert dict(other.versions)["transformers"] == "4.99.0"
    assert other.environment != find_script_source(request).environment


def test_a_named_python_that_does_not_answer_has_no_versions(folder: Path) -> None:
    broken = another_python(folder, "nothing that could be executed")
    request = replace(parse_request(["t.py"]), python=broken)
    assert find_script_source(request).versions == ()


def test_variables_of_frameworks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("MY_KNOB", "3")
    seen = set(find("--knob=MY_KNOB=[3, 4]", "t.py").environment)
    assert {("FSDP_VERSION", "2"), ("MY_KNOB", "3")} <= seen


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("--num_gpus 2 tune t.py --lr 1", "tune --num_gpus 2 t.py --lr 1"),
        ("--autotuning=tune --quiet run t.py", "run --quiet t.py"),
        ("--num_gpus 2 doctor", "doctor --num_gpus 2"),
        ("main.py search_config=gpt3/5b", "search search_config=gpt3/5b"),
        ("search_config=gpt3/5b", "search search_config=gpt3/5b"),
    ],
)
def test_words_in_another_order_get_the_line_that_works(typed: str, line: str) -> None:
    with pytest.raises(ConfigError, match=f"write autoconf-launch {line}\\.$"):
        read_script(parse_request(typed.split()))


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("--autotuning=tune tune run full batch_size=2", "tune"),
        ("--autotuning=run --num_gpus 2 tune run full", "tune"),
        ("--autotuning=run run t.py", "run"),
    ],
)
def test_a_word_after_a_verb_is_a_program(
    typed: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    missing = f"^A verb is given once, and no program named {name} is"
    with pytest.raises(ConfigError, match=missing):
        read_script(parse_request(typed.split()))
    (folder / name).write_text("#!/usr/bin/env python\nprint(1)\n")
    (folder / name).chmod(0o755)
    monkeypatch.chdir(folder.parent)
    assert read_script(parse_request(typed.split()))[0].script == str(folder / name)


def test_a_document_in_base64_is_the_configuration() -> None:
    document = RawConfig({"train_batch_size": 8})
    source = find("t.py", "--deepspeed", encode_document(document))
    assert (source.config, source.config_argument) == (document, 1)


@pytest.mark.parametrize(
    ("words", "position"),
    [
        *((f"{flag} c.json", 1) for flag in ("--config", "-config", "--deepspeed")),
        *(("--deepspeed_config c.json", 1), ("--lr=1 --config=c.json", 1)),
        ("--deepspeed c.json --config empty.json", 1),
        ("--config own.json", None),
        ("--deepspeed --config gpt2", None),
        *((f"--config {name}.yaml", None) for name in ("bf16", "fp16", "optimizer")),
    ],
)
def test_a_document_with_our_keys_is_the_configuration_and_a_scripts_own_file_is_not(
    words: str, position: int | None
) -> None:
    settings = {"bf16": "false", "fp16": "true", "optimizer": "adamw"}
    others = {
        f"{name}_yaml": f"{name}: {value}\ngradient_accumulation_steps: 2\n"
        for name, value in settings.items()
    }
    documents = {"c_json": OURS, "own_json": OWN, "empty_json": {}}
    source = find("t.py", *words.split(), t_py="import deepspeed", **documents, **others)
    assert source.config_argument == position
    assert source.config.to_dict() == ({} if position is None else OURS)


def test_a_file_that_a_script_may_look_for_elsewhere_is_left_to_it() -> None:
    source = find("t.py", "--config", "small.yaml", t_py="import torch")
    assert source.config_argument is None


def test_a_scripts_own_file_is_tuned_with_a_section_for_it() -> None:
    source = find("t.py", "--config", "c.json", c_json=OWN, t_py="")
    with pytest.raises(ConfigError, match=r'add "autotuning": {} to it'):
        choose_dialect(source)
    for section in ({}, {"enabled": True}):
        source = find("t.py", "--config", "c.json", c_json={**OWN, "autotuning": section})
        assert read(source).baseline.layout.micro_batch == 1


def test_an_empty_document_waits_for_our_keys() -> None:
    user = read(find("t.py", "--config", "c.json", c_json={}, t_py=""))
    stages = next(choice for choice in user.choices if choice.knob == "zero_stage")
    assert stages.values == (0, 1, 2, 3)


def test_a_deepspeed_configuration_is_ours_whatever_it_holds() -> None:
    Path("c.json").write_text('{"steps_per_print": 10}')
    source = find_source(("--deepspeed_config", "c.json"))
    assert choose_dialect(source).dialect.detects(source)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch, yaml", "document"),
        ("import autoconf_launch.runtime", "native"),
        ("import deepspeed", "deepspeed"),
    ],
)
def test_a_key_that_many_tools_have_makes_a_document_ours_only_for_our_scripts(
    text: str, name: str
) -> None:
    source = find("t.py", "--config", "c.yaml", t_py=text, c_yaml=OF_OTHER_TOOLS)
    assert choose_dialect(source).dialect.name == name


def test_a_scripts_own_document_may_have_tags_that_only_it_can_read() -> None:
    held = f"{OF_OTHER_TOOLS}model: !new:torch.nn.Linear\n  in: !ref <x>\n"
    source = find("t.py", "--config", "c.yaml", t_py="import torch", c_yaml=held)
    assert read(source).baseline.layout.micro_batch == 2


def test_a_tuning_space_is_read_with_its_name() -> None:
    Path("space.hjson").write_text("{zero_optimization: {bucket_cap_mb: [1, 2]}}")
    space = find_source((), "space.hjson").space
    assert space is not None
    assert space.name == "space.hjson"
    assert space.document.get(("zero_optimization", "bucket_cap_mb")) == [1, 2]


@pytest.mark.parametrize(
    ("words", "space", "says"),
    [(("--config", "none.json"), None, "does not exist"), ((), "none.hjson", "No such file")],
)
def test_a_missing_file_is_named(words: tuple[str, ...], space: str | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_source(words, space)
