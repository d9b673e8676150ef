from autoconf_launch.core import BUILTIN_PRECISIONS, Precision


def test_formats_have_their_bytes_and_scales() -> None:
    found = [kind.value for kind in Precision if kind.is_fp8]
    assert found == ["fp8", "fp8_current", "fp8_blockwise", "fp8_rowwise", "mxfp8"]
    assert [kind.value for kind in Precision if kind.value_bytes == 4] == ["fp32", "tf32"]
    assert {kind.value_bytes for kind in Precision} == {2, 4}
    assert [kind.value for kind in BUILTIN_PRECISIONS] == ["fp32", "bf16", "fp16"]
