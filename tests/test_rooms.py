"""The rooms of the house: entered through their faces, none above another, none overfull."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
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
OWN_FACES = {"launcher", "launcher.commands", "nemo"}
"""Folders whose modules, beside the rooms, are faces of their own."""


def room_of(module: str) -> str:
    """The folder of a module; a module that is a face of its own is its own room."""
    parent = module if module in ROOMS else module.rpartition(".")[0]
    return module if parent in OWN_FACES else parent


def imported_names(module: str) -> Iterator[tuple[str, str]]:
    """Modules of ours that a module imports from, anywhere in it, each with a name."""
    path = FILES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        named = node.module or ""
        if node.level:
            parts = package.split(".")
            named = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [named])])
        elif not named.startswith(f"{NAMESPACE}."):
            continue
        yield from ((named.removeprefix(f"{NAMESPACE}."), alias.name) for alias in node.names)


IMPORTED = {module: tuple(imported_names(module)) for module in FILES}
FACES = {room: {name: module for module, name in IMPORTED[room]} for room in ROOMS}


def imports(module: str) -> set[str]:
    """Modules of ours that a module imports from, as it names them."""
    return {named for named, _ in IMPORTED[module]}


def home(module: str, name: str) -> str:
    """The module where this name of a module is defined; a face only hands it on."""
    if f"{module}.{name}" in FILES:
        return f"{module}.{name}"
    handed_on = FACES.get(module, {}).get(name)
    return module if handed_on is None else home(handed_on, name)


def refuse_circles(below: Mapping[str, set[str]]) -> None:
    order: list[str] = []

    def visit(one: str, path: tuple[str, ...]) -> None:
        assert one not in path, f"{' -> '.join((*path[path.index(one) :], one))} is a circle."
        if one not in order:
            for other in sorted(below[one] - {one}):
                visit(other, (*path, one))
            order.append(one)

    for one in sorted(below):
        visit(one, ())


@pytest.mark.parametrize("module", sorted(FILES))
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
    refuse_circles(below)


def test_no_module_imports_one_that_imports_it() -> None:
    """In functions and for type checkers neither; a name of a face counts where it is defined."""
    refuse_circles({m: {at for n in IMPORTED[m] if (at := home(*n)) in FILES} for m in FILES})


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
PROTOCOLS = {"main", "apply", "look"}
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
