from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.flags import launch_flags, parse_request
from autoconf_launch.launcher.launch import as_typed, unwrap_launcher
from autoconf_launch.launcher.machine import our_python
from autoconf_launch.launcher.request import LaunchRequest

CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_processes: 4
num_machines: 1
mixed_precision: bf16
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_transformer_layer_cls_to_wrap: Block
"""


@pytest.fixture(autouse=True)
def _without_default_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "nothing"))


def launch(*words: str) -> LaunchRequest:
    return unwrap_launcher(parse_request(["--autotuning=tune", *words]))


def test_the_file_of_accelerate_becomes_variables(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    found = launch("accelerate", "launch", "--config_file", str(path), "train.py", "--bs", "8")
    assert (found.script, found.script_args, found.kind) == ("train.py", ("--bs", "8"), "script")
    assert found.processes == 4
    assert dict(found.variables) == {
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "FSDP_VERSION": "2",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "Block",
    }


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("fsdp_config", "PYTHONPATH"),
        ("fsdp_config", "LD_PRELOAD"),
        ("fsdp_config", "fsdp_a-b"),
        ("parallelism_config", "path"),
        ("deepspeed_config", "a=b"),
    ],
)
def test_the_file_of_accelerate_sets_no_other_variable(
    tmp_path: Path, section: str, key: str
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps({section: {key: "planted"}}))
    with pytest.raises(ConfigError, match=f"{section} of Accelerate's configuration has"):
        launch("accelerate", "launch", "--config_file", str(path), "t.py")


def test_flags_of_accelerate_outweigh_its_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    words = (f"--config-file={path}", "--mixed_precision", "fp16", "--fsdp_version=1", "--cpu")
    found = launch("accelerate", "launch", *words, "--num_processes", "2", "t.py")
    variables = dict(found.variables)
    assert (variables["ACCELERATE_MIXED_PRECISION"], variables["FSDP_VERSION"]) == ("fp16", "1")
    assert variables["ACCELERATE_USE_CPU"] == "true"
    assert found.processes == 2


@pytest.mark.parametrize(
    ("document", "stage", "steps"),
    [
        ({"zero_optimization": {"stage": 3}}, "3", "1"),
        ({"zero_optimization": {"stage": 1}, "gradient_accumulation_steps": 1}, "1", "1"),
        (
            {"zero_optimization": {"stage": "auto"}, "gradient_accumulation_steps": "auto"},
            "2",
            "4",
        ),
    ],
)
def test_numbers_of_accelerates_deepspeed_file_are_the_ones_that_count(
    document: dict[str, object], stage: str, steps: str, tmp_path: Path
) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(document))
    words = ("--use_deepspeed", "--deepspeed_config_file", str(tmp_path / "ds.json"))
    given = ("--zero_stage=2", "--gradient_accumulation_steps=4")
    variables = dict(launch("accelerate", "launch", *words, *given, "t.py").variables)
    assert variables["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == stage
    assert variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == steps


def test_an_accumulation_that_a_tune_could_not_change_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"gradient_accumulation_steps": 2}')
    words = ("--use_deepspeed", f"--deepspeed_config_file={tmp_path / 'ds.json'}", "t.py")
    with pytest.raises(ConfigError, match='steps to 2; write "auto" there and give accelerate'):
        launch("accelerate", "launch", *words)
    plain = unwrap_launcher(parse_request(["accelerate", "launch", *words]))
    assert dict(plain.variables)["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "2"


def test_a_default_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate" / "default_config.yaml").write_text(CONFIG)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert launch("accelerate", "launch", "t.py").processes == 4


def test_our_own_number_of_processes_weighs_more() -> None:
    found = launch("--num_gpus=1", "accelerate", "launch", "--num_processes=2", "t.py")
    assert found.processes == 1


def test_a_module_of_accelerate_is_one() -> None:
    found = launch("-m", "accelerate.commands.launch", "-m", "pkg.train", "--x=1")
    assert (found.kind, found.script, found.script_args) == ("module", "pkg.train", ("--x=1",))


def test_torchrun_and_python_are_unwrapped() -> None:
    torchrun = launch("torchrun", "--nproc_per_node=2", "t.py", "--lr", "1")
    python = launch("--no_python", "python", "-u", "t.py", "--lr", "1")
    assert (torchrun.processes, torchrun.script, torchrun.script_args) == (
        2,
        "t.py",
        ("--lr", "1"),
    )
    assert (python.kind, python.script, python.script_args) == ("script", "t.py", ("--lr", "1"))


def test_torchrun_starts_one_rank_where_nobody_says_more() -> None:
    assert launch("torchrun", "t.py").processes == 1
    assert launch("--num_gpus=2", "torchrun", "t.py").processes == 2
    assert launch("deepspeed", "t.py").processes is None


def test_another_launcher_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match="mpirun is not a launcher known here"):
        launch("--", "mpirun", "-np", "2", "python", "t.py")


@pytest.mark.parametrize("words", [("t.py", "--lr"), ("-m", "pkg.train", "--lr")])
def test_python_in_our_place_starts_one_process(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    found = launch("--", "python", *words)
    assert (found.alone, found.script_args) == (True, ("--lr",))
    assert (*launch_flags(found), found.script)[-2 - (words[0] == "-m") :] == (
        our_python(),
        *words[:-1],
    )


def test_only_the_u_before_the_script_is_pythons() -> None:
    found = launch("--", "python", "-u", "t.py", "-u", "5")
    assert (found.script, found.script_args) == ("t.py", ("-u", "5"))


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (("-W", "ignore"), ("-Wignore",)),
        (("-Wignore", "-O"), ("-Wignore", "-O")),
        (("-uBI", "-X", "faulthandler"), ("-B", "-I", "-Xfaulthandler")),
        (("-s",), ("-s",)),
    ],
)
def test_flags_of_python_are_kept_in_the_launch_and_in_the_command_to_train_with(
    words: tuple[str, ...], flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    found = launch("--", "python", *words, "t.py", "-O")
    assert (found.script, found.script_args, found.python_flags) == ("t.py", ("-O",), flags)
    command = (*launch_flags(found), found.script, *found.script_args)
    assert command == ("--", our_python(), *flags, "t.py", "-O")
    assert parse_request(command).script == our_python()


def test_flags_of_python_before_a_module_are_kept() -> None:
    found = launch("--", "python", "-Om", "pkg.train", "-W", "1")
    assert (found.kind, found.script, found.python_flags) == ("module", "pkg.train", ("-O",))
    assert found.script_args == ("-W", "1")


@pytest.mark.parametrize("words", [("env", "A=1", "B=c=d"), ("A=1", "B=c=d")])
def test_variables_before_the_command_go_to_the_ranks(words: tuple[str, ...]) -> None:
    found = launch("--", *words, "python", "t.py")
    assert (found.script, found.alone) == ("t.py", True)
    assert found.variables == (("A", "1"), ("B", "c=d"))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with programs that are not installed everywhere."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("numactl", "fabric", "composer"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    (folder / "uv").write_text("#!/bin/sh\necho /envs/own/bin/python\n")
    (folder / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin")
    return folder


@pytest.mark.parametrize(
    "prefix", [("nice", "-n", "5"), ("numactl", "-N", "0"), ("nice", "taskset", "-c", "0-1")]
)
@pytest.mark.usefixtures("programs")
def test_a_program_that_only_places_the_ranks_stays_before_each_of_them(
    prefix: tuple[str, ...],
) -> None:
    found = launch("--", *prefix, "python", "t.py", "--lr", "1")
    assert (found.prefix, found.script, found.script_args) == (prefix, "t.py", ("--lr", "1"))
    assert launch_flags(found)[-len(prefix) - 1 : -1] == prefix
    again = launch(*launch_flags(found), found.script, *found.script_args)
    assert (again.prefix, again.script, again.alone) == (prefix, "t.py", True)


@pytest.mark.usefixtures("programs")
def test_uv_run_says_which_python_runs_the_script(tmp_path: Path) -> None:
    script = tmp_path / "t.py"
    script.write_text("")
    for words in (("python", "t.py"), (str(script),), ("torchrun", "t.py")):
        found = launch("--", "uv", "run", "--frozen", *words)
        assert found.python == "/envs/own/bin/python"
        assert Path(found.script).name == "t.py"


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("name", ["fabric", "composer"])
def test_a_program_that_starts_ranks_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not a launcher known here"):
        launch("--", name, "run", "--devices=2", "t.py")


@pytest.mark.parametrize("prefix", [("env", "-u", "A", "B=1"), ("env", "--unset=A", "-uC")])
def test_variables_that_are_unset_before_the_command_are_unset_for_each_rank(
    prefix: tuple[str, ...],
) -> None:
    found = launch("--", *prefix, "python", "t.py")
    assert (found.prefix, found.script, found.alone) == (prefix, "t.py", True)
    again = launch(*launch_flags(found), found.script)
    assert (again.prefix, again.script) == (prefix, "t.py")


@pytest.mark.parametrize("option", ["-i", "-", "-C"])
def test_an_option_of_env_that_cannot_be_followed_is_refused_by_its_name(option: str) -> None:
    with pytest.raises(ConfigError, match=f"^env {option} cannot be followed"):
        launch("--", "env", option, "python", "t.py")


@pytest.mark.parametrize("words", [("numactl", "-N", "0"), ("uv", "run")])
def test_a_wrapper_that_is_not_installed_is_named(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=f"{words[0]} is not on PATH"):
        launch("--", *words, "python", "t.py")


def test_a_wrapper_without_a_command_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"nice -n 5 starts no program"):
        launch("--", "nice", "-n", "5")


def test_python_is_known_with_its_version_too() -> None:
    name = f"python3.{sys.version_info.minor}"
    found = launch(name, "t.py", "--lr")
    assert (found.script, found.script_args, found.alone) == ("t.py", ("--lr",), True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("deepspeed", "t.py"), True),
        (("deepspeed", "--no_local_rank", "t.py"), False),
        (("--no_local_rank", "deepspeed", "t.py"), False),
        (("torchrun", "t.py"), False),
        (("accelerate", "launch", "t.py"), False),
        (("-m", "torch.distributed.run", "t.py"), False),
        (("-m", "torch.distributed.launch", "t.py"), True),
        (("-m", "torch.distributed.launch", "--use_env", "t.py"), False),
        (("-m", "torch.distributed.launch", "--use-env", "t.py"), False),
    ],
)
def test_ranks_are_told_their_number_where_their_launcher_tells_it(
    words: tuple[str, ...], told: bool
) -> None:
    assert bool(launch(*words).local_rank_flag) is told


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """An environment that is not ours: a Python, and a launcher beside it."""
    for name in ("python", "torchrun", "accelerate"):
        path = tmp_path / "env" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    return tmp_path / "env"


@pytest.mark.parametrize(
    "words",
    [
        ("--", "PYTHON", "t.py", "-x"),
        ("--", "PYTHON", "-m", "pkg.t", "-x"),
        ("--num_gpus=2", "--", "PYTHON", "t.py", "-x"),
        ("--no_python", "PYTHON", "-m", "pkg.t", "-x"),
        ("--", "PYTHON", "-m", "torch.distributed.run", "--nproc_per_node=2", "t.py", "-x"),
    ],
)
def test_the_python_that_is_named_runs_the_script_and_stands_in_the_command(
    other: Path, words: tuple[str, ...]
) -> None:
    python = str(other / "python")
    found = launch(*(python if word == "PYTHON" else word for word in words))
    again = launch(*launch_flags(found), found.script, *found.script_args)
    assert (found.python, found.script_args) == (python, ("-x",))
    assert replace(again, argv=found.argv) == found


@pytest.mark.parametrize("words", [("torchrun",), ("accelerate", "launch")])
def test_a_launcher_of_another_environment_runs_the_script_there(
    other: Path, words: tuple[str, ...]
) -> None:
    found = launch(str(other / words[0]), *words[1:], "t.py")
    assert found.python == str(other / "python")


def test_a_bare_python_is_the_one_of_the_shell(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(other))
    assert launch("--", "python", "t.py").python == str(other / "python")


def test_a_script_that_starts_its_ranks_is_one_process(tmp_path: Path) -> None:
    path = tmp_path / "spawns.py"
    path.write_text("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n")
    assert launch("--num_gpus=2", "--", "python", str(path)).alone


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n", ["--num_gpus", "2"]),
        ("import helper\nhelper.start_both()\n", ["--include", "localhost:0,1"]),
    ],
)
def test_a_script_that_was_seen_to_start_its_ranks_is_typed_as_one_process(
    tmp_path: Path, text: str, flags: list[str]
) -> None:
    path = tmp_path / "starts.py"
    path.write_text(text)
    seen = replace(launch(str(path)), alone=True, processes=2, started=2)
    typed = launch_flags(as_typed(seen))
    assert list(typed[:2]) == flags
    assert launch(*typed, str(path)).alone


def test_ranks_that_are_asked_for_are_made_of_python_too() -> None:
    assert not launch("--num_gpus=2", "--", "python", "t.py").alone
    assert not launch("--no_python", "python", "t.py").alone
    assert not launch("--", "python", "-m", "torch.distributed.run", "t.py").alone


def test_a_script_is_left_as_it_is() -> None:
    request = parse_request(["--autotuning=tune", "accelerate.py", "launch"])
    assert unwrap_launcher(request) is request


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--num_machines=2", "t.py"), "2 machines; give hosts to autoconf-launch itself"),
        (("--cpu",), "given no script"),
        (("--config_file", "nope.yaml", "t.py"), "nope.yaml cannot be read"),
    ],
)
def test_what_cannot_be_launched_is_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        launch("accelerate", "launch", *words)


@pytest.mark.parametrize("words", [["./go.sh", "2"], ["bash", "go.sh"], ["sh", "-e", "go.sh"]])
def test_a_shell_script_is_refused_with_the_command_in_it(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("go.sh").write_text(
        "#!/bin/bash\n# torchrun old.py\nN=$1\nexport A=1\n"
        'OMP_NUM_THREADS=1 torchrun --nproc_per_node=$N \\\n   train.py "$@"\n'
    )
    line = 'OMP_NUM_THREADS=1 torchrun --nproc_per_node=$N train.py "$@"'
    with pytest.raises(ConfigError, match=re.escape(f"filled in: {line}") + "$"):
        unwrap_launcher(parse_request(words))
