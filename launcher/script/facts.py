"""Facts of a source, read without running it: imports, arguments, literals.

Other files of the script are not read; unreadable parts are skipped. Parameters of functions that
fire or typer turn into a command line count, and environment variables with a default.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TypeAlias, TypeGuard

from autoconf_launch.core import KnobValue

from .nodes import beside, last_name, literal, own_paths, path_of, syntax_tree

Value: TypeAlias = tuple[str, KnobValue]
_MAKE_COMMANDS = ("Fire", "run", "CLI", "auto_cli", "cli")
_COMMANDS = ("command", "callback")
_OPTIONS = ("Option",)
_GET = ("get", "getenv")
EITHER = "BooleanOptionalAction"
_DECLARE = ("add_argument", "option", "DEFINE_integer")
_ADD_OF_CONFIGARGPARSE = "add"
FROM_CLASSES = ("tyro", "simple_parsing", "jsonargparse", "draccus", "transformers")
"""Packages that make arguments from the fields of a dataclass."""
_DOTTED = ("tyro", "jsonargparse", "draccus")
"""Packages that put a section's name before its fields: ``--train.batch_size``."""
_SPAWN = ("spawn", "start_processes")
_SPAWNERS = ("mp", "multiprocessing", "xmp")
"""Names that scripts give torch.multiprocessing; other things spawn, too."""
FROM_FUNCTIONS = ("fire", "typer", "jsonargparse", "defopt")
"""Packages that make arguments from the parameters of a function."""
LIGHTNING_PACKAGES = ("lightning", "pytorch_lightning")
_FOLDERS = ("parent", "parents", "with_name")
_SAME_PATH = ("resolve", "absolute", "expanduser")


def is_dataclass(node: ast.AST) -> TypeGuard[ast.ClassDef]:
    """True if it defines a dataclass."""
    return isinstance(node, ast.ClassDef) and "dataclass" in map(last_name, node.decorator_list)


def function_parameters(
    tree: ast.Module, *, dashed: bool
) -> Iterator[tuple[tuple[str, ...], KnobValue]]:
    """Flags and defaults of the parameters of functions that a command line is made of.

    ``dashed``: flags have ``-`` for the ``_`` of names, as in typer.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = _handed_names(tree)
    everything = any(
        _makes(call) and last_name(call.func) == "Fire" for call in calls if not call.args
    )
    for function in functions:
        decorated = {last_name(decorator) for decorator in function.decorator_list}
        if function.name in named or everything or decorated & {*_COMMANDS}:
            notes = {a.arg: a.annotation for a in (*function.args.args, *function.args.kwonlyargs)}
            for name, default in _defaults(function):
                option = _option(default) or _option(notes.get(name))
                yield _flag(name, option, dashed=dashed), _script_values_default(default)


def sections(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Dataclasses whose fields are behind a section's name, with that name and the owning class.

    A section is a parameter of a function that a command line is made of, or a field.
    """
    nodes, handed = tuple(ast.walk(tree)), _handed_names(tree)
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
    """Environment variables that are read, with their default; None if there is none."""
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
        for name, value in given_values(node):
            found = literal(value)
            if name and found is not None:
                yield name, found


def given_values(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """Names and values of a node: an assignment, a dict, a keyword or a default."""
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


def _handed_names(tree: ast.Module) -> set[str]:
    """Names that are passed to calls that make a command line."""
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
    """The call that defines how an argument is written, also in an annotation."""
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


def _script_values_default(default: ast.AST) -> KnobValue:
    if isinstance(default, ast.Call) and last_name(default.func) in _OPTIONS:
        named = [k.value for k in default.keywords if k.arg == "default"]
        first = named or default.args
        return literal(first[0]) if first else None
    found: KnobValue = literal(default)
    return found


def _number(value: KnobValue) -> KnobValue:
    """Defaults of variables are often text: ``"32"``."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


_PORT, _ADDRESS = "MASTER_PORT", "tcp://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An argument that a script declares; ``default`` is None if it is not a literal.

    ``opposites`` are the names that switch it off, of an ``argparse.BooleanOptionalAction``;
    ``beside`` is a default path relative to the folder of the source.
    """

    names: tuple[str, ...]
    default: KnobValue
    switch: bool = False
    opposites: tuple[str, ...] = ()
    beside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword:
    """A keyword of a call; ``value`` is None if it is not a literal."""

    call: str
    name: str
    value: KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFacts:
    """The content of a source.

    Attributes:
        imported: modules, and names in them as ``module.name``.
        constants: module-level names with a literal.
        called: last names of called functions.
        divided: names that are divided and kept, as total batches are by ranks.
        divisors: these names with their divisors.
        quotients: names that are set to a quotient of other names.
        ratios: pairs of a dividend and a name in its divisor.
        variables: environment variables that are read, with their default.
        literals: names that are set to a literal in any scope, the last one last.
        starts_ranks: it starts its ranks itself, by torch.multiprocessing.
        spread: last names of calls with ``**`` keywords.
        says_where_to_meet: it sets the port at which its ranks meet.
        in_folders: last names of paths whose folder is taken, as by ``dirname`` or ``parent``.
    """

    imported: frozenset[str] = frozenset()
    declared: tuple[Declared, ...] = ()
    constants: tuple[tuple[str, KnobValue], ...] = ()
    keywords: tuple[Keyword, ...] = ()
    called: frozenset[str] = frozenset()
    divided: frozenset[str] = frozenset()
    divisors: frozenset[tuple[str, str]] = frozenset()
    quotients: frozenset[str] = frozenset()
    ratios: frozenset[tuple[str, str]] = frozenset()
    variables: tuple[Value, ...] = ()
    literals: tuple[Value, ...] = ()
    starts_ranks: bool = False
    spread: frozenset[str] = frozenset()
    says_where_to_meet: bool = False
    in_folders: frozenset[str] = frozenset()

    def imports(self, *packages: str) -> bool:
        """True if any of these packages, or a part of them, is imported."""
        return any(
            name == package or name.startswith(f"{package}.")
            for name in self.imported
            for package in packages
        )

    @property
    def spreads(self) -> bool:
        return bool({"DataParallel", "data_parallel"} & self.called)

    def keyword(self, call: str, name: str) -> Keyword | None:
        found = [k for k in self.keywords if (k.call, k.name) == (call, name)]
        return found[-1] if found else None


@lru_cache(maxsize=256)
def facts_of(text: str) -> ScriptFacts:
    """The facts of a source; empty if it is not Python."""
    tree = syntax_tree(text)
    if tree is None:
        return ScriptFacts()
    nodes = tuple(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    imported = frozenset(name for node in nodes for name in _imported_modules(node))
    constants = tuple(_constants(tree))
    values, paths = dict(constants), own_paths(tree)
    declared = [found for call in calls for found in _declared_arguments(call, values, paths)]
    if any(name.partition(".")[0] in FROM_CLASSES for name in imported):
        nested = any(name.partition(".")[0] in _DOTTED for name in imported)
        held = sections(tree) if nested else {}
        declared += [field for node in nodes for field in _fields(node, held)]
    if any(name.partition(".")[0] in FROM_FUNCTIONS for name in imported):
        given = function_parameters(tree, dashed="typer" in imported)
        declared += [Declared(names=names, default=default) for names, default in given]
    return ScriptFacts(
        imported=imported,
        declared=tuple(declared),
        constants=constants,
        keywords=tuple(keyword for call in calls for keyword in _keywords(call)),
        called=frozenset(last_name(call.func) for call in calls),
        divided=frozenset(name for node in nodes for name, _ in _divisions(node)),
        divisors=frozenset(pair for node in nodes for pair in _divisions(node)),
        quotients=frozenset(name for node in nodes for name in _quotients(node)),
        ratios=frozenset(pair for node in nodes for pair in _ratios(node)),
        variables=tuple(variables(tree)),
        literals=tuple(literals(tree)),
        starts_ranks=any(_spawns(call, imported) for call in calls),
        spread=frozenset(
            last_name(call.func) for call in calls if any(k.arg is None for k in call.keywords)
        ),
        says_where_to_meet=any(map(_says_where, nodes)),
        in_folders=frozenset(filter(None, map(_path_in_folder, nodes))),
    )


def declared_in(texts: Iterable[str]) -> tuple[Declared, ...]:
    """Arguments that any of these sources declares."""
    return tuple(argument for text in texts for argument in facts_of(text).declared)


def _imported_modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _spawns(call: ast.Call, imported: frozenset[str]) -> bool:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _SPAWN and last_name(call.func.value) in _SPAWNERS
    name = last_name(call.func)
    return name in _SPAWN and f"torch.multiprocessing.{name}" in imported


def _says_where(node: ast.AST) -> bool:
    """True for a variable that is set, or an address as ``init_process_group`` takes it."""
    if isinstance(node, ast.Assign):
        keys = (t.slice for t in node.targets if isinstance(t, ast.Subscript))
        return any(literal(key) == _PORT for key in keys)
    if isinstance(node, ast.keyword):
        return node.arg == _PORT
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(_ADDRESS)
    )


def _declared_arguments(
    call: ast.Call, constants: Mapping[str, KnobValue], paths: Mapping[str, PurePosixPath]
) -> Iterator[Declared]:
    kind = last_name(call.func)
    if kind not in _DECLARE and not (kind == _ADD_OF_CONFIGARGPARSE and call.keywords):
        return
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    words = [literal(argument) for argument in call.args]
    names = tuple(str(word) for word in words if isinstance(word, str) and word.startswith("-"))
    default = _default(named.get("default"), constants)
    if kind.startswith("DEFINE") and words:
        names, default = (f"--{words[0]}",), words[1] if len(words) > 1 else None
    action, either = literal(named.get("action")), _is_either(named.get("action"))
    if names:
        switch = action in ("store_true", "store_false") or literal(named.get("is_flag")) is True
        opposites = tuple(f"--no-{name[2:]}" for name in names if either and name[:2] == "--")
        yield Declared(
            names=names,
            default=default,
            switch=switch or either,
            opposites=opposites,
            beside=beside(path_of(named.get("default"), paths)),
        )


def _is_either(action: ast.AST | None) -> bool:
    return action is not None and last_name(action) == EITHER


def _default(node: ast.AST | None, constants: Mapping[str, KnobValue]) -> KnobValue:
    value: KnobValue = constants.get(node.id) if isinstance(node, ast.Name) else literal(node)
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _fields(node: ast.AST, held: Mapping[str, tuple[str, str]]) -> Iterator[Declared]:
    if not is_dataclass(node):
        return
    prefix, kind = "", node.name
    for _ in held:  # outwards; a class that holds itself comes to an end, too
        section, kind = held.get(kind, ("", ""))
        prefix = f"{section}.{prefix}" if section else prefix
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            flag = f"--{prefix}{line.target.id}"
            yield Declared(names=(flag,), default=literal(line.value))


def _constants(tree: ast.Module) -> Iterator[tuple[str, KnobValue]]:
    for line in tree.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            value = literal(line.value)
            if value is not None:
                yield line.targets[0].id, value


def _keywords(call: ast.Call) -> Iterator[Keyword]:
    name = last_name(call.func)
    for keyword in call.keywords:
        if keyword.arg:
            yield Keyword(call=name, name=keyword.arg, value=literal(keyword.value))


def _divisions(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
        yield last_name(node.target), last_name(node.value)
    if isinstance(node, (ast.Assign, ast.keyword)):
        name = node.arg if isinstance(node, ast.keyword) else last_name(node.targets[0])
        for inner in ast.walk(node.value):
            divides = isinstance(inner, ast.BinOp) and isinstance(
                inner.op, (ast.Div, ast.FloorDiv)
            )
            if divides and name and last_name(inner.left) == name:  # type: ignore[attr-defined]
                yield name, last_name(inner.right)  # type: ignore[attr-defined]


def _quotients(node: ast.AST) -> Iterator[str]:
    """Names that a division of other names is assigned to, or that return one."""
    if isinstance(node, ast.FunctionDef):
        ends = [inner for inner in ast.walk(node) if isinstance(inner, ast.Return) and inner.value]
        if any(_divides(end.value) for end in ends if end.value):
            yield node.name
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value and _divides(node.value):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        own = {last_name(target) for target in targets}
        yield from own - {name for name, _ in _divisions(node)}


def _ratios(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
        dividend = last_name(node.left)
        yield from ((dividend, name) for n in ast.walk(node.right) if (name := last_name(n)))


def _path_in_folder(node: ast.AST) -> str:
    """``config`` of ``Path(args.config).parent`` and of ``dirname(abspath(args.config))``."""
    if isinstance(node, ast.Call) and last_name(node) == "dirname" and node.args:
        path: ast.AST = node.args[0]
    elif isinstance(node, ast.Attribute) and node.attr in _FOLDERS:
        path = node.value
    else:
        return ""
    while isinstance(path, ast.Call):
        if isinstance(path.func, ast.Attribute) and path.func.attr in _SAME_PATH:
            path = path.func.value
        elif path.args:
            path = path.args[0]
        else:
            return ""
    return last_name(path) or (last_name(path.value) if isinstance(path, ast.Subscript) else "")


def _divides(value: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.Div, ast.FloorDiv))
        for inner in ast.walk(value)
    )
