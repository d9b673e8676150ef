from __future__ import annotations

import pytest

pytest.importorskip("hydra")

from autoconf_launch.autotuner.cost import parameters
from autoconf_launch.nemo.search.this_machine import STATE_BYTES, why_no_room

from .asked import LOCAL, SMALL, ask_for, train

GB = 10**9
FIVE_B = ("search_config=gpt3/5b", LOCAL, "run_inference_hp_search=False", *train(gpus_per_node=2))


def test_a_model_that_all_ranks_together_hold_has_room() -> None:
    question = ask_for(*SMALL).question
    share = STATE_BYTES * parameters(question.model.architecture) // 2
    assert why_no_room(question, share + 1) == ""
    assert "needs at least" in why_no_room(question, share - 1)


def test_what_is_needed_what_is_there_and_what_would_do_are_said() -> None:
    question = ask_for(*FIVE_B).question
    said = why_no_room(question, 10 * GB)
    assert "gpt3_5b needs at least 40.41 GB on each of 2 ranks" in said
    assert "this machine has 10.00 GB free for each" in said
    assert "search_config=gpt3/0.843b" in said
    assert "it holds 0.013 B: give a smaller model_size_in_b" in why_no_room(question, GB // 10)
