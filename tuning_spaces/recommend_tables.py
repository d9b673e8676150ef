"""NVIDIA's tables: its search configurations, base configurations and published speeds."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

from autoconf_launch.autotuner.sizing import (
    BatchRow,
    Family,
    GridRow,
    Predefined,
    PublishedSpeed,
    Rules,
    ShapeRow,
    Tables,
)
from autoconf_launch.core import ConfigError, Degrees, RawConfig

from .hints import hint

CONF = Path(__file__).parent / "conf"
_SEARCHES = CONF / "search_config"
UNKNOWN_SIZE = "unknown_size"
_FOLDER = Path(__file__).parent / "recommend"
_CONFIGS = _FOLDER / "base_configs"


@cache
def search_config_names() -> tuple[str, ...]:
    """All names, such as ``gpt3/5b`` and ``gpt3/unknown_size``, sorted."""
    paths = _SEARCHES.glob("*/*.yaml")
    return tuple(sorted(f"{path.parent.name}/{path.stem}" for path in paths))


def search_config(name: str) -> RawConfig:
    """``train_settings``, and ``inference_settings`` if there are some.

    Raises:
        ConfigError: the name is unknown; the message has the nearest one.
    """
    if name not in search_config_names():
        raise ConfigError(
            f"search_config {name!r} is unknown; {hint(name, search_config_names())}"
        )
    text = (_SEARCHES / f"{name}.yaml").read_text(encoding="utf-8")
    return RawConfig(yaml.safe_load(text))


@cache
def predefined_searches() -> tuple[Predefined, ...]:
    """Predefined searches of models of a known size.

    The size is taken from the name: NVIDIA's own chatglm/6b says that it has one billion.
    """
    sized = [name for name in search_config_names() if not name.endswith(UNKNOWN_SIZE)]
    return tuple(map(_sized_search, sized))


def _sized_search(name: str) -> Predefined:
    vocabulary, sequence = _text_of(name)
    return Predefined(
        name=name,
        family=name.partition("/")[0],
        size_b=_size_b(name),
        vocabulary=vocabulary,
        sequence=sequence,
    )


def _text_of(name: str) -> tuple[int, int]:
    settings = search_config(name)
    vocabulary = settings.get(("train_settings", "vocab_size"))
    return int(vocabulary), int(settings.get(("train_settings", "seq_length")))


def is_shipped(family: Family, size_b: float, sequence: int) -> bool:
    """True if NVIDIA ships a search of this family, size and sequence length."""
    return (family.predefined, size_b, sequence) in _shipped_searches()


@cache
def _shipped_searches() -> frozenset[tuple[str, float, int]]:
    found = (
        (one.family, search_config(one.name).get(("train_settings",)))
        for one in predefined_searches()
    )
    return frozenset(
        (family, float(settings["model_size_in_b"]), int(settings["seq_length"]))
        for family, settings in found
    )


def usual_of(family: str) -> tuple[int, int] | None:
    """Vocabulary and sequence length of a family's first search; None if it has none."""
    names = [name for name in search_config_names() if name.startswith(f"{family}/")]
    return _text_of(names[0]) if names else None


def shipped_base_config(stem: str) -> Path | None:
    """Our copy of NVIDIA's ``base_configs/<stem>.yaml``; None if we have none."""
    path = _CONFIGS / f"{stem}.yaml"
    return path if path.is_file() else None


def _size_b(name: str) -> float:
    found = re.search(r"([0-9.]+)b(?:_nemo)?$", name)
    if found is None:
        raise ConfigError(f"{_SEARCHES / name}.yaml must be named by its size, such as 5b.yaml.")
    return float(found[1])


@cache
def tables(generation: int = 1) -> Tables:
    """Shapes and batches as NeMo 1.0 or 2.0 has them.

    They differ in the heads of large T5s; the grids of 2.0 have its batches.
    """
    return Tables(
        shapes={rules: _shape_rows(rules, generation) for rules in Rules},
        batches=tuple(
            BatchRow(
                family=row["family"],
                gpu_memory_gb=int(row["gpu_memory_gb"]),
                sequence=int(row["sequence"]),
                bound_b=float(row["bound_b"]),
                global_batch=int(row["global_batch"]),
                tensor=int(row["tensor"]),
                pipeline=int(row["pipeline"]),
            )
            for row in _rows("base_batches.csv")
        ),
        grids=grid_rows(2) if generation == 2 else (),
    )


@cache
def grid_rows(generation: int) -> tuple[GridRow, ...]:
    """The grids of NeMo 1.0 or 2.0."""
    return tuple(
        GridRow(
            rules=row["family"],
            gpu_memory_gb=int(row["gpu_memory_gb"]),
            sequence=_whole(row["sequence"]),
            most_sequence=_whole(row.get("most_sequence", "")),
            bound_b=float(row["bound_b"]) if row["bound_b"] else None,
            degrees=Degrees(
                tensor_parallel=_numbers(row["tensor"]),
                pipeline_parallel=None if _stages(row["pipeline"]) else _numbers(row["pipeline"]),
                micro_batch=_numbers(row["micro_batch"]),
                least_product=int(row["least_product"]),
                most_product=int(row["most_product"]),
            ),
            stages=_stages(row["pipeline"]),
            global_batch=_whole(row["global_batch"]),
        )
        for row in _rows(f"grid_nemo{generation}.csv")
    )


@cache
def published_speeds() -> tuple[PublishedSpeed, ...]:
    """NVIDIA's published speeds over our predictions for the best layout."""
    return tuple(
        PublishedSpeed(
            training=f"{row['config']} {row['gpu']} {row['precision']}", ratio=float(row["ratio"])
        )
        for row in _rows("published_speeds.csv")
    )


def base_template(name: str) -> RawConfig:
    """The file that a base configuration of NeMo 1.0 starts from (``gpt3``, ``llama2_7b``, …).

    Raises:
        ConfigError: there is none of this name.
    """
    path = _CONFIGS / f"{name}.yaml"
    if name not in base_template_names():
        raise ConfigError(
            f"Base configuration {name!r} is unknown; {hint(name, base_template_names())}"
        )
    return RawConfig(yaml.safe_load(path.read_text(encoding="utf-8")))


def base_template_names() -> tuple[str, ...]:
    """Names of all of them, sorted."""
    return tuple(sorted(path.stem for path in _CONFIGS.glob("*.yaml")))


def generation_of(family: Family) -> int:
    """The version of NeMo whose tables hold for a family: 1 or 2."""
    return 1 if family.has_nemo1_layout else 2


def _shape_rows(rules: Rules, generation: int) -> tuple[ShapeRow, ...]:
    kv = "kv" if generation == 1 else "kv_nemo2"
    return tuple(
        ShapeRow(
            bound_b=float(row["bound_b"]),
            inclusive=row["op"] == "<=",
            hidden=int(row["hidden"]),
            heads=int(row["heads"]),
            ffn=_whole(row["ffn"]),
            kv=_whole(row[kv]),
            learning_rate=float(row["learning_rate"]),
        )
        for row in _rows("shapes.csv")
        if row["rules"] == rules.value
    )


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (_FOLDER / name).open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _whole(text: str) -> int | None:
    return int(text) if text else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split())


def _stages(text: str) -> tuple[int, int] | None:
    if not text.startswith("div "):
        return None
    least, most = text.removeprefix("div ").split("..")
    return int(least), int(most)
