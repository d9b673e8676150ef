"""The example notebook, cell by cell in a real kernel: it fits, plans, tunes and reports."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "08_notebook.ipynb"
nbformat = pytest.importorskip("nbformat", reason="a notebook needs: pip install -e '.[dev]'")
nbclient = pytest.importorskip("nbclient", reason="a notebook needs: pip install -e '.[dev]'")
pytest.importorskip("ipykernel", reason="a notebook needs: pip install -e '.[dev]'")


def results(notebook: Any) -> list[Any]:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output["data"] for output in outputs if output["output_type"] == "execute_result"]


def test_it_is_kept_without_outputs() -> None:
    assert not results(nbformat.read(EXAMPLE, as_version=4))


@pytest.mark.slow
def test_it_runs_without_a_network_and_shows_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    shutil.copy(EXAMPLE, tmp_path)
    notebook = nbformat.read(tmp_path / EXAMPLE.name, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=place).execute()
    shown = [result.get("text/html", "") for result in results(notebook)]
    assert sum("<table>" in text for text in shown) >= 3
    assert "Train with it:" in shown[-1]
    assert (tmp_path / "report.html").stat().st_size > 10**6


@pytest.mark.slow
def test_a_notebook_without_the_extra_gets_one_sentence(tmp_path: Path) -> None:
    cells = (
        "import sys\nsys.modules['jinja2'] = None\nfrom autoconf_launch import plan",
        "answer = plan(model='gpt2', cluster='8xA100-SXM-80GB', seq=1024, global_batch=8, top=1)",
        "answer",
        "answer.write_html('page.html')",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    place = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(notebook, timeout=120, resources=place, allow_errors=True)
    client.execute()
    (shown,) = results(notebook)
    assert "<table>" in shown["text/html"]
    (error,) = notebook.cells[-1].outputs
    assert error["traceback"] == [
        "ConfigError: HTML pages need jinja2, which is not installed: "
        "pip install 'autoconf-launch[html]'."
    ]
