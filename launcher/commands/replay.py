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

from ..flags import VerbParser
from ..measurements import LandscapeFile, parse_group_by, read_landscapes
from ..report import GroupScores, replay_document, replay_lines

_CERTIFIED = "model_based"
_PATIENCE = 5
_SEEDS = 3


def replay(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown tuner, or a file is not a landscape.
    """
    flags = _parser().parse_args(arguments)
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
        raise ConfigError(_nothing(left_out))
    if flags.json:
        document = replay_document(scored, left_out) | {"not_predicted": unpredicted}
        yield json.dumps(document, indent=2, allow_nan=False)
        return
    yield from left_out
    yield from unpredicted
    yield from replay_lines(scored)


def _nothing(left_out: Sequence[str]) -> str:
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
    certified, good_enough = (
        flags.tuner == _CERTIFIED,
        parse_share(flags.good_enough, "--good-enough"),
    )
    return ReplayRules(
        exploration=flags.strategy,
        trials=flags.trials,
        patience=flags.early_stopping,
        good_enough=good_enough if certified else None,
        to_saturation=certified,
    )


def _parser() -> VerbParser:
    parser = VerbParser(
        prog="autoconf-launch replay",
        description="Run a tuner against recorded measurements instead of a cluster.",
    )
    parser.add_argument(
        "landscapes",
        metavar="LANDSCAPE",
        nargs="+",
        help="a CSV table of measurements, a journal, or the results folder of one",
    )
    parser.add_argument(
        "--tuner",
        default=_CERTIFIED,
        metavar="NAME",
        help="gridsearch, random, xgboost, model_based (default), optuna:SAMPLER, or deepspeed, "
        "the ranker of the DeepSpeed Autotuner",
    )
    parser.add_argument(
        "--strategy",
        choices=("staged", "global"),
        default="global",
        help="one kind of parallelism after the other, or all together (default)",
    )
    parser.add_argument("--trials", type=int, metavar="N", help="at most N; default: all")
    parser.add_argument(
        "--early-stopping",
        type=int,
        default=_PATIENCE,
        metavar="K",
        help=f"stop after K trials without a better one (default {_PATIENCE})",
    )
    parser.add_argument(
        "--good-enough",
        default="2%",
        metavar="SHARE",
        help="model_based stops when nothing left could gain more (default 2%%)",
    )
    parser.add_argument("--seeds", type=int, default=_SEEDS, metavar="S", help="runs per group")
    parser.add_argument(
        "--group-by",
        metavar="COLUMNS",
        help="columns (of a journal: knobs) that the rows of a group share (default "
        "model,gpu,n_gpus,gbs)",
    )
    parser.add_argument(
        "--constants-alone",
        action="store_true",
        help="do not correct a model's predictions by the errors on the other models of its "
        "table, which assumes one machine",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser
