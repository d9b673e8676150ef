"""Run a tuner against recorded measurements instead of a cluster.

    python benchmarks/replay.py LANDSCAPE [LANDSCAPE ...] [flags]
    python benchmarks/replay.py benchmarks/ground_truth/vtrain_multi_node.csv --tuner random

The score counts the trials until a tuner is within 2 % of the best, and reports when it stops.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepspeed_ranker import load_tuner
from recorded_landscapes import LandscapeFile, parse_group_by, read_landscapes
from tuner_walk import REGRET_AT, WITHIN, Landscape, ReplayRules, Score, run, score

from autoconf_launch.autotuner.space import parse_share
from autoconf_launch.autotuner.strategies import Strategy
from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.report import table_of

CERTIFIED_TUNER = "model_based"
"""The tuner whose end is a bound on what could still be gained."""
_USUALLY_ENOUGH = "2%"
_SCHEMA_VERSION = 1


def replay(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown tuner, or a file is not a landscape.
    """
    flags = _parser().parse_args(arguments)
    strategy, rules = load_tuner(flags.tuner), _rules(flags)
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
    """Groups by name; with the file's name, and then a number, if several share a name."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """A group's score for each seed."""

    name: str
    configs: int
    scores: tuple[Score, ...]


def _percent(share: float) -> float:
    return 100.0 * share


_METRICS: dict[str, Callable[[Score], float]] = {
    **{
        f"trials_to_{round(100 * share)}pct": lambda one, i=i: one.trials_to[i]  # type: ignore[misc]
        for i, share in enumerate(WITHIN)
    },
    **{
        f"regret_at_{count}": lambda one, i=i: _percent(one.regret_at[i])  # type: ignore[misc]
        for i, count in enumerate(REGRET_AT)
    },
    "out_of_memory_trials": lambda one: one.out_of_memory_trials,
    "stopped_at": lambda one: one.stopped_at,
    "final_regret": lambda one: _percent(one.final_regret),
}


def replay_document(scored: Sequence[GroupScores], notes: Sequence[str]) -> dict[str, object]:
    """The JSON document; a regret is null if nothing had run yet."""
    everything = tuple(one for group in scored for one in group.scores)
    configs = sum(group.configs for group in scored)
    return {
        "schema_version": _SCHEMA_VERSION,
        "groups": {group.name: _summary(group.configs, group.scores) for group in scored},
        "all": {"groups": len(scored), **_summary(configs, everything)},
        "left_out": list(notes),
    }


def replay_lines(scored: Sequence[GroupScores]) -> Iterator[str]:
    """A table with a row for each group, means over seeds, and the worst of all."""
    header: tuple[str, ...]
    header = ("group", "configs", "to 2 %", "to 5 %", "regret at 4", "stopped at", "final %")
    header += ("out of memory", "certificate")
    rows = [_replay_text_cells(group.name, group.configs, group.scores) for group in scored]
    everything = tuple(one for group in scored for one in group.scores)
    configs = sum(group.configs for group in scored)
    rows.append(_replay_text_cells(f"all {len(scored)} groups", configs, everything))
    yield table_of(rows, header, ("left", *["right"] * (len(header) - 1)))
    worst = max(_METRICS["trials_to_2pct"](one) for one in everything)
    yield f"Trials until within 2 % of the best: at worst {worst:.0f}."


def _replay_text_cells(name: str, configs: int, scores: Sequence[Score]) -> tuple[str, ...]:
    shown = ("trials_to_2pct", "trials_to_5pct", "regret_at_4", "stopped_at", "final_regret")
    means = (_mean(scores, metric) for metric in (*shown, "out_of_memory_trials"))
    truths = [one.certificate_true for one in scores if one.certificate_true is not None]
    told = "-" if not truths else "true" if all(truths) else f"{truths.count(False)} false"
    return name, str(configs), *(f"{mean:.1f}" for mean in means), told


def _mean(scores: Sequence[Score], metric: str) -> float:
    return sum(map(_METRICS[metric], scores)) / len(scores)


def _summary(configs: int, scores: Sequence[Score]) -> dict[str, object]:
    truths = [one.certificate_true for one in scores if one.certificate_true is not None]
    return {
        "configs": configs,
        **{
            metric: {
                "mean": _finite(_mean(scores, metric)),
                "worst": _finite(max(map(of, scores))),
            }
            for metric, of in _METRICS.items()
        },
        "certificates": {"given": len(truths), "true": sum(truths)},
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    landscapes_help = "a CSV table of measurements, a journal, or the results folder of one"
    parser.add_argument("landscapes", metavar="LANDSCAPE", nargs="+", help=landscapes_help)
    _add_tuner(parser.add_argument_group("tuner"))
    _add_table(parser.add_argument_group("measurements"))
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _add_tuner(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    tuner_help = (
        "gridsearch, random, xgboost, model_based (default), optuna:SAMPLER, or deepspeed, the "
        "ranker of the DeepSpeed Autotuner"
    )
    add("--tuner", default=CERTIFIED_TUNER, metavar="NAME", help=tuner_help)
    order_help = "one kind of parallelism after the other, or all together (default)"
    add("--strategy", choices=("staged", "global"), default="global", help=order_help)
    add("--trials", type=int, metavar="N", help="at most N; default: all")
    stop_help = "stop after K trials without a better one (default 5)"
    add("--early-stopping", type=int, default=5, metavar="K", help=stop_help)
    enough_help = "model_based stops when nothing left could gain more (default 2%%)"
    add("--good-enough", metavar="SHARE", help=enough_help)
    add("--seeds", type=int, default=3, metavar="S", help="runs per group (default 3)")


def _add_table(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    columns_help = (
        "columns (of a journal: knobs) that the rows of a group share (default "
        "model,gpu,n_gpus,gbs)"
    )
    add("--group-by", metavar="COLUMNS", help=columns_help)
    alone_help = (
        "do not correct a model's predictions by the errors on the other models of its table, "
        "which assumes one machine"
    )
    add("--constants-alone", action="store_true", help=alone_help)


def main() -> None:
    """Print the scores, or the reason why there are none."""
    try:
        for text in replay(sys.argv[1:]):
            print(text)
    except ConfigError as error:
        sys.exit(f"replay: {error}")


if __name__ == "__main__":
    main()
