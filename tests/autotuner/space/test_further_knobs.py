import pytest

from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    SearchSpace,
    build_space,
    candidate_name,
)
from autoconf_launch.core import ConfigError

from ...rows import rows
from ..builders import as_candidate

FREE, LISTED, PINNED = ChoiceKind.FREE, ChoiceKind.LISTED, ChoiceKind.PINNED
STAGES = KnobChoice("zero_stage", (0, 1, 2), ChoiceKind.FREE)


def space(*choices: KnobChoice, extras: str = "") -> SearchSpace:
    baseline = as_candidate(f"dp=2 acc=2 {extras}")
    rule = GlobalBatchRule(pinned=baseline.layout.global_batch)
    return build_space(baseline, choices, rule, AutotuningSettings())


def names(found: SearchSpace, *, usual: bool) -> list[str]:
    """Names without the batch split, which is the same for all."""
    rows = [i for i in range(len(found.table)) if bool(found.usual_C[i]) == usual]
    split = "_gas2_tmbspg1"
    return [candidate_name(found.table.row(i)).removesuffix(split) for i in rows]


BUCKETS_OF_1 = KnobChoice("bucket_cap_mb", (5, 100), FREE, (1,))
VIEWS = KnobChoice("gradient_as_bucket_view", (None, False), FREE, (0,))
UNITS = [KnobChoice("blocks_per_unit", v, FREE, (n,)) for n, v in ((1, (2,)), (2, (4, 8)))]


@rows(
    "choices, extras, usual, further",
    {
        "of one stage": ([STAGES, BUCKETS_OF_1], "", ["z1", "z2"], ["z1_bcm5", "z1_bcm100"]),
        "in every combination once": (
            [KnobChoice("bucket_cap_mb", (5, None), FREE, (0,)), VIEWS],
            *("", [], ["z0_gbvF", "z0_bcm5", "z0_bcm5_gbvF"]),
        ),
        "listed, usually with the first value": (
            [STAGES, KnobChoice("bucket_cap_mb", (25, 5), LISTED, (0, 1))],
            *("bucket_cap_mb=25", ["z1_bcm25", "z2"], ["z0_bcm5", "z1_bcm5"]),
        ),
        "pinned, as far as they apply": (
            [STAGES, KnobChoice("bucket_cap_mb", (5,), PINNED, (0, 1))],
            *("bucket_cap_mb=5", ["z1_bcm5", "z2"], []),
        ),
        "listed differently for each stage": (
            [STAGES, *UNITS],
            *("", ["z1", "z2"], ["z1_bpu2", "z2_bpu4", "z2_bpu8"]),
        ),
        "in the given order": (
            [KnobChoice("bucket_cap_mb", (100, 5, 50), FREE)],
            *("", [], ["z0_bcm100", "z0_bcm5", "z0_bcm50"]),
        ),
        "with true beside 1": ([KnobChoice("x", (True, 1), FREE)], "", [], ["z0_x-T", "z0_x-1"]),
    },
)
def test_further_knobs_are_searched(
    choices: list[KnobChoice], extras: str, usual: list[str], further: list[str]
) -> None:
    found = space(*choices, extras=extras)
    assert names(found, usual=True) == usual
    assert names(found, usual=False) == further


def test_too_many_combinations_are_refused_with_their_knobs() -> None:
    many = tuple(range(1, 101))
    with pytest.raises(ConfigError, match=r"lists of a, b make 10000 combinations for ZeRO stage"):
        space(KnobChoice("a", many, LISTED), KnobChoice("b", many, LISTED))
