"""Secrets in a command: in no result, and back in their place when the winner is trained."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Place, wait_until

TOKEN = 'it\'s "a" $TOKEN'
SCRIPT = (Path(__file__).parent / "scripts" / "plain_loop.py").read_text().replace("4096", "256")
ARGUMENTS = """
parser.add_argument("--max_tokens", type=int)
parser.add_argument("--tokenizer")
parser.add_argument("--hf_token")
"""
FIRST_PARSED = "arguments = parser.parse_args()"
TUNE = (
    "--autotuning=tune",
    "--num_gpus=1",
    "--max-parallel-trials=1",
    "--soak_steps=0",
    "--end_profile_step=4",
    "--budget=1trials",
    "--allow-global-batch-change",
)


@pytest.fixture
def script(place: Place, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = place.folder / "mine.py"
    text = SCRIPT.replace(FIRST_PARSED, f"{ARGUMENTS}{FIRST_PARSED}")
    path.write_text(f"{text}\nimport json\nprint(json.dumps(sys.argv[1:]))\n")
    return str(path)


@pytest.mark.slow
def test_the_written_command_reads_the_secret_from_a_variable_and_runs(
    place: Place, script: str
) -> None:
    words = ("--tokenizer=a b", "--max_tokens", "16", "--hf_token", TOKEN, "--batch-size", "4")
    code, output = place.run(*TUNE, script, *words)
    assert code == 0, output
    assert TOKEN not in output
    for path in filter(Path.is_file, place.folder.rglob("*")):
        assert TOKEN.encode() not in path.read_bytes(), path
        assert json.dumps(TOKEN)[1:-1].encode() not in path.read_bytes(), path
    commands = {place.results / "run_optimal.sh", place.results / "cmd_optimal.txt"}
    commands.add(place.results / "z0_gas1_tmbspg4" / "cmd.txt")
    assert all("--max_tokens 16" in path.read_text() for path in commands)
    configuration = place.results / "z0_gas1_tmbspg4" / "config.json"
    assert stat.S_IMODE(configuration.stat().st_mode) == 0o600
    bare = start(place)
    assert bare.returncode != 0
    assert bare.stderr.rstrip().endswith(
        "HF_TOKEN: is not set; export it with the secret that this command needs"
    )
    done = start(place, HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    given = [word for word in said if not word.startswith("--local")]
    assert given == list(words), done.stdout


def start(place: Place, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script that a tune leaves, as another shell starts it."""
    kept = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    environment = {**kept, "PATH": path, "AUTOCONF_TEST_MARK": place.mark, **variables}
    return subprocess.run(
        (str(place.results / "run_optimal.sh"),),
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )


@pytest.mark.slow
def test_an_argument_that_only_sounds_like_a_secret_is_measured_anew(
    place: Place, script: str
) -> None:
    assert place.run(*TUNE, script, "--batch-size=4", "--max_tokens", "16")[0] == 0
    code, output = place.run(*TUNE, script, "--batch-size=4", "--max_tokens", "4096")
    assert (code, "Starting over because arguments changed" in output) == (0, True), output


SECRETS = {
    "HUB_TOKEN": f"hf_PLANT{'A' * 30}",
    "WANDB_API_KEY": "PLANT-1/2 3",
    "DATABASE": "postgres://me:PLANT12345@host/db",
}
PRINTS = """
import os, time, urllib.parse
if arguments.batch_size == 8:
    token = os.environ["HUB_TOKEN"]
    for part in (token[:9], token[9:], f"\\n{dict(os.environ)} {vars(arguments)}\\n"):
        os.write(1, part.encode())
        time.sleep(0.05)
    if not os.path.exists("hung"):
        open("hung", "w").close()
        time.sleep(100)
    key, url = urllib.parse.quote(os.environ["WANDB_API_KEY"]), os.environ["DATABASE"]
    raise RuntimeError(f"401 for https://{key}@host/{token} with {arguments} on {url}")
"""


@pytest.mark.slow
def test_a_killed_and_continued_tune_shows_no_secret_of_the_environment(
    place: Place, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_DATA_HOME", str(place.folder / "history"))
    path = Path(script)
    path.write_text(path.read_text().replace(FIRST_PARSED, f"{FIRST_PARSED}{PRINTS}"))
    knob = "--knob=train_micro_batch_size_per_gpu=[8]"
    flags = (*(flag for flag in TUNE if "budget" not in flag), knob)
    words = (*flags, script, "--batch-size=4", "--hf_token", "PLANT-argument")
    tune = place.start(*words)
    wait_until((place.folder / "hung").exists, "the trial never hung")
    require_hidden(place, "")
    tune.kill()
    screen, _ = tune.communicate()
    wait_until(lambda: not place.living(), "processes are left behind")
    require_hidden(place, screen)
    log = (place.results / "z0_gas1_tmbspg8" / "stdout.log").read_text()
    assert log.startswith("${HUB_TOKEN}\n{")
    assert "'hf_token': '${HF_TOKEN}'" in log
    code, screen = place.run(*words)
    assert (code, "401 for https://${WANDB_API_KEY}@host/${HUB_TOKEN} with" in screen) == (0, True)
    require_hidden(place, screen)
    for flag in ("--details", "--json"):
        require_hidden(place, place.run("show", "autotuning_results", flag)[1])
    assert "history" in {path.name for path in place.folder.iterdir()}


RAISES = """
{indent}import os
{indent}key, token = arguments.hf_token, os.environ["HUB_TOKEN"]
{indent}raise RuntimeError(f"401 for https://me:{{key}}@hub/x?token={{token}}")
"""
STEP, END = "        optimizer.step()\n", "sys.stdout.write("


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "indent", "folder"),
    [(STEP, 8, "profile_model_info"), (END, 4, "z0_gas1_tmbspg4_soak")],
    ids=["at its first step", "after its epoch"],
)
def test_a_script_that_raises_shows_no_secret(
    place: Place,
    script: str,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    indent: int,
    folder: str,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(place.folder / "history"))
    path = Path(script)
    raises = RAISES.format(indent=" " * indent)
    path.write_text(path.read_text().replace(before, f"{raises}{before}"))
    flags = [flag for flag in TUNE if "soak" not in flag]
    with monkeypatch.context() as given:
        for name, value in SECRETS.items():
            given.setenv(name, value)
        words = ("--soak-steps=20", script, "--batch-size=4", "--hf_token", "PLANT-argument")
        code, screen = place.run(*flags, *words)
    require_hidden(place, screen)
    assert (code, "401 for https://me:${HF_TOKEN}@hub/x" in screen) == (3, True), screen
    said = (place.results / folder / "result.json").read_text()
    assert "401 for https://me:${HF_TOKEN}@hub/x?token=${HUB_TOKEN}" in said
    for shown in (("--details",), ("--json",), ("--html", "report.html")):
        require_hidden(place, place.run("show", "autotuning_results", *shown)[1])


def require_hidden(place: Place, screen: str) -> None:
    """No value is on the screen or in a file but the script."""
    assert "PLANT" not in screen
    for path in filter(Path.is_file, place.folder.rglob("*")):
        assert path.name == "mine.py" or b"PLANT" not in path.read_bytes(), path
