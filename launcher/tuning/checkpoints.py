"""The user's checkpoints that change while trials run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from autoconf_launch.core import is_checkpoint

from ..events import Event, Listener, ModelProfiled, Note, TrialFinished

_MOST_FOLDERS, _MOST_FILES, _MOST_SHOWN = 2_000, 20_000, 5


class _Seen(NamedTuple):
    size_bytes: int
    time_ns: int


class Checkpoints:
    """Sizes and times of all checkpoints below a folder, except in ``passed_over`` folders."""

    def __init__(self, folder: Path, passed_over: tuple[Path, ...] = ()) -> None:
        self._folder, self._passed_over = folder, passed_over
        self._seen = dict(self._look())

    def list_changed(self) -> tuple[str, ...]:
        """Paths of the first look's checkpoints that changed or disappeared since the last."""
        now = {path: seen for path, seen in self._look() if path in self._seen}
        found = sorted(path for path, seen in self._seen.items() if now.get(path) != seen)
        self._seen = now
        return tuple(found)

    def _look(self) -> Iterator[tuple[str, _Seen]]:
        folders = files = 0
        for root, names, plain in os.walk(self._folder):
            names[:] = [n for n in names if Path(root, n) not in self._passed_over and n != ".git"]
            folders, files = folders + 1, files + len(plain)
            if folders > _MOST_FOLDERS or files > _MOST_FILES:
                return
            for path in (Path(root, name) for name in plain if is_checkpoint(Path(name))):
                try:
                    about = path.lstat()
                except OSError:
                    continue
                name = str(path.relative_to(self._folder))
                yield name, _Seen(about.st_size, about.st_mtime_ns)


def watching_checkpoints(listener: Listener, checkpoints: Checkpoints) -> Listener:
    """The listener, with a warning after each trial that changed checkpoints of the user."""

    def listen(event: Event) -> None:
        listener(event)
        if isinstance(event, ModelProfiled):
            name = "the profile run"
        elif isinstance(event, TrialFinished) and not event.resumed:
            name = event.record.trial.name
        else:
            return
        if changed := checkpoints.list_changed():
            shown = ", ".join(changed[:_MOST_SHOWN])
            more = f" and {len(changed) - _MOST_SHOWN} more" if len(changed) > _MOST_SHOWN else ""
            text = (
                f"{shown}{more} changed while {name} ran: by a child process, another program or "
                "a library's own calls, from which a trial does not keep it; check it."
            )
            listener(Note(text=text, warning=True))

    return listen
