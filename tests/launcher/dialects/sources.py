"""External scripts as values for these tests."""

from __future__ import annotations

import dataclasses
from typing import Any

from autoconf_launch.core import AppliedStrategy, Candidate, Precision, RawConfig, Recompute
from autoconf_launch.launcher.asked import OwnKnob, UserWords
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import Dialect, Rendered, UserSettings


def script(*arguments: str, text: str = "", **rest: Any) -> ScriptSource:
    made = ScriptSource(
        script_args=arguments, config=RawConfig({}), config_argument=None, script="train.py"
    )
    return dataclasses.replace(made, text=text, **rest)


def say_of(
    source: ScriptSource,
    *,
    arguments: tuple[tuple[str, str], ...] = (),
    knobs: tuple[tuple[str, tuple[Any, ...]], ...] = (),
    dialect: str | None = None,
) -> ScriptSource:
    """The source with what the launcher's flags say."""
    own = tuple(OwnKnob(name=name, values=values) for name, values in knobs)
    words = UserWords(dialect=dialect, arguments=arguments, knobs=own)
    return dataclasses.replace(source, words=words)


def allowing(source: ScriptSource) -> ScriptSource:
    """The source with the user's consent to other global batches."""
    words = dataclasses.replace(source.words, allow_global_batch_change=True)
    return dataclasses.replace(source, words=words)


def overridden(source: ScriptSource, key: str, value: str) -> ScriptSource:
    """The source with a setting that was given as a flag."""
    words = dataclasses.replace(source.words, overrides=((key, value),))
    return dataclasses.replace(source, words=words)


def strategy_of(**seen: Any) -> AppliedStrategy:
    """Findings of a profile run in a rank."""
    plain = AppliedStrategy(
        zero_stage=0,
        data_parallel=1,
        micro_batch=8,
        accumulation=1,
        precision=Precision.FP32,
        recompute=Recompute.NONE,
        description="one rank",
    )
    return dataclasses.replace(plain, **seen)


def layout(user: UserSettings, **changes: Any) -> Candidate:
    """The baseline with other fields of its layout."""
    changed = dataclasses.replace(user.baseline.layout, **changes)
    return dataclasses.replace(user.baseline, layout=changed)


def render_with(
    dialect: Dialect, source: ScriptSource, ranks: int = 1, **changes: Any
) -> Rendered:
    """A candidate that differs from the baseline in these fields."""
    user = dialect.read(source, world_size=ranks)
    return dialect.render(layout(user, **changes), source, "trial/config.json")


def facts_of(user: UserSettings) -> dict[str, Any]:
    """Findings of a dialect by name: fields of the baseline and of the batch rule.

    Values of a searched knob are under its name with a question mark, and with its stage before it
    if it is searched in some stages only.
    """
    layout = user.baseline.layout
    return {
        **{field.name: getattr(layout, field.name) for field in dataclasses.fields(layout)},
        **dict(user.baseline.extras),
        "extras": user.baseline.extras,
        "global_batch": layout.global_batch,
        "pinned": user.batch_rule.pinned,
        "maximum": user.batch_rule.maximum,
        "precision": user.workload.precision,
        **{
            f"{'' if one.stages is None else one.stages[0]}{one.knob}?": one.values
            for one in user.choices
        },
    }


def require_facts(user: UserSettings, **facts: Any) -> None:
    """Fail unless these are among the findings; a knob that is not searched has None."""
    found = facts_of(user)
    assert {name: found.get(name) for name in facts} == facts
