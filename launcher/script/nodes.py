"""Names and plain values of single nodes of a source."""

from __future__ import annotations

import ast
from typing import Any

_LARGEST_BASE, _LARGEST_POWER = 1000, 40


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
