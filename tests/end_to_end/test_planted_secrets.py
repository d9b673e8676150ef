"""Secrets of every kind in a command and in a configuration: none in any output of a tune."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from autoconf_launch.launcher.results import secrets

from .conftest import SMALL, Place

WORDS = (
    *("--hf_token", "PLANT01xyzw"),
    "--db=postgres://u:PLANT02xyzw@h/d",
    "wandb.api_key=PLANT03xyzw",
    "--api.key=PLANT04xyzw",
    *("--password", "PLANT05xyzw"),
    "--client-secret=PLANT06xyzw",
    "AWS_SECRET_ACCESS_KEY=PLANT07xyzw",
    "--url=https://PLANT08xyzw@host/x",
    f"hf_PLANT09{'a' * 30}",
    *("--x", f"ghp_PLANT10{'a' * 30}"),
    f"sk-PLANT11{'b' * 30}",
    f"glpat-PLANT12{'c' * 20}",
    f"xoxb-PLANT13{'d' * 20}",
    f"github_pat_PLANT14{'e' * 30}",
    *("--kwargs", '{"api_key": "PLANT15xyzw", "b": 2}'),
    *("--header", "Authorization: Bearer PLANT16xyzwabc"),
    f"AKIAPLANT17{'A' * 9}",
    "--storage_account_key=PLANT18xyzw",
    *("--opts", "a=1,token=PLANT19xyzw"),
    *("--tracking", "mysql+pymysql://me:PLANT20xyzw@db/x"),
    f"eyJhbGciOiJIUzI1NiJ9.eyJQTEFOVDI1Ijox.PLANT21{'g' * 20}",
    "-----BEGIN PRIVATE KEY-----\nPLANT22xyzw\n-----END PRIVATE KEY-----",
    f"AIzaPLANT23{'f' * 28}",
    "--sas=https://a.blob.example/c?sv=1&sig=PLANT24abcdefgh",
)
IN_CONFIG = {
    "wandb": {"api_key": "PLANT31xyzw"},
    "api": {"key": "PLANT32xyzw"},
    "hub": {"auth_token": "PLANT33xyzw", "url": "https://u:PLANT34xyzw@host"},
}
SCRIPT = """
import argparse, json, sys
import torch
import autoconf_launch.runtime as runtime
parser = argparse.ArgumentParser()
parser.add_argument("--config")
arguments, others = parser.parse_known_args()
print(others, json.load(open(arguments.config)), flush=True)
print(others, file=sys.stderr, flush=True)
model = torch.nn.Linear(16, 1)
engine = runtime.initialize(model, arguments.config, loss_fn=lambda m, b: m(b).square().mean())
if engine.samples_per_step == 8:
    raise ValueError(f"cannot log in with {others}")
for step in range(8):
    engine.step(torch.ones(engine.samples_per_step, 16))
"""


def test_no_word_of_a_planted_secret_is_shown() -> None:
    assert "PLANT" not in " ".join(secrets.without_secrets(WORDS))
    assert "PLANT" not in " ".join(secrets.with_digests(WORDS))
    assert "PLANT" not in secrets.shell_command(WORDS)
    assert "PLANT" not in json.dumps(secrets.document_without_secrets(IN_CONFIG))


@pytest.mark.slow
def test_no_output_of_a_tune_has_a_planted_secret(place: Place) -> None:
    (place.folder / "mine.py").write_text(SCRIPT)
    place.write_config({**SMALL, **IN_CONFIG, "train_micro_batch_size_per_gpu": [1, 2]})
    flags = ("--autotuning=tune", "--max-parallel-trials=1", "--report_to=tensorboard")
    change = ("--allow-global-batch-change", "--good-enough=0%")
    code, output = place.run(*flags, *change, "mine.py", "--config=config.json", *WORDS)
    assert code == 0, output
    assert "cannot log in with" in output + read(place.results / "journal.jsonl")
    assert "PLANT" not in output
    shown = place.run("show", "autotuning_results", "--details")[1]
    assert "PLANT" not in shown + place.run("show", "autotuning_results", "--json")[1]
    made = [path for path in place.folder.rglob("*") if path.is_file()]
    made = [path for path in made if path.name not in ("mine.py", "config.json")]
    assert any("tfevents" in path.name for path in made)
    for path in made:
        if "PLANT" in read(path):  # a training with the winner reads it
            assert path.name == "ds_config_optimal.json", path
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def read(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")
