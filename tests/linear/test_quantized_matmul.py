"""quantized_matmul: MLX's product, or one launch that reads the weight once, against float64."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from mlx_norms import _ext
from support import inputs
from support.bits import assert_same_bits
from support.inputs import normal
from support.linear_case import Quantized, metal_rows
from support.norm_case import DTYPES
from support.quantized_case import MOST_ROWS, Product

KINDS = list(itertools.product((4, 8), (32, 64, 128)))
MODES = ("mxfp4", "mxfp8", "nvfp4")


@pytest.fixture(params=["by lanes", pytest.param("by tiles", marks=pytest.mark.gpu)])
def way(request, backend):
    """How the kernel multiplies; CUDA always does by tiles, and on the CPU MLX does."""
    _ext.set_tiles_anywhere(request.param == "by tiles")
    yield request.param
    _ext.set_tiles_anywhere(False)


@pytest.fixture
def tiles(way, backend):
    return way == "by tiles" or backend == "cuda"


@pytest.fixture
def most_rows(tiles):
    """Of one launch."""
    return MOST_ROWS if tiles else metal_rows()


pytestmark = pytest.mark.usefixtures("way")


def weight(lines, length, dtype, kind, seed=0, **spread):
    bits, group = kind
    w = normal((lines, length), dtype, seed=(seed, "w", lines, length), **spread)
    return Quantized(list(mx.quantize(w, group, bits, stream=mx.cpu)), bits, group)


def multiply(x, w, **options):
    return mlx_norms.quantized_matmul(x, *w.parts, group_size=w.group_size, bits=w.bits, **options)


def composed(x, w, residual=None):
    """MLX's ops."""
    y = mx.quantized_matmul(x, *w.parts, group_size=w.group_size, bits=w.bits)
    return y if residual is None else y + residual


@pytest.fixture
def check(backend, tiles):
    """A product's values, and those of a residual's sum."""

    def check(x, w, residual=None, note=""):
        __tracebackhide__ = True
        product = Product(x, w, residual, tiles)
        product.truth(backend, note).check(product())

    return check


# --- Values


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sizes(check, dtype, kind):
    group = kind[1]
    for i, (n, lines) in enumerate(((1, 1), (2, 5), (3, 17), (5, 32), (9, 33), (16, 3), (33, 2))):
        x = normal((1 + i * 5 % MOST_ROWS, n * group), dtype, seed=i)
        check(x, weight(lines, n * group, dtype, kind))


@pytest.mark.parametrize("kind", [(4, 64), (8, 32)], ids=str)
def test_rows(check, kind):
    for rows in (*range(1, 19), 33):
        for dtype in inputs.in_turn(DTYPES, rows):
            check(normal((rows, 256), dtype, seed=rows), weight(19, 256, dtype, kind))


def test_long_rows(check):
    """Which SIMD-groups share."""
    for (rows, length), dtype in itertools.product(((1, 4096), (9, 2048), (4, 8192)), DTYPES):
        for kind in ((4, 64), (8, 128), (4, 32)):
            check(normal((rows, length), dtype, seed=rows), weight(6, length, dtype, kind))


def test_many_lines(check, way):
    lines = 130 if way == "by tiles" and inputs.SLOW else 2100
    for dtype, rows in itertools.product(DTYPES, (2, 11)):
        check(normal((rows, 128), dtype, seed=rows), weight(lines, 128, dtype, (4, 64)))


def test_layouts(check):
    for dtype, kind in itertools.product(DTYPES, ((4, 64), (8, 32))):
        w = weight(7, 128, dtype, kind)
        x = normal((6, 3, 260), dtype, seed=1)
        views = [x[:, 0, :128], x[:, :, 1:129], x[::2, 1, 2:258:2], x[:, 0, 127::-1]]
        views += [
            x.swapaxes(0, 1)[..., :128],
            x[0, 0, :128],
            mx.broadcast_to(x[:1, 0, :128], (5, 128)),
        ]
        views += [normal((128, 4), dtype, seed=2).T, x[:, :, :128].reshape(2, 3, 3, 128)]
        for i, view in enumerate(views):
            check(view, w, note=f"view {i}")


def test_residual(check):
    for dtype, rows, kind in itertools.product(DTYPES, (1, 7, 16, 17), ((4, 64), (8, 32))):
        x, w = normal((rows, 192), dtype, seed=rows), weight(21, 192, dtype, kind)
        r = normal((rows, 21), dtype, seed="r")
        check(x, w, r)
        check(x, w, normal((21, rows), dtype, seed="t").T, note="transposed")
        check(x, w, mx.broadcast_to(r[:, :1], r.shape), note="repeated")


def test_residual_is_added_to_the_rounded_product():
    for dtype, rows in itertools.product(DTYPES, (1, 5, 12)):
        x, w = normal((rows, 256), dtype, seed=rows), weight(40, 256, dtype, (4, 64))
        r = normal((rows, 40), dtype, seed="r", mean=100.0)
        assert_same_bits(multiply(x, w, residual=r), multiply(x, w) + r)


def test_dtypes_that_differ(check):
    for i, (a, b, c) in enumerate(itertools.product(DTYPES, repeat=3)):
        x, w = normal((3, 64), a, seed=i), weight(9, 64, b, (4, 32))
        check(x, w, normal((3, 9), c, seed="r"))


def test_large_and_small_values(check):
    for dtype, scale in ((mx.float32, 1e30), (mx.bfloat16, 1e30), (mx.float32, 1e-30)):
        check(normal((2, 128), dtype, seed=1) * scale, weight(9, 128, dtype, (4, 64)))
    check(normal((2, 128), mx.float16, seed=1) * 1000, weight(9, 128, mx.float16, (8, 64)))


def test_values_of_one_sign(check):
    """Whose roundings do not cancel."""
    for dtype, kind in itertools.product(DTYPES, ((4, 64), (8, 32))):
        spread = dict(mean=1.0, std=0.1)
        check(normal((3, 512), dtype, seed=1, **spread), weight(9, 512, dtype, kind, **spread))


def test_what_is_not_finite_stays_in_its_row():
    for dtype in DTYPES:
        x, w = normal((3, 128), dtype, seed=1), weight(9, 128, dtype, (4, 64))
        clean = multiply(x, w)
        for bad in (np.nan, np.inf, -np.inf):
            got = multiply(mx.where(mx.arange(384).reshape(3, 128) == 200, bad, x).astype(dtype), w)
            assert not mx.isfinite(got[1]).any()
            assert_same_bits(got[::2], clean[::2])


def moved(a):
    """The same values, at an address that no vector has."""
    flat = mx.concatenate([a[:1, :1].reshape(-1), a.reshape(-1)])
    return mx.contiguous(flat)[1:].reshape(a.shape)


def test_arrays_that_are_not_aligned(check):
    for dtype, kind in itertools.product(DTYPES, KINDS):
        w = weight(5, 384, dtype, kind)
        w.parts = [moved(part) for part in w.parts]
        mx.eval(w.parts)
        check(moved(normal((3, 384), dtype, seed=1)), w)


def test_no_rows_and_no_lines(backend):
    for kind, dtype in itertools.product(KINDS[:2], DTYPES):
        w = weight(5, 64, dtype, kind)
        for shape in ((0, 64), (2, 0, 64)):
            y = multiply(mx.zeros(shape, dtype), w)
            assert (y.shape, y.dtype) == ((*shape[:-1], 5), dtype)
            mx.eval(y)
        w.parts = [part[:0] for part in w.parts]
        y = multiply(mx.zeros((2, 64), dtype), w)
        assert y.shape == (2, 0)
        mx.eval(y)


# --- A row's bits


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "kind"),
    [*zip(DTYPES, ((4, 64), (8, 32), (8, 128)), strict=True), (mx.bfloat16, (4, 32))],
    ids=str,
)
def test_a_row_has_the_same_bits_in_any_batch(dtype, kind, most_rows):
    x, w = normal((most_rows, 640), dtype, seed=1), weight(19, 640, dtype, kind)
    all_rows = multiply(x, w)
    for rows in (1, 2, 3, 7, 8, 9, 15):
        if rows >= most_rows:
            continue
        for first in (0, most_rows - rows):
            part = multiply(x[first : first + rows], w)
            assert_same_bits(part, all_rows[first : first + rows], f"{rows} rows from {first}")
    compiled = mx.compile(lambda x: multiply(x, w), shapeless=True)
    mx.eval(compiled(x[:2]))  # whose graph takes any number of rows
    assert_same_bits(compiled(x), all_rows)
    more = compiled(mx.concatenate([x, x[:3]]))
    assert_same_bits(more[:most_rows], all_rows)
    assert_same_bits(more[most_rows:], all_rows[:3])


# --- Beside MLX


@pytest.mark.parametrize("mode", MODES)
def test_other_modes_are_mlxs(mode):
    w = normal((8, 64), mx.float32, seed=1)
    x, r = normal((3, 64), mx.float32, seed=2), normal((3, 8), mx.float32, seed=3)
    parts = mx.quantize(w, mode=mode)
    got = mlx_norms.quantized_matmul(x, *parts, mode=mode)
    assert_same_bits(got, mx.quantized_matmul(x, *parts, mode=mode))
    got = mlx_norms.quantized_matmul(x, *parts, mode=mode, residual=r)
    assert_same_bits(got, mx.quantized_matmul(x, *parts, mode=mode) + r)


@pytest.mark.parametrize("bits", [2, 3, 5, 6])
def test_other_bits_are_mlxs(bits):
    x, w = normal((3, 64), mx.float16, seed=2), weight(8, 64, mx.float16, (bits, 32))
    assert_same_bits(multiply(x, w), composed(x, w))


def test_a_matrix_that_is_not_transposed_is_mlxs():
    x, w = normal((2, 8), mx.float32, seed=2), weight(8, 64, mx.float32, (4, 32))
    options = dict(transpose=False, group_size=32, bits=4)
    got = mlx_norms.quantized_matmul(x, *w.parts, **options)
    assert_same_bits(got, mx.quantized_matmul(x, *w.parts, **options))


def test_batches_of_matrices_are_mlxs():
    parts = mx.quantize(normal((2, 8, 64), mx.float32, seed=1), 32)
    x = normal((2, 3, 64), mx.float32, seed=2)
    got = mlx_norms.quantized_matmul(x, *parts, group_size=32)
    assert_same_bits(got, mx.quantized_matmul(x, *parts, group_size=32))


def test_defaults_are_mlxs():
    x, w = normal((3, 128), mx.float16, seed=2), weight(8, 128, mx.float16, (4, 64))
    assert_same_bits(mlx_norms.quantized_matmul(x, *w.parts), multiply(x, w))
    assert_same_bits(
        mlx_norms.quantized_matmul(x, *w.parts, True, None, None, "affine"), multiply(x, w)
    )


# --- Launches


def test_few_rows_take_one_launch(launches, most_rows):
    for rows, dtype, kind in itertools.product((1, 3, most_rows), DTYPES, KINDS):
        x, w = normal((rows, 128), dtype, seed=rows), weight(20, 128, dtype, kind)
        r = normal((rows, 20), dtype, seed="r")
        mx.eval(x, w.parts, r)
        assert len(launches(multiply(x, w))) == 1
        assert len(launches(multiply(x, w, residual=r))) == 1
    more = mx.zeros((most_rows + 1, 128))
    assert not launches(multiply(more, weight(20, 128, mx.float32, (4, 64))))


def test_each_weight_is_read_once(launches, way, most_rows):
    """Whatever the number of rows."""
    names = ("w", "scales", "zeros") if way == "by tiles" else ("w1", "scales1", "zeros1")
    for rows, kind in itertools.product(range(1, most_rows + 1), ((4, 64), (8, 32))):
        x, w = normal((rows, 512), mx.bfloat16, seed=rows), weight(32, 512, mx.bfloat16, kind)
        mx.eval(x, w.parts)
        (launch,) = launches(multiply(x, w))
        packed, *of_groups = (launch.result.bytes[name][0] for name in names)
        assert packed == w.parts[0].nbytes
        # The four lanes that share a group read them, by tiles; by lanes, all of a vector's.
        times = 4 if way == "by tiles" else kind[1] // 16
        assert of_groups == [times * part.nbytes for part in w.parts[1:]]


def test_like_nodes_are_merged_and_others_are_not(launches):
    x, w = normal((2, 64), mx.float32, seed=1), weight(64, 64, mx.float32, (4, 32))
    other = weight(64, 64, mx.float32, (4, 32), seed=1)
    calls = mx.compile(lambda x: multiply(x, w) + multiply(x, w) + multiply(x, other))
    assert len(launches(calls(x))) == 2


# --- Transforms


def test_derivatives_are_mlxs():
    for rows, kind in itertools.product((2, 17), ((4, 32), (8, 64))):
        x, w = normal((rows, 128), mx.float32, seed=1), weight(9, 128, mx.float32, kind)
        r, cot = normal((rows, 9), mx.float32, seed=2), normal((rows, 9), mx.float32, seed=3)
        packed = w.parts[0]

        def of(f):
            return lambda x, r, s, b: f(x, Quantized([packed, s, b], w.bits, w.group_size), r)

        ours = of(lambda x, w, r: multiply(x, w, residual=r))
        primals = [x, r, *w.parts[1:]]
        _, got = mx.vjp(ours, primals, [cot])
        _, expected = mx.vjp(of(lambda x, w, r: composed(x, w, r)), primals, [cot])
        for a, b in zip(got, expected, strict=True):
            assert_same_bits(a, b)
        tangent = normal(x.shape, mx.float32, seed=4)
        _, (got,) = mx.jvp(lambda x: multiply(x, w, residual=r), [x], [tangent])
        _, (expected,) = mx.jvp(lambda x: composed(x, w, r), [x], [tangent])
        assert_same_bits(got, expected)


def test_packed_weights_have_no_derivative():
    x, w = normal((2, 64), mx.float32, seed=1), weight(9, 64, mx.float32, (4, 32))

    def loss(packed):
        return multiply(x, Quantized([packed, *w.parts[1:]], 4, 32)).sum()

    with pytest.raises((ValueError, RuntimeError), match="quantized weights|float"):
        mx.grad(loss)(w.parts[0])


@pytest.mark.parametrize("which", [1, 2])
def test_weights_are_not_mapped(which):
    x, w = normal((2, 64), mx.float32, seed=1), weight(9, 64, mx.float32, (4, 32))

    def f(part):
        parts = [*w.parts]
        parts[which] = part
        return multiply(x, Quantized(parts, 4, 32))

    with pytest.raises(ValueError, match="none of w, scales and biases"):
        mx.eval(mx.vmap(f)(mx.stack([w.parts[which]] * 2)))


# --- Bad input


def test_bad_input():
    x, w = normal((2, 64), mx.float32, seed=1), weight(9, 64, mx.float32, (4, 32))
    with pytest.raises(ValueError, match=r"residual must have the product's shape \(2,9\)"):
        multiply(x, w, residual=mx.zeros((9,)))
    with pytest.raises(ValueError, match="residual must be float32"):
        multiply(x, w, residual=mx.zeros((2, 9), mx.int32))
    with pytest.raises(ValueError, match="quantized_matmul"):
        multiply(mx.zeros((2, 65)), w)
    with pytest.raises(ValueError, match="mode"):
        multiply(x, w, mode="affinity")
    with pytest.raises(ValueError, match="Biases"):
        mlx_norms.quantized_matmul(x, *w.parts[:2], group_size=32)
    for mode in ("affine", "mxfp4"):
        parts = w.parts if mode == "affine" else mx.quantize(mx.ones((9, 64)), mode=mode)
        with pytest.raises(ValueError, match="residual"):
            mlx_norms.quantized_matmul(
                x, *parts, group_size=32, mode=mode, residual=mx.zeros((9, 2))
            )
