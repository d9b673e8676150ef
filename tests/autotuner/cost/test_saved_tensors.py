"""Activations of transformers' eager Llama, beside the tensors that its backward pass keeps."""

import warnings
from typing import Any

import pytest

from autoconf_launch.autotuner.cost import LayoutColumns, memory_bytes
from autoconf_launch.core import Architecture, Layout, Precision, States, Workload
from autoconf_launch.tuning_spaces import trainer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

HIDDEN, HEADS, FFN, WORDS, SAMPLES, TOKENS = 256, 4, 704, 64, 2, 64
KINDS = ("norms", "attention", "mlp")


def saved_bytes(layers: int, key_heads: int, dtype: Any, *, autocast: bool) -> int:
    """Bytes of all tensors that are saved, but for weights and their 16-bit casts."""
    config = transformers.LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=FFN,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=key_heads,
        vocab_size=WORDS,
        max_position_embeddings=TOKENS,
        attn_implementation="sdpa",
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(config).to(dtype)
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    shapes = {tuple(weight.shape) for weight in model.parameters() if weight.ndim == 2}
    shapes |= {(columns, rows) for rows, columns in shapes}
    saved: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        place = tensor.untyped_storage().data_ptr()
        if place not in own and tuple(tensor.shape) not in shapes:
            saved[place] = tensor
        return tensor

    words = torch.zeros((SAMPLES, TOKENS), dtype=torch.long)
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        model(input_ids=words, labels=words)
    return sum(one.untyped_storage().nbytes() for one in saved.values())


@pytest.mark.parametrize("key_heads", [HEADS, 1])
@pytest.mark.parametrize(
    ("precision", "states"),
    [
        (Precision.BF16, None),
        (Precision.BF16, States.BF16),
        (Precision.FP32, None),
    ],
)
def test_a_layer_keeps_what_the_formulas_count(
    precision: Precision, states: States | None, key_heads: int
) -> None:
    autocast = precision is Precision.BF16 and states is None
    dtype = torch.float32 if states is None else torch.bfloat16
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few, many = (saved_bytes(n, key_heads, dtype, autocast=autocast) for n in (1, 3))
    model = Architecture(
        name="small",
        layers=1,
        hidden=HIDDEN,
        heads=HEADS,
        kv_heads=key_heads,
        head=HIDDEN // HEADS,
        ffn=FFN,
        vocabulary=WORDS,
        gated=True,
    )
    asked = Workload(model=model, sequence_length=TOKENS, precision=precision, states=states)
    columns = LayoutColumns.from_layouts([Layout(micro_batch=SAMPLES)])
    memory = memory_bytes(columns, trainer("huggingface").apply_to(asked))
    counted = sum(float(memory[kind].max()) for kind in KINDS)
    assert counted == pytest.approx((many - few) / 2, rel=0.03)
