from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.asked import ENGINES, engine_facts
from autoconf_launch.launcher.dialects import framework_facts
from autoconf_launch.launcher.engines import HostsEngine, SshEngine, make_engine
from autoconf_launch.launcher.engines.ray import find_ray_nodes
from autoconf_launch.launcher.engines.ray_driver import run_agent
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.request import RemoteAccess
from autoconf_launch.nemo.inference_search import load_engine

from ...packages import install_extension


@pytest.mark.parametrize("name", ENGINES)
def test_every_row_of_the_table_makes_an_engine(name: str) -> None:
    engine = make_engine(RemoteAccess(engine=name))
    assert isinstance(engine, engine_facts(name))
    assert callable(engine.submit)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"--launcher 'slurn' is unknown; did you mean 'slurm'"):
        make_engine(RemoteAccess(engine="slurn"))
    with pytest.raises(ConfigError, match=r"'slurn' is not a launcher; did you mean 'slurm'"):
        parse_request(["--launcher", "slurn", "train.py"])


def test_an_installed_package_can_bring_an_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_extension(
        monkeypatch, tmp_path, "engine", "autoconf_launch.launcher.engines.ssh:SshEngine"
    )
    access = parse_request(["--launcher", "mine", "train.py"]).remote
    assert isinstance(make_engine(access), SshEngine)


def test_a_tune_on_this_machine_imports_the_engine_of_no_cluster() -> None:
    script = "import sys, autoconf_launch.launcher.commands.tune; print(*sys.modules)"
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=True
    )
    names = {name.rpartition("engines.")[2] for name in done.stdout.split() if "engines." in name}
    assert "local" in names
    assert not names & {"ssh", "mpi", "bcp", "slurm", "ray", "kubernetes", "pods"}


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", find)
    find_ray_nodes.cache_clear()


@pytest.mark.usefixtures("without_ray")
def test_without_ray_it_is_said_what_to_install() -> None:
    engine = make_engine(RemoteAccess(engine="ray"))
    assert isinstance(engine, HostsEngine)
    for ask in (find_ray_nodes, lambda: engine.open_lines(["w0"])):
        with pytest.raises(ConfigError, match=r"pip install 'autoconf-launch\[ray\]'"):
            ask()


def test_an_agent_that_cannot_begin_is_quoted() -> None:
    code, said = run_agent(
        ["/bin/sh", "-c", 'echo "autoconf-launch: $WHY" >&2; exit 3'], {"WHY": "no"}
    )
    assert (code, said) == (3, "autoconf-launch: no\n")


def test_a_program_that_is_not_there_is_named() -> None:
    code, said = run_agent(["/nowhere/python"], {})
    assert code == 127
    assert said.endswith("cannot run /nowhere/python: No such file or directory")


BROKEN = "class Picky:\n    def __init__(self, wanted, more, and_more, last): ...\n"


def bring(monkeypatch: pytest.MonkeyPatch, folder: Path, point: str, value: str) -> None:
    (folder / "picky.py").write_text(BROKEN)
    monkeypatch.delitem(sys.modules, "picky", raising=False)
    install_extension(monkeypatch, folder, point, value)


@pytest.mark.parametrize(
    ("point", "use"),
    [
        ("engine", lambda: make_engine(RemoteAccess(engine="mine"))),
        ("dialect", framework_facts),
        ("inference_engine", lambda: load_engine("mine")),
    ],
)
def test_an_entry_point_that_cannot_be_made_is_named(
    point: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bring(monkeypatch, tmp_path, point, "picky:Picky")
    pattern = rf"entry point mine = picky:Picky of autoconf_launch.{point} cannot be used \(Type"
    with pytest.raises(ConfigError, match=pattern):
        use()


@pytest.mark.parametrize("value", ["picky:Missing", "absent_module:Picky"])
def test_an_entry_point_that_leads_nowhere_is_named(
    value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bring(monkeypatch, tmp_path, "engine", value)
    with pytest.raises(ConfigError, match=f"The entry point mine = {value} of"):
        engine_facts("mine")
