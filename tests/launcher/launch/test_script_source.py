from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.launcher.asked import OwnKnob
from autoconf_launch.launcher.dialects.deepspeed import encode_document
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.launch import find_script_source, read_script
from autoconf_launch.launcher.script import ScriptSource


def test_flags_are_the_users_words() -> None:
    request = parse_request(
        [
            "--dialect=arguments",
            "--arg=train_micro_batch_size_per_gpu=--bs",
            "--knob=--num_workers=[0, 2]",
            "--knob",
            "--optim=[adamw_torch, sgd]",
            "t.py",
        ]
    )
    words = find_script_source(request).words
    assert (words.dialect, words.arguments) == (
        "arguments",
        (("train_micro_batch_size_per_gpu", "--bs"),),
    )
    assert words.knobs == (
        OwnKnob(name="--num_workers", values=(0, 2)),
        OwnKnob(name="--optim", values=("adamw_torch", "sgd")),
    )


@pytest.mark.parametrize("knob", ["--num_workers", "--num_workers=[]", "--num_workers=4", "=[1]"])
def test_a_knob_without_a_list_of_values_is_refused(knob: str) -> None:
    with pytest.raises(ConfigError, match=r"has no list of values; write for example"):
        parse_request(["--knob", knob, "t.py"])


@pytest.mark.parametrize("mapping", ["batch", "batch=", "=--batch"])
def test_a_mapping_without_both_sides_is_refused(mapping: str) -> None:
    with pytest.raises(ConfigError, match="must be KEY=FLAG"):
        parse_request(["--arg", mapping, "t.py"])


def test_the_scripts_source_and_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("import deepspeed")
    (tmp_path / "c.toml").write_text("[a]\nb = 1\n")
    source = find_script_source(parse_request(["t.py", "--job.config_file=c.toml", "--x", "1"]))
    (file,) = source.files
    assert source.text == "import deepspeed"
    assert (file.position, file.flag, file.text) == (0, "--job.config_file", "[a]\nb = 1\n")


@pytest.mark.parametrize("setting", ["bf16: false", "fp16: true", "optimizer: adamw"])
def test_a_file_of_arguments_is_the_scripts_own(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("import deepspeed")
    (tmp_path / "c.yaml").write_text(f"{setting}\ngradient_accumulation_steps: 2\n")
    source = find_script_source(parse_request(["t.py", "--config", "c.yaml"]))
    assert (source.config_argument, [file.path for file in source.files]) == (None, ["c.yaml"])


@pytest.mark.parametrize(
    ("script", "name"), [("src/t.py", "src/t.py"), ("/env/bin/toytrain", "toytrain")]
)
def test_an_installed_command_is_called_by_its_name(script: str, name: str) -> None:
    source = ScriptSource(
        script_args=(), config=RawConfig({}), config_argument=None, script=script
    )
    assert source.name == name


def test_an_argument_too_long_to_be_a_path_is_no_file() -> None:
    files = ",".join(f"data/part_{number:05}.json" for number in range(80))
    assert find_script_source(parse_request(["t.py", files])).files == ()


def another_python(folder: Path) -> str:
    path = folder / "python3"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_versions_are_those_that_the_named_python_has(tmp_path: Path) -> None:
    package = tmp_path / "transformers-4.99.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: transformers\nVersion: 4.99.0\n")
    python = Path(another_python(tmp_path))
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    request = replace(parse_request(["t.py"]), python=str(python))
    assert dict(find_script_source(request).versions)["transformers"] == "4.99.0"


def test_a_named_python_that_cannot_be_asked_has_no_versions(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("nothing that could be executed")
    broken.chmod(0o755)
    request = replace(parse_request(["t.py"]), python=str(broken))
    assert find_script_source(request).versions == ()


def test_what_another_python_measures_is_another_thing(tmp_path: Path) -> None:
    request = parse_request(["t.py"])
    other = replace(request, python=another_python(tmp_path))
    environments = [find_script_source(asked).environment for asked in (request, other)]
    assert environments[0] != environments[1]


def test_a_document_in_base64_is_the_configuration() -> None:
    document = RawConfig({"train_batch_size": 8})
    source = find_script_source(parse_request(["t.py", "--deepspeed", encode_document(document)]))
    assert (source.config, source.config_argument) == (document, 1)


def test_variables_of_frameworks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("MY_KNOB", "3")
    request = parse_request(["--knob=MY_KNOB=[3, 4]", "t.py"])
    assert {("FSDP_VERSION", "2"), ("MY_KNOB", "3")} <= set(
        find_script_source(request).environment
    )


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
def test_words_in_another_order_get_the_line_that_works(
    typed: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
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
    typed: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match=f"^A verb is given once, and no program named {name} is"
    ):
        read_script(parse_request(typed.split()))
    (tmp_path / name).write_text("#!/usr/bin/env python\nprint(1)\n")
    (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path.parent)
    assert read_script(parse_request(typed.split()))[0].script == str(tmp_path / name)


def test_a_byte_order_mark_is_not_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_bytes(b"\xef\xbb\xbfimport deepspeed\n")
    source = find_script_source(parse_request([str(tmp_path / "t.py")]))
    assert source.facts.imports("deepspeed")
