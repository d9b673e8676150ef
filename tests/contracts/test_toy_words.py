"""A dialect and an exporter that another package brings: one file and two entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.core import Candidate, Layout
from autoconf_launch.launcher.export import Optimum, export_optimum
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.launch import read_script
from autoconf_launch.launcher.tuning import read_job

from .toy_words import install_toys


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script of the toy framework, whose package is installed."""
    site = tmp_path / "site"
    site.mkdir()
    install_toys(site)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import toytrain\n")
    (tmp_path / "config.json").write_text('{"train_micro_batch_size_per_gpu": 5}')
    return tmp_path


def test_its_variables_and_its_version_are_read_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_BATCH", "3")
    _, source = read_script(parse_request(["--autotuning=tune", "train.py"]))
    assert ("TOY_BATCH", "3") in source.environment
    assert ("toytrain", "2.1") in source.versions


def test_a_tune_reads_and_renders_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_BATCH", "3")
    job = read_job(parse_request(["--autotuning=tune", "--num_gpus=1", "train.py"]), print)
    assert job.dialect.name == "toy"
    assert job.user.baseline.layout.micro_batch == 3
    assert "toytrain 2.1 is newer than 2.0" in "".join(job.user.warnings)


def test_a_document_that_its_scripts_name_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_BATCH", "3")
    words = ["--autotuning=tune", "--num_gpus=1", "train.py", "--config", "config.json"]
    assert read_job(parse_request(words), print).dialect.name == "toy"


def test_its_exporter_writes_an_optimum() -> None:
    optimum = Optimum(name="z0", candidate=Candidate(layout=Layout(micro_batch=3)))
    assert export_optimum(optimum, "toy").text == "batch 3\nsteps 1\n"
