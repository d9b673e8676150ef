"""The layers of DESIGN: imports point downwards, modules stay small, one name per module."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMESPACE = "autoconf_launch"
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "autotuner": {"core"},
    "tuning_spaces": {"core", "autotuner"},
    "runtime": {"core"},
    "launcher": {"core", "autotuner", "tuning_spaces"},
    "nemo_tools": {"core", "autotuner", "tuning_spaces", "launcher"},
    "api": {"core", "autotuner", "tuning_spaces", "launcher", "nemo_tools", "runtime"},
}
IMPORTED_AS = {"nemo": "nemo_tools"}
"""Folders whose import name is another: a root folder nemo would hide NVIDIA's package."""
MAY_USE = {"core": set[str](), "runtime": {"torch"}}
"""Packages beside the standard library, where a layer is limited."""
SOURCES = sorted(path for folder in MAY_IMPORT for path in (ROOT / folder).rglob("*.py"))


def imported_modules(path: Path) -> set[str]:
    """Modules that a file names in absolute imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def name_of(path: object) -> str:
    return str(path.relative_to(ROOT)) if isinstance(path, Path) else ""


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_point_downwards(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0]
    parts = [name.split(".") for name in imported_modules(path)]
    names = {p[1] for p in parts if p[0] == NAMESPACE and len(p) > 1}
    folders = {IMPORTED_AS.get(name, name) for name in names} & MAY_IMPORT.keys()
    above = folders - MAY_IMPORT[own] - {own}
    assert not above, f"{path.relative_to(ROOT)} reaches into {', '.join(sorted(above))}."


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_layer_uses_only_the_packages_that_it_may(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0]
    used = {name.split(".")[0] for name in imported_modules(path)}
    foreign = used - set(sys.stdlib_module_names) - {NAMESPACE}
    allowed = MAY_USE.get(own, foreign - {"torch"})
    assert foreign <= allowed, f"{path.relative_to(ROOT)} imports {', '.join(foreign - allowed)}."


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_functions_stay_short(path: Path) -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions)]
    long = [f.name for f in found if f.end_lineno is None or f.end_lineno - f.lineno >= 60]
    assert not long, f"{path.relative_to(ROOT)}: more than 60 lines: {', '.join(long)}."


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_is_imported_under_a_bare_folder_name(path: Path) -> None:
    bare = {name.split(".")[0] for name in imported_modules(path)} & MAY_IMPORT.keys()
    assert not bare, f"import autoconf_launch.{bare.pop()} instead."


@pytest.mark.parametrize("folder", sorted(MAY_IMPORT))
def test_nothing_is_importable_under_two_names(folder: str, tmp_path: Path) -> None:
    code = (
        f"import importlib.util, sys; sys.exit(importlib.util.find_spec({folder!r}) is not None)"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert answer.returncode == 0


def test_the_launcher_never_imports_torch() -> None:
    commands = sorted(path.stem for path in (ROOT / "launcher" / "commands").glob("[a-z]*.py"))
    modules = ("cli", *(f"commands.{name}" for name in commands))
    names = ", ".join(f"{NAMESPACE}.launcher.{module}" for module in modules)
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ARGV_PARSERS = re.compile(r"parse_(args|known_args|request|fit|plan|recommend|search)")
MAY_PARSE_ARGV = {"cli", "launching", "wrapped_launch", "command", "parameters"}
"""Modules that read a command line: ours, and the launch commands that users write themselves."""


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_argv_is_parsed_below_the_command_line(path: Path) -> None:
    folder = path.parent.name
    if folder in ("commands", "command_line", "flags") and path.stem != "questions":
        return
    if path.stem.endswith("flags") or path.stem in MAY_PARSE_ARGV or "runtime" in path.parts:
        return
    nodes = ast.walk(ast.parse(path.read_text()))
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = [getattr(called, "attr", getattr(called, "id", "")) for called in calls]
    parsed = [name for name in names if ARGV_PARSERS.fullmatch(name)]
    assert not parsed, f"{path.relative_to(ROOT)} calls {parsed[0]}; build the request instead."


def test_a_program_begins_when_all_of_it_is_defined() -> None:
    late = []
    for path in SOURCES:
        body = ast.parse(path.read_text()).body
        starts = [
            i for i, node in enumerate(body) if "__name__ == '__main__'" in ast.unparse(node)
        ]
        late += [str(path.relative_to(ROOT)) for i in starts[:1] if i < len(body) - 1]
    assert not late


def test_the_package_is_installed_under_its_namespace() -> None:
    assert importlib.util.find_spec(f"{NAMESPACE}.launcher.cli") is not None
