"""add_rms_norm and add_layer_norm of three arrays: (x + residual) + residual2."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from mlx_norms._table.exact import result_type
from support.bits import assert_same_bits
from support.checks import check_outputs
from support.inputs import arguments, cotangents, normal
from support.norm_case import DTYPES, Norm

pytestmark = pytest.mark.usefixtures("backend")

OPS = ("add_rms_norm", "add_layer_norm")
OF_OP = pytest.mark.parametrize("op", OPS)
SHAPE = (2, 3, 5)


def arrays_of(op, length, dtype, *, more=(), others=None, shape=SHAPE, plain=True):
    """x, residual and residual2; ``more`` names factor, scale and shift, of a sample."""
    others = others or {}
    without = ("weight", "bias") if plain else ()
    arrays = arguments(Norm(op), (*shape, length), dtype, without=without, others=others)
    arrays["residual2"] = normal((*shape, length), others.get("residual2", dtype), seed=7)
    for i, name in enumerate(more):
        one = (shape[0], *(1,) * (len(shape) - 1), length)
        arrays[name] = normal(one, others.get(name, dtype), seed=(i, 8), std=0.5)
    return arrays


def chain(norm, arrays, outer_first=False):
    """What MLX's ops and our norm make of it, in either order of the operands."""
    x, residual, residual2 = (arrays[name] for name in ("x", "residual", "residual2"))
    factor = arrays.get("factor")
    first = x + residual
    if factor is not None:
        first = (residual + factor * x).astype(result_type(x.dtype, residual.dtype))
    h = residual2 + first if outer_first else first + residual2
    one = Norm(norm.op.removeprefix("add_"), dtype=norm.out_dtype(arrays), rounding=norm.rounding)
    ours = ("x", "residual", "residual2", "factor")
    return [*one({"x": h, **{n: a for n, a in arrays.items() if n not in ours}}), h]


@OF_OP
def test_it_is_the_chain_of_ops(op):
    for x, residual, residual2 in itertools.product(DTYPES, repeat=3):
        others = dict(residual=residual, residual2=residual2)
        for length, more in ((7, ()), (64, ("factor",)), (130, ("scale", "shift"))):
            arrays = arrays_of(op, length, x, more=more, others=others, plain=False)
            norm = Norm(op, rounding="early")
            for outer_first in (False, True):
                for got, want in zip(norm(arrays), chain(norm, arrays, outer_first), strict=True):
                    assert_same_bits(got, want, f"{op}, {x}, {residual}, {residual2}, {more}")


@OF_OP
def test_the_order_counts(op):
    """Each sum is rounded, so that another order gives another one."""
    x, a, b = (mx.array([value] * 8, mx.bfloat16) for value in (256.0, 1.0, 1.0))
    f = getattr(mlx_norms, op)
    assert f(x, a, residual2=b)[1].tolist() == [256.0] * 8
    assert f(a, b, residual2=x)[1].tolist() == [258.0] * 8


@OF_OP
def test_one_array_thrice_and_memory_that_is_taken(op):
    for dtype in DTYPES:
        x = normal((64, 96), dtype, seed=0)
        for got, want in zip(
            Norm(op)(dict(x=x + 0, residual=x + 0, residual2=x + 0)),
            Norm(op)(dict(x=x, residual=x, residual2=x)),
            strict=True,
        ):
            assert_same_bits(got, want, op)
        check_outputs(
            Norm(op),
            dict(x=x, residual=x, residual2=x),
            Norm(op)(dict(x=x, residual=x, residual2=x)),
            op,
        )


@OF_OP
def test_one_launch(op, launches):
    arrays = arrays_of(op, 64, mx.float32, more=("scale", "shift"))
    mx.eval(list(arrays.values()))
    assert len(launches(*Norm(op)(arrays))) == 1
    arrays = arrays_of(op, 64, mx.float32)
    cots = cotangents(Norm(op), arrays)
    mx.eval(cots, list(arrays.values()))
    outputs, gradients = Norm(op).vjp(arrays, cots)
    mx.eval(outputs)
    assert len(launches(*gradients)) == 1


@OF_OP
def test_what_is_refused(op):
    f = getattr(mlx_norms, op)
    x = mx.ones((2, 3, 4))
    with pytest.raises(ValueError, match=rf"^\[{op}\] residual2\b.*\(2,3,4\)"):
        f(x, x, residual2=x[0])
    with pytest.raises(ValueError, match=rf"^\[{op}\] residual2\b.*float32, float16 or bfloat16"):
        f(x, x, residual2=x.astype(mx.int32))
    with pytest.raises(ValueError, match=rf"^\[{op}\] clamp must be False with residual2"):
        f(x, x, residual2=x, clamp=True)
    with pytest.raises(TypeError):
        f(x, x, residual2=1.0)
