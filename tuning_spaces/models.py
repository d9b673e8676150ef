"""Named transformers from the data files next to this module. Not: files of users (launcher)."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from autoconf_launch.core import Architecture, ConfigError, RawConfig

from .hints import hint
from .hugging_face import TYPE_KEYS, from_hugging_face
from .shapes import build_architecture

_FOLDER = Path(__file__).parent / "models"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def model_names() -> tuple[str, ...]:
    """All names, aliases included, sorted."""
    return tuple(sorted(_models()))


def model_ids() -> Mapping[str, str]:
    """Our name for each id of the Hugging Face hub whose shapes are known."""
    return _catalogue().ids


def nearest_model_id(model_id: str) -> str:
    """The known id that is spelled most like one."""
    return difflib.get_close_matches(model_id, model_ids(), n=1, cutoff=0.0)[0]


def named_model(name: str) -> Architecture:
    """The model of a name or of an id of the hub; case and signs but dots do not matter.

    Raises:
        ConfigError: the name is unknown; the message has the nearest one.
    """
    if reason := why_refused(name):
        raise ConfigError(f"Model {name!r} cannot be predicted: {reason}; name another model.")
    if (found := known_model(name)) is None:
        raise ConfigError(f"Model {name!r} is unknown; {hint(name.lower(), _models())}")
    return found


def why_refused(name: str) -> str | None:
    """The reason why a named model cannot be predicted; None if it can, or is not known."""
    return _catalogue().refused.get(_plain(name.rpartition("/")[2]))


def known_model(name: str) -> Architecture | None:
    """The model of a name or an id; None if no table has it."""
    if own := _catalogue().spelled.get(_plain(name)):
        return _build(own)
    model_id = _catalogue().spelled_ids.get(_plain(name))
    return replace(_build(model_ids()[model_id]), name=model_id) if model_id else None


def _plain(name: str) -> str:
    return re.sub(r"[-_ ,:+()]", "", name.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A model by fields of ``Architecture``, or by keys of a type's ``config.json``."""

    shapes: Mapping[str, Any]
    kind: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Catalogue:
    """All models by name, and the names by id; both also as :func:`_plain` spells them."""

    models: Mapping[str, _Entry]
    ids: Mapping[str, str]
    spelled: Mapping[str, str]
    spelled_ids: Mapping[str, str]
    refused: Mapping[str, str]


def _models() -> Mapping[str, _Entry]:
    return _catalogue().models


@cache
def _build(name: str) -> Architecture:
    entry = _models()[name]
    if entry.kind is None:
        return build_architecture(name, entry.shapes)
    key = TYPE_KEYS[entry.kind[:1].isupper()]
    return from_hugging_face(RawConfig({key: entry.kind, **entry.shapes}), name)


@cache
def _catalogue() -> _Catalogue:
    models: dict[str, _Entry] = {}
    ids: dict[str, str] = {}
    refused: dict[str, str] = {}
    for path in sorted(_FOLDER.glob("*.yaml")):
        for family in yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER):
            if no := family.get("refused"):
                refused |= {_plain(name): no["because"] for name in no["names"]}
                continue
            usual, kind = family.get("defaults", {}), family.get("type")
            own = {
                name: _Entry(shapes={**usual, **shapes}, kind=kind)
                for name, shapes in family["models"].items()
            }
            models |= own
            for alias, name in family.get("aliases", {}).items():
                models[alias] = own[name]
            for name, patterns in family.get("ids", {}).items():
                ids |= {one: name for text in patterns.split() for one in _spell(text)}
    return _Catalogue(
        models=MappingProxyType(models),
        ids=MappingProxyType(ids),
        spelled={_plain(name): name for name in models},
        spelled_ids={_plain(one): one for one in ids},
        refused=MappingProxyType(refused),
    )


def _spell(pattern: str) -> Iterator[str]:
    """``a(|-b)(1|2)`` is ``a1``, ``a2``, ``a-b1`` and ``a-b2``."""
    pieces = [piece.split("|") for piece in re.split(r"[()]", pattern)]
    return map("".join, itertools.product(*pieces))
