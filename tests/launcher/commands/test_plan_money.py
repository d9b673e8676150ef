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
    every = plan(*MIX, "--json", "--top", "0").document["best"]
    front = plan(*MIX, "--json", "--pareto").document["best"]
    points = [(row["step_time_s"], row["usd_per_step"]) for row in every]
    wanted = [one for one in points if not any(x < one[0] and y < one[1] for x, y in points)]
    assert [(row["step_time_s"], row["usd_per_step"]) for row in front] == sorted(wanted)


def test_the_front_of_equal_nodes_is_over_their_number(plan: Run) -> None:
    ran = plan(*MIX[:-2], "--cluster", "4x8xA100-SXM-40GB", "--pareto", "--json")
    assert ran.code == 0
    counts = [row["nodes"][0] for row in ran.document["best"]]
    assert counts == sorted(counts, reverse=True)
    assert ran.document["rule"] == "fastest"
    assert "The front of 4 parts of the cluster" in ran.document["notes"][0]


def test_a_front_of_one_part_is_spoken_of_as_one(plan: Run) -> None:
    ran = plan(*MIX[:-2], "--cluster", "1x8xA100-SXM-40GB", "--pareto")
    assert "The front of 1 part of the cluster" in ran.out


def test_no_part_of_a_step_is_below_zero(plan: Run) -> None:
    rows = plan(*MIX, "--json", "--top", "0").document["best"]
    assert min(seconds for row in rows for seconds in row["parts"].values()) == 0.0


def test_a_deadline_takes_the_cheapest_in_time_and_a_budget_the_fastest_in_it(plan: Run) -> None:
    rows = plan(*MIX, "--json", "--top", "0").document["best"]
    hours = sorted(24 * row["training_days"] for row in rows)
    late = hours[len(hours) // 2]
    document = plan(*MIX, "--json", "--deadline", f"{late:.3f}h").document
    in_time = [row for row in rows if 24 * row["training_days"] <= late + 0.001]
    assert document["rule"] == "cheapest"
    assert document["best"][0]["nodes"] == min(in_time, key=lambda r: r["usd_per_step"])["nodes"]

    usd = sorted(row["training_usd"] for row in rows)[len(rows) // 2]
    document = plan(*MIX, "--json", "--max-cost", f"{usd + 0.01:.2f}").document
    in_budget = [row for row in rows if row["training_usd"] <= usd + 0.01]
    assert document["rule"] == "fastest"
    assert document["best"][0]["nodes"] == min(in_budget, key=lambda r: r["step_time_s"])["nodes"]


def test_limits_that_nothing_keeps_name_what_comes_nearest(plan: Run) -> None:
    rows = plan(*MIX, "--json", "--top", "0").document["best"]
    late = plan(*MIX, "--deadline", "10m")
    assert late.code == 3
    assert late.err.count("\n") == 1
    assert "no layout is within the limits: the fastest takes" in late.err
    dear = plan(*MIX, "--max-cost", "1")
    assert dear.code == 3
    cheapest = min(row["training_usd"] for row in rows)
    assert f"${cheapest:.3g} on " in dear.err.replace(",", "")


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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--price", "A10G=-1"), "'-1' must be a number above 0"),
        (("--price", "A10G"), "'A10G' must be a GPU and its price"),
        (("--price", "A10H=1"), "GPU 'A10H' is unknown; did you mean"),
        (("--price", "H100=1"), "--price names H100-SXM-80GB, but the cluster has A100-SXM-40GB"),
        (("--price", "A10G=1", "--price", "A10G-24GB=2"), "names A10G-24GB twice"),
        (("--usd-per-gpu-hour", "2"), "this cluster mixes GPUs; give --price"),
        (("--price", "A10G=1", "--usd-per-gpu-hour", "2"), "exclude each other"),
        (("--csv-form", "fasop"), "--csv-form says what --csv writes"),
        (("--precision", "fp8"), "does not compute in fp8; valid for all GPUs of the cluster"),
    ],
)
def test_a_wrong_price_or_form_is_one_sentence(
    plan: Run, words: tuple[str, ...], says: str
) -> None:
    ran = plan(*MIX, *words)
    assert (ran.code, ran.is_one_line) == (2, True), ran.err
    assert says in ran.err


def test_a_missing_price_is_asked_for_where_money_counts(plan: Run) -> None:
    mix = (*MIX[:-1], "1x8xA100-SXM-40GB+1x8xMI300X-192GB")
    for words in (("--pareto",), ("--max-cost", "5k"), ("--objective", "cost")):
        ran = plan(*mix, *words)
        assert (ran.code, ran.is_one_line) == (2, True), ran.err
        assert "No price of MI300X-192GB is known, but" in ran.err
        assert "--price MI300X-192GB=USD" in ran.err


def test_one_kind_without_a_price_is_asked_for_the_price_of_its_gpu(plan: Run) -> None:
    ran = plan(*MIX[:-1], "2x8xMI300X-192GB", "--pareto")
    assert (ran.code, ran.is_one_line) == (2, True), ran.err
    assert "--pareto needs one; give it with --usd-per-gpu-hour USD" in ran.err
    assert plan(*MIX[:-1], "2x8xMI300X-192GB", "--pareto", "--usd-per-gpu-hour", "2").code == 0


def test_too_many_parts_are_counted_and_bounded(plan: Run) -> None:
    ran = plan(*MIX[:-1], "100x8xA100-SXM-40GB+100x8xA10G-24GB", "--pareto")
    assert (ran.code, ran.is_one_line) == (2, True)
    assert "10,200 parts" in ran.err
    assert "at most 10,000" in ran.err


def test_measured_layers_replace_predicted_ones_and_bound_tensor_ranks(plan: Run) -> None:
    layers = Path(tuning_spaces.__file__).parent / "fasop" / "layers.csv"
    words = ("--preset", "fasop/gpt2XL-heterogeneous", "--layer-times", str(layers))
    ran = plan(*words)
    assert "Layers are as measured in" in ran.out
    rows = plan(*words, "--json", "--top", "0").document["best"]
    assert {row["candidate"]["tensor_parallel"] for row in rows} <= {1, 2, 4}
    ran = plan(*MIX, "--layer-times", str(layers))
    assert (ran.code, ran.is_one_line) == (2, True)
    assert "has layers of T5, bert, gpt2XL, but the model is gpt2-medium" in ran.err
