"""``plan`` on clusters whose nodes differ: text, document, table, exit code."""

from pathlib import Path

import pytest

from autoconf_launch.tuning_spaces import TRAINERS

from .verb import Run, table

WORK = ("--model", "gpt2-xl", "--seq", "1024", "--global-batch", "64")
MIX = (*WORK, "--cluster", "1x8xA100-SXM-40GB+3x4xA10G-24GB")


def test_each_part_of_the_cluster_is_ranked(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    ran = plan(*MIX, "--json", "--csv", str(path))
    rows = ran.best
    assert (ran.code, ran.document["schema_version"], len(rows)) == (0, 2, 7)
    assert len({tuple(row["nodes"]) for row in rows}) == len(table(path)) == 7
    assert {line["nodes"] for line in table(path)} >= {"3x4xA10G-24GB"}
    times = [row["step_time_s"] for row in rows]
    assert times == sorted(times)
    for row in rows:
        assert sum(row["parts"].values()) == pytest.approx(row["step_time_s"])
        assert sum(stage["layers"] for stage in row["stages"]) == 48
        layout = row["candidate"]
        ranks = layout["data_parallel"] * layout["tensor_parallel"] * layout["pipeline_parallel"]
        slots = layout["placement"] or list(range(ranks))
        assert len(set(slots)) == len(slots) == ranks
    assert len(plan(*MIX, "--json", "--top", "2").best) == 2
    money = [row["usd_per_step"] for row in plan(*MIX, "--json", "--objective", "cost").best]
    assert money == sorted(money)


def test_the_text_says_what_lies_where_and_what_it_gains(plan: Run) -> None:
    out = plan(*MIX, "--explain").out
    for words in ("Without 3x4xA10G-24GB a step is", "Stages of #1:", "A step of #1:"):
        assert words in out


def test_all_layouts_that_fit_on_the_parts_are_shown_on_request(plan: Run, tmp_path: Path) -> None:
    path, work = tmp_path / "rows.csv", (*MIX, "--headroom", "5")
    ran = plan(*work, "--top", "0", "--csv", str(path))
    assert "One row for each mesh, micro-batch and order of nodes that fits" in ran.out
    lines, best = table(path), plan(*work, "--json").best
    assert len(lines) > 5 * len(best)
    times = [float(line["step_time_s"]) for line in lines]
    assert times == sorted(times)
    assert {row["step_time_s"] for row in best} <= set(times)
    kinds = ("order", "tensor_parallel", "data_parallel", "micro_batch")
    assert len({tuple(line[kind] for kind in kinds) for line in lines}) == len(lines)
    assert min(float(line["free_memory"]) for line in lines) >= 0.05


def test_too_little_memory_is_named(plan: Run) -> None:
    ran = plan(*MIX, "--memory-limit", "2GB")
    assert ran.code == 3
    assert "fits in memory; raise --memory-limit, " in ran.err


def test_the_first_row_on_unequal_nodes_runs_or_leads_by_more_than_its_band(
    plan: Run, tmp_path: Path
) -> None:
    path = tmp_path / "mix.yaml"
    node = "{gpu: %s-SXM-80GB, count: 1, gpus: 8, network_gb_per_s: 3}"
    path.write_text(f"nodes:\n- {node % 'A100'}\n- {node % 'H100'}\n")
    work = ("--model", "gpt3-18b", "--seq", "2k", "--global-batch", "32", "--cluster", str(path))
    document = plan(*work, "--json").document
    first, apart = document["best"][0], document["faster_if_it_works"]
    assert first["runnable"]
    assert apart
    for row in apart:
        assert not row["runnable"]
        assert row["step_time_s"] < first["step_time_s"]
        assert row["step_time_s"] * (1 + row["step_time_band"]) >= first["step_time_s"]
    out = plan(*work).out
    assert "Faster if it works (by up to" in out
    assert "90 % error bands from published runs: step time ±" in out


def test_rows_of_unequal_nodes_near_their_memory_are_marked(plan: Run) -> None:
    fits = {row["fits"] for row in plan(*MIX, "--headroom", "0", "--json").best}
    assert fits <= {"yes", "marginal"}
    text = plan(*MIX, "--headroom", "0").out
    assert ("marginal: below the memory limit" in text) == ("marginal" in fits)


DISTINCT = [
    *{
        repr(one.abilities): name
        for name, one in TRAINERS.items()
        if one.abilities.parallel or len(one.abilities.zero) > 1
    }.values()
]
"""A trainer of several GPUs for each set of abilities."""


@pytest.mark.parametrize("name", DISTINCT)
def test_rows_of_unequal_nodes_are_what_the_trainer_has(plan: Run, name: str) -> None:
    words = ("--model", "llama-2-7b", "--seq", "2048", "--global-batch", "64")
    cluster = "1x8xA100-SXM-40GB+2x4xA10G-24GB"
    has = TRAINERS[name].abilities
    found = plan(*words, "--cluster", cluster, "--trainer", name, "--top", "0", "--json").document
    rows = [row["candidate"] for row in found["best"] + found["faster_if_it_works"]]
    degrees = {"tp": "tensor_parallel", "pp": "pipeline_parallel", "vpp": "virtual_pipeline"}
    degrees |= {"cp": "context_parallel", "ep": "expert_parallel"}
    assert rows
    for row in rows:
        used = {flag for flag, knob in degrees.items() if row[knob] > 1}
        used |= {"sp"} if row["sequence_parallel"] else set()
        used |= {"uneven"} if row["micro_batch_split"] else set()
        assert used <= has.parallel
        stages = has.zero_in_pipelines if row["pipeline_parallel"] > 1 else dict(has.zero)
        shards = row["data_parallel"] * row["context_parallel"]
        assert row["zero_stage"] in stages or shards == 1
        assert row["offload"] in [one.value for one in has.offload]
        assert row["recompute"] in has.recompute
