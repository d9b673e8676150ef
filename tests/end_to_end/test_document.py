"""A script whose batch is in a document that it reads: tuned by the first line typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .conftest import Place

pytestmark = pytest.mark.usefixtures("one_thread")

SCRIPT = str(Path(__file__).parent / "scripts" / "by_document.py")
QUICK = (
    *("--num_gpus=1", "--max-parallel-trials=1", "--effort=quick"),
    *("--soak_steps=0", "--end_profile_step=5"),
)
YAML = "name: x\nout: /tmp/${name}\ntrain:\n  lr: 1e-5\n  micro_batch_size: 2  # of a rank\n"
TOML = '[train]\nlr = "1e-5"\nopt = 2\nmicro_batch_size = 2\naccum = 4\n'
JSON = '{\n\t"train": {"lr": 1e-5, "micro_batch_size": 2, "global_batch_size": 8}\n}\n'


def batches(place: Place) -> set[tuple[int, int]]:
    found = (json.loads(path.read_text()) for path in place.results.glob("z*/result.json"))
    return {
        (result["applied"]["micro_batch"], result["applied"]["accumulation"]) for result in found
    }


def test_a_yaml_file_is_copied_for_each_trial_and_for_the_winner(place: Place) -> None:
    text = f"{YAML}  accum: 4\n"
    (place.folder / "own.yaml").write_text(text)
    words = ("--budget=2trials", SCRIPT, "own.yaml", "out=here")
    code, output = place.here("--autotuning=run", *QUICK, *words)
    assert code == 0, output
    assert "Using train.micro_batch_size in own.yaml as the micro-batch" in output
    assert (2, 4) in batches(place)
    ((micro, accumulation),) = batches(place) - {(2, 4)}
    copy = (place.results / f"z0_gas{accumulation}_tmbspg{micro}" / "own.yaml").read_text()
    assert copy == text.replace("size: 2", f"size: {micro}").replace("m: 4", f"m: {accumulation}")
    assert (place.folder / "own.yaml").read_text() == text
    winner = place.summary()["winner"]
    best = (2, 4) if winner == "z0_gas4_tmbspg2" else (micro, accumulation)
    assert f"trained with {best[0]} {best[1]}" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "words", "found"),
    [
        pytest.param(
            "own.toml",
            TOML,
            (),
            (2, 4),
            marks=pytest.mark.skipif(
                sys.version_info < (3, 11), reason="tomllib needs Python 3.11"
            ),
        ),
        ("own.json", JSON, (), (2, 4)),
        ("own.yaml", f"{YAML}  accum: 4\n", ("train.micro_batch_size=4",), (4, 4)),
    ],
)
def test_other_forms_of_a_document_are_tuned_at_their_global_batch(
    place: Place, name: str, text: str, words: tuple[str, ...], found: tuple[int, int]
) -> None:
    (place.folder / name).write_text(text)
    code, output = place.run("--autotuning=tune", *QUICK, "--budget=2trials", SCRIPT, name, *words)
    assert code == 0, output
    assert found in batches(place)
    assert len(batches(place)) == 2
    assert {micro * steps for micro, steps in batches(place)} == {found[0] * found[1]}


@pytest.mark.slow
def test_a_key_that_the_script_does_not_read_is_found_out(place: Place) -> None:
    (place.folder / "own.yaml").write_text(f"{YAML}  accum: 4\nbatch_size: 16\n")
    mapped = "--arg=train_micro_batch_size_per_gpu=batch_size"
    code, output = place.run("--autotuning=tune", *QUICK, mapped, SCRIPT, "own.yaml")
    assert code == 2, output
    assert (
        "batch_size in own.yaml is 16, but the micro-batches of the profile run have 2" in output
    )


def test_without_a_batch_anywhere_what_was_looked_at_is_named(place: Place) -> None:
    (place.folder / "own.yaml").write_text("lr: 1e-5\n")
    code, output = place.refusal("--autotuning=tune", "--num_gpus=1", SCRIPT, "own.yaml")
    assert code == 2
    assert "No argument of" in output
    assert "and no key of own.yaml is known to be the micro-batch" in output
    assert "--dialect dataloader" in output
