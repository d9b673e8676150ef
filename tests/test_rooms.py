"""The rooms of the house: entered through their faces, none above another, none overfull."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {
    **{name: name for name in ("core", "autotuner", "tuning_spaces", "runtime", "launcher")},
    "nemo_tools": "nemo",
}
NAMESPACE = "autoconf_launch"
MOST_MODULES = 15
FILES = {
    ".".join((name, *path.relative_to(ROOT / folder).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for folder, name in FOLDERS.items()
    for path in sorted((ROOT / folder).rglob("*.py"))
}
ROOMS = {module for module, path in FILES.items() if path.name == "__init__.py"}
OWN_FACES = {"launcher", "nemo"}
"""Folders whose modules, beside the rooms, are faces of their own."""


def room_of(module: str) -> str:
    """The folder of a module; a module that is a face of its own is its own room."""
    parent = module if module in ROOMS else module.rpartition(".")[0]
    return module if parent in OWN_FACES else parent


def imports(module: str) -> Iterator[str]:
    """Modules of ours that a module imports when it is itself imported, as it names them."""
    path = FILES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1]
            yield ".".join([*base, *([node.module] if node.module else [])])
        elif node.module and node.module.startswith(f"{NAMESPACE}."):
            yield node.module.removeprefix(f"{NAMESPACE}.")


LAZY_OR_NOT = sorted(FILES)


@pytest.mark.parametrize("module", LAZY_OR_NOT)
def test_a_room_is_entered_through_its_face(module: str) -> None:
    inside = {
        name
        for name in imports(module)
        if name in FILES and name not in ROOMS and room_of(name) not in (name, room_of(module))
    }
    assert not inside, f"{module} reaches past the face of a room: {', '.join(sorted(inside))}."


def test_no_room_imports_one_that_imports_it() -> None:
    below: dict[str, set[str]] = defaultdict(set)
    for module in FILES:
        below[room_of(module)] |= {room_of(n) for n in imports(module) if n in FILES}
    order: list[str] = []

    def visit(room: str, path: tuple[str, ...]) -> None:
        assert room not in path, f"{' -> '.join((*path[path.index(room) :], room))} is a circle."
        if room not in order:
            for other in sorted(below[room] - {room}):
                visit(other, (*path, room))
            order.append(room)

    for room in sorted(below):
        visit(room, ())


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_has_few_modules(room: str) -> None:
    modules = [n for n in FILES if n.rpartition(".")[0] == room and n not in ROOMS]
    assert len(modules) <= MOST_MODULES, f"{room} has {len(modules)} modules."


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_no_name_of_a_face_is_a_modules(room: str) -> None:
    """Importing the module would put it in the place of the name."""
    tree = ast.parse(FILES[room].read_text())
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level and node.module
        for alias in node.names
    }
    modules = {name.rpartition(".")[2] for name in FILES if name.rpartition(".")[0] == room}
    assert not names & modules


WAITING = [p for p in [ROOT / "api/__init__.py", *FILES.values()] if " = attach(" in p.read_text()]


@pytest.mark.parametrize("path", WAITING, ids=lambda path: path.parent.name)
def test_a_face_that_waits_gives_what_type_checkers_read(path: Path) -> None:
    blocks = [block for block in ast.parse(path.read_text()).body if isinstance(block, ast.If)]
    (block,) = blocks
    lines = [line for line in block.body if isinstance(line, ast.ImportFrom)]
    read = {"." * n.level + (n.module or ""): {a.name for a in n.names} for n in lines}
    (call,) = [node for node in ast.walk(block) if isinstance(node, ast.Call)]
    assert {m: set(names.split()) for m, names in ast.literal_eval(call.args[1]).items()} == read


VERBS = {"fit", "plan", "fit_inference", "plan_inference", "recommend", "validate", "compare"}
"""Each has its name in ``api``, in its command, and where it is decided."""
EXPORTERS = {"megatron", "nemo1", "nemo2", "torchtitan"}
"""Functions of tables that are keyed by what they write: own configurations, and users' files."""
PROTOCOLS = {"main", "apply"}
"""Entry points of processes, and what each kind of parallelism in ``runtime/parallel`` has."""
MAY_REPEAT = VERBS | EXPORTERS | PROTOCOLS


def public_names(module: str) -> Iterator[str]:
    """What a module defines at its top without an underscore."""
    for node in ast.parse(FILES[module].read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [n.id for n in node.targets if isinstance(n, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def test_a_public_name_is_defined_in_one_module() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for module in FILES:
        for name in public_names(module):
            places[name].add(module)
    repeated = {n: sorted(p) for n, p in places.items() if len(p) > 1 and n not in MAY_REPEAT}
    assert not repeated
