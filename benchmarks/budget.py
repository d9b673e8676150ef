"""Wall time of whole tunes against their time budget, the profile run included.

    python benchmarks/budget.py [--write]

Five scripts, each tuned with 30 s and with 60 s from its first line on: a small network, a script
that imports transformers (or sleeps as long), ranks and loader workers that a script spawns,
steps of 2 s with a long validation between them, and ``examples/01_pretrain_gpt`` on two ranks.
The ratio may be 1.1 at most. A tune that ends early, as nothing is left to gain, is not a miss.
It takes under 8 minutes; run it on an idle machine, as the load average shows. ``--write``
puts the table into ``benchmarks/results/budget.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from search_landscapes import markdown

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "budget.md"
EXAMPLE = ROOT / "examples" / "01_pretrain_gpt"
BUDGETS_S = (30, 60)
MOST = 1.1
_HEAD = """
import argparse, os, time, torch
from torch.utils.data import DataLoader, TensorDataset
def rows():
    return TensorDataset(torch.randn(8192, 64), torch.randint(0, 10, (8192,)))
def network():
    return torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
def train(model, loader, pause_s=0.0, validation_s=0.0):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(20):
        for number, (x, y) in enumerate(loader, 1):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            time.sleep(pause_s)
            optimizer.step()
            if number % 20 == 0:
                time.sleep(validation_s)
def batch():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    return parser.parse_args().batch_size
"""
_PLAIN = "train(network(), DataLoader(rows(), batch_size=batch(), shuffle=True)"
SCRIPTS = {
    "small network": f"{_HEAD}{_PLAIN})\n",
    "slow import": f"""
try:
    from transformers import Trainer
except ImportError:
    import time
    time.sleep(8)
{_HEAD}{_PLAIN})
""",
    "spawned ranks and workers": f"""{_HEAD}
def work(rank, size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29655")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    data = rows()
    loader = DataLoader(
        data, batch_size=size, num_workers=2, multiprocessing_context="spawn",
        sampler=torch.utils.data.DistributedSampler(data),
    )
    train(torch.nn.parallel.DistributedDataParallel(network()), loader)
if __name__ == "__main__":
    torch.multiprocessing.spawn(work, args=(batch(),), nprocs=2)
""",
    "steps of 2 s, validation of 30 s": f"{_HEAD}{_PLAIN}, pause_s=2.0, validation_s=30.0)\n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A tune: number of ``trials``, its exit ``code`` and, in ``said``, why it ended."""

    script: str
    budget_s: int
    wall_s: float
    code: int
    trials: int
    said: str
    load: float

    @property
    def ratio(self) -> float:
        """Wall time over the budget."""
        return self.wall_s / self.budget_s


def commands(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The words after the launcher's flags, by script."""
    for name, text in SCRIPTS.items():
        path = folder / f"{name.replace(' ', '_').replace(',', '')}.py"
        path.write_text(text)
        yield name, (str(path), "--batch_size", "8")
    example = ("--num_gpus=2", str(EXAMPLE / "train.py"), "--config")
    yield "example 01", (*example, str(EXAMPLE / "config.json"))


def tune(name: str, words: tuple[str, ...], budget_s: int, folder: Path) -> Timed:
    """Run the real command in a new folder."""
    folder.mkdir()
    flags = ("--no-history", "--allow-global-batch-change", f"--budget={budget_s}s")
    load, began_s = os.getloadavg()[0], time.monotonic()
    ended = subprocess.run(
        (sys.executable, "-m", "autoconf_launch", "tune", *flags, *words),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s = time.monotonic() - began_s
    path = folder / "autotuning_results" / "summary.json"
    summary = json.loads(path.read_text()) if path.exists() else {}
    lines = [line for line in ended.stderr.splitlines() if line and line[:9] != "Details: "]
    said = (summary.get("stop") or {}).get("sentence") or lines[-1]
    trials = summary["spaces"][-1]["num_experiments"] if summary else 0
    return Timed(
        script=name,
        budget_s=budget_s,
        wall_s=wall_s,
        code=ended.returncode,
        trials=trials,
        said=said.removeprefix("autoconf-launch: ").split(" Its output is in ")[0],
        load=load,
    )


def table(found: list[Timed]) -> str:
    """The tunes as a Markdown table, misses marked."""
    head = ("script", "budget", "wall time", "ratio", "exit", "trials", "load before", "its end")
    rows = [
        (
            one.script,
            f"{one.budget_s} s",
            f"{one.wall_s:.1f} s",
            f"{one.ratio:.2f}{' **miss**' if one.ratio > MOST else ''}",
            str(one.code),
            str(one.trials),
            f"{one.load:.1f}",
            one.said,
        )
        for one in found
    ]
    return markdown(rows, head)


def main() -> None:
    """Tune all, print a row each, and write the table if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    found = []
    with tempfile.TemporaryDirectory() as name:
        for script, words in commands(Path(name)):
            for budget_s in BUDGETS_S:
                folder = Path(name) / f"tune_{len(found)}"
                found.append(tune(script, words, budget_s, folder))
                print(table(found[-1:]).splitlines()[-1], flush=True)
    if write:
        RESULT.write_text(f"{_TITLE}\n{table(found)}\n")


_TITLE = f"""# Wall time of a tune beside its budget
`python benchmarks/budget.py --write` on {os.cpu_count()} CPU cores: from the first line to the
last, profile run and verification run included. To reach: a ratio of at most {MOST}.
The load average before each tune shows how much other work had the cores.
"""


if __name__ == "__main__":
    main()
