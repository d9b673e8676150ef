"""Why launches cannot live side by side, in the words that follow "because"."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import RankResult, RawConfig, encode
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.hosts import find_cluster, why_not_in_turn
from autoconf_launch.launcher.hosts.slots import why_apart
from autoconf_launch.launcher.launch import unwrap_launcher
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.script import ScriptSource

from ..conftest import Driver

HOSTS = "one slots=2\ntwo slots=2\n"


def request(*flags: str) -> LaunchRequest:
    return parse_request([*flags, "train.py", "--lr=1"])


def why(asked: LaunchRequest, folder: Path, text: str = "", modules: tuple[str, ...] = ()) -> str:
    source = ScriptSource(
        script_args=(), config=RawConfig({}), config_argument=None, text=text, modules=modules
    )
    return why_not_in_turn(asked, find_cluster(asked), source, folder)


@pytest.fixture(autouse=True)
def no_gpus(driver: Driver) -> None:
    driver()


def test_most_scripts_can_take_turns(tmp_path: Path) -> None:
    assert why(request("--num_gpus=2"), tmp_path) == ""


def test_a_port_that_the_user_gives_is_one_for_all(tmp_path: Path) -> None:
    asked = request("--num_gpus=2", "--master_port=1234")
    assert "port 1234" in why_apart(asked, find_cluster(asked))


def test_a_port_of_a_wrapped_launcher_is_not_taken(tmp_path: Path) -> None:
    words = ("--", "torchrun", "--nproc_per_node=2", "--master_port=1234")
    assert why(unwrap_launcher(request(*words)), tmp_path) == ""


def test_ranks_that_the_script_starts_meet_where_it_says(tmp_path: Path) -> None:
    asked = replace(request("--num_gpus=2"), alone=True)
    assert "starts its ranks itself" in why(asked, tmp_path)
    assert why(replace(asked, processes=1), tmp_path) == ""


def test_a_gpu_for_one_process_cannot_have_two(driver: Driver, tmp_path: Path) -> None:
    driver("81559, 81000, Exclusive_Process, [N/A]")
    assert "one process at a time" in why(request("--num_gpus=1"), tmp_path)


def test_several_hosts_are_taken_by_one_launch(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(HOSTS)
    asked = request(f"--hostfile={tmp_path / 'hosts'}", "--no_ssh", "--node_rank=0")
    assert "several hosts" in why(asked, tmp_path)


@pytest.mark.parametrize("place", ["text", "module"])
def test_a_port_in_the_source_is_one_for_all(tmp_path: Path, place: str) -> None:
    line = 'os.environ["MASTER_PORT"] = "1234"'
    text, modules = (line, ()) if place == "text" else ("", (line,))
    assert "where its ranks meet" in why(request(), tmp_path, text, modules)


@pytest.mark.parametrize("crowded", [False, True])
def test_ranks_that_several_processes_train_for_take_no_turns(
    tmp_path: Path, crowded: bool
) -> None:
    result = RankResult(rank=0, world_size=1, attempt="a", ended_unix_s=0.0, crowded=crowded)
    (tmp_path / "t0").mkdir()
    (tmp_path / "t0" / "result.json").write_text(json.dumps(encode(result)))
    assert bool(why(request(), tmp_path)) is crowded
