import errno
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from autoconf_launch.core import ConfigError, FailureKind
from autoconf_launch.runtime.rank import (
    NonFiniteLossError,
    asked_bytes,
    classify,
    is_allocation_failure,
    is_of_weights,
    last_words,
)


def real_allocator_error() -> RuntimeError:
    """Message of torch's CPU allocator for a tensor of 4 EiB."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.int32)
    return caught.value


def wrap(cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except Exception as error:
            raise ValueError("the step failed") from error
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), FailureKind.OUT_OF_MEMORY),
        (MemoryError(), FailureKind.OUT_OF_MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), FailureKind.OUT_OF_MEMORY),
        (RuntimeError("std::bad_alloc"), FailureKind.OUT_OF_MEMORY),
        (ConfigError("stage is 4"), FailureKind.BAD_CONFIG),
        (NonFiniteLossError("the loss is nan"), FailureKind.NAN),
        (RuntimeError("out of luck"), FailureKind.CRASHED),
        (OSError(errno.ENOSPC, "No space left"), FailureKind.CRASHED),
    ],
    ids=str,
)
def test_an_exception_is_of_a_kind(error: Exception, kind: FailureKind) -> None:
    assert classify(error).kind is kind


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RuntimeError("[gloo/tcp/pair.cc:537] Read error: Connection reset by peer."), True),
        (wrap(RuntimeError("Connection closed by peer [127.0.0.1]:1")), True),
        (RuntimeError("ncclRemoteError: A call failed possibly due to a network error"), True),
        (RuntimeError("NCCL Error 6: remote process exited or there was a network error"), True),
        (RuntimeError("ncclSystemError: System call (e.g. socket, malloc) failed"), True),
        (RuntimeError("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(…)"), True),
        (RuntimeError("Some NCCL operations have failed or timed out."), True),
        (RuntimeError("NCCL communicator was aborted on rank 0."), True),
        (RuntimeError("the process exited early"), False),
        (ConnectionRefusedError("Connection refused"), False),
    ],
    ids=str,
)
def test_an_end_that_another_ranks_end_made_is_known_as_such(error: Exception, lost: bool) -> None:
    assert classify(error).lost_peer is lost


def test_the_real_cpu_allocator_is_understood() -> None:
    assert classify(real_allocator_error()).kind is FailureKind.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs",
        "CUDA driver error: out of memory",
        "HIP error: out of memory",
        "Triton Error [CUDA]: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnXgetrf(…)`",
        "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`",
        "cuFFT error: CUFFT_ALLOC_FAILED",
        "NCCL error in: NCCLUtils.cpp:94, unhandled cuda error, NCCL version 2.27.5\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 2 'out of memory'",
        "NCCL error in: NCCLUtils.cpp:94\nLast error:\nFailed to CUDA calloc async 608 bytes",
        "Caught RuntimeError in replica 0 on device 0.\nOriginal Traceback (most recent call "
        "last):\nRuntimeError: CUDA error: out of memory",
    ],
)
def test_refused_memory_is_known_by_its_words(text: str) -> None:
    assert is_allocation_failure(RuntimeError(text))


class ScriptError(RuntimeError):
    pass


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("zero_stage 0 ended with CUDA error: out of memory; use 3"),
        RuntimeError("set offload: true if you see CUDA error: out of memory"),
        ScriptError("CUDA error: out of memory"),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("ncclSystemError: System call (e.g. socket, malloc) failed"),
    ],
    ids=str,
)
def test_words_about_memory_in_other_errors_do_not_count(error: Exception) -> None:
    assert not is_allocation_failure(error)


ASSERT = """CUDA error: device-side assert triggered
Search for `cudaErrorAssert' in https://docs.nvidia.com/cuda for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace \
below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


def test_an_error_of_a_gpu_is_its_first_line() -> None:
    failure = classify(RuntimeError(ASSERT))
    assert failure.kind is FailureKind.CRASHED
    assert failure.detail == "RuntimeError: CUDA error: device-side assert triggered"


REFUSED = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of "
    "which {free} is free. {allowed}Of the allocated memory 60.00 GiB is allocated by PyTorch, "
    "and 9.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
    "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
SHORT = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def detail_of(text: str) -> str:
    return classify(torch.OutOfMemoryError(text)).detail


def test_out_of_memory_is_two_sentences_with_the_bytes_asked_for() -> None:
    text = REFUSED.replace("9.00", "0.25").format(free="1.00 GiB", allowed="")
    assert detail_of(text) == SHORT
    assert detail_of("First. Second. Third. Tried to allocate 5.00 MiB. Fourth.") == (
        "OutOfMemoryError: First. Second. Tried to allocate 5.00 MiB."
    )


@pytest.mark.parametrize(
    ("free", "allowed", "asked", "helps"),
    [
        ("1.00 GiB", "", "2.00 GiB", True),
        ("1.00 GiB", "", "9.90 GiB", True),
        ("1.00 GiB", "", "10.10 GiB", False),
        ("9.00 GiB", "70.00 GiB allowed; ", "9.90 GiB", True),
        ("9.00 GiB", "70.00 GiB allowed; ", "10.10 GiB", False),
    ],
)
def test_memory_in_pieces_is_joined_by_expandable_segments(
    free: str, allowed: str, asked: str, helps: bool
) -> None:
    text = REFUSED.replace("2.00 GiB", asked).format(free=free, allowed=allowed)
    assert ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in detail_of(text)) is helps


def test_expandable_segments_are_not_advised_to_who_uses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    assert detail_of(REFUSED.format(free="1.00 GiB", allowed="")) == SHORT


def test_the_cause_of_an_exception_decides() -> None:
    assert classify(wrap(MemoryError())).kind is FailureKind.OUT_OF_MEMORY


def test_a_crash_has_type_and_message_in_one_line() -> None:
    assert classify(ValueError("two\nlines")).detail == "ValueError: two lines"


def test_the_bytes_asked_for_are_read_from_an_allocators_error() -> None:
    assert asked_bytes(real_allocator_error()) == 4 << 60
    text = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has …"
    assert asked_bytes(torch.OutOfMemoryError(text)) == 3 << 29
    assert asked_bytes(ValueError("tried to allocate 5 bytes")) == 0


class Wide(torch.nn.Module):
    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return torch.empty(1 << 60) + samples


@pytest.mark.parametrize(
    ("work", "is_so"),
    [
        (lambda: torch.nn.Linear(1 << 30, 1 << 30), True),
        (lambda: torch.nn.Linear(1 << 30, 1 << 30, device="meta").to_empty(device="cpu"), True),
        (lambda: Wide()(torch.ones(1)), False),
        (lambda: torch.empty(1 << 60), False),
    ],
)
def test_memory_for_weights_is_what_making_or_moving_a_module_asks_for(
    work: Callable[[], object], is_so: bool
) -> None:
    with pytest.raises(RuntimeError, match="allocate") as caught:
        work()
    assert is_of_weights(caught.value) is is_so


def test_a_message_is_cut_by_characters(tmp_path: Path) -> None:
    long = RuntimeError("x" * 5_000_000)
    assert len(classify(long).detail) < 1100
    assert len(classify(ConfigError("x" * 5_000_000)).detail) < 1100
    assert max(map(len, last_words(tmp_path, long))) == 500


@pytest.mark.parametrize(
    ("is_limited", "kind"),
    [(True, FailureKind.OUT_OF_MEMORY), (False, FailureKind.CRASHED)],
)
def test_no_room_for_a_thread_is_out_of_memory_under_a_limit(
    is_limited: bool, kind: FailureKind
) -> None:
    error = RuntimeError("Resource temporarily unavailable")
    assert classify(error, is_limited=is_limited).kind is kind
