"""Streams of one's own, and of several threads."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import mlx.core as mx
import pytest

import mlx_norms
from support import hangs
from support.bits import assert_same_bits
from support.inputs import arguments, cotangents, normal
from support.norm_case import OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize("op", OPS)
def test_stream_argument(op):
    norm = Norm(op)
    arrays = arguments(norm, (5, 65), mx.float16)
    expected = norm(arrays)
    device = mx.default_device()
    for stream in (mx.new_stream(device), mx.default_stream(device), device, device.type):
        for got, e in zip(norm(arrays, stream=stream), expected, strict=True):
            assert_same_bits(got, e, f"{op} on {stream}")


@pytest.mark.parametrize("op", OPS)
def test_between_streams(op):
    """Inputs made on one stream, a norm on another, its results used on a third."""
    norm = Norm(op)
    arrays = arguments(norm, (65, 1025), mx.float32)
    cots = cotangents(norm, arrays)
    streams = [mx.new_stream(mx.default_device()) for _ in range(3)]
    expected = [
        [mx.abs(o) for o in part]
        for part in mx.vjp(norm.function(list(arrays)), [a * 2 for a in arrays.values()], cots)
    ]
    mx.eval(expected)
    for _ in range(10):
        made = [mx.multiply(a, 2, stream=streams[0]) for a in arrays.values()]
        with mx.stream(streams[1]):
            parts = mx.vjp(norm.function(list(arrays)), made, cots)
        got = [[mx.abs(o, stream=streams[2]) for o in part] for part in parts]
        del made, parts
        mx.async_eval(got)
        for a, b in zip([*got[0], *got[1]], [*expected[0], *expected[1]], strict=True):
            assert_same_bits(a, b, op)


def test_context_stream_of_heads():
    q, k = normal((3, 4, 64), mx.float32, seed=1), normal((3, 2, 64), mx.float32, seed=2)
    expected = mlx_norms.rms_norms([q, k], [None, None], 1e-5)
    stream = mx.new_stream(mx.default_device())
    with mx.stream(stream):
        inside = mlx_norms.rms_norms([q, k], [None, None], 1e-5)
    given = mlx_norms.rms_norms([q, k], [None, None], 1e-5, stream=stream)
    for a, b, c in zip(inside, given, expected, strict=True):
        assert_same_bits(a, c)
        assert_same_bits(b, c)
    one = mlx_norms.rms_norm(q, None, 1e-5, stream=stream)
    assert_same_bits(one, expected[0])


def test_threads():
    """Each with a stream of its own, all at once, on arrays that they share."""
    cases = []
    for i, op in enumerate(OPS):
        norm = Norm(op)
        arrays = arguments(norm, (33, 257 + i), mx.float16)
        cots = cotangents(norm, arrays)
        expected = norm.vjp(arrays, cots)
        mx.eval(arrays, cots, expected)
        cases.append((norm, arrays, cots, [*expected[0], *expected[1]]))
    device = mx.default_device()
    n_threads = 4
    start = Barrier(n_threads, timeout=hangs.SECONDS)

    def work(first):
        stream = mx.new_stream(device)
        start.wait()
        with mx.stream(stream):
            for i in range(20):
                norm, arrays, cots, expected = cases[(first + i) % len(cases)]
                parts = norm.vjp(arrays, cots)
                got = [*parts[0], *parts[1]]
                mx.eval(got)
                for a, b in zip(got, expected, strict=True):
                    if not mx.array_equal(a, b).item():
                        return f"{norm.op} in thread {first}, call {i}"
        return None

    with ThreadPoolExecutor(n_threads) as pool:
        assert list(pool.map(work, range(n_threads))) == [None] * n_threads
