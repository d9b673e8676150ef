"""The fifth example, on the file that ``recommend`` writes for each family."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.launcher.cli import main

pytest.importorskip("transformers")

EXAMPLE = Path(__file__).parents[2] / "examples" / "05_autoconfigurator" / "train.py"
FAMILIES = ("llama", "mixtral", "mistral", "gemma", "nemotron", "qwen", "starcoder", "t5", "mt5")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def base_config(family: str, folder: Path) -> Path:
    path = folder / f"{family}.yaml"
    words = (
        *("recommend", "--family", family, "--model-size", "0.0145", "--tokens", "1M"),
        *("--gpus", "1", "--tflops-per-gpu", "0.05", "--vocab", "512", "--seq", "32"),
        *("--global-batch", "4", "--base-config", str(path)),
    )
    assert main(words) == 0
    return path


def losses(path: Path, steps: int) -> list[float]:
    command = (sys.executable, str(EXAMPLE), "--base-config", str(path), "--steps", str(steps))
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, env=ENVIRONMENT, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", ended.stdout)]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt3", "bert", *FAMILIES])
def test_its_loss_falls(family: str, tmp_path: Path) -> None:
    first, *_, last = losses(base_config(family, tmp_path), 12)
    assert last < 0.8 * first


def test_a_vocabulary_too_small_for_bytes_is_refused(launch: Any, tmp_path: Path) -> None:
    path = base_config("gpt3", tmp_path)
    path.write_text(path.read_text().replace("vocab_size: 512", "vocab_size: 100"))
    ended = launch(EXAMPLE, "--base-config", str(path))
    assert ended.exit_codes == (1,)
    assert "needs a vocabulary of 259" in ended.errors[0]
