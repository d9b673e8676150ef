from __future__ import annotations

import pytest

from autoconf_launch.runtime.pretraining import LEAST_VOCABULARY, MASK, Sums


def test_tokens_are_below_the_least_vocabulary() -> None:
    assert int(Sums("gpt3", 64)[0]["input_ids"].max()) < LEAST_VOCABULARY


@pytest.mark.parametrize("family", ["gpt3", "llama", "gemma"])
def test_decoders_say_the_same_text(family: str) -> None:
    sample = Sums(family, 32)[3]
    assert sample["input_ids"].equal(sample["labels"])


def test_bert_says_what_is_masked_alone() -> None:
    sample = Sums("bert", 32)[3]
    assert (sample["input_ids"] == MASK).equal(sample["labels"] >= 0)


@pytest.mark.parametrize("family", ["t5", "mt5"])
def test_t5_says_the_quarter_that_is_missing(family: str) -> None:
    sample = Sums(family, 32)[3]
    assert len(sample["labels"]) == int((sample["input_ids"] == MASK).sum()) == 8


def test_t5_writes_as_many_tokens_as_its_file_says() -> None:
    samples = Sums("t5", 512, 128)
    first, last = samples[0], samples[len(samples) - 1]
    assert len(first["labels"]) == len(last["labels"]) == 128
    assert len(first["input_ids"]) == 512


def test_what_is_not_missing_follows_the_window() -> None:
    window, following = Sums("gpt3", 32)[0]["labels"], Sums("gpt3", 32)[1]["labels"]
    said = Sums("t5", 32, 20)[0]["labels"]
    assert said.tolist() == [*window[12:20].tolist(), *following[:12].tolist()]


def test_the_same_sample_is_the_same_text() -> None:
    first, second = Sums("bert", 32)[5], Sums("bert", 32)[5]
    assert all(first[name].equal(second[name]) for name in first)


def test_a_sample_longer_than_the_text_is_still_one() -> None:
    assert len(Sums("gpt3", 1 << 30)) == 1
