"""DeepSpeed itself on two CPU ranks: its scripts, unmodified, by the real command."""

from __future__ import annotations

import importlib.util
import json
import shlex
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Place

HAS_DEEPSPEED = importlib.util.find_spec("deepspeed") is not None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.deepspeed,
    pytest.mark.skipif(not HAS_DEEPSPEED, reason="deepspeed is not installed"),
]
SCRIPTS = Path(__file__).parent / "scripts"
TRAIN, OWN_WORDS = str(SCRIPTS / "train_ds.py"), str(SCRIPTS / "own_words.py")
FIRST_LAUNCH_S = 300.0
"""DeepSpeed compiles an extension in its first launch on a machine."""
QUICK = (
    "--num_gpus=2",
    "--soak_steps=0",
    "--end_profile_step=4",
    "--max-parallel-trials=1",
    "--tuner_type=gridsearch",
    "--strategy=global",
    "--tuner-early-stopping=50",
    f"--trial-timeout={FIRST_LAUNCH_S}",
)
BUCKETS = {"reduce_bucket_size": 500_000}
"""The default makes stages 1 and 2 allocate 2 GB on each rank."""
OPTIMIZER = {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}}
DOCUMENT: dict[str, Any] = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": [2],
    "optimizer": OPTIMIZER,
    "zero_optimization": {"stage": [0, 1, 2, 3], **BUCKETS},
    "autotuning": {"enabled": True},
}


@dataclass(frozen=True)
class Tune:
    """A finished tune, and what its folder held before it."""

    place: Place
    before: dict[str, bytes]
    code: int
    output: str

    def files(self) -> dict[str, bytes]:
        """What the folder holds beside our results."""
        return files(self.place.folder)

    def trials(self) -> dict[str, dict[str, Any]]:
        """The result of rank 0 of each trial of the search, by its name; repeats are not in it."""
        folders = [
            folder
            for folder in self.place.results.glob("z*")
            if not folder.name.endswith(("_again", "_final"))
        ]
        return {f.name: json.loads((f / "result.json").read_text()) for f in folders}


def files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    kept = [path for path in paths if not path.relative_to(folder).parts[0].startswith("autotun")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def new_place(tmp_path_factory: pytest.TempPathFactory, document: object) -> Place:
    place = Place(tmp_path_factory.mktemp("deepspeed"), uuid.uuid4().hex)
    place.write_config(document, "ds.json")
    return place


def run(place: Place, *argv: str) -> tuple[int, str]:
    process = place.start(*argv)
    output, _ = process.communicate(timeout=600)
    return process.returncode, output


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an accelerator DeepSpeed must be told so."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")


@pytest.fixture(scope="module")
def tune(tmp_path_factory: pytest.TempPathFactory) -> Tune:
    """All stages, by the form that the guides have."""
    place = new_place(tmp_path_factory, DOCUMENT)
    before = files(place.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DS_ACCELERATOR", "cpu")
        words = (TRAIN, "--deepspeed", "--deepspeed_config", "ds.json")
        code, output = run(place, "--autotuning=tune", *QUICK, *words)
    return Tune(place, before, code, output)


def test_every_stage_is_measured_as_it_was_asked(tune: Tune) -> None:
    assert tune.code == 0, tune.output
    ran = {
        name: tuple(found["applied"][key] for key in ("zero_stage", "accumulation", "micro_batch"))
        for name, found in tune.trials().items()
    }
    assert ran == {f"z{stage}_rbs5.0e+05_gas4_tmbspg2": (stage, 4, 2) for stage in (0, 1, 2, 3)}


def test_the_probe_says_that_it_was_deepspeed(tune: Tune) -> None:
    applied = tune.trials()["z2_rbs5.0e+05_gas4_tmbspg2"]["applied"]
    assert "DeepSpeed ZeRO stage 2 over 2 ranks" in applied["description"]


def test_the_stages_train_the_same(tune: Tune) -> None:
    trials = tune.trials()
    losses = [[step["loss"] for step in trials[name]["steps"]] for name in sorted(trials)]
    for others in losses[1:]:
        assert others == pytest.approx(losses[0], rel=1e-3)


def test_each_trial_keeps_the_configuration_that_ran(tune: Tune) -> None:
    folder = tune.place.results / "z3_rbs5.0e+05_gas4_tmbspg2"
    document = json.loads((folder / "ds_config.json").read_text())
    assert document == {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "optimizer": OPTIMIZER,
        "zero_optimization": {"stage": 3, **BUCKETS},
    }
    command = (folder / "cmd.txt").read_text()
    assert f"--deepspeed --deepspeed_config {folder / 'ds_config.json'}" in command


def test_no_file_of_the_user_is_touched(tune: Tune) -> None:
    assert tune.files() == tune.before


def test_the_command_of_the_winner_names_its_file(tune: Tune) -> None:
    words = shlex.split((tune.place.results / "cmd_optimal.txt").read_text())
    assert words[-2:] == ["--deepspeed_config", "autotuning_results/ds_config_optimal.json"]
    assert (tune.place.results / "ds_config_optimal.json").exists()


def test_one_rank_out_of_memory_ends_in_seconds_and_the_tune_goes_on(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    document = {**DOCUMENT, "zero_optimization": {"stage": [1], **BUCKETS}}
    document["train_micro_batch_size_per_gpu"] = [2, 8, 4]
    place = new_place(tmp_path_factory, document)
    words = (TRAIN, "--too_large=8", "--deepspeed", "--deepspeed_config=ds.json")
    code, output = run(place, "--autotuning=tune", *QUICK, *words)
    assert code == 0, output
    lines = map(json.loads, (place.results / "journal.jsonl").read_text().splitlines())
    records = {line["name"]: line for line in lines if "candidate" in line and "wall_s" in line}
    failed = records["z1_rbs5.0e+05_gas1_tmbspg8"]
    assert failed["failure"]["kind"] == "out_of_memory"
    assert "rank 1" in failed["failure"]["detail"]
    assert failed["wall_s"] < 5 * records["z1_rbs5.0e+05_gas4_tmbspg2"]["wall_s"]
    assert records["z1_rbs5.0e+05_gas2_tmbspg4"]["measurement"]
    time.sleep(1.0)
    assert place.living() == []


def test_it_stands_in_for_deepspeeds_own_command_and_mappings(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The ``arg_mappings`` of DeepSpeed's guide, its stray blank included."""
    mappings = {
        "train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
        "gradient_accumulation_steps ": "--gradient_accumulation_steps",
    }
    document = {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "optimizer": OPTIMIZER,
        "zero_optimization": {"stage": 1, **BUCKETS},
        "autotuning": {"enabled": True, "arg_mappings": mappings},
    }
    place = new_place(tmp_path_factory, document)
    sizes = ("--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "4")
    words = (OWN_WORDS, "--deepspeed", "ds.json", *sizes)
    code, output = run(place, "--autotuning=run", *QUICK, *words)
    assert code == 0, output
    names = {path.name[-12:] for path in place.results.glob("z1_rbs5.0e+05_gas?_tmbspg?")}
    assert names == {"gas4_tmbspg2", "gas2_tmbspg4", "gas1_tmbspg8"}, output
    assert "32 steps to the end" in output


def test_a_stage_that_the_script_overrides_is_not_applied(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    document = {
        "train_micro_batch_size_per_gpu": [2],
        "gradient_accumulation_steps": 1,
        "optimizer": OPTIMIZER,
        "zero_optimization": {"stage": [1, 2], **BUCKETS},
        "autotuning": {"enabled": True},
    }
    place = new_place(tmp_path_factory, document)
    words = (OWN_WORDS, "--always_stage=1", "--deepspeed=ds.json")
    code, output = run(place, "--autotuning=tune", *QUICK, *words)
    assert code == 0, output
    failure = json.loads(
        (place.results / "z2_rbs5.0e+05_gas1_tmbspg2" / "failure.json").read_text()
    )
    assert failure["kind"] == "not_applied"
    assert "zero_stage 1 instead of 2 (asked by the DeepSpeed configuration)" in failure["detail"]


def test_a_configuration_in_the_script_itself_is_said_to_be_out_of_reach(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = new_place(tmp_path_factory, DOCUMENT)
    code, output = run(place, "--autotuning=tune", *QUICK, str(SCRIPTS / "hard_coded.py"))
    assert code == 2
    assert "--deepspeed_config FILE" in output
    assert "in its own code" in output
    assert len(output.splitlines()) == 1
