"""Drawn graphs of norms and what stands around them, evaluated in pieces, with some arrays held."""

import functools
import random

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.activations import swiglu

import mlx_norms
from mlx_norms import _ext
from support.inputs import normal
from support.patched_runs import operations

pytestmark = pytest.mark.usefixtures("backend")

B, T, D, EPS = 2, 3, 64, 1e-2
STEPS = 24


def root(x):
    return mx.rsqrt((x * x).mean(-1, keepdims=True) + EPS)


# By how many arrays of rows each takes; the last two arguments are a vector and a scale.
OPERATIONS = [
    (1, lambda x, v, s: mx.fast.layer_norm(x, None, None, EPS)),
    (1, lambda x, v, s: mx.fast.rms_norm(x, v, EPS)),
    (1, lambda x, v, s: mx.fast.rms_norm(x, None, EPS)),
    (1, lambda x, v, s: mx.fast.rms_norm(x[:, ::-1], v, EPS)),
    (1, lambda x, v, s: 0.3 * mx.fast.rms_norm(x, None, EPS)),
    (1, lambda x, v, s: x[:, ::-1]),
    (1, lambda x, v, s: x * root(x)),
    (1, lambda x, v, s: x * root(x) * v),
    (1, lambda x, v, s: mx.fast.layer_norm(x, v, None, EPS) * (1 + s)),
    (1, lambda x, v, s: x * (1 + s)),
    (1, lambda x, v, s: x * (1 + s) + v),
    (1, lambda x, v, s: x + s),
    (1, lambda x, v, s: mx.tanh(x)),
    (1, lambda x, v, s: x * (1 + mx.tanh(x.mean(1, keepdims=True)))),
    (2, lambda x, y, v, s: mx.fast.rms_norm(x + y, v, EPS)),
    (2, lambda x, y, v, s: x + y),
    (2, lambda x, y, v, s: x + y * s),
    (2, lambda x, y, v, s: x * (1 + mx.tanh(y.mean(1, keepdims=True)))),
    (2, lambda x, y, v, s: x + mx.fast.rms_norm(y, v, EPS)),
]
# On the simulated device MLX computes these on the CPU, by other roundings than our kernels.
ACTIVATIONS = [
    (1, lambda x, v, s: nn.silu(x)),
    (1, lambda x, v, s: x * mx.sigmoid(x)),
    (1, lambda x, v, s: nn.gelu(x)),
    (2, lambda x, y, v, s: mx.fast.rms_norm(x, v, EPS) * nn.silu(y)),
    (2, lambda x, y, v, s: swiglu(y, x)),
    (2, lambda x, y, v, s: x * (y * mx.sigmoid(y))),
]


def run(seed, evaluates, dtype=mx.float32, operations=(*OPERATIONS, *ACTIVATIONS)):
    """All arrays that were ever evaluated or held to the end, in order."""
    draw = random.Random(seed)
    vectors = [normal((D,), dtype, seed=f"v{i}", mean=0.5) for i in range(2)]
    scales = [normal((B, 1, D), dtype, seed=f"s{i}") * 0.3 for i in range(2)]
    live = [normal((B, T, D), dtype, seed=f"x{i}") for i in range(3)]
    mx.eval(vectors, scales, live)
    results = []
    for _ in range(STEPS):
        takes, operation = draw.choice(operations)
        # Mostly the newest ones, so that chains come out.
        picked = [live[-1 - min(int(draw.expovariate(1.0)), len(live) - 1)] for _ in range(takes)]
        live.append(operation(*picked, draw.choice(vectors), draw.choice(scales)))
        while len(live) > 3 and draw.random() < 0.7:
            live.pop(draw.randrange(len(live) - 1))
        picked = None
        if draw.random() < 0.15:
            roots = [a for a in live if draw.random() < 0.5]
            evaluates(roots, live)
            results += roots
    evaluates(live, live)
    return results + live


def stock(roots, live):
    mx.eval(roots)


def passed(roots, live):
    """Nothing that is left over, held or not, is computed again."""
    before = operations(*live).total()
    _ext.fuse_at_eval(roots, True, True)
    assert operations(*live).total() <= before
    mx.eval(roots)


@pytest.mark.parametrize("block", range(10))
def test_values(block):
    around = inline = 0
    for seed in range(12 * block, 12 * block + 12):
        expected = run(seed, stock)
        with mlx_norms.patched():
            ours = run(seed, passed)
            report = mlx_norms.report()
        around += sum(report.around.values())
        inline += sum(report.written.values())
        for a, b in zip(ours, expected, strict=True):
            a, b = np.array(a), np.array(b)
            assert np.max(np.abs(a - b)) <= 2e-4 * np.max(np.abs(b)), seed
    assert around > 10
    assert inline > 1


# What makes arrays here.
METHODS = ("add", "radd", "mul", "rmul", "getitem")
MADE_BY = [(mx.array, f"__{name}__") for name in METHODS]
MADE_BY += [(mx.array, "mean")]
MADE_BY += [(mx, name) for name in ("rsqrt", "sigmoid", "tanh")]
MADE_BY += [(mx.fast, name) for name in ("rms_norm", "layer_norm")]


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=str)
@pytest.mark.parametrize("block", range(4))
def test_values_do_not_depend_on_variables(block, dtype, monkeypatch, backend):
    """Bits are the same if each intermediate is held to the end and if none is."""
    held = []
    ours = [] if backend == "metal-sim" else ACTIVATIONS
    drawn = functools.partial(run, dtype=dtype, operations=[*OPERATIONS, *ours])

    def keeping(function):
        @functools.wraps(function)
        def keep(*args, **kwargs):
            held.append(function(*args, **kwargs))
            return held[-1]

        return keep

    for seed in range(12 * block, 12 * block + 12):
        with mlx_norms.patched():
            given_up = drawn(seed, stock)
            with monkeypatch.context() as patch:
                for owner, name in MADE_BY:
                    patch.setattr(owner, name, keeping(getattr(owner, name)))
                kept = drawn(seed, stock)
        assert len(held) > STEPS
        held.clear()
        for a, b in zip(kept, given_up, strict=True):
            assert mx.array_equal(a, b), seed
