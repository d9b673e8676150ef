"""The accumulation that a script has by itself, as its profile run found it. Not: its setting.

Where no argument sets it, nothing but a run can say it; the global batch would be wrong without.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from autoconf_launch.core import RankResult, decode
from autoconf_launch.core.rank import result_file

from ..dialects import UserSettings
from ..dialects.table_dialect import UNSET
from ..events import Listener, Note

_KNOB = "accumulation"


def as_measured(user: UserSettings, profile: Path, listener: Listener) -> UserSettings:
    """The settings with the accumulation that runs; it is said where it was not known.

    Args:
        user: what the script's words say.
        profile: folder of the profile run.
        listener: is told.
    """
    layout, found = user.baseline.layout, _accumulation(profile)
    unset = any((choice.knob, choice.origin) == (_KNOB, UNSET) for choice in user.choices)
    if not unset or found == layout.accumulation:
        return user
    measured = replace(layout, accumulation=found)
    rule = user.batch_rule
    if rule.pinned is not None:
        rule = replace(rule, pinned=measured.global_batch)
    choices = tuple(
        replace(choice, values=(found,)) if choice.knob == _KNOB else choice
        for choice in user.choices
    )
    baseline = replace(user.baseline, layout=measured)
    text = (
        f"The script makes {found} micro-batches per optimizer step, as its profile run shows, "
        f"and no argument sets that: its global batch is {measured.global_batch}."
    )
    listener(Note(text=text, warning=True))
    return replace(user, baseline=baseline, choices=choices, batch_rule=rule)


def _accumulation(profile: Path) -> int:
    """Of rank 0; 1 where it could not be counted."""
    try:
        result = decode(RankResult, json.loads((profile / result_file(0)).read_bytes()))
    except (OSError, ValueError):
        return 1
    return max(1, result.applied.accumulation) if result.applied else 1
