import subprocess
import sys
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher import extension_points
from autoconf_launch.launcher.backends import BACKENDS, LocalBackend, load_backend


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_every_row_of_the_table_is_a_backend(name: str) -> None:
    backend = extension_points.load_reference(BACKENDS[name])
    assert callable(backend.submit)


def test_options_reach_the_backend() -> None:
    with pytest.raises(TypeError, match="surprise"):
        load_backend("local", surprise=1)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"backend 'locla' is unknown; did you mean 'local'\?"):
        load_backend("locla")


def test_an_installed_package_can_bring_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(
        name="mine",
        value="autoconf_launch.launcher.backends.local:LocalBackend",
        group="autoconf_launch.backend",
    )
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: EntryPoints((point,)).select(group=group)
    )
    assert isinstance(load_backend("mine"), LocalBackend)


def test_a_backend_is_imported_only_when_asked_for() -> None:
    script = "import sys, autoconf_launch.launcher.backends as b; print(*sys.modules)"
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=True
    )
    assert not done.stdout.count("launcher.backends.replay") + done.stdout.count("backends.ray")
