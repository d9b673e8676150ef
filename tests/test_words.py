"""The English of docstrings, comments, messages and documents, by its structure."""

import re
from collections.abc import Iterator

import pytest

from .sources import PRODUCT, ROOT, Source, read, sources

FIRST_WORDS = re.compile(
    r"(What|Whatever|Those|So|One|Whether|How|Where|Who|Whose|That|Of|Which|Nobody|Somebody)\b"
)
"""A docstring begins with a verb or a noun, never with a free relative clause or a pronoun."""
PHRASES = {
    r"\bones? (that|of|which|whose|who)\b": "repeat the noun",
    r"\b(those|that) of\b": "repeat the noun",
    r"\bthe same of\b": "repeat the noun",
    r"\bof (its|their|his) own\b": "its own X, a separate X",
    r"\b(is|are|was|were) to [a-z]": "must, will, should",
    r"\balone\b": "only",
}
IN_ALL_TEXTS = {
    r"(?<!\bthere )(?<!answer )\b(is|are|was|were) no (?!(longer|more|better)\b)\w+": "is not a",
    r"\b(may|must) not be used\b": "cannot be used",
    r"\b0\.00[0-9]* (G|T)i?B\b": "a scaled size: 8.3 MB",
}
CONDITION = re.compile(r"\bwhere\b", re.IGNORECASE)
"""For places; a condition is an *if* or a *when*. A program cannot tell them apart: count."""

ALLOWED = {
    "core": (0, 6, 0),
    "autotuner": (2, 4, 1),
    "tuning_spaces": (0, 3, 0),
    "runtime": (0, 6, 0),
    "launcher": (12, 64, 2),
    "nemo_tools": (0, 11, 1),
    "api": (0, 0, 0),
    "tests": (47, 52, 43),
    "benchmarks": (48, 22, 4),
    "examples": (0, 0, 0),
}
ALLOWED_IN_DOCUMENTS = 27
"""Breaches of each folder: in docstrings and comments, in messages, and each `where`."""

PARTICIPLES = re.compile(
    r"_?([a-z]{2,}ed|told|made|given|taken|seen|shown|kept|held|sent|found|drawn"
    r"|grown|known|begun|lost|said|had|broken|chosen)"
)
VERBS_AND_NOUNS = frozenset(
    {"_deepspeed", "deepspeed", "embed", "exceed", "feed", "proceed", "need", "speed"}
)
"""Words that look like participles."""
STATES = re.compile(r"property|fixture")
FOLDERS = (*PRODUCT, "tests", "benchmarks", "examples")
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "benchmarks").glob("*.md"),
]


def phrases(text: str, patterns: dict[str, str]) -> Iterator[str]:
    line = " ".join(text.split())
    for pattern, better in patterns.items():
        for match in re.finditer(pattern, line, re.IGNORECASE):
            yield f"{match.group()!r}: {better}"


def reading(source: Source) -> Iterator[str]:
    """Breaches in docstrings and comments."""
    for one in source.docstrings:
        if first := FIRST_WORDS.match(one.text.strip()):
            yield f"{source.name}:{one.line}: begins with {first.group()!r}"
    for one in (*source.docstrings, *source.comments):
        for breach in phrases(one.text, PHRASES | IN_ALL_TEXTS):
            yield f"{source.name}:{one.line}: {breach}"


def messages(source: Source) -> Iterator[str]:
    for one in source.strings:
        for breach in phrases(one.text, PHRASES | IN_ALL_TEXTS):
            yield f"{source.name}:{one.line}: {breach}"


def conditions(source: Source) -> Iterator[str]:
    for one in (*source.docstrings, *source.comments):
        for _ in CONDITION.finditer(one.text):
            yield f"{source.name}:{one.line}: where"


KINDS = (reading, messages, conditions)


def breaches(folder: str) -> tuple[list[str], ...]:
    return tuple([one for s in sources(folder) for one in kind(s)] for kind in KINDS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_texts_are_plain_english(folder: str) -> None:
    found = breaches(folder)
    for places, allowed in zip(found, ALLOWED[folder], strict=True):
        assert len(places) <= allowed, "\n".join(places)


def test_documents_are_plain_english() -> None:
    texts = {path.name: without_code(path.read_text()) for path in DOCUMENTS}
    found = [f"{n}: {one}" for n, text in texts.items() for one in phrases(text, PHRASES)]
    assert len(found) <= ALLOWED_IN_DOCUMENTS, "\n".join(found)
    assert not [one for text in texts.values() for one in phrases(text, IN_ALL_TEXTS)]


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def test_a_function_is_a_verb_or_a_noun() -> None:
    assert not [
        f"{one.name}:{f.line} {f.name}"
        for folder in (*PRODUCT, "tests")
        for one in sources(folder)
        for f in one.functions
        if not any(map(STATES.search, f.decorators))  # these name a state
        if PARTICIPLES.fullmatch(f.name) and f.name not in VERBS_AND_NOUNS
    ]


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ('raise ValueError(f"{x} is no number")', (0, 1, 0)),
        ('"""Of each stage."""', (1, 0, 0)),
        ('"""What passed."""', (1, 0, 0)),
        ('"""Whatsoever."""', (0, 0, 0)),
        ('class A:\n    x: int\n    """So many."""', (1, 0, 0)),
        ('"""None where no price is known."""', (0, 0, 1)),
        ("# those of a script alone", (2, 0, 0)),
        ("x = 1  # a launch that is to be repeated", (0, 0, 0)),
        ("# a launch that is to be repeated, of its own", (2, 0, 0)),
        ('x = "the stage is too large; one that fits is smaller"', (0, 1, 0)),
        ('x = "there is no such file; stage 1 is no longer searched"', (0, 0, 0)),
        ('x = "AdamW with 0.00826 GB of state"', (0, 1, 0)),
    ],
)
def test_the_checks_find_what_they_should(text: str, counts: tuple[int, ...]) -> None:
    one = read(ROOT / "example.py", text)
    assert tuple(len(list(kind(one))) for kind in KINDS) == counts
