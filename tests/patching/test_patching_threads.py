"""What threads of a patched process may share: what those of stock MLX may."""

import subprocess
import sys

import mlx.core as mx
import pytest

import mlx_norms
from support.inputs import normal

pytestmark = pytest.mark.usefixtures("backend")

# One thread evaluates a pending 1 + w and a sum, and another builds graphs with them.
SHARED = """
import sys, threading
import mlx.core as mx
import mlx_norms

mx.set_default_device(mx.Device(getattr(mx, sys.argv[1])))
mlx_norms.patch(fuse=sys.argv[2] == "fuse")
sys.setswitchinterval(1e-5)
w, x, one = mx.ones((8,)), mx.ones((2, 8)), mx.array(1.0)
mx.eval(w, x, one)
shared, done = [one + w, x + x], threading.Event()

def build():
    while not done.is_set():
        for _ in range(20):
            mx.fast.rms_norm(x, shared[0], 1e-5)
            mx.fast.layer_norm(x, shared[0], shared[0], 1e-5)
            mx.fast.rms_norm(shared[1], w, 1e-5)
            mx.fast.rope(shared[1].reshape(1, 1, 2, 8), 8, **rope)

rope = dict(traditional=False, base=1e4, scale=1.0, offset=0)
builder = threading.Thread(target=build)
builder.start()
for _ in range(60000):
    shared[0], shared[1] = one + w, x + x * 2
    mx.eval(shared[0], shared[1])
done.set()
builder.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("fuse", ["fuse", ""])
def test_what_another_thread_evaluates(backend, fuse):
    device = "cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu"
    done = subprocess.run(
        [sys.executable, "-c", SHARED, device, fuse], capture_output=True, text=True
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


# Threads that answer requests with one model, each with a copy of a prompt's evaluated cache.
REQUESTS = """
import copy, os, sys, threading
import mlx.core as mx
import mlx_norms
from mlx_norms._measure.models import new_cache
from mlx_norms.commands import _tiny_models

device = mx.Device(getattr(mx, sys.argv[1]))
mx.set_default_device(device)
sys.setswitchinterval(1e-5)
model = _tiny_models.build("gemma2")
prefix = new_cache(model)
mx.eval(model.parameters(), model(mx.array([[1, 2, 3]]), cache=prefix))
mx.eval([layer.state for layer in prefix])

def answer(seed):
    cache, token, tokens = copy.deepcopy(prefix), mx.array([[seed]]), []
    for _ in range(12):
        token = mx.argmax(model(token, cache=cache)[:, -1:], axis=-1)
        mx.async_eval(token)
        tokens.append(token.item())
    return tokens

expected = [answer(seed) for seed in range(4)]
mlx_norms.patch(fuse=sys.argv[2] == "fuse", projections=sys.argv[3] == "projections")
wrong = []

def serve(seed):
    mx.set_default_device(device)
    for _ in range(2):
        if answer(seed) != expected[seed]:
            wrong.append(seed)

threads = [threading.Thread(target=serve, args=[seed]) for seed in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(expected), wrong, mlx_norms.report().calls > 0, mlx_norms.report().fused > 0, flush=True)
os._exit(0)  # MLX itself may abort as such a process exits
"""


PAIRS = [("", ""), ("fuse", "projections")]
OTHERS = [("fuse", ""), ("", "projections")]
PAIRS += [pytest.param(*pair, marks=pytest.mark.slow) for pair in OTHERS]


@pytest.mark.parametrize("fuse, projections", PAIRS)
def test_requests_of_several_threads(backend, fuse, projections):
    device = "cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu"
    done = subprocess.run(
        [sys.executable, "-c", REQUESTS, device, fuse, projections], capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == (f"4 [] True {bool(fuse)}\n", 0), done.stderr


# Four threads, each with a model of its own and one of all, while another patches and unpatches.
ROUNDS = """
import os, sys, threading, time
import mlx.core as mx
import mlx.nn as nn
import mlx_norms

device = mx.Device(getattr(mx, sys.argv[1]))
mx.set_default_device(device)
D, HEADS = 64, 4

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.RMSNorm(D), nn.LayerNorm(D)
        self.linear, self.rope = nn.Linear(D, D), nn.RoPE(D // HEADS)

    def __call__(self, x):
        h = x + self.linear(self.before(x))
        heads = h.reshape(1, -1, HEADS, D // HEADS).transpose(0, 2, 1, 3)
        y = self.after(h + self.rope(heads).transpose(0, 2, 1, 3).reshape(h.shape))
        return y * mx.rsqrt(mx.mean(mx.square(y), -1, keepdims=True) + 1e-5) * self.before.weight

shared, models = Block(), [Block() for _ in range(4)]
inputs = [mx.random.normal((1, 1 + i, D)) for i in range(4)]

def both(i):
    return models[i](inputs[i]), shared(inputs[i])

def gradient(i):
    return mx.grad(lambda x: mx.sin(mx.arange(D) + models[i](x)).sum())(inputs[i])

def off(got, expected):
    return mx.abs(got - expected).max().item() / mx.abs(expected).max().item()

expected = [(*both(i), gradient(i)) for i in range(4)]
mx.eval([model.parameters() for model in [shared, *models]], inputs, expected)
wrong, done, n_rounds = [], threading.Event(), [0] * 4

def serve(i):
    mx.set_default_device(device)
    for n in range(2000):
        own, all_ = both(i)
        if n % 3 == 0:
            mx.async_eval(own)
            mx.eval(all_)
        elif n % 3 == 1:
            all_.sum().item()
        results = [own, all_] + ([gradient(i)] if n % 7 == 3 else [])
        mx.eval(results)
        if any(not off(got, ref) < 1e-4 for got, ref in zip(results, expected[i])):
            wrong.append((i, n))
        n_rounds[i] += 1

def switch():
    while not done.is_set():
        mlx_norms.patch()
        str(mlx_norms.report())
        with mlx_norms.patched(fuse=False):
            time.sleep(0.0005)
        mlx_norms.unpatch()
        time.sleep(0.0005)

threads = [threading.Thread(target=serve, args=[i]) for i in range(4)]
switching = threading.Thread(target=switch)
for thread in [*threads, switching]:
    thread.start()
for thread in threads:
    thread.join()
done.set()
switching.join()
print(n_rounds, wrong, flush=True)
os._exit(0)  # as above
"""


@pytest.mark.slow
def test_rounds_while_another_thread_patches(backend):
    device = "cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu"
    done = subprocess.run([sys.executable, "-c", ROUNDS, device], capture_output=True, text=True)
    assert (done.stdout, done.returncode, done.stderr) == (f"{[2000] * 4} []\n", 0, "")
