"""How many trials the learned tuner needs, beside the ranker of the DeepSpeed Autotuner.

    python benchmarks/search_models.py [--processes 2] [--write]

The published landscapes of ``search_landscapes.py``, with the constants that users get, and
landscapes of eight knobs from simulated clusters (``simulator.py``). No GPU is needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from deepspeed_ranker import load_tuner
from recorded_landscapes import read_landscapes
from search_landscapes import FOLDER, GOOD_ENOUGH, SMALLEST_GROUP, TABLES, markdown
from simulator import SIZES, simulate
from tuner_walk import Landscape, ReplayRules, Score, run, score

from autoconf_launch.autotuner.strategies import load_strategy

RESULT = Path(__file__).parent / "results" / "search_models.md"
CLUSTERS, MOST_TRIALS = 3, 100
HEADER = (
    "landscape",
    "groups",
    "model_based",
    "stopped after",
    "regret then",
    "certificates true",
    "deepspeed",
)
PREAMBLE = f"""# Which model decides in the search

Made by `python benchmarks/search_models.py --write`. Mean trials until one is within 2 % of the
best, at most {MOST_TRIALS}; one more is counted where that is not enough. "process" is the
Gaussian process, "trees" the boosted trees of XGBoost; `model_based` takes the trees where six
knobs or more vary. "stopped after" and what follows are of `model_based`; "deepspeed" is the
ranker of the DeepSpeed Autotuner.

Published landscapes are predicted with the constants that users get, which these tables informed.
The simulated clusters have eight knobs that depend on each other; their formulas were written
before any tuner was run on them. How many trees there are, how deep they are, and from how many
knobs on they are taken was set with sight of ten clusters of other seeds than these.
"""


def main() -> None:
    """Print the table, and write it where that was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    with Pool(flags.processes) as pool:
        text = markdown(pool.map(row, landscapes(), chunksize=1), HEADER)
    print(text)
    if flags.write:
        RESULT.write_text(f"{PREAMBLE}\n{text}\n", encoding="utf-8")


def landscapes() -> list[tuple[str, Callable[[], list[Landscape]]]]:
    """Names, and what reads or makes the groups of each."""
    found: list[tuple[str, Callable[[], list[Landscape]]]] = [
        (name, partial(published_landscapes, name)) for name in TABLES
    ]
    for told in (True, False):
        for size in SIZES:
            name = f"simulated, {size} candidates, {'' if told else 'not '}predicted"
            found.append((name, partial(draw_landscapes, size, with_predictions=told)))
    return found


def published_landscapes(table: str) -> list[Landscape]:
    """Large groups of a published table."""
    groups = read_landscapes(FOLDER / f"{table}.csv").groups
    return [group for group in groups if len(group) >= SMALLEST_GROUP]


def draw_landscapes(size: int, *, with_predictions: bool) -> list[Landscape]:
    """Simulated ones, a cluster each."""
    return [simulate(i, size, with_predictions=with_predictions) for i in range(CLUSTERS)]


def row(named: tuple[str, Callable[[], list[Landscape]]]) -> list[str]:
    """A row of the table."""
    name, make = named
    groups = make()
    ours = _scores(groups)
    peer = load_tuner("deepspeed")
    rules = ReplayRules(trials=MOST_TRIALS)
    told = [one.certificate_true for one in ours if one.certificate_true is not None]
    found = [
        name,
        str(len(groups)),
        _trials(ours),
        f"{np.mean([one.stopped_at for one in ours]):.1f}",
        f"{100 * np.mean([one.final_regret for one in ours]):.1f} %",
        f"{sum(told)} of {len(told)}" if told else "-",
        _trials([score(group, run(group, peer, rules, 0)) for group in groups]),
    ]
    print(found, flush=True)
    return found


def _scores(groups: Sequence[Landscape]) -> list[Score]:
    strategy = load_strategy("model_based")
    rules = ReplayRules(trials=MOST_TRIALS, good_enough=GOOD_ENOUGH, to_saturation=True)
    return [score(group, run(group, strategy, rules, 0)) for group in groups]


def _trials(scores: Sequence[Score]) -> str:
    needed = [min(one.trials_to[0], MOST_TRIALS + 1) for one in scores]
    return f"{np.mean(needed):.2f} (worst {max(needed)})"


if __name__ == "__main__":
    main()
