"""Calls of the table's ops on random arrays, held against its values in float64."""

import math

import mlx.core as mx

from mlx_norms._table.exact import LEAST, ROUNDOFF, U
from mlx_norms._table.rows import ACTIVATIONS

from .bits import assert_same_bits
from .inputs import normal

SIZES = dict(B=5, N=3, L=5, H=4, K=2, D=48, C=16, P=2, M=6)
OF_PRODUCTS = dict(K=20)
OF_LINEAR = dict(B=2, N=2)  # rows that a GPU takes in one launch
QKV = ("x", "q", "k", "v")


def sizes_of(op, **more):
    """Sizes of the axes by letter; ``more`` are rounded up to what they have to be multiples of."""
    own = OF_PRODUCTS if op.name.startswith("matmul") else OF_LINEAR if "linear" in op.name else {}
    sizes = SIZES | own | more | op.fixed
    return {c: -(-n // op.multiple.get(c, 1)) * op.multiple.get(c, 1) for c, n in sizes.items()}


def arrays_of(op, dtype, *, seed=0, others=None, **more):
    """The op's arrays; ``others`` is the dtype of all but x, or q, k and v, or one of each."""
    arrays = []
    for i, name in enumerate(op.inputs):
        shape = op.shape(name, sizes_of(op, **more))
        std = 1 / math.sqrt(max(shape[-1], 1)) if name in ("matrix", "more") else 1.0
        mean = 0.0
        if name == "var":  # by which others are divided
            mean, std = 2.0, 0.3
        of_others = others.get(name) if isinstance(others, dict) else others
        to = dtype if name in QKV or not of_others else of_others
        arrays.append(normal(shape, to, seed=(seed, i), mean=mean, std=std))
    return arrays


def are_rows(op):
    """Of each array, whether it is one of rows, such as x and a gate."""
    first = op.axes[op.inputs[0]]
    return [axes == first or name in ("k", "v") for name, axes in op.axes.items()]


def cotangents_of(outputs, seed=9):
    return [normal(o.shape, o.dtype, seed=(seed, i)) for i, o in enumerate(outputs)]


def both_ways(f, arrays, cotangents=None):
    """Results and gradients."""
    cotangents = cotangents_of(f(*arrays)) if cotangents is None else cotangents
    outputs, gradients = mx.vjp(f, list(arrays), cotangents)
    return [*outputs, *gradients]


def assert_same(op, got, wanted, note=""):
    """Bit by bit; what MLX's sums and products take part in may add up in another order."""
    __tracebackhide__ = True
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if is_partly_mlx(op):
            assert a.dtype == b.dtype, f"{op} {note}, {i}"
            within = 32 * ROUNDOFF[a.dtype] + 128 * ROUNDOFF[mx.float32]
            assert_close([a], [b], within, f"{op} {note}, {i}")
        else:
            assert_same_bits(a, b, f"{op} {note}, {i}")


def is_partly_mlx(op):
    return "running" in op.name or "matmul" in op.name or "linear" in op.name


def assert_close(got, wanted, tolerance, note="", least=1e-30):
    """Relative to the largest of a result, or to ``least``."""
    __tracebackhide__ = True
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.shape == b.shape, f"{note}, {i}"
        with mx.stream(mx.cpu):
            a, b = (v.astype(mx.float64) for v in (a, b))
            if b.size:
                most = mx.max(mx.abs(b)).item()
                off = mx.max(mx.abs(a - b)).item()
                most = max(most, least)
                text = f"off by {off:.3g}, where {tolerance:.3g} of {most:.3g} is allowed"
                assert off <= tolerance * most, f"{note}, result {i}: {text}"


def check(op, arrays, note="", outputs=None, **options):
    """Results within the table's bounds."""
    __tracebackhide__ = True
    outputs = op.ours(**options)(*arrays) if outputs is None else outputs
    mx.eval(outputs)
    with mx.stream(mx.cpu):
        for i, (got, truth) in enumerate(zip(outputs, op.exact(**options)(*arrays), strict=True)):
            assert got.shape == truth.shape, f"{op} {note}, {i}"
            if got.size:
                off = mx.abs(got.astype(mx.float64) - truth.value)
                allowed = mx.maximum(truth.allowed(got.dtype), 1e-30)
                worst = mx.max(off / allowed).item()
                assert worst <= 1, f"{op} {note}, result {i}: {worst:.3g} times the bound"
    return outputs


def check_both_ways(op, arrays, note="", cotangents=None, **options):
    """And gradients."""
    __tracebackhide__ = True
    outputs = check(op, arrays, note, **options)
    cotangents = cotangents_of(outputs) if cotangents is None else cotangents
    gradients = mx.vjp(op.ours(**options), list(arrays), cotangents)[1]
    mx.eval(gradients)
    assert [g.dtype for g in gradients] == [a.dtype for a in arrays], f"{op} {note}"
    unit = ROUNDOFF[narrowest(*arrays, *outputs)]
    late = options.get("rounding") == "late"
    with mx.stream(mx.cpu):
        exact = op.gradients(arrays, cotangents, **options)
        for name, got, (value, size) in zip(op.inputs, gradients, exact, strict=True):
            if got.size:
                rounds = ROUNDOFF[got.dtype] * mx.abs(value) + 2 * LEAST[got.dtype]
                allowed = (units(op) * U + steps(op, name, late) * unit) * size + rounds
                off = mx.abs(got.astype(mx.float64) - value) / mx.maximum(allowed, 1e-30)
                worst = mx.max(off).item()
                assert worst <= 1, f"{op} {note}, gradient of {name}: {worst:.3g} times the bound"
                if mx.max(mx.abs(value)) > 1e-2 * mx.max(size):  # else the terms cancel
                    within = 4 * (16 * U + 2 * unit)
                    assert_close([got], [value], within, f"{op} {note}, gradient of {name}")


def units(op):
    """Of float32's roundoff in a gradient, relative to the magnitudes that it is a sum of."""
    of_rows = op.name.startswith(("rms_norm", "layer_norm", "add_", "l2"))
    if op.name.endswith("first"):  # a gate's errors are those of the root, too
        return 48
    if not of_rows or any(word in op.name for word in ("linear", "gate", *ACTIVATIONS)):
        return 24
    return (18 if "layer" in op.name else 14) + 4 * ("scale" in op.name or "shift" in op.name)


def steps(op, name, late):
    """Roundings of a gradient to 16 bits, before its own."""
    if "linear" in op.name:
        return 16 if op.options["gated"] else 4
    if op.name.startswith("patched add"):
        return 2
    if name == "factor" or op.name.startswith("norm_add_norm"):
        return 3
    if any(word in op.name for word in ("rope", "running", "numbers", "matmul")):
        return 2
    if "factor" in op.inputs and name == "x":
        return 1
    return 2 if "weight" in name and not late else 0  # of what is normalized, where that rounds


def narrowest(*arrays):
    return max((a.dtype for a in arrays), key=ROUNDOFF.get)
