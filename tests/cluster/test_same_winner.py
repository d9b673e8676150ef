"""A tune over three hosts of two ranks, by ssh, pdsh and OpenMPI."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import namespaces
from .namespaces import Hosts
from .test_ssh_hosts import COMMAND, EXAMPLE
from .test_ssh_hosts import pytestmark as on_namespaces

ENGINES = {"ssh": "ssh", "pdsh": "pdsh", "openmpi": "mpirun"}
pytestmark = [
    *on_namespaces,
    pytest.mark.skipif(
        not all(map(shutil.which, ENGINES.values())), reason="needs pdsh and openmpi-bin"
    ),
]


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    found = namespaces.start(tmp_path_factory.mktemp("hosts"), count=3, slots=2)
    yield found
    namespaces.stop(found)


def tune(hosts: Hosts, engine: str, folder: Path) -> tuple[str, set[str]]:
    """The winner, and with it what is as fast within noise."""
    folder.mkdir()
    shutil.copy(EXAMPLE / "train.py", folder)
    config = json.loads((EXAMPLE / "config.json").read_text())
    config |= {"train_micro_batch_size_per_gpu": [1, 8], "gradient_accumulation_steps": 2}
    config["zero_optimization"] = {"stage": 0}  # every launch takes 15 s on two cores
    (folder / "config.json").write_text(json.dumps(config))
    words = ("--tuner_num_trials", "3", "--effort", "quick", "--soak-steps", "0")
    script = ("train.py", "--config", "config.json")
    done = subprocess.run(
        (*COMMAND, *hosts.flags_of(engine), "--autotuning=tune", *words, *script),
        env=hosts.variables,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, (engine, done.stderr)
    summary = json.loads((folder / "autotuning_results" / "summary.json").read_text())
    return summary["winner"], {summary["winner"], *summary["ties"], *summary["near"]}


def test_every_engine_finds_the_same_winner_or_names_a_tie(hosts: Hosts, tmp_path: Path) -> None:
    found = {engine: tune(hosts, engine, tmp_path / engine) for engine in ENGINES}
    as_fast = set.intersection(*(names for _, names in found.values()))
    assert as_fast, found
    assert hosts.are_idle_within(5)
