"""A node of several outputs that occurs twice in a compiled function: mx.compile merges the two."""

import io

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from support.inputs import normal

pytestmark = pytest.mark.usefixtures("backend", "no_fusion")

W, B = normal((16,), mx.float32, seed="w"), normal((16,), mx.float32, seed="b")
R = normal((2, 3, 16), mx.float32, seed="r")
SCALE = normal((2, 1, 16), mx.float32, seed="scale")
SQUARE = normal((16, 16), mx.float32, seed="square")


def both(outputs):
    """One array of several, in which each of them counts."""
    return outputs[0] + mx.sin(outputs[1])


# Each makes, of an array, one that comes from a node of several outputs, forward or in a gradient.
OPS = {
    "add_rms_norm": lambda x: both(mlx_norms.add_rms_norm(x, R, W)),
    "add_rms_norm of x twice": lambda x: both(mlx_norms.add_rms_norm(x, x, W)),
    "add_rms_norm, its sum alone": lambda x: mlx_norms.add_rms_norm(x, R, W)[1] * 2,
    "add_rms_norm, factor": lambda x: both(mlx_norms.add_rms_norm(x, R, W, factor=SCALE)),
    "add_layer_norm": lambda x: both(mlx_norms.add_layer_norm(x, R, W, B)),
    "norm_add_norm": lambda x: both(mlx_norms.norm_add_norm(x, R, W, B)),
    "rms_norms": lambda x: both(mlx_norms.rms_norms([x, x * x], [W, B], 1e-5)),
    "group_norm": lambda x: mlx_norms.group_norm(x, 4, W, B),
    "instance_norm": lambda x: mlx_norms.instance_norm(x, W, B),
    "batch_norm": lambda x: both(mlx_norms.batch_norm(x, W, B, mean=W, var=B * B, training=True)),
    "rms_norm": lambda x: mlx_norms.rms_norm(x, W),
    "rms_norm, scale": lambda x: mlx_norms.rms_norm(x, W, scale=SCALE),
    "rms_norm, gate": lambda x: mlx_norms.rms_norm(x, W, gate=R),
    "rms_norm, axis": lambda x: mlx_norms.rms_norm(x, W[:3], axis=1),
    "layer_norm": lambda x: mlx_norms.layer_norm(x, W, B),
    "layer_norm, axis": lambda x: mlx_norms.layer_norm(x, W[:3], B[:3], axis=1),
    "rms_norm of heads": lambda x: mlx_norms.rms_norm(x, mx.stack([W, W, B]), 1e-5),
    "layer_norm of heads": lambda x: mlx_norms.layer_norm(x, W, mx.stack([W, W, B])),
    "rms_norm_linear": lambda x: both(mlx_norms.rms_norm_linear(x, W, [SQUARE, SQUARE])),
}


def loss(op):
    return lambda x: (op(x) ** 2).sum()


# Programs in which it occurs more than once, of what is before it.
PROGRAMS = {
    "called twice": lambda op, p: lambda x: op(p(x)) + op(p(x)) * 2,
    "called thrice": lambda op, p: lambda x: (op(p(x)), op(p(x)) * 2, mx.exp(op(p(x)))),
    "forward and gradient": lambda op, p: lambda x: (op(p(x)), mx.grad(loss(op))(p(x))),
    "gradient and forward": lambda op, p: lambda x: (mx.grad(loss(op))(p(x)), op(p(x))),
    "two gradients": lambda op, p: (
        lambda x: (
            mx.grad(loss(op))(p(x)),
            mx.grad(lambda x: op(x).sum())(p(x)),
        )
    ),
    "gradient penalty": lambda op, p: (
        lambda x: loss(op)(p(x)) + (mx.grad(loss(op))(p(x)) ** 2).mean()
    ),
    "value and jvp": lambda op, p: (
        lambda x: (
            op(p(x)),
            mx.jvp(op, [p(x)], [mx.ones_like(x)])[1][0],
        )
    ),
    "guidance": lambda op, p: lambda x: op(p(x * 2 + 0)) * 3 - op(p(x * 2 + 0)) * 2,
    "checkpoint": lambda op, p: lambda x: (op(p(x)), mx.grad(mx.checkpoint(loss(op)))(p(x))),
    "one after another": lambda op, p: lambda x: (op(op(p(x))), op(op(p(x)) * 1.0)),
}

BEFORE = {
    "nothing": lambda x: x,
    "a product": lambda x: x * 4.0,
}


def flat(outputs):
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("op", OPS)
def test_compiled_as_uncompiled(op, program):
    x = normal((2, 3, 16), mx.float32, seed="x")
    for before in BEFORE.values():
        f = PROGRAMS[program](OPS[op], before)
        expected = flat(f(x))
        mx.eval(expected)
        for got, want in zip(flat(mx.compile(f)(x)), expected, strict=True):
            np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("how", [mx.jvp, mx.vjp])
def test_captured_derivative(op, how):
    """What a compiled function captures may be pending, and captured by several."""

    def derivative():
        twice = lambda v: OPS[op](v + OPS[op](v + v))  # noqa: E731
        return how(twice, [x * 2], [mx.ones_like(x)])[1][0]

    x = normal((2, 3, 16), mx.float32, seed="x")
    expected = derivative()
    mx.eval(expected)
    pending = derivative()
    for f in (lambda z: z + pending, lambda z: pending + z * pending):
        got = mx.compile(f)(mx.array(2.0))
        np.testing.assert_allclose(np.array(got), np.array(f(mx.array(2.0))), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.array(pending), np.array(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["add_rms_norm", "norm_add_norm", "rms_norms", "group_norm"])
def test_is_computed_once(op):
    for program in ("called twice", "called thrice", "guidance"):
        f = mx.compile(PROGRAMS[program](OPS[op], BEFORE["a product"]))
        text = io.StringIO()
        mx.export_to_dot(text, *flat(f(normal((2, 3, 16), mx.float32, seed="x"))))
        assert text.getvalue().count('label ="mlx_norms') == 1, program
