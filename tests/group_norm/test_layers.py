"""mlx_norms.nn's group, instance and batch norm: against mlx.nn's, and in models."""

import copy
import itertools

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from packaging.version import Version

import mlx_norms
from mlx_norms import nn
from support.group_layers import (
    BLOCKS,
    CALLS,
    CHANNELS,
    LAYERS,
    RUNNING,
    ConformerConvolution,
    block,
    block_input,
    case_of,
    pair,
    training_run,
)
from support.inputs import in_turn, normal
from support.norm_case import DTYPES
from support.oracle import exact
from support.patched_runs import assert_close, run_stock
from support.releases import MLX, since

pytestmark = pytest.mark.usefixtures("backend")

SHAPES = [(6, 5, CHANNELS), (2, 4, 5, CHANNELS)]

UNBIASED = MLX >= Version("0.32.1")  # the running variance of mlx.nn


def inputs_of(name):
    flat = [(7, CHANNELS)] if name != "InstanceNorm" else []
    deep = [(2, 2, 3, 2, CHANNELS)] if name != "BatchNorm" else []
    return [*SHAPES, *flat, *deep]


def assert_same_state(a, b):
    a, b = tree_flatten(a, destination={}), tree_flatten(b, destination={})
    assert a.keys() == b.keys()
    for key in a:
        assert (a[key].dtype, a[key].shape) == (b[key].dtype, b[key].shape), key
        assert mx.array_equal(a[key], b[key]), key


@pytest.mark.parametrize("name, args, kwargs", LAYERS)
class TestLayers:
    def test_state_and_repr(self, name, args, kwargs):
        stock, own = getattr(mlx.nn, name)(*args, **kwargs), getattr(nn, name)(*args, **kwargs)
        assert isinstance(own, getattr(mlx.nn, name))
        assert repr(own) == repr(stock)
        assert vars(own).keys() == vars(stock).keys()
        assert own.eps == stock.eps
        assert_same_state(own.state, stock.state)
        assert_same_state(own.trainable_parameters(), stock.trainable_parameters())

    @pytest.mark.parametrize("training", [True, False])
    def test_output_and_statistics(self, name, args, kwargs, training):
        for shape, dtype in itertools.product(inputs_of(name), DTYPES):
            stock, own = pair(name, args, kwargs)
            x = normal(shape, dtype, seed=shape, mean=1.0, std=3.0)
            stock.train(training)
            own.train(training)
            case = case_of(own, x, stock(x).dtype)
            before = {key: exact(own[key]) for key in RUNNING if key in own}
            y = own(x)
            assert (y.dtype, y.shape) == (stock(x).dtype, shape)
            case.check_result(y)
            values = exact(x).reshape(-1, CHANNELS)
            now = {"running_mean": values.mean(0), "running_var": values.var(0, ddof=UNBIASED)}
            assert own.parameters().keys() == stock.parameters().keys()
            for key, old in before.items():
                assert own[key].dtype == stock[key].dtype == mx.float32
                momentum = own.momentum if training else 0.0
                new = (1 - momentum) * old + momentum * now[key]
                np.testing.assert_allclose(exact(own[key]), new, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("training", [True, False])
    def test_dtypes_of_a_mix(self, name, args, kwargs, training):
        keys = sorted(getattr(mlx.nn, name)(*args, **kwargs).parameters())
        mixes = list(itertools.product(DTYPES, repeat=1 + len(keys)))
        # A stride that is prime to three has each pair of dtypes.
        for dtypes in mixes if len(mixes) <= 27 else in_turn(mixes[::7], 0):
            stock, own = pair(name, args, kwargs)
            for layer in (stock, own):
                layer.train(training)
                for key, dtype in zip(keys, dtypes[1:], strict=True):
                    layer[key] = layer[key].astype(dtype)
            x = normal((5, 4, CHANNELS), dtypes[0], seed=0)
            case = case_of(own, x, stock(x).dtype)
            y = own(x)
            assert y.dtype == case.dtype, dtypes
            case.check_result(y)
            for key in keys:
                assert own[key].dtype == stock[key].dtype, (key, dtypes)

    def test_gradients(self, name, args, kwargs):
        """Those of the input and the parameters are mlx.nn's."""
        x, g = (normal((3, 4, CHANNELS), mx.float32, seed=s) for s in "xg")

        def run(layer):
            layer.train()

            def loss(parameters, x):
                layer.update(parameters)
                return mx.sum(layer(x) * g)

            return mx.grad(loss, (0, 1))(layer.trainable_parameters(), x)

        stock, own = pair(name, args, kwargs)
        assert_close(run(own), run_stock(lambda: run(stock)))

    def test_runs_our_op(self, name, args, kwargs, monkeypatch):
        op = name.replace("Norm", "_norm").lower()
        monkeypatch.setattr(mlx_norms, op, lambda *args, **kwargs: ("ours", mx.ones(1), mx.ones(1)))
        y = getattr(nn, name)(*args, **kwargs)(mx.zeros((2, 3, CHANNELS)))
        assert "ours" in y

    def test_freezing(self, name, args, kwargs):
        stock, own = pair(name, args, kwargs)
        for layer in (stock, own):
            layer.freeze()
            assert layer.trainable_parameters() == {}
            layer.unfreeze()
        assert_same_state(own.trainable_parameters(), stock.trainable_parameters())
        assert not own.trainable_parameters().keys() & RUNNING.keys()

    def test_weights_of_a_file_load_unchanged(self, name, args, kwargs, tmp_path):
        stock, _ = pair(name, args, kwargs)
        if not stock.parameters():
            return
        path = str(tmp_path / "weights.safetensors")
        stock.save_weights(path)
        own = getattr(nn, name)(*args, **kwargs)
        own.load_weights(path)
        assert_same_state(own.parameters(), stock.parameters())


def test_compiled_with_state():
    _, own = pair("BatchNorm", (CHANNELS,), {})
    twin = copy.deepcopy(own)
    assert type(twin) is nn.BatchNorm
    compiled = mx.compile(twin, inputs=twin.state, outputs=twin.state)
    for seed in range(3):
        x = normal((3, 4, CHANNELS), mx.float32, seed=seed)
        assert_close((compiled(x), twin.state), (own(x), own.state))


def test_a_bias_without_a_weight_is_not_used():
    for name, args, kwargs in LAYERS:
        stock, own = pair(name, args, kwargs)
        x = normal((3, 4, CHANNELS), mx.float32, seed=0)
        for layer in (stock, own):
            if "weight" in layer:
                del layer["weight"]
        assert_close(own(x), stock(x))


@since("0.32.2")
@pytest.mark.parametrize("layer", [nn.InstanceNorm, nn.BatchNorm])
def test_eps_is_checked(layer):
    with pytest.raises(ValueError, match="'eps' must be positive"):
        layer(CHANNELS, eps=0.0)


@pytest.mark.parametrize(
    "layer, shape, message",
    [
        (nn.BatchNorm(8), (8,), "x must have 2, 3 or 4 axes but has shape"),
        (nn.BatchNorm(8), (2, 2, 2, 2, 8), "x must have 2, 3 or 4 axes but has shape"),
        (nn.BatchNorm(8), (1, 1, 8), "more than one value per channel"),
        (nn.BatchNorm(8), (4, 7), "mean must have shape"),
        (nn.InstanceNorm(8), (4, 8), "x must have at least 3 axes"),
        (nn.GroupNorm(2, 8), (4, 4, 6), "weight must have shape"),
        (nn.GroupNorm(2, 8, affine=False), (4, 4, 7), "num_groups must divide"),
    ],
)
def test_bad_input_is_named(layer, shape, message):
    before = dict(layer)
    with pytest.raises(ValueError, match=message):
        layer(mx.zeros(shape))
    assert all(layer[key] is before[key] for key in before)


@pytest.mark.parametrize("cls", BLOCKS)
class TestBlocks:
    def test_training(self, cls):
        expected = run_stock(lambda: training_run(block(cls)))
        model = block(cls)
        replaced = nn.replace(model)
        assert len(replaced) == CALLS[cls] + (cls.__name__ == "ConformerConvolution")
        assert replaced.left == {}
        assert_close(training_run(model), expected)
        trained = model.parameters()
        replaced.undo()
        assert_same_state(model.parameters(), trained)
        assert not any(type(m).__module__.startswith("mlx_norms") for m in model.modules())

    def test_freezing_and_mode_are_carried_both_ways(self, cls):
        model, x = block(cls), block_input()
        model.freeze()
        model.eval()
        expected = model(x)
        replaced = nn.replace(model)
        assert model.trainable_parameters() == block(cls).freeze().trainable_parameters()
        assert not any(m.training for m in model.modules())
        assert_close(model(x), expected)
        model.train().unfreeze()
        replaced.undo()
        assert all(m.training for m in model.modules())
        stock = block(cls).freeze().unfreeze()
        assert_same_state(model.trainable_parameters(), stock.trainable_parameters())


def test_compiled_training():
    """State is among the inputs and outputs, running statistics, too."""
    model = block(ConformerConvolution)
    nn.replace(model)
    twin = copy.deepcopy(model)
    assert_close(training_run(twin, compiled=True), training_run(model))
    assert not mx.array_equal(twin.batch_norm.running_mean, mx.zeros(4))


def test_subclasses_are_left_alone_and_named():
    class Special(mlx.nn.BatchNorm):
        pass

    model = mlx.nn.Module()
    model.norms = [Special(8), mlx.nn.BatchNorm(8), nn.GroupNorm(2, 8)]
    special = model.norms[0]
    replaced = nn.replace(model)
    assert replaced.keys() == {"norms.1"}
    assert replaced.left.keys() == {"norms.0"}
    assert "is a subclass of mlx.nn.BatchNorm" in replaced.left["norms.0"]
    assert model.norms[0] is special
    replaced.undo()
    assert model.norms[0] is special


@pytest.mark.parametrize("name, args, kwargs", LAYERS)
def test_a_norm_itself_cannot_be_replaced(name, args, kwargs):
    with pytest.raises(ValueError, match=rf"make an mlx_norms\.nn\.{name}"):
        nn.replace(getattr(mlx.nn, name)(*args, **kwargs))
