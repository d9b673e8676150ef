"""``plan`` and ``recommend`` with real runs, through the command's entry point."""

from pathlib import Path
from typing import Any

import pytest

from autoconf_launch import ConfigError
from autoconf_launch import plan as python_plan
from autoconf_launch import recommend as python_recommend

from .verb import Run, with_value

PLAN = (
    *("--model", "gpt3-5b", "--cluster", "20x8xA100-SXM-80GB", "--seq", "2048"),
    *("--global-batch", "1280", "--tokens", "300B"),
)
RECOMMEND = (
    *("--family", "gpt3", "--cluster", "20x8xA100-SXM-80GB", "--tokens", "300B"),
    *("--max-days", "5"),
)
HEADER = "model,seq,gpu,n_gpus,tp,pp,dp,cp,mbs,gbs,precision,recompute,zero_dist_opt,step_time_s"
TWO_NODES = "gpt3-5b,2048,A100-SXM-80GB,16,1,1,16,1,8,128,bf16,none,2,2.95"
SHAPES = "layers,hidden,heads,ffn_hidden,vocab"


def write(path: Path, *rows: str, header: str = HEADER) -> str:
    path.write_text("\n".join((header, *rows)) + "\n")
    return str(path)


def test_plan_is_corrected_and_its_band_is_narrower(plan: Run, tmp_path: Path) -> None:
    before = plan(*PLAN, "--json").document
    file = write(tmp_path / "runs.csv", TWO_NODES.replace("2.95", "2.55"))
    after = plan(*PLAN, "--json", "--measured", file).document
    best, same = before["best"][0], after["best"][0]
    assert same["candidate"] == best["candidate"]
    assert 0.9 < same["step_time_s"] / best["step_time_s"] < 0.99
    assert same["step_time_band"] < 0.75 * best["step_time_band"]
    assert same["training_usd"] < best["training_usd"]
    (run,) = after["measured"]["runs"]
    assert (run["line"], run["n_gpus"], run["layers"], run["measured_s"]) == (2, 16, 24, 2.55)


def test_recommend_has_corrected_days_money_and_band(recommend: Run, tmp_path: Path) -> None:
    before = recommend(*RECOMMEND, "--json").document
    model, layout = before["model"], before["planner"]["layout"]
    row = (
        f"gpt3,2048,A100-SXM-80GB,16,1,1,{16 // layout['context_parallel']},"
        f"{layout['context_parallel']},{layout['micro_batch']},"
        f"{16 // layout['context_parallel'] * layout['micro_batch'] * layout['accumulation']},"
        f"bf16,{layout['recompute']},{layout['zero_stage']},{before['planner']['step_s'] * 1.1},"
        f"{model['layers']},{model['hidden']},{model['heads']},{model['ffn']},51200"
    )
    file = write(tmp_path / "runs.csv", row, header=f"{HEADER},{SHAPES}")
    asked = ("--model-size", str(before["formula"]["model_size_b"]))
    words = tuple(word for word in RECOMMEND if word not in ("--max-days", "5"))
    plain = recommend(*words, *asked, "--json").document["planner"]
    after = recommend(*words, *asked, "--json", "--measured", file).document
    planner, band = after["planner"], after["planner"]["error_band"]
    assert planner["training_days"] > plain["training_days"]
    assert planner["cost_usd"] > plain["cost_usd"]
    assert plain["error_band"]["slowest"] < band["slowest"] < 1.0
    assert plain["error_band"]["fastest"] > band["fastest"] > 1.0
    assert after["measured"]["file"] == "runs.csv"
    assert "Corrected by 1 run of runs.csv" in recommend(*words, *asked, "--measured", file).out


def test_rows_that_do_not_serve_are_named_and_the_others_count(plan: Run, tmp_path: Path) -> None:
    other = TWO_NODES.replace("gpt3-5b", "gpt3-20b")
    fp16, empty = (
        TWO_NODES.replace("bf16", "fp16"),
        "gpt3-5b,2048,A100-SXM-80GB,8,1,1,8,1,8,64,bf16,none,2,",
    )
    file = write(tmp_path / "runs.csv", other, TWO_NODES, fp16, empty)
    out = plan(*PLAN, "--measured", file).out
    assert "Corrected by 1 run of runs.csv" in out
    assert "runs.csv:2 is skipped: hidden is 6144, but gpt3-5b is planned with 4096." in out
    assert "runs.csv:4 is skipped: precision is fp16" in out
    assert "runs.csv:5 is skipped: its step_time_s is empty." in out


def test_a_run_that_contradicts_the_others_is_named(plan: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "runs.csv", TWO_NODES, TWO_NODES.replace("2.95", "2950"))
    ran = plan(*PLAN, "--measured", file)
    assert ran.code == 0
    assert "runs.csv:3 is " in ran.out
    assert "measure it again" in ran.out


@pytest.mark.parametrize(
    ("row", "more", "why"),
    [
        (TWO_NODES.replace("gpt3-5b", "gpt3-20b"), (), ":2: hidden is 6144, but gpt3-5b"),
        (TWO_NODES.replace("A100", "H100"), (), ":2: gpu is H100-SXM-80GB"),
        (TWO_NODES.replace(",2048,", ",1024,"), (), ":2: seq is 1024"),
        (TWO_NODES.replace("2.95", "-1"), (), ":2: step_time_s is '-1'"),
        (TWO_NODES.replace("2.95", "0.295"), (), "0.295 s is faster than the peak of its GPUs"),
        (TWO_NODES, ("--cluster", "8xH100"), "give one --cluster"),
        (TWO_NODES, ("8xH100+8xA100",), "equal nodes"),
    ],
)
def test_a_file_that_does_not_serve_is_refused_with_the_reason(
    plan: Run, tmp_path: Path, row: str, more: tuple[str, ...], why: str
) -> None:
    words = (*PLAN, *more) if len(more) != 1 else with_value(PLAN, "--cluster", *more)
    ran = plan(*words, "--measured", write(tmp_path / "runs.csv", row))
    assert (ran.code, ran.is_one_line) == (2, True)
    assert why in ran.err


def test_python_takes_the_same_file(tmp_path: Path) -> None:
    file = Path(write(tmp_path / "runs.csv", TWO_NODES))
    cluster = "20x8xA100-SXM-80GB"
    answer = python_plan(
        model="gpt3-5b", cluster=cluster, seq=2048, global_batch=1280, measured=file
    )
    assert answer.measured
    assert [one.row.line for one in answer.measured.runs] == [2]
    asked: dict[str, Any] = {"family": "gpt3", "cluster": cluster, "model_size_b": 20.0}
    with pytest.raises(ConfigError, match=r"runs\.csv:2: hidden is 4096"):
        python_recommend(tokens_b=300.0, **asked, measured=str(file))
