"""The rooms of the house: entered through their faces, none above another, none overfull."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

from .sources import NAMESPACE, PRODUCT, ROOT, Source, source, sources

IMPORTED_AS = {"nemo_tools": "nemo"}
MOST_MODULES = 15
OWN_FACES = {"launcher", "launcher.commands", "nemo", "runtime"}
"""Folders whose modules are their own faces, besides the rooms."""
PAST_FACES = 449
"""Names that tests may still import from a module inside a room."""

VERBS = {"fit", "plan", "fit_inference", "plan_inference", "recommend", "validate", "compare"}
"""Each has its name in ``api``, in its command, and in the room that decides it."""
EXPORTERS = {"megatron", "nemo1", "nemo2", "torchtitan"}
"""Functions of tables that are keyed by the file they write: own configurations, and users'."""
PROTOCOLS = {"main", "apply", "look"}
"""Entry points of processes, and the function of each module in ``runtime/parallel``."""
MAY_REPEAT = VERBS | EXPORTERS | PROTOCOLS


@cache
def files() -> dict[str, Source]:
    """Each module of ours; read only by the worker that runs these tests."""
    return {
        ".".join(
            (
                IMPORTED_AS.get(folder, folder),
                *one.path.relative_to(ROOT / folder).with_suffix("").parts,
            )
        ).removesuffix(".__init__"): one
        for folder in PRODUCT[:-1]
        for one in sources(folder)
    }


def is_room(module: str) -> bool:
    return module in files() and files()[module].path.name == "__init__.py"


def room_of(module: str) -> str:
    """The folder of a module; a module that is its own face is its own room."""
    parent = module if is_room(module) else module.rpartition(".")[0]
    return module if parent in OWN_FACES else parent


def is_inside(module: str) -> bool:
    """True if only the modules of its room may import from it."""
    return module in files() and not is_room(module) and room_of(module) != module


def imported_names(module: str) -> Iterator[tuple[str, str]]:
    """Each name that a module of ours imports from another, with that module."""
    package = module if is_room(module) else module.rpartition(".")[0]
    for one in files()[module].imports:
        named = one.module
        if one.level:
            parts = package.split(".")
            parts = parts[: len(parts) - one.level + 1]
            named = ".".join([*parts, *filter(None, [named])])
        elif not named.startswith(f"{NAMESPACE}."):
            continue
        yield from ((named.removeprefix(f"{NAMESPACE}."), name) for name in one.names)


@cache
def imports_by_module() -> dict[str, tuple[tuple[str, str], ...]]:
    return {module: tuple(imported_names(module)) for module in files()}


@cache
def faces() -> dict[str, dict[str, str]]:
    """By room, the module behind each name of its face."""
    return {
        room: {name: module for module, name in names}
        for room, names in imports_by_module().items()
        if is_room(room)
    }


def imports(module: str) -> set[str]:
    """Modules of ours that a module imports from, as it names them."""
    return {named for named, _ in imports_by_module()[module]}


def home(module: str, name: str) -> str:
    """The module that defines this name of a module; a face only passes it."""
    if f"{module}.{name}" in files():
        return f"{module}.{name}"
    origin = faces().get(module, {}).get(name)
    return module if origin is None else home(origin, name)


def refuse_circles(below: Mapping[str, set[str]]) -> None:
    order: set[str] = set()

    def visit(one: str, path: tuple[str, ...]) -> None:
        assert one not in path, f"{' -> '.join((*path[path.index(one) :], one))} is a circle."
        if one not in order:
            for other in sorted(below[one] - {one}):
                visit(other, (*path, one))
            order.add(one)

    for one in sorted(below):
        visit(one, ())


def test_a_room_is_entered_through_its_face() -> None:
    past = {
        module: sorted(
            name
            for name in imports(module)
            if is_inside(name) and room_of(name) != room_of(module)
        )
        for module in files()
    }
    assert not {module: names for module, names in past.items() if names}


def test_tests_enter_a_room_through_its_face() -> None:
    past = [
        f"{one.name}: {line.module}.{name}"
        for one in sources("tests")
        for line in one.imports
        if is_inside(line.module.removeprefix(f"{NAMESPACE}."))
        for name in line.names
    ]
    assert len(past) <= PAST_FACES, "\n".join(past)


def test_no_room_imports_one_that_imports_it() -> None:
    below: dict[str, set[str]] = defaultdict(set)
    for module in files():
        below[room_of(module)] |= {room_of(n) for n in imports(module) if n in files()}
    refuse_circles(below)


def test_no_module_imports_one_that_imports_it() -> None:
    """Also in functions and for type checkers; a face's name counts as its home's."""
    refuse_circles(
        {m: {at for n in imports_by_module()[m] if (at := home(*n)) in files()} for m in files()}
    )


def test_a_room_has_few_modules() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for module in filter(lambda m: not is_room(m), files()):
        modules[module.rpartition(".")[0]].append(module)
    assert not {room: len(m) for room, m in modules.items() if len(m) > MOST_MODULES}


def test_no_name_of_a_face_is_a_modules() -> None:
    """Importing the module would put it in the place of the name."""
    hidden = {
        room: {
            name
            for name, module in names.items()
            if f"{room}.{name}" in files() and module != room
        }
        for room, names in faces().items()
    }
    assert not {room: names for room, names in hidden.items() if names}


def is_lazy(one: Source) -> bool:
    return one.path.name == "__init__.py" and "attach" in one.called


def test_a_lazy_face_gives_what_type_checkers_read() -> None:
    faces = [one for one in [source(ROOT / "api/__init__.py"), *files().values()] if is_lazy(one)]
    assert faces
    for face in faces:
        tree = ast.parse(face.path.read_text())
        (block,) = [node for node in tree.body if isinstance(node, ast.If)]
        (call,) = [node for node in ast.walk(block) if isinstance(node, ast.Call)]
        table = {m: set(n.split()) for m, n in ast.literal_eval(call.args[1]).items()}
        lines = [line for line in block.body if isinstance(line, ast.ImportFrom)]
        read = {"." * n.level + (n.module or ""): {a.name for a in n.names} for n in lines}
        assert table == read, face.name


def test_a_public_name_is_defined_in_one_module() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for module, one in files().items():
        for name in one.public:
            places[name].add(module)
    repeated = {n: sorted(p) for n, p in places.items() if len(p) > 1 and n not in MAY_REPEAT}
    assert not repeated
