"""activation of layer_norm. The battery judges it by float64, in rows and over an axis."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support import inputs
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES
from support.releases import since

from .test_gated import activated

pytestmark = pytest.mark.usefixtures("backend")

LENGTHS = (1, 7, 64, 130) if inputs.SLOW else (1, 2, 7, 16, 33, 64, 130, 768, 1000, 4099)
PARAMETERS = [(), ("weight",), ("bias",), ("weight", "bias")]
# Metal's exponentials are not MLX's, which simulated Metal computes on the CPU.
BITS = pytest.mark.backends("cpu", "cuda")
OF_ACTIVATION = pytest.mark.parametrize("activation", ["silu", "sigmoid", "gelu", "relu2"])


def arrays_of(length, dtype, names):
    x = normal((2, 5, length), dtype, seed="x") + 0.5
    return x, {name: normal((length,), dtype, seed=name) + 1.0 for name in names}


@BITS
@since("0.32.3")
@OF_ACTIVATION
def test_early_is_the_chain_of_ops(activation):
    for length, dtype, names in itertools.product(LENGTHS, DTYPES, PARAMETERS):
        x, parameters = arrays_of(length, dtype, names)
        for to in inputs.in_turn(DTYPES, LENGTHS.index(length) + DTYPES.index(dtype)):
            options = dict(rounding="early", dtype=to)
            y = mlx_norms.layer_norm(x, **parameters, **options)
            ours = mlx_norms.layer_norm(x, **parameters, activation=activation, **options)
            assert_same_bits(ours, activated(activation, y), f"{length}, {dtype} to {to}, {names}")


def test_what_is_refused():
    x = mx.ones((2, 12))
    for name in ("swish", "", "SiLU", "gelu_approx"):
        with pytest.raises(ValueError, match=rf'^\[layer_norm\] activation\b.*"{name}"'):
            mlx_norms.layer_norm(x, activation=name)
    for name in ("scale", "shift"):
        with pytest.raises(ValueError, match=rf"^\[layer_norm\] {name}\b.*activation"):
            mlx_norms.layer_norm(x, activation="silu", **{name: mx.ones(12)})
