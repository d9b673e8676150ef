"""A script that knows nothing of us: tuned by its own argument, then trained with the winner."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from .conftest import Place

pytestmark = pytest.mark.usefixtures("one_thread")

SCRIPT = str(Path(__file__).parent / "scripts" / "plain_loop.py")
DERIVED = str(Path(__file__).parent / "scripts" / "derived_total.py")
TOKENS = str(Path(__file__).parent / "scripts" / "tokens_total.py")
QUICK = (
    *("--num_gpus=1", "--max-parallel-trials=1", "--effort=quick"),
    *("--soak_steps=0", "--end_profile_step=5"),
)
SIZES = ("--allow-global-batch-change", "--knob=train_micro_batch_size_per_gpu=[4, 16]")


@pytest.mark.slow
def test_an_edited_script_after_the_word_python_is_measured_anew(place: Place) -> None:
    script = place.folder / "edited.py"
    script.write_text(Path(SCRIPT).read_text())
    words = ("--", sys.executable, str(script), "--batch-size", "4")
    first = ("--autotuning=tune", "--budget=1trials", *QUICK, "--allow-global-batch-change")
    assert place.run(*first, *words)[0] == 0
    script.write_text(script.read_text() + "# edited\n")
    code, output = place.run(*first, *words)
    assert (code, "Starting over because script changed" in output) == (0, True), output


@pytest.mark.slow
def test_a_plain_loop_is_tuned_by_its_own_argument(place: Place) -> None:
    code, output = place.run("--autotuning=run", *QUICK, *SIZES, SCRIPT, "--batch-size", "4")
    assert code == 0, output
    assert "autoconf-launch: Using --batch-size as the micro-batch" in output
    summary = place.summary()
    assert summary["spaces"][-1]["num_experiments"] >= 2
    assert f"trained with {summary['winner'].rpartition('tmbspg')[2]}" in output
    assert f"{SCRIPT} --batch-size" in (place.results / "cmd_optimal.txt").read_text()
    shown = json.loads((place.results / "z0_gas1_tmbspg16" / "config.json").read_text())
    assert shown == {"--batch-size": "16"}
    assert (place.results / "config_optimal.json").exists()


@pytest.mark.slow
def test_a_script_that_ignores_its_argument_is_found_out(place: Place) -> None:
    script = (SCRIPT, "--batch-size", "4", "--ignore")
    code, output = place.run("--autotuning=tune", *QUICK, *SIZES, *script)
    assert code == 0, output
    failure = json.loads((place.results / "z0_gas1_tmbspg16" / "failure.json").read_text())
    assert failure["kind"] == "not_applied"
    assert "micro_batch 4 instead of 16 (asked by --batch-size)" in failure["detail"]


@pytest.mark.slow
def test_a_switch_with_an_opposite_is_turned_off_by_it(place: Place) -> None:
    script = place.folder / "either.py"
    either = "action=argparse.BooleanOptionalAction, default=True"
    script.write_text(Path(SCRIPT).read_text().replace('action="store_true"', either))
    words = ("--knob=--ignore=[true, false]", "--budget=2trials", str(script))
    code, output = place.run("--autotuning=tune", *QUICK, *words, "--batch-size", "4")
    assert code == 0, output
    off = [path for path in place.results.glob("z*") if "ignore-F" in path.name]
    assert (off[0] / "cmd.txt").read_text().endswith("--batch-size 4 --no-ignore\n"), output
    assert json.loads((off[0] / "result.json").read_text())["failure"] is None


@pytest.mark.slow
def test_a_mapped_name_that_the_script_rejects_shows_its_own_usage_error(place: Place) -> None:
    words = ("--arg=train_micro_batch_size_per_gpu=--bs", SCRIPT, "--bs", "4")
    code, output = place.run("--autotuning=tune", *QUICK, "--allow-global-batch-change", *words)
    assert code == 3
    assert output.splitlines()[-1].endswith("plain_loop.py: error: unrecognized arguments: --bs 4")


@pytest.mark.slow
def test_a_script_that_divides_a_total_by_its_micro_batch_is_tuned_at_that_total(
    place: Place,
) -> None:
    code, output = place.run("--autotuning=run", *QUICK, DERIVED)
    assert code == 0, output
    assert "4 with micro-batch 4, 8 with 2. Its global batch of 16 stays." in output
    found = {path.parent.name: _batch(path) for path in place.results.glob("z*/result.json")}
    assert found["z0_gas4_tmbspg4"] == (4, 4)
    assert len(found) > 1
    assert all(micro * accumulation == 16 for micro, accumulation in found.values())
    assert "trained with " in output
    code, output = place.run("--autotuning=tune", *QUICK, DERIVED)
    assert code == 0, output
    resumed = [line for line in output.splitlines() if " trial 0 " in line]
    assert all("ZeRO 0 · micro 4 · accum 4" in line and "(resumed)" in line for line in resumed), (
        output
    )


@pytest.mark.slow
def test_a_script_that_makes_as_many_micro_batches_of_any_size_needs_consent(place: Place) -> None:
    code, output = place.run("--autotuning=tune", *QUICK, DERIVED, "--fixed")
    assert code == 2, output
    assert "would change the global batch of 16: allow that with --allow-global" in output


@pytest.mark.slow
def test_names_set_by_executed_text_are_tuned_at_their_total_of_tokens_over_ranks(
    place: Place,
) -> None:
    (place.folder / "larger.py").write_text("total_batch_size = 1024\ndevice_batch_size = 2\n")
    mapped = "--arg=train_micro_batch_size_per_gpu=--device_batch_size"
    words = ("--num_gpus=2", "--budget=2trials", mapped, TOKENS, "larger.py")
    code, output = place.run(
        "--autotuning=tune", *QUICK[1:], *words, "--device_batch_size=8", "--num_iterations=20"
    )
    assert code == 0, output
    assert "2 with micro-batch 8, 4 with 4. Its global batch of 32 stays." in output
    found = [_batch(path) for path in place.results.glob("z*/result.json")]
    assert len({*found}) == 2
    assert all(micro * accumulation * 2 == 32 for micro, accumulation in found)


def _batch(result: Path) -> tuple[int, int]:
    applied = json.loads(result.read_text())["applied"]
    return applied["micro_batch"], applied["accumulation"]


@pytest.mark.parametrize(
    ("width", "says"),
    [
        ("200000", r"take at least 5\d(\.\d)? MB per rank, which has 50 MB\."),
        pytest.param("10**12", "take at least 256 TB per rank", marks=pytest.mark.slow),
    ],
)
def test_weights_that_no_candidate_can_hold_end_a_tune_after_the_profile_run(
    place: Place, width: str, says: str
) -> None:
    script = place.folder / "large.py"
    script.write_text(Path(SCRIPT).read_text().replace("256", width))
    words = ("--memory-limit=50MB", "--allow-global-batch-change", str(script))
    for _ in range(2):  # what was found is read again
        code, output = place.here("--autotuning=tune", *QUICK, *words, "--batch-size", "4")
        assert code == 3, output
        assert re.search(f"The model does not fit: its weights alone {says}", output), output
        assert not [*place.results.glob("z*")]


RAW_TENSOR = """import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
size = parser.parse_args().batch_size
weights = torch.zeros(8, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.1)
for _ in range(9):
    (torch.ones(size, 8) @ weights - 1).square().mean().backward()
    optimizer.step()
"""


def test_a_script_that_trains_a_tensor_of_no_module_is_told_what_to_do(place: Place) -> None:
    (place.folder / "raw.py").write_text(RAW_TENSOR)
    words = ("--num_gpus=1", "--allow-global-batch-change", "raw.py")
    code, output = place.here("--autotuning=tune", *words)
    assert code == 3, output
    assert (
        "its optimizer trains no weights of a torch.nn.Module that was called (make the tensors "
        "nn.Parameter of a module, and call that module, not its methods, to compute the loss)"
    ) in output


TWO_FRAMEWORKS = """raise SystemExit(5)
from accelerate import Accelerator
from transformers import HfArgumentParser, Trainer, TrainingArguments
accelerator = Accelerator(gradient_accumulation_steps=2)
accelerator.accumulate(Trainer())
"""
BATCH = ("--per_device_train_batch_size", "4")


def test_of_two_dialects_that_fit_it_is_said_which_is_taken(place: Place) -> None:
    (place.folder / "two.py").write_text(TWO_FRAMEWORKS)
    code, output = place.here("--autotuning=tune", *QUICK, "two.py", *BATCH)
    assert code == 3, output
    assert "hf_trainer and accelerate both match this script" in output


def test_an_argument_that_the_installed_version_lacks_is_one_line(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = place.folder / "packages" / "transformers-5.1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: transformers\nVersion: 5.1\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(installed.parent))
    (place.folder / "two.py").write_text(TWO_FRAMEWORKS)
    words = ("--dialect=hf_trainer", "two.py", *BATCH, "--no_cuda")
    code, output = place.run("--autotuning=tune", *QUICK, *words)  # versions are read afresh
    assert code == 2, output
    assert (
        "--no_cuda is not an argument of transformers 5.1 (gone in 5.0); use --use_cpu" in output
    )
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((SCRIPT, "--batch-size=4"), "--allow-global-batch-change"),
        (("--knob=--x", SCRIPT), "has no list of values"),
        (("--dialect=acelerate", SCRIPT), "did you mean 'accelerate'"),
        (("--arg=train_micro_batch_size_per_gpu=--nope", SCRIPT), "--nope is mapped to"),
        (("--knob=--batch-sise=[2, 4]", SCRIPT), "plain_loop.py does not take; did you mean"),
        (("--memory-limit", "10", SCRIPT), "'10' has no unit; write for example 10GB"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    place: Place, words: tuple[str, ...], says: str
) -> None:
    code, output = place.refusal("--autotuning=tune", "--num_gpus=1", *words)
    assert code == 2
    assert says in output
    assert len(output.splitlines()) == 1


TOO_LARGE = """import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=512)
parser.add_argument("--grad_accum", type=int, default=1)
asked = parser.parse_args()
model = torch.nn.Sequential(torch.nn.Linear(1, 65536), torch.nn.ReLU(), torch.nn.Linear(65536, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for number in range(30 * asked.grad_accum):
    loss = model(torch.ones(asked.batch_size, 1)).square().mean() / asked.grad_accum
    loss.backward()
    if (number + 1) % asked.grad_accum == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


def test_sizes_that_a_trace_rules_out_are_not_launched(place: Place) -> None:
    (place.folder / "large.py").write_text(TOO_LARGE)
    words = ("--memory-limit=510MB", "--budget=2trials", "large.py", "--batch_size=2048")
    code, output = place.here("--autotuning=tune", *QUICK, *words)
    assert code == 0, output
    assert "runs out of memory, so its model is described by a trace" in output
    started = [line["started"]["name"] for line in place.journal("started")]
    records = {line["name"]: line for line in place.journal("name")}
    assert records["z0_gas1_tmbspg2048"]["failure"]["kind"] == "out_of_memory"
    assert started, output
    assert not {"z0_gas1_tmbspg2048", "z0_gas2_tmbspg1024"} & {*started}, output
    assert (place.results / "cmd_optimal.txt").exists()
    assert output.count("micro 2048 · accum 1 predicted") == 1, output


RUNNER = """
import argparse, pathlib, runpy, sys
import toytune
def main():
    parser = argparse.ArgumentParser(prog="tune")
    run = parser.add_subparsers().add_parser("run")
    run.add_argument("recipe")
    run.add_argument("recipe_args", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    root = pathlib.Path(toytune.__file__).parent.parent
    file = str(root / "recipes" / f"{asked.recipe}.py")
    sys.argv = [file, *asked.recipe_args]
    runpy.run_path(file, run_name="__main__")
"""
RECIPE = """
import argparse, json, torch
parser = argparse.ArgumentParser()
parser.add_argument("--config")
asked, rest = parser.parse_known_args()
cfg = json.load(open(asked.config))
cfg |= {key: int(value) for key, value in (word.split("=") for word in rest)}
batch_size, steps = cfg["batch_size"], cfg["gradient_accumulation_steps"]
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(30 * steps):
    model(torch.ones(batch_size, 16)).square().mean().div(steps).backward()
    if (number + 1) % steps == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_recipe_behind_a_program_named_as_our_verb_is_tuned(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "site/toytune/__init__.py": "",
        "site/toytune/cli.py": RUNNER,
        "site/recipes/full.py": RECIPE,
        "bin/tune": f"#!{sys.executable}\nimport sys\nfrom toytune.cli import main\n"
        "if __name__ == '__main__':\n    sys.exit(main())\n",
        "x.json": '{"epochs": 1}',
    }
    for name, text in files.items():
        (place.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (place.folder / name).write_text(text)
    (place.folder / "bin" / "tune").chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(place.folder / "site"), prepend=":")
    monkeypatch.setenv("PATH", str(place.folder / "bin"), prepend=":")
    words = ("run", "full", "--config", "x.json", "batch_size=4", "gradient_accumulation_steps=2")
    code, output = place.here("tune", "--budget=1trials", *QUICK, "tune", *words)
    assert code == 0, output
    assert "Using batch_size as the micro-batch" in output
    assert "Using gradient_accumulation_steps as gradient accumulation" in output
    assert (place.results / "z0_gas2_tmbspg4" / "metrics.json").exists()
    assert "tune run full --config x.json" in (place.results / "cmd_optimal.txt").read_text()
