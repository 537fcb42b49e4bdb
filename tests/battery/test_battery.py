"""What holds of every op of the table: a new op has all of it by its entry."""

import itertools
import subprocess
import sys

import mlx.core as mx
import pytest

from mlx_norms._table import EPS, OPS
from mlx_norms._table.exact import ROUNDOFF, U
from support import inputs, variant
from support.bits import assert_same_bits
from support.layouts import LAYOUTS, every_third, odd_offset
from support.norm_case import DTYPES
from support.releases import since
from support.table import (
    are_rows,
    arrays_of,
    assert_close,
    assert_same,
    both_ways,
    check,
    check_both_ways,
    cotangents_of,
    is_partly_mlx,
)

pytestmark = pytest.mark.usefixtures("backend")


def marks_of(op):
    """An op that is MLX's own on other backends is not held to our promises there."""
    return [pytest.mark.backends(*op.backends)] if op.backends else []


def each(ops):
    ops = [pytest.param(op, marks=marks_of(op), id=str(op)) for op in ops]
    return pytest.mark.parametrize("op", ops)


OF_OP = each(OPS.values())
F32, BF16 = mx.float32, mx.bfloat16


@OF_OP
def test_dtypes(op):
    """Values and gradients, to either side of vectors and SIMD-groups."""
    for length, dtype in itertools.product((1, 7, 16, 33, 64, 130, 1000), DTYPES):
        check_both_ways(op, arrays_of(op, dtype, D=length, C=length), f"{length} {dtype}")


@OF_OP
def test_what_is_taken_by_value_is_set_at_once(op, launches):
    """A launch costs the host the more it sets."""
    found = launches(*both_ways(op.ours(), arrays_of(op, BF16, D=64, C=64)))
    ours = [launch for launch in found if launch.library.startswith("mlx_norms")]
    assert [[*launch.buffers.values()].count("Bytes") for launch in ours] == [1] * len(ours)


# Functions that take rounding, and others that take dtype.
ROUNDED = ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm", "norm_add_norm")
WIDENED = ("l2_norm", "instance_norm", "group_norm", "rms_norms", "l2_norms")


def function_of(op):
    return op.name.split()[0]


# Numbers in place of arrays have the dtype of what they scale.
OF_ROUNDED = [
    op for op in OPS.values() if function_of(op) in ROUNDED and "by numbers" not in op.name
]


def roundings(op):
    return ("early", "late") if op in OF_ROUNDED else (None,)


@OF_OP
def test_mixed_dtypes(op):
    """In every mix of the first three arrays."""
    names = op.inputs
    for k, mix in enumerate(itertools.product(DTYPES, repeat=min(3, len(names)))):
        others = {n: mix[i] if i < 3 else DTYPES[(i + k) % 3] for i, n in enumerate(names)}
        for rounding in roundings(op):
            given = dict(rounding=rounding) if rounding else {}
            check_both_ways(op, arrays_of(op, mix[0], others=others), f"{others} {given}", **given)


def options_of(op):
    yield dict(eps=0.1)
    if op in OF_ROUNDED or function_of(op) in WIDENED:
        for rounding, to in itertools.product(roundings(op), DTYPES):
            yield dict(dtype=to) | (dict(rounding=rounding) if rounding else {})
    if op in OF_ROUNDED and "weight" in op.inputs:
        yield from (dict(weight_offset=1.0), dict(weight_offset=0.5, rounding="early", eps=0.5))
    if op.adds and "add_" in function_of(op) and "residual2" not in op.inputs:
        yield dict(clamp=True)


@each([op for op in OPS.values() if "patched" not in op.name and "matmul" not in op.name])
def test_options(op):
    """With other dtypes beside, in turn."""
    for k, (options, i) in enumerate(itertools.product(options_of(op), range(3))):
        dtype, others = DTYPES[i], None if "linear" in op.name else DTYPES[(k // 3 + i) % 3]
        check_both_ways(op, arrays_of(op, dtype, others=others), f"{options} {dtype}", **options)


@OF_OP
def test_long_rows(op):
    """Which several SIMD-groups share, and beyond registers: there of one dtype, in turn."""
    of_op = [*OPS.values()].index(op)
    # The errors of MLX's own products grow with the length.
    lengths = (2884, 4097) if "matrix" in op.inputs else (2884, 4097, 8192, 20000)
    for turn, length in enumerate(lengths):
        some = DTYPES if length < 8192 else [DTYPES[(of_op + turn) % 3]]
        for dtype in some if len(some) == 1 else inputs.in_turn(some, turn):
            # 2884 of more rows than one loop has.
            few = dict(B=2, H=2, K=1, L=1, N=19 if length == 2884 and not inputs.SLOW else 1)
            check_both_ways(op, arrays_of(op, dtype, **few, D=length, C=length), length)


def with_layouts():
    """Ops with layouts; MLX's matmul on CUDA raises for 16-bit matrices that are not aligned."""
    not_cuda = pytest.mark.backends("cpu", "metal-sim", "metal")
    for op, layout in itertools.product(OPS.values(), LAYOUTS):
        raises = layout is odd_offset and "linear" in op.name
        marks = [*marks_of(op), *[not_cuda] * raises]
        yield pytest.param(op, layout, marks=marks, id=f"{op}-{layout.__name__}")


@pytest.mark.parametrize(("op", "layout"), [*with_layouts()])
def test_layouts(op, layout):
    """Of all arrays of rows and cotangents, and of all others: with the bits of contiguous ones."""
    f, rows = op.ours(), are_rows(op)
    # The errors of MLX's own products grow with the length.
    lengths = (1, 33, 64) if "matrix" in op.inputs else (1, 33, 64, 1025)
    turns = enumerate(lengths, LAYOUTS.index(layout))
    for length, dtype in [(n, of) for turn, n in turns for of in inputs.in_turn(DTYPES, turn)]:
        arrays = arrays_of(op, dtype, D=length, C=length)
        cots = cotangents_of(f(*arrays))
        plain = both_ways(f, arrays, cots)
        note = f"{length} {dtype}"
        views = [layout(a) if row else a for a, row in zip(arrays, rows, strict=True)]
        assert_same(op, both_ways(f, views, list(map(layout, cots))), plain, note)
        if layout is every_third and not all(rows):
            views = [a if row else layout(a) for a, row in zip(arrays, rows, strict=True)]
            assert_same(op, both_ways(f, views, cots), plain, f"parameters, {note}")


@OF_OP
def test_broadcast(op):
    """One row for all or for a sample, one element for a row, one for all: with the bits of copies.

    Of all arrays of rows and cotangents, of the first alone, and of all others.
    """
    f, rows = op.ours(), are_rows(op)
    one = slice(0, 1)
    first = [i == 0 for i in range(len(rows))]
    for k, part in enumerate([(one,), (slice(None), one), (..., one), None]):

        def repeated(a, part=part):
            part = part if part and a.ndim > 1 else (one,) * a.ndim
            return mx.broadcast_to(a[part], a.shape)

        for dtype, chosen in itertools.product(inputs.in_turn(DTYPES, k), (rows, first)):
            for some in (chosen, [not of for of in chosen]):
                arrays = arrays_of(op, dtype)
                views = [repeated(a) if of else a for a, of in zip(arrays, some, strict=True)]
                cots = list(map(repeated, cotangents_of(f(*arrays))))
                copies = [[mx.contiguous(a) for a in of] for of in (views, cots)]
                note = f"{part} of {some}, {dtype}"
                assert_same(op, both_ways(f, views, cots), both_ways(f, *copies), note)


def subsets(count):
    """Axes for vmap: of any of a few arrays; of one, of all but one, and of all."""
    if count <= 4:
        return list(itertools.product((0, None), repeat=count))[:-1]
    one = [tuple(0 if i == j else None for j in range(count)) for i in range(count)]
    return [*one, *(tuple(None if i == 0 else 0 for i in axes) for axes in one), (0,) * count]


def gradient_of(f):
    """The gradients of all arguments of a nonlinear function of the results, as a list."""

    def loss(*arrays):
        return sum(mx.tanh(o).sum() for o in f(*arrays))

    return lambda *arrays: mx.vjp(lambda *a: [loss(*a)], list(arrays), [mx.array(1.0)])[1]


def axes_of_all(arrays):
    """Dtypes, and axes of arrays for vmap: the first, and others in turn."""
    for k, chosen in enumerate(subsets(len(arrays))):
        some = [a.shape for a in arrays]
        axes = [k % (1 + len(of)) if at == 0 else None for of, at in zip(some, chosen, strict=True)]
        for dtype in DTYPES if k % 3 == 0 and not inputs.SLOW else (DTYPES[k % 3],):
            yield dtype, tuple(axes)


def stacked(a, axis):
    """A batch of arrays along an axis, or the first one."""
    return a[0] if axis is None else mx.stack(a, axis=axis)


@OF_OP
def test_vmap(op):
    """Values and gradients are those of the op called on each."""
    f, gradient = op.ours(), gradient_of(op.ours())
    for dtype, axes in axes_of_all(arrays_of(op, F32, N=2)):
        of_all = [*zip(*(arrays_of(op, dtype, seed=i, N=2) for i in range(3)), strict=True)]
        args = [*map(stacked, of_all, axes)]
        got, gradients = (mx.vmap(g, in_axes=axes)(*args) for g in (f, gradient))
        note, near = f"vmap {axes} of {dtype}", 1e-4 if dtype == F32 else 16 * ROUNDOFF[dtype]
        each = [[a[0 if at is None else i] for a, at in zip(of_all, axes)] for i in range(3)]
        for i, one in enumerate(each):
            check(op, one, note, [o[i] for o in got])
            assert_close([g[i] for g in gradients], gradient(*one), near, f"{op} {note}", least=0.1)
        outside = gradient_of(mx.vmap(f, in_axes=axes))(*args)
        for g, of_one, at in zip(outside, zip(*map(gradient, *zip(*each))), axes, strict=True):
            wanted = sum(of_one) if at is None else mx.stack(of_one, axis=at)
            assert_close([g], [wanted], near, f"{op} gradient of {note}", least=0.1)


@OF_OP
def test_vmap_of_the_last_axis_twice_and_of_cotangents(op):
    f = op.ours()
    for dtype in (BF16, mx.float16, F32):
        each = [arrays_of(op, dtype, seed=i, N=2) for i in range(3)]
        of_all = list(zip(*each, strict=True))
        last = mx.vmap(f, in_axes=-1, out_axes=-1)(*(mx.stack(a, axis=-1) for a in of_all))
        twice = mx.vmap(mx.vmap(f))(*(mx.stack([mx.stack(a)] * 2) for a in of_all))
        for i in range(3):
            check(op, each[i], "of the last axis", [o[..., i] for o in last])
            check(op, each[i], "twice", [o[1, i] for o in twice])
    cots = [cotangents_of(f(*each[0]), seed=i) for i in range(3)]

    def pull(*cotangents):
        return mx.vjp(f, each[0], list(cotangents))[1]

    got = mx.vmap(pull)(*map(mx.stack, zip(*cots, strict=True)))
    for i in range(3):
        assert_close([g[i] for g in got], pull(*cots[i]), 1e-4, f"{op} cotangents", least=0.1)


def of_float64(arrays):
    return [a.astype(mx.float64) for a in arrays]


def derivatives(f, arrays, tangents):
    """Of the second order in each order of modes, and of the third along a line, by name."""

    def first(*arrays):
        return mx.vjp(f, arrays, [mx.sin(o) for o in f(*arrays)])[1]

    def gradient(total):
        return mx.vjp(lambda *a: [total(*a)], arrays, [mx.array(1.0, arrays[0].dtype)])[1]

    def slope(*arrays):
        outputs, along = mx.jvp(f, list(arrays), tangents)
        return sum((mx.sin(o) * d).sum() for o, d in zip(outputs, along, strict=True))

    def line(t):
        outputs = f(*(a + t * b for a, b in zip(arrays, tangents, strict=True)))
        return sum(mx.sin(o).sum() for o in outputs)

    yield "gradient of a gradient", gradient(lambda *a: sum((g * g).sum() for g in first(*a)))
    yield "tangents of a gradient", mx.jvp(first, arrays, tangents)[1]
    yield "gradient of tangents", gradient(slope)
    yield "third", [mx.grad(mx.grad(mx.grad(line)))(mx.array(0.0, arrays[0].dtype))]


@OF_OP
def test_derivatives(op):
    """They are those of the chain in float64."""
    arrays, tangents = (arrays_of(op, F32, seed=seed) for seed in (0, 7))
    with mx.stream(mx.cpu):
        expected = dict(derivatives(op.values(), of_float64(arrays), of_float64(tangents)))
    for name, got in derivatives(op.ours(), arrays, tangents):
        near = 1e-3 if name == "third" else 1e-4
        assert_close(got, expected[name], near, f"{name} of {op}")


@OF_OP
def test_tangents(op):
    """Of all arrays and of each alone, beside values that are those without; in 16 bits, too."""
    for dtype, lengths in ((F32, (33, 1025)), (mx.float16, (65,)), (BF16, (65,))):
        for length in lengths:
            sizes = dict(N=2, D=length, C=length)
            arrays, tangents = (arrays_of(op, dtype, seed=seed, **sizes) for seed in (0, 7))
            plain = op.ours()(*arrays)
            for alone in (*range(len(arrays)), None):
                chosen = [i for i in range(len(arrays)) if alone in (i, None)]

                def f(*free, chosen=chosen, arrays=arrays):
                    given = dict(zip(chosen, free, strict=True))
                    return op.ours()(*(given.get(i, a) for i, a in enumerate(arrays)))

                outputs, got = mx.jvp(f, *([of[i] for i in chosen] for of in (arrays, tangents)))
                assert_same(op, outputs, plain, f"{dtype} in jvp")
                with mx.stream(mx.cpu):
                    along = [
                        t if i in chosen else 0 * t for i, t in enumerate(of_float64(tangents))
                    ]
                    wanted = mx.jvp(op.values(), of_float64(arrays), along)[1]
                unit, note = (
                    U if dtype == F32 else ROUNDOFF[dtype] / 4,
                    f"{op} {dtype} along {alone}",
                )
                if any(word in op.name for word in ("axis", "instance", "linear")):
                    assert_close(got, wanted, max(1e-5, 32 * unit), note)
                else:
                    assert_rows_close(got, wanted, 32 * unit, note)


def assert_rows_close(got, wanted, tolerance, note):
    """Relative to the largest of each row."""
    __tracebackhide__ = True
    with mx.stream(mx.cpu):
        for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
            most = mx.maximum(mx.max(mx.abs(b), axis=-1, keepdims=True), 1e-3)
            off = mx.max(mx.abs(a.astype(mx.float64) - b) / most).item()
            assert off <= tolerance, f"{note}, result {i}: {off / tolerance:.3g} times the bound"


@pytest.mark.usefixtures("no_fusion")
@pytest.mark.parametrize("shapeless", [False, True])
@OF_OP
def test_compile(op, shapeless):
    """Values and gradients, of other sizes as well."""

    def f(*arrays):
        return both_ways(op.ours(), arrays, [mx.sin(o) for o in op.ours()(*arrays)])

    compiled = mx.compile(f, shapeless=shapeless)
    inside = mx.compile(op.ours(), shapeless=shapeless)
    others = dict(B=2), dict(B=7, N=4, L=3, C=24), {} if "D" in op.kept else dict(D=130)
    others += (dict(H=6, K=3),) if "H" in op.letters else ()
    # A pass over a patched graph may round a sum of 16 bits otherwise.
    dtypes = [F32] if op.name.startswith("patched") else DTYPES
    for dtype, sizes in itertools.product(dtypes, ({}, *others)):
        arrays = arrays_of(op, dtype, **sizes)
        assert_same(op, compiled(*arrays), f(*arrays), sizes)
        if not sizes:
            cots = cotangents_of(op.ours()(*arrays))
            plain = both_ways(op.ours(), arrays, cots)
            for g in (inside, mx.checkpoint(op.ours())):
                assert_same(op, both_ways(g, arrays, cots), plain, "gradient of compiled")


OWN = [op for op in OPS.values() if not is_partly_mlx(op) and "patched" not in op.name]


@each([op for op in OWN if not op.kept and not op.name.startswith(("rms_norms", "l2_norms", "qk"))])
def test_shapeless_call_with_an_array_that_does_not_fit(op):
    """Shapes follow the first array; what does not fit it is an error when it runs."""
    arrays = arrays_of(op, F32)
    compiled = mx.compile(op.ours(), shapeless=True)
    shapes = [y.shape for y in compiled(*arrays)]
    for (i, name), axis in itertools.product(enumerate(op.inputs[1:], 1), (0, -1)):
        wrong = [mx.concatenate([a, a], axis) if i == j else a for j, a in enumerate(arrays)]
        outputs = compiled(*wrong)
        assert outputs[0].shape == shapes[0], name
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            mx.eval(outputs)


@pytest.mark.slow
@since("0.32.2")
@each([op for op in OWN if not op.options.get("training")])  # which takes more than one row
def test_second_derivatives_traced_with_one_row(op):
    """MLX's own leave out the sums over axes of one element, or corrupt memory by them."""

    def second(*arrays):
        squares = lambda *arrays: sum(g.square().sum() for g in gradient_of(op.ours())(*arrays))  # noqa: E731
        return mx.grad(squares, tuple(range(len(arrays))))(*arrays)

    compiled = mx.compile(second, shapeless=True)
    for samples, rows in ((1, 1), (2, 4), (1, 3), (3, 1)):
        arrays = arrays_of(op, F32, B=samples, N=rows, L=rows)
        got, expected = compiled(*arrays), second(*arrays)
        assert_close(got, expected, 1e-4, f"{op} {samples} {rows}", least=0.1)


def variants(op):
    """The op with other options, and others of its function that take the same arrays."""
    name, options = op.name.split()[0], [{}, dict(eps=1.0000001 * EPS), dict(eps=50.0)]
    options += [dict(rounding="late"), dict(dtype=F32), dict(dtype=BF16)] * (name in ROUNDED)
    options += [dict(dtype=F32)] * (name in ("l2_norm", "instance_norm", "rms_norms"))
    options += [dict(num_groups=4), dict(dtype=F32)] * (name == "group_norm")
    of_function = [o for o in OPS.values() if o.function == op.function and o.axes == op.axes]
    return [*(op.ours(**more) for more in options), *(o.ours() for o in of_function)]


@pytest.mark.usefixtures("no_fusion")
@OF_OP
def test_calls_that_differ_are_not_merged(op):
    """In one graph, values and gradients."""
    fs = variants(op)
    # A pass over a patched graph may round a sum of 16 bits otherwise.
    arrays = arrays_of(op, F32 if op.name.startswith("patched") else mx.float16)
    cots = [cotangents_of(f(*arrays)) for f in fs]

    def all_of_them(*arrays):
        found = [both_ways(f, arrays, c) for f, c in zip(fs, cots, strict=True)]
        return [mx.negative(a) for a in itertools.chain(*found)]  # MLX merges no outputs

    expected = all_of_them(*arrays)
    assert_same(op, mx.compile(all_of_them)(*arrays), expected)
    if "matmul" not in op.name:  # which has no eps
        assert not mx.array_equal(fs[0](*arrays)[0], fs[2](*arrays)[0])


@each(OF_ROUNDED)
def test_late_rounds_once(op):
    for dtype, length in itertools.product((mx.float16, BF16), (33, 96, 1000)):
        arrays = arrays_of(op, dtype, D=length)
        late, wide = (op.ours(rounding="late", dtype=to)(*arrays) for to in (None, F32))
        wide = [a.astype(dtype) for a in wide]
        if "axis" in op.options:  # on GPUs, statistics have fewer digits for results of 16 bits
            assert mx.mean(late[0] != wide[0]).item() < 0.01, f"{dtype} {length}"
        else:
            assert_same(op, late, wide, f"{dtype} {length}")


@OF_OP
def test_some_results_and_some_gradients(op):
    """The gradient of one array, or by way of one result, is that beside the others."""
    f = op.ours()
    for turn, dtype in enumerate(DTYPES):
        arrays = arrays_of(op, dtype, N=2)
        cots = cotangents_of(f(*arrays))
        results = range(len(cots))
        for used in {(turn % len(cots),), tuple(results)}:
            zeroed = [c if i in used else mx.zeros_like(c) for i, c in enumerate(cots)]
            wanted = mx.vjp(f, arrays, zeroed)[1]
            for i, want in enumerate(wanted):

                def some(a, i=i, arrays=arrays, used=used):
                    outputs = f(*arrays[:i], a, *arrays[i + 1 :])
                    return [outputs[j] for j in used]

                got = mx.vjp(some, [arrays[i]], [cots[j] for j in used])[1]
                near = 16 * ROUNDOFF[dtype]
                assert_close(got, [want], near, f"{op} {dtype} {used} {op.inputs[i]}", least=0.1)


@OF_OP
def test_donation(op):
    """In the memory of any of its arrays, or of all, it computes the same."""
    f = op.ours()
    for dtype in DTYPES:
        for sizes in (dict(D=33, C=33), dict(D=4096, B=2, N=2, C=64)):
            arrays = arrays_of(op, dtype, **sizes)
            expected = f(*arrays)
            cots = cotangents_of(expected)
            gradients = mx.vjp(f, arrays, cots)[1]
            mx.eval(arrays, expected, cots, gradients)
            for dead in (*range(len(arrays)), None):
                given = [a + 0 if dead in (i, None) else a for i, a in enumerate(arrays)]
                got = f(*given)
                del given
                assert_same(op, got, expected, f"{dead} dead, {dtype}")
            given = [c + 0 for c in cots]
            got = mx.vjp(lambda *arrays: f(*(a + 0 for a in arrays)), arrays, given)[1]
            del given
            assert_same(op, got, gradients, f"dead cotangents, {dtype}")


@OF_OP
def test_nan_stays_where_it_is_normalized(op):
    """What one element has no part in keeps its bits; beside a NaN all else is one."""
    for dtype, bad in itertools.product(DTYPES, (mx.nan, mx.inf)):
        arrays = arrays_of(op, dtype)
        flat = arrays[0].reshape(-1)
        one = mx.arange(flat.size) == flat.size // 2
        broken = mx.where(one, mx.array(bad, dtype), flat).reshape(arrays[0].shape)
        broken = [broken, *arrays[1:]]
        mx.eval(broken)
        both = op.ours()(*broken), op.ours()(*arrays)
        mx.eval(both)
        with mx.stream(mx.cpu):
            exact = (op.values()(*of) for of in (broken, arrays))
            touched = [~(of_broken == of_clean) for of_broken, of_clean in zip(*exact)]
            assert any(map(mx.any, touched))
            for at, *results in zip(touched, *both, strict=True):
                got, clean = (mx.where(at, 0, a) for a in results)
                assert_same_bits(got, clean, f"{op} {dtype}, {bad}")
            if bad != bad:
                for got, of_broken in zip(both[0], op.values()(*broken), strict=True):
                    assert mx.array_equal(mx.isnan(got), mx.isnan(of_broken)), f"{op} {dtype}"


def may_be_empty(op):
    """The axes that may have no elements."""
    if "matrix" in op.inputs:
        return ["B", "N"]  # MLX's gradients of empty products raise
    return [c for c in op.letters if c not in op.fixed and c not in op.kept]


@OF_OP
def test_empty(op):
    """With no samples, rows or elements: shapes, and gradients of what is left, which are 0."""
    for letter, dtype in itertools.product(may_be_empty(op), DTYPES):
        many, arrays = (arrays_of(op, dtype, **{letter: n}) for n in (30, 0))
        outputs = op.ours()(*arrays)
        for got, of_many in zip(outputs, op.ours()(*many), strict=True):
            assert got.shape == tuple(0 if n == 30 else n for n in of_many.shape), letter
        if op.name.startswith(("rms_norms", "l2_norms")):  # one beside it is not empty
            check(op, arrays, f"no {letter}", outputs)
        gradients = mx.vjp(op.ours(), arrays, cotangents_of(outputs))[1]
        mx.eval(outputs, gradients)
        assert [g.shape for g in gradients] == [a.shape for a in arrays], letter
        if not any(o.size for o in outputs):
            assert all(mx.all(g == 0) for g in gradients), letter


@OF_OP
def test_mapped_tangents_of_what_is_empty(op):
    """Where x is mapped, and its tangent is not."""
    for letter in may_be_empty(op):
        x, *others = arrays = arrays_of(op, F32, **{letter: 0})

        def tangents(x, others=others, arrays=arrays):
            return mx.jvp(op.ours(), [x, *others], arrays)[1]

        got = mx.vmap(tangents)(mx.stack([x, x]))
        mx.eval(got)
        assert [g.shape for g in got] == [(2, *y.shape) for y in op.ours()(*arrays)], letter


@pytest.mark.usefixtures("no_fusion")
@OF_OP
def test_transforms_of_what_is_empty(op):
    """Compiled, with or without shapes, checkpointed, mapped and differentiated: shapes."""
    for letter in may_be_empty(op):
        arrays = arrays_of(op, F32, **{letter: 0})
        outputs = op.ours()(*arrays)
        cots = cotangents_of(outputs)

        def f(*arrays, cots=cots):
            return both_ways(op.ours(), arrays, cots)

        shapes = [a.shape for a in (*outputs, *arrays)]
        forms = dict(plain=f, compiled=mx.compile(f), shapeless=mx.compile(f, shapeless=True))
        forms["checkpoint"] = lambda *a, c=cots: both_ways(mx.checkpoint(op.ours()), a, c)
        for how, g in forms.items():
            got = g(*arrays)
            mx.eval(got)
            assert [a.shape for a in got] == shapes, f"{letter} {how}"
        for size in (0, 2):
            batch = [mx.zeros((size, *a.shape)) + a for a in arrays]
            mapped = mx.vmap(f)(*batch)
            tangents = mx.jvp(mx.vmap(op.ours()), batch, batch)[1]
            mx.eval(mapped, tangents)
            assert [a.shape for a in mapped] == [(size, *s) for s in shapes], f"{letter} {size}"
            assert [a.shape for a in tangents] == [(size, *o.shape) for o in outputs], letter


ALONE = [
    op
    for op in OPS.values()
    if "batch_norm" not in op.name and op.axes[op.inputs[0]].startswith("B")
]


@each(ALONE)
def test_samples_have_the_same_bits_alone(op):
    turns = enumerate((33, 64, 1000))
    for length, dtype in [(n, of) for turn, n in turns for of in inputs.in_turn(DTYPES, turn)]:
        arrays = arrays_of(op, dtype, D=length, C=length)
        cots = cotangents_of(op.ours()(*arrays))
        whole = both_ways(op.ours(), arrays, cots)
        of_samples = [axes.startswith("B") for axes in op.axes.values()]
        some = [a[1:3] if of else a for a, of in zip(arrays, of_samples, strict=True)]
        part = both_ways(op.ours(), some, [c[1:3] for c in cots])
        # Not the gradients that are sums over samples.
        chosen = [True] * len(cots) + of_samples
        pairs = [(a, b[1:3]) for a, b, of in zip(part, whole, chosen, strict=True) if of]
        assert_same(op, *zip(*pairs, strict=True), f"{dtype} {length}")


DIGEST = """
import hashlib
import mlx.core as mx
from mlx_norms._table import EPS, OPS
from support.bits import bits
from support.table import arrays_of, both_ways, is_partly_mlx

mx.set_default_device(mx.cpu)
for op in OPS.values():
    if not is_partly_mlx(op):
        digest = hashlib.sha256()
        for dtype, sizes in ((mx.float32, dict(B=70, N=60)), (mx.bfloat16, dict(B=2, N=1500))):
            for a in both_ways(op.ours(), arrays_of(op, dtype, **sizes)):
                digest.update(bits(a).tobytes())
        print(op, digest.hexdigest())
"""


@pytest.mark.backends("cpu")
def test_threads_have_the_bits_of_one():
    def digests(threads):
        env = variant.environment(MLX_NORMS_CPU_THREADS=threads)
        command = [sys.executable, "-c", DIGEST]
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    assert digests("3") == digests("1")
