"""Graphs as deep as models, and of many paths: patching returns, and results are stock's."""

import faulthandler
import os

import mlx.core as mx
import pytest

import mlx_norms
from harness import deep_models
from mlx_norms import _ext
from mlx_norms.commands import _tiny_models
from support import hangs, model_fusions
from support.inputs import normal
from support.patched_runs import assert_close, run_stock

pytestmark = pytest.mark.usefixtures("on_the_cpu")

# Rounding grows with depth: in gemma3n to 9e-5 of the largest logit, and as much in stock's if a
# weight is off by 1e-7; in all others to 4e-5 at most.
TOLERANCES = {"gemma3n": 1e-3}


@pytest.fixture(autouse=True)
def ends(capfd):
    """Ends the process where a test does not return from C++, whose caller this names."""
    with capfd.disabled():
        stderr = os.dup(2)
    faulthandler.dump_traceback_later(hangs.SECONDS, exit=True, file=stderr)
    yield
    faulthandler.cancel_dump_traceback_later()
    os.close(stderr)


def test_depths_are_of_all_models():
    assert list(deep_models.published()) == list(_tiny_models._configurations())


def each_model():
    """One in eight here: what is deep is the same code as what test_models.py has of each."""
    for i, name in enumerate(_tiny_models.names()):
        marks = [
            pytest.mark.applies(model_fusions.is_there(name)),
            *[pytest.mark.slow] * (i % 8 > 0),
        ]
        yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", list(each_model()))
def test_models(name):
    model = deep_models.build(name)
    assert len(model.layers) == deep_models.layers(name)
    tokens = model_fusions.tokens(name)
    stock = model_fusions.logits(model, tokens)
    with mlx_norms.patched():
        patched = model_fusions.logits(model, tokens)
    tolerance = TOLERANCES.get(name, model_fusions.TOLERANCE)
    assert model_fusions.agree(patched, stock, tolerance)


MOST_STEPS, WIDE = 24, 64
B, L, H, D = 1, 3, 2, 32
INPUTS = {
    "q": normal((B, L, H * D), mx.float32, seed="q"),
    "k": normal((B, L, H * D), mx.float32, seed="k"),
    "weight": normal((D,), mx.float32, seed="weight", mean=1.0),
    "matrix": normal((D, D), mx.float32, seed="matrix"),
    "scale": normal((D,), mx.float32, seed="scale"),
    "offset": mx.array([3]),
    "freqs": mx.arange(1.0, D // 2 + 1),
}


def norms(q, k, weight, matrix, scale, offset, freqs):
    """Of each kind that patching looks around: before a rope, after sums, gated, written."""
    q, k = (a.reshape(B, L, H, D) for a in (q, k))

    def norm(x):
        return mx.fast.rms_norm(x, weight, 1e-5)

    def rope(x):
        x = x.transpose(0, 2, 1, 3)
        return mx.fast.rope(
            x, D, traditional=False, base=None, scale=1.0, offset=offset, freqs=freqs
        )

    written = q * mx.rsqrt(mx.mean(q * q, axis=-1, keepdims=True) + 1e-5) * weight
    gated = norm(q) * (1 + scale) * mx.sigmoid(k)
    return [rope(norm(q)), rope(norm(k)), norm(q + k), norm(k + norm(q)) @ matrix, written, gated]


def many_paths(a, steps):
    """An array from which (2 * WIDE) ** ``steps`` paths lead to ``a``."""
    for _ in range(steps):
        a = mx.concatenate([a] * WIDE)[: a.shape[0]]
        a = a + a
    return a


def by_default(function):
    with mlx_norms.patched():
        results = function(*INPUTS.values())
        mx.eval(results)
    return results


def with_products(function):
    _ext.set_products_anywhere(True)
    try:
        with mlx_norms.patched(projections=True):
            results = function(*INPUTS.values())
            mx.eval(results)
    finally:
        _ext.set_products_anywhere(False)
    return results


def compiled(function):
    with mlx_norms.patched():
        return mx.compile(function)(*INPUTS.values())


def fused(function):
    return mlx_norms.fuse(function)(*INPUTS.values())


@pytest.mark.parametrize("run", [by_default, with_products, compiled, fused])
@pytest.mark.parametrize("deep", [*INPUTS, "all"])
def test_many_paths(run, deep):
    """Where a walk counts nodes, some of these graphs end at any count."""
    for steps in range(1, MOST_STEPS + 1):

        def function(*inputs):
            return norms(
                *(
                    many_paths(a, steps) if deep in (name, "all") else a
                    for name, a in zip(INPUTS, inputs, strict=True)
                )
            )

        results = run(function)
    # Once, since MLX's compiled functions take long on the CPU.
    assert_close(results, run_stock(lambda: function(*INPUTS.values())))


@pytest.mark.parametrize("view", ["reshape", "cast"])
def test_a_long_way_to_a_scale(view):
    """More views than frames fit on a thread's stack."""
    x, scale = normal((4, 8), mx.float32, seed="x"), normal((8,), mx.float32, seed="scale")
    mx.eval(x, scale)

    def f():
        factor = 1 + scale
        for i in range(60_000):
            if view == "reshape":
                factor = factor.reshape((8, 1) if i % 2 == 0 else (8,))
            else:
                factor = factor.astype(mx.float32 if i % 2 else mx.float16)
        y = mx.fast.rms_norm(x, None, 1e-5) * factor
        mx.eval(y)
        return y

    stock = run_stock(f)
    with mlx_norms.patched():
        assert_close(f(), stock)
