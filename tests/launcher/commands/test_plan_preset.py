"""``plan --preset``: a training with its cluster."""

from pathlib import Path

from autoconf_launch.autotuner.mixed import sub_clusters
from autoconf_launch.autotuner.mixed.candidates import _layouts
from autoconf_launch.launcher.estimates import parse_plan, plan_answer

from .verb import Run


def test_a_preset_is_a_training_that_flags_change(plan: Run) -> None:
    ran = plan("--preset", "fasop/bert", "--top", "1")
    assert ran.code == 0
    assert "bert-large" in ran.out
    assert "global batch 256 of 512 tokens, on 16 x A10G-24GB" in ran.out
    assert "$2.04 per GPU hour (by the cluster file)" in ran.out
    assert "12,500,000 steps" in ran.out
    changed = plan("--preset=fasop/bert", "--top", "1", "--global-batch", "512")
    assert "global batch 512 of 512 tokens, on 16 x A10G-24GB" in changed.out


def test_the_pareto_preset_has_exactly_the_candidates_of_fasop() -> None:
    """31,362 layouts on rotations of its nodes that obey the rules."""
    parts = plan_answer(parse_plan(["--preset", "fasop/gpt2XL-pareto", "--pareto"])).parts
    assert parts is not None
    question = parts.question
    valid = {nodes: len(_layouts(8 * nodes, question)[1]) for nodes in range(1, 17)}
    counted = sub_clusters(question.kinds).tolist()
    orders = [len(question.order_rule(counts, question.kinds)) for counts in counted]
    found = sum(valid[sum(counts)] * count for counts, count in zip(counted, orders, strict=True))
    assert (len(counted), found) == (80, 31_362)


def test_the_text_says_what_the_table_in_fasops_columns_has_besides(
    plan: Run, tmp_path: Path
) -> None:
    path = tmp_path / "b.csv"
    files = ("--csv", str(path), "--csv-form", "fasop", "--top", "0")
    out = plan("--preset", "fasop/bert", *files).out
    rows = len(path.read_text().splitlines()) - 1
    assert rows > 100
    assert f"{path} has {rows:,} rows" in out
    assert "those out of memory included" in out
