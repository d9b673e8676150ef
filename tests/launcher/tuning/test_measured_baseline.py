"""Findings of profile runs are read from their folders, as a later session does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from autoconf_launch.core import ConfigError, Layout, RankResult, Recompute, encode
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.tuning import Site, TuningJob, read_job, read_measured
from autoconf_launch.launcher.tuning.profile_run import other_micro_batch

from ..dialects.sources import require_facts, strategy_of

DECLARES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
"""
DIVIDES = "grad_accum_steps = total_tokens // (args.batch_size * 16)\n"
CONSENT = "--allow-global-batch-change"


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(heard: list[Event], text: str, *words: str, flags: tuple[str, ...] = ()) -> TuningJob:
    Path("train.py").write_text(text)
    request = parse_request(["--autotuning=tune", "--num_gpus=2", *flags, "train.py", *words])
    read = read_job(request, heard.append)
    heard.clear()
    return read


def test_what_the_profile_run_is_to_tell_is_not_judged_before_it(heard: list[Event]) -> None:
    Path("train.py").write_text(DECLARES + DIVIDES)
    read_job(parse_request(["--autotuning=tune", "--num_gpus=2", "train.py"]), heard.append)
    assert "leaves only micro-batch" not in say(heard)


def ran(folder: Path, **seen: Any) -> None:
    """A profile run in which rank 0 found this."""
    folder.mkdir(parents=True)
    result = RankResult(
        rank=0, world_size=2, attempt="a", ended_unix_s=0.0, applied=strategy_of(**seen)
    )
    (folder / "result.json").write_text(json.dumps(encode(result)))


def measure(job: TuningJob) -> TuningJob:
    """No launch is needed where the profile runs lie there."""
    return read_measured(job, cast("Site", None))


def say(heard: list[Event]) -> str:
    return " ".join(event.text for event in heard if isinstance(event, Note))


@pytest.mark.parametrize(
    ("text", "first", "second", "facts", "said"),
    [
        (
            DECLARES,
            {"accumulation": 4},
            {"micro_batch": 4, "accumulation": 4},
            {"global_batch": 8 * 4 * 2, "accumulation?": (4,)},
            "its global batch is 64",
        ),
        (
            DECLARES + DIVIDES,  # the script keeps its batch, which no consent changes
            {"accumulation": 2},
            {"micro_batch": 4, "accumulation": 4},
            {"pinned": 32},
            "Its global batch of 32 stays.",
        ),
        (
            DECLARES.replace("default=8", "default=2 + choose()") + DIVIDES,
            {"micro_batch": 6},
            {"micro_batch": 3, "accumulation": 2},
            {"micro_batch": 6},
            "with micro-batch 6, which no argument sets",
        ),
        (
            DECLARES,
            {"recompute": Recompute.FULL, "zero_stage": 3},
            None,
            {"recompute": Recompute.FULL, "zero_stage": 3},
            "ZeRO stage 3 and recompute full, which no argument sets",
        ),
    ],
)
def test_what_no_argument_sets_is_in_the_baseline_as_the_profile_run_shows_it(
    heard: list[Event],
    text: str,
    first: dict[str, Any],
    second: dict[str, Any] | None,
    facts: dict[str, Any],
    said: str,
) -> None:
    found = job(heard, text, flags=(CONSENT,))
    assert found.dialect.render(found.user.baseline, found.source, "c").script_args == ()
    ran(found.paths.profile, **first)
    if second:
        ran(found.paths.second_profile, **second)
    require_facts(measure(found).user, **facts)
    assert said in say(heard)


def test_what_is_given_and_what_nobody_saw_stays(heard: list[Event]) -> None:
    found = job(heard, DECLARES, "--batch_size", "8", flags=(CONSENT,))
    assert measure(found) is found  # there is no profile run
    ran(found.paths.profile, micro_batch=3, recompute=None)
    assert measure(found).user.baseline == found.user.baseline
    assert heard == []


def test_a_script_that_keeps_its_samples_is_searched_at_that_batch(heard: list[Event]) -> None:
    found = job(heard, DECLARES + DIVIDES)
    ran(found.paths.profile, accumulation=2)
    ran(found.paths.second_profile, micro_batch=4, accumulation=4)
    after = measure(found)
    assert after.user.batch_rule.pinned == 8 * 2 * 2
    assert "accumulation" not in {choice.knob for choice in after.user.choices}
    assert "2 with micro-batch 8, 4 with 4. Its global batch of 32 stays." in say(heard)
    other = replace(after.user.baseline.layout, micro_batch=16, accumulation=1)
    candidate = replace(after.user.baseline, layout=other)
    made = after.dialect.render(candidate, after.source, "config.json")
    assert made.script_args == ("--batch_size", "16")
    assert made.checked == (("micro_batch", "--batch_size"), ("accumulation", "--batch_size"))


@pytest.mark.parametrize("second", [{"accumulation": 2}, {"micro_batch": 8, "accumulation": 2}])
def test_where_the_batch_is_not_kept_consent_is_asked_for(
    heard: list[Event], second: dict[str, int]
) -> None:
    found = job(heard, DECLARES + DIVIDES)
    ran(found.paths.profile, accumulation=2)
    ran(found.paths.second_profile, **{"micro_batch": 4, **second})
    with pytest.raises(ConfigError, match=r"the global batch of 32: .*--allow-global-batch"):
        measure(found)


def test_a_number_that_the_ranks_share_is_known_by_the_profile_run(heard: list[Event]) -> None:
    found = job(heard, DECLARES, "--batch_size", "8", flags=(CONSENT,))
    ran(found.paths.profile, micro_batch=4)
    after = measure(found)
    assert after.user.baseline.layout.global_batch == 8
    assert say(heard) == (
        "--batch_size is 8 for all ranks together, as the profile run shows: each of the 2 had 4."
    )
    made = after.dialect.render(after.user.baseline, after.source, "c")
    assert made.script_args == ("--batch_size", "8")


@pytest.mark.parametrize(
    ("micro", "accumulation", "other"), [(8, 1, 4), (15, 2, 5), (1, 6, 2), (1, 1, None)]
)
def test_another_micro_batch_divides_the_samples_of_a_step(
    micro: int, accumulation: int, other: int | None
) -> None:
    layout = Layout(micro_batch=micro, accumulation=accumulation)
    assert other_micro_batch(layout) == other


def test_a_second_profile_run_needs_room_in_the_budget_for_itself_and_a_trial(
    heard: list[Event],
) -> None:
    found = job(heard, DECLARES + DIVIDES, flags=("--budget=60s", CONSENT))
    ran(found.paths.profile, accumulation=2)
    budget = replace(found.budget, began_s=0.0, clock=lambda: 25.0)
    measure(replace(found, budget=budget, profile_s=20.0))
    assert "no room for a second profile run of about 20 s (--budget 3m has)" in say(heard)
