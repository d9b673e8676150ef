import shlex
import shutil

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.hosts.reach import ENGINES, reach_host
from autoconf_launch.launcher.request import RemoteAccess

SSH, SLURM = RemoteAccess(), RemoteAccess(engine="slurm")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=x", "a b", "a;b", "$(x)", "a\nb", "`x`", "", "a'b", "é", "../x"]
)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_cannot_be_a_host_reaches_no_command(host: str, engine: str) -> None:
    with pytest.raises(ConfigError, match="fix the hostfile"):
        reach_host(host, RemoteAccess(engine=engine), "/", ("true",))


@pytest.mark.parametrize("host", ["worker-0", "10.0.0.1", "user@far.example", "fe80::1%eth0"])
def test_names_and_addresses_are_taken(host: str) -> None:
    assert host in reach_host(host, SSH, "/", ("true",))


def test_what_runs_behind_ssh_passes_a_shell_whole() -> None:
    command = ("py", "a b", "$HOME", "it's", "-x", "line\nline")
    words = reach_host("far", SSH, "/it's here", command)
    assert shlex.split(words[-1]) == ["cd", "/it's here", "&&", "exec", *command]


def test_ssh_asks_for_nothing_and_takes_the_users_words() -> None:
    access = RemoteAccess(port=2222, arguments=("-F", "my config"))
    words = reach_host("far", access, "/", ("true",))
    assert "BatchMode=yes" in words
    assert words[words.index("-p") + 1] == "2222"
    assert words[words.index("-F") + 1] == "my config"
    assert words.index("--") < words.index("far")


def test_srun_runs_one_task_on_the_node_without_a_shell() -> None:
    words = reach_host("n1", SLURM, "/work dir", ("py", "$x"))
    assert {"--nodelist=n1", "--ntasks=1", "--chdir=/work dir"} <= set(words)
    assert words[-2:] == ("py", "$x")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_script_of_an_environment_is_sourced_first(engine: str) -> None:
    access = RemoteAccess(engine=engine, venv_script="/my env/activate")
    line = reach_host("far", access, "/w", ("py",))[-1]
    assert line == "cd /w && . '/my env/activate' && exec py"


def test_an_engine_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(ConfigError, match="needs srun, which is not installed"):
        reach_host("n1", SLURM, "/", ("true",))
