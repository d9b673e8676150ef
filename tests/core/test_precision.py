from autoconf_launch.core import BUILTIN_PRECISIONS, Precision


def test_every_kind_of_8_bit_scales_is_fp8() -> None:
    found = [kind.value for kind in Precision if kind.is_fp8]
    assert found == ["fp8", "fp8_current", "fp8_blockwise", "fp8_rowwise", "mxfp8"]


def test_activations_outside_of_the_products_keep_16_bits() -> None:
    assert [kind.value for kind in Precision if kind.value_bytes == 4] == ["fp32", "tf32"]
    assert {kind.value_bytes for kind in Precision} == {2, 4}


def test_our_runtime_computes_without_scales_of_a_tensor() -> None:
    assert [kind.value for kind in BUILTIN_PRECISIONS] == ["fp32", "bf16", "fp16"]
