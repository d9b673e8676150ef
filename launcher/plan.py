"""The exact processes of one launch, as a value. Not: how they are started (backends)."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import Layout, RankTask


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """One process: argv as it is executed, and the variables that it gets beyond ours."""

    rank: int
    local_rank: int
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that a backend needs to run one launch.

    Attributes:
        name: of the trial, or of the script for a launch without one.
        ranks: in the order of their numbers.
        working_directory: where the ranks start.
        folder: where ``stdout.log``, ``stderr.log`` and results go; None: the output is ours.
        task: what the ranks report; None for a plain training.
        expected: what must really run; None where the ranks cannot tell what they applied.
    """

    name: str
    ranks: tuple[RankPlan, ...]
    working_directory: str
    folder: str | None = None
    task: RankTask | None = None
    expected: Layout | None = None

    @property
    def world_size(self) -> int:
        """Ranks of the launch."""
        return len(self.ranks)
