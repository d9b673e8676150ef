import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.dialects import choose_dialect
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.launch import find_script_source, find_source
from autoconf_launch.launcher.script import ScriptSource

OURS = {"train_micro_batch_size_per_gpu": 2}
OWN = {"layers": 3}


def written(folder: Path, name: str, document: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(document))
    return str(path)


def find(folder: Path, flag: str, document: Any) -> ScriptSource:
    return find_source((flag, written(folder, "c.json", document)))


@pytest.mark.parametrize("flag", ["--config", "-config", "--deepspeed", "--deepspeed_config"])
def test_a_document_with_our_keys_is_the_configuration(tmp_path: Path, flag: str) -> None:
    source = find(tmp_path, flag, OURS)
    assert (source.config.to_dict(), source.config_argument) == (OURS, 1)


def test_an_equals_sign_will_do(tmp_path: Path) -> None:
    path = written(tmp_path, "c.json", OURS)
    assert find_source(("--lr=1", f"--config={path}")).config_argument == 1


def test_a_list_of_files_too_long_to_be_a_path_is_no_configuration() -> None:
    files = ",".join(f"part_{number:05}.json" for number in range(80))
    with pytest.raises(ConfigError, match="given by --config, does not exist"):
        find_source(("--config", files))


def test_a_scripts_own_file_is_left_alone(tmp_path: Path) -> None:
    source = find(tmp_path, "--config", OWN)
    assert source.config_argument is None
    with pytest.raises(ConfigError, match=r'add "autotuning": {} to it'):
        choose_dialect(source)


@pytest.mark.parametrize("section", [{}, {"enabled": True}])
def test_a_scripts_own_file_with_an_autotuning_section_is_tuned(
    tmp_path: Path, section: dict[str, Any]
) -> None:
    source = find(tmp_path, "--config", {**OWN, "autotuning": section})
    assert (
        choose_dialect(source).dialect.read(source, world_size=1).baseline.layout.micro_batch == 1
    )


def test_an_empty_document_waits_for_our_keys(tmp_path: Path) -> None:
    source = find(tmp_path, "--config", {})
    user = choose_dialect(source).dialect.read(source, world_size=2)
    stages = next(choice for choice in user.choices if choice.knob == "zero_stage")
    assert stages.values == (0, 1, 2, 3)


def test_a_deepspeed_configuration_is_ours_whatever_it_holds(tmp_path: Path) -> None:
    source = find(tmp_path, "--deepspeed_config", {"steps_per_print": 10})
    assert choose_dialect(source).dialect.detects(source)


def test_an_empty_file_of_the_script_does_not_hide_the_configuration(tmp_path: Path) -> None:
    ours, empty = written(tmp_path, "ours.json", OURS), written(tmp_path, "empty.json", {})
    assert find_source(("--deepspeed", ours, "--config", empty)).config_argument == 1


def test_a_flag_without_a_file_is_no_configuration() -> None:
    assert find_source(("--deepspeed", "--config", "gpt2")).config_argument is None


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        find_source(("--config", str(tmp_path / "none.json")))


def test_a_tuning_space_is_read_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "space.hjson"
    path.write_text("{zero_optimization: {bucket_cap_mb: [1, 2]}}")
    space = find_source((), str(path)).space
    assert space is not None
    assert space.name == str(path)
    assert space.document.get(("zero_optimization", "bucket_cap_mb")) == [1, 2]


def test_a_missing_tuning_space_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        find_source((), str(tmp_path / "none.hjson"))


OF_OTHER_TOOLS = (
    "optimizer:\n  lr: 1e-5\nbf16: auto\nbatch_size: 2\ngradient_accumulation_steps: 8\n"
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch, yaml", "document"),
        ("import autoconf_launch.runtime", "native"),
        ("import deepspeed", "deepspeed"),
    ],
)
def test_a_key_that_many_tools_have_makes_a_document_ours_only_for_our_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(text)
    Path("c.yaml").write_text(OF_OTHER_TOOLS)
    source = find_script_source(parse_request(["train.py", "--config", "c.yaml"]))
    assert choose_dialect(source).dialect.name == name


def test_a_scripts_own_document_may_have_tags_that_only_it_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch")
    Path("c.yaml").write_text(f"{OF_OTHER_TOOLS}model: !new:torch.nn.Linear\n  in: !ref <x>\n")
    source = find_script_source(parse_request(["train.py", "--config", "c.yaml"]))
    assert (
        choose_dialect(source).dialect.read(source, world_size=1).baseline.layout.micro_batch == 2
    )


def test_a_file_that_a_script_may_look_for_elsewhere_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch")
    source = find_script_source(parse_request(["train.py", "--config", "small.yaml"]))
    assert source.config_argument is None
