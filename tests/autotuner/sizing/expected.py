"""NVIDIA's expected values and tables, for tests of what follows from them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.sizing import ChosenModel, Family, ModelQuestion, choose_model
from autoconf_launch.tuning_spaces import generation_of, tables

DATA = Path(__file__).parents[2] / "data" / "recommend"
VOCABULARY = {"gpt3": 51200, "t5": 29000, "mt5": 250_000, "bert": 30522}
SEQUENCE = {"gpt3": 2048, "t5": 512, "mt5": 512, "bert": 512}


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


def cases(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / name).read_text())
    return found


def model(family: str, size_b: float, sequence: int | None = None, **more: Any) -> ChosenModel:
    return choose_model(
        tables(generation_of(Family(family))),
        ModelQuestion(
            family=Family(family),
            size_b=size_b,
            vocabulary=more.pop("vocabulary", VOCABULARY.get(family, 32000)),
            sequence=sequence or SEQUENCE.get(family, 4096),
            gpu_memory_gb=more.pop("gpu_memory_gb", 80),
            **more,
        ),
    )
