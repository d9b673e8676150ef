"""A strategy in one file, as another package would bring it: the last candidates first."""

from autoconf_launch.autotuner.space import Objective
from autoconf_launch.autotuner.strategies import Ask


class Toy:
    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def propose(self, ask: Ask) -> tuple[int, ...]:
        return tuple(ask.free_rows[::-1][: ask.count].tolist())


class Bare:
    """A strategy that is called with nothing, which is a mistake."""

    def propose(self, ask: Ask) -> tuple[int, ...]:
        return ()
