"""A tiny training whose micro-batch decides what goes wrong; the first three are sound."""

import argparse
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--config", type=Path)
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_known_args()[0]
FAULTS = ["", "", "", "", *os.environ["FAULT"].split("\n")]
MICRO_BATCH = json.loads(args.config.read_text())["train_micro_batch_size_per_gpu"]
if isinstance(MICRO_BATCH, list):
    MICRO_BATCH = MICRO_BATCH[0]
FAULT = FAULTS[MICRO_BATCH] if len(FAULTS) > MICRO_BATCH else ""
SECOND = os.environ["RANK"] == "1"

if FAULT == "raises in import":
    raise ImportError("no module of that kind")
if FAULT == "hangs in import":
    time.sleep(600)
if FAULT == "port taken" and SECOND:
    thief = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
if FAULT == "port taken" and not SECOND:
    time.sleep(1.0)
if FAULT == "wrong CUDA_VISIBLE_DEVICES":
    os.environ["CUDA_VISIBLE_DEVICES"] = "77,-1"
if FAULT == "exits with 0 at once":
    os._exit(0)
if FAULT == "chdir to /":
    os.chdir("/")
    args.config = Path(os.environ.get("PWD", "/"), args.config)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import autoconf_launch.runtime as runtime  # noqa: E402

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 1))


def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(batch).square().mean()
    return loss * float("nan") if FAULT == "loss is NaN" else loss


def make_daemon() -> None:
    """A process with another parent, in a separate session."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()


def use_up_descriptors() -> None:
    kept = []
    while True:
        kept.append(os.open(os.devnull, os.O_RDONLY))


def use_up_threads() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + (1 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    for _ in range(50):
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()


DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
if FAULT == "hangs before its steps":
    time.sleep(600)
engine = runtime.initialize(model, args.config, loss_fn=loss_of)
if FAULT == "a grandchild stays":
    subprocess.Popen(["sleep", "600"], start_new_session=True)
if FAULT == "double-forked daemon":
    make_daemon()
if FAULT == "closed stdout":
    sys.stdout.close()
    os.close(1)
if FAULT == "300 MB of binary output":
    for _ in range(150):
        os.write(1, bytes(range(256)) * 8192)
if FAULT == "deaf to TERM, hangs":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
if FAULT == "200 deaf children" and SECOND:
    for _ in range(200):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.pause()
if FAULT == "removes the results folder":
    subprocess.run(["rm", "-rf", str(args.config.parent.parent)], check=False)
for step in range(1, 9):
    if FAULT == "raises in step 3" and step == 3 and SECOND:
        raise RuntimeError("step 3 is cursed")
    if FAULT == "hangs in a collective" and step == 3:
        time.sleep(600) if SECOND else dist.all_reduce(torch.ones(1))
    if FAULT == "killed by SIGKILL" and step == 2 and SECOND:
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "stopped by SIGSTOP" and step == 2 and SECOND:
        os.kill(os.getpid(), signal.SIGSTOP)
    if FAULT == "all descriptors used" and step == 2:
        use_up_descriptors()
    if FAULT == "out of threads" and step == 2:
        use_up_threads()
    if FAULT == "surrogates in its error" and step == 2:
        raise ValueError("a file named \udc80 is not there")
    if FAULT == "escapes in its error" and step == 2:
        raise ValueError("\x1b[31mred\x1b[0m \x9b2J \x1b]0;title\x07")
    if FAULT == "5 MB in one message" and step == 2:
        raise ValueError("x" * 5_000_000)
    size = 1 << 50 if FAULT == "out of memory" and SECOND and step == 2 else 1
    torch.empty(size, dtype=torch.uint8)
    engine.step(torch.ones(engine.samples_per_step, 16))
if FAULT == "hangs at exit":
    time.sleep(600)
