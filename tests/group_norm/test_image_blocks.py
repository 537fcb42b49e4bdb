"""Blocks of mflux's image decoder, with a tiny image: mlx.nn's group norms, ours, and patched."""

import mlx.core as mx
import pytest
from mlx.utils import tree_map

import mlx_norms
from harness import blocks, vae
from support.patched_runs import GROUPS

pytest.importorskip("mflux", reason="instrument missing: mflux")

pytestmark = pytest.mark.usefixtures("backend")

NORMS = {"decoder block": 6, "UNet block": 5}


def runs(side, block, weights, x):
    """The outputs; and the loss of a training step with all its gradients."""
    outputs = blocks.forward(side, block)
    found = outputs(weights, x), blocks.step(outputs, 1)(weights, x)
    mx.eval(found)
    return found


@pytest.mark.parametrize(
    "name, dtype",
    [("decoder block", mx.float32), ("decoder block", mx.bfloat16), ("UNet block", mx.float32)],
    ids=str,
)
def test_block(name, dtype):
    x = vae.image(name, 2, dtype)
    exact, _ = vae.build(name, mx.float32)
    sides = vae.sides(name, dtype)
    weights = sides["mflux"][1].parameters()
    truth = runs(vae.called, exact, *tree_map(blocks.widen, (weights, x)))
    errors = {}
    for side, of in sides.items():
        pairs = zip(runs(*of, weights, x), truth, strict=True)
        errors[side] = [blocks.distance(*pair) for pair in pairs]
    assert mlx_norms.report().reasons == {GROUPS: NORMS[name]}  # of the last call, patched
    for ours, stock in zip(errors["replaced"], errors["mflux"], strict=True):
        assert ours <= (1e-5 if dtype == mx.float32 else 1.1 * stock)
    assert errors["patched"] == errors["replaced"]


def test_all_norms_are_replaced():
    for name, count in NORMS.items():
        block, _ = vae.build(name, mx.float32)
        assert len(mlx_norms.nn.replace(block)) == count
