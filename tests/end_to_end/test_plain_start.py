"""Scripts that are started once, as python does it: by what they are, or by what is seen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.launcher.machine import free_port, our_python

from .conftest import Place

SCRIPTS = Path(__file__).parent / "scripts"
QUICK = (
    *("--autotuning=tune", "--max-parallel-trials=1", "--effort=quick"),
    *("--soak_steps=0", "--end_profile_step=4"),
)
SIZES = ("--allow-global-batch-change", "--knob=train_micro_batch_size_per_gpu=[4]")


@pytest.mark.slow
def test_a_script_that_starts_its_ranks_is_tuned_with_all_of_them(place: Place) -> None:
    script = (str(SCRIPTS / "spawning.py"), str(free_port()))
    code, output = place.run(*QUICK, *SIZES, "--num_gpus=1", *script)
    assert code == 0, output
    assert re.search(r"^profile \(\d+\.\d s\)", output, re.MULTILINE)  # the first had all ranks
    results = sorted(path.name for path in (place.results / "z0_gas1_tmbspg4").glob("result*"))
    assert results == ["result.json", "result_rank1.json"]
    assert f"autoconf-launch --num_gpus 2 -- {our_python()} {script[0]}" in output
    assert not (place.folder / "snapshot.pt").exists()


STARTER = """
import subprocess, sys
open("starts", "a").write("one\\n")
command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
sys.exit(subprocess.call([*command, "worker.py", *sys.argv[1:]]))
"""
WORKER = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=2)
arguments = parser.parse_args()
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs in torch.utils.data.DataLoader(torch.randn(64, 8), arguments.batch_size):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_the_printed_command_starts_a_script_with_a_launcher_inside_once(place: Place) -> None:
    (place.folder / "worker.py").write_text(WORKER)
    (place.folder / "start.py").write_text(STARTER)
    words = (*QUICK, *SIZES, "--budget=1trials", "start.py", "--batch_size", "2")
    code, output = place.run(*words)
    assert code == 0, output
    assert f"autoconf-launch --include localhost:0,1 -- {our_python()} start.py" in output
    starts = place.folder / "starts"
    starts.unlink()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "AUTOCONF_TEST_MARK": place.mark}
    subprocess.run((str(place.results / "run_optimal.sh"),), check=True, env=environment)
    assert starts.read_text() == "one\n"


@pytest.mark.slow
def test_a_script_that_takes_the_variables_of_a_launch_amiss_is_started_without(
    place: Place,
) -> None:
    script = str(SCRIPTS / "by_environment.py")
    code, output = place.run(*QUICK, *SIZES, "--num_gpus=1", script)
    assert code == 0, output
    assert "(RANK, WORLD_SIZE, …), as python starts it" in output
    assert "Using BATCH_SIZE as the micro-batch" in output
    applied = json.loads((place.results / "z0_gas1_tmbspg4" / "result.json").read_text())
    assert applied["applied"]["micro_batch"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("crash_at", [1, 3, 6])
def test_a_script_that_breaks_as_a_rank_is_started_without_at_every_stage(
    place: Place, crash_at: int
) -> None:
    """The profile run crashes, or the user's own trial, or the verification run."""
    words = (*QUICK[:2], "--soak_steps=8", "--end_profile_step=4", *SIZES, "--num_gpus=1")
    script = (str(SCRIPTS / "breaks_in_ddp.py"), "--crash_at", str(crash_at))
    code, output = place.run(*words, *script)
    assert code == 0, output
    assert "(RANK, WORLD_SIZE, …), as python starts it" in output
    assert f"autoconf-launch tune -- {our_python()} {' '.join(script)}" in output
    assert f"autoconf-launch --num_gpus 1 -- {our_python()} {script[0]}" in output
    assert "0 FLOP" not in output


@pytest.mark.slow
def test_a_script_that_gives_up_is_quoted_as_it_speaks(place: Place) -> None:
    script = (str(SCRIPTS / "breaks_in_ddp.py"), "--leave_at=1")
    code, output = place.run(*QUICK, *SIZES, "--num_gpus=1", *script)
    assert code == 3, output
    assert "It crashes alike as python starts it" in output
    assert output.rstrip().endswith("\n  | no more data")
    assert "Your own configuration" not in output
