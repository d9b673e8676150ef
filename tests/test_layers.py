"""The layers of DESIGN: imports point downwards, modules and functions stay small."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from .sources import NAMESPACE, ROOT, Source, product

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
"""Packages beyond the standard library, for the layers that are limited."""
ARGV_PARSERS = re.compile(r"parse_(args|known_args|request|fit|plan|recommend|search)")
MAY_PARSE_ARGV = {"cli", "launching", "wrapped_launch", "command", "parameters"}
"""Modules that read a command line: ours, and the launch commands that users write themselves."""


def layer(source: Source) -> str:
    return source.path.relative_to(ROOT).parts[0]


def top_names(source: Source) -> set[str]:
    return {module.split(".")[0] for module in source.modules()}


def test_imports_point_downwards() -> None:
    offenders = {}
    for one in product():
        parts = [module.split(".") for module in one.modules()]
        names = {p[1] for p in parts if p[0] == NAMESPACE and len(p) > 1}
        folders = {IMPORTED_AS.get(name, name) for name in names} & MAY_IMPORT.keys()
        if above := folders - MAY_IMPORT[layer(one)] - {layer(one)}:
            offenders[one.name] = above
    assert not offenders


def test_a_layer_uses_only_the_packages_that_it_may() -> None:
    offenders = {}
    for one in product():
        others = top_names(one) - set(sys.stdlib_module_names) - {NAMESPACE}
        if refused := others - MAY_USE.get(layer(one), others - {"torch"}):
            offenders[one.name] = refused
    assert not offenders


def test_modules_and_functions_stay_small() -> None:
    long = {one.name: one.lines for one in product() if one.lines > 500}
    long |= {
        f"{one.name}:{f.line} {f.name}": f.lines
        for one in product()
        for f in one.functions
        if f.lines > 60
    }
    assert not long


def test_nothing_is_imported_under_a_bare_folder_name(tmp_path: Path) -> None:
    assert not [one.name for one in product() if top_names(one) & MAY_IMPORT.keys()]
    finds = f"import importlib.util as u, sys; print([*filter(u.find_spec, {[*MAY_IMPORT]})])"
    answer = subprocess.run(
        [sys.executable, "-c", finds], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert answer.stdout == "[]\n"


def test_the_launcher_never_imports_torch() -> None:
    commands = sorted(path.stem for path in (ROOT / "launcher" / "commands").glob("[a-z]*.py"))
    modules = ("cli", *(f"commands.{name}" for name in commands))
    names = ", ".join(f"{NAMESPACE}.launcher.{module}" for module in modules)
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def may_parse_argv(path: Path) -> bool:
    if path.parent.name in ("commands", "command_line", "flags") and path.stem != "questions":
        return True
    return path.stem.endswith("flags") or path.stem in MAY_PARSE_ARGV or "runtime" in path.parts


def test_no_argv_is_parsed_below_the_command_line() -> None:
    calls = {
        one.name: sorted(filter(ARGV_PARSERS.fullmatch, one.called))
        for one in product()
        if not may_parse_argv(one.path)
    }
    offenders = {name: parsed for name, parsed in calls.items() if parsed}
    assert not offenders, "Build the request instead."


def test_a_program_begins_when_all_of_it_is_defined() -> None:
    assert not [one.name for one in product() if one.starts_late]


def test_the_package_is_installed_under_its_namespace() -> None:
    assert importlib.util.find_spec(f"{NAMESPACE}.launcher.cli") is not None
