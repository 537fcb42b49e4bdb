"""Which sums are fused into the norms that take them: a table of graphs, each run in every way."""

import functools
import itertools
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import pytest
from mlx_lm.models import gemma3_text
from packaging.version import Version

import mlx_norms
from fuzz.backends import fuse_compiled
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES, short
from support.patched_runs import (
    ALONE,
    DIMS,
    FUSED,
    LONG_GRAPH,
    NORMS,
    OF_SUM,
    OTHER_STREAM,
    REPEATED,
    ROUNDINGS,
    ROUNDOFF,
    WITH_OTHERS,
    arrays_of,
    assert_close,
    check,
    largest,
    operations,
    run_patched,
    run_stock,
)
from support.releases import MLX

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name),
]

SHAPE = (2, 3, 4, DIMS)
ROW, ONE, SAMPLE, COLUMN = (DIMS,), (1,), (2, 1, 1, DIMS), (2, 3, 4, 1)
NODES = {"rms_norm": "mlx_norms::AddRMSNorm", "layer_norm": "mlx_norms::AddLayerNorm"}
# Of a norm that is rounded to 16 bits before the weight, after it, after the bias and at the end.
ROUNDINGS_16 = 4


@dataclass(frozen=True)
class Graph:
    """``code(norm, *arrays)`` of x, a residual and others; the norm has parameters.

    Attributes:
        reasons: The outcomes of its norms; by the norm's name where that decides.
        left: The operations in its graph that are not ours, without broadcasts, and without casts
            unless it names them; None is not looked at.
        dtypes: All of which it is called with; by transforms it is traced with the first.
        ways: Those of WAYS that it is run in; None: all.
        but: Those that it is not run in: MLX itself has no such transform of it.
        bits: Whether it has those of a norm after MLX's operations.
        given: Makes other arrays than random ones.
    """

    code: Callable
    reasons: dict
    shapes: tuple = (SHAPE, SHAPE)
    left: dict | None = None
    dtypes: tuple = (mx.float32,)
    ways: tuple | None = None
    but: tuple = ()
    bits: bool = True
    given: Callable | None = None
    marks: tuple = ()

    def arrays(self, dtype):
        if self.given:
            return self.given(dtype)
        arrays = [normal(shape, dtype, seed=i) for i, shape in enumerate(self.shapes)]
        mx.eval(arrays)
        return arrays


GRAPHS = {}
TAKEN = {FUSED: 1}
CALL = ("call",)
SHAPED = dict(but=("shapeless",))  # in which MLX infers no shapes of views
# MLX before 0.32.1 gives products the shape of the trace, and elements that are set no tangents.
PRODUCTS, SET = ({}, {}) if MLX >= Version("0.32.1") else (SHAPED, dict(but=("jvp",)))


def add(name, code, reasons=TAKEN, *, others=None, **more):
    """``others`` are the shapes of arrays in place of the residual, or of all."""
    if others is not None:
        more["shapes"] = (SHAPE, *others)
    assert name not in GRAPHS
    GRAPHS[name] = Graph(code, reasons, **more)


def sums(codes, reasons=TAKEN, **more):
    """Adds norms of sums, by what makes the sum of the arrays."""
    for name, code in codes.items():
        add(name, functools.partial(norm_of, code), reasons, **more)


def norm_of(code, norm, *arrays):
    return of(norm, code(*arrays))


def graph(reasons=TAKEN, **more):
    """Adds code that takes more than an expression."""

    def added(code):
        add(code.__name__, code, reasons, **more)
        return code

    return added


def of(norm, h, *parameters):
    """The norm in h's dtype, and h."""
    return norm(h, *(parameters or parameters_of(norm, h.dtype))), h


def parameters_of(norm, dtype=mx.float32):
    return [p.astype(dtype) for p in norm.parameters]


def first_row(a):
    return a.reshape(-1, a.shape[-1])[0]


# --- Which sums.

PLAIN = dict(left={})
sums({"two arrays": lambda x, r: x + r}, **PLAIN, dtypes=DTYPES)
sums({"an array twice": lambda x, r: x + x}, **PLAIN)
sums({"a difference": lambda x, r: x - r}, {ALONE: 1})
add("both used on", lambda norm, x, r: (of(norm, x + r), mx.tanh(x + r)))
add("a sum that nobody holds", lambda norm, x, r: norm(mx.exp(x) + mx.exp(r), *norm.parameters))
add("nothing to fuse", lambda norm, x, r: (norm(x, *norm.parameters), x * r), {ALONE: 1})
sums({"of a view": lambda x, r: (x + r)[:, 1:]}, {ALONE: 1}, **SHAPED)
sums(
    {
        "a row for all": lambda x, r: x + r,
        "a row for all first": lambda x, r: r + x,
    },
    others=[ROW],
    left={},
)
sums({"a row and a column": lambda x, r: x[..., :1] + r}, {REPEATED: 1}, others=[ROW], **SHAPED)
sums({"a number": lambda x, r: x + 1.5}, {REPEATED: 1})
for shape in ((), ONE, (1, 1, 1, 1), COLUMN):
    text = f"one element for a row {shape}"
    sums(
        {
            text: lambda x, r: x + r,
            f"{text} first": lambda x, r: r + x,
        },
        {REPEATED: 1},
        others=[shape],
    )
for shape in (ROW, (1, DIMS), (2, 3, DIMS), (1, 2, 1, 3, DIMS), (3, 1)):
    add(
        f"arrays of {shape}",
        lambda norm, x, r: of(norm, x + r, *(p[: x.shape[-1]] for p in norm.parameters)),
        shapes=(shape, shape),
        but=("shapeless", "jvp") if shape == (3, 1) else (),  # whose tangents cancel
    )
for name, view in {
    "every other": lambda a: a[..., ::2],
    "transposed": lambda a: a.swapaxes(0, 2),
    "backward": lambda a: a[:, ::-1],
    "rows of more": lambda a: a[..., 1 : 1 + DIMS],
}.items():
    of_view = dict(shapes=((4, 3, 2, 2 * DIMS),) * 2) | SHAPED

    def summed(norm, x, r, view=view):
        a, b = (view(y)[..., :DIMS] for y in (x, r))
        return of(norm, a + b), norm(a + a, *norm.parameters)

    add(f"views: {name}", summed, {FUSED: 2}, **of_view)


@graph({"rms_norm": {WITH_OTHERS: 2}, "layer_norm": {ALONE: 1, FUSED: 1}}, bits=False)
def a_norm_among_the_operands(norm, x, r):
    """The branch is normalized before it is added, and the sum after: of RMS norms one node."""
    return of(norm, x + norm(r, *norm.parameters))


@graph({ALONE: 1, FUSED: 1})
def a_norm_among_the_operands_that_is_returned(norm, x, r):
    branch = norm(r, *norm.parameters)
    return branch, of(norm, x + branch)


@graph({FUSED: 2}, **PRODUCTS)
def a_block(norm, x, r):
    """Two residual additions, each followed by a norm, as in a transformer's block."""
    h = x + r
    o = h + mx.tanh(norm(h, *norm.parameters) @ matrix)
    return o * norm(o, *norm.parameters)


@graph()
def a_sum_that_is_dropped(norm, x, r):
    return norm(x + r, *norm.parameters)


@graph({ALONE: 1}, ways=CALL)
def a_norm_that_is_dropped(norm, x, r):
    """It is not in the graph."""
    return of(norm, x + r)[1]


@graph({FUSED: 12})
def a_chain(norm, x, r):
    h, seen = x, []
    for _ in range(6):
        h = h + r
        n = norm(h, *norm.parameters)
        seen.append(n)
        h = h + mx.tanh(n)
        seen.append(norm(h, *norm.parameters))
    return h, seen


@graph({FUSED: 1, ALONE: 1})
def two_norms_of_a_sum(norm, x, r):
    h = x + r
    return h, norm(h, *norm.parameters), norm(h, *(2 * p for p in norm.parameters))


@graph(but=("shapeless", "vmap", "compiled vmap"))  # where MLX's vmap corrupts memory
def operations_of_several_outputs_in_between(norm, x, r):
    n, h = of(norm, x + r)
    left, right = mx.split(n, 2, axis=-1)
    q, k = mx.divmod(left, 0.5)
    return h, right, q * k


@graph(**SHAPED)
def views_and_casts_of_both(norm, x, r):
    h = x + r
    before = [h * 2, h[1:], h.T, h.reshape(2, -1), h.astype(mx.float16)]
    n = norm(h, *norm.parameters)
    return before, [[a * 2, a[1:], a.T, a.reshape(2, -1), a.astype(mx.float16)] for a in (h, n)]


@graph()
def another_handle(norm, x, r):
    """Some operations that have nothing to do return their argument."""
    h = x + r
    other = h.reshape(h.shape)
    assert other is not h
    return of(norm, other), h, h.astype(h.dtype)


@graph()
def operands_are_used_again(norm, x, r):
    a = mx.tanh(x)
    n, h = of(norm, a + r)
    return a * n + h * r, a


@graph({FUSED: 2})
def added_to_in_place(norm, x, r):
    h = x + r
    before = h
    n = norm(h, *norm.parameters)
    h += x
    return before, h, n, norm(h, *norm.parameters)


@graph({REPEATED: 1})
def a_number_added_in_place(norm, x, r):
    h = x + r
    h += 1.0
    return of(norm, h)


@graph({ALONE: 1}, **SET)
def an_element_set_before(norm, x, r):
    h = x + r
    h[0] = 0
    return of(norm, h)


@graph(**SET)
def an_element_set_afterwards(norm, x, r):
    h = x + r
    n = norm(h, *norm.parameters)
    h[0] = 7
    return h, n


# --- Weights and biases.


def with_last(norm, h, last):
    """The last parameter, which is the weight of one norm and the bias of the other, is `last`."""
    return h, norm(h, *norm.parameters[:-1], last)


add("no parameters", lambda norm, x, r: (x + r, norm(x + r)))
add("a bias alone", lambda norm, x, r: mx.fast.layer_norm(x + r, None, first_row(r), 1e-5))
add("computed ones", lambda norm, x, r: of(norm, x + r, *(2 * p for p in norm.parameters)))
add("of the operand", lambda norm, x, r: with_last(norm, mx.tanh(x) + r, first_row(mx.tanh(x))))


@graph({OF_SUM: 1})
def a_parameter_of_the_sum(norm, x, r):
    """The weight waits for the sum, which would wait for the weight."""
    h = x + r
    return h, norm(h, *(mx.tanh(first_row(h)) for _ in norm.parameters))


@graph({OF_SUM: 1})
def the_sum_itself(norm, x, r):
    h = first_row(x) + first_row(r)
    return h, norm(h, h, h)


@graph({OF_SUM: 1})
def the_last_of_the_sum(norm, x, r):
    h = x + r
    return with_last(norm, h, h.sum(axis=(0, 1, 2)))


@graph({OF_SUM: 1, REPEATED: 1})
def of_the_sum_and_a_number(norm, x, r):
    """What would become a weight offset is computed from the sum, or is the sum."""
    h, s = x + r, 1 + first_row(r)
    return h, mx.fast.rms_norm(h, 1 + first_row(h), 1e-5), mx.fast.rms_norm(s, s, 1e-5)


@graph({FUSED: 2}, **SHAPED)
def a_parameter_of_a_norm_that_has_fused(norm, x, r):
    """It waits for another sum only."""
    g = x + x
    w = first_row(norm(g, *norm.parameters))
    h = g + r
    return g, with_last(norm, h, w)


@graph({FUSED: 1, OF_SUM: 1}, **SHAPED)
def a_parameter_of_another_sum(norm, x, r):
    """To fuse the second as well would make either sum wait for the other."""
    g, h = x + r, x * 2 + r
    return with_last(norm, g, first_row(h)), with_last(norm, h, first_row(g))


def pending(length, of_sum):
    """A parameter by so many operations, of the sum or of what is given."""

    def code(norm, x, r):
        h = x + r
        w = first_row(h) if of_sum else norm.parameters[-1]
        for _ in range(length):
            w = mx.tanh(w) if of_sum else mx.abs(w)
        return with_last(norm, h, w)

    return code


# 256 arrays are looked at, one of which is where a chain of 255 begins.
for length, of_sum, reason in (
    *((255, False, FUSED), (256, False, LONG_GRAPH)),
    *((12, True, OF_SUM), (256, True, LONG_GRAPH)),
):
    add(f"pending by {length}, {of_sum}", pending(length, of_sum), {reason: 1})


# --- factor * x, in place of x.

for number in (0.22, -1.5, 0.0, 3, 1.0):
    text = f"number {number}"
    all_dtypes = dict(left={}, dtypes=DTYPES)
    sums(
        {
            text: lambda x, r, n=number: r + x * n,
            f"{text} first": lambda x, r, n=number: n * x + r,
        },
        **all_dtypes,
    )
FACTORS = {"layer scale": ROW, "sample": SAMPLE, "frame": (2, 3, 1, DIMS), "whole": SHAPE}
FACTORS["row of all"] = (1, 1, 1, DIMS)
for form, shape in FACTORS.items():
    for i, code in enumerate(
        (
            lambda norm, x, r, f: of(norm, r + x * f),
            lambda norm, x, r, f: of(norm, r + f * x),
            lambda norm, x, r, f: of(norm, x * f + r),
            lambda norm, x, r, f: of(norm, f * x + r),
        )
    ):
        more = dict(left={}, dtypes=DTYPES, others=[SHAPE, shape])
        add(f"factor {form} {i}", code, **more)
# By an array of rows, r, and another array.
OF_ROW, OF_ONE = dict(others=[SHAPE, ROW]), dict(others=[SHAPE, ONE])
MULTIPLY, SLICED = dict(left={"Multiply": 1}), dict(left={"Slice": 1})
sums({"of both": lambda x, r, f: r * 0.5 + x * f}, **OF_ROW, **MULTIPLY)
sums({"x squared": lambda x, r: x + x * x}, left={})
sums(
    {"a pending factor": lambda x, r, f: r + x * mx.tanh(f)},
    others=[SHAPE, SAMPLE],
    left={"Tanh": 1},
)
sums(
    {"views and a factor": lambda x, r, f: r[:, ::-1] + x.T.T * f[::2]},
    others=[SHAPE, (64,)],
    **SHAPED,
)
# mx.fast itself fails on empty arrays with CUDA.
EMPTY = dict(marks=(pytest.mark.backends("cpu", "metal", "metal-sim"),), ways=("call", "fuse"))


def zeros(shape):
    return lambda dtype: [mx.zeros(shape, dtype)] * 2


for text, code in {
    "a sum": lambda x, r: x + r,
    "a product": lambda x, r: x + r * 0.5,
    "a sum's product": lambda x, r: (x + r) * 0.5,
}.items():
    for shape in ((0, DIMS), (2, 0, DIMS), (2, 0)):
        add(
            f"{text} of nothing in {shape}",
            lambda norm, x, r, f=code: of(
                norm, f(x, r), *(p[: x.shape[-1]] for p in norm.parameters)
            ),
            given=zeros(shape),
            **EMPTY,
        )

# The sum alone is fused, and the product is one of MLX's.
for shape in (ONE, COLUMN, (1, 3, 1, 1)):
    near = dict(others=[SHAPE, shape]) | MULTIPLY
    sums({f"factor {shape}": lambda x, r, f: r + x * f}, **near)
sums(
    {"a scalar that is no number": lambda x, r: r + x * mx.tanh(mx.array(0.5))},
    left={"Multiply": 1, "Tanh": 1},
)


@graph(**OF_ROW, **MULTIPLY)
def a_product_that_is_returned(norm, x, r, f):
    product = x * f
    return of(norm, r + product), product


@graph(**OF_ROW, left={"Multiply": 1, "Tanh": 1})
def a_product_that_is_used_elsewhere(norm, x, r, f):
    product = x * f
    return of(norm, r + product), mx.tanh(product)


@graph(**OF_ROW, left={"Multiply": 1, "Tanh": 1})
def a_factor_beside_a_number_that_is_used_elsewhere(norm, x, r, f):
    """Nothing is kept of the product that cannot be part."""
    product = r * 0.5
    return of(norm, x * f + product), mx.tanh(product)


@graph(**MULTIPLY)
def a_product_added_twice(norm, x, r):
    product = x * 0.5
    return of(norm, product + product)


sums(
    {"a product of another shape": lambda x, r, f: r + x[:1] * f},
    others=[SHAPE, (1, 3, 4, DIMS)],
    left={"Multiply": 1, "Slice": 1},
    **SHAPED,
)
sums(
    {"a product of broadcast arrays": lambda r, f, g: r + f * g},
    others=[(2, 1, 4, DIMS), (1, 3, 4, DIMS)],
    left={},
)
sums({"x repeated along the row": lambda r, f, g: r + f * g}, others=[COLUMN, ROW], **MULTIPLY)
sums(
    {"a residual repeated along the row": lambda x, r, f: r + x * f},
    {REPEATED: 1},
    others=[COLUMN, ROW],
)
sums({"a quotient": lambda x, r, f: r + x / f}, **OF_ROW, left={"Divide": 1})


@graph({FUSED: 3}, left={"Matmul": 3, "Tanh": 3, "Flatten": 3, "Unflatten": 3}, **PRODUCTS)
def a_chain_of_blocks(norm, x, r):
    """Each sum is the residual of the next, as in granite."""
    h, n = r, x
    for _ in range(3):
        n, h = of(norm, h + mx.tanh(n @ matrix) * 0.22)
    return n, h


# --- (residual + x) * an array of one element, as gemma4's layers end: rounded after each.

for shape in ((), ONE, (1, 1, 1)):
    more = dict(others=[SHAPE, shape], left={}, dtypes=DTYPES)
    sums(
        {
            f"a sum by {shape}": lambda x, r, f: (r + x) * f,
            f"a sum by {shape} first": lambda x, r, f: f * (r + x),
        },
        **more,
    )
sums({"a sum by a number": lambda x, r: (r + x) * 0.7}, left={})
for length in (1, 7, 33, 100, 1000, 4100):
    add(
        f"a sum of {length} by one",
        lambda norm, x, r, f: (norm((r + x) * f), (r + x) * f),
        {FUSED: 1},
        shapes=((3, length), (3, length), ONE),
        dtypes=(mx.bfloat16,),
        ways=("call", "fuse"),
    )
sums({"a view's sum by one": lambda x, r, f: (r[::-1] + x) * f}, **OF_ONE, **SLICED, **SHAPED)
for shape in (ROW, (2, 1, 1, 1), COLUMN, SHAPE):
    more = dict(others=[SHAPE, shape])
    sums({f"a sum by {shape}": lambda x, r, f: (r + x) * f}, {ALONE: 1}, **more)
sums(
    {"a sum by one that is wider": lambda x, r, f: (x + r) * f.astype(mx.float32)},
    {ALONE: 1},
    **OF_ONE,
    dtypes=(mx.bfloat16,),
)
sums({"a broadcast sum by one": lambda x, r, f: (r[:1] + x) * f}, **OF_ONE, **SLICED, **SHAPED)
sums({"a column's sum by one": lambda x, r, f: (r + x) * f}, {REPEATED: 1}, others=[COLUMN, ONE])


@graph({ALONE: 1}, **OF_ONE)
def a_sum_by_one_that_is_returned(norm, x, r, f):
    h = r + x
    return of(norm, h * f), h


@graph(**OF_ONE, left={"Multiply": 1, "Tanh": 1, "Add": 1})
def a_sum_by_one_that_is_used_on(norm, x, r, f):
    h = r + x
    return of(norm, h * f + mx.tanh(h))


@graph({FUSED: 1, ALONE: 1}, **OF_ONE)
def a_sum_normalized_before_it_is_scaled(norm, x, r, f):
    h = r + x
    return of(norm, h), of(norm, h * f)


# --- Sums of three, of which the first sum is rounded, too.

OF_THREE = dict(others=[SHAPE, SHAPE])
for text, code in {
    "left": lambda norm, a, b, c: of(norm, (a + b) + c),
    "right": lambda norm, a, b, c: of(norm, a + (b + c)),
}.items():
    add(f"a sum of three, {text}", code, **OF_THREE, left={}, dtypes=DTYPES)


@graph(**OF_THREE, left={"Add": 1})
def a_first_sum_that_is_returned(norm, a, b, c):
    first = a + b
    return of(norm, first + c), first


sums({"a sum of four": lambda a, b, c, d: a + b + (c + d)}, others=[SHAPE] * 3, left={"Add": 1})
sums({"a sum of three with a row": lambda x, r, row: x + r + row}, **OF_ROW, left={})
sums({"a sum of two and one": lambda x, r, f: x + r + f}, {REPEATED: 1}, **OF_ONE)
sums({"a sum with one in it": lambda x, r, f: x + (r + f)}, **OF_ONE, left={"Add": 1})


# --- A float16 sum that a compiled function clips in float32.


def clip_residual(x, y, bound=65504.0):
    """As in mlx_lm's gemma3."""
    clipped = mx.clip(x.astype(mx.float32) + y.astype(mx.float32), -bound, bound)
    return clipped.astype(mx.float16)


def large(dtype):
    """Of sums that are not finite: one row of them has no finite norm."""
    a, b = (normal(SHAPE, mx.float32, seed=i) for i in range(2))
    a, b = (mx.clip(40000 * v, -65000, 65000).astype(dtype) for v in (a, b))
    a[0, 0, 0, :2] = mx.array([mx.inf, -mx.inf])
    mx.eval(a, b)
    return a, b


NEAR = {
    "60000": lambda a, b: clip_residual(a, b, 60000.0),
    "65503": lambda a, b: clip_residual(a, b, 65503.0),
    "two bounds": lambda a, b: mx.clip(
        a.astype(mx.float32) + b.astype(mx.float32), -65504, 65505
    ).astype(mx.float16),
    "in float16": lambda a, b: mx.clip(a + b, -65504.0, 65504.0),
    "with a sum": lambda a, b: clip_residual(a, a + b),
    "added to": lambda a, b: clip_residual(a, b) + 0,
    "one bound": lambda a, b: mx.minimum(
        a.astype(mx.float32) + b.astype(mx.float32), 65504.0
    ).astype(mx.float16),
    "a difference": lambda a, b: mx.clip(
        a.astype(mx.float32) - b.astype(mx.float32), -65504.0, 65504.0
    ).astype(mx.float16),
}
CLIPPED = dict(given=large, dtypes=(mx.float16,), ways=("call", "fuse"))
for shapeless in (False, True):
    compiled = mx.compile(clip_residual, shapeless=shapeless)
    sums({f"clipped {shapeless}": lambda a, b, f=compiled: f(a, b)}, left={}, **CLIPPED)
    for text, code in NEAR.items():
        near = mx.compile(code, shapeless=shapeless)
        text = f"clipped {text} {shapeless}"
        sums({text: lambda a, b, f=near: f(a, b)}, {ALONE: 1}, **CLIPPED)
# In other dtypes gemma3's is x + y.
OF_GEMMA3 = CLIPPED | dict(dtypes=(mx.float16, mx.float32, mx.bfloat16), left={})
sums({"gemma3's": lambda a, b: gemma3_text.clip_residual(a, b)}, **OF_GEMMA3)
sums({"clipped, not compiled": lambda a, b: clip_residual(a, b)}, {ALONE: 1}, **CLIPPED)
# Arrays of one element, whose values the function does not know.
sums(
    {
        "clipped to arguments": lambda a, b, f=compiled: f(a, b, mx.array(65504.0)),
        "clipped and broadcast": lambda a, b, f=compiled: f(a[:1], b),
    },
    {ALONE: 1},
    **CLIPPED,
)
for first, second in ((mx.float16, mx.float32), (mx.bfloat16, mx.float16)):
    mixed = lambda dtype, first=first, second=second: (large(first)[0], large(second)[1])  # noqa: E731
    sums(
        {f"clipped of {short(first)} and {short(second)}": lambda a, b, f=compiled: f(a, b)},
        {ALONE: 1},
        **CLIPPED | dict(given=mixed),
    )


# --- A norm in float32 of what has 16 bits.

CAST = dict(dtypes=DTYPES[1:], bits=False)
OF_CAST = dict(left={"AsType": 0}) | CAST


def wide(norm, a):
    return norm(a.astype(mx.float32), *norm.parameters)


add("a cast", lambda norm, x, r: wide(norm, x), {ALONE: 1}, **OF_CAST)
add("a cast sum", lambda norm, x, r: wide(norm, x + r), **OF_CAST)
add("a cast product", lambda norm, x, r: wide(norm, x + r * 0.3), **OF_CAST)
add("a cast back", lambda norm, x, r: wide(norm, x).astype(x.dtype), {WITH_OTHERS: 1}, **OF_CAST)


@graph(**OF_CAST)
def a_cast_sum_that_is_returned(norm, x, r):
    """It is rounded before it is cast, for all who take it."""
    h = x + r
    return h, wide(norm, h)


@graph({ALONE: 1}, **CAST)
def a_cast_that_is_used_on(norm, x, r):
    """It is computed for those who take it, and the norm reads 16 bits."""
    c = x.astype(mx.float32)
    return c, norm(c), mx.tanh(c)


# Only the last is taken, and only of 16 bits.
F16 = dict(dtypes=(mx.float16,), bits=False)
add(
    "a cast of a cast",
    lambda norm, x, r: wide(norm, x.astype(mx.bfloat16).astype(mx.float16)),
    {ALONE: 1},
    left={"AsType": 2},
    **F16,
)
add(
    "a cast of integers",
    lambda norm, x, r: wide(norm, (mx.arange(x.size) % 7).reshape(x.shape)),
    {ALONE: 1},
    left={"AsType": 1, "Arange": 1, "Remainder": 1, "Reshape": 1},
    ways=CALL,
    **F16,
)
add("a cast before the sum", lambda norm, x, r: norm(x.astype(mx.float32) + 0 * x), **F16)
add(
    "a narrower norm",
    lambda norm, x, r: norm(x.astype(mx.float16)),
    {ALONE: 1},
    left={"AsType": 1},
    ways=("call", "fuse"),
)
add(
    "another 16 bits",
    lambda norm, x, r: norm(x.astype(mx.bfloat16)),
    {ALONE: 1},
    left={"AsType": 1},
    **F16,
)


# --- What is evaluated in pieces, or on several streams, which is no transform's.


def evaluated(place, **more):
    """A sum, its norm and more, of which one is evaluated before the others."""

    def code(norm, x, r):
        n, h = of(norm, x + r)
        outputs = h, n, mx.tanh(h) + n
        for i in place:
            mx.eval(outputs[i])
        return outputs

    add(f"evaluated in the order {place}", code, ways=CALL, **more)


# The sum is part of its norm, unless it is evaluated by itself before.
for order in itertools.permutations(range(3)):
    evaluated(order, reasons={ALONE if order[0] == 0 else FUSED: 1})


def now(a, evaluate=mx.eval):
    """Evaluated, by now or soon."""
    evaluate(a)
    return a


def soon(a):
    return now(a, mx.async_eval)


EVALUATED = dict(ways=("call", "fuse"))
sums(
    {
        "an evaluated sum": lambda x, r: now(x + r),
        "a sum under way": lambda x, r: soon(x + r),
    },
    {ALONE: 1},
    **EVALUATED,
)
sums({"an evaluated product": lambda x, r: r + now(x * r)}, left={}, **EVALUATED)
sums({"an evaluated sum by one": lambda x, r, f: now(r + x) * f}, {ALONE: 1}, **OF_ONE, **EVALUATED)
add(
    "an evaluated cast",
    lambda norm, x, r: norm(now(x.astype(mx.float32))),
    {ALONE: 1},
    **CAST,
    **EVALUATED,
)
sums(
    {"an evaluated clipped sum": lambda a, b: now(gemma3_text.clip_residual(a, b))},
    {ALONE: 1},
    **CLIPPED,
)


@graph(**EVALUATED)
def parameters_computed_by_many_operations(norm, x, r):
    w = norm.parameters[-1]
    for _ in range(12):
        w = mx.abs(w)
    return with_last(norm, x + r, now(w))


ELSEWHERE = {
    "a sum": ({OTHER_STREAM: 1}, lambda norm, x, r: of(norm, mx.add(x, r, stream=other))),
    "a norm": (
        {OTHER_STREAM: 1},
        lambda norm, x, r: norm(x + r, *norm.parameters, stream=other),
    ),
    "both": (
        TAKEN,
        lambda norm, x, r: norm(mx.add(x, r, stream=other), *norm.parameters, stream=other),
    ),
    "an operand": (TAKEN, lambda norm, x, r: of(norm, mx.tanh(x, stream=other) + r)),
    "what takes both": (TAKEN, lambda norm, x, r: mx.add(*of(norm, x + r), stream=other)),
    "a product": (TAKEN, lambda norm, x, r: of(norm, r + mx.multiply(x, r, stream=other))),
    "a sum of three": (TAKEN, lambda norm, x, r: of(norm, x + mx.add(r, x, stream=other))),
    "a sum by one": ({ALONE: 1}, lambda norm, x, r: of(norm, mx.add(r, x, stream=other) * 0.5)),
    "one by a sum": (
        {OTHER_STREAM: 1},
        lambda norm, x, r: of(norm, mx.multiply(r + x, mx.array(0.5), stream=other)),
    ),
}
APART = {"a product": {"Multiply": 1}, "a sum of three": {"Add": 1}}
for text, (reasons, code) in ELSEWHERE.items():
    left = APART.get(text)
    add(f"{text} on another stream", code, reasons, left=left, ways=("call", "fuse"))


@graph(ways=("call", "fuse"))
def all_in_the_context_of_another_stream(norm, x, r):
    with mx.stream(other):
        return of(norm, x + r)


@graph({ALONE: 1}, left={"AsType": 1}, ways=CALL, **F16)
def a_cast_on_another_stream(norm, x, r):
    with mx.stream(other):
        c = x.astype(mx.float32)
    return norm(c)


# --- The ways to run them.


def vjp(code):
    """The gradients of all arrays, with cotangents of the results."""

    def gradients(*arrays):
        results = arrays_of(code(*arrays))
        cotangents = [normal(y.shape, y.dtype, seed=("c", i)) for i, y in enumerate(results)]
        return mx.vjp(lambda *a: arrays_of(code(*a)), list(arrays), cotangents)[1]

    return gradients


def grad(code):
    def loss(*arrays):
        return sum((y.astype(mx.float32) * mx.sin(y)).sum() for y in arrays_of(code(*arrays)))

    return lambda *arrays: mx.grad(loss, list(range(len(arrays))))(*arrays)


def each_gradient(code):
    """Of one array, the others given."""

    def run(*arrays):
        return [
            grad(lambda a, i=i: code(*arrays[:i], a, *arrays[i + 1 :]))(a)
            for i, a in enumerate(arrays)
        ]

    return run


def jvp(code):
    return lambda *a: mx.jvp(lambda *a: arrays_of(code(*a)), list(a), [mx.cos(b) for b in a])[1]


def vmap(code):
    """All arrays mapped, and each alone."""

    def run(*arrays):
        n = len(arrays)
        axes = [(0,) * n, *(tuple(0 if i == j else None for j in range(n)) for i in range(n))]
        found = []
        for of_all in axes:
            two = [a if of is None else mx.stack([a, 2 * a]) for a, of in zip(arrays, of_all)]
            found.append(mx.vmap(lambda *a: arrays_of(code(*a)), in_axes=of_all)(*two))
        return found

    return run


def twice(compiled):
    """Traced by the first call alone."""
    return lambda *arrays: [compiled(*arrays), compiled(*(2 * a for a in arrays))]


def of_other_shapes(compiled):
    def run(x, *others):
        cut = [a[:1] if a.ndim == x.ndim > 1 and len(a) == len(x) else a for a in (x, *others)]
        return [compiled(x, *others), compiled(*cut)]

    return run


WAYS = {
    "call": lambda code: code,
    "fuse": lambda code: mlx_norms.fuse(code) if mlx_norms.is_patched() else code,
    "compile": lambda code: twice(mx.compile(code)),
    "shapeless": lambda code: of_other_shapes(mx.compile(code, shapeless=True)),
    "checkpoint": lambda code: grad(mx.checkpoint(code)),
    "grad": grad,
    "vjp": vjp,
    "each gradient": each_gradient,
    "compiled grad": lambda code: mx.compile(grad(code)),
    "jvp": jvp,
    "vmap": vmap,
    "compiled vmap": lambda code: mx.compile(vmap(code)),
}
# In which a pass is made before anything is evaluated.
TRACED = ("fuse", "compile", "grad", "compiled grad")
# How often each norm is called; in other ways by no pass alone, or by what is mapped or no tangent.
CALLED = dict.fromkeys(("call", "fuse", "compile", "grad", "compiled grad"), 1) | {"checkpoint": 2}


@pytest.fixture(scope="module", autouse=True)
def shared(backend):
    """x, r, a matrix and a stream of the device under test."""
    global x, r, matrix, other
    x, r = (normal(SHAPE, mx.float32, seed=seed) for seed in ("x", "r"))
    matrix = normal((DIMS, DIMS), mx.float32, seed="matrix", std=0.1)
    other = mx.new_stream(mx.default_device())
    mx.eval(x, r, matrix)


class Given:
    """A norm with other parameters."""

    def __init__(self, norm, parameters):
        self.norm, self.layer, self.parameters = norm, norm.layer, list(parameters)

    def __call__(self, *args, **options):
        return self.norm(*args, **options)


def with_parameters(code, norm, count, *arrays):
    """The code of so many arrays, and of a norm whose parameters are the others."""
    return code(Given(norm, arrays[count:]), *arrays[:count])


@pytest.fixture
def fused_by_mlx():
    """Whether mx.compile makes kernels, each of which takes seconds; gemma3's clip is one."""
    yield fuse_compiled
    fuse_compiled(True)


@pytest.mark.parametrize(
    "graph", [pytest.param(g, id=name, marks=g.marks) for name, g in GRAPHS.items()]
)
def test_graph(norm, graph, fused_by_mlx):
    """Its outcomes, what is left in it, the bits of a norm after MLX's operations, MLX's values."""
    of_norm = graph.reasons.get(norm.name, graph.reasons)
    for way in graph.ways or [way for way in WAYS if way not in graph.but]:
        fused_by_mlx(way in ("call", "fuse"))
        reasons = {reason: n * CALLED.get(way, 0) for reason, n in of_norm.items()}
        for dtype in graph.dtypes if way == "call" else graph.dtypes[:1]:
            arrays, note = graph.arrays(dtype), f"{way} {dtype}"
            code = functools.partial(with_parameters, graph.code, norm, len(arrays))

            def run(way=way, code=code, arrays=(*arrays, *norm.parameters)):
                return WAYS[way](code)(*arrays)

            with mlx_norms.patched():
                results = run()
                traced = mlx_norms.report().reasons
                mx.eval(results)
                report = mlx_norms.report()
            if way in TRACED:
                assert traced == reasons, note
            if way in CALLED:
                assert report.reasons == reasons, note
                assert report.fused == reasons.get(FUSED, 0), note
            if way in ("call", "compile") and graph.bits:
                apart, report = run_patched(run, fuse=False)
                assert not {FUSED, WITH_OTHERS} & report.reasons.keys(), note
                for got, wanted in zip(arrays_of(results), arrays_of(apart), strict=True):
                    assert_same_bits(got, wanted, note)
            if not graph.given:  # which is not finite, or nothing
                stock = run_stock(run)
                for got, wanted in zip(arrays_of(results), arrays_of(stock), strict=True):
                    assert_close(got, wanted, roundings=bound(wanted.dtype))
            if way in ("call", "fuse") and graph.left is not None:
                check_left(run, graph.left, {NODES[norm.name]: reasons.get(FUSED, 0)})


def bound(dtype):
    return ROUNDINGS if dtype == mx.float32 else ROUNDINGS_16


def check_left(run, left, nodes):
    """The fused nodes that are in the graph, and what is not ours."""
    __tracebackhide__ = True
    with mlx_norms.patched():
        seen = operations(*arrays_of(run()))
    ours = {name: seen[name] for name in nodes}
    kept = {name: n for name, n in seen.items() if "mlx_norms" not in name}
    kept = {n: c for n, c in kept.items() if n != "Broadcast" and (n != "AsType" or n in left)}
    assert (ours, kept) == (nodes, {name: n for name, n in left.items() if n})


# --- What one graph alone shows.


def test_both_outputs_are_of_one_node(norm):
    """However they are reached, once both have been in one graph."""
    with mlx_norms.patched():
        h = x + r
        n = norm(h, *norm.parameters)
        assert operations(h) == {"Add": 1}
        assert operations(n) == operations(h) == operations(h, n) == {NODES[norm.name]: 1}
        mx.eval(h, n)


def test_mixed_dtypes(norm):
    """The results' dtypes are mx.fast's."""
    for dtypes in itertools.product(DTYPES, repeat=2 + len(norm.parameters)):
        a, b = x.astype(dtypes[0]), r.astype(dtypes[1])
        parameters = [p.astype(d) for p, d in zip(norm.parameters, dtypes[2:], strict=True)]

        def f(a=a, b=b, parameters=parameters):
            h = a + b
            return h, norm(h, *parameters)

        (h, n), report = run_patched(f)
        stock_h, stock_n = f()
        note = f"{norm.name}: {', '.join(map(short, dtypes))}"
        assert report.reasons == {FUSED: 1}, note
        assert_same_bits(h, stock_h, note)
        assert n.dtype == stock_n.dtype, note
        narrow = max(dtypes, key=ROUNDOFF.get)
        assert largest(n - stock_n) <= bound(narrow) * ROUNDOFF[narrow] * largest(stock_n), note


def test_float16_sums_that_overflow(norm):
    """A patched sum is inf where a sum is."""
    a = mx.full(SHAPE, 60000.0, mx.float16)
    (_, h), report = run_patched(lambda: of(norm, a + a))
    assert report.reasons == {FUSED: 1}
    assert mx.all(mx.isinf(h)).item()


@pytest.mark.parametrize(
    "make",
    [lambda a, b, f: b + a * 0.3, lambda a, b, f: (b + a) * f, lambda a, b, f: a + (b + a)],
    ids=["product", "by one", "of three"],
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rounding_late(norm, make, dtype):
    """With a weight 1 + w ours rounds once, and the sum is MLX's, too."""
    a, b, w = x.astype(dtype), r.astype(dtype), normal(ROW, dtype, seed="w")
    f = normal(ONE, dtype, seed="f")
    mx.eval(a, b, w, f)
    bias = parameters_of(norm, dtype)[1:]
    (_, h), report = run_patched(lambda: of(norm, make(a, b, f), 1 + w, *bias))
    assert (report.fused, report.offsets) == (1, 1)
    assert_same_bits(h, make(a, b, f))


def test_operands_keep_their_values(norm):
    a, b = mx.array(x), mx.array(r)
    mx.eval(a, b)
    check(lambda: of(norm, a + b), {FUSED: 1})
    assert mx.array_equal(a, x)
    assert mx.array_equal(b, r)


@pytest.fixture
def joined(norm, backend):
    """The outcome of two rms norms of one array: one launch, where there are launches."""
    return WITH_OTHERS if backend != "cpu" and not norm.layer else ALONE


def test_both_norms_of_a_sum(norm, joined):
    def f():
        h = x + r
        return h, [each(h, *each.parameters) for each in (norm, *NORMS)]

    check(f, {FUSED: 1, joined: 2})


def test_norms_of_views_of_a_sum(norm, joined):
    def f():
        h = x + r
        return h, [norm(view, *norm.parameters) for view in (h[1:], h.reshape(6, 4, DIMS))]

    check(f, {joined: 2})


def test_a_sum_of_another_thread(norm):
    """Which has a stream of its own, and takes evaluated arrays only."""
    sums = []

    def f():
        thread = threading.Thread(target=lambda: sums.append(x + r))
        thread.start()
        thread.join()
        operations(norm(sums.pop(), *norm.parameters))  # a pass, but no evaluation
        return of(norm, x + r)

    check(f, {OTHER_STREAM: 1, FUSED: 1})


def test_casts_without_fusion(norm):
    a = x.astype(mx.float16)
    mx.eval(a)
    with mlx_norms.patched(fuse=False):
        assert operations(norm(a.astype(mx.float32)))["AsType"] == 1


def test_a_clipped_sum_saturates_and_its_nan_stays(norm):
    a, b = large(mx.float16)
    (_, h), report = run_patched(lambda: of(norm, gemma3_text.clip_residual(a, b)))
    assert report.fused == 1 and mx.sum(mx.abs(h) == 65504).item() > 20
    a = mx.where(mx.arange(DIMS) == 3, mx.nan, a)
    (_, h), report = run_patched(lambda: of(norm, gemma3_text.clip_residual(a, b)))
    assert report.fused == 1
    assert mx.array_equal(mx.isnan(h), mx.isnan(a)).item()


def test_the_gradient_of_a_clipped_sum(norm):
    """MLX traces the function without compiling it."""
    a, b = (0.1 * v.astype(mx.float32) for v in large(mx.float16))
    a = mx.where(mx.isfinite(a), a, 1).astype(mx.float16)
    b = b.astype(mx.float16)

    def gradients():
        def f(a, b):
            return (of(norm, gemma3_text.clip_residual(a, b))[0] * b).sum()

        return mx.grad(f, argnums=(0, 1))(a, b)

    got, report = run_patched(gradients)
    assert report.reasons == {ALONE: 1}
    assert_close(got, run_stock(gradients))


FIRST_SEEN = """
    import mlx.core as mx
    import mlx_norms
    from mlx_lm.models import gemma3_text
    mx.set_default_device(mx.cpu)
    a, b, w = (mx.ones((3, 32), mx.float16) for _ in range(3))
    w = w[0]
    mx.eval(a, b, w)
    h = gemma3_text.clip_residual(a, b)
    with mlx_norms.patched():
        mx.eval(mx.compile(lambda w: mx.fast.rms_norm(h, w, 1e-5))(w))
        h = gemma3_text.clip_residual(a, b)
        mx.eval(mx.fast.rms_norm(h, w, 1e-5))
        assert mlx_norms.report().fused == 2, mlx_norms.report()
    """


def test_a_clipped_sum_that_is_first_seen_within_a_trace(norm):
    """What recognizes it is compiled when it is first needed: there, in another way."""
    command = [sys.executable, "-c", textwrap.dedent(FIRST_SEEN)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
