"""A launch without tuning, with small scripts that need no torch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

import pytest

from .conftest import Place, wait_until


def script(place: Place, text: str) -> str:
    path = place.folder / "script.py"
    path.write_text(text)
    return str(path)


def test_each_rank_gets_its_variables_and_the_words_that_were_typed(place: Place) -> None:
    code, output = place.here(
        "--num_gpus=2",
        script(
            place,
            "import json, os, pathlib, sys\n"
            "names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR')\n"
            "values = [os.environ[n] for n in names] + sys.argv[1:]\n"
            "pathlib.Path('rank' + os.environ['RANK']).write_text(json.dumps(values))\n",
        ),
        "--lr",
        "it's 1\" wide",
    )
    assert code == 0, output
    ranks = [json.loads((place.folder / f"rank{r}").read_text()) for r in range(2)]
    assert ranks == [[str(r), str(r), "2", "127.0.0.1", "--lr", "it's 1\" wide"] for r in range(2)]


def test_a_list_to_search_is_its_first_value_in_a_launch_where_nothing_varies(
    place: Place,
) -> None:
    listed = {"train_micro_batch_size_per_gpu": [2, 4], "gradient_accumulation_steps": 2}
    place.write_config(listed)
    path = script(place, "import sys; print(open(sys.argv[-1]).read())")
    code, output = place.here("--num_gpus=1", path, "--config", "config.json")
    assert code == 0, output
    assert json.loads(output)["train_micro_batch_size_per_gpu"] == 2


def test_no_local_rank_leaves_the_arguments_alone(place: Place) -> None:
    path = script(place, "import sys; sys.exit(len(sys.argv) - 1)")
    assert place.here("--no_local_rank", path)[0] == 0


def test_the_first_failure_ends_the_others_and_its_code_is_ours(place: Place) -> None:
    text = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(5)\ntime.sleep(60)\n"
    started_s = time.monotonic()
    assert place.here("--num_gpus=2", script(place, text))[0] == 5
    assert time.monotonic() - started_s < 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_pass_through_to_the_ranks(place: Place, number: signal.Signals) -> None:
    text = (
        "import pathlib, signal, sys, time\n"
        "def stop(number, frame):\n"
        "    sys.exit(40 + number)\n"
        f"signal.signal({int(number)}, stop)\n"
        "pathlib.Path('ready').write_text('')\n"
        "time.sleep(60)\n"
    )
    process = place.start(script(place, text))
    wait_until((place.folder / "ready").exists, "no rank is ready")
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 40 + number, output


def test_a_module_is_launched_by_its_name(place: Place) -> None:
    (place.folder / "trainer.py").write_text("import sys; sys.exit(6)")
    assert place.here("--module", "trainer")[0] == 6


def test_a_program_is_launched_without_python(place: Place) -> None:
    assert place.here("--no_python", "--no_local_rank", "/bin/false")[0] == 1


def test_a_config_that_leaves_values_open_reaches_the_script_resolved(place: Place) -> None:
    place.write_config(
        "train_micro_batch_size_per_gpu: [2, 4]\nzero_optimization: {stage: all}\nmine: 1\n",
        "config.yaml",
    )
    text = (
        "import pathlib, sys\n"
        "pathlib.Path('seen').write_text(pathlib.Path(sys.argv[-1]).read_text())\n"
    )
    code, output = place.here(script(place, text), "--config", "config.yaml")
    assert code == 0, output
    seen = json.loads((place.folder / "seen").read_text())
    assert seen["train_micro_batch_size_per_gpu"] == 2
    assert seen["mine"] == 1


TELL = (
    "import json, os, pathlib\n"
    "told = dict(os.environ, CORES=sorted(os.sched_getaffinity(0)))\n"
    "pathlib.Path('rank' + os.environ['RANK']).write_text(json.dumps(told))\n"
)


def tell(place: Place, rank: int, *names: str) -> list[object]:
    document = json.loads((place.folder / f"rank{rank}").read_text())
    return [document[name] for name in names]


def test_ranks_see_the_gpus_that_are_included(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = place.folder / "nvidia-smi"
    rows = "".join(f"{i}, GPU-{i}, NVIDIA X, 1000\n" for i in range(4))
    program.write_text(f"#!/bin/sh\nprintf '{rows}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place.folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    code, output = place.here("--include", "localhost:1,3", script(place, TELL))
    assert code == 0, output
    names = ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "WORLD_SIZE")
    assert [tell(place, rank, *names) for rank in range(2)] == [
        ["1,3", "0", "2"],
        ["1,3", "1", "2"],
    ]


def test_on_a_machine_without_gpus_included_slots_are_ranks(place: Place) -> None:
    code, output = place.here("--include", "localhost:1,3", script(place, TELL))
    assert code == 0, output
    assert tell(place, 1, "RANK", "LOCAL_RANK", "WORLD_SIZE") == ["1", "1", "2"]


def hostfile(place: Place) -> str:
    """Two hosts that are both played by this machine; nothing resolves their names."""
    (place.folder / "hosts").write_text("first.invalid slots=1\nsecond.invalid slots=2\n")
    return "hosts"


def test_hosts_that_are_started_by_hand_share_out_the_ranks(place: Place) -> None:
    path = script(place, TELL)
    for node_rank in ("0", "1"):
        flags = ("--hostfile", hostfile(place), "--no_ssh", "--node_rank", node_rank)
        code, output = place.here(*flags, path)
        assert code == 0, output
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CROSS_RANK", "MASTER_ADDR", "MASTER_PORT")
    address = ["first.invalid", "29500"]
    assert [tell(place, rank, *names) for rank in range(3)] == [
        ["0", "0", "3", "0", *address],
        ["1", "0", "3", "1", *address],
        ["2", "1", "3", "1", *address],
    ]


def test_two_launchers_form_one_group(place: Place) -> None:
    text = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "one = torch.ones(1)\n"
        "dist.all_reduce(one)\n"
        "assert one.item() == dist.get_world_size() == 2\n"
        "dist.barrier()\n"  # a rank that leaves early can take its peer's threads down
        "dist.destroy_process_group()\n"
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    flags = ("--nnodes=2", "--nproc-per-node=1", f"--rdzv-endpoint=127.0.0.1:{port}")
    path = script(place, text)
    both = [place.start(*flags, f"--node-rank={k}", "--no_local_rank", path) for k in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
def test_a_host_that_cannot_be_reached_is_named_in_one_sentence(place: Place) -> None:
    code, output = place.here("--hostfile", hostfile(place), script(place, "1 / 0"))
    assert (code, output.count("\n")) == (4, 1), output
    assert output.startswith("autoconf-launch: Host first.invalid ")


def test_each_rank_runs_on_the_cores_that_it_is_bound_to(place: Place) -> None:
    own = sorted(os.sched_getaffinity(0))
    if len(own) < 2:
        pytest.skip("two ranks need two cores")
    cores = f"{own[0]},{own[1]}"
    flags = ("--num_gpus=2", "--bind_cores_to_rank", "--bind_core_list", cores)
    code, output = place.here(*flags, script(place, TELL))
    assert code == 0, output
    names = ("CORES", "OMP_NUM_THREADS")
    assert [tell(place, rank, *names) for rank in range(2)] == [[[own[0]], "1"], [[own[1]], "1"]]


def test_each_rank_writes_to_a_log_of_its_own(place: Place) -> None:
    text = (
        "import os, sys\n"
        "print('out', os.environ['RANK'])\n"
        "print('err', os.environ['RANK'], file=sys.stderr)\n"
    )
    flags = ("--num_gpus=2", "--enable_each_rank_log", "logs")
    code, output = place.here(*flags, script(place, text))
    assert (code, output) == (0, "")
    logs = sorted((place.folder / "logs").iterdir(), key=lambda path: path.name[-5])
    assert [log.name[14:] for log in logs] == ["_rank0.log", "_rank1.log"]
    assert [log.read_text() for log in logs] == ["out 0\nerr 0\n", "out 1\nerr 1\n"]


def test_a_saved_pid_takes_signals_and_is_removed_in_the_end(place: Place) -> None:
    text = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "pathlib.Path('ready').write_text('')\n"
        "time.sleep(60)\n"
    )
    process = place.start("--save_pid", script(place, text))
    wait_until((place.folder / "ready").exists, "no rank is ready")
    path = Path(tempfile.gettempdir()) / f"{process.pid}.ds"
    os.kill(int(path.read_text()), signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 9
    assert not path.exists()


def test_a_flag_without_effect_is_said_to_have_none(place: Place) -> None:
    code, output = place.here("--no_ssh_check", script(place, ""))
    assert code == 0
    assert "warning: --no_ssh_check has no effect: " in output


def test_a_foreign_config_is_left_alone(place: Place) -> None:
    place.write_config({"layers": [1, 2]})
    text = "import sys; sys.exit(sys.argv[-1] != 'config.json')"
    assert place.here(script(place, text), "--config", "config.json")[0] == 0
