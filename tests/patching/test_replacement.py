"""What stands in the place of mx.fast's norms behaves as the function that it replaces."""

import copy
import functools
import gc
import pickle
import subprocess
import sys
import warnings
import weakref

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest

import mlx_norms
from mlx_norms import _ext
from mlx_norms.patching import scope
from support import variant
from support.inputs import normal

NAMES = ("rms_norm", "layer_norm")
X, W = mx.ones((2, 8)), mx.ones(8)


@pytest.fixture(params=NAMES)
def norms(request):
    """MLX's function, and what replaces it."""
    original = getattr(mx.fast, request.param)
    with mlx_norms.patched():
        yield original, getattr(mx.fast, request.param)


def test_it_tells_what_mlx_s_tells(norms):
    original, replacement = norms
    assert replacement is not original and replacement.__wrapped__ is original
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(replacement, name) == getattr(original, name)


def test_copies_and_pickles_are_itself(norms):
    _, replacement = norms
    assert copy.copy(replacement) is copy.deepcopy(replacement) is replacement
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(replacement, protocol)) is replacement
    assert weakref.ref(replacement)() is replacement


WRONG = [
    ((), {}),
    ((X,), {}),
    ((X, W, 1e-5, None, 3), {}),
    ((X,) * 9, {}),
    ((X, W), dict(epsilon=1e-5)),
    ((X, W), dict(eps="small")),
    (("x", W, None, 1e-5), {}),
    ((X, W), {f"k{i}": i for i in range(40)}),
]


@pytest.mark.parametrize("arguments, options", WRONG)
def test_errors_are_mlx_s(norms, arguments, options):
    told = []
    for norm in norms:
        with pytest.raises(TypeError) as caught:
            norm(*arguments, **options)
        told.append(str(caught.value))
    assert told[0] == told[1]


@pytest.mark.parametrize("options", [{}, dict(stream=mx.cpu)])
def test_arguments_by_name_and_position(options):
    """Each is taken by ours."""
    with mlx_norms.patched():
        calls = [
            mx.fast.rms_norm(X, W, 1e-5, **options),
            mx.fast.rms_norm(X, W, eps=1e-5, **options),
            mx.fast.rms_norm(eps=1e-5, weight=W, x=X, **options),
            mx.fast.layer_norm(X, W, None, 1e-5, **options),
            mx.fast.layer_norm(eps=1e-5, bias=W, x=X, weight=None, **options),
        ]
        report = mlx_norms.report()
    assert report.calls == len(calls) and report.passed_on == 0
    assert all(y.shape == X.shape for y in calls)


def test_other_exceptions_of_ours_are_not_hidden(monkeypatch):
    def failing(*arguments, **options):
        raise RuntimeError("planted")

    monkeypatch.setattr(_ext, "patched_rms_norm", failing)
    with mlx_norms.patched(), pytest.raises(RuntimeError, match="planted"):
        mx.fast.rms_norm(X, W, 1e-5)


def test_an_error_of_the_scope_is_not_hidden():
    with mlx_norms.patched():
        entry = scope._innermost.get()
        scope._innermost.set("planted")
        with pytest.raises(AttributeError, match="'str' object has no attribute 'is_open'"):
            mx.fast.rms_norm(X, W, 1e-5)
        scope._innermost.set(entry)


def test_a_circle_of_references_is_freed():
    made = _ext.replacement(mx.fast.rms_norm, "patched_rms_norm", scope)
    made.itself, seen = made, weakref.ref(made)
    del made
    gc.collect()
    assert seen() is None


@pytest.mark.filterwarnings("ignore:nanobind. attempted to access an uninitialized")
@pytest.mark.parametrize("name, parameters", [("rms_norm", (W,)), ("layer_norm", (W, None))])
def test_calls_that_nanobind_does_not_dispatch(name, parameters):
    """They give what the same call by keywords does, and the same errors."""
    ours, fast = getattr(mlx_norms, name), getattr(mx.fast, name)
    with mlx_norms.patched():
        patched = getattr(mx.fast, name)
        for function in (ours, patched):
            quick = function(X, *parameters, 1e-5)
            assert mx.array_equal(quick, function(X, *parameters, eps=1e-5))
            assert mx.array_equal(quick, function(X, *parameters, np.float64(1e-5)))
            assert mx.array_equal(function(X, *parameters, 1), function(X, *parameters, eps=1.0))
        assert mlx_norms.report().calls == 5
    others = [(None, *parameters, 1e-5), (X, "w", *parameters[1:], 1e-5), (X, W[1:], 1e-5)]
    others += [(X, *parameters, "eps"), (mx.array.__new__(mx.array), *parameters, 1e-5)]
    for arguments in others:
        for function, like in ((patched, fast), (ours, None)):
            with pytest.raises((TypeError, ValueError)) as error, mlx_norms.patched():
                function(*arguments)
            if like:
                with pytest.raises(error.type) as expected:
                    like(*arguments)
                assert str(error.value) == str(expected.value)
            else:
                assert str(error.value).startswith((f"[{name}]", "__call__", f"{name}()"))


@pytest.mark.parametrize("owner, name", [(mx.fast, "rms_norm"), (mx.fast, "layer_norm")])
def test_what_others_put_in_place_of_a_function_is_left(monkeypatch, owner, name):
    original, seen = getattr(owner, name), []

    def twice(*args, **kwargs):
        seen.append(name)
        return 2 * original(*args, **kwargs)

    monkeypatch.setattr(owner, name, twice)
    check_is_left(dict(rms_norm=mlx.nn.RMSNorm, layer_norm=mlx.nn.LayerNorm)[name](8), seen)
    assert getattr(owner, name) is twice


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("layer", ["GroupNorm", "InstanceNorm", "BatchNorm"])
def test_what_others_put_in_place_of_a_layer_s_call_is_left(monkeypatch, layer, wraps):
    layer, seen = getattr(mlx.nn, layer), []
    original = layer.__call__

    def twice(self, x):
        seen.append(x.shape)
        return 2 * original(self, x)

    twice = functools.wraps(original)(twice) if wraps else twice
    monkeypatch.setattr(layer, "__call__", twice)
    check_is_left(layer(2, 8) if layer is mlx.nn.GroupNorm else layer(8), seen)
    assert layer.__call__ is twice


def check_is_left(layer, seen):
    """As others hook a layer to see or to change what it computes."""
    x = normal((2, 5, 8), mx.float32, seed="x")
    expected = layer(x)
    mx.eval(expected)
    before = len(seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with mlx_norms.patched():
            y = layer(x)
            mx.eval(y)
            report = mlx_norms.report()
        assert mlx_norms.report().left == {}
    assert len(seen) == before + 1
    assert mx.allclose(y, expected, rtol=1e-5, atol=1e-5)
    [(name, why)] = report.left.items()
    assert "twice" in why and f"{name} is left as it is: {why}" in str(report)


READS = """
import mlx.core as mx, mlx_norms
mx.set_default_device(mx.cpu)
mlx_norms.patch()
x = mx.ones((2, 8))
for read in (lambda y: y.tolist(), lambda y: y[0, 0].item(), mx.eval):
    try:
        read(x * mx.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5))
    except ValueError as error:
        print(error)
"""


def test_what_a_pass_throws_is_an_error_of_python():
    """It came out of a function in C, which ended the process."""
    env = variant.environment(MLX_NORMS_CPU_THREADS="many")
    done = subprocess.run([sys.executable, "-c", READS], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("MLX_NORMS_CPU_THREADS must be a number") == 3
