"""Texts and streams without known secrets."""

import json
import re
import shlex
import string
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import SecretFilter

HARD = 'it\'s "a" $T\\n\n/b&é \t end'
LOWER = re.sub("%..", lambda found: found[0].lower(), quote_plus(HARD))
SECRETS = [("hf_abcdefgh", "HF_TOKEN"), ("s3cr3t", "PASSWORD"), (HARD, "HARD")]
FILTER = SecretFilter(SECRETS)


@pytest.mark.parametrize(
    "printed",
    [
        *(HARD, repr(HARD), repr({"a": [HARD]}), json.dumps(HARD), f"{HARD!r}"),
        *(json.dumps(HARD, ensure_ascii=False), json.dumps({"a": repr(HARD)})),
        *(repr(json.dumps(HARD)), repr(HARD.encode()), shlex.quote(HARD)),
        *(quote(HARD), quote(HARD, safe=""), quote_plus(HARD), LOWER),
        *(" ".join(HARD.split()), "\n  | ".join(HARD.splitlines())),
    ],
)
def test_a_value_is_replaced_however_it_is_printed(printed: str) -> None:
    for shown in (FILTER.text(printed), stream(printed.encode(), 1).decode()):
        assert "${HARD}" in shown
        assert "it" not in shown.replace("${HARD}", "")


@pytest.mark.parametrize(
    "text",
    [
        *("1", "true", "a", "short", "1234567", "abcdefg", "None", "bf16", "gpt2", "fp32"),
        *("", " ", "\n"),
    ],
)
def test_a_short_value_is_an_ordinary_one(text: str) -> None:
    filter_ = SecretFilter([(text, "API_KEY")])
    assert (filter_.secrets, filter_.to_environment()) == ((), ())
    assert filter_.text(f"step {text}: true 1") == f"step {text}: true 1"


@pytest.mark.parametrize("value", ["password", "12345678", "s3cr3t"])
def test_a_plain_word_or_a_number_is_replaced_only_alone(value: str) -> None:
    filter_ = SecretFilter([(value, "K")])
    text = f"{value}s x{value} 0{value}. {value}, '{value}' {value}"
    shown = f"{value}s x{value} 0{value}. ${{K}}, '${{K}}' ${{K}}"
    assert filter_.text(text) == shown
    for size in range(1, len(text) + 1):
        assert stream(text.encode(), size, filter_) == shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hf_abcdef...", "${HF_TOKEN}..."),
        ("token hf_abcdefg\nnext", "token ${HF_TOKEN}\nnext"),
        ('"hf_abcdef"', '"${HF_TOKEN}"'),
        ("hf_abcde", "${HF_TOKEN}"),
        ("hf_abc", "hf_abc"),
        ("hf_abcdeX", "hf_abcdeX"),
    ],
)
def test_the_beginning_of_a_value_is_replaced_where_it_was_cut_off(text: str, shown: str) -> None:
    assert FILTER.text(text) == shown
    assert stream(text.encode(), 3) == shown.encode()


def test_values_that_begin_alike_have_their_variables_also_in_a_process() -> None:
    filter_ = SecretFilter([("sk_live_AAAA", "A"), ("sk_live_AAAAbbb", "B"), ("sk_live_CC", "C")])
    text = "sk_live_AAAAbbb sk_live_AAAA sk_live_CC"
    assert filter_.text(text) == "${B} ${A} ${C}"
    assert all(stream(text.encode(), n, filter_) == b"${B} ${A} ${C}" for n in range(1, 20))
    told = SecretFilter.from_environment(dict(FILTER.to_environment()))
    assert told.text("hf_abcdefgh") == "${HF_TOKEN}"
    assert SecretFilter.from_environment({}).text("hf_abcdefgh") == "hf_abcdefgh"


@given(
    parts=st.lists(st.sampled_from(["hf_abcdefgh", "hf_", "s3cr3t", HARD, " ", "é", "x", "\n"])),
    sizes=st.lists(st.integers(1, 9), min_size=1),
)
def test_a_stream_in_any_pieces_shows_what_the_whole_text_shows(
    parts: list[str], sizes: list[int]
) -> None:
    data = "".join(parts).encode()
    filter_, shown, place = SecretFilter(SECRETS), b"", 0
    while place < len(data):
        sizes.append(size := sizes.pop(0))
        shown += filter_.feed(data[place : place + size])
        place += size
    shown += filter_.end()
    assert shown.decode() == FILTER.text(data.decode())
    assert b"hf_abcdefgh" not in shown


@given(value=st.text(min_size=8).filter(lambda text: len(text.strip()) >= 8), around=st.text())
def test_every_value_is_replaced_between_other_texts(value: str, around: str) -> None:
    shown = SecretFilter([(value, "K")]).text(f"{around} {value} {around}")
    assert "${K}" in shown


@given(st.binary(max_size=200))
def test_bytes_without_a_secret_pass_unchanged(data: bytes) -> None:
    known = SecretFilter([(string.punctuation, "K")])
    assert stream(data, 7, known) == data


def stream(data: bytes, size: int, known: SecretFilter | None = None) -> bytes:
    filter_ = known or SecretFilter(SECRETS)
    pieces = (filter_.feed(data[start : start + size]) for start in range(0, len(data), size))
    return b"".join((*pieces, filter_.end()))
