"""The contract of inference engines, ours and other packages' alike."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Measurement
from autoconf_launch.core import ConfigError, GenerationTask, Layout, Precision, RawConfig
from autoconf_launch.nemo.inference_search import (
    INFERENCE_ENGINES,
    LATENCY_FILE,
    EngineRun,
    InferenceEngine,
    SharingEngine,
    load_engine,
)
from autoconf_launch.nemo.inference_search.engines import LoadTestingEngine

SHAPE = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "ffn_hidden_size": 256,
    "data": {"seq_length": 128},
}
BASE = RawConfig({"autoconf": {"family": "gpt3", "vocab_size": 51200}, "model": SHAPE})


@pytest.fixture(params=sorted(INFERENCE_ENGINES))
def engine(request: pytest.FixtureRequest) -> InferenceEngine:
    return load_engine(request.param)


@pytest.fixture
def run(tmp_path: Path) -> EngineRun:
    layout = Layout(tensor_parallel=2, micro_batch=3)
    task = GenerationTask(layout=layout, input_len=60, output_len=20, precision=Precision.FP16)
    return EngineRun(task=task, base=BASE, family="gpt3", folder=tmp_path / "a run")


def test_a_family_that_writes_no_text_or_a_type_it_lacks_is_refused_in_a_sentence(
    engine: InferenceEngine, run: EngineRun
) -> None:
    task = GenerationTask(
        layout=run.task.layout, input_len=60, output_len=20, precision=Precision.NVFP4
    )
    other = EngineRun(task=task, base=BASE, family="gpt3", folder=run.folder)
    assert engine.why_not(run) == ""
    assert engine.tasks_per_run(run) in (1, run.task.layout.world_size)
    assert engine.why_not(other).endswith(".")
    assert "nvfp4" in engine.why_not(other)


def test_commands_are_words_and_read_what_the_engine_writes(
    engine: InferenceEngine, run: EngineRun
) -> None:
    words = [word for command in engine.commands(run) for word in command]
    assert all(isinstance(word, str) for word in words)
    for path, text in engine.files(run).items():
        assert path.is_relative_to(run.folder)
        json.loads(text)
        assert any(str(path).startswith(word) for word in words if word.startswith("/"))
    assert str(run.folder / LATENCY_FILE) in words


def test_a_shared_process_reads_files_of_its_runs_and_says_its_version(
    engine: InferenceEngine, run: EngineRun
) -> None:
    if not isinstance(engine, SharingEngine):
        pytest.skip("this engine starts ranks for each point")
    process = engine.shared_process((run,), cores=((0,), (1,)))
    assert process.program.is_file()
    assert process.version
    assert {Path(word) for word in process.arguments} <= process.files.keys()
    assert all(path.is_relative_to(run.folder) for path in process.files)


def test_a_load_test_reads_files_of_its_folder_and_leaves_figures_there(
    engine: InferenceEngine, run: EngineRun, tmp_path: Path
) -> None:
    if not isinstance(engine, LoadTestingEngine):
        pytest.skip("this engine does not serve requests in parallel")
    test = engine.load_test(run, tmp_path / "load")
    assert test.commands
    assert all(path.is_relative_to(tmp_path / "load") for path in test.files)
    assert tuple(engine.read_load(tmp_path / "load")) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"latencies": [0.1, "x"]}', '{"latencies": []}', "[" * 100_000),
        *('{"latencies": [1e999]}', f'{{"latencies": [{10**400}]}}', '{"latencies": [NaN]}'),
        '{"latencies": [0.1], "prefill": "x", "decode": 0}',
    ],
)
def test_a_file_of_another_form_is_a_failure_and_no_crash(
    engine: InferenceEngine, run: EngineRun, text: str
) -> None:
    run.folder.mkdir()
    (run.folder / LATENCY_FILE).write_text(text)
    assert isinstance(engine.read(run), FailedTrial)


def test_no_file_or_a_pipe_in_its_place_is_a_failure(
    engine: InferenceEngine, run: EngineRun
) -> None:
    outcome = engine.read(run)
    assert isinstance(outcome, FailedTrial)
    assert LATENCY_FILE in outcome.failure.detail
    run.folder.mkdir()
    os.mkfifo(run.folder / LATENCY_FILE)
    assert isinstance(engine.read(run), FailedTrial)


def test_latencies_are_read_by_the_field_s_name(engine: InferenceEngine, run: EngineRun) -> None:
    run.folder.mkdir()
    document = {"further": 1, "latencies": [0.2, 0.4], "avg_latency": 9.0}
    (run.folder / LATENCY_FILE).write_text(json.dumps(document))
    outcome = engine.read(run)
    assert isinstance(outcome, Measurement)
    assert outcome.step_s == (0.2, 0.4)
    assert outcome.samples_per_step == 3
    assert outcome.world_size == 2


def test_an_unknown_engine_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'vllm'"):
        load_engine("vlm")
