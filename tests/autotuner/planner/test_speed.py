import time

import pytest

from autoconf_launch.autotuner.planner import plan
from autoconf_launch.tuning_spaces import named_model

from .conftest import ask


@pytest.mark.slow
def test_a_million_valid_layouts_are_priced_in_a_second_of_one_core() -> None:
    question = ask(16384, 2048, model=named_model("llama3.1-405b"), sequence=8192)
    plan(ask())
    started = time.process_time()
    found = plan(question)
    taken_s = time.process_time() - started
    assert found.valid / taken_s > 1e6
