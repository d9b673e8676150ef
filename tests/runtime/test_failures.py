import errno
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from autoconf_launch.core import ConfigError, FailureKind
from autoconf_launch.runtime.rank.failures import (
    NonFiniteLossError,
    asked_bytes,
    classify,
    is_of_weights,
    last_words,
)


def real_allocator_error() -> RuntimeError:
    """What torch's CPU allocator raises for a tensor of 4 EiB."""
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
        (ConnectionRefusedError("Connection refused"), False),
    ],
    ids=str,
)
def test_an_end_that_another_ranks_end_made_is_known_as_such(error: Exception, lost: bool) -> None:
    assert classify(error).lost_peer is lost


def test_the_real_cpu_allocator_is_understood() -> None:
    assert classify(real_allocator_error()).kind is FailureKind.OUT_OF_MEMORY


def test_the_cause_of_an_exception_decides() -> None:
    assert classify(wrap(MemoryError())).kind is FailureKind.OUT_OF_MEMORY


def test_a_crash_has_type_and_message_in_one_line() -> None:
    assert classify(ValueError("two\nlines")).detail == "ValueError: two lines"


def test_the_bytes_asked_for_are_read_from_the_cpu_allocator() -> None:
    assert asked_bytes(real_allocator_error()) == 4 << 60


def test_the_bytes_asked_for_are_read_from_the_cuda_allocator() -> None:
    text = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has …"
    assert asked_bytes(torch.OutOfMemoryError(text)) == 3 << 29


def test_other_errors_ask_for_nothing() -> None:
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
