"""Help of every verb, and answers of those that answer without a launch, line by line."""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from autoconf_launch.launcher.cli import main
from autoconf_launch.launcher.verbs import LAUNCHING, VERBS

from .frozen_texts import check_frozen

_WORKLOAD = "--model llama3-8b --cluster 8xH100 --seq 4096 --global-batch 64"
_MIXED = "--model llama3-8b --cluster 8xH100+8xA100-SXM-80GB --seq 4096 --global-batch 64"
_LORA = "--model llama3-8b --cluster rtx4090 --seq 2048 --global-batch 8 --lora-rank 16"
_ANSWER = "--inference --model llama3-8b --input-len 1024 --output-len 256"
_FAMILY = "recommend --family gpt3 --tokens 300B --gpus 160 --tflops-per-gpu 140"
ANSWERS = {
    "fit": f"fit {_WORKLOAD} --zero 3",
    "fit_json": f"fit {_WORKLOAD} --zero 3 --json",
    "fit_no": "fit --model llama3-70b --cluster 8xH100 --seq 4096 --global-batch 64",
    "fit_lora": f"fit {_LORA}",
    "fit_inference": f"fit {_ANSWER} --cluster H100",
    "plan": f"plan {_WORKLOAD}",
    "plan_json": f"plan {_WORKLOAD} --top 2 --json",
    "plan_tokens": f"plan {_WORKLOAD} --tokens 1T --deadline 90d",
    "plan_mixed": f"plan {_MIXED} --top 3",
    "plan_mixed_json": f"plan {_MIXED} --top 2 --json",
    "plan_inference": f"plan {_ANSWER} --cluster 2xH100",
    "recommend": f"{_FAMILY} --max-days 5",
    "recommend_json": f"{_FAMILY} --max-days 5 --json",
}


def without_times(text: str) -> str:
    """Replace durations, which depend on the machine."""
    return re.sub(r"(considered in|\"seconds\":) [\d.e-]+", r"\1 …", text)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse words usage by its version")
@pytest.mark.parametrize("verb", ["", *LAUNCHING, *VERBS])
def test_help_is_as_it_was(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main([*verb.split(), "--help"]) == 0
    name = re.sub(r"\W+", "_", verb) or "command"
    check_frozen(f"help_{name}.txt", capsys.readouterr().out)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_as_it_was(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    main(shlex.split(ANSWERS[name]))
    said = capsys.readouterr()
    check_frozen(f"{name}.txt", without_times(said.out + said.err))
