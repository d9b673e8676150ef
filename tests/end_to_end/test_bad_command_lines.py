"""Bad input to every verb, through the real command: one line, no traceback, the right exit code.

Most run in this process, some as processes of their own.
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
    ("", "required: --seq, --global-batch"),
    ("--seq 4096 --global-batch 64", "--model"),
    ("--model llama3-8b --cluster 8xH100", "--seq"),
    ("--model lama3-8b --cluster 8xH100 --seq 8 --global-batch 8", "did you mean 'llama3-8b'?"),
    ("--model nowhere/config.json --cluster 8xH100 --seq 8 --global-batch 8", "no such file"),
    ("--model empty.json --cluster 8xH100 --seq 8 --global-batch 8", "neither a Hugging Face"),
    ("--model bad.json --cluster 8xH100 --seq 8 --global-batch 8", "cannot be read"),
    ("--model llama3-8b --cluster 8xH1000 --seq 8 --global-batch 8", "did you mean"),
    ("--model llama3-8b --cluster 0xH100 --seq 8 --global-batch 8", "out of range"),
    ("--model llama3-8b --cluster 8x --seq 8 --global-batch 8", "is not known; write"),
    ("--model llama3-8b --cluster lokal --seq 8 --global-batch 8", "did you mean 'local'?"),
    ("--model llama3-8b --cluster nowhere.yaml --seq 8 --global-batch 8", "nowhere.yaml"),
    (
        "--model llama3-8b --cluster wrong_key.yaml --seq 8 --global-batch 8",
        "did you mean 'count'",
    ),
    ("--model llama3-8b --cluster wrong_gpu.yaml --seq 8 --global-batch 8", "A100"),
    ("--model llama3-8b --cluster no_nodes.yaml --seq 8 --global-batch 8", "nodes"),
    ("--model llama3-8b --cluster top_key.yaml --seq 8 --global-batch 8", "usd_per_hour"),
    ("--model llama3-8b --cluster 8xV100 --seq 8 --global-batch 8", "does not compute in bf16"),
    (f"{LLAMA} --cluster 8xA100", "--cluster is given twice"),
    (f"{LLAMA} --seq 8192", "--seq is given twice"),
    (f"{LLAMA} --gated --no-gated", "given twice"),
    (f"{LLAMA} --layer 3", "did you mean '--layers'?"),
    (f"{LLAMA} --tp 3", "valid products: 1 2 4 8"),
    (f"{LLAMA} --tp two", "--tp 'two' must be a whole number"),
    (f"{LLAMA} --micro-batch 7", "is not a multiple"),
    (f"{LLAMA} --zero 4", "--zero '4'"),
    (f"{LLAMA} --recompute som", "known: full, none, selective"),
    (
        f"{LLAMA} --recompute selective --recompute-layers 2",
        "--recompute-layers needs --recompute full",
    ),
    (f"{LLAMA} --offload disk", "--offload 'disk'"),
    (f"{LLAMA} --optimizer adan", "did you mean 'adam'?"),
    (f"{LLAMA} --trainer megatrn", "did you mean 'megatron'?"),
    (f"{LLAMA} --precision int4", "--precision 'int4'"),
    (f"{LLAMA} --memory-limit 60", "has no unit; write for example 60GB"),
    (f"{LLAMA} --memory-limit 100GB", "--memory-limit is 93.1 GiB, but"),
    (f"{LLAMA} --freeze embeddings", "did you mean 'embedding'?"),
    (f"{LLAMA} --experts-per-token 2", "--experts-per-token needs --experts"),
    (f"{LLAMA} --experts 8 --expert-ffn 64 --experts-per-token 9", "per_token is 9"),
    (f"{LLAMA} --time-limit 5", "--time-limit is for the script after --"),
    (f"{LLAMA} -- python train.py", "both say what the model is"),
    ("--cluster 8xH100 --", "--"),
    ("--cluster 8xH100 -- python nowhere.py", "nowhere.py"),
    (f"{LLAMA} extra", "Unrecognized arguments: extra"),
)
PLAN = (
    ("--model llama3-8b --seq 8 --global-batch 8", "--cluster"),
    (f"{LLAMA} --tp 2", "Unknown flag --tp"),
    (f"{LLAMA} --top -1", "--top '-1'"),
    (f"{LLAMA} --deadline 5d", "give its --tokens too"),
    (f"{LLAMA} --max-cost 5M", "give its --tokens too"),
    (f"{LLAMA} --tokens 300", "did you mean 300B?"),
    (f"{LLAMA} --tokens 300Q", "must be tokens"),
    (f"{LLAMA} --tokens 1T --deadline 5", "time with its unit"),
    (f"{LLAMA} --tokens 1T --max-cost much", "amount in USD"),
    (f"{LLAMA} --usd-per-gpu-hour free", "number above 0"),
    (f"{LLAMA} --objective speed", "--objective 'speed'"),
    (f"{LLAMA} --csv nowhere/plan.csv", "cannot be written"),
    (f"{LLAMA} --csv empty", "cannot be written"),
    (f"{LLAMA} --html nowhere/plan.html", "nowhere/plan.html"),
    (f"{LLAMA} --html empty", "empty"),
    (f"{LLAMA} --html train.py/plan.html", "train.py/plan.html"),
    (f"{LLAMA} --cluster-template", "--cluster-template only prints a file"),
    (f"{LLAMA} --headroom 100", "--headroom '100'"),
    (f"{LLAMA} --export megatron", "-o DIR"),
    (f"{LLAMA} --row 2", "give --export too"),
    (f"{LLAMA} --export megatorn -o out", "did you mean 'megatron'?"),
    (
        "--model llama3-8b --cluster mixed.yaml --cluster 8xH100 --seq 8 --global-batch 8",
        "This needs equal nodes, but the cluster mixes",
    ),
    (f"{LLAMA} --weights nf4", "--lora-rank"),
    ("--model llama3-8b --cluster 8xMI300X --seq 8 --global-batch 8 --objective cost", "--usd"),
)
RECOMMEND = (
    ("", "--tokens"),
    (f"{GPT} --gpus 8 --tflops-per-gpu 140", "Give --max-days for a size"),
    (f"{GPT} --max-days 5 --tflops-per-gpu 140", "Give --gpus, or --cluster"),
    (f"{GPT} --max-days 5 --gpus 8", "Give --tflops-per-gpu"),
    (f"{SIZED} --max-days 0", "--max-days '0'"),
    (
        f"{SIZED} --max-days 5 --model-size 5000",
        "gpt3 supports less than 1105 B parameters, got 5000 B",
    ),
    (f"{SIZED} --model-size 5 --num-nodes 7", "nodes"),
    (f"{SIZED} --model-size 5 --cluster 8xH100", "--gpus is 160, but"),
    (f"{GPT} --cluster 8xH100 --num-nodes 2 --max-days 3", "omit --num-nodes"),
    (f"{SIZED} --model-size 5 --export nemo2", "--base-config"),
    (f"{SIZED} --model-size 5 --custom-config c.yaml", "--base-config"),
    (f"{SIZED} --model-size 5 --wandb-project p", "--base-config"),
    (f"{SIZED} --model-size 5 --base-config nowhere/b.yaml", "nowhere does not exist"),
    (f"{SIZED} --model-size 5 --base-config b.yaml --export nemo3", "did you mean 'nemo"),
    (f"{SIZED} --model-size 5 --assume restarts=5", "restarts"),
    (f"{SIZED} --model-size 5 --assume restart_s=soon", "NAME=VALUE"),
    (f"{SIZED} --model-size 5 --vocabulary 5", "did you mean"),
    (f"{SIZED} --model-size 5 --tokens 2T", "--tokens is given twice"),
    (f"{SIZED} --model-size 5 --html empty", "empty"),
)
SEARCH = (
    ("search_config=gpt3/6b", "gpt3/5b"),
    ("search_config=gpt4/5b", "gpt3"),
    ("--dry-runs search_config=gpt3/5b", "did you mean '--dry-run'?"),
    ("--config-dir empty", "has no config.yaml"),
    ("--top few", "--top 'few'"),
    ("--top 3 --json", "cannot be given together"),
    ("--dry-run --fresh", "omit --fresh"),
    ("cluster_type=slrum", "cluster_type"),
    ("--dry-run nonsense", "nonsense"),
    ("search_config.train_settings.num_node=3 --dry-run", "num_node"),
    ("search_config=gpt3/5b training_container=x", "data_dir"),
)
SHOW = (
    ("", "required: RESULTS"),
    ("nowhere", "nowhere is not a folder"),
    ("train.py", "train.py is not a folder"),
    ("empty", "is not a results folder"),
    ("outer", "did you mean outer/autotuning_results?"),
    ("newer", "another version wrote it, in format 99"),
    ("older", "another version wrote it, in format 0"),
    ("damaged", "damaged/journal.jsonl"),
    ("results --format xml", "invalid choice: 'xml'"),
    ("results --json --format csv", "cannot be given together"),
    ("results --follow --format md", "--follow prints line"),
    ("results --html nowhere/r.html", "nowhere/r.html"),
    ("results --html empty", "empty"),
    ("results --html train.py/r.html", "train.py/r.html"),
    ("results --html r.html --follow", "omit --follow"),
    ("results --html r.html --details", "omit --details"),
    ("results --json --details", "--details adds to a table"),
    ("results --jsn", "--jsn"),
)
SPACES = (
    ("--config nowhere.json", "nowhere.json"),
    ("--config bad.json", "bad.json cannot be read"),
    ("--config unknown_key.json", "did you mean 'tuner_type'"),
    ("--config config.json --effort huge", "quick, normal or thorough"),
    ("--tunerr-type random", "did you mean '--tuner_type'?"),
)
COMPARE = (
    ("results", "required: B"),
    ("results nowhere", "nowhere is not a folder"),
    ("results empty", "is not a results folder"),
    ("results other", "the script is train.py in A, finetune.py in B"),
    ("results damaged", "damaged"),
)
EXPORT = (
    ("results", "--to"),
    ("results --to megatorn", "did you mean 'megatron'?"),
    ("nowhere --to megatron", "nowhere"),
    ("unmeasured --to deepspeed", "has no measured trial yet"),
    ("config.json --to megatron", "config.json: This is not a base configuration"),
    ("results --to deepspeed -o nowhere/x.json", "cannot be written"),
    ("results --to deepspeed -o x.json --json", "cannot be given together"),
)
VALIDATE = (
    ("", "FILE.csv"),
    ("nowhere.csv", "nowhere.csv"),
    ("bad.csv", "bad.csv"),
    ("results", "results"),
    ("bad.csv --calibrate 0", "must be a whole number of at least 1"),
    ("bad.csv --calibrate many", "--calibrate"),
    ("bad.csv --seed 3", "--seed draws the rows of --calibrate"),
)
TUNE = (
    ("", "No script was given; use: autoconf-launch tune [flags]"),
    ("--autotuning run train.py", "tune and run are the verbs"),
    ("nowhere.py", "Script nowhere.py does not exist"),
    ("--num_gpu 2 train.py", "did you mean '--num_gpus'?"),
    ("--num_gpus two train.py", "--num_gpus"),
    ("--num_gpus 1 --num_gpus 2 train.py", "given twice"),
    ("--budget 5 train.py", "--budget is '5', but must be a time"),
    ("--effort huge train.py --config config.json", "it must be quick, normal or thorough."),
    ("--metric speed train.py --config config.json", "metric"),
    ("--good-enough lots train.py", "lots"),
    ("--memory-limit 10 train.py", "has no unit"),
    ("--knob workers train.py", "has no list of values"),
    ("--arg batch train.py", "KEY=FLAG"),
    ("--report-to wanddb train.py --config config.json", "wanddb"),
    ("--tracker-project p train.py", "give --report_to too"),
    ("--wandb-api-key-file k train.py", "give --report_to wandb too"),
    ("--quiet --log_level debug train.py", "cannot be given together"),
    ("--keep-global-batch --allow-global-batch-change train.py", "cannot be given together"),
    ("--keep-global-batch --max-train-batch-size 8 train.py", "cannot be given together"),
    ("--dialect keras train.py --config config.json", "keras"),
    ("--tuning-space nowhere.hjson train.py --config config.json", "nowhere.hjson"),
    ("--tuner-type gridserch train.py --config config.json", "did you mean 'gridsearch'"),
    ("--model-info '{' train.py --config config.json", "not JSON"),
    ("--seed -3 train.py --config config.json", "seed"),
    ("--start-profile-step 9 train.py --config config.json", "end_profile_step is 5"),
    ("train.py --config bad.json", "bad.json cannot be read"),
    ("train.py --config unknown_key.json", "did you mean 'tuner_type'"),
    ("--hostfile nowhere train.py --config config.json", "nowhere"),
    ("--module --no_python train", "cannot be given together"),
    ("--max_restarts 3 train.py", "--max_restarts"),
    ("--tee 3 train.py", "is not offered"),
)
PLAIN = (
    ("plam", "did you mean 'plan'?"),
    ("--budget 20m train.py", "write autoconf-launch tune --budget"),
    ("--fresh train.py", "write autoconf-launch tune --fresh"),
    ("--completion tcsh", "known: bash, fish, zsh"),
    ("--schema konfig", "did you mean 'config'?"),
    ("--nproc_per_node 0 train.py", "--nproc_per_node"),
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
    (USAGE, " ".join(filter(None, (verb, line))), says)
    for verb, cases in VERBS.items()
    for line, says in cases
]
PROCESSES = [
    CASES[0],
    CASES[-6],
    CASES[60],
    CASES[90],
    CASES[120],
    CASES[-12],
    *OTHER_CODES[2:6:3],
]
FILES = {
    "train.py": "print(1)\n",
    "bad.json": '{"a": ',
    "empty.json": "{}",
    "config.json": '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}}',
    "unknown_key.json": '{"train_micro_batch_size_per_gpu": 1, "autotuning": {"tuner_typ": 1}}',
    "bad.csv": "a,b\n1,2\n",
    "t.html": "mine",
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
    """One line of at most two sentences that says it, and the right exit code."""
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
    assert (workspace / "t.html").read_text() == "mine"


@pytest.mark.parametrize(("code", "line", "says"), list_(PROCESSES))
def test_a_process_ends_as_the_command_does(
    code: int, line: str, says: str, workspace: Path
) -> None:
    command = [sys.executable, "-m", "autoconf_launch", *shlex.split(line)]
    done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False)
    check(done.returncode, done.stdout, done.stderr, code, says)


def test_there_are_enough_of_them() -> None:
    assert len({line for _, line, _ in (*CASES, *OTHER_CODES)}) >= 150
