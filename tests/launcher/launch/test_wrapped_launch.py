"""Commands of other launchers, and of Python, in place of a script."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

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
LR = ("--lr", "1")
ALONE, WITH_RANKS = ({"alone": is_alone} for is_alone in (True, False))
VARIABLES = {"variables": (("A", "1"), ("B", "c=d"))}
MULTIPROCESSING = "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n"


def make_programs(folder: Path, **texts: str) -> Path:
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The working directory, with Accelerate's file, without its default one.

    PATH has our Python and programs that are not installed everywhere.
    """
    programs = dict.fromkeys(("numactl", "fabric", "composer"), "exit 1")
    own = make_programs(tmp_path / "bin", uv="echo /envs/own/bin/python", **programs)
    monkeypatch.setenv("PATH", f"{own}:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(CONFIG)
    return tmp_path


def launch(*words: str) -> LaunchRequest:
    return unwrap_launcher(parse_request(["--autotuning=tune", *words]))


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("torchrun --nproc_per_node=2 t.py --lr 1", {"processes": 2, "script_args": LR}),
        ("torchrun t.py", {"processes": 1}),
        ("--num_gpus=2 torchrun t.py", {"processes": 2}),
        ("deepspeed t.py", {"processes": None}),
        ("--num_gpus=1 accelerate launch --num_processes=2 t.py", {"processes": 1}),
        (
            "-m accelerate.commands.launch -m pkg.train --lr 1",
            {"kind": "module", "script": "pkg.train", "script_args": LR},
        ),
        ("--no_python python -u t.py --lr 1", {"kind": "script", "script_args": LR}),
        ("-- python -u t.py -u 5", {"script_args": ("-u", "5"), "python_flags": ()}),
        (
            "-- python -Om pkg.train -W 1",
            {"kind": "module", "script": "pkg.train", "python_flags": ("-O",)},
        ),
        ("-- env A=1 B=c=d python t.py", ALONE | VARIABLES),
        ("-- A=1 B=c=d python t.py", ALONE | VARIABLES),
        (f"python3.{sys.version_info.minor} t.py --lr 1", ALONE | {"script_args": LR}),
        ("--num_gpus=2 -- python t.py", WITH_RANKS),
        ("--no_python python t.py", WITH_RANKS),
        ("-- python -m torch.distributed.run t.py", WITH_RANKS),
        ("-- uv run --frozen python t.py", {"python": "/envs/own/bin/python"}),
        ("-- uv run --frozen torchrun t.py", {"python": "/envs/own/bin/python"}),
    ],
)
def test_the_script_of_a_command_is_launched_as_the_command_says(
    line: str, facts: dict[str, Any]
) -> None:
    found = launch(*line.split())
    expected = {"script": "t.py", **facts}
    assert {name: getattr(found, name) for name in expected} == expected


def test_uv_run_may_name_a_script(folder: Path) -> None:
    (folder / "t.py").touch()
    found = launch("--", "uv", "run", "--frozen", str(folder / "t.py"))
    assert (found.python, found.script) == ("/envs/own/bin/python", str(folder / "t.py"))


@pytest.mark.parametrize(
    ("line", "is_passed"),
    [
        ("deepspeed t.py", True),
        ("deepspeed --no_local_rank t.py", False),
        ("--no_local_rank deepspeed t.py", False),
        ("torchrun t.py", False),
        ("accelerate launch t.py", False),
        ("-m torch.distributed.run t.py", False),
        ("-m torch.distributed.launch t.py", True),
        ("-m torch.distributed.launch --use_env t.py", False),
        ("-m torch.distributed.launch --use-env t.py", False),
    ],
)
def test_ranks_get_their_number_as_a_flag_if_their_launcher_passes_it(
    line: str, is_passed: bool
) -> None:
    assert bool(launch(*line.split()).local_rank_flag) is is_passed


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-- mpirun -np 2 python t.py", "mpirun is not a launcher known here"),
        ("-- fabric run --devices=2 t.py", "fabric is not a launcher known here"),
        ("-- composer run --devices=2 t.py", "composer is not a launcher known here"),
        ("-- env -i python t.py", "^env -i cannot be followed"),
        ("-- env - python t.py", "^env - cannot be followed"),
        ("-- env -C python t.py", "^env -C cannot be followed"),
        ("-- nice -n 5", r"nice -n 5 starts no program"),
        (
            "accelerate launch --num_machines=2 t.py",
            "2 machines; give hosts to autoconf-launch itself",
        ),
        ("accelerate launch --cpu", "given no script"),
        ("accelerate launch --config_file nope.yaml t.py", "nope.yaml cannot be read"),
    ],
)
def test_a_command_that_cannot_be_launched_is_refused_by_its_word(line: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        launch(*line.split())


@pytest.mark.parametrize("words", [("numactl", "-N", "0"), ("uv", "run")])
def test_a_wrapper_that_is_not_installed_is_named(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=f"{words[0]} is not on PATH"):
        launch("--", *words, "python", "t.py")


def test_the_file_of_accelerate_becomes_variables() -> None:
    found = launch(*["accelerate", "launch", "--config_file", "c.yaml", "train.py", "--bs", "8"])
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
def test_the_file_of_accelerate_sets_no_other_variable(section: str, key: str) -> None:
    Path("c.yaml").write_text(json.dumps({section: {key: "planted"}}))
    with pytest.raises(ConfigError, match=f"{section} of Accelerate's configuration has"):
        launch("accelerate", "launch", "--config_file", "c.yaml", "t.py")


def test_flags_of_accelerate_outweigh_its_file() -> None:
    words = "--config-file=c.yaml --mixed_precision fp16 --fsdp_version=1 --cpu --num_processes 2"
    found = launch("accelerate", "launch", *words.split(), "t.py")
    variables = dict(found.variables)
    assert (variables["ACCELERATE_MIXED_PRECISION"], variables["FSDP_VERSION"]) == ("fp16", "1")
    assert (variables["ACCELERATE_USE_CPU"], found.processes) == ("true", 2)


def test_the_default_file_of_accelerate_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "accelerate").mkdir()
    (folder / "accelerate" / "default_config.yaml").write_text(CONFIG)
    monkeypatch.setenv("HF_HOME", str(folder))
    assert launch("accelerate", "launch", "t.py").processes == 4


@pytest.mark.parametrize(
    ("stage", "steps", "variables"),
    [(3, None, ("3", "1")), (1, 1, ("1", "1")), ("auto", "auto", ("2", "4"))],
)
def test_numbers_of_accelerates_deepspeed_file_are_the_ones_that_count(
    stage: object, steps: object, variables: tuple[str, str]
) -> None:
    document: dict[str, object] = {"zero_optimization": {"stage": stage}}
    document |= {"gradient_accumulation_steps": steps} if steps else {}
    Path("ds.json").write_text(json.dumps(document))
    words = "--use_deepspeed --deepspeed_config_file ds.json --zero_stage=2"
    own = ("--gradient_accumulation_steps=4", "t.py")
    found = dict(launch("accelerate", "launch", *words.split(), *own).variables)
    names = ("ACCELERATE_DEEPSPEED_ZERO_STAGE", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
    assert tuple(map(found.get, names)) == variables


def test_an_accumulation_that_a_tune_could_not_change_is_refused() -> None:
    Path("ds.json").write_text('{"gradient_accumulation_steps": 2}')
    words = ["accelerate", "launch", "--use_deepspeed", "--deepspeed_config_file=ds.json", "t.py"]
    with pytest.raises(ConfigError, match='steps to 2; write "auto" there and give accelerate'):
        launch(*words)
    plain = unwrap_launcher(parse_request(words))
    assert dict(plain.variables)["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "2"


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("python t.py --lr 1", ()),
        ("python -m pkg.train --lr 1", ()),
        ("python -W ignore t.py --lr 1", ("-Wignore",)),
        ("python -Wignore -O t.py --lr 1", ("-Wignore", "-O")),
        ("python -uBI -X faulthandler t.py --lr 1", ("-B", "-I", "-Xfaulthandler")),
        ("python -s t.py --lr 1", ("-s",)),
    ],
)
def test_python_starts_one_process_with_its_flags_also_in_the_command_to_train_with(
    line: str, flags: tuple[str, ...]
) -> None:
    found = launch("--", *line.split())
    module = ("-m",) if found.kind == "module" else ()
    assert (found.alone, found.script_args, found.python_flags) == (True, LR, flags)
    command = (*launch_flags(found), found.script)
    assert command == ("--", our_python(), *flags, *module, found.script)
    assert parse_request(command).script == our_python()


@pytest.mark.parametrize(
    "prefix",
    [
        *("nice -n 5", "numactl -N 0", "nice taskset -c 0-1"),
        *("env -u A B=1", "env --unset=A -uC"),
    ],
)
def test_a_program_that_places_the_ranks_or_unsets_variables_stays_before_each_of_them(
    prefix: str,
) -> None:
    found = launch("--", *prefix.split(), "python", "t.py", *LR)
    assert (found.prefix, found.script, found.script_args) == (tuple(prefix.split()), "t.py", LR)
    again = launch(*launch_flags(found), found.script, *found.script_args)
    assert (again.prefix, again.script, again.alone) == (found.prefix, "t.py", True)


@pytest.fixture
def other(folder: Path) -> Path:
    """An environment that is not ours: a Python, and a launcher beside it."""
    return make_programs(folder / "env", python="", torchrun="", accelerate="")


@pytest.mark.parametrize(
    "line",
    [
        "-- PYTHON t.py -x",
        "-- PYTHON -m pkg.t -x",
        "--num_gpus=2 -- PYTHON t.py -x",
        "--no_python PYTHON -m pkg.t -x",
        "-- PYTHON -m torch.distributed.run --nproc_per_node=2 t.py -x",
    ],
)
def test_the_python_that_is_named_runs_the_script_and_stands_in_the_command(
    other: Path, line: str
) -> None:
    python = str(other / "python")
    found = launch(*line.replace("PYTHON", python).split())
    again = launch(*launch_flags(found), found.script, *found.script_args)
    assert (found.python, found.script_args) == (python, ("-x",))
    assert replace(again, argv=found.argv) == found


@pytest.mark.parametrize("line", ["ENV/torchrun", "ENV/accelerate launch", "-- python"])
def test_a_launcher_of_another_environment_runs_the_script_there(
    other: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(other))
    assert launch(*line.replace("ENV", str(other)).split(), "t.py").python == str(other / "python")


def test_a_script_that_starts_its_ranks_is_one_process() -> None:
    Path("spawns.py").write_text(MULTIPROCESSING)
    assert launch("--num_gpus=2", "--", "python", "spawns.py").alone


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (MULTIPROCESSING, ("--num_gpus", "2")),
        ("import helper\nhelper.start_both()\n", ("--include", "localhost:0,1")),
    ],
)
def test_a_script_that_was_seen_to_start_its_ranks_is_typed_as_one_process(
    text: str, flags: tuple[str, ...]
) -> None:
    Path("starts.py").write_text(text)
    seen = replace(launch("starts.py"), alone=True, processes=2, started=2)
    typed = launch_flags(as_typed(seen))
    assert typed[:2] == flags
    assert launch(*typed, "starts.py").alone


def test_a_script_is_left_as_it_is() -> None:
    request = parse_request(["--autotuning=tune", "accelerate.py", "launch"])
    assert unwrap_launcher(request) is request


@pytest.mark.parametrize("line", ["./go.sh 2", "bash go.sh", "sh -e go.sh"])
def test_a_shell_script_is_refused_with_the_command_in_it(line: str) -> None:
    Path("go.sh").write_text(
        "#!/bin/bash\n# torchrun old.py\nN=$1\nexport A=1\n"
        'OMP_NUM_THREADS=1 torchrun --nproc_per_node=$N \\\n   train.py "$@"\n'
    )
    command = 'OMP_NUM_THREADS=1 torchrun --nproc_per_node=$N train.py "$@"'
    with pytest.raises(ConfigError, match=re.escape(f"filled in: {command}") + "$"):
        unwrap_launcher(parse_request(line.split()))
