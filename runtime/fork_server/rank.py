"""Makes the fork of a fork server look like ``python -u script.py``, and runs the script.

Not: the fork, nor what watches it (fork server). A rank's description is the agent's: ``argv`` and
``environment``, which here is the whole of it.
"""

from __future__ import annotations

import builtins
import importlib
import os
import runpy
import signal
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_MODULE_FLAG = "-m"


def has_namesakes(document: dict[str, Any]) -> bool:
    """True if a file beside the script would be imported in place of something imported here."""
    loaded = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
    folders = {
        _first_path(rank["argv"], document["working_directory"]) for rank in document["ranks"]
    }
    return any(loaded & _importable(Path(folder)) for folder in folders)


def become_fresh(rank: dict[str, Any]) -> None:
    """Give this fork the descriptors, signals, variables and seeds of a new interpreter."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(rank["environment"])
    _draw_new_seeds()
    importlib.invalidate_caches()


def run_program(rank: dict[str, Any]) -> None:
    """Run the script or module as ``__main__``, to be called with nothing above it."""
    argv = [str(part) for part in rank["argv"]]
    sys.orig_argv = argv
    sys.argv = argv[2:]
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, _first_path(argv, str(Path.cwd())))
    module = ModuleType("__main__")
    names = vars(module)
    names["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        names["__annotations__"] = {}
    sys.modules["__main__"] = module
    if sys.argv[0] == _MODULE_FLAG:
        del sys.argv[1]
        runpy._run_module_as_main(argv[3])  # type: ignore[attr-defined]
    else:
        _run_script(module, str(Path.cwd() / argv[2]))


def _run_script(module: ModuleType, path: str) -> None:
    """Run the script as Python does: a traceback begins with the script, its exit code is 1."""
    module.__dict__.update(
        __file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path)
    )
    failed = False
    try:
        exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), module.__dict__)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        trace = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        failed = True
    if failed:
        sys.exit(1)


def _first_path(argv: list[str], folder: str) -> str:
    """The entry that an interpreter puts before all others in ``sys.path``."""
    if argv[2] == _MODULE_FLAG:
        return folder
    return str(Path(folder, argv[2]).resolve().parent)


def _importable(folder: Path) -> set[str]:
    """Names of the modules and packages in a folder."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return set()
    packages = (entry.name for entry in entries if (entry / "__init__.py").exists())
    return {
        entry.name.partition(".")[0] for entry in entries if entry.suffix in (".py", ".so")
    }.union(packages)


def _draw_new_seeds() -> None:
    """Python's own generator does so at every fork; torch's CUDA seed is fixed, its CPU's not."""
    torch.default_generator.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
