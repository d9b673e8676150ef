"""What a rank has to say in a soak before it is over. Not: its last word.

An evaluation or a checkpoint can take longer than anybody waits. What stands here then says that
all went well until there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress

from autoconf_launch.core import Aside, RankResult, RankTask, encode, sign_path, unfinished_sign

from ..rank import write_whole

_EVERY_S = 1.0


class Unfinished:
    """Writes it down once a second at most, and whenever something else is under way."""

    def __init__(self, task: RankTask, rank: int) -> None:
        self._path = sign_path(task, unfinished_sign(rank))
        self._due_s = 0.0
        self._under_way: Aside | None = None

    def note(
        self,
        under_way: Aside | None,
        result: Callable[[], RankResult | None],
        *,
        now: bool = False,
    ) -> None:
        """So much was done by now; ``result`` is asked where it is written, ``now`` perhaps."""
        if not now and under_way is self._under_way and time.monotonic() < self._due_s:
            return
        if (said := result()) is None:
            return
        with suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)
            write_whole(self._path, json.dumps(encode(said)))
        self._under_way = under_way
        self._due_s = time.monotonic() + _EVERY_S
