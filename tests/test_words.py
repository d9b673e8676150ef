"""The words that users and readers see: no wording of the list below in texts or documents."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("core", "autotuner", "tuning_spaces", "runtime", "launcher", "nemo_tools", "api")
WORDS = (
    (
        r"(?<!\bthere )(?<!answer )\b(is|are|was|were) no (?!(longer|more|better)\b)\w+",
        "is not a …",
    ),
    (r"\b(told|tells?|telling)( \w+)? apart\b", "distinguish, cannot be distinguished"),
    (r"\bas is to be expected\b", "expected"),
    (r"\b(?<!\.)mend(s|ed|ing)?\b", "fix"),
    (r"\b(come|comes|came) to (?!an? )", "reaches, is, must"),
    (r"\bsees? to (?!it that)", "check"),
    (r"\bhand(s|ed|ing)? on\b", "pass"),
    (r"\b(may|must) not be used\b", "cannot be used"),
    (r"\ble(ft|ave|aves|aving)( it| one| them)? out\b", "skip, omit, exclude"),
    (r"\bstands? for\b", "means, represents"),
    (r"\buntried\b(?!:)", "remaining"),
    (r"\bperceptrons?\b", "MLP"),
    (r"\bforeign\b", "external"),
    (r"\bfor ever\b", "forever"),
    (r"\b(holds?|held) out\b", "exclude, pass its verification run"),
    (r"\bas (it|they) stands?\b", "as it is"),
    (r"\bsurely fits?\b", "fits safely, with headroom"),
    (r"\b(is|are|was) taken for\b", "counts as, is used as"),
    (r"\bdeaf ear\b", "block, ignore"),
    (r"\bof no use\b", "cannot be used, inconclusive"),
    (r"\bfails as it is given\b", "fails without any change"),
    (r"\bnine times of ten\b", "90 % error band"),
    (r"\blaunch of its own\b", "verification run"),
    (r"\bof the search alone\b", "measured only once"),
    (r"\bas far as (it|they) (is|was|were) worth\b", "search complete"),
    (r"\bexactly counted\b", "has, in all"),
    (r"\bno three changes\b", "even with three layout changes"),
    (r"\btimes \([0-9.]+ to [0-9.]+\) the speed\b", "1.55x faster (95 % interval …)"),
    (r"\bwho is beaten\b", "an eliminated contender"),
    (r"\bin a later issue\b", "not supported"),
    (r"\b0\.00[0-9]* (G|T)i?B\b", "a scaled size: 8.3 MB"),
)
"""What nobody writes in a message, docstring or document, and better words."""
FIRST_WORDS = re.compile(r"(Of|That|Who|Whose) ")
"""A docstring that begins with one of these cannot be read without the name that it is of."""

PARTICIPLES = re.compile(
    r"_?([a-z]{2,}ed|told|made|given|taken|seen|shown|kept|held|sent|found|drawn"
    r"|grown|known|begun|lost|said|had|broken|chosen)"
)
VERBS_AND_NOUNS = frozenset(
    {"_deepspeed", "deepspeed", "embed", "exceed", "feed", "proceed", "need", "speed"}
)
"""What looks like a participle and is none."""
STATES = re.compile(r"property|fixture")


SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def complaints(text: str) -> Iterator[str]:
    """The phrases of a text that are on the list, each with better words."""
    line = " ".join(text.split())
    for pattern, better in WORDS:
        for match in re.finditer(pattern, line, re.IGNORECASE):
            yield f"{match.group()!r}: write {better}"


def source_complaints(source: str) -> Iterator[str]:
    """What is wrong with the messages and docstrings of a module, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (f"line {node.lineno}: {one}" for one in complaints(node.value))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = str(node.value.value)
            if FIRST_WORDS.match(text):
                yield f"line {node.lineno}: {text.splitlines()[0]!r}: begin with what it is"


def functions(source: str) -> Iterator[ast.FunctionDef]:
    """Functions and methods of a module, but for properties and fixtures, which say a state."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and not any(
            STATES.search(ast.unparse(one)) for one in node.decorator_list
        ):
            yield node


@pytest.mark.parametrize("folder", [*FOLDERS, "tests"])
def test_a_function_is_a_verb_or_a_noun(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)} line {node.lineno}: {node.name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in functions(path.read_text())
        if PARTICIPLES.fullmatch(node.name) and node.name not in VERBS_AND_NOUNS
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", FOLDERS)
def test_messages_and_docstrings_use_no_word_of_the_list(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)} {one}"
        for path in SOURCES
        if path.is_relative_to(ROOT / folder)
        for one in source_complaints(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_use_no_word_of_the_list(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    assert not list(complaints(text))


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('raise ValueError(f"{x} is no number")', 1),
        ('x = "two that are not told apart"', 1),
        ('"""Of each stage."""', 1),
        ('x = "Mend it first, as is to be expected"', 2),
        ('x = "there is no such file; stage 1 is no longer searched"', 0),
        ('x = "it comes to an end"', 0),
        ('x = "The fastest that surely fits is taken for the winner"', 2),
        ('x = "1.55 times (1.44 to 1.67) the speed of your configuration"', 1),
        ('x = "AdamW with 0.00826 GB of state"', 1),
    ],
)
def test_the_list_finds_what_it_should(source: str, count: int) -> None:
    assert len(list(source_complaints(source))) == count
