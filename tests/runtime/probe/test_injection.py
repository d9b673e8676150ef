"""Launches as users make them, with nothing but the probe's variables in the environment."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import PROBE_VARIABLE, Mode, RankTask
from autoconf_launch.launcher.launch import why_silent
from autoconf_launch.launcher.launch.planning import INJECTED
from autoconf_launch.launcher.launch.rank_results import measure, read_rank_results

from .conftest import SCRIPTS

PLAIN, DDP = str(SCRIPTS / "plain.py"), str(SCRIPTS / "ddp.py")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
OTHER = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "autoconf_launch":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NotInstalled())
sys.stderr.write("the other sitecustomize ran\\n")
"""


@pytest.fixture(scope="module")
def in_another_environment(launched: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A Python with its own sitecustomize, and without our package."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(OTHER)
    path = {"PYTHONPATH": f"{INJECTED}{os.pathsep}{folder}"}
    return launched(sys.executable, PLAIN, more=path)


@pytest.fixture(scope="module")
def under_torchrun(launched: Any) -> Any:
    return launched(sys.executable, *TORCHRUN, DDP, "--accumulation=2")


def test_the_probe_needs_nothing_installed(in_another_environment: Any) -> None:
    assert in_another_environment.steps() == [1, 2, 3, 4, 5], in_another_environment.errors


def test_an_existing_sitecustomize_still_runs(in_another_environment: Any) -> None:
    assert "the other sitecustomize ran" in in_another_environment.errors


def test_every_rank_of_torchrun_reports(under_torchrun: Any) -> None:
    assert [under_torchrun.steps(rank) for rank in range(2)] == [[1, 2, 3, 4, 5]] * 2


def test_torchrun_ends_with_success(under_torchrun: Any) -> None:
    assert under_torchrun.exit_codes == (0,), under_torchrun.errors


def test_the_agent_of_torchrun_claims_nothing(under_torchrun: Any) -> None:
    claims = sorted(sign for sign in under_torchrun.signs() if sign.startswith("claim"))
    assert claims == ["claim_rank0_0", "claim_rank1_0"]


def test_the_results_are_what_the_launcher_reads(under_torchrun: Any) -> None:
    results = read_rank_results(under_torchrun.task, 2)
    measured = measure(under_torchrun.task, results, strict=True)
    assert measured
    assert (len(measured.step_s), measured.samples_per_step) == (3, 2 * 2 * 4)


def test_an_isolated_python_is_found_silent(launched: Any) -> None:
    ended = launched(sys.executable, "-I", "-c", "print('trained')")
    assert (ended.has_reported(), "-I" in why_silent(ended.task)) == (False, True)


def test_a_program_without_torch_is_found_silent(launched: Any) -> None:
    ended = launched(sys.executable, "-c", "print('trained')")
    assert "no process of the script imported torch" in why_silent(ended.task)


def test_without_a_task_nothing_is_armed() -> None:
    code = "import torch, sys; sys.exit('_autoconf_launch_probe' in sys.modules)"
    environment = {k: v for k, v in os.environ.items() if k != PROBE_VARIABLE}
    environment["PYTHONPATH"] = str(INJECTED)
    ended = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert ended.returncode == 0


def test_the_script_sees_its_own_search_path(launched: Any) -> None:
    ended = launched(sys.executable, "-c", "import sys; print(sys.path)")
    assert str(INJECTED) not in ended.output


def test_a_broken_task_never_reaches_the_script(probed: Any) -> None:
    ended = probed("plain.py", "--samples=8", more={PROBE_VARIABLE: "{}"})
    assert (ended.exit_codes, "reached the end" in ended.output) == ((0,), True), ended.errors


def test_an_unwritable_folder_never_reaches_the_script(probed: Any, tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.touch()
    lost = RankTask(mode=Mode.MEASURE, folder=str(nowhere), attempt="a1").to_variable()
    ended = probed("plain.py", "--samples=8", more={PROBE_VARIABLE: lost})
    assert (ended.exit_codes, "reached the end" in ended.output) == ((0,), True), ended.errors
