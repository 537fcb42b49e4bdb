"""Random ops, shapes, strides, dtypes and options against the oracle."""

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.checks import check_outputs, check_with_gradients
from support.inputs import normal
from support.norm_case import DTYPES, OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")

dtypes = st.sampled_from(DTYPES)


@st.composite
def norms(draw):
    op = draw(st.sampled_from(OPS))
    return Norm(
        op,
        eps=draw(st.sampled_from([1e-5, 1e-6, 1e-12, 0.5])),
        weight_offset=draw(st.sampled_from([0.0, 0.0, 1.0, -0.5])),
        clamp=op.startswith("add") and draw(st.booleans()),
        rounding=draw(st.sampled_from([None, "early", "late"])),
        dtype=draw(st.sampled_from([None, *DTYPES])),
    )


@st.composite
def views(draw, shape, dtype, std=1.0):
    """An array of a shape as a view of another: axes in another order, sliced, or broadcast."""
    order = draw(st.permutations(range(len(shape))))
    stored, index = [], []
    for axis in order:
        n = shape[axis]
        if draw(st.integers(0, 5)) == 0:
            stored.append(1)
            index.append(slice(None))
            continue
        step = draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2]))
        before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        stored.append(before + abs(step) * n + after)
        end = before + abs(step) * n
        if n == 0:
            index.append(slice(0, 0))
        elif step > 0:
            index.append(slice(before, end, step))
        else:
            index.append(slice(end - 1, before - 1 if before else None, step))
    whole = normal(tuple(stored), dtype, seed=draw(st.integers(0, 2**16)), std=std)
    mx.eval(whole)
    view = whole[tuple(index)].transpose([order.index(i) for i in range(len(shape))])
    return mx.broadcast_to(view, shape)


lengths = st.one_of(st.integers(1, 70), st.integers(1, 300), st.sampled_from([512, 1000, 1031]))


@st.composite
def calls(draw):
    """A norm, its arguments as views, and cotangents as views."""
    norm = draw(norms())
    shape = (*draw(st.lists(st.integers(0, 5), max_size=3)), draw(lengths))
    std = draw(st.sampled_from([1.0, 1.0, 0.003, 30.0]))
    x = draw(dtypes)
    dtype = {"x": x, "residual": draw(st.sampled_from([x, x, *DTYPES]))}
    arrays = {}
    for name in norm.arguments:
        if name in ("x", "residual"):
            arrays[name] = draw(views(shape, dtype[name], std))
        elif norm.weight_offset or draw(st.integers(0, 4)):
            arrays[name] = draw(views(shape[-1:], draw(dtypes)))
    cots = [draw(views(shape, norm.out_dtype(arrays)))]
    if norm.adds:
        cots.append(draw(views(shape, norm.sum_dtype(arrays))))
    return norm, arrays, cots


@given(calls())
def test_any_call(call):
    norm, arrays, cots = call
    check_with_gradients(norm, arrays, cots)


@given(calls(), st.data())
def test_any_vmap(call, data):
    """The leading axis of x is the batch, or an axis put into the parameters."""
    norm, arrays, _ = call
    size = arrays["x"].shape[0] if arrays["x"].ndim > 1 else 0
    if size == 0:
        return
    axes, given_arrays, examples = [], [], [{} for _ in range(size)]
    for name, a in arrays.items():
        batched = name in ("x", "residual") or data.draw(st.booleans())
        if not batched:
            given_a, axis = a, None
        elif name in ("x", "residual"):
            given_a, axis = a, 0
        else:
            axis = data.draw(st.integers(0, 1))
            given_a = mx.stack([a * (i + 1) for i in range(size)], axis=axis)
        axes.append(axis)
        given_arrays.append(given_a)
        for i, example in enumerate(examples):
            example[name] = a if axis is None else given_a[i] if axis == 0 else given_a[:, i]
    got = mx.vmap(norm.function(list(arrays)), in_axes=tuple(axes))(*given_arrays)
    for i, example in enumerate(examples):
        check_outputs(norm, example, [out[i] for out in got], f"vmap over {axes}")


@given(calls())
def test_any_compiled_call(call):
    norm, arrays, _ = call
    compiled = mx.compile(norm.function(list(arrays)))(*arrays.values())
    check_outputs(norm, arrays, compiled, "compiled")
