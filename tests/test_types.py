"""A single type for an idea: public dataclasses outside core do not repeat each other's fields."""

import itertools

from .sources import Class, product

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


def is_public_dataclass(one: Class) -> bool:
    return not one.name.startswith("_") and bool({"dataclass", "question"} & one.decorators)


def test_no_two_dataclasses_share_many_fields() -> None:
    files = [source for source in product() if not source.name.startswith("core")]
    types = [one for source in files for one in source.classes if is_public_dataclass(one)]
    assert len(types) > 100
    shared = {}
    for one, other in itertools.combinations(types, 2):
        is_narrowed = one.name in other.bases or other.name in one.bases  # with surer fields
        if len(one.fields & other.fields) > MOST_SHARED and not is_narrowed:
            shared[frozenset({one.name, other.name})] = sorted(one.fields & other.fields)
    assert shared.keys() == MAY_SHARE, shared
