"""A tiny training whose micro-batch decides its fault; all other candidates are sound."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--config", type=Path)
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
FAULTS = {
    12: "out_of_memory",  # the largest: a sure one rules out all that need more
    3: "import",
    4: "crash_in_step_3",
    5: "hang_before_steps",
    6: "hang_in_collective",
    7: "exit_0",
    8: "killed",
    9: "grandchild",
    10: "nan",
    11: "stolen_port",
}
MICRO_BATCH = json.loads(args.config.read_text())["train_micro_batch_size_per_gpu"]
FAULT = FAULTS.get(MICRO_BATCH, "")
SECOND = os.environ["RANK"] == "1"

if FAULT == "import":
    raise ImportError("no module of that kind")
if FAULT == "stolen_port" and SECOND:
    thief = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
if FAULT == "stolen_port" and not SECOND:
    time.sleep(1.0)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import autoconf_launch.runtime as runtime  # noqa: E402

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 1))


def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(batch).square().mean()
    return loss * float("nan") if FAULT == "nan" else loss


if FAULT == "hang_before_steps":
    time.sleep(600)
if FAULT == "exit_0":
    os._exit(0)
engine = runtime.initialize(model, args.config, loss_fn=loss_of)
if FAULT == "grandchild":
    subprocess.Popen(["sleep", "600"], start_new_session=True)
for step in range(1, 9):
    if FAULT == "crash_in_step_3" and step == 3 and SECOND:
        sys.stderr.write("the last words of rank 1\n")
        raise RuntimeError("step 3 is cursed")
    if FAULT == "hang_in_collective" and step == 3:
        time.sleep(600) if SECOND else dist.all_reduce(torch.ones(1))
    if FAULT == "killed" and step == 2 and SECOND:
        os.kill(os.getpid(), signal.SIGKILL)
    size = 1 << 50 if FAULT == "out_of_memory" and SECOND and step == 2 else 1
    torch.empty(size, dtype=torch.uint8)
    engine.step(torch.ones(engine.samples_per_step, 16))
