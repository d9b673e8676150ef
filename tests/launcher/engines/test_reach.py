import shlex
import shutil
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.engines import GroupEngine, PipeEngine, make_engine
from autoconf_launch.launcher.plan import StepSize
from autoconf_launch.launcher.request import RemoteAccess

SSH, SLURM = RemoteAccess(), RemoteAccess(engine="slurm")
PIPES = ("ssh", "slurm")
GROUPS = ("pdsh", "openmpi", "mpich", "impi", "mvapich", "bcprun")


def reach_host(
    host: str,
    access: RemoteAccess,
    folder: str,
    command: tuple[str, ...],
    step: StepSize | None = None,
) -> tuple[str, ...]:
    engine = make_engine(access)
    assert isinstance(engine, PipeEngine)
    return engine.reach(host, folder, command, step)


def reach_all(
    hosts: tuple[str, ...], access: RemoteAccess, exported: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], dict[str, str]]:
    engine = make_engine(access)
    assert isinstance(engine, GroupEngine)
    return engine.reach_all(hosts, AGENT, exported)


def open_line(host: str, engine: str) -> None:
    opened = make_engine(RemoteAccess(engine=engine))
    assert isinstance(opened, PipeEngine | GroupEngine)
    opened.open_lines([host])


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")
    monkeypatch.setenv("PATH", str(tmp_path))


HOSTILE = ["-oProxyCommand=x", "a b", "a;b", "$(x)", "a\nb"]


@pytest.mark.parametrize(
    ("engine", "host"),
    [
        *(
            (engine, host)
            for engine in PIPES
            for host in (*HOSTILE, "`x`", "", "a'b", "é", "../x")
        ),
        *((engine, host) for engine in GROUPS for host in (*HOSTILE, "a,b", "[1-3]")),
    ],
)
def test_what_cannot_be_a_host_reaches_no_command(engine: str, host: str) -> None:
    with pytest.raises(ConfigError, match="fix the hostfile"):
        open_line(host, engine)


@pytest.mark.parametrize(("engine", "program"), [("slurm", "srun"), ("impi", "mpirun")])
def test_an_engine_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, engine: str, program: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(ConfigError, match=f"needs {program}, which is not installed"):
        open_line("n1", engine)


@pytest.mark.parametrize("host", ["worker-0", "10.0.0.1", "user@far.example", "fe80::1%eth0"])
def test_names_and_addresses_are_taken(host: str) -> None:
    assert host in reach_host(host, SSH, "/", ("true",))


def test_ssh_asks_for_nothing_and_takes_words_of_the_user_and_of_the_command_whole() -> None:
    access = RemoteAccess(port=2222, arguments=("-F", "my config"))
    command = ("py", "a b", "$HOME", "it's", "-x", "line\nline")
    words = reach_host("far", access, "/it's here", command)
    assert shlex.split(words[-1]) == ["cd", "/it's here", "&&", "exec", *command]
    assert "BatchMode=yes" in words
    assert words[words.index("-p") + 1] == "2222"
    assert words[words.index("-F") + 1] == "my config"
    assert words.index("--") < words.index("far")


def test_srun_runs_one_task_on_the_node_without_a_shell() -> None:
    words = reach_host("n1", SLURM, "/work dir", ("py", "$x"))
    assert {"--nodelist=n1", "--ntasks=1", "--chdir=/work dir"} <= set(words)
    assert words[-2:] == ("py", "$x")


@pytest.mark.parametrize("engine", PIPES)
def test_the_script_of_an_environment_is_sourced_first(engine: str) -> None:
    access = RemoteAccess(engine=engine, venv_script="/my env/activate")
    line = reach_host("far", access, "/w", ("py",))[-1]
    assert line == "cd /w && . '/my env/activate' && exec py"


AGENT = ("/py", "-I", "/agent.py", "2", "10", "a,b", "/work dir/it's %n\n$x")
MPI = ("openmpi", "mpich", "impi", "mvapich")


def words_of(engine: str, *arguments: str, exported: tuple[str, ...] = ()) -> tuple[str, ...]:
    access = RemoteAccess(engine=engine, arguments=arguments)
    return reach_all(("a", "b"), access, exported)[0]


def test_openmpi_starts_one_agent_on_each_host_in_their_order() -> None:
    words = words_of("openmpi", "--mca", "btl", "tcp", exported=("HF_TOKEN",))
    start = ("mpirun", "-np", "2", "--host", "a:1,b:1", "--map-by", "ppr:1:node", "--bind-to")
    rest = ("none", "-x", "HF_TOKEN", "--mca", "btl", "tcp", *AGENT, "OMPI_COMM_WORLD_RANK")
    assert words == (*start, *rest)


@pytest.mark.parametrize("engine", ["mpich", "impi", "mvapich"])
def test_hydra_starts_one_agent_on_each_host_in_their_order(engine: str) -> None:
    words = words_of(engine, "-iface", "eth0", exported=("HF_TOKEN", "MY_KEY"))
    start = ("mpirun", "-n", "2", "-ppn", "1", "-hosts", "a,b", "-genvlist", "HF_TOKEN,MY_KEY")
    assert words == (*start, "-iface", "eth0", *AGENT, "PMI_RANK")


@pytest.mark.parametrize(
    ("engine", "version", "said"),
    [
        ("mpich", "mpirun (Open MPI) 4.1.4", "mpirun of Open MPI .*; use --launcher openmpi"),
        ("openmpi", "HYDRA build details:", "mpirun of MPICH .*; use --launcher mpich"),
    ],
)
def test_the_mpirun_of_another_mpi_is_named(
    tmp_path: Path, engine: str, version: str, said: str
) -> None:
    (tmp_path / "mpirun").write_text(f"#!/bin/sh\necho '{version}'\n")
    (tmp_path / "mpirun").chmod(0o755)
    with pytest.raises(ConfigError, match=said):
        words_of(engine)


@pytest.mark.parametrize("engine", MPI)
def test_mpi_sources_the_script_of_an_environment_in_a_shell(engine: str) -> None:
    access = RemoteAccess(engine=engine, venv_script="/my env/activate")
    words = reach_all(("a",), access)[0]
    shell = shlex.split(words[-1])
    assert words[-3:-1] == ("/bin/sh", "-c")
    assert shell[3:6] == [".", "/my env/activate", "&&"]
    assert shell[7:-1] == list(AGENT)


def test_pdsh_reaches_all_at_once_and_reads_no_percent_sign() -> None:
    words = words_of("pdsh", "-u", "60")
    assert words[:9] == ("pdsh", "-S", "-R", "ssh", "-f", "2", "-w", "a,b", "-u")
    there = words[-1].removesuffix(" %n").replace("%%", "\0")
    assert "%" not in there
    assert shlex.split(there.replace("\0", "%"))[-len(AGENT) :] == list(AGENT)


def test_bcprun_gets_one_text_that_a_shell_reads_back_whole() -> None:
    words = words_of("bcprun")
    assert words[:-1] == ("bcprun", "--nnodes", "2", "--npernode", "1", "--cmd")
    assert shlex.split(words[-1])[-len(AGENT) - 1 :] == [*AGENT, "NGC_ARRAY_INDEX"]


def test_pdsh_asks_for_no_password_keeps_the_users_words_and_reads_no_name_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PDSH_SSH_ARGS_APPEND", "-F mine")
    access = RemoteAccess(engine="pdsh", port=2222)
    _, variables = reach_all(("a",), access, ("KEY",))
    expected = "-F mine -oBatchMode=yes -oConnectTimeout=20 -p2222"
    assert variables == {"PDSH_SSH_ARGS_APPEND": expected}
    for host in ("user@far", "fe80::1%eth0", "ssh:far"):
        with pytest.raises(ConfigError, match="pdsh cannot reach"):
            reach_all((host,), access)


def test_a_step_has_its_own_cores_and_gpus_and_without_a_size_runs_beside_others() -> None:
    words = reach_host("n1", SLURM, "/", ("true",), StepSize(cores=2, gpus=1))
    assert {"--exact", "--mem=0", "--cpus-per-task=2", "--gres=gpu:1"} <= set(words)
    assert "--overlap" not in words
    assert "--overlap" in reach_host("n1", SLURM, "/", ("true",))
