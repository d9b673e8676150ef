"""Ranks, forked from one process that has imported torch, that train a few steps of a file."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import transformers

from autoconf_launch.core import AppliedStrategy
from autoconf_launch.launcher.machine import free_port
from autoconf_launch.runtime import initialize

MODEL = Path(__file__).parent / "config.json"
TOKENS, GLOBAL_BATCH, STEPS = 64, 32, 2
_LONGEST_S = 600.0
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one rank saw; ``error`` is a traceback."""

    applied: AppliedStrategy | None = None
    losses: tuple[float, ...] = ()
    error: str | None = None


def train(config: Path, ranks: int) -> tuple[Run, ...]:
    """Run of each rank, in order."""
    os.environ |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "LOCAL_RANK": "0"}
    os.environ["MASTER_PORT"] = str(free_port())
    pipes = [_FORK.Pipe(duplex=False) for _ in range(ranks)]
    processes = [
        _FORK.Process(target=_rank, args=(config, rank, pipe), daemon=True)
        for rank, (_, pipe) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    runs = tuple(_receive(pipe) for pipe, _ in pipes)
    for process in processes:
        process.kill()
        process.join()
    return runs


def _receive(pipe: Connection) -> Run:
    found = pipe.recv() if pipe.poll(_LONGEST_S) else Run(error=f"no answer in {_LONGEST_S:g} s")
    assert isinstance(found, Run)
    return found


def _rank(config: Path, rank: int, pipe: Connection) -> None:
    os.environ["RANK"] = str(rank)
    try:
        pipe.send(_steps(config))
    except BaseException:
        pipe.send(Run(error=traceback.format_exc()))


def _steps(config: Path) -> Run:
    torch.manual_seed(0)
    shape = transformers.AutoConfig.from_pretrained(MODEL)
    engine = initialize(lambda: transformers.AutoModelForCausalLM.from_config(shape), config)
    generator = torch.Generator().manual_seed(1)
    texts = torch.randint(shape.vocab_size, (STEPS, GLOBAL_BATCH, TOKENS), generator=generator)
    parts = (text[engine.share] for text in texts)
    losses = tuple(float(engine.step({"input_ids": part, "labels": part})) for part in parts)
    return Run(applied=engine.applied, losses=losses)
