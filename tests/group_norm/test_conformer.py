"""parakeet-mlx's Conformer, tiny, with mlx.nn's layer and batch norms, with ours, and patched."""

import importlib.util

import mlx.core as mx
import mlx.nn
import pytest
from mlx.utils import tree_flatten

import mlx_norms
from harness.bare_packages import bare_packages
from mlx_norms import nn
from support.inputs import normal
from support.patched_runs import GROUPS, assert_close

if importlib.util.find_spec("parakeet_mlx") is None:
    pytest.skip("instrument missing: parakeet-mlx", allow_module_level=True)

with bare_packages("parakeet_mlx"):
    from parakeet_mlx.conformer import Conformer, ConformerArgs

pytestmark = pytest.mark.usefixtures("backend")

LAYERS = 2
ARGS = dict(feat_in=16, n_layers=LAYERS, d_model=32, n_heads=2, ff_expansion_factor=2)
ARGS |= dict(subsampling_factor=4, subsampling="dw_striding", subsampling_conv_channels=8)
ARGS |= dict(conv_kernel_size=5, self_attention_model="rel_pos", pos_emb_max_len=32)


def build():
    mx.random.seed(0)
    return Conformer(ConformerArgs(**ARGS))


def outputs_and_gradients(model):
    """Of a training step, each gradient; then the statistics and an inference."""
    x = normal((2, 40, 16), mx.float32, seed=0)
    model.train()

    def loss(x):
        y, _ = model(x)
        return mx.mean(mx.square(y - 0.5) * mx.arange(y.shape[-1]))

    value, gradients = mlx.nn.value_and_grad(model, loss)(x)
    whole = mx.concatenate([g.flatten() for _, g in tree_flatten(gradients)])
    mx.eval(value, whole, model.state)
    model.eval()
    statistics = [a for k, a in tree_flatten(model.parameters()) if "running" in k]
    assert len(statistics) == 2 * LAYERS
    return value, whole, statistics, model(x)[0]


@pytest.fixture(scope="module")
def stock(backend):
    return outputs_and_gradients(build())


def test_replaced(stock):
    model = build()
    assert len(nn.replace(model)) == 6 * LAYERS
    assert_close(outputs_and_gradients(model), stock)


def test_patched(stock):
    with mlx_norms.patched():
        got = outputs_and_gradients(build())
        assert mlx_norms.report().reasons[GROUPS] == 2 * LAYERS
    assert_close(got, stock)
