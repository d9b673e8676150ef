import subprocess
import sys
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.asked import ENGINES, engine_facts
from autoconf_launch.launcher.engines import SshEngine, make_engine
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.request import RemoteAccess


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


def test_an_installed_package_can_bring_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(
        name="mine",
        value="autoconf_launch.launcher.engines.ssh:SshEngine",
        group="autoconf_launch.engine",
    )
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: EntryPoints((point,)).select(group=group)
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
