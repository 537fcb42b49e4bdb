"""mx.compile and mx.checkpoint change nothing but time and memory."""

import itertools
from functools import partial

import mlx.core as mx
import pytest

import mlx_norms
from support.bits import assert_same_bits
from support.inputs import arguments, cotangents, normal
from support.norm_case import OPS, Norm

pytestmark = pytest.mark.usefixtures("backend", "no_fusion")


def assert_all_same(got, expected, note):
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b, note)


def shapeless(f, first, then):
    """f compiled without shapes, traced with some arrays and called with others."""
    compiled = mx.compile(f, shapeless=True)
    mx.eval(compiled(*first))
    return compiled(*then)


def grown(shape, batch):
    """Arrays of a shape behind a batch axis of 2, and of another size."""
    return [normal((n, *shape), mx.float32, seed=n) for n in (2, batch)]


@pytest.mark.parametrize("op", ["add_rms_norm", "add_layer_norm"])
@pytest.mark.parametrize("alone", ["x", "residual"])
def test_shapeless_vmap_with_an_array_for_all(op, alone):
    """A batch size from the trace must not stay: it would be the size of a buffer."""
    w, one = normal((64,), mx.float32, seed=1), normal((64,), mx.float32, seed=2)
    few, many = grown((64,), 3000)

    def f(a, b):
        a, b = (mx.abs(b), a) if alone == "x" else (a, mx.abs(b))
        return getattr(mlx_norms, op)(a, b, w)

    mapped = mx.vmap(f, in_axes=(0, None))
    got = shapeless(mapped, (few, one), (many, one))
    for g, expected in zip(got, mapped(many, one), strict=True):
        assert_same_bits(g, expected, op)


def test_shapeless_vmap_of_gradients():
    x, w = normal((64,), mx.float32, seed=1), normal((64,), mx.float32, seed=2)
    few, many = grown((64,), 300)

    def f(c):
        return mx.vjp(lambda a: mlx_norms.rms_norm(a, w), [x], [c])[1][0]

    assert_same_bits(shapeless(mx.vmap(f), [few], [many]), mx.vmap(f)(many), "gradient of x")


@pytest.mark.parametrize("mapped", ["q", "k"])
def test_shapeless_vmap_of_one_of_q_and_k(mapped):
    w = normal((32,), mx.float32, seed=1)
    other = normal((5, 2, 32), mx.float32, seed=2)
    few, many = grown((5, 4, 32), 20)

    def f(a):
        q, k = (a, other) if mapped == "q" else (other, a)
        return mlx_norms.rms_norms([q, k], [w, w], 1e-5)

    for g, expected in zip(shapeless(mx.vmap(f), [few], [many]), mx.vmap(f)(many), strict=True):
        assert_same_bits(g, expected, mapped)


def test_shapeless_tangents():
    few, many = grown((33,), 20)
    w, b = normal((33,), mx.float32, seed=1), normal((33,), mx.float32, seed=2)

    def along_bias(x):
        return mx.jvp(lambda b: mlx_norms.layer_norm(x, w, b), [b], [w])[1][0]

    assert_same_bits(shapeless(along_bias, [few], [many]), along_bias(many), "along the bias")

    def along_q(x):
        q, k = x[:, None], mx.abs(x)[:, None]
        return mx.jvp(lambda q: mlx_norms.rms_norms([q, k], [w, w], 1e-5), [q], [q])[1]

    for g, expected in zip(shapeless(along_q, [few], [many]), along_q(many), strict=True):
        assert_same_bits(g, expected, "along q")


@pytest.mark.parametrize("op", OPS)
def test_vmap_of_compiled_and_compiled_vmap(op):
    norm = Norm(op)
    arrays = arguments(norm, (4, 5, 65), mx.float16)
    axes = tuple(0 if a.ndim > 1 else None for a in arrays.values())
    expected = norm(arrays)
    f = norm.function(norm.arguments)
    for g in (mx.vmap(mx.compile(f), in_axes=axes), mx.compile(mx.vmap(f, in_axes=axes))):
        assert_all_same(g(*arrays.values()), expected, op)


@pytest.mark.parametrize("op", OPS)
def test_amid_other_ops(op):
    """The norm between elementwise ops that compile fuses."""
    norm = Norm(op)
    arrays = arguments(norm, (5, 65), mx.float32)

    def f(*args):
        out = norm.function(norm.arguments)(args[0] * 2.0, *args[1:])
        return [mx.abs(o) * 2.0 for o in out]

    assert_all_same(mx.compile(f)(*arrays.values()), f(*arrays.values()), op)


def test_clamped_and_unclamped_are_not_merged():
    x = mx.full((2, 4), 6e4, mx.float16)

    def both(x):
        return [
            *mlx_norms.add_rms_norm(x, x, clamp=True),
            *mlx_norms.add_rms_norm(x, x, clamp=False),
        ]

    got = mx.compile(both)(x)
    assert_all_same(got, both(x), "clamp")
    assert mx.all(got[1] == 65504) and mx.all(mx.isinf(got[3]))


def test_other_ops_and_arguments_are_not_merged():
    """Same arrays, but what is a weight in one is a bias in the other, or the op is another."""
    x, v = normal((5, 65), mx.float16, seed=1), normal((65,), mx.float16, seed=2)

    def f(x, v):
        return [
            mlx_norms.rms_norm(x, v),
            mlx_norms.layer_norm(x, v),
            mlx_norms.layer_norm(x, None, v),
            mlx_norms.layer_norm(x, v, v),
            mlx_norms.rms_norm(x),
            mlx_norms.layer_norm(x),
            *mlx_norms.add_rms_norm(x, x, v),
            *mlx_norms.add_layer_norm(x, x, v),
            *mlx_norms.add_layer_norm(x, x, None, v),
        ]

    assert_all_same(mx.compile(f)(x, v), f(x, v), "several ops")


@pytest.mark.parametrize("op", OPS)
def test_gradients_of_different_arguments_are_not_merged(op):
    norm = Norm(op)
    arrays = arguments(norm, (5, 65), mx.float32)
    args, cots = list(arrays.values()), cotangents(norm, arrays)

    def of(name, rest, a):
        return norm(rest | {name: a})

    def one_by_one(*args):
        gradients = []
        for name, a in zip(norm.arguments, args, strict=True):
            rest = dict(zip(norm.arguments, args, strict=True))
            gradients += mx.vjp(partial(of, name, rest), [a], cots)[1]
        return gradients

    assert_all_same(mx.compile(one_by_one)(*args), one_by_one(*args), op)


def test_export_is_refused(tmp_path):
    x = normal((3, 33), mx.float32, seed=1)
    for name, f in [
        ("RMSNorm", lambda x: mlx_norms.rms_norm(x)),
        ("LayerNorm", lambda x: mlx_norms.layer_norm(x)),
        ("AddRMSNorm", lambda x: mlx_norms.add_rms_norm(x, x)),
        ("AddLayerNorm", lambda x: mlx_norms.add_layer_norm(x, x)),
    ]:
        with pytest.raises(ValueError, match=f"serialize primitive mlx_norms::{name}"):
            mx.export_function(str(tmp_path / "norm.mlxfn"), f, x)


def test_lazy():
    """Nothing runs before an evaluation, and shapes and dtypes are known at once."""
    x = mx.zeros((3, 33), mx.float16)
    for op, options in itertools.product(OPS, ({}, dict(dtype=mx.float32))):
        norm = Norm(op, **options)
        mx.synchronize()
        before = mx.get_active_memory()
        arrays = {n: x for n in norm.arguments[: 1 + norm.adds]}
        out = norm(arrays)
        assert mx.get_active_memory() == before
        assert [o.shape for o in out] == [(3, 33)] * len(out)
        assert [o.dtype for o in out] == [options.get("dtype", x.dtype), x.dtype][: len(out)]
