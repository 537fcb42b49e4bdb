"""A ResNet of mlx-image with mlx.nn's batch norms, with ours, and patched."""

import mlx.core as mx
import mlx.nn
import pytest
from mlx.utils import tree_flatten

import mlx_norms
from mlx_norms import nn
from support.inputs import normal
from support.patched_runs import GROUPS, assert_close

resnet = pytest.importorskip(
    "mlxim.model.resnet.resnet", reason="instrument missing: mlx-image", exc_type=ImportError
)

pytestmark = pytest.mark.usefixtures("backend")

NORMS = 12


def build():
    mx.random.seed(0)
    return resnet.ResNet(block=resnet.BasicBlock, layers=[1, 1, 1, 1], num_classes=5)


def outputs_and_gradients(model):
    """Of a training step, all gradients as one array; then the statistics and an inference."""
    x = normal((2, 64, 64, 3), mx.float32, seed=0)
    model.train()
    value, gradients = mlx.nn.value_and_grad(model, lambda x: mx.mean(mx.square(model(x))))(x)
    whole = mx.concatenate([g.flatten() for _, g in tree_flatten(gradients)])
    mx.eval(value, whole, model.state)
    model.eval()
    statistics = [(k, a) for k, a in tree_flatten(model.parameters()) if "running" in k]
    assert len(statistics) == 2 * NORMS
    return value, whole, statistics, model(x)


@pytest.fixture(scope="module")
def stock(backend):
    return outputs_and_gradients(build())


def test_replaced(stock):
    model = build()
    assert len(nn.replace(model)) == NORMS
    assert_close(outputs_and_gradients(model), stock)


def test_patched(stock):
    with mlx_norms.patched():
        got = outputs_and_gradients(build())
        assert mlx_norms.report().reasons == {GROUPS: 2 * NORMS}
    assert_close(got, stock)
