"""NeMo 2.0's interface by NVIDIA's import: candidates are recipes like the given one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.nemo.configurator import AutoConfigurator
from autoconf_launch.nemo.recipes import generate_configs, get_results

from .report.logged import log_steps

fiddle: Any = pytest.importorskip("fiddle", reason="NeMo-Run's recipes are fiddle's")

LISTS: dict[str, Any] = {
    "tensor_parallel_sizes": [1, 2],
    "pipeline_parallel_sizes": [1],
    "context_parallel_sizes": [1, 2],
    "micro_batch_sizes": [1],
    "limit_search_runs": 4,
}


@dataclass
class Llama3Config8B:
    num_layers: int = 32
    hidden_size: int = 4096
    num_attention_heads: int = 32
    num_query_groups: int = 8
    ffn_hidden_size: int = 14336
    seq_length: int = 8192
    recompute_granularity: str | None = None
    recompute_method: str | None = None
    recompute_num_layers: int | None = None


@dataclass
class LlamaModel:
    config: Any


@dataclass
class MegatronStrategy:
    tensor_model_parallel_size: int = 1
    pipeline_model_parallel_size: int = 1
    virtual_pipeline_model_parallel_size: int | None = None
    context_parallel_size: int = 1
    expert_model_parallel_size: int = 1
    sequence_parallel: bool = False
    gradient_as_bucket_view: bool = True


class Trainer:
    def __init__(self, strategy: Any, **others: Any) -> None:
        pass


@dataclass
class Data:
    paths: Any = None
    seq_length: int = 8192
    global_batch_size: int = 512
    micro_batch_size: int = 1
    tokenizer: Any = None


@dataclass
class Log:
    name: str
    log_dir: str | None = None
    ckpt: Any = None


@dataclass
class Checkpoints:
    save_last: bool = True
    save_top_k: int = 10


def pretrain(
    model: Any, trainer: Any, data: Any, log: Any = None, resume: Any = None, hook: Any = None
) -> None:
    raise AssertionError("a recipe is not run where candidates are made of it")


def recipe(**parts: Any) -> Any:
    config = fiddle.Config
    whole = {
        "model": config(LlamaModel, config=config(Llama3Config8B, recompute_granularity="full")),
        "trainer": config(
            Trainer,
            strategy=config(MegatronStrategy),
            num_nodes=4,
            devices=8,
            max_steps=99_999,
            callbacks=[print],
        ),
        "data": config(Data, global_batch_size=512),
        "log": config(Log, name="mine", ckpt=config(Checkpoints, save_top_k=3)),
        "resume": config(Checkpoints),
        "hook": len,
    }
    return fiddle.Partial(pretrain, **{**whole, **parts})


def configurator(logs: Path, one: Any, **arguments: Any) -> AutoConfigurator:
    return AutoConfigurator(one, logs, **{**LISTS, **arguments})


def test_candidates_are_copies_of_the_recipe_with_their_layout_and_limits(tmp_path: Path) -> None:
    given = recipe()
    base, candidates = generate_configs(configurator(tmp_path, given))
    assert len(candidates) == 4
    for name, one in candidates.items():
        assert isinstance(one, fiddle.Partial)
        strategy = one.trainer.strategy
        assert f"_tp_{strategy.tensor_model_parallel_size}_" in name
        assert f"_cp_{strategy.context_parallel_size}_" in name
        assert one.trainer.max_steps == 50
        assert one.log.log_dir == str(tmp_path / name)
        assert (one.log.ckpt.save_last, one.log.ckpt.save_top_k) == (False, 3)
        assert one.resume is None
        assert (one.hook, one.trainer.callbacks) == (len, [print])
    assert base.trainer.max_steps == 99_999
    assert base == given == recipe()


def test_a_recipe_that_recomputes_does_not_do_so_in_candidates_that_do_not(tmp_path: Path) -> None:
    _, candidates = generate_configs(configurator(tmp_path, recipe(), tensor_parallel_sizes=[4]))
    for name, one in candidates.items():
        recomputes = "_act_ckpt_" in name
        assert (one.model.config.recompute_granularity is not None) is recomputes
        assert (one.model.config.recompute_num_layers is not None) is recomputes


def test_candidates_have_the_given_data_and_sequence(tmp_path: Path) -> None:
    paths = ["0.3", "/data/a", "0.7", "/data/b"]
    found = configurator(tmp_path, recipe(), data_paths=paths, seq_length=4096)
    base, candidates = generate_configs(found)
    for one in (base, *candidates.values()):
        assert one.data.paths == paths
        assert (one.data.seq_length, one.model.config.seq_length) == (4096, 4096)


def test_a_recipe_without_a_place_for_a_degree_is_refused(tmp_path: Path) -> None:
    class Alone:
        def __init__(self, tensor_model_parallel_size: int = 1) -> None:
            pass

    trainer = fiddle.Config(Trainer, strategy=fiddle.Config(Alone), num_nodes=4, devices=8)
    with pytest.raises(ConfigError, match=r"no trainer.strategy.pipeline_model_parallel_size"):
        generate_configs(configurator(tmp_path, recipe(trainer=trainer)))


def test_where_nemo_is_not_installed_candidates_are_mappings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nemo_run", None)
    found = configurator(tmp_path, None, model="llama3-8b", num_nodes=4, seq_length=8192)
    base, candidates = generate_configs(found)
    assert isinstance(base, dict)
    assert all(isinstance(one, dict) for one in candidates.values())


def test_results_are_printed_and_written_where_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = configurator(tmp_path / "logs", recipe())
    base, candidates = generate_configs(runner)
    for number, name in enumerate(candidates, start=20):
        log_steps(tmp_path / "logs" / name, [30.0, *[float(number)] * 11])
    results = get_results(base, runner, str(tmp_path / "tables"), output_top_n=2)
    assert "Top 2 configs sorted from fastest to slowest:" in capsys.readouterr().out
    assert results.summary.parent == tmp_path / "tables"
    assert results.summary.is_file()
    with pytest.raises(ConfigError, match="must be the AutoConfigurator of the runs"):
        get_results({}, None, "logs")


def test_the_import_loads_nothing_but_what_is_used() -> None:
    code = (
        "import sys, autoconf_launch.nemo as nemo; assert 'numpy' not in sys.modules; "
        "nemo.generate_configs; assert 'torch' not in sys.modules; dir(nemo)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
