"""Functions that are named as norms, in modules that have MLX, are ours as layers are."""

import sys
import types
from contextlib import nullcontext

import mlx.core as mx
import mlx.nn as nn
import pytest

import mlx_norms
from support.inputs import normal
from support.written_norms import EPS, WIDTH, norm

pytestmark = pytest.mark.usefixtures("backend")

SOURCE = """
import mlx.core as mx
import mlx.nn as nn

SCALE = 1.0


def rms_norm(x, weight=None, eps=1e-3):
    wide = x.astype(mx.float32)
    wide = wide * mx.rsqrt(mx.mean(wide * wide, axis=-1, keepdims=True) + SCALE * eps)
    wide = wide.astype(x.dtype)
    return wide if weight is None else wide * weight


def l2norm(x, dim=-1, eps=1e-3):
    return x * mx.rsqrt(mx.sum(x * x, axis=dim, keepdims=True) + eps)


def gated_norm(x, gate):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + 1e-3) * gate


def norm_after_eps(eps, x):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + eps)


def norm_and_root(x):
    root = mx.rsqrt((x * x).mean(-1, keepdims=True) + 1e-3)
    return x * root, root


@mx.compile
def compiled_norm(x, weight):
    return weight * (x * mx.rsqrt((x * x).mean(-1, keepdims=True) + 1e-3))


def norm_by_compiled(x, weight):
    return compiled_norm(x, 1 + weight)


mapped_norm = mx.vmap(rms_norm, in_axes=-1, out_axes=-1)


def scaled(x):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + 1e-3)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = mx.ones((96,))

    @staticmethod
    def l2_normalize(x, eps=1e-3):
        return x * mx.rsqrt(mx.sum(x * x, axis=-1, keepdims=True) + eps)

    def pixel_norm(self, x, eps=1e-3):
        return x / mx.sqrt(mx.mean(x * x, axis=-1, keepdims=True) + eps)

    def weighted_norm(self, x):
        return self.weight * self.pixel_norm(x)

    def norm_of_a_closure(self, x):
        eps = lambda: 1e-3 * self.weight[0]
        return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + eps())

    def norm_of_a_base(self, x):
        super().train()
        return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + 1e-3)

    def norm_of_all(*given):
        return given[1] * mx.rsqrt(mx.mean(given[1] ** 2, axis=-1, keepdims=True) + 1e-3)

    def __call__(self, x, w):
        return l2norm(rms_norm(x, self.weight * w))
"""


def module_of(name, source=SOURCE, **names):
    module = types.ModuleType(name)
    vars(module).update(names)
    exec(compile(source, name, "exec"), vars(module))
    return module


@pytest.fixture
def module(monkeypatch):
    module = module_of("a_model_file")
    monkeypatch.setitem(sys.modules, "a_model_file", module)
    return module


def x_of(dtype=mx.float32):
    return (normal((2, 5, WIDTH), mx.float32, seed="x", mean=0.5) * 0.1).astype(dtype)


def weight():
    return normal((WIDTH,), mx.float32, seed="weight", mean=1.0)


def close(a, b):
    return mx.allclose(a, b, rtol=1e-5, atol=1e-5, stream=mx.cpu)


def l2(x, eps=EPS):
    return x * mx.rsqrt((x * x).sum(-1, keepdims=True) + eps)


CALLS = [
    ("rms_norm", lambda f, x, w: f(x), lambda x, w: norm(x)),
    ("rms_norm", lambda f, x, w: f(x, w), lambda x, w: norm(x) * w),
    ("rms_norm", lambda f, x, w: f(x, w, 0.5), lambda x, w: norm(x, eps=0.5) * w),
    ("rms_norm", lambda f, x, w: f(x, eps=0.25, weight=w), lambda x, w: norm(x, eps=0.25) * w),
    ("rms_norm", lambda f, x, w: f(x, None, 0.5), lambda x, w: norm(x, eps=0.5)),
    ("compiled_norm", lambda f, x, w: f(x, w), lambda x, w: norm(x) * w),
    ("norm_by_compiled", lambda f, x, w: f(x, w), lambda x, w: norm(x) * (1 + w)),
    ("gated_norm", lambda f, x, w: f(x, x * w), lambda x, w: norm(x) * x * w),
    ("norm_after_eps", lambda f, x, w: f(0.5, x), lambda x, w: norm(x, eps=0.5)),
    ("l2norm", lambda f, x, w: f(x), lambda x, w: l2(x)),
    ("l2norm", lambda f, x, w: f(x, -1, 0.5), lambda x, w: l2(x, 0.5)),
    ("l2norm", lambda f, x, w: f(x, dim=-1), lambda x, w: l2(x)),
]


@pytest.mark.parametrize("transform", ["plain", "compile", "vmap", "checkpoint"])
@pytest.mark.parametrize("name, call, expected", CALLS)
def test_values_and_gradients(module, name, call, expected, transform):
    x, w = x_of(), weight()
    transforms = {
        "plain": lambda f: f,
        "compile": mx.compile,
        "vmap": lambda f: mx.vmap(f, in_axes=(0, None)),
        "checkpoint": mx.checkpoint,
    }

    def compute(x, w):
        return call(getattr(module, name), x, w)

    def loss(f):
        return lambda x, w: (f(x, w) * mx.cos(x)).sum()

    with mlx_norms.patched():
        y = transforms[transform](compute)(x, w)
        gradients = mx.grad(loss(transforms[transform](compute)), argnums=(0, 1))(x, w)
        report = mlx_norms.report()
    op = "l2_norm" if name == "l2norm" else "rms_norm"
    assert report.written.keys() == {f"{op}: a_model_file.{name}"}
    assert report.left == {}
    assert close(y, expected(x, w))
    for a, b in zip(gradients, mx.grad(loss(expected), argnums=(0, 1))(x, w), strict=True):
        assert mx.allclose(a, b, rtol=1e-4, atol=1e-4, stream=mx.cpu)


def test_transformed_functions_are_left(module):
    """They claim to be the functions that they were made of."""
    x = mx.swapaxes(x_of(), 0, -1)
    stock = module.mapped_norm(x)
    with mlx_norms.patched():
        y = module.mapped_norm(x)
        assert mlx_norms.report().written == {}
    assert mx.array_equal(y, stock, stream=mx.cpu)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
def test_rounded_as_written(module, dtype):
    x, w = x_of(dtype), weight().astype(dtype)
    stock = module.rms_norm(x, w)
    with mlx_norms.patched():
        y = module.rms_norm(x, w)
    assert y.dtype == dtype
    assert mx.mean(y != stock, stream=mx.cpu).item() <= 0.01


def test_called_by_layers_and_imported_by_name(module, monkeypatch):
    source = (
        "import mlx.nn\nclass Other(mlx.nn.Module):\n def __call__(self, x, y):\n  return norm(x)"
    )
    other = module_of("another_file", source, norm=module.l2norm)
    monkeypatch.setitem(sys.modules, "another_file", other)
    layer, x, w = module.Layer(), x_of(), weight()
    stock = layer(x, w), other.Other()(x, x)
    with mlx_norms.patched():
        ours = layer(x, w), other.Other()(x, x)
        report = mlx_norms.report()
    assert all(map(close, ours, stock))
    assert report.written == {
        "l2_norm: a_model_file.l2norm": 2,
        "rms_norm: a_model_file.rms_norm": 1,
    }
    assert other.norm is module.l2norm


@pytest.mark.parametrize("in_block", [True, False])
def test_called_by_a_patched_model(module, in_block):
    model, other, x, w = module.Layer(), module.Layer(), x_of(), weight()
    before, stock = dict(vars(module)), model(x, w)
    written = {"l2_norm: a_model_file.l2norm": 1, "rms_norm: a_model_file.rms_norm": 1}
    with mlx_norms.patched(model) if in_block else nullcontext(mlx_norms.patch(model)):
        assert close(model(x, w), stock)
        assert mlx_norms.report().written == written
        other(x, w), module.rms_norm(x)
        assert mlx_norms.report().written == written
    mlx_norms.unpatch(model)
    assert vars(module) == before


def test_static_methods(module):
    x, before = x_of(), vars(module.Layer)["l2_normalize"]
    with mlx_norms.patched():
        ours = module.Layer.l2_normalize(x), module.Layer().l2_normalize(x, eps=0.5)
        assert mlx_norms.report().written == {"l2_norm: a_model_file.Layer.l2_normalize": 2}
    assert vars(module.Layer)["l2_normalize"] is before
    assert close(ours[0], l2(x))
    assert close(ours[1], l2(x, 0.5))


def test_methods_that_do_not_use_their_layer(module):
    x, layer, before = x_of(), module.Layer(), dict(vars(module.Layer))
    expected = norm(x), norm(x, eps=0.5)
    name = "rms_norm: a_model_file.Layer.pixel_norm"
    with mlx_norms.patched():
        ours = layer.pixel_norm(x), layer.pixel_norm(x=x, eps=0.5)
        assert mlx_norms.report().written == {name: 2}
        ours += (layer.weighted_norm(x), module.Layer.pixel_norm(layer, x))
        assert mlx_norms.report().written == {name: 4}
    assert all(map(close, ours, (*expected, expected[0], expected[0])))
    assert dict(vars(module.Layer)) == before


@pytest.mark.parametrize("name", ["norm_of_a_closure", "norm_of_a_base", "norm_of_all"])
def test_methods_that_may_use_their_layer_are_left(module, name):
    x, layer = x_of(), module.Layer()
    with mlx_norms.patched():
        assert close(getattr(layer, name)(x), norm(x))
        assert mlx_norms.report().left == {}
        assert mlx_norms.report().written.keys() <= {"rms_norm: support.written_norms.norm"}


def test_files_loaded_while_patched(monkeypatch):
    mlx_norms.patch()
    try:
        module = module_of("a_later_file")
        monkeypatch.setitem(sys.modules, "a_later_file", module)
        originals = module.rms_norm, module.l2norm
        module.Layer()(x_of(), weight())
        written = {"l2_norm: a_later_file.l2norm": 1, "rms_norm: a_later_file.rms_norm": 1}
        assert mlx_norms.report().written == written
    finally:
        mlx_norms.unpatch()
    assert (module.rms_norm, module.l2norm) == originals


@pytest.mark.parametrize("loaded_before", [True, False])
def test_modules_without_layers(monkeypatch, loaded_before):
    source = SOURCE.partition("class Layer")[0]
    module, x = module_of("a_file_without_layers", source), x_of()
    if loaded_before:
        monkeypatch.setitem(sys.modules, "a_file_without_layers", module)
    with mlx_norms.patched():
        monkeypatch.setitem(sys.modules, "a_file_without_layers", module)
        type("Unknown", (nn.Module,), {"__module__": "elsewhere"})()
        y = module.rms_norm(x)
        written = {"rms_norm: a_file_without_layers.rms_norm": 1}
        assert mlx_norms.report().written == written
    assert close(y, norm(x))


def test_undone(module):
    before = dict(vars(module))
    with mlx_norms.patched():
        assert module.rms_norm is not before["rms_norm"]
        assert module.rms_norm.__name__ == "rms_norm"
        assert module.scaled is before["scaled"]  # not named as a norm
    assert vars(module) == before


def test_refused(module):
    x, w = x_of(), weight()
    with mlx_norms.patched(written=False):
        module.rms_norm(x, w)
        assert (mlx_norms.report().written, mlx_norms.report().left) == ({}, {})


LEFT = [
    (lambda m, x: m.norm_and_root(x), "norm_and_root", "it returns a tuple, not an array"),
    (
        lambda m, x: m.rms_norm(x, None, mx.array([0.5])),
        "rms_norm",
        "its eps is an array",
    ),
    (lambda m, x: m.l2norm(x, (-1, -2)), "l2norm", "its statistics are over several axes"),
    (lambda m, x: m.l2norm(x, [-1]), "l2norm", "it is called with a list"),
]


@pytest.mark.parametrize("call, name, why", LEFT)
def test_left(module, call, name, why):
    x = x_of()
    stock = call(module, x)
    with mlx_norms.patched():
        y = call(module, x)
        report = mlx_norms.report()
    assert (report.written, report.left) == ({}, {f"a_model_file.{name}": why})
    y, stock = (a if isinstance(a, tuple) else (a,) for a in (y, stock))
    assert all(mx.array_equal(a, b, stream=mx.cpu) for a, b in zip(y, stock, strict=True))


def test_errors_are_the_functions(module):
    with mlx_norms.patched():
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            module.rms_norm()
        with pytest.raises(ValueError, match="broadcast"):
            module.rms_norm(x_of(), mx.ones(7))


def test_a_constant_that_changes(module):
    x = x_of()
    expected = norm(x), norm(x, eps=100 * EPS)
    with mlx_norms.patched():
        assert close(module.rms_norm(x), expected[0])
        module.SCALE = 100.0
        assert close(module.rms_norm(x), expected[1])
        assert mlx_norms.report().written == {"rms_norm: a_model_file.rms_norm": 2}
