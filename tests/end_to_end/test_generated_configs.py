"""Hundreds of bad configurations: never a traceback, exit code 2, the key named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoconf_launch.core import RawConfig
from autoconf_launch.launcher import cli

SOUND: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
    "autotuning": {"enabled": True},
}
TEXTS = st.text(max_size=8).filter(lambda text: text.lower() not in ("auto", "all"))
NO_COUNT = (
    st.integers(max_value=0) | st.floats(0.1, 0.9) | st.booleans() | TEXTS | st.just({"a": 1})
)
FLAG_WORDS = {"true", "false", "on", "off", "yes", "no", "t", "f", "y", "n", "0", "1"}


def is_no_flag(text: str) -> bool:
    return text.lower() not in FLAG_WORDS


NO_FLAG: st.SearchStrategy[Any] = st.integers(2, 9) | TEXTS.filter(is_no_flag) | st.just([])
NAMES = st.text("abcdefgh_", min_size=4, max_size=12)
BAD: dict[tuple[str, ...], st.SearchStrategy[Any]] = {
    ("train_micro_batch_size_per_gpu",): NO_COUNT | st.lists(NO_COUNT, min_size=1, max_size=3),
    ("gradient_accumulation_steps",): NO_COUNT,
    ("train_batch_size",): NO_COUNT | st.integers(1, 99).filter(lambda n: n != 8),
    ("zero_optimization", "stage"): st.integers(4) | st.integers(max_value=-1) | TEXTS,
    ("bf16", "enabled"): st.integers() | TEXTS,
    ("fp16",): st.integers() | TEXTS | st.lists(st.integers(), max_size=2),
    ("gradient_clipping",): st.floats(max_value=-0.01, allow_infinity=False) | TEXTS,
    ("optimizer", "type"): NAMES | st.integers(),
    ("optimizer", "params"): st.integers() | TEXTS.filter(bool),
    ("scheduler", "type"): NAMES | st.none(),
    ("activation_checkpointing", "mode"): NAMES | st.integers(),
    ("parallelism", "tensor"): st.integers(2, 64),
    ("autotuning", "metric"): NAMES | st.integers(),
    ("autotuning", "tuner_type"): NAMES,
    ("autotuning", "tuner_num_trials"): st.integers(max_value=0) | NAMES,
    ("autotuning", "fast"): NO_FLAG,
    ("autotuning", "end_profile_step"): st.integers(1, 2) | st.integers(max_value=0),
}
ANY_BAD = st.sampled_from(sorted(BAD)).flatmap(lambda path: st.tuples(st.just(path), BAD[path]))


@given(ANY_BAD)
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
def test_a_bad_value_is_a_usage_error_that_names_its_key(
    tmp_path_factory: pytest.TempPathFactory, bad: tuple[tuple[str, ...], Any]
) -> None:
    path, value = bad
    code, output = run(tmp_path_factory, RawConfig(SOUND).with_value(path, value).to_dict())
    assert code == 2, output
    assert any(key in output for key in path), output
    assert len(output.strip().splitlines()) == 1, output


@given(NAMES.filter(lambda name: "abcdefgh" not in name))
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_an_unknown_key_of_a_strict_section_is_named(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    for section in ("autotuning", "parallelism"):
        document = RawConfig(SOUND).with_value((section, name), 1).to_dict()
        code, output = run(tmp_path_factory, document)
        assert code == 2
        assert f"{section}.{name} is unknown" in output


def run(factory: pytest.TempPathFactory, document: dict[str, Any]) -> tuple[int, str]:
    folder: Path = factory.getbasetemp()
    script, config = folder / "never_run.py", folder / "bad.json"
    script.write_text(
        "import autoconf_launch; raise SystemExit('a bad configuration was launched')"
    )
    config.write_text(json.dumps(document))
    lines: list[str] = []
    results = f"--results-dir={folder}/results"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_write_line", lines.append)
        argv = ["--autotuning=tune", results, str(script), "--config", str(config)]
        code = cli.main(argv)
    return code, "\n".join(lines)
