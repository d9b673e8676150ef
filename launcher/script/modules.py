"""Sources of a script's own program: its entry file and the modules that it imports.

The entry file of ``-m package`` or of an installed command often only calls a function of another
module; then that module is read as the script.
"""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..input_file import input_text, is_file
from ..request import LaunchRequest
from .facts import facts_of
from .nodes import added_folders, syntax_tree

_MOST_MODULES = 80
_WITH_TORCH = frozenset({"torch", "transformers", "accelerate", "lightning", "pytorch_lightning"})
_SAFE = _WITH_TORCH | {
    *("numpy", "safetensors", "tokenizers", "huggingface_hub", "datasets", "peft", "trl"),
    *("torchvision", "torchmetrics", "PIL", "tqdm", "yaml", "omegaconf"),
}
"""Packages whose import starts neither a thread nor CUDA and depends on no variable of a rank."""
_MOST_STATEMENTS = 12
"""A file with more statements does work itself."""
_MOST_HOPS = 3
_PATIENCE_S = 30.0
_SAY_PLACE = """
import importlib.util, sys
spec = importlib.util.find_spec(sys.argv[1])
places = list(spec.submodule_search_locations or ()) if spec else []
sys.stdout.write(places[0] if places else spec.origin if spec and spec.origin else "")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSources:
    """Path and text of the file that is read as the script, and texts of its modules.

    ``is_whole``: every module that the program imports of itself was read.
    """

    script: Path
    text: str = ""
    modules: tuple[str, ...] = ()
    is_whole: bool = True


def leading_imports(text: str) -> tuple[str, ...]:
    """The imports of a script that precede all else, as ``module`` or ``module:name``.

    They end before the first statement that may change a later import, or that imports something
    else than known packages and the standard library; the latter's modules are left out. Empty if
    torch is not imported by then.
    """
    tree = syntax_tree(text)
    found = list[str]()
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        names = tuple(_imported_names(node))
        packages = {name.partition(":")[0].partition(".")[0] for name in names}
        if not names or packages - _SAFE - sys.stdlib_module_names:
            break
        found += names if packages & _SAFE else ()
    packages = {name.partition(":")[0].partition(".")[0] for name in found}
    return tuple(found) if packages & _WITH_TORCH else ()


def _imported_names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from (f"{node.module}:{alias.name}" for alias in node.names if alias.name != "*")


def plain_text(path: Path) -> str:
    """Text of a file; empty if it is missing, too large or not text."""
    try:
        return input_text(path)
    except (OSError, UnicodeDecodeError):
        return ""


def script_path(request: LaunchRequest) -> Path:
    """Path of the entry file of a script or a module."""
    if request.kind != "module":
        return Path(request.script)
    first, *others = request.script.split(".")
    place = Path(first, *others)
    if not Path(first).is_dir() and not is_file(f"{first}.py"):
        place = _find_installed(first, request.python).joinpath(*others)
    if place.is_dir():
        return place / "__main__.py"
    return place if place.suffix == ".py" else place.with_suffix(".py")


def module_problem(request: LaunchRequest) -> str:
    """Reason why ``python -m`` cannot run a module, with a line that works; empty if it may.

    A module that cannot be found is left to Python, which may find it in other ways.
    """
    name = request.script
    is_path = "/" in name or name.endswith(".py")
    if request.kind != "module" or (not is_path and is_file(script_path(request))):
        return ""
    dotted = str(Path(name.removesuffix(".py"))).replace("/", ".")
    if is_path and is_file(script_path(replace(request, script=dotted))):
        return f"-m takes the name of a module, not {name}; write {_line(request, dotted)}"
    if is_path:
        return f"-m takes the name of a module, but {name} is a path; give it without -m."
    first, *others = name.split(".")
    place = _find_installed(first, request.python).joinpath(*others)
    if not place.is_dir() or (place / "__main__.py").is_file():
        return ""
    problem = f"{name} is a package without a __main__.py, which python -m cannot run"
    programs = _programs(place)
    if not programs:
        return f"{problem}; name one of its modules, as in -m {name}.train."
    return f"{problem}; write {_line(request, f'{name}.{programs[0]}')}"


def _line(request: LaunchRequest, module: str) -> str:
    return shlex.join(("-m", module, *request.script_args))


def _programs(package: Path) -> list[str]:
    """Modules of a package that look like programs; modules with a main part come first."""
    texts = {path.stem: plain_text(path) for path in sorted(package.glob("*.py"))}
    texts.pop("__init__", None)
    return [
        *(name for name, text in texts.items() if "__main__" in text),
        *(name for name, text in texts.items() if ".backward(" in text or "argparse" in text),
    ]


def own_sources(request: LaunchRequest) -> OwnSources:
    """The readable source of a request's program; empty if it is not Python."""
    path = script_path(request)
    text = plain_text(path) if request.kind != "program" else ""
    if path.suffix != ".py" and not is_python(text):
        return OwnSources(script=path)
    for _ in range(_MOST_HOPS):
        called = _called_module(path, text, request.python)
        if called is None:
            break
        path, text = called, plain_text(called)
    read = _read_modules(path, text)
    if file := _executed_file(request.script_args, path, tuple(read.values())):
        path, text = file, plain_text(file)
        read = _read_modules(path, text)
    # a command that trains elsewhere, in a module that was not found
    is_stub = path.suffix != ".py" and len(read) == 1 and "torch" not in text
    is_whole = len(read) <= _MOST_MODULES and not is_stub
    modules = tuple(filter(None, [*read.values()][1:]))
    return OwnSources(script=path, text=text, modules=modules, is_whole=is_whole)


def _executed_file(words: tuple[str, ...], path: Path, texts: tuple[str, ...]) -> Path | None:
    """The file that a program executes by ``runpy.run_path``, named on its command line.

    It is a path, or a file in a folder that the program names next to its package, such as the
    recipes of torchtune's ``tune run RECIPE``. None if there is no such file.
    """
    runners = [text for text in texts if "run_path" in facts_of(text).called]
    if not runners:
        return None
    root, package = _root(path)
    named = {word for text in runners for word in _words_of(text)}
    inside = [root / package] if package else []
    folders = [Path(), *(base / name for base in (root, *inside) for name in sorted(named))]
    names = [w if w.endswith(".py") else f"{w}.py" for w in words if not w.startswith("-")]
    files = (folder / name for name in names for folder in folders)
    return next((file for file in files if file.is_file()), None)


def _walk(text: str) -> Iterator[ast.AST]:
    tree = syntax_tree(text)
    return ast.walk(tree) if tree else iter(())


def _words_of(text: str) -> Iterator[str]:
    for node in _walk(text):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and value.isidentifier():
            yield value


def is_python(text: str) -> bool:
    """True if the first line of a program names Python."""
    first = text.partition("\n")[0]
    return first.startswith("#!") and "python" in first


def _read_modules(script: Path, text: str) -> dict[Path, str]:
    """The script with its own modules; one more than ``_MOST_MODULES`` if there are too many."""
    found: dict[Path, str] = {script: text}
    waiting = [script]
    while waiting and len(found) <= _MOST_MODULES:
        path = waiting.pop(0)
        for other in sorted(_imported_files(path, found[path])):
            if other not in found and len(found) <= _MOST_MODULES:
                found[other] = plain_text(other)
                waiting.append(other)
    return found


def _imported_files(path: Path, text: str) -> set[Path]:
    root, package = _root(path)
    above = {folder.name: folder.parent for folder in reversed(path.parents)}  # no __init__.py
    added = _added_to_path(path, text)
    found = set[Path]()
    for level, name in _imports(text):
        first = name.partition(".")[0]
        if not level and package is not None and first != package:
            continue
        base = path.parent.joinpath(*[".."] * (level - 1)) if level else root
        for folder in {base} if level else {base, above.get(first, base), *added}:
            place = folder.joinpath(*name.split(".")).resolve() if name else folder.resolve()
            candidates = {place / "__init__.py"} | ({place.with_suffix(".py")} if name else set())
            found |= {file for file in candidates if file.is_file() and file != path.resolve()}
    return found


def _added_to_path(path: Path, text: str) -> tuple[Path, ...]:
    tree = syntax_tree(text) if "sys.path" in text else None
    return tuple(added_folders(tree, path.parent)) if tree else ()


def _root(path: Path) -> tuple[Path, str | None]:
    """The folder of a file's absolute imports, and the package that it is in."""
    folder, package = path.parent, None
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder, package = folder.parent, folder.name
    return folder, package


def _imports(text: str) -> Iterator[tuple[int, str]]:
    for node in _walk(text):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            before = f"{node.module}." if node.module else ""
            yield node.level, node.module or ""
            yield from ((node.level, f"{before}{alias.name}") for alias in node.names)


def _called_module(path: Path, text: str, python: str | None) -> Path | None:
    """The module whose function is all that a file calls; None if the file does more."""
    tree, makes = syntax_tree(text), (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    if (
        tree is None
        or len(tree.body) > _MOST_STATEMENTS
        or any(isinstance(n, makes) for n in ast.walk(tree))
    ):
        return None
    calls = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call) and not n.args)
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        if called & {alias.asname or alias.name for alias in node.names}:
            return _module_file(path, node, python, (*added_folders(tree, path.parent),))
    return None


def _module_file(
    path: Path, node: ast.ImportFrom, python: str | None, added: tuple[Path, ...]
) -> Path | None:
    names = (node.module or "").split(".") if node.module else []
    if node.level:
        base = path.parent.joinpath(*[".."] * (node.level - 1)).resolve()
    else:
        roots = (_root(path)[0], *added)
        holding = [r for r in roots if (r / names[0]).is_dir() or is_file(r / f"{names[0]}.py")]
        is_command = path.suffix != ".py"
        if names[0] in sys.stdlib_module_names or not (holding or is_command):
            return None
        base = holding[0] if holding else _find_installed(names[0], python).parent
    place = base.joinpath(*names)
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if file.is_file()), None)


@cache
def _find_installed(name: str, python: str | None) -> Path:
    """Folder or file of an installed package, as a Python finds it; the bare name if not."""
    command = (python or sys.executable, "-c", _SAY_PLACE, name)
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return Path(name)
    return Path(answer.stdout.strip() or name)
