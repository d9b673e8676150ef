"""A search on a cluster as files: configurations, job scripts, and one script that starts them.

Not: the text of a job (jobs), nor its launch: the cluster's own commands do that.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.estimates import write_text
from autoconf_launch.launcher.export import export_base

from .candidate_file import SearchFolder, candidate_document, write_documents
from .candidates import SearchCandidate
from .flags import SearchRequest
from .jobs import SHEBANG, job_text
from .prepare import SEARCH_SCHEMA_VERSION, Prepared
from .question import RECIPE
from .settings import ClusterKind

_EACH = {
    ClusterKind.BCM: 'sbatch --parsable "$job" || exit 1',
    ClusterKind.BCP: 'bash "$job" || echo "failed: $job" >&2',
}
_ABOUT = {
    ClusterKind.BCM: "Submits every job of this search to Slurm, the most promising first.",
    ClusterKind.BCP: "Runs every job of this search in this allocation, one after the other.",
}


def write_cluster_search(prepared: Prepared, request: SearchRequest) -> Iterator[str]:
    """Write all files of the search, and say where they are.

    Raises:
        ConfigError: a file cannot be written, or a value cannot stand in a job.
    """
    question, found = prepared.question, prepared.found
    folder = SearchFolder(question.settings.train.logs)
    jobs = {one.name: job_text(question, one, found.nodes) for one in found.candidates}
    write_documents(question, folder, found.candidates)
    if RECIPE in question.base:
        _write_scripts(prepared, folder)
    for name, text in jobs.items():
        write_text(text, folder.job(name))
        _make_run_folder(folder.run(name))
    write_text(_submit_all(prepared, folder), folder.submit_all)
    yield _document(prepared, folder) if request.json else _text(prepared, folder)


def _write_scripts(prepared: Prepared, folder: SearchFolder) -> None:
    for one in prepared.found.candidates:
        document = candidate_document(prepared.question, one, prepared.found.nodes)
        write_text(export_base(document, "nemo2").text, folder.script(one.name))


def _make_run_folder(folder: Path) -> None:
    """Slurm opens a job's log there before anything of the job runs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}.") from error


def _submit_all(prepared: Prepared, folder: SearchFolder) -> str:
    kind = prepared.settings.cluster.kind
    jobs = _lines(prepared.found.candidates, folder)
    return f"{SHEBANG}\n# {_ABOUT[kind]}\nfor job in \\\n{jobs}\ndo\n  {_EACH[kind]}\ndone\n"


def _lines(candidates: Iterable[SearchCandidate], folder: SearchFolder) -> str:
    return " \\\n".join(f"  {shlex.quote(str(folder.job(one.name)))}" for one in candidates)


def _text(prepared: Prepared, folder: SearchFolder) -> str:
    question, count = prepared.question, len(prepared.found.candidates)
    kind = prepared.settings.cluster.kind
    start = "Submit all" if kind is ClusterKind.BCM else "In the allocation, run all"
    notes = "".join(f"Note: {note}\n" for note in prepared.notes)
    return (
        f"{notes}Base configuration: {folder.base(question)}\n"
        f"{count} candidate configurations: {folder.candidate('').parent}\n"
        f"{count} job scripts: {folder.job('').parent}\n"
        f"{start}: bash {shlex.quote(str(folder.submit_all))}"
    )


def _document(prepared: Prepared, folder: SearchFolder) -> str:
    question = prepared.question
    document = {
        "schema_version": SEARCH_SCHEMA_VERSION,
        "model": question.name,
        "notes": list(prepared.notes),
        "base_config": str(folder.base(question)),
        "submit_all": str(folder.submit_all),
        "candidates": [
            {
                "name": one.name,
                "config": str(folder.candidate(one.name)),
                "job": str(folder.job(one.name)),
                "run_folder": str(folder.run(one.name)),
            }
            for one in prepared.found.candidates
        ],
    }
    return json.dumps(document, indent=2)
