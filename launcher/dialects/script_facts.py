"""What a script's source says without being run: imports, arguments, literals. Not: its meaning.

Other files of the script are not looked at; what cannot be read is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autoconf_launch.core import KnobValue

_DECLARE = ("add_argument", "option", "DEFINE_integer")
_FROM_CLASSES = ("tyro", "simple_parsing", "jsonargparse", "draccus", "transformers")
"""Packages that make arguments of the fields of a dataclass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An argument that a script declares; ``default`` is None where it is no literal."""

    names: tuple[str, ...]
    default: KnobValue
    switch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword:
    """A keyword of a call; ``value`` is None where it is no literal."""

    call: str
    name: str
    value: KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFacts:
    """What stands in a source.

    Attributes:
        imported: modules, and names in them as ``module.name``.
        declared: arguments, in the order of the source.
        constants: module-level names with a literal.
        keywords: of calls.
        called: last names of what is called.
        divided: names that are divided by something and kept, as total batches are by ranks.
    """

    imported: frozenset[str] = frozenset()
    declared: tuple[Declared, ...] = ()
    constants: tuple[tuple[str, KnobValue], ...] = ()
    keywords: tuple[Keyword, ...] = ()
    called: frozenset[str] = frozenset()
    divided: frozenset[str] = frozenset()

    def imports(self, *packages: str) -> bool:
        """Whether any of these packages, or something of them, is imported."""
        return any(
            name == package or name.startswith(f"{package}.")
            for name in self.imported
            for package in packages
        )

    def keyword(self, call: str, name: str) -> Keyword | None:
        """The last keyword of that name in a call of that name."""
        found = [k for k in self.keywords if (k.call, k.name) == (call, name)]
        return found[-1] if found else None


@lru_cache(maxsize=64)
def facts_of(text: str) -> ScriptFacts:
    """The facts of a source; none where it is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ScriptFacts()
    nodes = tuple(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    imported = frozenset(name for node in nodes for name in _imported(node))
    declared = [found for call in calls for found in _declared(call)]
    if any(name.partition(".")[0] in _FROM_CLASSES for name in imported):
        declared += [field for node in nodes for field in _fields(node)]
    return ScriptFacts(
        imported=imported,
        declared=tuple(declared),
        constants=tuple(_constants(tree)),
        keywords=tuple(keyword for call in calls for keyword in _keywords(call)),
        called=frozenset(_last_name(call.func) for call in calls),
        divided=frozenset(name for node in nodes for name in _divided(node)),
    )


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _declared(call: ast.Call) -> Iterator[Declared]:
    kind = _last_name(call.func)
    if kind not in _DECLARE:
        return
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    words = [_literal(argument) for argument in call.args]
    names = tuple(str(word) for word in words if isinstance(word, str) and word.startswith("-"))
    default = _literal(named.get("default"))
    if kind.startswith("DEFINE") and words:
        names, default = (f"--{words[0]}",), words[1] if len(words) > 1 else None
    action = _literal(named.get("action"))
    if names:
        switch = action in ("store_true", "store_false") or _literal(named.get("is_flag")) is True
        yield Declared(names=names, default=default, switch=switch)


def _fields(node: ast.AST) -> Iterator[Declared]:
    if not isinstance(node, ast.ClassDef) or "dataclass" not in map(
        _last_name, node.decorator_list
    ):
        return
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield Declared(names=(f"--{line.target.id}",), default=_literal(line.value))


def _constants(tree: ast.Module) -> Iterator[tuple[str, KnobValue]]:
    for line in tree.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            value = _literal(line.value)
            if value is not None:
                yield line.targets[0].id, value


def _keywords(call: ast.Call) -> Iterator[Keyword]:
    name = _last_name(call.func)
    for keyword in call.keywords:
        if keyword.arg:
            yield Keyword(call=name, name=keyword.arg, value=_literal(keyword.value))


def _divided(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
        yield _last_name(node.target)
    if isinstance(node, ast.Assign):
        name = _last_name(node.targets[0])
        for inner in ast.walk(node.value):
            divides = isinstance(inner, ast.BinOp) and isinstance(
                inner.op, (ast.Div, ast.FloorDiv)
            )
            if divides and name and _last_name(inner.left) == name:  # type: ignore[attr-defined]
                yield name


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _literal(node: ast.AST | None) -> Any:
    """A plain literal, or a product of some; None for everything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (bool, int, float, str)) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _literal(node.left), _literal(node.right)
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            return left * right
    return None
