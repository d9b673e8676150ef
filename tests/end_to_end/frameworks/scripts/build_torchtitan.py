"""Loads an exported module by torchtitan's own ConfigManager and counts its model's weights."""
# mypy: ignore-errors
# ruff: noqa: T201

import sys
from pathlib import Path

import torch
from torchtitan.config import ConfigManager


def build(path):
    sys.path.insert(0, str(path.parent))
    config = ConfigManager().parse_args(["--module", path.stem, "--config", path.stem])
    shape = config.model_spec.model
    shape.update_from_config(config=config)
    with torch.device("meta"):
        return shape.build()


def main():
    for path in map(Path, sys.argv[2:]):
        print("weights", path.stem, sum(weight.numel() for weight in build(path).parameters()))


main()
