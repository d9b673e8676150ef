"""The project's Python files, each parsed once for all tests of its structure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMESPACE = "autoconf_launch"
PRODUCT = ("core", "autotuner", "tuning_spaces", "runtime", "launcher", "nemo_tools", "api")
WITH_BODY = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, kw_only=True)
class Text:
    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Import:
    """`from module import names`, or `import module` without names."""

    module: str
    names: tuple[str, ...] = ()
    level: int = 0


@dataclass(frozen=True, kw_only=True)
class Function:
    name: str
    line: int
    lines: int
    decorators: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Class:
    name: str
    fields: frozenset[str]
    bases: frozenset[str]
    decorators: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Facts about one file.

    Attributes:
        public: names defined at its top without an underscore
        called: names of the functions that it calls
        docstrings: all strings that are statements, those below an attribute included
        strings: all other strings
        comments: lines that hold only a comment
        starts_late: whether definitions follow the lines that start it as a program
    """

    path: Path
    lines: int
    imports: tuple[Import, ...]
    functions: tuple[Function, ...]
    classes: tuple[Class, ...]
    public: frozenset[str]
    called: frozenset[str]
    docstrings: tuple[Text, ...]
    strings: tuple[Text, ...]
    comments: tuple[Text, ...]
    starts_late: bool

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    def modules(self) -> set[str]:
        """Modules that absolute imports name."""
        absolute = [one for one in self.imports if not one.level]
        return {one.module for one in absolute} | {
            f"{one.module}.{name}" for one in absolute for name in one.names
        }


@cache
def source(path: Path) -> Source:
    return read(path, path.read_text())


@cache
def sources(folder: str) -> tuple[Source, ...]:
    return tuple(source(path) for path in sorted((ROOT / folder).rglob("*.py")))


def product() -> list[Source]:
    return [one for folder in PRODUCT for one in sources(folder)]


def read(path: Path, text: str) -> Source:
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    lines = text.splitlines()
    statements = [
        part.value
        for node in nodes
        if isinstance(node, WITH_BODY)
        for part in node.body
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
    ]
    others = {n for n in nodes if isinstance(n, ast.Constant)} - set(statements)
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    return Source(
        path=path,
        lines=len(lines),
        imports=tuple(imports(nodes)),
        functions=tuple(functions(nodes)),
        classes=tuple(map(read_class, (n for n in tree.body if isinstance(n, ast.ClassDef)))),
        public=frozenset(public_names(tree)),
        called=frozenset(getattr(f, "attr", getattr(f, "id", "")) for f in calls),
        docstrings=texts(statements),
        strings=texts(sorted(others, key=lambda node: (node.lineno, node.col_offset))),
        comments=tuple(
            Text(line=number, text=line.strip())
            for number, line in enumerate(lines, 1)
            if line.lstrip().startswith("#")
        ),
        starts_late=any(
            isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
            for node in tree.body[:-1]
        ),
    )


def texts(nodes: Iterable[ast.Constant]) -> tuple[Text, ...]:
    return tuple(
        Text(line=node.lineno, text=node.value) for node in nodes if isinstance(node.value, str)
    )


def imports(nodes: Iterable[ast.AST]) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(module=alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(module=node.module or "", names=names, level=node.level)


def functions(nodes: Iterable[ast.AST]) -> Iterator[Function]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(
                name=node.name,
                line=node.lineno,
                lines=(node.end_lineno or node.lineno) - node.lineno + 1,
                decorators=tuple(map(ast.unparse, node.decorator_list)),
            )


def read_class(node: ast.ClassDef) -> Class:
    targets = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
    decorators = [ast.unparse(one).partition("(")[0] for one in node.decorator_list]
    return Class(
        name=node.name,
        fields=frozenset(target.id for target in targets if isinstance(target, ast.Name)),
        bases=frozenset(map(ast.unparse, node.bases)),
        decorators=frozenset(decorators),
    )


def public_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [n.id for n in node.targets if isinstance(n, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))
