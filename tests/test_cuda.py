"""What only the CUDA backend promises."""

import mlx.core as mx
import pytest

import mlx_norms
from bits import assert_same_bits
from inputs import normal

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("backend")]


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("rows", [1, 9, 700, 3000])
def test_rms_norm_of_4096_has_the_bits_of_mx_fast(rows, dtype):
    """So that models of that size decode the same tokens, patched or not."""
    x, residual = (normal((rows, 4096), dtype, seed=(0, i)) for i in range(2))
    weight = normal((4096,), dtype, seed=(0, 2))
    stock = mx.fast.rms_norm(x, weight, 1e-5)
    assert_same_bits(mlx_norms.rms_norm(x, weight), stock)
    stock = mx.fast.rms_norm(x + residual, weight, 1e-5)
    y, total = mlx_norms.add_rms_norm(x, residual, weight)
    assert_same_bits(y, stock)
    assert_same_bits(total, x + residual)
