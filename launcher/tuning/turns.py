"""Launches of a playoff that live side by side and compute in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autoconf_launch.autotuner.space import FailedTrial, Outcome, Trial
from autoconf_launch.core import Failure, FailureKind

from ..events import Listener, Note
from ..report import label
from .running import Running


class TurnGroup:
    """The launches in turn; there is one group at a time, and it ends as a whole.

    A launch that fails in its group may fail because of the others there: its port, a file, too
    little memory. It is launched again outside a group. If it succeeds then, or if a launch ends
    without waiting for the others, launches follow each other from there on.
    """

    def __init__(
        self,
        cancel: Callable[[Running, Failure], None],
        has_reported: Callable[[Running], bool],
        listener: Listener,
    ) -> None:
        """No launch runs yet.

        Args:
            cancel: ends a launch.
            has_reported: true if the ranks of a launch have reported, as after the last turn.
            listener: receiver of a note for each change.
        """
        self._cancel, self._has_reported, self._listener = cancel, has_reported, listener
        self._fell_out: set[str] = set()
        self.is_broken = False
        """True if launches must follow each other from now on."""

    def look(self, running: Sequence[Running]) -> None:
        """Note who waits: all but the launch with the fewest turns, the first one of several.

        A launch that waits does not hang, and a step of any is a sign of life of the whole group.
        """
        group = _members(running)
        latest_s = max((one.progress_s for one in group), default=0.0)
        turn = min(group, key=lambda one: one.turns, default=None)
        for one in group:
            one.progress_s, one.waits = latest_s, one is not turn

    def take_end(
        self, trial: Trial, outcome: Outcome, others: Sequence[Running]
    ) -> tuple[Trial, bool]:
        """The trial of a launch that has ended, and true if it must be launched again.

        ``others`` still run.
        """
        name = label(trial.candidate)
        failure = outcome.failure if isinstance(outcome, FailedTrial) else None
        if trial.turn is None:
            if trial.name in self._fell_out and failure is None:
                self._break(f"{name} failed beside others and ran alone")
            self._fell_out.discard(trial.name)
            return trial, False
        alone = replace(trial, turn=None)
        if failure is not None and failure.kind is not FailureKind.PREEMPTED:
            self._fell_out.add(trial.name)
            why = ": ".join(filter(None, (failure.kind.value, failure.detail)))
            text = f"{name} failed beside the others ({why}); launching it again alone."
            self._listener(Note(text=text, warning=True))
            self.dissolve(trial, others)
            return alone, True
        if not all(map(self._has_reported, _members(others))):
            self._break(f"{name} does not wait for others")
            self.dissolve(trial, others)
            return alone, False
        return trial, False

    def dissolve(self, left: Trial, running: Sequence[Running]) -> None:
        """End the launches that wait for a launch that has left their group."""
        for one in _members(running) if left.turn else ():
            detail = f"{label(left.candidate)}, with which it took turns, has ended"
            self._cancel(one, Failure(kind=FailureKind.PREEMPTED, detail=detail))

    def _break(self, why: str) -> None:
        self.is_broken = True
        text = (
            f"{why}, so the contenders are launched one after the other from here on; their "
            "intervals are wider."
        )
        self._listener(Note(text=text, warning=True))


def _members(running: Sequence[Running]) -> list[Running]:
    return [one for one in running if one.trial.turn is not None and not one.cancelled]
