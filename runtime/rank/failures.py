"""What kind of failure an exception in the rank is.

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
_ALLOCATORS = re.compile(
    "DefaultCPUAllocator|std::bad_alloc|Cannot allocate memory"
    "|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
)
"""How allocators speak that torch wraps as a plain RuntimeError; torch raises no other sign."""
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+) ?(bytes|KiB|MiB|GiB)")
_NO_THREAD = os.strerror(errno.EAGAIN)
_PEER_GONE = re.compile("Connection (closed|reset) by peer|Broken pipe|ncclRemoteError")
"""How gloo and NCCL say, in a plain RuntimeError or DistBackendError, that a rank has gone."""
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class NonFiniteLossError(AutoconfError):
    """The loss of a measured step is NaN or infinite."""


def classify(error: BaseException, *, is_limited: bool = False) -> Failure:
    """The failure that an exception, or one that caused it, means.

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
    """Whether an allocator of the device or the host refused."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and bool(_ALLOCATORS.search(str(error)))


def asked_bytes(error: BaseException) -> int:
    """Bytes of the allocation that an out-of-memory error names; 0 where it names none."""
    for cause in _causes(error):
        found = _ASKED.search(str(cause)) if is_allocation_failure(cause) else None
        if found:
            return int(float(found[1]) * _UNITS[found[2]])
    return 0


def is_of_weights(error: BaseException) -> bool:
    """Whether it was raised while a module was made or moved, and none was called."""
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
    text = " ".join(str(error).split())[:_LONGEST_DETAIL]
    return Failure(
        kind=kind,
        detail=f"{type(error).__name__}: {text}".rstrip(": "),
        lost_peer=any(_PEER_GONE.search(str(cause)) for cause in _causes(error)),
    )


_STDERR_LOG = "stderr.log"
_PRINTED_LINES = 5
_TRACE_LINES = 15
_LONGEST_LINE = 500
_TAIL_BYTES = 4096


def last_words(folder: Path, error: BaseException) -> tuple[str, ...]:
    """The last lines on standard error so far, then the end of the traceback."""
    trace = "".join(traceback.format_exception(error)).splitlines()
    words = (*_printed_lines(folder / _STDERR_LOG)[-_PRINTED_LINES:], *trace[-_TRACE_LINES:])
    return tuple(line[:_LONGEST_LINE] for line in words)


def _printed_lines(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]
