"""Conditions under which a measurement counts as the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import ClusterSpec, Device, Node
from autoconf_launch.launcher.dialects import choose_dialect
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.launch import find_script_source
from autoconf_launch.launcher.results import Fingerprint, fingerprint, render_unsearched

NATIVE = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": [1, 2],
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": [0, 1], "bucket_cap_mb": [1, 25]},
    "autotuning": {"enabled": True},
}
SCRIPT = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--accumulation_steps", type=int, default=1)
parser.add_argument("--lr", type=float, default=0.1)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "plain.py").write_text(SCRIPT)
    return tmp_path


def take(*argv: str) -> Fingerprint:
    request = parse_request(("--autotuning=tune", *argv))
    source = find_script_source(request)
    dialect = choose_dialect(source).dialect
    user = dialect.read(source, world_size=2)
    devices = tuple(Device(name="cpu", memory_bytes=10**9) for _ in range(2))
    cluster = ClusterSpec(nodes=(Node(host="h", devices=devices),))
    given = render_unsearched(dialect, source, user)
    return fingerprint(request, cluster, source, user.settings, given)


def native(**changed: Any) -> Fingerprint:
    Path("config.json").write_text(json.dumps({**NATIVE, **changed}))
    return take("train.py", "--config", "config.json")


def zero(**changed: Any) -> dict[str, Any]:
    return {"zero_optimization": {**NATIVE["zero_optimization"], **changed}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "changed",
    [
        {"train_micro_batch_size_per_gpu": [2, 4]},
        {"train_micro_batch_size_per_gpu": 1},
        {"train_micro_batch_size_per_gpu": "auto"},
        zero(stage=[1, 0]),
        zero(stage="all"),
        zero(bucket_cap_mb=[5]),
        zero(gradient_as_bucket_view=[True, False]),
        {"autotuning": {"enabled": True, "tuner_type": "random", "seed": 3}},
    ],
)
def test_lists_and_settings_of_the_search_are_not_what_is_measured(
    changed: dict[str, Any],
) -> None:
    assert native(**changed) == native()


def test_the_order_of_keys_is_not_what_is_measured() -> None:
    before = native()
    Path("config.json").write_text(json.dumps(dict(reversed(NATIVE.items()))))
    assert take("train.py", "--config", "config.json") == before


@pytest.mark.parametrize(
    "changed",
    [
        {"optimizer": {"type": "SGD", "params": {"lr": 0.02}}},
        {"train_batch_size": 32},
        {"bf16": {"enabled": True}},
        {"autotuning": {"enabled": True, "end_profile_step": 9}},
    ],
)
def test_what_every_trial_does_is(changed: dict[str, Any]) -> None:
    assert native().differences(native(**changed)) == ("config",)


@pytest.mark.parametrize("words", [("plain.py",), ("-m", "plain")])
def test_a_script_that_was_edited_is_another_by_its_path_and_as_a_module(
    words: tuple[str, ...],
) -> None:
    before = take(*words, "--batch_size", "4")
    Path("plain.py").write_text(SCRIPT + "# edited")
    assert before.differences(take(*words, "--batch_size", "4")) == ("script",)


def test_a_module_is_another_thing_than_the_same_file_by_its_path() -> None:
    Path("package").mkdir()
    Path("package/train.py").write_text(SCRIPT)
    module = take("--allow-global-batch-change", "--module", "package.train", "--batch_size", "4")
    file = take("--allow-global-batch-change", "package/train.py", "--batch_size", "4")
    assert module.differences(file) == ("script",)


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ("--batch_size 4 --accumulation_steps 2", "--batch_size 2 --accumulation_steps 4", ()),
        ("--accumulation_steps 2", "--accumulation_steps 4", ("config",)),
        ("", "--lr 0.2", ("arguments",)),
        ("--max_tokens 16", "--max_tokens 4096", ("arguments",)),
        ("--hf_token a", "--hf_token b", ("arguments",)),
    ],
)
def test_words_are_what_is_measured_unless_a_search_sets_them(
    one: str, other: str, differs: tuple[str, ...]
) -> None:
    own = () if "--batch_size" in one else ("--batch_size", "4")
    before, after = (take("plain.py", *own, *words.split()) for words in (one, other))
    assert before.differences(after) == differs
