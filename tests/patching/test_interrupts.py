"""Interrupts while a patch begins or ends: it has happened or it has not, and can be undone."""

import gc
import math
from pathlib import Path

import mlx.nn
import pytest

import mlx_norms
from mlx_norms import _ext, patching
from mlx_norms.patching.scope import current
from support import interrupts
from support.patched_runs import FUNCTIONS, METHODS

FILES = {__file__, *map(str, Path(patching.__file__).parent.glob("*.py"))}

# How many interrupts there are one after the other.
TIMES = [1, 2, 3, math.inf]


class Layer(mlx.nn.Module):
    def __call__(self):
        return None


STOCK = [getattr(owner, name) for owner, name in FUNCTIONS]
STOCK_METHODS = [getattr(owner, name) for owner, name in METHODS]


class Model(mlx.nn.Module):
    """Its calls compute nothing."""

    def __init__(self):
        super().__init__()
        self.layers = [Layer(), mlx.nn.RMSNorm(8), Layer()]

    def __call__(self):
        for layer in self.layers[::2]:
            layer()


def is_replaced() -> bool:
    """Whether the functions are; all or none."""
    stock = [getattr(o, n) is f for (o, n), f in zip(FUNCTIONS, STOCK, strict=True)]
    assert all(stock) or not any(stock)
    return not any(stock)


def is_scoped(model) -> bool:
    """Whether the model's class is changed."""
    return type(model) is not Model


def each(function, check, prepare=lambda: ()):
    """Interrupt ``function`` of what ``prepare`` made wherever Python does, and ``check`` that."""
    number = 0
    for times in TIMES:
        first, ended = 0, False
        while not ended:
            made = prepare()
            try:
                interrupts.call(lambda made=made: function(*made), FILES, first, times)
                ended = True
            except KeyboardInterrupt as interrupt:
                check(*made)  # while the traceback has all frames
                first = interrupt.args[0]
                number += 1
    assert number


@pytest.fixture(autouse=True)
def everything_is_put_back():
    scopes_open = _ext.scopes_changed(0)
    yield
    mlx_norms.unpatch()
    gc.collect()
    left = is_replaced()
    for (owner, name), function in zip(FUNCTIONS, STOCK, strict=True):
        setattr(owner, name, function)
    assert not left
    assert [getattr(owner, name) for owner, name in METHODS] == STOCK_METHODS
    assert _ext.scopes_changed(0) == scopes_open  # or each call looks for its scope


def block():
    with mlx_norms.patched():
        pass


def nested():
    with mlx_norms.patched(), mlx_norms.patched(fuse=False):
        pass


def block_that_raises():
    try:
        with mlx_norms.patched():
            raise ValueError
    except ValueError:
        pass


@mlx_norms.patched()
def decorated():
    pass


def in_a_loop():
    for _ in range(2):
        with mlx_norms.patched():
            continue


def fused():
    mlx_norms.fuse(block)()


BLOCKS = [block, nested, block_that_raises, decorated, in_a_loop, fused]


@pytest.mark.slow
@pytest.mark.parametrize("function", BLOCKS, ids=lambda f: f.__name__)
class TestBlocks:
    def test_are_left(self, function):
        def check():
            assert not is_replaced()
            assert not current().acts

        each(function, check)
        mlx_norms.patch()
        assert is_replaced()

    def test_leave_a_patched_process(self, function):
        def check():
            assert is_replaced()
            assert current() is process

        mlx_norms.patch()
        process = current()
        each(function, check)
        mlx_norms.unpatch()
        assert not is_replaced()


class TestProcess:
    @staticmethod
    def check():
        assert is_replaced() == current().acts
        mlx_norms.unpatch()
        assert not is_replaced() and not current().acts
        mlx_norms.patch()
        assert is_replaced() and current().acts
        mlx_norms.unpatch()

    def test_patch(self):
        def prepare():
            mlx_norms.unpatch()
            return ()

        each(mlx_norms.patch, self.check, prepare)

    def test_unpatch(self):
        def prepare():
            mlx_norms.patch()
            return ()

        each(mlx_norms.unpatch, self.check, prepare)


class TestModel:
    @staticmethod
    def check(model):
        assert is_replaced() == is_scoped(model)
        mlx_norms.unpatch(model)
        assert not is_replaced() and not is_scoped(model)
        mlx_norms.patch(model)
        assert is_replaced() and is_scoped(model)
        mlx_norms.unpatch(model)

    @staticmethod
    def patched():
        model = Model()
        mlx_norms.patch(model)
        return (model,)

    def test_patch(self):
        each(mlx_norms.patch, self.check, lambda: (Model(),))

    def test_patch_again(self):
        each(lambda model: mlx_norms.patch(model, fuse=False), self.check, self.patched)

    def test_unpatch(self):
        each(mlx_norms.unpatch, self.check, self.patched)

    def test_calls(self):
        def check(model):
            assert not current().acts
            assert is_replaced() and is_scoped(model)
            mlx_norms.unpatch(model)

        each(lambda model: model(), check, self.patched)

    def test_a_model_that_is_gone(self):
        def check(models):
            del models[:]
            assert not is_replaced()

        each(lambda models: models.pop() and None, check, lambda: ([*self.patched()],))
