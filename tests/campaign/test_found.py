"""Earlier defects of damaged inputs, each with its smallest input."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoconf_launch.launcher.estimates import fit

from .fuzz import run_here, why_missed
from .inputs import DEEPSPEED_CONFIG, DEEPSPEED_SCRIPT, HUGGING_FACE, SCRIPT, SOUND_CONFIG, Case
from .inputs import _bases as bases
from .inputs import _journal as journal

LLAMA, DEEPSEEK = HUGGING_FACE[0], HUGGING_FACE[2]
FIT = ("--cluster=1x8xH100-SXM-80GB", "--seq=2048", "--global-batch=64")


def change(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    found = copy.deepcopy(document)
    holder = found
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = value
    return found


def refusal(folder: Path, argv: tuple[str, ...], name: str) -> str:
    """The one line that a command says of a file."""
    ended = run_here(Case(argv, name), folder)
    assert why_missed(Case(argv, name), ended) == ""
    assert ended.code == 2
    return ended.said


ZERO = "zero_optimization"


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ((ZERO, "allgather_bucket_size"), [5e7, {"a": 1}], "allgather_bucket_size lists"),
        ((ZERO, "allgather_bucket_size"), [[5e7]], "allgather_bucket_size lists"),
        ((ZERO, "allgather_bucket_size"), [], "allgather_bucket_size lists nothing"),
        (("train_micro_batch_size_per_gpu",), [1, 2**63], "at most 2147483648"),
        (("activation_checkpointing", "partition_activations"), [[1]], "must list numbers"),
        (("autotuning", "enabled"), "x" * 5000, "autotuning.enabled is 'xxx"),
    ],
)
def test_a_deepspeed_configuration(
    tmp_path: Path, path: tuple[str, ...], value: Any, says: str
) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(change(DEEPSPEED_CONFIG, path, value)))
    (tmp_path / "script.py").write_text(DEEPSPEED_SCRIPT)
    argv = ("--autotuning=tune", "--num_gpus=1", "script.py", "--deepspeed", "ds.json")
    assert says in refusal(tmp_path, argv, "ds.json")


def test_a_configuration_names_its_file_and_the_key_that_is_nested(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    deep = f"autotuning: {{enabled: true}}\nmine: {'[' * 100}1{']' * 100}\n"
    (tmp_path / "deep.yaml").write_text(deep)
    (tmp_path / "bad.json").write_text(json.dumps(change(SOUND_CONFIG, (ZERO, "stage"), 9)))
    argv = ("--autotuning=tune", "--num_gpus=1", "script.py", "--config")
    assert "mine is nested" in refusal(tmp_path, (*argv, "deep.yaml"), "deep.yaml")
    assert "bad.json: zero_optimization.stage is 9" in refusal(
        tmp_path, (*argv, "bad.json"), "bad.json"
    )


@pytest.mark.parametrize(
    ("model", "key", "value", "says"),
    [
        (LLAMA, "model_type", "gpt", "transformers does not know"),
        (LLAMA, "num_hidden_layers", 32_000_000, "num_hidden_layers is 32000000"),
        (LLAMA, "num_key_value_heads", 129, "multiple of num_key_value_heads"),
        (LLAMA, "num_attention_heads", 40_960, "num_attention_heads is 40960"),
        (DEEPSEEK, "num_experts_per_tok", 257, "num_experts_per_tok is 257"),
        (DEEPSEEK, "first_k_dense_replace", 61, "first_k_dense_replace is 61"),
        (DEEPSEEK, "kv_lora_rank", "8", "kv_lora_rank is '8'"),
    ],
)
def test_a_model(tmp_path: Path, model: Any, key: str, value: Any, says: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**model, key: value}))
    argv = ("fit", "--model=config.json", *FIT)
    assert says in refusal(tmp_path, argv, "config.json")


def test_a_model_that_no_cluster_holds_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "plan", pytest.fail)  # a second for all clusters' layouts
    (tmp_path / "config.json").write_text(json.dumps({**DEEPSEEK, "n_shared_experts": 1_000_000}))
    ended = run_here(Case(("fit", "--model=config.json", *FIT), "config.json"), tmp_path)
    assert (ended.code, ended.broke) == (1, "")
    assert "it does not fit" in ended.said


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("model", "tensor_model_parallel_size"), 0),
        (("model", "global_batch_size"), 0),
        (("model", "ffn_hidden_size"), 2**63),
        (("model", "optim", "lr"), 0),
    ],
)
def test_a_base_configuration(tmp_path: Path, path: tuple[str, ...], value: Any) -> None:
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(change(bases()[0], path, value)))
    argv = ("export", "base.yaml", "--to=nemo1")
    assert f"{'.'.join(path)} is" in refusal(tmp_path, argv, "base.yaml")


def test_a_recipe_whose_days_are_no_number(tmp_path: Path) -> None:
    path = ("autoconf", "max_training_days")
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(change(bases()[1], path, {"a": 1})))
    argv = ("export", "base.yaml", "--to=nemo1")
    assert "autoconf.max_training_days is" in refusal(tmp_path, argv, "base.yaml")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("candidate", "layout", "micro_batch"), 0),
        (("candidate", "layout", "data_parallel"), -8),
        (("measurement", "samples_per_step"), 0),
        (("measurement", "world_size"), 2**40),
        (("wall_s",), 10**400),
    ],
)
def test_a_journal(tmp_path: Path, path: tuple[str, ...], value: Any) -> None:
    *others, last = journal()
    (tmp_path / "results").mkdir()
    lines = [*others, change(last, path, value)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "results" / "journal.jsonl").write_text(text)
    said = refusal(tmp_path, ("show", "results"), "journal.jsonl")
    assert f"line {len(lines)} of" in said


@pytest.mark.parametrize(
    "word",
    [
        "search_config.train_settings.seq_length=9223372036854775808",
        f"search_config.train_settings.model_size_in_b={10**400}",
        "search_config.train_settings.tensor_parallel_sizes=" + "[" * 300 + "]" * 300,
    ],
)
def test_an_override(tmp_path: Path, word: str) -> None:
    pytest.importorskip("hydra")
    argv = ("search", "--dry-run", "search_config=gpt3/5b", word)
    refusal(tmp_path, argv, "")


def test_a_folder_of_data_whose_name_no_file_system_takes(tmp_path: Path) -> None:
    argv = ("search", "--dry-run", "search_config=gpt3/5b", "cluster_type=bcm")
    said = refusal(tmp_path, (*argv, f"data_dir={'d' * 5000}"), "data_dir")
    assert "data_dir: it cannot be read: File name too long" in said


@pytest.mark.parametrize(
    "argv",
    [
        ("validate", "x" * 5000),
        ("fit", "--inference", f"--model=./{'x' * 5000}", *FIT[:1]),
    ],
)
def test_a_path_that_no_file_system_takes(tmp_path: Path, argv: tuple[str, ...]) -> None:
    lengths = ("--input-len=128", "--output-len=128") if argv[0] == "fit" else ()
    assert "File name too long" in refusal(tmp_path, (*argv, *lengths), "xxxx")


def test_a_table_that_is_one_long_line(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("1, " * 300_000)
    said = refusal(tmp_path, ("validate", "table.csv"), "table.csv")
    assert "table.csv:1: it has 300001 columns, but must have 1000 at most" in said


@pytest.mark.parametrize("name", ["broken.hjson", "broken.yaml", "broken.json"])
def test_a_number_that_is_too_large_is_refused_by_its_key(tmp_path: Path, name: str) -> None:
    huge = change(SOUND_CONFIG, ("gradient_accumulation_steps",), 10**398)
    (tmp_path / name).write_text(json.dumps(huge))
    (tmp_path / "script.py").write_text(SCRIPT)
    argv = ("--autotuning=tune", "--num_gpus=1", "script.py", "--config", name)
    assert "gradient_accumulation_steps is a whole number" in refusal(tmp_path, argv, name)


def test_a_text_part_whose_type_is_an_object(tmp_path: Path) -> None:
    text = {"model_type": {"model_type": "gemma3_text"}}
    document = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 8}}
    (tmp_path / "config.json").write_text(json.dumps(document))
    argv = ("fit", "--model", "config.json", *FIT)
    assert "vision_config" in refusal(tmp_path, argv, "config.json")


def test_a_table_of_wrong_rows_only(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(
        "model,gpu,n_gpus,seq,tp,pp,dp,mbs,gbs,step_time_s\nllama3.1-8b,H100-SXM-80GB,8,many,1,1,8,1,64,1.0\n"
    )
    assert "no row can be compared" in refusal(tmp_path, ("validate", "table.csv"), "table.csv")
