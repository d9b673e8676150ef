"""A process that has imported torch and forks the ranks of short launches.

For an external script it has also imported what the script imports first, by the launcher's
list. Its ranks arm the probe before the script begins; modules that a rank of a new interpreter
would have imported after that get the probe's functions in place of those that they hold.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import gc
import importlib
import importlib.util
import os
import runpy
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from autoconf_launch.core import JOB_VARIABLE

from .injected import sitecustomize

_INJECTED: Any = sitecustomize  # it has no types
_MODULE_FLAG = "-m"
PRELOADED = (
    "autoconf_launch.runtime.engine.engine",
    "torch._dynamo",
    "torch.distributed.optim",
)
"""Modules that every rank of ours imports; none of them computes."""
_BY_EVERY_SCRIPT = ("torch._dynamo",)
"""Modules that any script imports with its first optimizer."""
_LONGEST_NAME = 256
_ENVIRON_START = 47
"""Index of ``env_start`` behind the name in ``/proc/PID/stat`` (proc(5), field 50)."""


def main() -> Callable[[], None]:
    """Serve until the controller is gone, then end; returns only in ranks, with their program."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    agent = _load(sys.argv[2])
    names = sys.argv[4:]
    with _imports() as imports:
        if names:
            _INJECTED.load_probe()
            imports.begin_later()
        for name in (*names, *_BY_EVERY_SCRIPT) if names else PRELOADED:
            _import(name)
    _outlive_parent(agent)
    _end_threads_of_libraries()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for agents
    rank = _serve(requests, agent)
    if names:
        os.environ.update(imports.variables)
    return functools.partial(run_program, rank, imports.later)


def _outlive_parent(agent: Any) -> None:
    """Let only the socket say that the controller is gone; during imports its end killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(agent.PR_SET_PDEATHSIG, 0, 0, 0, 0)


def can_fork() -> bool:
    """True if a fork of this process can compute: one thread, and CUDA's driver not started."""
    one_thread = len(tuple(Path("/proc/self/task").iterdir())) == 1
    return one_thread and not any(map(_is_of_cuda, Path("/proc/self/fd").iterdir()))


def _is_of_cuda(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith("/dev/nvidia-uvm")
    except OSError:
        return False


def _load(path: str) -> Any:
    """The agent's module; it belongs to the launcher, which this layer may not import."""
    spec = importlib.util.spec_from_file_location("autoconf_launch_agent", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Imports:
    """Effects of the imports.

    Attributes:
        later: modules that a new interpreter imports after it has armed the probe.
        variables: variables that modules have set.
    """

    def __init__(self) -> None:
        self._modules = set(sys.modules)
        self._variables = dict(os.environ)
        self.later: tuple[str, ...] = ()
        self.variables: dict[str, str] = {}

    def begin_later(self) -> None:
        self._modules = set(sys.modules)

    def end(self) -> None:
        self.later = tuple(sys.modules.keys() - self._modules)
        self.variables = dict(os.environ.items() - self._variables.items())


@contextlib.contextmanager
def _imports() -> Iterator[_Imports]:
    """Keep the collector of every fork away from the objects that are made meanwhile.

    A fork would copy each page that a collection touches, and its end would take a second.
    """
    gc.disable()
    # Modules may ask at their import whether there is a GPU; CUDA's own answer would start it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    imports = _Imports()
    yield imports
    imports.end()
    gc.freeze()
    gc.enable()


def _import(name: str) -> None:
    """Import ``module``, or ``module:name`` as ``from module import name`` does.

    An error is left to the script, which meets it again.
    """
    module, _, attribute = name.partition(":")
    with contextlib.suppress(Exception):
        getattr(__import__(module, fromlist=[attribute or "__name__"]), attribute or "__name__")


def _end_threads_of_libraries() -> None:
    """OpenBLAS, which comes with numpy, ends its threads at a fork until they are needed."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _serve(requests: socket.socket, agent: Any) -> dict[str, Any]:
    """Fork one agent per request; returns in a rank, with its description."""
    while True:
        try:
            name, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_NAME, 3)
        except OSError:
            name, descriptors = b"", []
        if not name:
            _await_agents()
        if len(descriptors) != 3 or not can_fork():
            os._exit(1)  # the controller sees the sockets close
        if os.fork() == 0:
            requests.close()
            return _watch(agent, name, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _await_agents() -> None:
    """End once all agents have, so that awaiting this process awaits them."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)  # returns only when none is left, as their ends are ignored
    os._exit(0)


def _watch(agent: Any, name: bytes, descriptors: list[int]) -> dict[str, Any]:
    """Be the agent of one job to its end; returns in a rank, with its description."""
    with contextlib.ExitStack() as over:
        over.callback(os._exit, 0)
        os.setsid()
        control = agent.Control(descriptors[0])
        for log, output in zip(descriptors[1:], (1, 2), strict=True):
            os.dup2(log, output)
            os.close(log)
        _mark(name)
        agent.prepare_process(control)
        document = control.read_first()
        if document is not None and not has_namesakes(document):
            control.write({"started": os.getpid()})
            rank: dict[str, Any] | None = agent.supervise(document, control, become_fresh)
            if rank is not None:
                over.pop_all()
                return rank
    raise AssertionError("an agent has ended and yet goes on")


def _mark(name: bytes) -> None:
    """Write the job's name if ``/proc`` shows our variables, for all that is forked below."""
    shown = Path("/proc/self/environ").read_bytes()
    begin = shown.index(f"{JOB_VARIABLE}=".encode()) + len(JOB_VARIABLE) + 1
    room = shown.index(b"\0", begin) - begin
    stat = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    ctypes.memmove(int(stat[_ENVIRON_START]) + begin, name, min(len(name), room))


def has_namesakes(document: dict[str, Any]) -> bool:
    """True if a file next to the script would be imported in place of something imported here."""
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


def run_program(rank: dict[str, Any], later: Iterable[str] = ()) -> None:
    """Run the script or module as ``__main__``, to be called with nothing above it.

    ``later`` are the modules that it would import with the probe armed.
    """
    if _INJECTED.is_asked():
        _arm_before(later)
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


def _arm_before(later: Iterable[str]) -> None:
    """Arm the probe, and let modules hold its functions as if they were imported only now."""
    before = {name: _functions(module) for name, module in tuple(sys.modules.items())}
    _INJECTED.arm()
    stands = {
        function: getattr(sys.modules[name], attribute)
        for name, functions in before.items()
        for attribute, function in functions.items()
        if getattr(sys.modules[name], attribute, function) is not function
    }
    for name in later:
        for attribute, function in before.get(name, {}).items():
            if (stand := stands.get(function)) is not None:
                setattr(sys.modules[name], attribute, stand)


def _functions(module: ModuleType) -> dict[str, FunctionType | BuiltinFunctionType]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, FunctionType | BuiltinFunctionType)
    }


def _first_path(argv: list[str], folder: str) -> str:
    if argv[2] == _MODULE_FLAG:
        return folder
    return str(Path(folder, argv[2]).resolve().parent)


def _importable(folder: Path) -> set[str]:
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
