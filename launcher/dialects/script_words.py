"""The smallest readings of a syntax tree: names and literals. Not: what they are for."""

from __future__ import annotations

import ast
from typing import Any, TypeGuard

_LARGEST_BASE, _LARGEST_POWER = 1000, 40


def last_name(node: ast.AST) -> str:
    """``step`` of ``a.b.step``, and of what is called by it; empty for what has no name."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_dataclass(node: ast.AST) -> TypeGuard[ast.ClassDef]:
    """Whether it is the definition of one."""
    return isinstance(node, ast.ClassDef) and "dataclass" in map(last_name, node.decorator_list)


def literal(node: ast.AST | None) -> Any:
    """A plain literal, a product of some, or a small power; None for everything else."""
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
