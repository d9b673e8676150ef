from __future__ import annotations

import sys

import pytest

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.runtime.pretraining import build, sequence_of, vocabulary_of


def nemo1(family: str) -> RawConfig:
    """A whole file of NeMo 1.0, as a custom configuration is."""
    return RawConfig(
        {
            "autoconf": {"family": family, "vocab_size": 300},
            "model": {
                "num_layers": 2,
                "hidden_size": 32,
                "ffn_hidden_size": 64,
                "num_attention_heads": 4,
                "num_query_groups": 2,
                "kv_channels": None,
                "init_method_std": 0.02,
                "data": {"seq_length": 16},
            },
        }
    )


@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen2", "baichuan2", "gpt3"])
def test_a_file_of_nemo_1_is_a_model(family: str) -> None:
    pytest.importorskip("transformers")
    model = build(nemo1(family))
    assert sum(weight.numel() for weight in model.parameters()) > 2 * 4 * 32 * 32


def test_grouped_queries_make_it_smaller() -> None:
    pytest.importorskip("transformers")
    whole = nemo1("llama").with_value(("model", "num_query_groups"), 4)
    sizes = [sum(w.numel() for w in build(base).parameters()) for base in (nemo1("llama"), whole)]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("family", ["mixtral", "qwen2"])
@pytest.mark.parametrize("section", [("model",), ("model", "config")])
def test_experts_are_those_of_the_file(family: str, section: tuple[str, ...]) -> None:
    pytest.importorskip("transformers")
    base = nemo1(family)
    if section == ("model", "config"):
        config = {**base.get(("model",)), "vocab_size": 300}
        base = base.with_value(("model",), {"config": config}).with_value(
            ("data", "seq_length"), 16
        )
        base = base.with_value((*section, "share_embeddings_and_output_weights"), False)
    sizes = []
    for count in (2, 5):
        sparse = base.with_value((*section, "num_moe_experts"), count)
        sparse = sparse.with_value((*section, "moe_router_topk"), 1)
        sparse = sparse.with_value((*section, "moe_ffn_hidden_size"), 48)
        sizes.append(sum(weight.numel() for weight in build(sparse).parameters()))
    assert sizes[1] - sizes[0] == 2 * 3 * (3 * 32 * 48 + 32)


def test_vocabulary_and_sequence_are_read() -> None:
    assert (vocabulary_of(nemo1("llama")), sequence_of(nemo1("llama"))) == (300, 16)


def test_a_number_that_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match="llama lacks 'num_layers'"):
        build(nemo1("llama").without(("model", "num_layers")))


def test_a_vocabulary_that_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match=r"lacks autoconf\.vocab_size"):
        vocabulary_of(nemo1("llama").without(("autoconf", "vocab_size")))


def test_without_transformers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match="autoconf-launch"):
        build(nemo1("llama"))
