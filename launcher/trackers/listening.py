"""Trackers beside the view, for the time of a study. Not: what they are told (feed)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..events import Event, Listener, Note
from ..request import TrackingChoice
from . import find_tracker
from .feed import Feed
from .outlet import Outlet, finish_all
from .wire import GRACE_S, Setup

_GRACE_IF_INTERRUPTED_S = 2.0


@contextmanager
def tracked(
    choice: TrackingChoice, feed: Feed, folder: Path, listener: Listener
) -> Iterator[Listener]:
    """A listener that hands each event on and tells the chosen trackers of it.

    They have a while to finish at the end, a short one where the study is interrupted.

    Args:
        choice: which trackers; checked before by ``check_tracking``.
        feed: of a study that begins now.
        folder: theirs; made where there is any tracker.
        listener: takes the events, and notes on the trackers.
    """
    outlets: list[Outlet] = []
    grace_s = GRACE_S
    try:
        for name in choice.trackers:
            outlets += _start(name, choice, feed.study, folder / name, listener)
        yield _Listening(outlets, feed, listener) if outlets else listener
    except Exception:
        raise
    except BaseException:  # a signal
        grace_s = _GRACE_IF_INTERRUPTED_S
        raise
    finally:
        try:
            for note in finish_all(outlets, grace_s):
                listener(note)
        finally:
            for outlet in outlets:
                outlet.end()


class _Listening:
    """Hands events on first: a view does not wait for trackers."""

    def __init__(self, outlets: list[Outlet], feed: Feed, listener: Listener) -> None:
        self._outlets = outlets
        self._feed = feed
        self._listener = listener

    def __call__(self, event: Event) -> None:
        self._listener(event)
        entries = self._feed.take(event)
        for outlet in self._outlets:
            for entry in entries:
                self._pass_on(outlet.send(entry))
            if not entries:
                self._pass_on(outlet.attend())

    def _pass_on(self, notes: tuple[Note, ...]) -> None:
        for note in notes:
            self._listener(note)


def _start(
    name: str, choice: TrackingChoice, study: str, folder: Path, listener: Listener
) -> list[Outlet]:
    key = choice.wandb_key_file if name == "wandb" else None
    setup = Setup(
        tracker=find_tracker(name),
        study=study,
        project=choice.project,
        folder=str(folder),
        api_key_file=str(Path(key).expanduser().absolute()) if key else None,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [Outlet(name, setup, folder / "tracker.log")]
    except OSError as error:
        listener(Note(text=f"{name}: it cannot be started ({error}).", warning=True))
        return []
