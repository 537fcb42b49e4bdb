"""Norms of functions that were compiled before the patch, which on a GPU are MLX's own nodes."""

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from support.inputs import normal
from support.patched_runs import ALONE, EPS, FUSED

pytestmark = pytest.mark.usefixtures("backend")

ROWS, DIMS = 4, 64
NORMS = {
    "rms_norm": lambda x, w, b: mx.fast.rms_norm(x, w, EPS),
    "rms_norm, no weight": lambda x, w, b: mx.fast.rms_norm(x, None, EPS),
    "layer_norm": lambda x, w, b: mx.fast.layer_norm(x, w, b, EPS),
    "layer_norm, no bias": lambda x, w, b: mx.fast.layer_norm(x, w, None, EPS),
    "layer_norm, no weight": lambda x, w, b: mx.fast.layer_norm(x, None, b, EPS),
}


@pytest.fixture(params=NORMS)
def compiled(request):
    """Called once, so that MLX has traced it."""
    function = mx.compile(NORMS[request.param])
    mx.eval(function(*inputs()[1:]))
    return function


def inputs():
    r, x = (normal((ROWS, DIMS), mx.float32, seed=seed) for seed in "rx")
    w, b = (normal((DIMS,), mx.float32, seed=seed, mean=0.5) for seed in "wb")
    mx.eval(r, x, w, b)
    return r, x, w, b


def evaluated(*arrays):
    """The arrays and what the report says of the norms in their graphs."""
    mx.eval(*arrays)
    return [np.array(a) for a in arrays], mlx_norms.report().reasons


def test_alone(compiled):
    _, x, w, b = inputs()
    [expected], _ = evaluated(compiled(x, w, b))
    with mlx_norms.patched():
        [y], reasons = evaluated(compiled(x, w, b))
    assert reasons == ({} if on_cpu() else {ALONE: 1})
    assert np.allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_with_the_addition_before(compiled):
    r, x, w, b = inputs()

    def both():
        h = x + r
        return h, compiled(h, w, b)

    (h, y), _ = evaluated(*both())
    with mlx_norms.patched():
        (h2, y2), reasons = evaluated(*both())
    assert reasons == ({} if on_cpu() else {FUSED: 1})
    assert np.array_equal(h2, h)
    assert np.allclose(y2, y, rtol=1e-5, atol=1e-5)


def test_unpatched(compiled):
    _, x, w, b = inputs()
    with mlx_norms.patched(fuse=False):
        _, reasons = evaluated(compiled(x, w, b))
    assert reasons == {}


def on_cpu():
    """Where MLX's norms are operations, which mx.compile has made one node of."""
    return mx.default_device() == mx.cpu
