"""Kinds of failure, from an exception in the rank.

Taken in the rank, at once: a moment later its peers fill the shared log with their own ends.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb

import torch

from autoconf_launch.core import AutoconfError, ConfigError, Failure, FailureKind

_LONGEST_DETAIL = 1000
_MODULES = Path(str(torch.nn.modules.__file__)).parent
_LIBRARY = r"^(?:[\w.]*Error: )?(?:cu\w+ error: )?"
"""Begins a line of a GPU library, also in a traceback of another process that an error quotes."""
_REFUSED = re.compile(
    "DefaultCPUAllocator|std::bad_alloc|Cannot allocate memory"
    rf"|{_LIBRARY}(?:(?:CUDA|HIP)(?: driver)? error: out of memory"
    r"|Triton Error \[\w+\]: out of memory"
    r"|Cuda failure (?:\d+ )?'out of memory'|failed to (?:CUDA )?(?:host )?[mc]?alloc\b"  # NCCL
    r"|\w+_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_\w+_ALLOCATION_FAILED)",
    re.MULTILINE | re.IGNORECASE,
)
"""Messages of allocators that torch wraps as a plain RuntimeError, without another sign.

Messages of a GPU begin a line, so that a sentence that only mentions them does not count.
"""
_NOT_STARTED = re.compile(
    rf"{_LIBRARY}(?:\w+_STATUS_NOT_INITIALIZED|CUSOLVER_STATUS_INTERNAL_ERROR.*Create"
    "|CUFFT_INTERNAL_ERROR)",
    re.MULTILINE | re.IGNORECASE,
)
"""Messages of libraries that fail to start for lack of memory, or for another reason."""
_AMPLE_BYTES = 1 << 30
"""More than any of these libraries takes to start: kernels and workspaces of some hundred MiB."""
_ASKED = re.compile(r"(?:[Tt]ried to allocate|[cm]alloc(?: async)?) ([\d.]+) ?(bytes|KiB|MiB|GiB)")
_NO_THREAD = os.strerror(errno.EAGAIN)
_PEER_GONE = re.compile(
    "Connection (closed|reset) by peer|Connection was likely closed|Broken pipe"
    "|ncclRemoteError|ncclSystemError|remote process exit(ed|ing)"
    "|Watchdog caught collective operation timeout|NCCL communicator was aborted"
    "|NCCL operations have failed or timed out"
)
"""Messages of gloo and NCCL, in RuntimeError or DistBackendError, that a rank has gone."""
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class NonFiniteLossError(AutoconfError):
    """The loss of a measured step is NaN or infinite."""


def classify(error: BaseException, *, is_limited: bool = False) -> Failure:
    """The failure that an exception, or its cause, means.

    ``is_limited``: host memory has an emulated limit, under which a thread may lack its stack.
    """
    chain = tuple(_causes(error))
    for cause in chain:
        if is_allocation_failure(cause) or (is_limited and _NO_THREAD in str(cause)):
            return _failure(FailureKind.OUT_OF_MEMORY, cause)
    for cause in chain:
        if isinstance(cause, ConfigError):
            return Failure(kind=FailureKind.BAD_CONFIG, detail=str(cause)[:_LONGEST_DETAIL])
        if isinstance(cause, NonFiniteLossError):
            return Failure(kind=FailureKind.NAN, detail=str(cause))
    return _failure(FailureKind.CRASHED, error)


def is_allocation_failure(error: BaseException) -> bool:
    """True if an allocator of the device or the host refused."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if not _is_of_torch(error):
        return False
    text = str(error)
    return bool(_REFUSED.search(text) or (_NOT_STARTED.search(text) and _may_lack_memory()))


def _is_of_torch(error: BaseException) -> bool:
    """True if it is a RuntimeError as torch raises it, and no class of a script."""
    kind = type(error)
    return kind is RuntimeError or (
        issubclass(kind, RuntimeError) and kind.__module__.partition(".")[0] == "torch"
    )


def _may_lack_memory() -> bool:
    """True if the GPU has little free memory, as far as can be known."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return True
    try:
        return torch.cuda.mem_get_info()[0] < _AMPLE_BYTES
    except RuntimeError:  # a broken context starts no library either
        return False


def is_device_lost() -> bool:
    """True if this process's GPU context is broken, so that every other call to it raises.

    So it is after a device-side assert, an illegal memory access or a memory error.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    try:
        torch.cuda.current_stream().query()
    except RuntimeError:
        return True
    return False


def asked_bytes(error: BaseException) -> int:
    """Bytes of the allocation that an out-of-memory error names; 0 if it names none."""
    for cause in _causes(error):
        if is_allocation_failure(cause) and (asked := _bytes_in(_ASKED, str(cause))):
            return asked
    return 0


def is_of_weights(error: BaseException) -> bool:
    """True if it was raised while a module was made or moved, and none was called."""
    names = {
        frame.f_code.co_name
        for cause in _causes(error)
        for frame, _ in walk_tb(cause.__traceback__)
        if Path(frame.f_code.co_filename).is_relative_to(_MODULES)
    }
    return bool(names) and not names & {"_call_impl", "forward"}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _failure(kind: FailureKind, error: BaseException) -> Failure:
    if kind is FailureKind.OUT_OF_MEMORY:
        text = _short_refusal(error)
    else:
        text = _in_one_line(error)[:_LONGEST_DETAIL]
    return Failure(
        kind=kind,
        detail=f"{type(error).__name__}: {text}".rstrip(": "),
        lost_peer=any(_PEER_GONE.search(str(cause)) for cause in _causes(error)),
    )


_HINT = re.compile(
    "(Search for `|CUDA kernel errors might be|For debugging consider passing|Compile with `TORCH_"
    r"|Device-side assertion tracking|Exception raised from |frame #|[\s^~]*$)"
)
"""Lines that torch adds to each error of a GPU, and lines of Python that only mark a column."""


def _without_hints(text: str) -> list[str]:
    return [line for line in text.splitlines() if not _HINT.match(line)]


def _in_one_line(error: BaseException) -> str:
    return " ".join(" ".join(_without_hints(str(error))).split())


_SENTENCE_END = re.compile(r"(?<=\.)\s+")
_SENTENCES = 2


def _short_refusal(error: BaseException) -> str:
    """The first sentences of an out-of-memory error, the bytes asked for, and advice."""
    text = _in_one_line(error)
    short = " ".join(_SENTENCE_END.split(text)[:_SENTENCES])[:_LONGEST_DETAIL]
    asked = _ASKED.search(text)
    if asked and asked[0] not in short:
        short = f"{short} Tried to allocate {asked[1]} {asked[2]}."
    return " ".join(filter(None, (short, _segment_advice(text))))


_SIZE = r"([\d.]+ (?:bytes|KiB|MiB|GiB))"
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch")
_UNUSED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_FREE = re.compile(rf"of which {_SIZE} is free")
_ALLOWED = re.compile(rf"{_SIZE} allowed")
_SEGMENTS = "expandable_segments:True"
_ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def _segment_advice(text: str) -> str:
    """Advice if an allocation was refused only as the allocator's free memory is in pieces."""
    asked, unused = _bytes_in(_ASKED, text), _bytes_in(_UNUSED, text)
    if (
        not asked
        or not unused
        or any(_SEGMENTS in os.environ.get(name, "") for name in _ALLOCATOR_VARIABLES)
    ):
        return ""
    room = _bytes_in(_FREE, text)
    if allowed := _bytes_in(_ALLOWED, text):
        room = min(room, allowed - _bytes_in(_ALLOCATED, text) - unused)
    if asked > unused + max(room, 0):
        return ""
    return (
        f"PyTorch held {unused / 2**30:.2f} GiB more than it used, in pieces too small for this: "
        f"set {_ALLOCATOR_VARIABLES[0]}={_SEGMENTS}."
    )


def _bytes_in(pattern: re.Pattern[str], text: str) -> int:
    seen = pattern.search(text)
    if seen is None:
        return 0
    value, unit = " ".join(seen.groups()).split()
    return int(float(value) * _UNITS[unit])


_STDERR_LOG = "stderr.log"
_LIBRARIES = (
    Path(os.__file__).parent,
    Path(str(torch.__file__)).parents[1],
    Path(__file__).parents[1],
)
_ASSERTION = re.compile(r": block: \[.*Assertion `")
"""Begins what a kernel of CUDA prints of an index or a value, which its error does not name."""
_PRINTED_LINES = 1
_TRACE_LINES = 15
_LONGEST_LINE = 500
_TAIL_BYTES = 4096


def last_words(folder: Path, error: BaseException) -> tuple[str, ...]:
    """The end of the traceback, after the last assertion that a kernel has printed, if any.

    Whatever else was printed before may be a warning, a progress bar or another rank's. A long
    traceback loses the frames of libraries first, but the innermost one.
    """
    trace = _trace(error, whole=True)
    if len(trace) > _TRACE_LINES:
        trace = _trace(error, whole=False)
    words = (*_printed_lines(folder / _STDERR_LOG)[-_PRINTED_LINES:], *trace[-_TRACE_LINES:])
    return tuple(line[:_LONGEST_LINE] for line in words)


def _trace(error: BaseException, *, whole: bool) -> list[str]:
    """Lines of the traceback, from the script's outermost call on if it is still under way."""
    seen = traceback.TracebackException.from_exception(error)
    if (start := error.__traceback__) and start.tb_frame.f_back:
        outer = traceback.extract_stack(start.tb_frame.f_back)
        seen.stack[:0] = [frame for frame in outer if not _is_of_library(Path(frame.filename))]
    if not whole:
        kept = [frame for frame in seen.stack[:-1] if not _is_of_library(Path(frame.filename))]
        seen.stack[:-1] = kept
    return _without_hints("".join(seen.format()))


def _is_of_library(path: Path) -> bool:
    return any(map(path.is_relative_to, _LIBRARIES))


def _printed_lines(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if _ASSERTION.search(line)]
