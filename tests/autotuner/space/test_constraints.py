from dataclasses import replace

import numpy as np

from autoconf_launch.autotuner.space import (
    Rule,
    add_counts,
    apply_rules,
    blocks_for_stages,
    blocks_to_recompute,
)

from ..builders import table
from ..conftest import candidate

TABLE = table(*(candidate(micro=m) for m in (1, 2, 3, 4)))


def at_most(limit: int) -> Rule:
    return Rule(name=f"at_most_{limit}", keep=lambda t: t["micro_batch"] <= limit, why="")


def test_a_row_stays_that_every_rule_keeps_and_counts_for_the_first_one_that_it_breaks() -> None:
    assert apply_rules(TABLE, [at_most(3), at_most(2)]).keep_C.tolist() == [
        True,
        True,
        False,
        False,
    ]
    assert apply_rules(TABLE, [at_most(3), at_most(1)]).rejected == (
        ("at_most_3", 1),
        ("at_most_1", 2),
    )
    assert apply_rules(TABLE, [at_most(9)]).rejected == ()
    assert np.all(apply_rules(TABLE, []).keep_C)
    assert add_counts((("a", 1),), (("b", 2), ("a", 3))) == (("a", 4), ("b", 2))


def test_stages_share_out_all_blocks_of_a_model() -> None:
    rows = [
        candidate(pipeline_parallel=2),
        candidate(pipeline_parallel=4),
        candidate(pipeline_parallel=2, virtual_pipeline=2),
        candidate(pipeline_parallel=2, pipeline_split=(1, 2)),
        candidate(pipeline_parallel=2, pipeline_split=(1, 1)),
        candidate(),
    ]
    kept = blocks_for_stages(3).keep(table(*rows))
    assert kept.tolist() == [True, False, False, True, False, True]
    rows = [candidate(pipeline_parallel=2), candidate()]
    kept = blocks_for_stages(0).keep(table(*rows))
    assert kept.tolist() == [False, True]


def test_no_rank_recomputes_more_blocks_than_it_has() -> None:
    some = (("recompute_layers", 3),)
    rows = [
        candidate(),
        replace(candidate(), extras=some),
        replace(candidate(pipeline_parallel=2), extras=some),
        replace(candidate(pipeline_parallel=3), extras=some),
        replace(candidate(pipeline_parallel=2, pipeline_split=(1, 5)), extras=some),
        replace(candidate(pipeline_parallel=2, virtual_pipeline=3), extras=some),
        replace(candidate(pipeline_parallel=4), extras=(("recompute_layers", 1),)),
    ]
    kept = blocks_to_recompute(6).keep(table(*rows))
    assert kept.tolist() == [True, True, True, False, False, True, True]
