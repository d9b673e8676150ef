"""Measure the size of the code: lines, files, repeated declarations, English, start-up time.

Run: ``.venv/bin/python benchmarks/house.py [--write]``; 20 s. ``--write`` puts the table into
``benchmarks/results/house.md``.
"""

from __future__ import annotations

import ast
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
PRODUCT = ("core", "autotuner", "tuning_spaces", "runtime", "launcher", "nemo_tools", "api")
PARAMETERS = ("stall_timeout", "max_cost", "lora_rank", "good_enough", "soak_steps")
RELATIVE = {"What", "Whether", "Those", "So", "One", "How", "Where", "Who", "That"}
"""First words of a docstring that begin a free relative clause."""


def sources(*folders: str) -> dict[Path, str]:
    """Text of each Python file below the folders, by path."""
    files = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {path: path.read_text("utf-8") for path in files}


def docstrings(source: str) -> Iterator[str]:
    """Docstrings of a module, its classes and its functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text


def documents() -> Iterator[str]:
    """Text of each document for readers."""
    for path in (*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))):
        yield path.read_text("utf-8")


def cpu_s(*words: str, runs: int = 5) -> float:
    """Median CPU time of a process of this Python, in seconds."""
    times: list[float] = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run((sys.executable, *words), check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(times)


def rows() -> Iterator[tuple[str, str]]:
    """Name and value of each figure."""
    product, tests = sources(*PRODUCT), sources("tests")
    yield "product lines; files", f"{lines(product):,}; {len(product)}"
    yield "test lines; files", f"{lines(tests):,}; {len(tests)}"
    named = (str(sum(name in text for text in product.values())) for name in PARAMETERS)
    yield f"product files that name {', '.join(PARAMETERS)}", ", ".join(named)
    texts = [text for source in product.values() for text in docstrings(source)]
    relative = sum(text.split(maxsplit=1)[0].rstrip(",.:") in RELATIVE for text in texts)
    yield (
        f"docstrings; of these begin with {', '.join(sorted(RELATIVE))}",
        f"{len(texts):,}; {relative}",
    )
    prose = [*texts, *documents()]
    for word in ("where", "alone"):
        count = sum(len(re.findall(rf"\b{word}\b", text)) for text in prose)
        yield f"`{word}` in docstrings and documents, places included", str(count)
    yield (
        "CPU of `--help`; `plan --help`; `tune --help`",
        "; ".join(
            f"{cpu_s('-m', 'autoconf_launch', *words, '--help'):.2f} s"
            for words in ((), ("plan",), ("tune",))
        ),
    )


def lines(files: dict[Path, str]) -> int:
    """Total number of lines."""
    return sum(text.count("\n") for text in files.values())


def main() -> None:
    """Print the table, and write it if asked."""
    table = "\n".join(("| what | measured |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows())))
    print(table)
    if "--write" in sys.argv[1:]:
        page = f"# Size of the code\n\nWritten by `benchmarks/house.py --write`.\n\n{table}\n"
        (ROOT / "benchmarks" / "results" / "house.md").write_text(page, "utf-8")


if __name__ == "__main__":
    main()
