"""A call made before is encoded by the plan of then, with the arrays at hand."""

import threading

import mlx.core as mx
import pytest

import mlx_norms
from mlx_norms import _ext
from support.inputs import normal
from support.layouts import odd_offset
from support.rope_case import norm_rope, qk_norm_rope

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.gpu]

W, B = (normal((64,), mx.float32, seed=seed) for seed in (100, 99))
HEADS = normal((3, 64), mx.float32, seed=101)
MATRIX = normal((40, 64), mx.float32, seed=102)
QUANTIZED = mx.quantize(MATRIX, group_size=32, bits=4)
mx.eval(W, B, HEADS, MATRIX, QUANTIZED)


def x(seed, *shape, dtype=mx.float32):
    """An array of its own, that nobody else holds."""
    a = normal(shape or (2, 3, 64), dtype, seed=seed)
    mx.eval(a)
    return a


def gradient(seed):
    _, (gradient,) = mx.vjp(lambda a: mlx_norms.rms_norm(a, W), [x(seed)], [x(seed + 50)])
    return gradient


# Of a seed: what one call returns.
CALLS = {
    "rms_norm": lambda i: mlx_norms.rms_norm(x(i), W),
    "layer_norm": lambda i: mlx_norms.layer_norm(x(i), W, B),
    "of one array twice": lambda i: mlx_norms.add_rms_norm(*[x(i)] * 2, W)[0],
    "add_rms_norm": lambda i: mlx_norms.add_rms_norm(x(i), x(i + 50), W),
    "one weight for both": lambda i: mlx_norms.rms_norms(
        [x(i, 1, 2, 64), x(i + 50, 1, 3, 64)], [W, W], 1e-5
    ),
    "queries and keys": lambda i: mlx_norms.rms_norms(
        [x(i, 1, 2, 64), x(i + 50, 1, 3, 64)], [W, B], 1e-5
    ),
    "norm_rope": lambda i: norm_rope(x(i, 2, 3, 4, 64), W, offset=i),
    "qk_norm_rope, packed": lambda i: qk_norm_rope(
        *mx.split(x(i, 2, 3, 4, 64), 2, axis=2), W, B, offset=mx.array([i, 7 * i])
    ),
    "scale of a sample": lambda i: mlx_norms.layer_norm(x(i), scale=x(i + 50, 2, 1, 64)),
    "scale of all rows": lambda i: mlx_norms.layer_norm(x(i), scale=x(i + 50, 1, 1, 64)),
    "gate": lambda i: mlx_norms.rms_norm(x(i), W, gate=x(i + 50), activation="silu"),
    "weights of heads": lambda i: mlx_norms.rms_norm(x(i), HEADS, 1e-5),
    "part of an array": lambda i: mlx_norms.rms_norm(x(i, 2, 3, 128)[..., 64:], W),
    "two parts of an array": lambda i: mlx_norms.rms_norms(
        mx.split(x(i, 1, 4, 64), 2, axis=1), [W, B], 1e-5
    ),
    "in the memory of x": lambda i: mlx_norms.rms_norm(x(i) * 2, W),
    "gradient": gradient,
    "channels": lambda i: mlx_norms.rms_norm(x(i, 2, 8, 64), axis=1),
    "norm_add_norm": lambda i: mlx_norms.norm_add_norm(x(i), x(i + 50), W, B),
    "matmul": lambda i: mlx_norms.matmul(x(i, 2, 64), MATRIX.T),
    "quantized_matmul": lambda i: mlx_norms.quantized_matmul(
        x(i, 1, 64), *QUANTIZED, group_size=32, bits=4
    ),
    "rms_norm_linear": lambda i: mlx_norms.rms_norm_linear(x(i, 1, 64), W, MATRIX),
}


def bits(results):
    """The bytes of what a call returned."""
    arrays = results if isinstance(results, (tuple, list)) else [results]
    mx.eval(arrays)
    return [bytes(memoryview(mx.view(a, mx.uint8)).tobytes()) for a in arrays]


def forget():
    """Has no call recorded."""
    _ext.set_product_simds(0)


def unrecorded(call, *args):
    forget()
    return bits(call(*args))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_made_again(name):
    call = CALLS[name]
    expected = [unrecorded(call, seed) for seed in range(5)]
    assert len({b"".join(each) for each in expected}) == 5
    forget()
    first = [bits(call(seed)) for seed in range(2)]
    before = _ext.launches_encoded_again()
    assert first + [bits(call(seed)) for seed in range(2, 5)] == expected
    if name != "matmul":  # which is more than one launch on some GPUs
        assert _ext.launches_encoded_again() - before == 3


def test_a_call_of_several_launches_is_planned_each_time():
    def gradients(seed):
        return mx.vjp(mlx_norms.rms_norm, [x(seed), W], [x(seed + 50)])[1]

    expected = [unrecorded(gradients, seed) for seed in range(5)]
    forget()
    before = _ext.launches_encoded_again()
    assert [bits(gradients(seed)) for seed in range(5)] == expected
    assert _ext.launches_encoded_again() == before


def test_arrays_that_were_one_and_are_two():
    for seed in range(3):
        bits(CALLS["of one array twice"](seed))
    before = _ext.launches_encoded_again()
    a, b = x(7), x(8)
    again = bits(mlx_norms.add_rms_norm(a, b, W))
    assert _ext.launches_encoded_again() == before + 1
    assert again == unrecorded(mlx_norms.add_rms_norm, a, b, W)


def test_arrays_that_were_two_and_are_one():
    """The launch was recorded with two arrays; one array may then be both."""
    for seed in range(3):
        bits(mlx_norms.add_rms_norm(x(seed), x(seed + 50), W))
    before = _ext.launches_encoded_again()
    a = x(7)
    again = bits(mlx_norms.add_rms_norm(a, a, W))
    assert _ext.launches_encoded_again() == before + 1
    assert again == unrecorded(mlx_norms.add_rms_norm, a, a, W)


A, R = x(1), x(2)
OTHERS = {
    "eps": lambda: mlx_norms.add_rms_norm(A, R, W, 0.5),
    "offset": lambda: mlx_norms.add_rms_norm(A, R, W, weight_offset=1.0),
    "no weight": lambda: mlx_norms.add_rms_norm(A, R),
    "number": lambda: mlx_norms.add_rms_norm(A, R, W, factor=0.5),
    "0": lambda: mlx_norms.add_rms_norm(A, -0.0 * R, W, factor=0.0),
    "-0": lambda: mlx_norms.add_rms_norm(A, -0.0 * R, W, factor=-0.0),
    "dtype of x": lambda: mlx_norms.add_rms_norm(A.astype(mx.float16), R, W),
    "dtype of the residual": lambda: mlx_norms.add_rms_norm(A, R.astype(mx.float16), W),
    "dtype of the weight": lambda: mlx_norms.add_rms_norm(A, R, W.astype(mx.bfloat16)),
    "dtype of the result": lambda: mlx_norms.add_rms_norm(A, R, W, dtype=mx.float16),
    "every second": lambda: mlx_norms.add_rms_norm(x(3, 2, 3, 128)[..., ::2], R, W),
    "rows apart": lambda: mlx_norms.add_rms_norm(x(4, 2, 3, 128)[..., :64], R, W),
    "rows further apart": lambda: mlx_norms.add_rms_norm(x(5, 2, 3, 192)[..., :64], R, W),
    "other order": lambda: mlx_norms.add_rms_norm(x(6, 3, 2, 64).swapaxes(0, 1), R, W),
    "not aligned": lambda: mlx_norms.add_rms_norm(odd_offset(A), R, W),
    "fewer rows": lambda: mlx_norms.add_rms_norm(A[:1], R[:1], W),
    "as many elements": lambda: mlx_norms.add_rms_norm(
        A.reshape(12, 32), R.reshape(12, 32), W[:32]
    ),
    "residual's rows apart": lambda: mlx_norms.add_rms_norm(A, x(8, 2, 3, 128)[..., :64], W),
    "saturating": lambda: mlx_norms.add_rms_norm(A, R, W, clamp=True),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_call_is_not_taken_for_it(name):
    """Each other call, where all calls have been recorded, also one that differs in one thing."""
    expected = unrecorded(OTHERS[name])
    others = [lambda: mlx_norms.add_rms_norm(A, R, W), *OTHERS.values()]
    for call in [*others, OTHERS[name]]:
        for _ in range(3):
            bits(call())
    before = _ext.launches_encoded_again()
    assert bits(OTHERS[name]()) == expected
    assert _ext.launches_encoded_again() == before + 1


@pytest.mark.parametrize("name", OTHERS)
def test_another_call_has_its_own_launch(name, launches):
    """Right after the one that it differs from in one thing."""

    def launched(call):
        return [(a.kernel, a.constants, a.grid, a.group) for a in launches(*call())]

    forget()
    expected = launched(OTHERS[name])
    forget()
    for _ in range(3):
        bits(mlx_norms.add_rms_norm(A, R, W))
    assert launched(OTHERS[name]) == expected


def test_a_result_in_the_memory_of_x_has_its_own_launch(launches):
    """There it may begin between two vectors, elsewhere it does not."""

    def launched(call):
        (launch,) = launches(call())
        return launch.donated, launch.constants["normalized_flags"]

    forget()
    held = odd_offset(A)
    apart = [launched(lambda: mlx_norms.rms_norm(held, W)) for _ in range(3)]
    assert launched(lambda: mlx_norms.rms_norm(odd_offset(A), W)) == (True, 0) != apart[-1]


def test_threads_record_for_themselves():
    call = CALLS["add_rms_norm"]
    expected = [unrecorded(call, seed) for seed in range(4)]
    wrong = []

    def run():
        for _ in range(5):
            wrong.extend(seed for seed in range(4) if bits(call(seed)) != expected[seed])

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_switch_of_geometries_is_heeded():
    for _ in range(3):
        bits(CALLS["rms_norm"](0))
    _ext.set_vectors(False, 0)
    before = _ext.launches_encoded_again()
    bits(CALLS["rms_norm"](0))
    assert _ext.launches_encoded_again() == before
