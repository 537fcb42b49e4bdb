"""vmap over any subset of the arguments, and along any axis."""

import itertools
from functools import partial

import mlx.core as mx
import pytest

from support import oracle
from support.bits import assert_same_bits
from support.checks import check_gradients, check_outputs
from support.inputs import arguments, cotangents
from support.norm_case import DTYPES, OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")

SIZE = 3


def choices(names, ndim=2):
    """Each batch axis, or None, of each argument; never None for all."""
    axes = [(None, *range(ndim + 1 if n in ("x", "residual") else 2)) for n in names]
    return [c for c in itertools.product(*axes) if any(a is not None for a in c)]


def batch(norm, dtype, shape=(2, 33), **kwargs):
    """SIZE sets of arguments."""
    return [arguments(norm, shape, dtype, seed=(i, 20), **kwargs) for i in range(SIZE)]


def stacked(examples, axes):
    """Arguments for vmap: stacked along their axis, or the first example's."""
    return [
        examples[0][n] if axis is None else mx.stack([e[n] for e in examples], axis=axis)
        for n, axis in zip(examples[0], axes, strict=True)
    ]


def example(examples, axes, i):
    """What vmap computes on in place i."""
    of = zip(examples[0], axes, strict=True)
    return {n: examples[0][n] if axis is None else examples[i][n] for n, axis in of}


def check_forward(norm, examples, axes, note=""):
    f = norm.function(list(examples[0]))
    got = mx.vmap(f, in_axes=axes)(*stacked(examples, axes))
    for i in range(SIZE):
        outputs = [out[i] for out in got]
        check_outputs(norm, example(examples, axes, i), outputs, f"vmap over {axes}, {note}")


@pytest.mark.parametrize("batched", ["x", "weight", "both"])
@pytest.mark.parametrize("op", OPS)
def test_long_rows(op, batched):
    """Sums over a row are as good under vmap as they are without."""
    norm = Norm(op)
    of_x, of_weight = (0 if batched in (n, "both") else None for n in ("x", "weight"))
    axes = tuple(of_x if n in ("x", "residual") else of_weight for n in norm.arguments)
    for length, dtype in itertools.product((1025, 8192, 65536), DTYPES):
        examples = batch(norm, dtype, (1, length))
        check_forward(norm, examples, axes)
        constant = [e | {n: mx.ones_like(e[n]) * 1.1 for n in norm.arguments[:1]} for e in examples]
        check_forward(norm, constant, axes, "x constant")
        cots = cotangents(norm, examples[0])

        def gradients(*args, norm=norm, cots=cots):
            return mx.vjp(norm.function(norm.arguments), list(args), cots)[1]

        got = mx.vmap(gradients, in_axes=axes)(*stacked(examples, axes))
        for i in range(SIZE):
            gradients_i = [g[i] for g in got]
            check_gradients(
                norm, example(examples, axes, i), cots, gradients_i, f"vmap over {axes}"
            )


@pytest.mark.parametrize("op", OPS)
def test_forward_with_other_dtypes_and_options(op):
    options = [dict(weight_offset=1.0), dict(rounding="late"), dict(dtype=mx.float32)]
    options += [dict(dtype=mx.bfloat16), dict(clamp=True) if op.startswith("add") else {}]
    every = choices(Norm(op).arguments)
    for k, (option, dtype) in enumerate(itertools.product(options, DTYPES)):
        norm = Norm(op, **option)
        for axes in every[k % 7 :: 7]:
            check_forward(norm, batch(norm, dtype, others={"weight": mx.float32}), axes)
            check_forward(norm, batch(norm, dtype), axes)


@pytest.mark.parametrize("op", OPS)
def test_rows_keep_their_bits(op):
    """Where the parameters are shared, vmap gives the bits of one call an example."""
    norm = Norm(op)
    for dtype in DTYPES:
        examples = batch(norm, dtype)
        for axes in choices(norm.arguments):
            if any(a is not None for a in axes[1 + norm.adds :]):
                continue
            got = mx.vmap(norm.function(norm.arguments), in_axes=axes)(*stacked(examples, axes))
            for i in range(SIZE):
                alone = norm(example(examples, axes, i))
                for a, b in zip(got, alone, strict=True):
                    assert_same_bits(a[i], b, f"{op}, {dtype}, vmap over {axes}")


@pytest.mark.parametrize("op", OPS)
def test_gradient_of_each_example_for_some_arguments(op):
    """vmap of a gradient that leaves arguments out, which vjp does not compute then."""
    norm = Norm(op)
    examples = batch(norm, mx.float32)
    cots = cotangents(norm, examples[0])

    def of(names, held, *free):
        return norm(dict(zip(names, free, strict=True)) | held)

    def gradients(names, left_out, *args):
        f = partial(of, names, {left_out: args[-1]})
        return mx.vjp(f, list(args[:-1]), cots)[1]

    for left_out in norm.arguments:
        names = [n for n in norm.arguments if n != left_out]
        order = [*names, left_out]
        none = (None,) * len(names)
        for axes in ((0,) * len(order), (0, *none), (*none, 0)):
            chosen = dict(zip(order, axes, strict=True))
            by_name = [chosen[n] for n in norm.arguments]
            args = dict(zip(norm.arguments, stacked(examples, by_name), strict=True))
            got = mx.vmap(partial(gradients, names, left_out), in_axes=axes)(
                *(args[n] for n in order)
            )
            for i in range(SIZE):
                truths = oracle.gradients(norm, example(examples, by_name, i), *cots)
                for n, g in zip(names, got, strict=True):
                    truths[n].check(g[i], f"vmap over {chosen}")


@pytest.mark.parametrize("op", OPS)
def test_empty_batch_of_rows(op):
    norm = Norm(op)
    arrays = arguments(norm, (3, 0, 33), mx.float32)
    axes = tuple(0 if a.ndim == 3 else None for a in arrays.values())
    for out in mx.vmap(norm.function(list(arrays)), in_axes=axes)(*arrays.values()):
        assert out.shape == (3, 0, 33)
