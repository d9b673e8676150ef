"""Model types whose layers are not all alike, from the rows in ``architectures``.

Each number of an architecture is an expression over the keys of the model's configuration, so
that a new type is a row of data. See ``architectures/README.md``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Any

import yaml

from autoconf_launch.core import Architecture, ConfigError, DecodeError, LayerKind, decode

_FOLDER = Path(__file__).parent / "architectures"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_LAYERS = 1 << 12
"""A file with more layers is refused, since each one is looked at."""
_MOST = 1 << 40
"""No size of a model is above this."""
_ALLOWED = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Tuple, ast.List, ast.Call),
    *(ast.Subscript, ast.IfExp, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare),
    *(ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
)
"""Syntax of expressions: arithmetic, comparisons and calls of ``_FUNCTIONS``."""


def _get(section: Mapping[str, Any] | None, key: str, default: Any) -> Any:
    """A value of a section that may be missing."""
    return (section or {}).get(key, default)


_FUNCTIONS: Mapping[str, Any] = MappingProxyType(
    {"len": len, "max": max, "min": min, "get": _get, "__builtins__": {}}
)


def family_types() -> tuple[str, ...]:
    """Types that a row describes."""
    return tuple(_rows())


def family_model(document: Mapping[str, Any], kind: str, name: str) -> Architecture:
    """The model of a configuration.

    Args:
        document: the keys of the configuration.
        kind: its type, which a row describes.
        name: for messages and tables.

    Raises:
        ConfigError: a key is missing or has a value of the wrong kind, or a setting is not
            modelled.
    """
    row = _rows()[kind]
    scope = {**row.get("defaults", {}), **document}
    try:
        for key, value in row.get("names", {}).items():
            scope[key] = _value(value, scope)
        for what, expression in row.get("unless", {}).items():
            if _value(expression, scope):
                raise ConfigError(f"{name}: {what} are not modelled for a {kind}.")
        shapes = _section(row["shapes"], scope)
        shapes["kinds"] = _kinds(row.get("kinds", ()), scope, shapes)
        found = decode(Architecture, {"name": name, **shapes})
    except ConfigError:
        raise
    except (DecodeError, NameError, TypeError, IndexError, ValueError, ArithmeticError) as error:
        raise ConfigError(f"{name} cannot be read as a {kind}: {error}.") from error
    _require_sizes(found, kind)
    return found


def front_type(kind: str) -> Mapping[str, Any] | None:
    """The section and type of the tower in front of a type; None without one."""
    found: Mapping[str, Any] | None = _rows().get(kind, {}).get("front")
    return found


def text_type(kind: str) -> Mapping[str, Any] | None:
    """The section and type of the text part of a type that has others; None without them."""
    found: Mapping[str, Any] | None = _rows().get(kind, {}).get("text")
    return found


def describes_type(kind: str) -> bool:
    """True if a row describes the type itself, not only its parts."""
    return "shapes" in _rows().get(kind, {})


@cache
def _rows() -> Mapping[str, Any]:
    rows: dict[str, Any] = {}
    for path in sorted(_FOLDER.glob("*.yaml")):
        rows |= yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    return rows


def _kinds(
    entries: Any, scope: Mapping[str, Any], shapes: Mapping[str, Any]
) -> tuple[dict[str, Any], ...]:
    """Layers by kind, in the order in which kinds first appear."""
    layers = shapes["layers"]
    if isinstance(layers, bool) or not isinstance(layers, int) or not 0 < layers <= _MOST_LAYERS:
        raise ValueError(f"its number of layers is {layers!r}, but must be 1 to {_MOST_LAYERS}")
    found: list[dict[str, Any]] = []
    counts: list[int] = []
    for i in range(layers if entries else 0):
        inside = {**scope, "i": i}
        for entry in entries:
            if _value(entry["when"], inside):
                own = {key: value for key, value in entry.items() if key != "when"}
                kind = _section(own, inside)
                break
        else:
            raise ValueError(f"layer {i} is of a kind that is not modelled")
        if kind not in found:
            found.append(kind)
            counts.append(0)
        counts[found.index(kind)] += 1
    return tuple({**kind, "count": n} for kind, n in zip(found, counts, strict=True))


def _section(given: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass; a section whose ``when`` is false is left out."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if not isinstance(value, dict):
            found[key] = _value(value, scope)
        elif _value(value.get("when", True), scope):
            inner = {name: one for name, one in value.items() if name != "when"}
            found[key] = _section(inner, scope)
    return found


def _value(given: object, scope: Mapping[str, Any]) -> Any:
    """A number of data, or the value of an expression."""
    if not isinstance(given, str):
        return given
    return eval(_compile(given), dict(_FUNCTIONS), scope)  # the syntax is ours, see _ALLOWED


@cache
def _compile(text: str) -> CodeType:
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED) or isinstance(node, ast.Pow):
            raise ValueError(f"an expression is {text!r}, which has more than arithmetic")
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") not in _FUNCTIONS:
            raise ValueError(f"an expression is {text!r}, which calls an unknown function")
    return compile(tree, "architectures", "eval")


def _require_sizes(a: Architecture, kind: str) -> None:
    """Refuse sizes that no model has.

    Raises:
        ConfigError: there is one.
    """
    sizes = {"hidden": a.hidden, "heads": a.heads, "kv_heads": a.kv_heads, "head": a.head}
    for field, size in {**sizes, "ffn": a.ffn, "layers": a.layers}.items():
        if not 1 <= size <= _MOST:
            raise ConfigError(f"{a.name}: {field} of a {kind} is {size}, but must be at least 1.")
    if a.heads % a.kv_heads:
        raise ConfigError(
            f"{a.name}: {a.heads} heads must be a multiple of {a.kv_heads} key-value heads."
        )
    experts = a.experts
    if experts is not None and not 1 <= experts.per_token <= experts.count:
        raise ConfigError(
            f"{a.name}: a token goes to {experts.per_token} experts, but must to 1 to "
            f"{experts.count}."
        )
    for layer in a.kinds:
        _require_kind(a, layer)


def _require_kind(a: Architecture, layer: LayerKind) -> None:
    state = layer.state
    if state is None:
        return
    sizes = (state.key_heads, state.key_head, state.value_heads, state.value_head, state.chunk)
    if min(sizes) < 1 or max(sizes) > _MOST or state.convolution < 0:
        raise ConfigError(f"{a.name}: the sizes of a state are {sizes}, but must be at least 1.")
