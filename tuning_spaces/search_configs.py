"""The predefined searches below ``conf/search_config``.

One YAML file for each family and size, as ``search_config=gpt3/5b`` names them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

from autoconf_launch.autotuner.sizing import Family, Predefined
from autoconf_launch.core import ConfigError, RawConfig

from .hints import hint

CONF = Path(__file__).parent / "conf"
_FOLDER = CONF / "search_config"
_BASE_CONFIGS = Path(__file__).parent / "recommend" / "base_configs"
UNKNOWN_SIZE = "unknown_size"


@cache
def search_config_names() -> tuple[str, ...]:
    """All names, such as ``gpt3/5b`` and ``gpt3/unknown_size``, sorted."""
    paths = _FOLDER.glob("*/*.yaml")
    return tuple(sorted(f"{path.parent.name}/{path.stem}" for path in paths))


def search_config(name: str) -> RawConfig:
    """``train_settings``, and ``inference_settings`` where there are some.

    Raises:
        ConfigError: the name is unknown; the message has the nearest one.
    """
    if name not in search_config_names():
        raise ConfigError(
            f"search_config {name!r} is unknown; {hint(name, search_config_names())}"
        )
    text = (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return RawConfig(yaml.safe_load(text))


@cache
def predefined_searches() -> tuple[Predefined, ...]:
    """Predefined searches of models of a known size.

    The size is that of the name: NVIDIA's own chatglm/6b says that it has one billion.
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
    """Vocabulary and sequence length of a search."""
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
    """Vocabulary and sequence length of a family's first search; None where it has none."""
    names = [name for name in search_config_names() if name.startswith(f"{family}/")]
    return _text_of(names[0]) if names else None


def shipped_base_config(stem: str) -> Path | None:
    """Our file for one of NVIDIA's ``base_configs/<stem>.yaml``; None where we have none."""
    path = _BASE_CONFIGS / f"{stem}.yaml"
    return path if path.is_file() else None


def _size_b(name: str) -> float:
    found = re.search(r"([0-9.]+)b(?:_nemo)?$", name)
    if found is None:
        raise ConfigError(f"{_FOLDER / name}.yaml must be named by its size, such as 5b.yaml.")
    return float(found[1])
