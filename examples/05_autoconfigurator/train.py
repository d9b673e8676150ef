"""Pretrain the model of a base configuration on a text made at run time.

    autoconf-launch recommend --family gpt3 --model-size 0.0145 --gpus 1 --tflops-per-gpu 0.05 \
        --tokens 1M --vocab 512 --seq 64 --global-batch 8 --base-config base.yaml
    python train.py --base-config base.yaml
    python train.py --base-config base.yaml --write-config config.json
    autoconf-launch --autotuning=run train.py --base-config base.yaml --config config.json

The file gives model, batch, rate and schedule; any NeMo file that ``recommend`` wrote trains here.
Model and text come from ``autoconf_launch.runtime.pretraining``, which ``autoconf-launch
search`` trains on this machine, too. Needs transformers. On a CPU it computes in fp32.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import yaml

from autoconf_launch.autotuner.sizing.base_reader import builtin_document
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.runtime.pretraining import train


def configuration(base: RawConfig, micro_batch: int) -> RawConfig:
    """The runtime's document, in fp32 if there is no GPU."""
    document = builtin_document(base, micro_batch=micro_batch)
    if torch.cuda.is_available():
        return document
    return document.with_value(("bf16", "enabled"), False)


def main() -> None:
    """Train, or write the runtime's configuration for a search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-config", required=True)
    parser.add_argument("--config", help="the runtime's own; by default from the base")
    parser.add_argument("--write-config", metavar="FILE", help="write that, and end")
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--local_rank", help="given by launchers; LOCAL_RANK is what counts")
    args = parser.parse_args()

    base = RawConfig(yaml.safe_load(Path(args.base_config).read_text(encoding="utf-8")))
    document = configuration(base, args.micro_batch)
    if args.write_config:
        Path(args.write_config).write_text(document.to_json(), encoding="utf-8")
        return
    config = args.config or document.to_dict()
    try:
        train(base, config, args.steps, lambda line: print(line, flush=True))
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
