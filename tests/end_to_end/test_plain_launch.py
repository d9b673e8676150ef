"""A launch without tuning, with small scripts that need no torch."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from .conftest import Place


def script(place: Place, text: str) -> str:
    path = place.folder / "script.py"
    path.write_text(text)
    return str(path)


def test_each_rank_gets_its_variables_and_its_local_rank(place: Place) -> None:
    code, output = place.run(
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
    assert ranks == [
        [str(r), str(r), "2", "127.0.0.1", f"--local_rank={r}", "--lr", "it's 1\" wide"]
        for r in range(2)
    ]


def test_no_local_rank_leaves_the_arguments_alone(place: Place) -> None:
    path = script(place, "import sys; sys.exit(len(sys.argv) - 1)")
    assert place.run("--no_local_rank", path)[0] == 0


def test_the_first_failure_ends_the_others_and_its_code_is_ours(place: Place) -> None:
    text = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(5)\ntime.sleep(60)\n"
    started_s = time.monotonic()
    assert place.run("--num_gpus=2", script(place, text))[0] == 5
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
    wait_for(place.folder / "ready")
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 40 + number, output


def test_a_module_is_launched_by_its_name(place: Place) -> None:
    (place.folder / "trainer.py").write_text("import sys; sys.exit(6)")
    assert place.run("--module", "trainer")[0] == 6


def test_a_program_is_launched_without_python(place: Place) -> None:
    assert place.run("--no_python", "--no_local_rank", "/bin/false")[0] == 1


def test_a_config_that_leaves_values_open_reaches_the_script_resolved(place: Place) -> None:
    place.write_config(
        "train_micro_batch_size_per_gpu: [2, 4]\nzero_optimization: {stage: all}\nmine: 1\n",
        "config.yaml",
    )
    text = (
        "import pathlib, sys\n"
        "pathlib.Path('seen').write_text(pathlib.Path(sys.argv[-1]).read_text())\n"
    )
    code, output = place.run(script(place, text), "--config", "config.yaml")
    assert code == 0, output
    seen = json.loads((place.folder / "seen").read_text())
    assert seen["train_micro_batch_size_per_gpu"] == 2
    assert seen["mine"] == 1


def test_a_foreign_config_is_left_alone(place: Place) -> None:
    place.write_config({"layers": [1, 2]})
    text = "import sys; sys.exit(sys.argv[-1] != 'config.json')"
    assert place.run(script(place, text), "--config", "config.json")[0] == 0


def wait_for(path: Path, timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not path.exists():
        assert time.monotonic() < deadline_s, f"{path.name} did not appear"
        time.sleep(0.02)
