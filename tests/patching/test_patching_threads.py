"""Patched with fuse=False, a process may evaluate an array in one thread and use it in another."""

import subprocess
import sys

import mlx.core as mx
import pytest

import mlx_norms
from support.inputs import normal

pytestmark = pytest.mark.usefixtures("backend")

# One thread evaluates a pending 1 + w while another builds graphs with it, and evaluates none.
SHARED_WEIGHT = """
import sys, threading
import mlx.core as mx
import mlx_norms

mx.set_default_device(mx.Device(getattr(mx, sys.argv[1])))
mlx_norms.patch(fuse=False)
sys.setswitchinterval(1e-5)
w, x, one = mx.ones((8,)), mx.ones((2, 8)), mx.array(1.0)
mx.eval(w, x, one)
shared, done = [one + w], threading.Event()

def build():
    while not done.is_set():
        for _ in range(20):
            mx.fast.rms_norm(x, shared[0], 1e-5)
            mx.fast.layer_norm(x, shared[0], shared[0], 1e-5)

builder = threading.Thread(target=build)
builder.start()
for _ in range(60000):
    shared[0] = one + w
    mx.eval(shared[0])
done.set()
builder.join()
"""


def test_weight_that_another_thread_evaluates(backend):
    device = "cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu"
    done = subprocess.run(
        [sys.executable, "-c", SHARED_WEIGHT, device], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"


def test_no_argument_is_looked_into():
    """A pending 1 + w is the weight that it is, and a sum the input that it is."""
    x, r, w = (normal(shape, mx.float32, seed=i) for i, shape in enumerate([(2, 8), (2, 8), (8,)]))
    expected = mx.fast.rms_norm(x + r, 1.0 + w, 1e-5)
    with mlx_norms.patched(fuse=False):
        y = mx.fast.rms_norm(x + r, 1.0 + w, 1e-5)
        report = mlx_norms.report()
    assert report.offsets == 0 and report.fused == 0
    assert mx.allclose(y, expected)
