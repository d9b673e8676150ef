"""Every path of a search's folder. Not: what is written there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import RawConfig, ResultsFolderError

from ..results.paths import ResultsPaths
from .question import SearchQuestion

_RANKS = "local"


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

    @property
    def runs(self) -> ResultsPaths:
        """Journal and folders of the runs."""
        logs = self.logs / "training_logs"
        asked = self.logs / _RANKS / "asked"
        return ResultsPaths(results=logs, exps=asked, chosen_by="base_results_dir")

    def clear_candidates(self) -> None:
        """Files of an earlier search are no candidates of this one."""
        for path in (self.logs / "candidate_configs").glob("*.yaml"):
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
