"""Models that tensor ranks can share out, and a plain loop in one process to compare with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autoconf_launch.runtime import scaled_dot_product_attention

from .rows import CLIP, DECAY, GLOBAL_BATCH, RATE

WORDS, WIDTH, HEAD, TOKENS = 64, 32, 8, 16
STEPS = 5
FAMILIES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
    "gemma": ("GemmaConfig", "GemmaForCausalLM"),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM"),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
    "bert": ("BertConfig", "BertForMaskedLM"),
}
EXPERTS = {
    "mixtral": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "experts_implementation": "eager",
    },
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH},
}


class Block(nn.Module):
    """Attention and a perceptron whose matrices are apart, so that heads can be shared out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """From and to (samples, tokens, width)."""
        normed = self.norm(x)
        query, key, value = (
            part(normed).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        added: Tensor = self.down(F.gelu(self.up(self.second_norm(x))))
        return x + added


BLOCK_PLAN = {
    "blocks.*.query": "colwise",
    "blocks.*.key": "colwise",
    "blocks.*.value": "colwise",
    "blocks.*.out": "rowwise",
    "blocks.*.up": "colwise",
    "blocks.*.down": "rowwise",
}
TIED_PLAN = {**BLOCK_PLAN, "words": "rowwise", "head": "colwise_gather_output"}


class Split(nn.Module):
    """A decoder; its head may be its embedding, which is then split, too."""

    def __init__(
        self,
        plan: dict[str, str] | None = None,
        *,
        tied: bool = False,
        placed: bool = False,
        blocks: int = 3,
    ) -> None:
        super().__init__()
        self.tensor_plan = BLOCK_PLAN if plan is None else plan
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.places = nn.Embedding(TOKENS, WIDTH) if placed else None
        if tied:
            self.head.weight = self.words.weight

    def forward(
        self, input_ids: Tensor, labels: Tensor, position_ids: Tensor | None = None
    ) -> Tensor:
        """Mean loss."""
        x = self.words(input_ids)
        if self.places is not None:
            places = torch.arange(input_ids.shape[1]) if position_ids is None else position_ids
            x = x + self.places(places)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


class Experts(nn.Module):
    """A user's own, each a matrix: in the form that expert ranks can share out."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.num_experts = count
        self.matrix = nn.Parameter(torch.randn(count, WIDTH, WIDTH) / WIDTH)
        self.bias = nn.Parameter(torch.zeros(count, WIDTH))

    def forward(self, hidden: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Each token by its experts, weighted and added up."""
        mixed = torch.zeros_like(hidden)
        for number in range(self.num_experts):
            rows, slots = torch.where(top_k_index == number)
            added = hidden[rows] @ self.matrix[number] + self.bias[number]
            weights = top_k_weights[rows, slots, None]
            mixed = mixed.index_add(0, rows, (added * weights).to(mixed.dtype))
        return mixed


class Mixture(Block):
    """A block with six experts; a biased router sends every token to the first one."""

    def __init__(self, *, biased: bool) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(WIDTH, 6), Experts(6)
        if biased:
            self.router.bias.data[0] = 100.0

    def forward(self, x: Tensor) -> Tensor:
        """From and to (samples, tokens, width)."""
        x = super().forward(x)
        rows = x.flatten(0, 1)
        weights, index = self.router(rows).softmax(-1).topk(1)
        mixed: Tensor = self.experts(rows, index, weights)
        return x + mixed.view_as(x)


class Mixed(Split):
    """A decoder whose blocks have experts."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Mixture(biased=number == 1) for number in range(3)])


OWN: dict[str, Callable[[], nn.Module]] = {
    "own": Split,
    "own_tied": partial(Split, TIED_PLAN, tied=True),
    "own_placed": partial(Split, placed=True),
    "own_deep": partial(Split, TIED_PLAN, tied=True, blocks=4),
    "own_experts": Mixed,
}
"""With a fourth block, or with learned positions, or one weight for embedding and head."""


def build(name: str) -> nn.Module:
    """One of ``OWN`` or a family of transformers, with the same weights each time."""
    torch.manual_seed(0)
    if name in OWN:
        return OWN[name]()
    import transformers

    config, model = (getattr(transformers, one) for one in FAMILIES[name])
    own: dict[str, dict[str, float]] = {
        "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        "mistral": {"sliding_window": 5},
    }
    sizes = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "head_dim": HEAD}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": WORDS}
    sizes |= EXPERTS.get(name, {})
    shape = config(
        **sizes,
        num_key_value_heads=2 if name == "qwen2" else 4,
        max_position_embeddings=TOKENS,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
        use_cache=False,
        **own.get(name, {}),
        attn_implementation="sdpa",
    )
    built: nn.Module = model(shape)
    return built


def batches(steps: int = STEPS) -> list[dict[str, Tensor]]:
    """Global batches, the same each time."""
    generator = torch.Generator().manual_seed(1)
    texts = torch.randint(WORDS, (steps, GLOBAL_BATCH, TOKENS), generator=generator)
    return [{"input_ids": text, "labels": (7 * text + 3) % WORDS} for text in texts]


def one_process(name: str, precision: str = "fp32") -> dict[str, Any]:
    """Losses and gradient norms of a plain loop over whole global batches."""
    model = build(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    losses, norms = [], []
    for batch in batches():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            output = model(**batch)
        loss = getattr(output, "loss", output)
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return {"losses": losses, "norms": norms}
