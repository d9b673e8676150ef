"""What a probe adds when a rank writes its result. Not: the result."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import Failure, FailureKind

from ..failures import asked_bytes, classify

NO_STEPS = Failure(
    kind=FailureKind.NO_STEPS,
    detail="The script trained (it ran backward passes), but no torch.optim.Optimizer made a "
    "step; only steps of torch optimizers are measured.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWord:
    """Why the script is over, and what is to be said of it.

    ``of_weights``: the bytes asked for were to make or move a module.
    """

    failure: Failure | None = None
    error: BaseException | None = None
    asked_bytes: int = 0
    of_weights: bool = False
    caught: Failure | None = None
    ended_early: bool = False
    left_behind: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_out_of_memory(self) -> bool:
        """Whether that is why."""
        return self.failure is not None and self.failure.kind is FailureKind.OUT_OF_MEMORY


def reason_of(error: BaseException | None) -> tuple[Failure | None, int]:
    """The failure that an error stands for, and bytes that it was refused.

    None: there is no error, or a script exits by itself and has its own reasons.
    """
    if error is None or not (isinstance(error, Exception) or error.__context__):
        return None, 0
    failure = classify(error)
    if not isinstance(error, Exception) and failure.kind is FailureKind.CRASHED:
        return None, asked_bytes(error)
    return failure, asked_bytes(error)
