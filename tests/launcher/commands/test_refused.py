"""Lines that are refused: exit code 2 and one sentence, before anything is run or written.

Each stands in ``refused.txt`` above its sentence. To add one, write it there after ``$`` and run
this file with FREEZE=1.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from .verb import Run

KEPT = Path(__file__).with_name("refused.txt")
BLOCKS = [block.partition("\n") for block in KEPT.read_text().removeprefix("$ ").split("\n$ ")]
SENTENCES = {line: sentence.rstrip("\n") for line, _, sentence in BLOCKS}
MODEL: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "encoder_seq_length": 64,
    "data": {"seq_length": 64},
}
CUSTOM: dict[str, dict[str, Any]] = {
    "heads": {"num_attention_heads": 3},
    "groups": {"num_query_groups": 3},
    "rate": {"optim": {"lr": "high"}},
    "decay": {"optim": {"lr": 1e-4, "weight_decay": "no"}},
    "micro": {"micro_batch_size": 0},
    "batch": {"ffn_hidden_size": 256, "global_batch_size": 0},
    "layers": {"ffn_hidden_size": 256, "num_layers": "many"},
}
PROFILE: dict[str, Any] = {"grade": "measured", "hidden_size": 512, "vocabulary_size": 1000}
BLOCK: dict[str, Any] = {"name": "b", "count": 4, "parameters": 12 << 18}
PROFILES: dict[str, dict[str, Any]] = {
    "small": {"blocks": [{**BLOCK, "parameters": 100}]},
    "endless": {"blocks": [{**BLOCK, "count": 1 << 70}]},
    "negative": {"blocks": [{**BLOCK, "parameters": -5}]},
    "width": {"blocks": [BLOCK], "hidden_size": -512},
    "words": {"blocks": [BLOCK], "vocabulary_size": 0},
}
FILES = {
    "train.py": "open('it_ran', 'w')",
    "empty.json": "{}",
    "c.json": '{"gradient_accumulation_steps": 4, "zero_optimization": {"stage": [0, 2]}}',
    "odd.json": '{"batch": 8, "zero": 3}',
    "base.yaml": "model: {}",
    "key.yaml": "model: {mirco_batch_size: 2}",
    "bare/notes.txt": "",
    "data/text.bin": "",
    "data/text.idx": "",
    **{f"{name}.yaml": json.dumps({"model": {**MODEL, **has}}) for name, has in CUSTOM.items()},
    **{f"{name}.json": json.dumps({**PROFILE, **has}) for name, has in PROFILES.items()},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("refused")
    for name, text in FILES.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(text)
    return made


@pytest.mark.parametrize("line", SENTENCES)
def test_a_line_is_refused_with_its_sentence(
    line: str, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    ran = run(*shlex.split(line))
    assert (ran.code, ran.is_one_line) == (2, True), ran.err
    assert sorted(folder.rglob("*")) == before
    said = ran.err.removeprefix("autoconf-launch: ").strip().replace(str(folder), "FOLDER")
    if os.environ.get("FREEZE") == "1":
        SENTENCES[line] = said
        KEPT.write_text("".join(f"$ {key}\n{SENTENCES[key]}\n" for key in sorted(SENTENCES)))
    assert said == SENTENCES[line]
