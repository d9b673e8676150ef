from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoconf_launch.launcher.commands.export import export
from autoconf_launch.launcher.commands.recommend import recommend

from ..report.fixed import finish, write_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = write_folder(Path("results"))
    finish(made)
    return made


def tell(*arguments: str) -> str:
    return "\n".join(export(arguments))


def test_one_document_holds_text_and_what_is_left_out(folder: Path) -> None:
    assert '"train_micro_batch_size_per_gpu": ' in tell(str(folder), "--to", "deepspeed")
    document = json.loads(tell(str(folder), "--to=accelerate", "--json"))
    assert (document["schema_version"], document["to"]) == (1, "accelerate")
    assert any("micro_batch" in sentence for sentence in document["not_expressed"])
    assert document["trial"].startswith("z")


def test_it_is_written_to_a_file_and_said_what_is_left_out(folder: Path) -> None:
    text = tell(str(folder), "--to=accelerate", "-o", "out.yaml")
    assert "is written to out.yaml" in text
    assert "not expressed: micro_batch" in text
    assert "distributed_type" in Path("out.yaml").read_text()


def test_a_base_configuration_is_exported_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    arguments = ("--family", "llama", "--model-size", "8", "--gpus", "8", "--tokens", "1B")
    list(recommend((*arguments, "--tflops-per-gpu", "400", "--base-config", str(path))))
    assert "--swiglu" in tell(str(path), "--to", "megatron")
    document = json.loads(tell(str(path), "--to", "torchtitan", "--json"))
    assert "constant_steps" in document["not_expressed"][0]
