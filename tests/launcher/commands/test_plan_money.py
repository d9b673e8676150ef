"""``plan`` on mixed clusters where money counts: front, limits, prices, what a choice rests on."""

import re
from pathlib import Path

import pytest

from autoconf_launch import tuning_spaces

from .verb import Run

MIX = (
    *("--model", "gpt2-medium", "--seq", "1024", "--global-batch", "64", "--tokens", "10B"),
    *("--cluster", "1x8xA100-SXM-40GB+3x4xA10G-24GB"),
)


def test_the_front_has_no_row_that_another_one_beats(plan: Run) -> None:
    every, front = (plan(*MIX, "--json", *more).best for more in (("--top", "0"), ("--pareto",)))
    points = [(row["step_time_s"], row["usd_per_step"]) for row in every]
    wanted = [one for one in points if not any(x < one[0] and y < one[1] for x, y in points)]
    assert [(row["step_time_s"], row["usd_per_step"]) for row in front] == sorted(wanted)
    assert min(seconds for row in every for seconds in row["parts"].values()) == 0.0


def test_the_front_of_equal_nodes_is_over_their_number(plan: Run) -> None:
    ran = plan(*MIX[:-2], "--cluster", "4x8xA100-SXM-40GB", "--pareto", "--json")
    counts = [row["nodes"][0] for row in ran.best]
    assert counts == sorted(counts, reverse=True)
    assert ran.document["rule"] == "fastest"
    assert "The front of 4 parts of the cluster" in ran.document["notes"][0]
    one = plan(*MIX[:-2], "--cluster", "1x8xA100-SXM-40GB", "--pareto").out
    assert "The front of 1 part of the cluster" in one
    priced = (*MIX[:-1], "2x8xMI300X-192GB", "--pareto", "--usd-per-gpu-hour", "2")
    assert plan(*priced).code == 0


def test_a_deadline_takes_the_cheapest_in_time_and_a_budget_the_fastest_in_it(plan: Run) -> None:
    rows = plan(*MIX, "--json", "--top", "0").best
    late, usd = (
        sorted(row[key] for row in rows)[len(rows) // 2] + more
        for key, more in (("training_days", 1e-5), ("training_usd", 0.01))
    )
    for flag, value, key, rule, cost in (
        ("--deadline", f"{24 * late:.4f}h", "training_days", "cheapest", "usd_per_step"),
        ("--max-cost", f"{usd:.2f}", "training_usd", "fastest", "step_time_s"),
    ):
        document = plan(*MIX, "--json", flag, value).document
        limit = {"training_days": late, "training_usd": usd}[key]
        kept = [row for row in rows if row[key] <= limit]
        assert document["rule"] == rule
        assert document["best"][0]["nodes"] == min(kept, key=lambda row: row[cost])["nodes"]


def test_limits_that_nothing_keeps_name_what_comes_nearest(plan: Run) -> None:
    cheapest = min(row["training_usd"] for row in plan(*MIX, "--json", "--top", "0").best)
    for limit, says in (
        (("--deadline", "10m"), "no layout is within the limits: the fastest takes"),
        (("--max-cost", "1"), f"${cheapest:.3g} on "),
    ):
        ran = plan(*MIX, *limit)
        assert (ran.code, ran.err.count("\n")) == (3, 1)
        assert says in ran.err.replace(",", "")


def test_a_price_by_name_replaces_the_table(plan: Run) -> None:
    ran = plan(*MIX, "--price", "A10G=0.5", "--price", "A100-SXM-40GB=4", "--pareto", "--json")
    prices = [kind["usd_per_hour"] for kind in ran.document["cluster"]]
    assert prices == pytest.approx([32.0, 2.0])


def test_the_choice_stays_between_its_break_even_prices_and_changes_beyond(plan: Run) -> None:
    found = plan(*MIX, "--pareto", "--json").document["sensitivity"]
    for kind, gpus in zip(found["prices"], (8, 4), strict=True):
        for price, is_inside in (
            (kind["low"] * 0.99, False),
            (kind["low"] * 1.01, True),
            ((kind["high"] or 0.0) * 0.99, True),
            ((kind["high"] or 0.0) * 1.01, False),
        ):
            if not price:
                continue
            gpu = kind["node"].partition("x")[2]
            moved = plan(*MIX, "--pareto", "--json", "--price", f"{gpu}={price / gpus:.6f}")
            assert (moved.document["sensitivity"]["chosen"] == found["chosen"]) == is_inside


def test_explain_says_what_networks_and_errors_of_steps_would_change(plan: Run) -> None:
    ran = plan(*MIX, "--pareto", "--objective", "cost", "--explain")
    assert "Choice (cheapest): " in ran.out
    assert "If one price moves by 20 %, the choice " in ran.out
    assert "With networks 0.5 times as fast the choice is" in ran.out
    assert re.search(r"band of ±[12]\d %", ran.out)


def test_measured_layers_replace_predicted_ones_and_bound_tensor_ranks(plan: Run) -> None:
    layers = Path(tuning_spaces.__file__).parent / "fasop" / "layers.csv"
    words = ("--preset", "fasop/gpt2XL-heterogeneous", "--layer-times", str(layers), "--top", "0")
    ran = plan(*words, "--json")
    assert {row["candidate"]["tensor_parallel"] for row in ran.best} <= {1, 2, 4}
    assert any("Layers are as measured in" in note for note in ran.document["notes"])
