"""The batch of each DataLoader in a source, with the names that tell training from evaluation."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from .facts import given_values
from .nodes import last_name, literal

_LOADER = "DataLoader"
_NAMED = (ast.Name, ast.Attribute, ast.Subscript)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderBatch:
    """What a DataLoader takes as its batch.

    Attributes:
        names: of what holds the loader, of its dataset and of the number, and words in them.
        value: None where it is neither a literal nor a name with one literal.
    """

    names: tuple[str, ...]
    value: int | None


@lru_cache(maxsize=64)
def loader_batches(text: str) -> tuple[LoaderBatch, ...]:
    """Batches of the DataLoaders of a source; none where it is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    known: dict[str, set[object]] = {}
    for node in ast.walk(tree):
        for name, value in () if is_loader(node) else given_values(node):
            known.setdefault(name, set()).add(literal(value) if value else None)
    return tuple(_batches(tree, (), known))


def is_loader(node: ast.AST) -> bool:
    """Whether it is a call that makes a DataLoader."""
    return isinstance(node, ast.Call) and last_name(node.func).endswith(_LOADER)


def _batches(
    node: ast.AST, holders: tuple[str, ...], known: Mapping[str, set[object]]
) -> Iterator[LoaderBatch]:
    if isinstance(node, ast.Call) and is_loader(node):
        given = dict(zip(("dataset", "batch_size"), node.args, strict=False))
        given |= {k.arg: k.value for k in node.keywords if k.arg}
        if size := given.get("batch_size"):
            names = (*holders, *_words(given.get("dataset")), *_words(size))
            yield LoaderBatch(names=names, value=_value(size, known))
    for child, names in _children(node):
        yield from _batches(child, (*holders, *filter(None, names)), known)


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Parts of a node, each with the names that hold it."""
    if isinstance(node, ast.Dict):
        for key, item in zip(node.keys, node.values, strict=True):
            word = literal(key)
            yield item, (word if isinstance(word, str) else "",)
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        elements = [getattr(target, "elts", ()) for target in node.targets]
        for place, item in enumerate(node.value.elts):
            yield item, tuple(last_name(held[place]) for held in elements if place < len(held))
    else:
        names = _holders(node)
        yield from ((child, names) for child in ast.iter_child_nodes(node))


def _holders(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Assign):
        return tuple(map(last_name, node.targets))
    if isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        return (last_name(node.target),)
    if isinstance(node, ast.keyword):
        return (node.arg or "",)
    return (node.name,) if isinstance(node, _FUNCTIONS) else ()


def _words(node: ast.AST | None) -> Iterator[str]:
    """Names and strings in an expression; ``test`` where it says ``train=False``."""
    for part in ast.walk(node) if node else ():
        if isinstance(part, _NAMED):
            yield last_name(part)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.keyword) and part.arg == "train":
            yield "test" if literal(part.value) is False else "train"


def _value(node: ast.AST, known: Mapping[str, set[object]]) -> int | None:
    found = literal(node)
    if found is None and isinstance(node, _NAMED):
        values = known.get(last_name(node), set())
        found = next(iter(values)) if len(values) == 1 else None
    return found if type(found) is int else None
