"""Points that share a process on this machine, with a program in the place of vLLM."""

from __future__ import annotations

import csv
import shlex
import sys
from pathlib import Path

import pytest

from autoconf_launch.nemo.inference_search import VllmEngine
from autoconf_launch.nemo.inference_search.command import search

from .asked import BENCHMARK, RUN, SMALL

FAKE = Path(__file__).parent / "fake_vllm"
FOLDER = Path("gpt3/unknown_size_80gb/inference")
WORDS = (
    *SMALL,
    "engine=vllm",
    "search_config.train_settings.vocab_size=10000",
    "search_config.train_settings.gpus_per_node=3",
    f"{RUN}.tensor_parallel_sizes=[1,3]",
    f"{RUN}.pipeline_parallel_sizes=[1]",
    f"{BENCHMARK}.batch_sizes=[1,2,4]",
    "base_results_dir=.",
)


def install(folder: Path, version: str) -> None:
    """An environment whose ``vllm`` stands on PATH."""
    facts = folder / "vllm.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    path = f"PYTHONPATH={FAKE}:{shlex.quote(str(folder))}"
    python = f'#!/bin/sh\n{path} exec {shlex.quote(sys.executable)} "$@"\n'
    for name, text in (("vllm", "#!/bin/sh\n"), ("python", python)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lists each start of the program."""
    path = tmp_path / "starts"
    monkeypatch.setenv("FAKE_VLLM_STARTS", str(path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return path


def rows() -> dict[str, dict[str, str]]:
    with (FOLDER / "final_summary" / "final_output.csv").open(newline="") as file:
        return {row["Name"]: row for row in csv.DictReader(file)}


def test_a_process_measures_its_batches_and_one_that_ends_it_costs_no_other(
    starts: Path, tmp_path: Path
) -> None:
    install(tmp_path / "bin", "0.32.0")
    out = "\n".join(search(WORDS))
    assert "Recommended: tiny_tp" in out
    table = rows()
    assert len(table) == 6
    for name, row in table.items():
        assert (row["Latency [ms]"] == "") == name.endswith("bs4"), name
    (why,) = {row["Reason"] for name, row in table.items() if name.endswith("bs4")}
    assert why == "crashed: ended with exit code 1: ValueError: no room for 4"
    began = starts.read_text().split("\n")[:-1]
    assert sorted({line.split()[0] for line in began}) == ["tp1", "tp3"]
    assert began[0].endswith(" 4"), "the first process has room for the largest batch"
    assert len(began) <= 6
    "\n".join(search(WORDS))
    assert starts.read_text().split("\n")[:-1] == began, "measured twice"


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.9.2", "vLLM 0.9.2 is unknown here (0.10 to 0.32 are known); install it"),
        ("1.0.0", "vLLM 1.0.0 is unknown here"),
        ("0.10.1", ""),
        ("0.32.0", ""),
    ],
)
def test_a_version_is_known_or_named(
    version: str, said: str, starts: Path, tmp_path: Path
) -> None:
    install(tmp_path / "bin", version)
    assert VllmEngine().why_not_here().startswith(said)
    assert bool(said) == bool(VllmEngine().why_not_here())
