"""The checks that a member of a group makes of rows that are split over its members."""

import io
import itertools
import re
from functools import partial

import mlx.core as mx
import mlx.nn
import numpy as np
from mlx_lm.models.minimax import ShardedRMSNorm

import mlx_norms

from . import oracle
from .inputs import arguments, cotangents, normal
from .norm_case import DTYPES, Norm

RMS = Norm("rms_norm")


def sharded(member, norm=RMS):
    """``norm`` as a function of this member's parts of x and, if there is one, of weight."""
    return lambda *arrays: mlx_norms.rms_norm(*arrays, **norm.options, group=member.group)


def rows(member, dtype=mx.float32, shape=(3, 33), **kwargs):
    """Whole arrays whose parts each have ``shape``."""
    return arguments(RMS, (*shape[:-1], shape[-1] * member.size), dtype, **kwargs)


def check(member, truth, got, note=""):
    """Compares this member's part of an array with its part of the truth."""
    slack = np.broadcast_to(truth.slack, truth.value.shape)
    mine = oracle.Truth(member.part(truth.value), member.part(slack), truth.dtype, truth.config)
    mine.check(got, f"{note} of member {member.rank}")


def check_with_gradients(member, arrays, norm=RMS, note="", transform=lambda f: f):
    """Checks values and gradients; ``transform`` is applied to the function that computes them."""
    (cot,) = cotangents(norm, arrays)
    f = transform(lambda *args: mx.vjp(sharded(member, norm), list(args[:-1]), [args[-1]]))
    (y,), gradients = f(*member.parts([*arrays.values(), cot]))
    check(member, oracle.forward(norm, arrays)[0], y, note)
    truths = oracle.gradients(norm, arrays, cot).values()
    for truth, got in zip(truths, gradients, strict=True):
        check(member, truth, got, note)


OPTIONS = [
    {},
    dict(rounding="late"),
    dict(weight_offset=1.0),
    dict(weight_offset=1.0, rounding="early"),
    dict(dtype=mx.float32),
    dict(dtype=mx.bfloat16),
    dict(eps=0.1),
]


def values_and_gradients(member):
    for dtype, options in itertools.product(DTYPES, OPTIONS):
        norm = Norm("rms_norm", **options)
        check_with_gradients(member, rows(member, dtype), norm)


def shapes(member):
    for shape in ((1,), (7,), (2, 1), (2, 3, 64), (513, 8), (2, 1025)):
        for dtype in (mx.float32, mx.float16):
            check_with_gradients(member, rows(member, dtype, shape))


def mixed_dtypes_and_no_weight(member):
    for x, weight in itertools.permutations(DTYPES, 2):
        check_with_gradients(member, rows(member, x, others={"weight": weight}))
    for dtype in DTYPES:
        check_with_gradients(member, rows(member, dtype, without=("weight",)))


def no_rows(member):
    x = mx.zeros((0, 5))
    y, gradient = sharded(member)(x), mx.grad(lambda x: sharded(member)(x).sum())(x)
    mx.eval(y, gradient)
    assert y.shape == gradient.shape == (0, 5)


def parts_of_other_magnitudes(member):
    arrays = rows(member)
    arrays["x"] *= mx.repeat(10.0 ** mx.arange(member.size), 33)
    check_with_gradients(member, arrays)


def large_and_small_values(member):
    """Gradients stay within float32's range if the squares do."""
    norm = Norm("rms_norm", eps=0.0)
    for std, dtype in itertools.product((1e15, 1e-15), (mx.float32, mx.bfloat16)):
        check_with_gradients(member, rows(member, dtype, std=std), norm)


def streams(member):
    arrays = rows(member)
    parts = member.parts(arrays.values())
    expected = sharded(member)(*parts)
    for stream in (mx.new_stream(mx.cpu), mx.cpu):
        got = mlx_norms.rms_norm(*parts, group=member.group, stream=stream)
        assert mx.array_equal(got, expected)
        with mx.stream(stream):
            check_with_gradients(member, arrays)


def compiled(member):
    for dtype, options in ((mx.float32, {}), (mx.float16, {}), (mx.bfloat16, OPTIONS[2])):
        norm = Norm("rms_norm", **options)
        check_with_gradients(member, rows(member, dtype), norm, "compiled", mx.compile)


def all_reduces(*outputs):
    """The number of all-reduces in the graph, no part of which may have been evaluated."""
    text = io.StringIO()
    mx.export_to_dot(text, *outputs)
    return text.getvalue().count("AllReduce")


def one_all_reduce_each_way(member):
    arrays = rows(member, mx.float16)
    x, w, cot = member.parts([*arrays.values(), *cotangents(RMS, arrays)])
    f = sharded(member)
    (y,), (dx, dw) = mx.vjp(f, [x, w], [cot])
    batch = mx.vmap(f, in_axes=(0, None))(x, w)
    assert all_reduces(y) == 1
    assert all_reduces(y, dw) == 1  # none that only dx needs
    assert all_reduces(y, dx, dw) == 2
    assert all_reduces(batch) == 1
    mx.eval(y, dx, dw, batch)


def refusals(member):
    x, w = mx.ones((2, 4)), mx.ones(4)
    for words, args, options in (
        (r"weight .*\(4\).*\(8\)", (x, mx.ones(8)), {}),
        (r"\bx\b .*float32", (x.astype(mx.int32), w), {}),
        (r"\bx\b .*axis", (mx.array(1.0),), {}),
        (r"\beps\b", (x, w, -1.0), {}),
        (r"weight_offset", (x,), dict(weight_offset=1.0)),
        (r"\brounding\b", (x, w), dict(rounding="never")),
        (r"\bdtype\b", (x, w), dict(dtype=mx.int32)),
    ):
        try:
            mlx_norms.rms_norm(*args, **options, group=member.group)
        except ValueError as e:
            assert re.match(rf"\[rms_norm\] .*{words}", str(e)), e
        else:
            raise AssertionError(f"not refused: {words}")


def by_hand_in_mlx_lm(member):
    """mlx_lm's sharded norm rounds late."""
    norm = Norm("rms_norm", rounding="late")
    for dtype in DTYPES:
        arrays = rows(member, dtype)
        layer = mlx.nn.RMSNorm(arrays["weight"].size, norm.eps)
        layer.weight = arrays["weight"]
        layer = ShardedRMSNorm.from_rms_norm(layer, group=member.group)
        (truth,) = oracle.forward(norm, arrays)
        x = member.part(arrays["x"])
        check(member, truth, layer(x), "mlx_lm's")
        check(member, truth, sharded(member, norm)(x, layer.weight))


# Below, f is the op as a function of x and weight, c are the weights of a loss, and tx and tw are
# tangents. The last axis of every result is that of the rows.
def loss(f, c, x, w):
    return (0.5 * c * f(x, w) ** 2).sum()


def gradient(f, x, w, c, tx, tw):
    return mx.grad(partial(loss, f, c), argnums=(0, 1))(x, w)


def jvp(f, x, w, c, tx, tw):
    return mx.jvp(f, [x, w], [tx, tw])[1]


def jvp_of_gradient(f, x, w, c, tx, tw):
    return mx.jvp(lambda x, w: gradient(f, x, w, c, tx, tw), [x, w], [tx, tw])[1]


def gradient_of_jvp(f, x, w, c, tx, tw):
    def slope(x, w):
        return (c * jvp(f, x, w, c, tx, tw)[0]).sum()

    return mx.grad(slope, argnums=(0, 1))(x, w)


def gradient_of(gradient):
    """The gradient of ``gradient`` along the tangents."""

    def of_gradient(f, x, w, c, tx, tw):
        def along(x, w):
            gx, gw = gradient(f, x, w, c, tx, tw)
            return (gx * tx).sum() + (gw * tw).sum()

        return mx.grad(along, argnums=(0, 1))(x, w)

    return of_gradient


def vmap_of_gradient(f, x, w, c, tx, tw):
    g = mx.vmap(lambda x, w, c: gradient(f, x, w, c, tx, tw), in_axes=(1, None, 1), out_axes=(1, 0))
    return g(x, w, c)


def gradient_of_checkpoint(f, x, w, c, tx, tw):
    return gradient(mx.checkpoint(f), x, w, c, tx, tw)


def in_vmap(over_x, over_w):
    """The op under vmap over one example, for batches along these axes."""

    def transform(f):
        v = mx.vmap(f, in_axes=(over_x, over_w))
        return lambda x, w: v(x, w if over_w is None else mx.stack([w, 2 * w, w * w], over_w))

    return transform


DERIVATIVES = [
    gradient,
    jvp,
    jvp_of_gradient,
    gradient_of_jvp,
    gradient_of(gradient),
    gradient_of(gradient_of(gradient)),
    vmap_of_gradient,
    gradient_of_checkpoint,
]
TRANSFORMS = {
    "as it is": lambda f: f,
    "compiled": mx.compile,
    "vmap over x": in_vmap(0, None),
    "vmap over another axis of x": in_vmap(1, None),
    "vmap over w": in_vmap(None, 0),
    "vmap over both": in_vmap(0, 0),
    "vmap over other axes of both": in_vmap(1, 1),
}


def derivatives_and_transforms(member):
    """They match those of the op on whole rows, within 64 units of the largest value of each row.

    That is twice the 32 that the battery allows a single op.
    """
    norm = Norm("rms_norm", weight_offset=1.0)
    x, w = (3, 3, 3, 17 * member.size), (17 * member.size,)
    arrays = [normal(shape, mx.float32, seed=i) for i, shape in enumerate((x, w, x, x, w))]

    def whole(x, w):
        return mlx_norms.rms_norm(x, w, **norm.options)

    for derivative, (name, transform) in itertools.product(DERIVATIVES, TRANSFORMS.items()):
        expected = derivative(transform(whole), *arrays)
        got = derivative(transform(sharded(member, norm)), *member.parts(arrays))
        for a, b in zip(got, expected, strict=True):
            size = mx.abs(b).max(axis=-1, keepdims=True)
            error = (mx.abs(a - member.part(b)) / size).max().item()
            unit = oracle.unit_roundoff(mx.float32)
            assert error <= 64 * unit, f"{derivative.__name__}, {name}: {error / unit:.3g} units"


CASES = (
    values_and_gradients,
    shapes,
    mixed_dtypes_and_no_weight,
    no_rows,
    parts_of_other_magnitudes,
    large_and_small_values,
    streams,
    compiled,
    one_all_reduce_each_way,
    refusals,
    by_hand_in_mlx_lm,
    derivatives_and_transforms,
)
