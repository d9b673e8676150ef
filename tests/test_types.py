"""One type for one idea: public dataclasses outside core do not repeat each other's fields."""

import ast
import itertools
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("autotuner", "tuning_spaces", "runtime", "launcher", "nemo_tools", "api")
MOST_SHARED = 5
MAY_SHARE = {
    # the flags of a verb of ours, and the keys of NVIDIA's search files
    frozenset({"RecommendQuestion", "TrainSettings"}),
    # a table of NVIDIA's, and its two searches, in its own words
    frozenset({"BatchRow", "TrainSettings"}),
    frozenset({"InferenceSettings", "TrainSettings"}),
    # a question in the user's words, and the same when its names are resolved
    frozenset({"Serving", "ServingQuestion"}),
}


def dataclasses() -> dict[str, tuple[set[str], set[str]]]:
    """Fields and base classes of each public dataclass."""
    found = {}
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and is_public_dataclass(node):
                lines = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
                fields = {target.id for target in lines if isinstance(target, ast.Name)}
                found[node.name] = fields, {ast.unparse(base) for base in node.bases}
    return found


def is_public_dataclass(node: ast.ClassDef) -> bool:
    names = [ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list]
    return not node.name.startswith("_") and bool({"dataclass", "question"} & {*names})


def test_no_two_dataclasses_share_many_fields() -> None:
    found = dataclasses()
    assert len(found) > 100
    shared = {}
    for (one, (fields, bases)), (other, (others, other_bases)) in itertools.combinations(
        found.items(), 2
    ):
        is_narrowed = one in other_bases or other in bases  # the same type with surer fields
        if len(fields & others) > MOST_SHARED and not is_narrowed:
            shared[frozenset({one, other})] = sorted(fields & others)
    assert shared.keys() == MAY_SHARE, {
        " and ".join(sorted(pair)): names for pair, names in shared.items()
    }
