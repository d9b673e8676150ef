"""``replay LANDSCAPE…``: a tuner against recorded measurements."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from autoconf_launch.autotuner.search import Landscape, ReplayRules, run, score
from autoconf_launch.autotuner.space import parse_share
from autoconf_launch.autotuner.strategies import Strategy, load_strategy
from autoconf_launch.core import ConfigError

from ..measurements import LandscapeFile, parse_group_by, read_landscapes
from ..report import GroupScores, replay_document, replay_lines
from .parsers import CERTIFIED_TUNER, replay_parser

_USUALLY_ENOUGH = "2%"


def replay(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown tuner, or a file is not a landscape.
    """
    flags = replay_parser().parse_args(arguments)
    strategy, rules = load_strategy(flags.tuner, peers=True, where="--tuner"), _rules(flags)
    group_by = parse_group_by(flags.group_by)
    files = [
        read_landscapes(Path(name), group_by, others=not flags.constants_alone)
        for name in flags.landscapes
    ]
    scored = [
        _score_group(name, group, strategy, rules, flags.seeds)
        for name, group in _named_groups(files)
    ]
    left_out = [note for file in files for note in file.notes]
    unpredicted = [note for file in files for note in file.unpredicted]
    if not scored:
        raise ConfigError(_why_nothing(left_out))
    if flags.json:
        document = replay_document(scored, left_out) | {"not_predicted": unpredicted}
        yield json.dumps(document, indent=2, allow_nan=False)
        return
    yield from left_out
    yield from unpredicted
    yield from replay_lines(scored)


def _why_nothing(left_out: Sequence[str]) -> str:
    """Why there is no group, with the first thing that was skipped."""
    more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
    first = f" {left_out[0]}{more}" if left_out else ""
    return f"No usable line has a measured time, so nothing can be replayed.{first}"


def _score_group(
    name: str, group: Landscape, strategy: Strategy, rules: ReplayRules, seeds: int
) -> GroupScores:
    scores = (score(group, run(group, strategy, rules, seed)) for seed in range(seeds))
    return GroupScores(name=name, configs=len(group), scores=tuple(scores))


def _named_groups(files: Sequence[LandscapeFile]) -> Iterator[tuple[str, Landscape]]:
    """Groups by name; with the file's, and then a number, where several have one name."""
    names = Counter(group.name for file in files for group in file.groups)
    seen: Counter[str] = Counter()
    for file in files:
        for group in file.groups:
            name = f"{file.name}: {group.name}" if names[group.name] > 1 else group.name
            seen[name] += 1
            yield (f"{name} ({seen[name]})" if seen[name] > 1 else name), group


def _rules(flags: Namespace) -> ReplayRules:
    for name in ("trials", "early_stopping", "seeds"):
        if (value := getattr(flags, name)) is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} is {value}, but must be at least 1.")
    certified = flags.tuner == CERTIFIED_TUNER
    if flags.good_enough is not None and not certified:
        raise ConfigError(
            f"--good-enough ends a search of {CERTIFIED_TUNER} alone, but --tuner is "
            f"{flags.tuner}; omit one of them."
        )
    good_enough = parse_share(flags.good_enough or _USUALLY_ENOUGH, "--good-enough")
    return ReplayRules(
        exploration=flags.strategy,
        trials=flags.trials,
        patience=flags.early_stopping,
        good_enough=good_enough if certified else None,
        to_saturation=certified,
    )
