"""The kernel of a norm and its projections: what depends on how it is launched."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from mlx_norms import _ext
from support.bits import assert_same_bits
from support.linear_case import OPS, Quantized, case, most_rows, truths
from support.norm_case import DTYPES
from support.oracle import exact

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("backend")]

KINDS = (None, (4, 64), (8, 32))


def check(call, note=""):
    __tracebackhide__ = True
    for truth, got in zip(truths(call, True), call(), strict=True):
        truth.check(got, note)


@pytest.fixture(autouse=True)
def one_launch_of_few_bits(backend):
    """Of layer norms, too, which Metal takes apart otherwise."""
    _ext.set_product_rows(0 if backend == "cuda" else most_rows(None))
    yield
    _ext.set_product_rows(0)


@pytest.fixture
def launch(launches):
    """What the simulated device counts of the one launch of a call."""

    def launch(call):
        mx.eval(call.flat())
        (launch,) = launches(call())
        return launch

    return launch


@pytest.mark.parametrize("residual", (False, True))
@pytest.mark.parametrize("kind", KINDS)
def test_layer_norm_of_rows_with_an_outlier(kind, residual):
    """The shift is the mean of the first elements, and an outlier there takes it far away."""
    for dtype, length in ((mx.float32, 8192), (mx.bfloat16, 8192), (mx.float32, 192)):
        options = dict(kinds=(kind,), residual=residual, biases=(True,))
        call = case("layer_norm_linear", (4, length), (5,), dtype, **options)
        ordinary = call()[0]
        x = np.array(call.arrays["x"].astype(mx.float32))
        x[0, 0] = 9e18
        x[1, 17] = -4e17
        x[2, -1] = 9e18
        call.arrays["x"] = mx.array(x).astype(dtype)
        check(call)
        assert_same_bits(call()[0][3], ordinary[3], "beside rows with outliers")


# About the lengths from which 2, 4 and 8 SIMD-groups share a row: of float32, 16 bits and packed.
@pytest.mark.parametrize("op", OPS)
def test_rows_that_simd_groups_share(op):
    lengths = {
        mx.float32: (1023, 1024, 1025, 2048, 4096),
        mx.float16: (2047, 2048, 2049, 4095, 8192),
        mx.bfloat16: (2056, 4096, 4097, 8184),
    }
    for dtype, of in lengths.items():
        for i, length in enumerate(of):
            options = dict(residual=i % 2 == 0, biases=(i % 2 == 1,), gated=i == 3)
            widths = (3, 3) if i == 3 else (5,)
            check(case(op, (1 + i // 2, length), widths, dtype, **options))


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("op", OPS)
def test_packed_rows_that_simd_groups_share(op, kind):
    for rows, length, dtype in ((1, 4096, DTYPES[2]), (2, 4160, DTYPES[1]), (1, 8256, DTYPES[0])):
        check(case(op, (rows, length), (3, 2), dtype, kinds=(kind,), residual=rows == 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", OPS)
def test_a_row_has_the_same_bits_in_any_batch(op, kind):
    """Of up to 8 rows each launch computes its own number, and of more several blocks."""
    for dtype, length in ((mx.float32, 192), (mx.bfloat16, 2112)):
        call = case(op, (19, length), (9,), dtype, kinds=(kind,), residual=True)
        flat = call.flat()
        compiled = mx.compile(call, shapeless=True)
        few = [a[:2] if a.shape == flat[0].shape else a for a in flat]
        mx.eval(compiled(*few))  # whose graph takes any number of rows
        (all_rows, sums) = compiled(*flat)
        for first, rows in ((0, 1), (1, 2), (4, 3), (6, 4), (2, 5), (8, 7), (11, 8)):
            if rows > most_rows(kind):
                continue
            part = [a[first : first + rows] if a.shape == flat[0].shape else a for a in flat]
            y, s = call(*part)
            assert_same_bits(y, all_rows[first : first + rows], f"{call}: {rows} rows")
            assert_same_bits(s, sums[first : first + rows], f"{call}: {rows} rows")


def test_more_rows_do_not_change_how_a_row_is_shared():
    """So many outputs of them are enough to fill a GPU without."""
    call = case("rms_norm_linear", (most_rows(None), 1024), (257,), mx.float32)
    one = call(call.arrays["x"][:1], *call.flat()[1:])[0]
    assert_same_bits(one, call()[0][:1])


def moved(a):
    """The same values, at an address that no vector has."""
    flat = mx.concatenate([a[:1, :1].reshape(-1), a.reshape(-1)])
    mx.eval(flat)
    shifted = flat[1:].reshape(a.shape)
    mx.eval(shifted)
    return shifted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", OPS)
def test_weights_that_are_not_aligned(op, kind):
    for dtype, rows in itertools.product(DTYPES, (1, 3)):
        call = case(op, (rows, 128), (5, 2), dtype, kinds=(kind,))
        for i, w in enumerate(call.weights):
            if isinstance(w, Quantized):
                w.parts = [moved(part) for part in w.parts]
            else:
                call.weights[i] = moved(w)
        check(call)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_value_far_off_in_a_row(dtype):
    """Wherever it stands, also where the layer norm's shift is taken from."""
    for length, at in itertools.product((40, 2048), (0, 17, -1)):
        call = case("layer_norm_linear", (2, length), (5,), dtype, seed=at)
        x = exact(call.arrays["x"])
        x[0, at] = 3e3
        call.arrays["x"] = mx.array(x).astype(dtype)
        # It is nearly all of the outputs, which then show what is lost of its row's scale.
        only = 1e-3 + np.eye(length)[at]
        for name in ("norm_weight", "norm_bias"):
            call.arrays[name] = mx.array(exact(call.arrays[name]) * only).astype(dtype)
        check(call, f"at {at}")


def test_constant_rows():
    """Nothing but the norm's bias is left, projected."""
    for length, value in itertools.product((1, 3, 33, 1000, 2049), (0.1, -1e5)):
        call = case("layer_norm_linear", (2, length), (5,), mx.float32)
        call.arrays["x"] = mx.full((2, length), value)
        check(call, str(value))


def test_a_wide_vocabulary():
    """More outputs than blocks of one projection, of which the last one is not full."""
    check(case("rms_norm_linear", (1, 32), (4099, 2, 1), mx.bfloat16, kinds=((4, 32),)))
    check(case("rms_norm_linear", (2, 8), (4097,), mx.bfloat16, residual=True))


def test_a_gate_far_from_zero():
    call = case("rms_norm_linear", (2, 64), (6, 6), mx.float32, gated=True, biases=(True,))
    call.weights[0] = 40 * call.weights[0]
    check(call)
    assert np.abs(exact(call()[0])).max() > 100  # some gates are open, and some are closed


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_read_once(launch, kind):
    for rows, length in ((1, 512), (8, 512), (1, 4096)):
        call = case("rms_norm_linear", (rows, length), (8, 16), mx.bfloat16, kinds=(kind,))
        counted = launch(call).result.bytes
        for i, w in enumerate(call.weights, 1):
            parts = dict(zip((f"w{i}", f"scales{i}", f"zeros{i}"), getattr(w, "parts", [w])))
            vectors = dict.fromkeys(parts, 1)
            if kind:  # that share a group each read its scale
                vectors[f"scales{i}"] = vectors[f"zeros{i}"] = kind[1] // 16
            for name, part in parts.items():
                assert counted[name][0] == vectors[name] * part.nbytes, name
            assert counted[f"y{i}"][1] == rows * w.shape[0] * call.arrays["x"].itemsize


def test_an_outlier_takes_no_second_pass(launch):
    """The mean of the first elements is near enough to that of all, where one of them is not."""
    call = case("layer_norm_linear", (2, 512), (8,), mx.float32)
    call.arrays["x"][:, 0] = 50
    assert launch(call).result.bytes["w1"][0] == call.weights[0].nbytes


def test_only_shared_rows_have_barriers(launch):
    for length, shared in ((1024, False), (2048, True), (8192, True)):
        found = launch(case("rms_norm_linear", (1, length), (8,), mx.bfloat16)).result
        assert (found.barriers > 0) == shared
