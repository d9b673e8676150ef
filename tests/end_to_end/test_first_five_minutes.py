"""A stranger installs the clone and follows the README with a script of their own.

The commands are the README's, word by word; the package is installed in a fresh environment and
used outside of the clone. Only the network is missing: dependencies come from this environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..docs.commands import FIVE_MINUTES, ROOT, blocks

pytestmark = pytest.mark.slow

SCRIPT = '''"""Learns which of eight patterns a noisy signal follows."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.05)
    return parser.parse_args()


def make_data(count):
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(8, 64, generator=generator)
    labels = torch.randint(8, (count,), generator=generator)
    signals = patterns[labels] + torch.randn(count, 64, generator=generator)
    return TensorDataset(signals, labels)


class Classifier(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.head = nn.Linear(width, 8)

    def forward(self, signals):
        return self.head(self.body(signals))


def train(model, data, args):
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    for _ in range(args.epochs):
        for number, (signals, labels) in enumerate(loader, start=1):
            loss = nn.functional.cross_entropy(model(signals), labels)
            (loss / args.gradient_accumulation_steps).backward()
            if number % args.gradient_accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()


def evaluate(model, data):
    with torch.no_grad():
        signals, labels = data.tensors
        return (model(signals).argmax(1) == labels).float().mean().item()


if __name__ == "__main__":
    args = parse()
    torch.manual_seed(0)
    data, model = make_data(8192), Classifier()
    train(model, data, args)
    print(f"accuracy: {evaluate(model, data):.2f}")
'''
README = tuple(blocks(ROOT / "README.md"))
(COMMANDS,) = (block.lines for block in README if block.mark == FIVE_MINUTES)
OFFLINE = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
NOT_TRACKED = ("autotuning_*", "build", "site", "*.egg-info", "__pycache__", ".*")


class Stranger:
    """An environment with the package, and a folder with the script."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "train.py").write_text(SCRIPT)
        self._programs = folder / "environment" / "bin"
        self._make_environment(folder / "environment")

    def _make_environment(self, folder: Path) -> None:
        """Packages of this environment are seen, pip too; what is installed in place is not."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        seen = [path for path in sys.path if path.endswith("site-packages")]
        (site / "of_this_environment.pth").write_text("\n".join(seen))

    def run(self, *words: str, place: Path | None = None) -> str:
        """Output of a command.

        Raises:
            AssertionError: it fails.
        """
        path = f"{self._programs}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            (*self._program(words[0]), *words[1:]),
            cwd=place or self.home,
            env={
                **{name: v for name, v in os.environ.items() if name != "PYTHONPATH"},
                "OMP_NUM_THREADS": "1",
                "PATH": path,
                "XDG_DATA_HOME": str(self.home / "data"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}"
        return done.stdout

    def _program(self, name: str) -> tuple[str, ...]:
        if name == "pip":
            return (*self._program("python"), "-m", name)
        return (str(self._programs / name),)

    def says(self, verb: str) -> str:
        """Output of the README's command of a verb."""
        ((program, *words),) = (line for line in COMMANDS if line[1] == verb)
        return self.run(program, *words)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    """Has installed the clone by the README's first command."""
    folder = tmp_path_factory.mktemp("five")
    clone = folder / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*NOT_TRACKED))
    (install,) = next(block.lines for block in README if block.lines[0][0] == "pip")
    assert install == ("pip", "install", ".")
    someone = Stranger(folder)
    someone.run(*install, *OFFLINE, place=clone)
    return someone


def test_the_script_is_short_and_plain() -> None:
    assert 50 <= len(SCRIPT.splitlines()) <= 70
    assert "autoconf" not in SCRIPT


def test_the_readme_goes_from_fit_to_export() -> None:
    assert [line[:2] for line in COMMANDS] == [
        ("autoconf-launch", verb) for verb in ("fit", "tune", "show", "run", "export")
    ]


def test_the_command_is_the_installed_one(stranger: Stranger) -> None:
    where = "import autoconf_launch; print(autoconf_launch.__file__)"
    assert "/environment/lib/" in stranger.run("python", "-c", where)


def test_the_five_commands_work_one_after_the_other(stranger: Stranger) -> None:
    assert "it fits" in stranger.says("fit")
    tuned = stranger.says("tune")
    assert "Train with it:" in tuned
    page = stranger.says("show").split()[-1]
    assert "Every launch" in (stranger.home / page).read_text()
    assert "accuracy: " in stranger.says("run")
    best = json.loads((stranger.home / "autotuning_results" / "summary.json").read_text())
    micro = str(best["spaces"][-1]["best_exp_name"]).rpartition("tmbspg")[2]
    assert f"--per_device_train_batch_size {micro}" in stranger.says("export")
