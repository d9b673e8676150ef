"""Ranks that share out the tokens of a sample: which ones, and what they refuse; real ranks."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from autoconf_launch.core import DegreeLimits, FailureKind, Layout, Mode, ResolvedConfig
from autoconf_launch.runtime import scaled_dot_product_attention
from autoconf_launch.runtime.model import TrainingParts, model_loss
from autoconf_launch.runtime.parallel import context_split
from autoconf_launch.runtime.parallel.context_attention import SequenceChunks, _mask

from ..benchmarks.conftest import import_benchmark

models = import_benchmark("parallel_rows.models")


class OneOf:
    """The part of a mesh that ``SequenceChunks.along`` uses."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def size(self) -> int:
        return self.ranks

    def get_group(self) -> None:
        return None

    def get_local_rank(self) -> int:
        return self.rank


def chunks_of(ranks: int) -> list[SequenceChunks]:
    return [SequenceChunks.along(cast(DeviceMesh, OneOf(rank, ranks))) for rank in range(ranks)]


def test_a_rank_has_a_chunk_from_the_head_and_one_from_the_tail() -> None:
    whole = torch.arange(12)[None]
    parts = [one.part(whole)[0].tolist() for one in chunks_of(3)]
    assert parts == [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]
    assert chunks_of(3)[0].positions(4, whole.device)[0].tolist() == parts[0]


def test_parts_of_all_ranks_are_put_in_order_again() -> None:
    whole = torch.randn(2, 3, 8, 5)
    every = chunks_of(2)
    parts = torch.stack([one.part(whole, 2) for one in every])
    assert torch.equal(every[0].in_order(parts, 2), whole)


@pytest.mark.parametrize("window", [None, 3, 100])
def test_a_chunk_attends_to_itself_and_to_what_is_before_it(window: int | None) -> None:
    at, to = torch.arange(8)[:, None], torch.arange(8)
    whole = (to <= at) & (to > at - (window or 8))
    assert torch.equal(_mask(3, 8, window, torch.device("cpu")), whole[5:])


def test_without_context_ranks_attention_is_that_of_torch() -> None:
    query, key, value = torch.randn(3, 2, 4, 6, 8)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert torch.equal(scaled_dot_product_attention(query, key, value, is_causal=True), expected)
    torch.testing.assert_close(scaled_dot_product_attention(query, key, value, mask), expected)


def look_at(model: nn.Module, batch: Any, loss: Any = model_loss) -> DegreeLimits:
    """As the profile run does, after it has seen a whole step."""
    loss(model, batch)
    recipe = TrainingParts(
        model=model,
        config=ResolvedConfig(layout=Layout()),
        loss=loss,
        make_optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1),
    )
    return context_split(model, recipe, batch, torch.device("cpu"))


@pytest.mark.parametrize("name", ["own_placed", "qwen2", "mistral", "gpt2"])
def test_a_profile_run_finds_in_one_process_what_the_degree_must_divide(name: str) -> None:
    limits = look_at(models.build(name), models.batches(1)[0])
    assert limits.counts == (("pairs of tokens", 8),), limits.missing
    assert limits.obstacle(4) is None
    assert "use 1, 2, 4 or 8" in str(limits.obstacle(3))


def shifting(model: nn.Module, batch: Any) -> Tensor:
    logits = model(batch["input_ids"]).logits[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())


@pytest.mark.parametrize(
    ("config", "model", "loss", "says"),
    [
        ("Gemma2Config", "Gemma2ForCausalLM", model_loss, "gives attention softcap"),
        ("Llama4TextConfig", "Llama4ForCausalLM", model_loss, "has layers of chunked_attention"),
        ("BloomConfig", "BloomForCausalLM", model_loss, "no attention that context ranks share"),
        ("LlamaConfig", "LlamaForCausalLM", shifting, "labels must be shifted by the script"),
    ],
)
def test_a_profile_run_says_of_a_model_why_it_cannot_be_shared_out(
    config: str, model: str, loss: Any, says: str
) -> None:
    library = pytest.importorskip("transformers")
    shape: dict[str, int | None] = {"hidden_size": 32, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 4, "vocab_size": models.WORDS, "pad_token_id": None}
    if "Bloom" not in config:
        shape |= {"intermediate_size": 64, "head_dim": 8, "num_key_value_heads": 4}
    built = getattr(library, model)(getattr(library, config)(**shape))
    missing = look_at(built, models.batches(1)[0], loss).missing
    assert says in str(missing)


FAULTS = {
    "odd_tokens": "samples of 14 tokens have no two equal chunks for each rank",
    "padded": "attention_mask masks tokens: padding cannot be shared out",
    "packed": "position_ids begin anew within a sample",
    "ignored": "some labels are -100, and the mean loss of Split over the others differs",
    "other_batch": "different batches; load the samples of engine.share",
    "own_attention": "Split has no attention that context ranks share",
    "mask": "attention was given attn_mask",
    "own_places": "its forward must take position_ids where places count",
    "summed": "the loss must be the mean over tokens",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_would_train_wrongly_ends_with_a_sentence(
    launch: Callable[..., Any], fault: str
) -> None:
    ended = launch("contexts.py", fault, ranks=2, mode=Mode.MEASURE)
    assert ended.failure_kind() is FailureKind.BAD_CONFIG, ended.errors
    assert FAULTS[fault] in str(ended.result().failure)


@pytest.mark.parametrize("case", ["none", "ignored_shifted"])
def test_ranks_of_one_sequence_report_their_samples_once(
    launch: Callable[..., Any], case: str
) -> None:
    ended = launch("contexts.py", case, ranks=2, mode=Mode.MEASURE)
    assert ended.exit_codes == (0, 0), ended.errors
    samples = [sum(step.samples for step in ended.result(rank).steps) for rank in (0, 1)]
    assert samples == [5 * 8, 0]
    applied = ended.result().applied
    assert (applied.context_parallel, applied.data_parallel) == (2, 1)
