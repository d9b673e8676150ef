"""Files of measured layers."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from autoconf_launch import tuning_spaces
from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.estimates.parts import read_layer_times
from autoconf_launch.tuning_spaces import named_model

SHIPPED = Path(tuning_spaces.__file__).parent / "fasop" / "layers.csv"
BOTH = ("A100-SXM-40GB", "A10G-24GB")
HEAD = "model,gpu,tp,layer_index,fwd_time_s\n"


def write(path: Path, *, layers: int = 12, gpu: str = "A10G", lines: str = "") -> Path:
    times = "".join(f"gpt2,{gpu},1,{i},{0.001 * (i + 1)}\n" for i in range(layers + 2))
    path.write_text(HEAD + times + lines)
    return path


def test_fasops_profile_has_three_models_on_two_gpus() -> None:
    found = read_layer_times(SHIPPED, named_model("fasop-gpt2xl"), BOTH)
    a100, a10g = (found[gpu] for gpu in BOTH)
    assert a100.tensor == a10g.tensor == (1, 2, 4)
    assert a10g.layer_s[0] / a100.layer_s[0] == pytest.approx(1.43, abs=0.01)
    assert a100.last_s[0] == pytest.approx(0.00073, abs=1e-5)
    bert = read_layer_times(SHIPPED, named_model("bert-large"), BOTH)
    assert bert["A100-SXM-40GB"].layer_s[0] == pytest.approx(0.001444, abs=1e-6)


def test_both_halves_of_an_encoder_decoder_begin_with_an_embedding() -> None:
    found = read_layer_times(SHIPPED, named_model("fasop-t5"), BOTH)["A100-SXM-40GB"]
    assert found.first_s[0] == pytest.approx(0.000191 + 0.000221, abs=1e-6)
    assert found.layer_s[0] == pytest.approx((0.001171 + 0.0021) / 2, abs=1e-5)
    assert math.isnan(found.last_s[0])


def test_ends_are_the_first_and_the_last_entry(tmp_path: Path) -> None:
    found = read_layer_times(write(tmp_path / "a.csv"), named_model("gpt2"), ["A10G-24GB"])
    measured = found["A10G-24GB"]
    assert (measured.first_s, measured.last_s) == ((0.001,), (0.014,))
    assert measured.layer_s == pytest.approx((0.0075,))


@pytest.mark.parametrize(
    ("lines", "layers", "says"),
    [
        ("gpt2,A10G,1,99,0\n", 12, "line 16: tp and fwd_time_s must be above 0"),
        ("gpt2,A10G,one,99,1\n", 12, "line 16: .*'one'; it must be a number"),
        ("", 11, "has 13 entries for a GPU and tp, but gpt2 has 12 layers and 2 ends"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, lines: str, layers: int, says: str) -> None:
    path = write(tmp_path / "a.csv", layers=layers, lines=lines)
    with pytest.raises(ConfigError, match=says):
        read_layer_times(path, named_model("gpt2"), ["A10G-24GB"])


@pytest.mark.parametrize(
    ("file", "model", "gpus", "says"),
    [
        ("none.csv", "gpt2", ["A10G-24GB"], "cannot be read: No such file"),
        ("a.csv", "gpt2", ["T4-16GB"], "has no layers measured on T4-16GB; it has A10G"),
        ("b.csv", "gpt2", ["A10G-24GB"], "lacks the column tp"),
        (SHIPPED, "llama2-7b", BOTH, "gpt2XL, but the model is llama2-7b"),
    ],
)
def test_a_missing_file_column_gpu_or_model_is_named(
    tmp_path: Path, file: str | Path, model: str, gpus: Sequence[str], says: str
) -> None:
    others = "other,A10G,1,0,1\nmore,A10G,1,0,1\n"
    read_layer_times(write(tmp_path / "a.csv", lines=others), named_model("gpt2"), ["A10G-24GB"])
    (tmp_path / "b.csv").write_text("model,gpu\n")
    with pytest.raises(ConfigError, match=says):
        read_layer_times(tmp_path / file, named_model(model), gpus)
