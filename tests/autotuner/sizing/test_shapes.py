"""Sizes to shapes and counts, as NVIDIA's tables and search have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import Family, Shape, nemo_parameters_b
from autoconf_launch.autotuner.sizing.shapes import layers_for
from autoconf_launch.core import ConfigError

from ...rows import some
from .expected import model, rows


@pytest.mark.parametrize("row", rows("expected_layers.csv"), ids=str)
def test_layers_are_those_that_nemo_finds_and_the_count_is_within_a_twentieth(
    row: dict[str, str],
) -> None:
    size_b = float(row["size_b"])
    found = model(row["family"], size_b, int(row["sequence"]))
    assert found.shape.layers == int(row["layers"])
    assert found.exact_count / 1e9 == pytest.approx(size_b, rel=0.05)


@pytest.mark.parametrize("row", rows("expected_param_count.csv"), ids=str)
def test_parameters_are_counted_as_nemo_does(row: dict[str, str]) -> None:
    rules = some(Family(row["family"]).rules)
    shape = Shape(
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        ffn=int(row["ffn"]),
        kv=int(row["kv_channels"] or 0),
        learning_rate=0.0,
    )
    count_b = nemo_parameters_b(rules, shape, int(row["vocab"]), int(row["seq_len"]))
    assert count_b == pytest.approx(float(row["exact_value_b"]), rel=1e-12)


@pytest.mark.parametrize(
    ("family", "vocabulary", "sequence", "shape", "size_b"),
    [
        ("qwen", 32000, 4096, (24, 1024, 16, 4096, 64), 0.34),
        ("starcoder", 32000, 8192, (32, 4608, 36, 18432, 128), 8.34),
        ("bert", 128_000, 512, (16, 768, 12, 2048, 64), 0.19),
        ("t5", 50000, 512, (24, 4096, 64, 10240, 32), 8.67),
    ],
)
def test_parameters_are_counted_as_nemo2_does(
    family: str, vocabulary: int, sequence: int, shape: tuple[int, ...], size_b: float
) -> None:
    """Values of NVIDIA's unit tests, which round to two digits."""
    rules = some(Family(family).rules)
    layers, hidden, heads, ffn, kv = shape
    made = Shape(layers=layers, hidden=hidden, heads=heads, ffn=ffn, kv=kv, learning_rate=0.0)
    assert round(nemo_parameters_b(rules, made, vocabulary, sequence), 2) == size_b


@pytest.mark.parametrize(
    ("family", "size_b", "expected"),
    [
        ("gpt3", 0.126, (768, 12, 3072, 64, 6e-4)),
        ("gpt3", 5, (4096, 32, 16384, 128, 1.2e-4)),
        ("t5", 11, (4096, 64, 10240, 64, 1e-4)),
        ("t5", 165.5, (7680, 96, 20480, 128, 1e-4)),
        ("mt5", 0.17, (512, 6, 1024, 64, 1e-4)),
        ("bert", 46.5, (7680, 48, 30720, 160, 1e-4)),
        ("bert", 0.11, (768, 12, 3072, 64, 2e-4)),
    ],
)
def test_widths_and_rates_are_those_of_the_tables(
    family: str, size_b: float, expected: tuple[int, int, int, int, float]
) -> None:
    shape = model(family, size_b).shape
    assert (shape.hidden, shape.heads, shape.ffn, shape.kv, shape.learning_rate) == expected


@pytest.mark.parametrize(("family", "size_b"), [("gpt3", 1105), ("t5", 251), ("bert", 250.6)])
def test_a_size_above_the_table_is_refused(family: str, size_b: float) -> None:
    with pytest.raises(ConfigError, match=f"^{family} supports "):
        model(family, size_b)


def test_notes_say_which_rules_gave_a_shape_or_a_count() -> None:
    chosen = model("gpt3", 0.02)
    assert chosen.exact_count / 1e9 == pytest.approx(0.02, rel=0.1)
    assert "the shape is our planner's" in " ".join(chosen.notes)
    chosen = model("falcon", 7)
    assert chosen.nemo_count_b is None
    assert "No rule knows the family 'falcon'" in chosen.notes[0]
    assert chosen.exact_count / 1e9 == pytest.approx(7, rel=0.05)
    assert any("ignores gates" in note for note in model("llama", 8).notes)


@given(st.floats(0.1, 900))
def test_layers_are_within_the_margin_of_ten_percent(size_b: float) -> None:
    layers = layers_for(size_b, lambda number: number * 1.7)
    assert layers is None or layers * 1.7 == pytest.approx(size_b, rel=0.1 + 1e-9)
