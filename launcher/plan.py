"""The exact processes of one launch, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import Candidate, RankTask


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """A process: argv as executed, and its variables in addition to ours.

    Attributes:
        node: number of its host among the launch's hosts.
        cores: numbers of the CPU cores that it is bound to; None: all of ours.
        log: absolute path of a file for its output; None: the launch's output.
    """

    rank: int
    local_rank: int
    node: int = 0
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    cores: tuple[int, ...] | None = None
    log: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """The part of each host that a launch takes, if an engine shares hosts (``srun``)."""

    cores: int
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that a backend needs to run one launch.

    Attributes:
        name: of the trial, or of the script for a launch without one.
        ranks: started from here, in the order of their numbers.
        hosts: hosts of the ranks; empty: only on this machine.
        step: of each host, only for this launch; None: shared with others.
        folder: for ``stdout.log``, ``stderr.log`` and results; None: the output is ours.
        task: the ranks' report; None for a plain training.
        expected: the candidate that must run; None if the ranks cannot report it.
        checked: knobs of ``expected`` that are compared, with the words that request them; None:
            all that our own runtime reports.
        private_files: paths of files with secrets, each with its text without them, which replaces
            the file's once the ranks have ended.
        alone: the only process starts any other ranks itself.
    """

    name: str
    ranks: tuple[RankPlan, ...]
    working_directory: str
    hosts: tuple[str, ...] = ()
    step: StepSize | None = None
    folder: str | None = None
    task: RankTask | None = None
    expected: Candidate | None = None
    private_files: tuple[tuple[str, str], ...] = ()
    alone: bool = False
    checked: tuple[tuple[str, str], ...] | None = None

    @property
    def world_size(self) -> int:
        return len(self.ranks)
