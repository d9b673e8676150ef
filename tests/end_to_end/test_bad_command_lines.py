"""Bad input to every verb, through the real command: one line, no traceback, the right exit code.

Most run in this process, one of each exit code in a separate one.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from autoconf_launch.launcher.cli import main

from ..launcher.report.fixed import finish, write_folder
from .frozen_texts import check_frozen_sentence

NO, USAGE, INFEASIBLE, HARDWARE = 1, 2, 3, 4
LLAMA = "--model llama3-8b --cluster 8xH100 --seq 4096 --global-batch 64"
GPT = "--family gpt3 --tokens 300B"
SIZED = f"{GPT} --gpus 160 --tflops-per-gpu 140"
FIT = (
    "",
    "--seq 4096 --global-batch 64",
    "--model llama3-8b --cluster 8xH100",
    "--model lama3-8b --cluster 8xH100 --seq 8 --global-batch 8",
    "--model nowhere/config.json --cluster 8xH100 --seq 8 --global-batch 8",
    "--model empty.json --cluster 8xH100 --seq 8 --global-batch 8",
    "--model bad.json --cluster 8xH100 --seq 8 --global-batch 8",
    "--model llama3-8b --cluster 8xH1000 --seq 8 --global-batch 8",
    "--model llama3-8b --cluster 0xH100 --seq 8 --global-batch 8",
    "--model llama3-8b --cluster 8x --seq 8 --global-batch 8",
    "--model llama3-8b --cluster lokal --seq 8 --global-batch 8",
    "--model llama3-8b --cluster nowhere.yaml --seq 8 --global-batch 8",
    "--model llama3-8b --cluster wrong_key.yaml --seq 8 --global-batch 8",
    "--model llama3-8b --cluster wrong_gpu.yaml --seq 8 --global-batch 8",
    "--model llama3-8b --cluster no_nodes.yaml --seq 8 --global-batch 8",
    "--model llama3-8b --cluster top_key.yaml --seq 8 --global-batch 8",
    "--model llama3-8b --cluster 8xV100 --seq 8 --global-batch 8",
    f"{LLAMA} --cluster 8xA100",
    f"{LLAMA} --seq 8192",
    f"{LLAMA} --gated --no-gated",
    f"{LLAMA} --layer 3",
    f"{LLAMA} --tp 3",
    f"{LLAMA} --tp two",
    f"{LLAMA} --micro-batch 7",
    f"{LLAMA} --zero 4",
    f"{LLAMA} --recompute som",
    f"{LLAMA} --recompute selective --recompute-layers 2",
    f"{LLAMA} --offload disk",
    f"{LLAMA} --optimizer adan",
    f"{LLAMA} --trainer megatrn",
    f"{LLAMA} --precision int4",
    f"{LLAMA} --memory-limit 60",
    f"{LLAMA} --memory-limit 100GB",
    f"{LLAMA} --freeze embeddings",
    f"{LLAMA} --experts-per-token 2",
    f"{LLAMA} --experts 8 --expert-ffn 64 --experts-per-token 9",
    f"{LLAMA} --time-limit 5",
    f"{LLAMA} -- python train.py",
    "--cluster 8xH100 --",
    "--cluster 8xH100 -- python nowhere.py",
    f"{LLAMA} extra",
    f"{LLAMA} --tp 16",
    "--model llama3-8b --cluster 8xH100 --seq 4096 --global-batch 7 --tp 4",
    "--model /dev/zero --cluster 8xH100 --seq 8 --global-batch 8",
    "--cluster 8xH100 --seq 1 --global-batch 8",
    f"{LLAMA} --qqqqqq 2",
    f"{LLAMA} --memory 2GB",
    f"{LLAMA} --micro-batch -1",
    f"{LLAMA} --heads 7",
    f"{LLAMA} --memory-limit nan",
    "--model llama3-8b --cluster 8xA100 --seq 8 --global-batch 8 --precision fp8",
    f"--model llama3-8b --cluster 8xH100 --seq {'9' * 40} --global-batch 8",
    "--model llama3-8b --cluster 8xH100 --seq 1e99 --global-batch 8",
)
PLAN = (
    "--model llama3-8b --seq 8 --global-batch 8",
    f"{LLAMA} --tp 2",
    f"{LLAMA} --top -1",
    f"{LLAMA} --deadline 5d",
    f"{LLAMA} --max-cost 5M",
    f"{LLAMA} --tokens 300",
    f"{LLAMA} --tokens 300Q",
    f"{LLAMA} --tokens 1T --deadline 5",
    f"{LLAMA} --tokens 1T --max-cost much",
    f"{LLAMA} --usd-per-gpu-hour free",
    f"{LLAMA} --objective speed",
    f"{LLAMA} --csv nowhere/plan.csv",
    f"{LLAMA} --csv empty",
    f"{LLAMA} --html nowhere/plan.html",
    f"{LLAMA} --html empty",
    f"{LLAMA} --html train.py/plan.html",
    f"{LLAMA} --cluster-template",
    f"{LLAMA} --headroom 100",
    f"{LLAMA} --export megatron",
    f"{LLAMA} --row 2",
    f"{LLAMA} --export megatorn -o out",
    "--model llama3-8b --cluster mixed.yaml --cluster 8xH100 --seq 8 --global-batch 8",
    f"{LLAMA} --weights nf4",
    "--model llama3-8b --cluster 8xMI300X --seq 8 --global-batch 8 --objective cost",
    f"{LLAMA} --headroom -5",
    f"{LLAMA} -o x",
    f"{LLAMA} --export native -o x --row 99",
    f"{LLAMA} --export native -o x --row 0",
    f"{LLAMA} --export native -o /proc/none/x",
    "--model llama3-8b --cluster 8xH100 --seq 8kb --global-batch 8",
)
RECOMMEND = (
    "",
    f"{GPT} --gpus 8 --tflops-per-gpu 140",
    f"{GPT} --max-days 5 --tflops-per-gpu 140",
    f"{GPT} --max-days 5 --gpus 8",
    f"{SIZED} --max-days 0",
    f"{SIZED} --max-days 5 --model-size 5000",
    f"{SIZED} --model-size 5 --num-nodes 7",
    f"{SIZED} --model-size 5 --cluster 8xH100",
    f"{GPT} --cluster 8xH100 --num-nodes 2 --max-days 3",
    f"{SIZED} --model-size 5 --export nemo2",
    f"{SIZED} --model-size 5 --custom-config c.yaml",
    f"{SIZED} --model-size 5 --wandb-project p",
    f"{SIZED} --model-size 5 --base-config nowhere/b.yaml",
    f"{SIZED} --model-size 5 --base-config b.yaml --export nemo3",
    f"{SIZED} --model-size 5 --assume restarts=5",
    f"{SIZED} --model-size 5 --assume restart_s=soon",
    f"{SIZED} --model-size 5 --vocabulary 5",
    f"{SIZED} --model-size 5 --tokens 2T",
    f"{SIZED} --model-size 5 --html empty",
    f"{SIZED} --max-day 5",
    f"{SIZED} --max-days nan",
    f"{SIZED} --max-days 5 --assume restart=1",
    f"{GPT} --cluster 8xH1000 --max-days 5",
    "--family gpt3 --tokens 300X --gpus 160 --tflops-per-gpu 140 --max-days 5",
    "--family gtp3 --tokens 300B --gpus 160 --tflops-per-gpu 140 --max-days 1",
    "--family 'g t' --tokens 300B --gpus 160 --tflops-per-gpu 140 --max-days 1",
)
SEARCH = (
    "search_config=gpt3/6b",
    "search_config=gpt4/5b",
    "--dry-runs search_config=gpt3/5b",
    "--config-dir empty",
    "--top few",
    "--top 3 --json",
    "--dry-run --fresh",
    "cluster_type=slrum",
    "--dry-run nonsense",
    "search_config.train_settings.num_node=3 --dry-run",
    "search_config=gpt3/5b training_container=x",
)
SHOW = (
    "",
    "nowhere",
    "train.py",
    "empty",
    "outer",
    "newer",
    "older",
    "damaged",
    "results --format xml",
    "results --json --format csv",
    "results --follow --format md",
    "results --html nowhere/r.html",
    "results --html empty",
    "results --html train.py/r.html",
    "results --html r.html --follow",
    "results --html r.html --details",
    "results --json --details",
    "results --jsn",
)
SPACES = (
    "--config nowhere.json",
    "--config bad.json",
    "--config unknown_key.json",
    "--config config.json --effort huge",
    "--tunerr-type random",
)
COMPARE = (
    "results",
    "results nowhere",
    "results empty",
    "results other",
    "results damaged",
)
EXPORT = (
    "results",
    "results --to megatorn",
    "nowhere --to megatron",
    "unmeasured --to deepspeed",
    "config.json --to megatron",
    "results --to deepspeed -o nowhere/x.json",
    "results --to deepspeed -o x.json --json",
)
VALIDATE = (
    "",
    "nowhere.csv",
    "bad.csv",
    "results",
    "bad.csv --calibrate 0",
    "bad.csv --calibrate many",
    "bad.csv --seed 3",
)
TUNE = (
    "",
    "--autotuning run train.py",
    "nowhere.py",
    "--num_gpu 2 train.py",
    "--num_gpus two train.py",
    "--num_gpus 1 --num_gpus 2 train.py",
    "--budget 5 train.py",
    "--effort huge train.py --config config.json",
    "--metric speed train.py --config config.json",
    "--good-enough lots train.py",
    "--memory-limit 10 train.py",
    "--knob workers train.py",
    "--arg batch train.py",
    "--report-to wanddb train.py --config config.json",
    "--tracker-project p train.py",
    "--wandb-api-key-file k train.py",
    "--quiet --log_level debug train.py",
    "--keep-global-batch --allow-global-batch-change train.py",
    "--keep-global-batch --max-train-batch-size 8 train.py",
    "--dialect keras train.py --config config.json",
    "--tuning-space nowhere.hjson train.py --config config.json",
    "--tuner-type gridserch train.py --config config.json",
    "--model-info '{' train.py --config config.json",
    "--seed -3 train.py --config config.json",
    "--start-profile-step 9 train.py --config config.json",
    "train.py --config bad.json",
    "train.py --config unknown_key.json",
    "--hostfile nowhere train.py --config config.json",
    "--module --no_python train",
    "--max_restarts 3 train.py",
    "--tee 3 train.py",
)
PLAIN = (
    "plam",
    "--budget 20m train.py",
    "--fresh train.py",
    "--completion tcsh",
    "--schema konfig",
    "--nproc_per_node 0 train.py",
)
OTHER_CODES = (
    (NO, "fit --model llama3-70b --cluster H100 --seq 4096 --global-batch 8", "does not fit"),
    (NO, "fit --model gpt2 --seq 8 --global-batch 99 --cluster 99xlocal", "does not fit"),
    (
        INFEASIBLE,
        "plan --model llama3-70b --cluster H100 --seq 4096 --global-batch 8 --memory-limit 2GB",
        "fits: the smallest need is",
    ),
    (INFEASIBLE, f"plan {LLAMA} --tokens 15T --deadline 1h", "no layout is within the limits"),
    (
        2,
        "search cluster_type=local run_training_hp_search=False engine=vllm",
        "vLLM is not installed; install it in an environment of its own",
    ),
    (HARDWARE, f"recommend {GPT} --cluster local --max-days 3", "this machine has no GPU"),
    (HARDWARE, "--num_gpus gpu train.py", "no GPU is visible"),
    (
        2,
        "tune --mp_size 3 --num_gpus 2 train.py --batch_size 8",
        "mp_size is 3, but must divide the 2",
    ),
    (HARDWARE, "tune --nproc_per_node gpu train.py --config config.json", "no GPU is visible"),
)
"""Answers that are no, and what this machine lacks."""
VERBS = {
    "fit": FIT,
    "plan": PLAN,
    "recommend": RECOMMEND,
    "search": SEARCH,
    "show": SHOW,
    "show spaces": SPACES,
    "compare": COMPARE,
    "export": EXPORT,
    "validate": VALIDATE,
    "tune": TUNE,
    "": PLAIN,
}
CASES = [
    (USAGE, " ".join(filter(None, (verb, line))), "")
    for verb, lines in VERBS.items()
    for line in lines
]
"""Their sentences are kept in ``frozen/sentences.txt``."""
PROCESSES = [CASES[-6], OTHER_CODES[3]]
"""A word that is not a verb, and a verb that finds nothing."""
FILES = {
    "train.py": "print(1)\n",
    "bad.json": '{"a": ',
    "empty.json": "{}",
    "config.json": '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}}',
    "unknown_key.json": '{"train_micro_batch_size_per_gpu": 1, "autotuning": {"tuner_typ": 1}}',
    "bad.csv": "a,b\n1,2\n",
    "wrong_key.yaml": "nodes: [{gpu: H100, cuont: 2}]\n",
    "wrong_gpu.yaml": "nodes: [{gpu: A100-SXM-81GB}]\n",
    "no_nodes.yaml": "node: 3\n",
    "top_key.yaml": "nodes: [{gpu: H100}]\nusd_per_hour: 3\n",
    "mixed.yaml": "nodes: [{gpu: H100}, {gpu: A100-SXM-80GB}]\n",
    "newer/journal.jsonl": '{"format":"autoconf-launch journal","version":99,"fingerprint":{}}\n',
    "older/journal.jsonl": '{"format":"autoconf-launch journal","version":0,"fingerprint":{}}\n',
    "damaged/journal.jsonl": '{"format"\n{"profiled":true}\n',
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files and results, good and bad."""
    made = tmp_path_factory.mktemp("bad")
    (made / "empty").mkdir()
    for name, text in FILES.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(text)
    for name, script in (("results", "train.py"), ("other", "finetune.py")):
        finish(write_folder(made / name))
        document = {"script": script, "metric": "throughput"}
        (made / name / "env.json").write_text(json.dumps(document))
    write_folder(made / "outer" / "autotuning_results")
    write_folder(made / "unmeasured", [])
    return made


def check(code: int, out: str, err: str, expected: int, says: str) -> None:
    """Require one line of at most two sentences that says it, and the right exit code."""
    assert code == expected, err
    assert says in err
    assert err.count("\n") == 1, err
    assert "Traceback" not in err + out
    assert expected != USAGE or not out
    assert len(re.findall(r"[a-z)'\"]\. (?=[A-Z])", err)) <= 1, err


def list_(cases: Sequence[tuple[int, str, str]]) -> list[object]:
    return [pytest.param(*case, id=case[1] or "nothing") for case in cases]


@pytest.mark.parametrize(("code", "line", "says"), list_([*CASES, *OTHER_CODES]))
def test_bad_input_is_one_line_with_its_exit_code(
    code: int,
    line: str,
    says: str,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(workspace)
    before = sorted(workspace.rglob("*"))
    found = main(shlex.split(line))
    said = capsys.readouterr()
    check(found, said.out, said.err, code, says)
    if "local" not in line:  # what this machine has is said then
        check_frozen_sentence(line, said.err.strip().replace(str(workspace), "FOLDER"))
    assert sorted(workspace.rglob("*")) == before


@pytest.mark.parametrize(("code", "line", "says"), list_(PROCESSES))
def test_a_process_ends_as_the_command_does(
    code: int, line: str, says: str, workspace: Path
) -> None:
    command = [sys.executable, "-m", "autoconf_launch", *shlex.split(line)]
    done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False)
    check(done.returncode, done.stdout, done.stderr, code, says)


def test_there_are_enough_of_them() -> None:
    assert len({line for _, line, _ in (*CASES, *OTHER_CODES)}) >= 150
