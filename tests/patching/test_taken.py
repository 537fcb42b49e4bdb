"""Names of loaded modules that hold MLX's functions from before a patch, in the report."""

import sys
import types

import mlx.core as mx
import mlx.nn
import pytest

import mlx_norms
from support.variant import ROOT


@pytest.fixture(autouse=True)
def modules_are_not_looked_at():
    """They are, here."""


@pytest.fixture
def load(monkeypatch):
    """Loads a module that holds these names."""

    def load(path, module=None, **names):
        module = module or types.ModuleType(path)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, path, module)
        return module

    return load


# Modules that other tests load, and that hold MLX's functions on purpose.
OTHERS = {"tests", "harness", *(path.stem for path in (ROOT / "bench").glob("*.py"))}


def missed():
    """As the report has it, but for what the modules of other tests hold."""
    names = mlx_norms.report().missed
    return tuple(name for name in names if name.split(".")[0] not in OTHERS)


def missed_within(**options):
    with mlx_norms.patched(**options):
        return missed()


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "rope"])
def test_a_function_taken_by_name(load, name):
    load("a_model.blocks", norm=getattr(mx.fast, name), other=mx.fast.scaled_dot_product_attention)
    with mlx_norms.patched():
        load("a_model.later", norm=getattr(mx.fast, name))  # ours
        assert missed() == ("a_model.blocks.norm",)
        report = mlx_norms.report()
    assert (
        "a_model.blocks.norm is MLX's own, taken before patch(): its calls are not seen. Call "
        "patch() before that import."
    ) in str(report).splitlines()


def test_its_calls_are_not_seen(load):
    norm = load("a_model", norm=mx.fast.rms_norm).norm
    with mlx_norms.patched():
        norm(mx.ones((2, 8)), None, 1e-5)
        assert (mlx_norms.report().calls, missed()) == (0, ("a_model.norm",))


def test_none_if_nothing_is_patched(load):
    load("a_model", norm=mx.fast.rms_norm)
    assert mlx_norms.report().missed == ()


@pytest.mark.parametrize("model", [None, mlx.nn.RMSNorm(8)], ids=["process", "model"])
def test_of_every_scope(load, model):
    load("a_model", norm=mx.fast.rms_norm)
    mlx_norms.patch(model)
    try:
        assert missed() == ("a_model.norm",)
    finally:
        mlx_norms.unpatch(model)


def test_evaluation(load):
    load("a_model", evaluate=mx.eval, later=mx.async_eval, export=mx.export_function)
    assert missed_within() == ("a_model.evaluate", "a_model.later")


def test_not_in_our_modules_or_mlx_s(load):
    for path in ("mlx.a", "mlx_norms.a", "mlx_a"):
        load(path, norm=mx.fast.rms_norm)
    assert missed_within() == ("mlx_a.norm",)


def test_a_module_under_two_names_is_named_once(load):
    module = load("a_model", norm=mx.fast.rms_norm)
    load("a_model_again", module)
    assert missed_within() == ("a_model.norm",)


class Odd(types.ModuleType):
    """As a module that loads when it is first used."""

    def __getattribute__(self, name):
        raise AssertionError(f"{name} was asked for")


class Number:
    def __eq__(self, other):
        raise AssertionError("compared")

    __hash__ = None


def test_runs_no_code_of_a_module(load, monkeypatch):
    class Lazy:
        @property
        def __class__(self):
            raise AssertionError("asked for its class")

        @property
        def __dict__(self):
            raise AssertionError("asked for its names")

    odd = Odd("odd")
    types.ModuleType.__setattr__(odd, "norm", mx.fast.rms_norm)
    monkeypatch.setitem(sys.modules, "odd", odd)
    monkeypatch.setitem(sys.modules, "lazy", Lazy())
    monkeypatch.setitem(sys.modules, "none", None)
    load("a_model", number=Number(), array=mx.ones(3), norm=mx.fast.rms_norm)
    assert missed_within() == ("odd.norm", "a_model.norm")
