"""Every path of a search's folder. Not: what is written there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import RawConfig, ResultsFolderError

from ..results.paths import ResultsPaths
from .question import SearchQuestion

_RANKS = "local"
_RUNS = "training_logs"


@dataclass(frozen=True, slots=True)
class SearchFolder:
    """The folder that ``search_config.train_settings.logs`` names; absolute."""

    logs: Path

    def base(self, question: SearchQuestion) -> Path:
        """The base configuration."""
        return self.logs / question.file_name

    def candidate(self, name: str) -> Path:
        """A candidate's whole configuration."""
        return self.logs / "candidate_configs" / f"{name}.yaml"

    def script(self, name: str) -> Path:
        """A candidate's recipe of NeMo 2.0 as a script that runs it."""
        return self.logs / "candidate_configs" / f"{name}.py"

    def job(self, name: str) -> Path:
        """The script that starts a candidate on a cluster."""
        return self.logs / "jobs" / f"{name}.sh"

    def run(self, name: str) -> Path:
        """What a candidate's run leaves."""
        return self.logs / _RUNS / name

    @property
    def submit_all(self) -> Path:
        """The script that starts every job."""
        return self.logs / "submit_all.sh"

    @property
    def runs(self) -> ResultsPaths:
        """Journal and folders of the runs."""
        logs = self.logs / _RUNS
        asked = self.logs / _RANKS / "asked"
        return ResultsPaths(results=logs, exps=asked, chosen_by="base_results_dir")

    def clear_candidates(self) -> None:
        """Remove what an earlier search wrote of its candidates."""
        for folder in (self.candidate("").parent, self.job("").parent):
            for path in (*folder.glob("*.yaml"), *folder.glob("*.py"), *folder.glob("*.sh")):
                path.unlink(missing_ok=True)

    def write_for_ranks(self, kind: str, document: RawConfig) -> Path:
        """A file that ranks read, named by its content: a search that runs keeps its own.

        Raises:
            ResultsFolderError: it cannot be written.
        """
        text = document.to_json() + "\n"
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        path = self.logs / _RANKS / f"{kind}_{digest}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ResultsFolderError(
                f"{path} cannot be written ({error.strerror}); choose another base_results_dir."
            ) from error
        return path
