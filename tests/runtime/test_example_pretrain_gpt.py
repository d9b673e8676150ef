"""The first example, as its reader starts it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "01_pretrain_gpt"
ONE_MICRO_BATCH = {"train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 1}


def written(folder: Path, **changes: Any) -> str:
    document = json.loads((EXAMPLE / "config.json").read_text())
    path = folder / "config.json"
    path.write_text(json.dumps({**document, **changes}))
    return str(path)


def last_loss(ended: Any) -> float:
    assert set(ended.exit_codes) == {0}, ended.errors
    found = re.search(r"last loss ([\d.]+)", ended.outputs[0])
    assert found
    return float(found[1])


def train(launch: Any, *arguments: str, ranks: int) -> Any:
    return launch(EXAMPLE / "train.py", "--steps", "3", *arguments, ranks=ranks)


@pytest.fixture(scope="module")
def as_given(launch: Any) -> Any:
    return train(launch, "--local_rank", "0", ranks=2)


def test_its_loss_falls(as_given: Any) -> None:
    first = re.search(r"step +1  loss ([\d.]+)", as_given.outputs[0])
    assert first
    assert last_loss(as_given) < float(first[1])


def test_only_the_first_rank_speaks(as_given: Any) -> None:
    assert as_given.outputs[1] == ""


@pytest.mark.parametrize(
    ("ranks", "changes"),
    [
        (1, {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}),
        (2, {**ONE_MICRO_BATCH, "zero_optimization": {"stage": 3}}),
    ],
)
def test_the_loss_does_not_depend_on_the_layout(
    launch: Any, as_given: Any, tmp_path: Path, ranks: int, changes: dict[str, Any]
) -> None:
    other = train(launch, "--config", written(tmp_path, **changes), ranks=ranks)
    assert last_loss(other) == pytest.approx(last_loss(as_given), abs=2e-4)


def test_its_configuration_admits_several_micro_batches() -> None:
    document = json.loads((EXAMPLE / "config.json").read_text())
    per_rank = document["train_micro_batch_size_per_gpu"] * document["gradient_accumulation_steps"]
    assert len([m for m in range(1, per_rank + 1) if per_rank % m == 0]) >= 4
