"""Cost is entered by ``estimate``."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("autotuner", "tuning_spaces", "launcher", "nemo_tools", "api")
ROOM = ROOT / "autotuner" / "cost"
FORMULAS = {
    "memory_bytes": {"autotuner/mixed", "launcher/estimates", "launcher/export"},
    "inner_times": {"autotuner/mixed"},
    "attention_times": {"autotuner/inference"},
    "layer_times": {"autotuner/inference"},
    "beyond_backward_s": {"autotuner/mixed"},
    "reduction_passes": {"autotuner/mixed"},
    "profiled_step_parts": {"launcher/first_forward"},
}
"""Below ``estimate``, with the rooms that need a model's operations in place of its profile, or
stages of unequal layers and GPUs, or a forward pass alone."""


@cache
def imported_from_cost() -> dict[str, set[str]]:
    """Names that outsiders import from the room, and the rooms in which they do."""
    found: dict[str, set[str]] = {}
    for path in (p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        if ROOM in path.parents or "cost import" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("cost"):
                for alias in node.names:
                    room = str(path.parent.relative_to(ROOT))
                    found.setdefault(alias.name, set()).add(room)
    return found


def face() -> set[str]:
    tree = ast.parse((ROOM / "__init__.py").read_text())
    inside = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 1]
    return {alias.name for node in inside for alias in node.names}


def functions_of(module: str) -> set[str]:
    body = ast.parse((ROOM / f"{module}.py").read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_formulas_are_reached_by_estimate_alone() -> None:
    found = imported_from_cost()
    assert "estimate" in found
    inside = set().union(
        *(functions_of(name) for name in ("step", "memory", "inner", "layer", "activations"))
    )
    reached = {name: rooms for name, rooms in found.items() if name in inside}
    assert reached == FORMULAS


def test_the_face_has_what_outsiders_use_and_no_more() -> None:
    assert face() - set(imported_from_cost()) == set()
