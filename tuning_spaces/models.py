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

from autoconf_launch.core import Architecture, ConfigError, DecodeError, decode

from .hints import hint

_MOST_LAYERS = 1 << 16
_MOST = 1 << 40
"""No size of a model is above this."""
_FOLDER = Path(__file__).parent / "models"
_NORMS_OF_A_LAYER = 2
_SHORTHAND = frozenset(
    {
        "relative_positions",
        "norms_outside",
        "norms_per_layer",
        "query_key_norms",
        "qkv_biases",
        "norm_biases",
    }
)
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
        return _models()[own]
    model_id = _catalogue().spelled_ids.get(_plain(name))
    return replace(_models()[model_ids()[model_id]], name=model_id) if model_id else None


def build_architecture(name: str, shapes: Mapping[str, Any]) -> Architecture:
    """An architecture from its numbers; missing numbers follow from the others.

    ``head`` is hidden / heads, ``ffn`` four times hidden, ``kv_heads`` as many as heads. Besides
    the fields of ``Architecture``, shorthand for weights that they do not give:
    ``relative_positions`` (distances of T5's tables), ``norms_outside`` and ``norms_per_layer``,
    ``query_key_norms``, ``qkv_biases``, ``norm_biases`` (of models without other biases).

    Raises:
        DecodeError: a number is missing or is none.
    """
    given = dict(shapes)
    given.setdefault("kv_heads", given.get("heads"))
    given.setdefault("ffn", 4 * given.get("hidden", 0))
    if not given.get("head") and given.get("heads"):
        given["head"] = given.get("hidden", 0) // given["heads"]
    short = {key: given.pop(key) for key in _SHORTHAND & given.keys()}
    architecture = decode(Architecture, {"name": name, **given})
    if wrong := contradiction(architecture) or _no_head(architecture, shapes):
        raise DecodeError(wrong)
    return _with_others(architecture, short)


def contradiction(a: Architecture) -> str | None:
    """The reason why such a model is impossible; None if it is possible."""
    if a.heads > a.hidden:
        return f"heads is {a.heads}, but must be at most hidden, which is {a.hidden}"
    if a.layers > _MOST_LAYERS:
        return f"layers is {a.layers}, but must be at most {_MOST_LAYERS}"
    for name in ("layers", "hidden", "heads", "kv_heads", "head", "ffn", "vocabulary"):
        if not 1 <= getattr(a, name) <= _MOST:
            return f"{name} is {getattr(a, name)}, but must be from 1 to {_MOST}"
    if a.heads % a.kv_heads:
        return f"heads is {a.heads}, but must be a multiple of kv_heads, which is {a.kv_heads}"
    experts = a.experts
    if experts and not 1 <= experts.per_token <= experts.count:
        return f"per_token is {experts.per_token}, but must be 1 to {experts.count} experts"
    if experts and not 0 <= experts.first_dense < a.layers:
        return f"first_dense is {experts.first_dense}, but must be less than {a.layers} layers"
    return None


def _no_head(a: Architecture, shapes: Mapping[str, Any]) -> str | None:
    if a.hidden % a.heads == 0 or shapes.get("head") or a.latent is not None:
        return None
    return f"hidden is {a.hidden}, but must be a multiple of heads, which is {a.heads}"


def _with_others(a: Architecture, short: Mapping[str, Any]) -> Architecture:
    """Count shorthand weights into ``other_parameters`` and ``other_layer_parameters``."""
    norm = (2 if a.biases else 1) * a.hidden
    stacks = 2 if a.encoder_layers else 1
    other = short.get("relative_positions", 0) * a.heads * stacks
    other += short.get("norms_outside", 0) * norm
    norms = short.get("norms_per_layer", _NORMS_OF_A_LAYER)
    layer = (norms - _NORMS_OF_A_LAYER) * norm
    if short.get("query_key_norms"):
        layer += 2 * a.head
    if short.get("qkv_biases"):
        layer += (a.heads + 2 * a.kv_heads) * a.head
    if short.get("norm_biases"):
        layer, other = layer + norms * a.hidden, other + a.hidden
    return replace(
        a,
        other_parameters=a.other_parameters + other,
        other_layer_parameters=a.other_layer_parameters + layer,
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_ ,:+()]", "", name.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Catalogue:
    """All models by name, and the names by id; both also as :func:`_plain` spells them."""

    models: Mapping[str, Architecture]
    ids: Mapping[str, str]
    spelled: Mapping[str, str]
    spelled_ids: Mapping[str, str]
    refused: Mapping[str, str]


def _models() -> Mapping[str, Architecture]:
    return _catalogue().models


@cache
def _catalogue() -> _Catalogue:
    models: dict[str, Architecture] = {}
    ids: dict[str, str] = {}
    refused: dict[str, str] = {}
    for path in sorted(_FOLDER.glob("*.yaml")):
        for family in yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER):
            if no := family.get("refused"):
                refused |= {_plain(name): no["because"] for name in no["names"]}
                continue
            own = {
                name: build_architecture(name, {**family.get("defaults", {}), **shapes})
                for name, shapes in family["models"].items()
            }
            models |= own
            for alias, name in family.get("aliases", {}).items():
                models[alias] = replace(own[name], name=alias)
            for name, patterns in family.get("ids", {}).items():
                ids |= {one: own[name].name for text in patterns.split() for one in _spell(text)}
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
