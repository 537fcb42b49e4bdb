"""matmul by MLX and by every rung of the SGEMM ladder, against float64."""

import itertools
import re

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from bits import assert_same_bits
from inputs import normal
from mlx_norms.ladders import SGEMM

pytestmark = pytest.mark.usefixtures("backend")

RUNGS = [rung.name for rung in SGEMM]

# About the edges of the tiles of 8, 16 and 32 and the steps of 8, 16 and 32 along K. Each size is
# M, N and K in each of the two mixtures, beside others.
SIZES = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100)
MIXTURES = [
    (size, SIZES[(5 * i + n) % len(SIZES)], SIZES[(7 * i + m) % len(SIZES)])
    for n, m in ((3, 1), (8, 6))
    for i, size in enumerate(SIZES)
]

UNIT = 2.0**-24


@pytest.fixture(params=RUNGS)
def rung(request, backend):
    """Name of a rung, on a backend that has them."""
    if backend == "cpu":
        pytest.skip("rungs are GPU kernels")
    return request.param


@pytest.fixture
def launches(request, backend, rung):
    """The launches that evaluating some arrays takes, on the simulated device."""
    if backend != "metal-sim":
        pytest.skip("only the simulated device counts")
    simulator = request.getfixturevalue("simulator")

    def launches(*arrays):
        simulator.clear()
        mx.eval(*arrays)
        simulator.wait()
        return list(simulator.launches)

    return launches


def random(shape, seed=0, **spread):
    return normal(shape, mx.float32, seed=(seed, shape), **spread)


def exact(a):
    return np.array(a).astype(np.float64)


# A sum of K products that are rounded no more than once each, and by one addition each, in any
# order, has an error of at most K u / (1 - K u) times the sum of the products' sizes; with the
# rounding of the float64 product that is less than K + 2 units as long as K^2 u < 1. What is then
# added to `terms` others of its kind is rounded as often again.
def check_close(got, expected, sizes, terms, note=""):
    """Values that are sums of so many terms, whose sizes add up to `sizes`."""
    __tracebackhide__ = True
    assert got.dtype == mx.float32 and got.shape == expected.shape, note
    error, bound = np.abs(exact(got) - expected), (terms + 2) * UNIT * sizes
    assert np.all(error <= bound), f"{note}: {np.max(error / np.maximum(bound, 1e-300)):.3g} bounds"


def check_product(a, b, got, note=""):
    __tracebackhide__ = True
    a, b = exact(a), exact(b)
    note = f"{note} {a.shape} {b.shape}"
    check_close(got, a @ b, np.abs(a) @ np.abs(b), a.shape[-1], note)


def check(rung, a, b, note=""):
    __tracebackhide__ = True
    check_product(a, b, mlx_norms.matmul(a, b, kernel=rung), f"{rung} {note}")


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
    c = mlx_norms.matmul(random((*a_batch, 5, 7)), random((*b_batch, 7, 4)), kernel=rung)
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
    clean = mlx_norms.matmul(mx.array(a), mx.array(b), kernel=rung)
    for at in (0, size - 1):
        bad_a, bad_b = a.copy(), b.copy()
        bad_a[at, size // 2] = np.nan
        bad_b[size - 1, at] = np.inf
        got = np.array(mlx_norms.matmul(mx.array(bad_a), mx.array(bad_b), kernel=rung))
        others = np.arange(size) != at
        assert np.isnan(got[at]).all()
        assert np.isinf(got[others, at]).all()
        assert (got[np.ix_(others, others)] == np.array(clean)[np.ix_(others, others)]).all()


def test_vjp(rung):
    for of_a, of_b in [((9, 17), (17, 5)), *BATCHES, *VECTORS]:
        a, b = random(of_a), random(of_b, 1)
        note = f"{rung} {of_a} {of_b}"

        def product(a, b):
            return mlx_norms.matmul(a, b, kernel=rung)

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
            return mlx_norms.matmul(a, b, kernel=rung)

        _, (got,) = mx.jvp(product, [a, b], [da, db])
        a64, b64, da64, db64 = map(exact, (a, b, da, db))
        sizes = np.abs(da64) @ np.abs(b64) + np.abs(a64) @ np.abs(db64)
        check_close(got, da64 @ b64 + a64 @ db64, sizes, of_a[-1] + 1, rung)
        _, (got,) = mx.jvp(lambda b: product(a, b), [b], [db])
        check_product(a, db, got, "b alone")


def test_second_derivative(rung):
    a, b, v = random((9, 7)), random((7, 5), 1), random((9, 7), 2)
    gradient = mx.grad(lambda a: mx.sum(mx.square(mlx_norms.matmul(a, b, kernel=rung)) / 2))
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
            return mlx_norms.matmul(a, b, kernel=rung)

        got = mx.vmap(product, in_axes=axes)(a, b)
        each = [
            product(*(x if ax is None else mx.take(x, i, ax) for x, ax in zip((a, b), axes)))
            for i in range(4)
        ]
        assert_same_bits(got, mx.stack(each), f"{rung} {of_a} {of_b} {axes}")


@pytest.mark.parametrize("shapeless", [False, True])
def test_compile(rung, shapeless):
    def product(a, b):
        return mlx_norms.matmul(mx.abs(a), b, kernel=rung)

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
        return mlx_norms.matmul(a, b, kernel=rung)

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
    with refused("last axis of a"):
        compiled(random((2, 5, 7)), random((2, 6, 3)))
    with refused("batch axes"):
        compiled(random((2, 5, 7)), random((3, 7, 3)))


def test_like_nodes_are_merged_and_others_are_not(launches, rung):
    a, b = random((9, 17)), random((17, 5), 1)
    other = next(r for r in RUNGS if r != rung)

    def products(a, b):
        return sum(mlx_norms.matmul(a, b, kernel=kernel) for kernel in (rung, rung, other))

    kernels = [launch.kernel for launch in launches(mx.compile(products)(a, b))]
    assert sorted(kernels) == sorted([f"sgemm_{rung}", f"sgemm_{other}"])


def test_streams(rung):
    a, b = random((9, 17)), random((17, 5), 1)
    device = mx.default_device()
    expected = mlx_norms.matmul(a, b, kernel=rung)
    for stream in (mx.new_stream(device), device, device.type):
        got = mlx_norms.matmul(mx.abs(a) * mx.sign(a), b, kernel=rung, stream=stream)
        assert_same_bits(got, expected, rung)


def test_more_groups_than_65535(backend, rung):
    """A CUDA grid has no more of them along its second and third dimension."""
    if backend == "metal-sim":
        pytest.skip("Metal has no such limit, and a simulator takes long")
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
}


def test_bytes_a_product(launches, rung):
    """What the ladder is about; of a cube of whole tiles each product asks for the same."""
    size = 64
    (launch,) = launches(
        mlx_norms.matmul(random((size, size)), random((size, size), 1), kernel=rung)
    )
    read = sum(launch.result.bytes[name][0] for name in "ab")
    assert read == BYTES_A_PRODUCT[rung] * size**3
    assert launch.result.bytes["c"] == (0, 4 * size**2)


def test_auto_is_that_of_mlx():
    shapes = [((9, 17), (17, 5)), ((3, 5, 7), (7, 4)), ((7,), (7,)), ((3, 0), (0, 4))]
    for (of_a, of_b), dtype in itertools.product(shapes, (mx.float32, mx.float16)):
        a, b = random(of_a).astype(dtype), random(of_b, 1).astype(dtype)
        for got in (mlx_norms.matmul(a, b), mlx_norms.matmul(a, b, kernel="auto")):
            assert_same_bits(got, mx.matmul(a, b))
    a, b = random((9, 17)), random((17, 5), 1)
    got = mx.grad(lambda a: mx.sum(mlx_norms.matmul(a, b)))(a)
    assert_same_bits(got, mx.grad(lambda a: mx.sum(mx.matmul(a, b)))(a))


# --- What is refused

A, B = mx.ones((2, 3)), mx.ones((3, 4))


def refused(*words):
    return pytest.raises(ValueError, match=r"^\[matmul\] " + ".*".join(["", *words]))


@pytest.mark.parametrize("kernel", RUNGS)
def test_rungs_are_gpu_kernels(backend, kernel):
    if backend == "metal-sim":
        pytest.skip("the simulated device runs on CPU streams")
    with refused(f'"{kernel}"', "GPU"):
        mlx_norms.matmul(A, B, kernel=kernel, stream=mx.cpu)


def test_unknown_kernel():
    for kernel in ("", "tile", "Naive", "welford"):
        with refused(
            "kernel", *(f'"{name}"' for name in ("auto", *RUNGS)), re.escape(f'"{kernel}"')
        ):
            mlx_norms.matmul(A, B, kernel=kernel)
    for kernel in (None, 1):
        with pytest.raises(TypeError):
            mlx_norms.matmul(A, B, kernel=kernel)


@pytest.mark.parametrize("kernel", RUNGS)
@pytest.mark.parametrize("name", ["a", "b"])
def test_dtype(kernel, name):
    for dtype in (mx.float16, mx.bfloat16, mx.int32, mx.bool_, mx.complex64):
        arrays = {"a": A, "b": B}
        arrays[name] = arrays[name].astype(dtype, stream=mx.cpu)
        with refused(rf"\b{name}\b", "float32", f'"{kernel}"', str(dtype).split(".")[-1]):
            mlx_norms.matmul(**arrays, kernel=kernel)


@pytest.mark.parametrize("kernel", ["auto", *RUNGS])
def test_shapes(kernel):
    for name, arrays in (("a", (mx.array(1.0), B)), ("b", (A, mx.array(1.0)))):
        with refused(rf"\b{name}\b", "at least 1 axis"):
            mlx_norms.matmul(*arrays, kernel=kernel)
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
        with refused(*words, *shapes):
            mlx_norms.matmul(mx.ones(of_a), mx.ones(of_b), kernel=kernel)


def test_the_options_are_keywords():
    with pytest.raises(TypeError):
        mlx_norms.matmul(A, B, "auto")
    for bad in (None, [1.0], 1.0, "text"):
        with pytest.raises(TypeError):
            mlx_norms.matmul(bad, B)
