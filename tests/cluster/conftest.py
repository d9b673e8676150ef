from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import namespaces, slurm
from .clusters import Scheduler
from .namespaces import Hosts
from .slurm import Slurm


@pytest.fixture(scope="module")
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    """The cluster of a row of ``clusters``; nothing of a launch is left on it at the end."""
    with request.param() as running:
        yield running
        assert running.is_idle_within(30)


@pytest.fixture(scope="module")
def slurm_cluster() -> Iterator[Slurm]:
    with slurm.running() as running:
        yield running


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Three hosts of two slots, on which nothing is left at the end."""
    with namespaces.running() as running:
        yield running
        assert running.are_idle_within(15)
