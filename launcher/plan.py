"""The exact processes of one launch, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import Candidate, RankTask


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """One process: argv as it is executed, and the variables that it gets beyond ours.

    Attributes:
        node: number of its host among those of the launch.
        cores: numbers of the CPU cores that it is bound to; None: all of ours.
        log: absolute path of a file that its output is appended to; None: where the launch's goes.
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
    """What a launch takes of each of its hosts, where an engine shares them out (``srun``)."""

    cores: int
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that a backend needs to run one launch.

    Attributes:
        name: of the trial, or of the script for a launch without one.
        ranks: in the order of their numbers: those that are started from here.
        hosts: where they are started; empty: on this machine alone.
        step: of each host, for itself; None: beside whatever else runs there.
        working_directory: where the ranks start.
        folder: where ``stdout.log``, ``stderr.log`` and results go; None: the output is ours.
        task: what the ranks report; None for a plain training.
        expected: what must really run; None where the ranks cannot tell what they applied.
        checked: knobs of ``expected`` that are compared, with the words that ask for them; None:
            all that our own runtime reports.
        fresh: every rank is a new interpreter, also where a backend could fork one.
        private_files: paths of files with secrets, each with its text without them, which
            replaces the file's once the ranks have ended.
        alone: the one process starts further ranks by itself, if there are any.
    """

    name: str
    ranks: tuple[RankPlan, ...]
    working_directory: str
    hosts: tuple[str, ...] = ()
    step: StepSize | None = None
    folder: str | None = None
    task: RankTask | None = None
    expected: Candidate | None = None
    fresh: bool = False
    private_files: tuple[tuple[str, str], ...] = ()
    alone: bool = False
    checked: tuple[tuple[str, str], ...] | None = None

    @property
    def world_size(self) -> int:
        """Ranks of the launch that are started from here."""
        return len(self.ranks)
