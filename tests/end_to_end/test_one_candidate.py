"""A tune that has nothing to choose from, and whose script dies in odd ways."""

from __future__ import annotations

import pytest

from .conftest import SMALL, Place

ONE = {
    **SMALL,
    "gradient_accumulation_steps": 1,
    "autotuning": {"enabled": True, "results_dir": "out/results"},
}


@pytest.mark.slow
def test_a_tune_of_one_configuration_says_so_and_writes_where_it_is_told(place: Place) -> None:
    place.write_config(ONE)
    code, output = place.tune()
    assert code == 0, output
    assert "Only one configuration was tried." in output
    assert "Only your own configuration was measured." in output
    assert not (place.folder / "autotuning_exps").exists()
    exps = place.folder / "out" / "results" / "autotuning_exps"
    assert (exps / "z0_gas1_tmbspg1.json").exists()


@pytest.mark.slow
def test_an_error_whose_text_no_file_takes_is_told_escaped(place: Place) -> None:
    place.write_config({**SMALL, "train_micro_batch_size_per_gpu": [1, 2]})
    code, output = place.tune("--allow-global-batch-change", fault="surrogate")
    assert code == 0, output
    assert "ValueError: a file named \\udc80 is not there" in output
    assert "\\udc80 is not there" in (place.results / "trials.csv").read_text()


@pytest.mark.slow
def test_listed_micro_batches_keep_the_batch_and_the_first_line_names_the_flag(
    place: Place,
) -> None:
    listed = {name: value for name, value in SMALL.items() if "accumulation" not in name}
    place.write_config({**listed, "train_micro_batch_size_per_gpu": [1, 2, 4]})
    code, output = place.tune("--num_gpus=2")
    assert code == 0, output
    assert output.splitlines()[0] == (
        "autoconf-launch: Micro-batch 2, 4 of your list are skipped: no accumulation gives a "
        "global batch of 2 with them on 2 data-parallel ranks; --allow-global-batch-change "
        "searches other batches."
    )
    assert output.count("--allow-global-batch-change") == 1
    assert "Only one configuration was tried." in output
    code, output = place.tune("--num_gpus=2", "--allow-global-batch-change")
    assert code == 0, output
    assert "skipped: " not in output.splitlines()[0]
    assert {"z0_gas1_tmbspg2", "z0_gas1_tmbspg4"} <= {p.name for p in place.results.iterdir()}
