"""matmul by every kernel of ours, and sgemm by every rung of the ladder, against float64."""

import itertools
import re

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from mlx_norms import _ext
from mlx_norms.ladders import SGEMM, sgemm
from support.bits import assert_same_bits
from support.inputs import normal
from support.oracle import Truth, exact

pytestmark = pytest.mark.usefixtures("backend")

RUNGS = [rung.name for rung in SGEMM]
KERNELS = ["simdgroup_blocked", "gemv"]
NAMED = [*RUNGS, *KERNELS]
DTYPES = (mx.float32, mx.float16, mx.bfloat16)

# About the edges of the tiles of 8, 16 and 32 and the steps of 8, 16 and 32 along K. Each size is
# M, N and K in each of the two mixtures, beside others.
SIZES = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100)
MIXTURES = [
    (size, SIZES[(5 * i + n) % len(SIZES)], SIZES[(7 * i + m) % len(SIZES)])
    for n, m in ((3, 1), (8, 6))
    for i, size in enumerate(SIZES)
]

UNIT = 2.0**-24


on_metal = pytest.mark.backends("metal", "metal-sim")
on_devices = pytest.mark.backends("cpu", "cuda", "metal")


def ours(*names):
    """Kernels' names as parameters, each where it is ours: "auto" is MLX's own but on Metal."""
    by_mlx = ("auto", "gemv by tiles")  # gemv on CUDA is by tiles anyway
    return [
        pytest.param(name, marks=on_metal if name in by_mlx else pytest.mark.gpu) for name in names
    ]


@pytest.fixture(params=ours(*RUNGS, "simdgroup_blocked", "auto"))
def rung(request, backend):
    """Name of a rung, or of a kernel that takes any shape."""
    return request.param


@pytest.fixture(params=ours("simdgroup_blocked", "gemv", "gemv by tiles", "auto"))
def kernel(request, backend):
    """Name of a kernel that takes all dtypes and strides."""
    if request.param == "gemv by tiles":
        request.getfixturevalue("tiles")
    return request.param.split()[0]


@pytest.fixture
def tiles(backend):
    """gemv multiplies tiles, matrix units or not."""
    _ext.set_tiles_anywhere(True)
    yield
    _ext.set_tiles_anywhere(False)


def random(shape, seed=0, dtype=mx.float32, **spread):
    return normal(shape, dtype, seed=(seed, shape), **spread)


# A sum of K products that are rounded no more than once each, and by one addition each, in any
# order, has an error of at most K u / (1 - K u) times the sum of the products' sizes; with the
# rounding of the float64 product that is less than K + 2 units as long as K^2 u < 1. What is then
# added to `terms` others of its kind is rounded as often again. Then it is rounded to its dtype.
def check_close(got, expected, sizes, terms, note="", dtype=mx.float32):
    """Values that are sums of so many terms, whose sizes add up to `sizes`."""
    __tracebackhide__ = True
    Truth(np.asarray(expected), (terms + 2) * UNIT * sizes, dtype, note).check(got)


def check_product(a, b, got, note=""):
    __tracebackhide__ = True
    dtype, a, b = a.dtype, exact(a), exact(b)
    note = f"{note} {a.shape} {b.shape} {dtype}"
    check_close(got, a @ b, np.abs(a) @ np.abs(b), a.shape[-1], note, dtype)


def multiply(name, a, b, **options):
    """By the rung of sgemm or the kernel of matmul that is called so."""
    if name in RUNGS:
        return sgemm(a, b, rung=name, **options)
    return mlx_norms.matmul(a, b, kernel=name, **options)


def check(name, a, b, note=""):
    __tracebackhide__ = True
    check_product(a, b, multiply(name, a, b), f"{name} {note}")


def test_sizes(rung):
    for m, n, k in [*MIXTURES, (64, 64, 64)]:
        check(rung, random((m, k)), random((k, n), 1))


def test_long_sums(rung):
    check(rung, random((3, 1025)), random((1025, 5), 1))
    check(rung, random((8, 1024), mean=1.0), random((1024, 8), 1, mean=1.0))


@pytest.mark.parametrize("scale", [1e18, 1e-15])
def test_large_and_small_values(rung, scale):
    check(rung, random((17, 33), std=scale), random((33, 9), 1, std=scale), scale)


BATCHES = [
    ((3, 5, 7), (3, 7, 4)),
    ((3, 5, 7), (7, 4)),
    ((5, 7), (3, 7, 4)),
    ((1, 5, 7), (3, 7, 4)),
    ((1, 5, 7), (1, 1, 7, 4)),
    ((2, 3, 9, 8), (2, 3, 8, 9)),
    ((2, 1, 5, 7), (3, 7, 4)),
    ((2, 3, 5, 7), (2, 1, 7, 4)),
    ((2, 1, 3, 4, 1), (2, 1, 1, 5)),
    ((2, 1, 2, 1, 3, 4), (3, 1, 3, 4, 5)),
]
VECTORS = [((7,), (7,)), ((7,), (7, 4)), ((5, 7), (7,)), ((7,), (3, 7, 4)), ((3, 5, 7), (7,))]


def test_batches(rung):
    for of_a, of_b in BATCHES:
        check(rung, random(of_a), random(of_b, 1))
        check(rung, random(of_b, 1).swapaxes(-1, -2), random(of_a).swapaxes(-1, -2))


def test_one_axis(rung):
    for of_a, of_b in VECTORS:
        check(rung, random(of_a), random(of_b, 1))


@pytest.mark.parametrize("a_batch, b_batch", [((3, 1), (4,)), ((12,), ())])
def test_a_batch_takes_few_launches(launches, rung, a_batch, b_batch):
    """One for all matrices of which A and B have either one each or one for all."""
    c = multiply(rung, random((*a_batch, 5, 7)), random((*b_batch, 7, 4)))
    assert len(launches(c)) == (3 if len(a_batch) == 2 else 1)


LAYOUTS = {
    "transposed": lambda shape: random(shape[::-1]).T,
    "columns of a wider one": lambda shape: random((shape[0], shape[1] + 5))[:, 3:-2],
    "rows of a longer one": lambda shape: random((shape[0] + 5, shape[1]))[3:-2],
    "every second row": lambda shape: random((2 * shape[0], shape[1]))[::2],
    "every second column": lambda shape: random((shape[0], 2 * shape[1]))[:, ::2],
    "backwards": lambda shape: random(shape)[::-1, ::-1],
    "one row": lambda shape: mx.broadcast_to(random((1, shape[1])), shape),
    "one column": lambda shape: mx.broadcast_to(random((shape[0], 1)), shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(rung, layout):
    make = LAYOUTS[layout]
    check(rung, make((9, 17)), random((17, 8), 1), "a")
    check(rung, random((9, 17), 1), make((17, 8)), "b")


def test_empty(rung):
    for of_a, of_b in [
        *(((0, 5), (5, 3)), ((3, 5), (5, 0)), ((0, 5), (5, 0)), ((0, 3, 4), (0, 4, 5))),
        *(((0, 3, 4), (4, 5)), ((2, 0, 4), (4, 5)), ((2, 1, 3, 4), (0, 4, 5))),
    ]:
        check(rung, random(of_a), random(of_b))


def test_a_sum_of_nothing_is_zero(rung):
    for of_a, of_b in [((9, 0), (0, 17)), ((2, 9, 0), (0, 17)), ((0,), (0,)), ((0,), (0, 3))]:
        check(rung, random(of_a), random(of_b))


@pytest.mark.parametrize("size", [8, 9, 32, 33])
def test_nan_and_inf_stay_in_their_row_and_column(rung, size):
    """Where a block is whole, and where it is filled up with zeros."""
    a, b = np.array(random((size, size))), np.array(random((size, size), 1))
    clean = multiply(rung, mx.array(a), mx.array(b))
    for at in (0, size - 1):
        bad_a, bad_b = a.copy(), b.copy()
        bad_a[at, size // 2] = np.nan
        bad_b[size - 1, at] = np.inf
        got = np.array(multiply(rung, mx.array(bad_a), mx.array(bad_b)))
        others = np.arange(size) != at
        assert np.isnan(got[at]).all()
        assert np.isinf(got[others, at]).all()
        assert (got[np.ix_(others, others)] == np.array(clean)[np.ix_(others, others)]).all()


def test_vjp(rung):
    for of_a, of_b in [((9, 17), (17, 5)), *BATCHES, *VECTORS]:
        a, b = random(of_a), random(of_b, 1)
        note = f"{rung} {of_a} {of_b}"

        def product(a, b):
            return multiply(rung, a, b)

        cotangent = random(product(a, b).shape, 2)
        (c,), (da, db) = mx.vjp(product, [a, b], [cotangent])
        check_product(a, b, c)
        g = exact(cotangent)
        g = g if len(of_a) > 1 else np.expand_dims(g, g.ndim - (len(of_b) > 1))
        g = g if len(of_b) > 1 else g[..., None]
        rows = exact(a) if len(of_a) > 1 else exact(a)[None]
        columns = exact(b) if len(of_b) > 1 else exact(b)[:, None]
        for got, left, right, like in (
            (da, g, columns.swapaxes(-1, -2), rows),
            (db, rows.swapaxes(-1, -2), g, columns),
        ):
            terms = left.shape[-1] + int(np.prod(g.shape[:-2]))
            expected = summed_to(left @ right, like.shape).reshape(got.shape)
            sizes = summed_to(np.abs(left) @ np.abs(right), like.shape).reshape(got.shape)
            check_close(got, expected, sizes, terms, note)


def summed_to(a, shape):
    """The sum over the axes along which `shape` was broadcast."""
    a = a.sum(axis=tuple(range(a.ndim - len(shape))))
    return a.sum(axis=tuple(i for i, n in enumerate(shape[:-2]) if n == 1), keepdims=True)


def test_jvp(rung):
    for of_a, of_b in (((9, 17), (17, 5)), ((2, 1, 5, 7), (3, 7, 4)), ((7,), (7, 4))):
        a, b, da, db = random(of_a), random(of_b, 1), random(of_a, 2), random(of_b, 3)

        def product(a, b):
            return multiply(rung, a, b)

        _, (got,) = mx.jvp(product, [a, b], [da, db])
        a64, b64, da64, db64 = map(exact, (a, b, da, db))
        sizes = np.abs(da64) @ np.abs(b64) + np.abs(a64) @ np.abs(db64)
        check_close(got, da64 @ b64 + a64 @ db64, sizes, of_a[-1] + 1, rung)
        _, (got,) = mx.jvp(lambda b: product(a, b), [b], [db])
        check_product(a, db, got, "b alone")


def test_second_derivative(rung):
    a, b, v = random((9, 7)), random((7, 5), 1), random((9, 7), 2)
    gradient = mx.grad(lambda a: mx.sum(mx.square(multiply(rung, a, b)) / 2))
    _, (got,) = mx.jvp(gradient, [a], [v])
    b64, v64 = exact(b), exact(v)
    sizes = np.abs(v64) @ np.abs(b64) @ np.abs(b64.T)
    check_close(got, v64 @ b64 @ b64.T, sizes, 7 + 5, rung)


def test_vmap(rung):
    cases = [
        *(((4, 5, 7), (4, 7, 3), (0, 0)), ((4, 5, 7), (7, 3), (0, None))),
        *(((5, 7), (4, 7, 3), (None, 0)), ((5, 4, 7), (7, 3, 4), (1, 2))),
        *(((4, 5, 7), (2, 7, 3), (0, None)), ((2, 5, 7), (7, 4, 3), (None, 1))),
        *(((4, 7), (4, 2, 7, 3), (0, 0)), ((4, 7), (4, 7), (0, 0)), ((7, 4), (7,), (1, None))),
    ]
    for of_a, of_b, axes in cases:
        a, b = random(of_a), random(of_b, 1)

        def product(a, b):
            return multiply(rung, a, b)

        got = mx.vmap(product, in_axes=axes)(a, b)
        each = [
            product(*(x if ax is None else mx.take(x, i, ax) for x, ax in zip((a, b), axes)))
            for i in range(4)
        ]
        assert_same_bits(got, mx.stack(each), f"{rung} {of_a} {of_b} {axes}")


@pytest.mark.parametrize("shapeless", [False, True])
def test_compile(rung, shapeless):
    def product(a, b):
        return multiply(rung, mx.abs(a), b)

    def gradients(a, b):
        return mx.grad(lambda *args: mx.sum(mx.square(product(*args))), argnums=(0, 1))(a, b)

    compiled = mx.compile(lambda a, b: (product(a, b), *gradients(a, b)), shapeless=shapeless)
    # None is empty: MLX's own compiled kernels divide by zero then on CUDA.
    shapes = [((9, 17), (17, 5))] * 2 + [((16, 3), (3, 33)), ((9, 17), (17, 5))]
    for seed, (of_a, of_b) in enumerate(shapes):
        a, b = random(of_a, seed), random(of_b, -seed)
        for got, expected in zip(compiled(a, b), (product(a, b), *gradients(a, b)), strict=True):
            assert_same_bits(got, expected, f"{rung} {of_a} {of_b}")


def test_shapeless_with_another_batch(rung):
    """What was traced serves larger batches, and refuses shapes that do not fit."""

    def product(a, b):
        return multiply(rung, a, b)

    def gradient(a, b):
        return mx.grad(lambda a: mx.sum(product(a, b)))(a)

    for f, first, *then in (
        (product, (1, 1), (1, 4), (4, 4), (4, 1)),
        (gradient, (2, 2), (4, 4), (3, 3)),
        (gradient, (1, 2), (1, 4), (1, 3)),
    ):
        compiled = mx.compile(f, shapeless=True)
        for of_a, of_b in (first, *then):
            a, b = random((of_a, 5, 7)), random((of_b, 7, 3), 1)
            assert_same_bits(compiled(a, b), f(a, b), f"{rung} {first} {of_a} {of_b}")
    compiled = mx.compile(product, shapeless=True)
    mx.eval(compiled(random((2, 5, 7)), random((2, 7, 3))))
    with refused_by(rung, "last axis of a"):
        compiled(random((2, 5, 7)), random((2, 6, 3)))
    with refused_by(rung, "batch axes"):
        compiled(random((2, 5, 7)), random((3, 7, 3)))


def test_like_nodes_are_merged_and_others_are_not(launches, rung):
    a, b = random((9, 17)), random((17, 5), 1)
    other = next(r for r in RUNGS if r != rung)

    def products(a, b):
        return sum(multiply(name, a, b) for name in (rung, rung, other))

    kernels = [launch.kernel for launch in launches(mx.compile(products)(a, b))]
    (own,) = (launch.kernel for launch in launches(multiply(rung, a, b)))
    assert sorted(kernels) == sorted([own, f"sgemm_{other}"])


def test_streams(rung):
    a, b = random((9, 17)), random((17, 5), 1)
    device = mx.default_device()
    expected = multiply(rung, a, b)
    for stream in (mx.new_stream(device), device, device.type):
        got = multiply(rung, mx.abs(a) * mx.sign(a), b, stream=stream)
        assert_same_bits(got, expected, rung)


@on_devices
def test_more_groups_than_65535(rung):
    """A CUDA grid has no more of them along its second and third dimension.

    Metal has no such limit, and a simulator takes long.
    """
    for of_a, of_b in (
        ((65537, 2, 1), (1, 2)),
        ((65537 * 32, 1), (1, 1)),
        ((1, 1), (1, 65537 * 32)),
    ):
        check(rung, random(of_a), random(of_b, 1))


BYTES_A_PRODUCT = {
    "naive": 8,
    "tile_16": 0.5,
    "tile_32": 0.25,
    "tile_threads": 0.25,
    "tile_simdgroup": 1,
    "simdgroup_blocked": 0.125,
    "auto": 0.125,
}


def test_bytes_a_product(launches, rung):
    """What the ladder is about; of a cube of whole tiles each product asks for the same."""
    size = 64
    (launch,) = launches(multiply(rung, random((size, size)), random((size, size), 1)))
    read = sum(launch.result.bytes[name][0] for name in "ab")
    assert read == BYTES_A_PRODUCT[rung] * size**3
    assert launch.result.bytes["c"] == (0, 4 * size**2)


# --- The kernels of all dtypes and strides

# M, N and K about the edges of tiles of 32 and 64, and of gemv: rows of each number, of A or of B's
# transpose, few columns and many, depths that one SIMD-group sums or several.
BLOCKED = [(33, 40, 20), (64, 64, 48), (65, 70, 17), (32, 64, 64), (9, 9, 4)]
FEW_ROWS = [(1, 5, 1300), (2, 33, 70), (3, 40, 130), (4, 8, 9), (5, 64, 264), (6, 1, 3)]
FEW_ROWS += [(7, 100, 31), (8, 36, 1544)]
FEW_COLUMNS = [(20, 3, 65), (9, 1, 300), (40, 8, 136)]
SHAPES = {"simdgroup_blocked": BLOCKED, "gemv": FEW_ROWS + FEW_COLUMNS}
SHAPES["auto"] = [BLOCKED[1], BLOCKED[4], FEW_ROWS[2], FEW_COLUMNS[0]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_and_transposed(kernel, dtype):
    for m, n, k in SHAPES[kernel]:
        a, b = random((m, k), 0, dtype), random((k, n), 1, dtype)
        a_columns, b_columns = random((k, m), 2, dtype).T, random((n, k), 3, dtype).T
        for left, right in itertools.product((a, a_columns), (b, b_columns)):
            check(kernel, left, right, f"{left is a} {right is b}")


def amid_nan(shape, dtype):
    """Every second row of a part of a wider array."""
    wide = np.full((2 * shape[0] + 3, shape[1] + 5), np.nan, np.float32)
    wide[1:-2:2, 3:-2] = np.array(normal(shape, mx.float32, seed=shape))
    return mx.array(wide).astype(dtype)[1:-2:2, 3:-2]


def views(shape, dtype):
    """Arrays whose elements adjoin along one axis, whatever the stride of the other."""
    rows = amid_nan(shape, dtype)
    yield rows
    yield amid_nan(shape[::-1], dtype).T
    yield rows[::-1]
    yield mx.broadcast_to(rows[1], shape)
    yield mx.broadcast_to(random((shape[0], 1), 0, dtype), shape)
    yield random((shape[0] + 1, shape[1]), 0, dtype)[1:]


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_are_read_where_they_are(request, backend, kernel, dtype):
    m, n, k = (5, 20, 24) if kernel == "gemv" else (33, 36, 24)
    a, b = random((m, k), 0, dtype), random((k, n), 1, dtype)
    cases = [(view, b) for view in views((m, k), dtype)]
    cases += [(a, view) for view in views((k, n), dtype)]
    for left, right in cases:
        mx.eval(left, right)
        c = mlx_norms.matmul(left, right, kernel=kernel)
        if backend == "metal-sim":
            assert len(request.getfixturevalue("launches")(c)) == 1
        check_product(left, right, c, kernel)


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_layouts_are_made_dense(kernel, dtype):
    for m, n, k in ((5, 20, 9), (20, 5, 9), (33, 34, 9)):
        if (m, n, k) in SHAPES["simdgroup_blocked"] or (kernel == "gemv" and min(m, n) > 8):
            continue
        a, b = random((m, 2 * k), 0, dtype)[:, ::2], random((k, 2 * n), 1, dtype)[:, ::2]
        check(kernel, a, b)
        check(kernel, mx.stack([a, a + 1]), mx.stack([b, b + 1]))


PRODUCTS_OF_BATCHES = [
    ((2, 3, 1, 16), (2, 3, 16, 20)),
    ((2, 3, 4, 16), (2, 1, 16, 20)),
    ((2, 3, 1, 16), (16, 12)),
    ((5, 3, 1, 16), (16, 12)),
    ((3, 12, 16), (16, 5)),
    ((1, 12, 16), (3, 1, 16, 5)),
    *(((7,), (7,)), ((7,), (7, 40)), ((50, 7), (7,)), ((7,), (3, 7, 4)), ((3, 50, 7), (7,))),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_batches(kernel, dtype):
    for of_a, of_b in PRODUCTS_OF_BATCHES:
        a, b = random(of_a, 0, dtype), random(of_b, 1, dtype)
        check(kernel, a, b)
        if len(of_a) > 1 and len(of_b) > 1:
            check(kernel, a, mx.contiguous(b.swapaxes(-1, -2)).swapaxes(-1, -2))
            check(kernel, mx.contiguous(a.swapaxes(0, -2)).swapaxes(0, -2), b)


def test_what_auto_chooses(backend, launches):
    for of_a, of_b, chosen in [
        *(((1, 64), (64, 40), "gemv_columns_1"), ((3, 64), (40, 64), "gemv_lines_3")),
        *(((5, 64), (64, 40), "gemv_columns_5"), ((2, 64), (40, 64), "gemv_lines_2")),
        *(((40, 64), (64,), "gemv_lines_1"), ((40, 64), (64, 2), "gemv_lines_2")),
        *(((4, 1, 64), (64, 40), "gemv_columns_4"), ((9, 1, 64), (64, 40), "simdgroup_blocked_32")),
        *(((4, 1, 64), (4, 64, 40), "gemv_columns_1"), ((9, 8), (8, 9), "simdgroup_blocked_32")),
        *(
            ((33, 8), (8, 33), "simdgroup_blocked_64"),
            ((3, 11, 8), (8, 33), "simdgroup_blocked_64"),
        ),
    ]:
        b = random(of_b).T if of_b == (40, 64) else random(of_b)
        (launch,) = launches(mlx_norms.matmul(random(of_a), b))
        assert launch.kernel == chosen


@pytest.mark.gpu
@pytest.mark.parametrize("stored", ["plain", "transposed"])
def test_a_row_has_the_same_bits_among_others(backend, stored):
    kernel = "gemv"
    a, b = random((8, 1100)), random((1100, 37), 1)
    b = b if stored == "plain" else mx.contiguous(b.T).T
    eight = mlx_norms.matmul(a, b, kernel=kernel)
    for rows in range(1, 8):
        assert_same_bits(mlx_norms.matmul(a[:rows], b, kernel=kernel), eight[:rows])


@pytest.mark.parametrize("dtype", DTYPES)
def test_transforms_of_all_dtypes(kernel, dtype):
    """Gradients of few rows are products of many, and what is summed over a batch is rounded."""
    for of_a, of_b in (((3, 17), (17, 12)), ((2, 3, 4), (4, 5)), ((7,), (7, 9)), ((11, 6), (6,))):
        a, b, da, db = (random(of, i, dtype) for i, of in enumerate((of_a, of_b) * 2))

        def product(a, b):
            return mlx_norms.matmul(a, b, kernel=kernel)

        dc = random(product(a, b).shape, 4, dtype)
        reference = mx.vjp(
            mx.matmul, [x.astype(mx.float32) for x in (a, b)], [dc.astype(mx.float32)]
        )
        _, gradients = mx.vjp(product, [a, b], [dc])
        for got, expected in zip(gradients, reference[1], strict=True):
            slack = 0.02 if dtype != mx.float32 else 1e-4
            assert got.dtype == dtype and got.shape == expected.shape
            np.testing.assert_allclose(exact(got), exact(expected), rtol=slack, atol=8 * slack)
        (c,), (dc,) = mx.jvp(product, [a, b], [da, db])
        assert_same_bits(dc, product(da, b) + product(a, db))
        pairs = mx.stack([a, da]), mx.stack([b, db])
        for axes in ((0, 0), (0, None), (None, 0)):
            given = [pair if axis == 0 else pair[0] for pair, axis in zip(pairs, axes)]
            expected = mx.stack(
                [product(*(x[i] if ax == 0 else x for x, ax in zip(given, axes))) for i in (0, 1)]
            )
            got = mx.vmap(product, in_axes=axes)(*given)
            np.testing.assert_allclose(exact(got), exact(expected), rtol=0.02, atol=0.02)
        assert_same_bits(mx.compile(product)(a, b), c)


# M, N and K about the tiles' edges: of 16 lines or 32 and 64 columns, of 32, 64 and 128 of the
# depth, and past what a group's SIMD-groups take at once. Many groups have fewer of them.
TILES = [(1, 16, 8), (2, 64, 32), (3, 72, 128), (4, 8, 136), (5, 24, 2056), (8, 136, 520)]
TILES += [(7, 8, 8), (2, 40, 1032), (1, 16392, 136)]


def products_of_tiles(stored, dtype):
    for m, n, k in TILES:
        a, b = random((m, k), 0, dtype), random((k, n), 1, dtype)
        b = b if stored == "columns" else mx.contiguous(b.T).T
        wider = mx.contiguous(mx.pad(a, ((0, 0), (1, 2))))[:, 1:-2]
        for left in (a, mx.contiguous(a.T).T, wider) if n < 16000 else (a,):
            yield left, b


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stored", ["lines", "columns"])
def test_tiles(request, backend, tiles, stored, dtype):
    for a, b in products_of_tiles(stored, dtype):
        mx.eval(a, b)
        c = mlx_norms.matmul(a, b, kernel="gemv")
        if backend == "metal-sim":
            (launch,) = request.getfixturevalue("launches")(c)
            assert launch.kernel.startswith(f"gemv_{stored[:-1]}_tiles_{16 // dtype.size}_")
            assert launch.result.bytes["w"][0] == b.nbytes
        check_product(a, b, c, stored)
    a, b = random((3, 24), 0, dtype), random((24, 41), 1, dtype)
    check("gemv", a, mx.contiguous(b.T).T)  # lines past the last tile's
    check("gemv", mx.contiguous(b.T), mx.contiguous(a.T))  # the other way about
    check("gemv", random((2, 3, 24), 0, dtype), random((2, 24, 40), 1, dtype), "batch")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stored", ["lines", "columns"])
def test_a_row_of_tiles_has_the_same_bits_among_others(tiles, stored, dtype):
    a, b = random((8, 1096), 0, dtype), random((1096, 40), 1, dtype)
    b = b if stored == "columns" else mx.contiguous(b.T).T
    eight = mlx_norms.matmul(a, b, kernel="gemv")
    for rows in range(1, 8):
        assert_same_bits(mlx_norms.matmul(a[-rows:], b, kernel="gemv"), eight[-rows:])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [mx.float16, mx.float32])
@pytest.mark.parametrize("stored", ["lines", "columns"])
def test_nan_and_inf_stay_in_their_tile_row_and_column(tiles, stored, dtype):
    a, b = (np.array(random(shape, seed)) for seed, shape in enumerate(((3, 72), (72, 40))))
    clean = None
    for bad in (False, True):
        if bad:
            a[1, 5], b[70, 33] = np.nan, np.inf
        left, right = (mx.array(x).astype(dtype) for x in (a, b))
        right = right if stored == "columns" else mx.contiguous(right.T).T
        got = np.array(mlx_norms.matmul(left, right, kernel="gemv"))
        clean = got if clean is None else clean
    others = np.ix_([0, 2], np.arange(40) != 33)
    assert np.isnan(got[1]).all() and np.isinf(got[[0, 2], 33]).all()
    assert (got[others] == clean[others]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("stored", ["lines", "columns"])
def test_tiles_of_the_largest_and_smallest_floats(tiles, stored):
    """Sums up to infinity and back; factors whose first bits alone have no room for another."""
    largest = np.finfo(np.float32).max
    a = np.array(random((4, 72)))
    a[0] = 0
    a[0, :2] = largest, -largest
    a[1], a[2] = largest / 128, np.float32(1e-30)
    b = np.ones((72, 40), np.float32)
    b[:, -1] = 1e30
    given = [mx.array(x) for x in (a, b)]
    given[1] = given[1] if stored == "columns" else mx.contiguous(given[1].T).T
    got = mlx_norms.matmul(*given, kernel="gemv")
    assert (np.array(got)[0, :-1] == 0).all()
    assert not np.isfinite(got[0, -1].item()) and got[1, -1].item() == np.inf
    finite = np.s_[1:, :-1]
    a, b = exact(given[0]), exact(given[1])
    check_close(got[finite], (a @ b)[finite], (np.abs(a) @ np.abs(b))[finite], 72, stored)


@pytest.mark.gpu
@on_devices
def test_many_groups_of_gemv(backend):
    """Metal has no such limit, and a simulator takes long."""
    check("gemv", random((1, 1)), random((1, 65537 * 32)))
    check("gemv", random((65537 * 32, 1)), random((1, 1)))


@pytest.mark.backends("cpu", "cuda")
def test_auto_is_that_of_mlx(backend):
    shapes = [((9, 17), (17, 5)), ((3, 5, 7), (7, 4)), ((7,), (7,)), ((3, 0), (0, 4))]
    for (of_a, of_b), dtype in itertools.product(shapes, (mx.float32, mx.float16)):
        a, b = random(of_a).astype(dtype), random(of_b, 1).astype(dtype)
        for got in (mlx_norms.matmul(a, b), mlx_norms.matmul(a, b, kernel="auto")):
            assert_same_bits(got, mx.matmul(a, b))
    a, b = random((9, 17)), random((17, 5), 1)
    got = mx.grad(lambda a: mx.sum(mlx_norms.matmul(a, b)))(a)
    assert_same_bits(got, mx.grad(lambda a: mx.sum(mx.matmul(a, b)))(a))


def test_mixed_dtypes_are_those_of_mlx():
    a, b = random((9, 17)), random((17, 5), 1).astype(mx.float16)
    assert_same_bits(mlx_norms.matmul(a, b), mx.matmul(a, b))
    a = a.astype(mx.bfloat16)
    assert_same_bits(mlx_norms.matmul(a, b), mx.matmul(a, b))
    z = a.astype(mx.complex64)
    assert mx.array_equal(mlx_norms.matmul(z, z.T), mx.matmul(z, z.T))


# --- What is refused

A, B = mx.ones((2, 3)), mx.ones((3, 4))


def refused(*words, op="matmul"):
    return pytest.raises(ValueError, match=rf"^\[{op}\] " + ".*".join(["", *words]))


def refused_by(name, *words):
    return refused(*words, op="sgemm" if name in RUNGS else "matmul")


@on_devices
@pytest.mark.parametrize("name", NAMED)
def test_named_kernels_are_a_gpus(backend, name):
    """But for the simulated device, which runs on CPU streams."""
    with refused_by(name, f'"{name}"', "GPU"):
        multiply(name, A, B, stream=mx.cpu)


def test_unknown_kernel():
    for kernel in ("", "tile", "Gemv", "naive"):
        with refused(
            "kernel", *(f'"{name}"' for name in ("auto", *KERNELS)), re.escape(f'"{kernel}"')
        ):
            mlx_norms.matmul(A, B, kernel=kernel)
    for kernel in (None, 1):
        with pytest.raises(TypeError):
            mlx_norms.matmul(A, B, kernel=kernel)


def test_unknown_rung():
    for rung in ("", "tile", "Naive", "welford", "auto"):
        with refused(f'rung must be one of {", ".join(RUNGS)} but is "{rung}"', op="sgemm"):
            sgemm(A, B, rung=rung)
    for rung in (None, 1):
        with pytest.raises(TypeError):
            sgemm(A, B, rung=rung)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("name", ["a", "b"])
def test_dtype(rung, name):
    for dtype in (mx.float16, mx.bfloat16, mx.int32, mx.bool_, mx.complex64):
        arrays = {"a": A, "b": B}
        arrays[name] = arrays[name].astype(dtype, stream=mx.cpu)
        words = (rf"\b{name}\b", "float32", f'"{rung}"', str(dtype).split(".")[-1])
        with refused(*words, op="sgemm"):
            sgemm(**arrays, rung=rung)


@pytest.mark.parametrize("kernel", KERNELS)
def test_dtypes(kernel):
    for name in "ab":
        for dtype in (mx.int32, mx.bool_, mx.complex64):
            arrays = {"a": A, "b": B}
            arrays[name] = arrays[name].astype(dtype, stream=mx.cpu)
            with refused(rf"\b{name}\b", "float32", "float16", "bfloat16", f'"{kernel}"'):
                mlx_norms.matmul(**arrays, kernel=kernel)
    with refused("one dtype", f'"{kernel}"', "float32", "float16"):
        mlx_norms.matmul(A, B.astype(mx.float16, stream=mx.cpu), kernel=kernel)


@pytest.mark.gpu
def test_gemv_takes_few_rows(backend):
    with refused('"gemv"', "8 rows of a", r"\(9,3\)", r"\(3,9\)"):
        mlx_norms.matmul(mx.ones((9, 3)), mx.ones((3, 9)), kernel="gemv")
    compiled = mx.compile(lambda a, b: mlx_norms.matmul(a, b, kernel="gemv"), shapeless=True)
    mx.eval(compiled(mx.ones((8, 3)), mx.ones((3, 9))))
    with refused('"gemv"', "8 rows of a"):
        compiled(mx.ones((9, 3)), mx.ones((3, 9)))


@pytest.mark.parametrize("name", ["auto", *NAMED])
def test_shapes(name):
    for argument, arrays in (("a", (mx.array(1.0), B)), ("b", (A, mx.array(1.0)))):
        with refused_by(name, rf"\b{argument}\b", "at least 1 axis"):
            multiply(name, *arrays)
    for of_a, of_b in [
        *(((2, 3), (4, 3)), ((2, 3), (2,)), ((3,), (2, 3)), ((3,), (4,)), ((5, 2, 3), (5, 2, 3))),
        *(((2, 2, 3), (3, 3, 4)), ((2, 1, 2, 3), (3, 4, 3, 4))),
    ]:
        if of_a[-1] != of_b[-2:][0]:
            words = ("last axis of a", "of b")
        elif len(of_a) == 4:
            continue  # these broadcast
        else:
            words = ("batch axes of a and b",)
        shapes = (rf"\({','.join(map(str, shape))}\)" for shape in (of_a, of_b))
        with refused_by(name, *words, *shapes):
            multiply(name, mx.ones(of_a), mx.ones(of_b))


def test_the_options_are_keywords():
    with pytest.raises(TypeError):
        mlx_norms.matmul(A, B, "auto")
    with pytest.raises(TypeError):
        sgemm(A, B, "naive")
    for bad in (None, [1.0], 1.0, "text"):
        with pytest.raises(TypeError):
            mlx_norms.matmul(bad, B)
