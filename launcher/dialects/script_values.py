"""Values that a source gives its names outside of an argument parser. Not: which of them matter.

Parameters of functions that fire or typer make a command line of, environment variables that are
read with a default, and literals of any scope.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

from autoconf_launch.core import KnobValue

from .script_words import is_dataclass, last_name, literal

Value: TypeAlias = tuple[str, KnobValue]
_MAKE_COMMANDS = ("Fire", "run", "CLI", "auto_cli", "cli")
_COMMANDS = ("command", "callback")
_OPTIONS = ("Option",)
_GET = ("get", "getenv")


def parameters(tree: ast.Module, *, dashed: bool) -> Iterator[tuple[tuple[str, ...], KnobValue]]:
    """Flags and defaults of the parameters of functions that a command line is made of.

    Args:
        tree: of the source.
        dashed: flags have ``-`` where names have ``_``, as typer wants it.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = _handed(tree)
    everything = any(
        _makes(call) and last_name(call.func) == "Fire" for call in calls if not call.args
    )
    for function in functions:
        decorated = {last_name(decorator) for decorator in function.decorator_list}
        if function.name in named or everything or decorated & {*_COMMANDS}:
            notes = {a.arg: a.annotation for a in (*function.args.args, *function.args.kwonlyargs)}
            for name, default in _defaults(function):
                option = _option(default) or _option(notes.get(name))
                yield _flag(name, option, dashed=dashed), _default(default)


def sections(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Dataclasses whose fields stand behind a section's name, with it and the class it is in.

    It is a parameter of a function that a command line is made of, or a field.
    """
    nodes, handed = tuple(ast.walk(tree)), _handed(tree)
    classes = [node for node in nodes if is_dataclass(node)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    held: list[tuple[str, ast.AST, str]] = [
        (argument.arg, argument.annotation, "")
        for function in functions
        if function.name in handed
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.annotation
    ]
    held += [
        (last_name(line.target), line.annotation, node.name)
        for node in classes
        for line in node.body
        if isinstance(line, ast.AnnAssign)
    ]
    known = {node.name for node in classes}
    return {
        kind: (name, owner)
        for name, annotation, owner in reversed(held)
        for kind in known & {last_name(part) for part in ast.walk(annotation)}
    }


def variables(tree: ast.Module) -> Iterator[Value]:
    """Environment variables that are read, with their default; None where there is none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and last_name(node.value) == "environ":
            name = literal(node.slice)
            if isinstance(name, str):
                yield name, None
        if isinstance(node, ast.Call) and last_name(node.func) in _GET and node.args:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            name = literal(node.args[0])
            if isinstance(name, str) and last_name(owner) in ("environ", "os", "getenv"):
                yield name, _number(literal(node.args[1])) if len(node.args) > 1 else None


def literals(tree: ast.Module) -> Iterator[Value]:
    """Every name that is given a literal: assigned, in a dict, as a keyword, as a default."""
    for node in ast.walk(tree):
        for name, value in _given(node):
            found = literal(value)
            if name and found is not None:
                yield name, found


def _given(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    if isinstance(node, ast.Assign):
        yield from ((last_name(target), node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign):
        yield last_name(node.target), node.value
    elif isinstance(node, ast.Dict):
        keys = (literal(key) for key in node.keys)
        yield from (
            (key, value)
            for key, value in zip(keys, node.values, strict=True)
            if isinstance(key, str)
        )
    elif isinstance(node, ast.Call):
        yield from ((keyword.arg or "", keyword.value) for keyword in node.keywords)
    elif isinstance(node, ast.FunctionDef):
        yield from _defaults(node)


def _handed(tree: ast.Module) -> set[str]:
    """Names of what calls that make a command line are given."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _makes(node))
    return {last_name(argument) for call in calls for argument in call.args}


def _makes(call: ast.Call) -> bool:
    return last_name(call.func) in _MAKE_COMMANDS


def _defaults(function: ast.FunctionDef) -> Iterator[tuple[str, ast.AST]]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    behind = positional[len(positional) - len(given.defaults) :]
    yield from (
        (argument.arg, value) for argument, value in zip(behind, given.defaults, strict=True)
    )
    for argument, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if value is not None:
            yield argument.arg, value


def _option(node: ast.AST | None) -> ast.Call | None:
    """The call that says how an argument is written, also of an annotation."""
    for part in ast.walk(node) if node else ():
        if isinstance(part, ast.Call) and last_name(part.func) in _OPTIONS:
            return part
    return None


def _flag(name: str, option: ast.Call | None, *, dashed: bool) -> tuple[str, ...]:
    if option is not None:
        words = [literal(argument) for argument in option.args]
        own = tuple(word for word in words if isinstance(word, str) and word.startswith("-"))
        if own:
            return own
    return (f"--{name.replace('_', '-') if dashed else name}",)


def _default(default: ast.AST) -> KnobValue:
    if isinstance(default, ast.Call) and last_name(default.func) in _OPTIONS:
        named = [k.value for k in default.keywords if k.arg == "default"]
        first = named or default.args
        return literal(first[0]) if first else None
    found: KnobValue = literal(default)
    return found


def _number(value: KnobValue) -> KnobValue:
    """Defaults of variables are often text: ``"32"``."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value
