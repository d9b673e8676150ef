from importlib import metadata

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.engines import HostsEngine, make_engine
from autoconf_launch.launcher.engines.ray import find_ray_nodes
from autoconf_launch.launcher.engines.ray_driver import run_agent
from autoconf_launch.launcher.request import RemoteAccess


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
