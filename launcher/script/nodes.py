"""Names, plain values and paths of single nodes of a source.

A path may begin at the folder that the source is in, such as ``HERE / "settings.toml"``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

_FILE = PurePosixPath("<folder>", "<file>")
_SAME = ("resolve", "absolute", "expanduser", "Path", "PurePath", "str", "abspath", "realpath")
_JOINS = ("join", "joinpath")
_ADDS = ("sys.path.insert", "sys.path.append", "site.addsitedir")
_LARGEST_BASE, _LARGEST_POWER = 1000, 40


@lru_cache(maxsize=128)
def syntax_tree(text: str) -> ast.Module | None:
    """The tree of a source, which all readers share; None if it is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def last_name(node: ast.AST) -> str:
    """``step`` of ``a.b.step``, ``a["step"]`` and of calls of them; empty without a name."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        key = literal(node.slice)
        return key if isinstance(key, str) else ""
    return node.id if isinstance(node, ast.Name) else ""


def literal(node: ast.AST | None) -> Any:
    """A plain literal, a product of literals, or a small power; None for everything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (bool, int, float, str)) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = literal(node.left), literal(node.right)
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            return left * right
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, power = literal(node.left), literal(node.right)
        if type(base) is int and type(power) is int and 0 <= power <= _LARGEST_POWER:
            return base**power if abs(base) <= _LARGEST_BASE else None
    return None


def beside(path: PurePosixPath | None) -> str:
    """``../a.toml`` of a path that begins at the source's folder; empty for others."""
    inside = path is not None and path.parts[:1] == _FILE.parts[:1] and len(path.parts) > 1
    return "/".join(path.parts[1:]) if path is not None and inside else ""


def own_paths(tree: ast.Module) -> dict[str, PurePosixPath]:
    """Module-level names that hold a path."""
    known: dict[str, PurePosixPath] = {"__file__": _FILE}
    for line in tree.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            path = path_of(line.value, known)
            if path is not None:
                known[line.targets[0].id] = path
    return known


def added_folders(tree: ast.Module, folder: Path) -> Iterator[Path]:
    """Folders that a source in ``folder`` adds to ``sys.path``."""
    known = own_paths(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _ADDS and node.args:
            path = path_of(node.args[-1], known)
            if path is not None:
                is_own = path.is_relative_to(_FILE.parent)
                yield (folder / beside(path)).resolve() if is_own else Path(path)


def path_of(node: ast.AST | None, known: Mapping[str, PurePosixPath]) -> PurePosixPath | None:
    """The path that an expression makes; None if it cannot be read."""
    if isinstance(node, ast.Constant):
        return PurePosixPath(node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        return _parent(path_of(node.value, known))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _join((node.left, node.right), known)
    return _of_call(node, known) if isinstance(node, ast.Call) else None


def _of_call(call: ast.Call, known: Mapping[str, PurePosixPath]) -> PurePosixPath | None:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    held = path_of(owner, known)
    parts: list[ast.AST | None] = [owner, *call.args] if held is not None else [*call.args]
    if name == "dirname":
        return _parent(_join(parts, known))
    if name == "with_name" and held is not None:
        return _join(call.args, known, _parent(held))
    return _join(parts, known) if name in (*_SAME, *_JOINS) else None


def _join(
    nodes: Iterable[ast.AST | None],
    known: Mapping[str, PurePosixPath],
    first: PurePosixPath | None = None,
) -> PurePosixPath | None:
    paths = [path_of(node, known) for node in nodes]
    whole = [path for path in (first, *paths) if path is not None]
    return PurePosixPath(*whole) if paths and None not in paths else None


def _parent(path: PurePosixPath | None) -> PurePosixPath | None:
    if path is None:
        return None
    is_above = path.name == ".." or path == _FILE.parent
    return path / ".." if is_above else path.parent
