"""Layers that write a norm, called in other shapes and states than at first: always as stock."""

import mlx.core as mx
import mlx.nn as nn
import pytest

import mlx_norms

pytestmark = pytest.mark.usefixtures("backend")


def root(x):
    return mx.rsqrt(x.square().mean(-1, keepdims=True) + 1e-6)


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and mx.allclose(a, b, 1e-5, 1e-6).item()


def check(layer, *steps):
    """Runs the steps, each of an array or a change of state, without and with patched()."""

    def run():
        return [layer(step) if type(step) is mx.array else step() for step in steps]

    stock = run()
    with mlx_norms.patched():
        for ours, theirs in zip(run(), stock, strict=True):
            assert type(theirs) is not mx.array or same(ours, theirs)


class Pooled(nn.Module):
    def __call__(self, x):
        x = x.mean(axis=1, keepdims=True)
        return x * root(x)


class OfAll(nn.Module):
    def __call__(self, x):
        energy = x.square().sum(axis=1, keepdims=True).sum(axis=2, keepdims=True)
        return x * mx.rsqrt(energy + 1e-6)


class Summed(nn.Module):
    def __call__(self, x):
        return (x * root(x)).sum(1, keepdims=True)


class Unpacked(nn.Module):
    def __call__(self, x):
        first, *rest = x
        return x * root(x) if rest else 3 * x


class Looped(nn.Module):
    def __call__(self, x):
        count = 0
        for _ in x:
            count = 1 if count == 0 else 2
        return x * root(x) if count == 1 else 3 * x


@pytest.mark.parametrize("cls", [Pooled, OfAll, Summed, Unpacked, Looped])
@pytest.mark.parametrize("first", [1, 5])
def test_axes_of_one_element(cls, first):
    """Of which MLX leaves out the sums."""
    shapes = [(2, first, 64), (2, 6 - first, 64)]
    if cls in (Unpacked, Looped):
        shapes = [shape[1:] for shape in shapes]
    check(cls(), *(mx.random.normal(shape) for shape in (*shapes, *shapes)))


def test_rows_of_any_number_are_taken():
    """Once recognized with one row, and all by one plan."""

    class Norm(nn.Module):
        def __call__(self, x):
            return x * root(x)

    layer = Norm()
    with mlx_norms.patched():
        mlx_norms.report()
        before = sum(mlx_norms.report().written.values())
        for rows in (1, 3, 7):
            layer(mx.ones((1, rows, 64)))
        assert sum(mlx_norms.report().written.values()) == before + 3


class Settings:
    eps = 1e-6


SETTINGS, CALLS = Settings(), []


class Default(nn.Module):
    def __call__(self, x, settings=SETTINGS, log=CALLS.append):
        log(1)
        return x * mx.rsqrt(x.square().mean(-1, keepdims=True) + settings.eps)


def test_arguments_with_defaults():
    layer, x = Default(), mx.ones((2, 64))
    with mlx_norms.patched():
        CALLS.clear()
        layer(x)
        SETTINGS.eps = 3.0
        try:
            assert same(layer(x), x / 2)
        finally:
            SETTINGS.eps = 1e-6
        assert len(CALLS) == 2


class ByName(nn.Module):
    eps = 1e-6

    def __call__(self, x):
        y = x * mx.rsqrt(x.square().mean(-1, keepdims=True) + getattr(self, "eps", 1e-6))
        return x if getattr(self, "training", False) else y


def test_attributes_by_name():
    layer, x = ByName().eval(), 2 * mx.ones((2, 64))

    def set_eps(value):
        ByName.eps = value

    try:
        check(layer, x, lambda: set_eps(4.0), x, layer.train, x, layer.eval, lambda: set_eps(1e-6))
    finally:
        ByName.eps = 1e-6


class OfOperators(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0

    def __len__(self):
        return int(self.scale)

    def __call__(self, x):
        return x * root(x) * len(self)


class OfTypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.level, self.eps = 1, 0.5

    def __call__(self, x):
        y = x * mx.rsqrt(x.square().mean(-1, keepdims=True) + self.eps)
        return 2 * y if self.level is True else y


def test_attributes_that_compare_equal():
    layer, x = OfTypes(), mx.ones((2, 64))

    def set_to(name, value):
        return lambda: setattr(layer, name, value)

    back = set_to("level", 1), set_to("eps", 0.5)
    check(layer, x, set_to("level", True), x, set_to("eps", 0.5 + 0j), x, *back)


def test_operators_of_a_layer():
    layer, x = OfOperators(), mx.ones((2, 64))
    check(layer, x, lambda: setattr(layer, "scale", 7.0), x, lambda: setattr(layer, "scale", 2.0))


class Scale(nn.Module):
    factor = 2.0

    def __call__(self, x):
        return x * self.factor


class OfAnother(nn.Module):
    def __call__(self, x):
        return Scale()(x * root(x))


def test_another_layer_made_in_the_call():
    def set_factor(value):
        return lambda: setattr(Scale, "factor", value)

    x = mx.ones((2, 64))
    check(OfAnother(), x, set_factor(7.0), x, set_factor(2.0))


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.steps = mx.ones(64), mx.array(0)

    def __call__(self, x):
        return x * root(x) * self.weight


def test_a_parameter_of_integers():
    check(Counted(), mx.random.normal((2, 64)))


class Several(nn.Module):
    def __call__(self, x):
        y = x * root(x)
        return (y, y) if x.shape[0] <= 3 else y


def test_a_result_that_depends_on_the_number_of_rows():
    check(Several(), mx.ones((5, 64)))


def test_a_variable_that_has_no_value_yet():
    class Norm(nn.Module):
        def __call__(self, x):
            return x * root(x) if x.ndim == 2 else later

    check(Norm(), mx.ones((2, 64)))
    later = 1  # noqa: F841


def test_what_is_deleted_meanwhile():
    class Base(nn.Module):
        def __call__(self, x):
            return x * root(x)

    class Norm(Base):
        def __call__(self, x):
            return x * mx.rsqrt(x.square().mean(-1, keepdims=True) + 1.0)

    with mlx_norms.patched():
        Norm()(mx.ones((2, 64)))
        del Norm.__call__
    assert "__call__" not in vars(Norm)
    with mlx_norms.patched():
        assert same(Norm()(mx.ones((2, 64))), mx.ones((2, 64)))


def test_plans_of_values_that_change_are_not_kept():
    layer, x = ByGlobal(), mx.ones((2, 64))
    with mlx_norms.patched():
        for step in range(20):
            globals()["EPS"] = float(step)
            assert same(layer(x), x * mx.rsqrt(mx.array(1.0 + step)))
        assert len(mlx_norms.report().written) >= 1


EPS = 1.0


class ByGlobal(nn.Module):
    def __call__(self, x):
        return x * mx.rsqrt(x.square().mean(-1, keepdims=True) + EPS)
