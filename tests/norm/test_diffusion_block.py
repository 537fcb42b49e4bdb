"""A diffusion transformer's block, mflux's own against the same written with our norms."""

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten, tree_map

from harness import diffusion

pytest.importorskip("mflux", reason="instrument missing: mflux")


def outputs_and_gradients(side, weights_of, block, arrays):
    """Both outputs of a side, and the gradients of the weights, the image and the text."""

    def loss(weights, image, text):
        block.update(weights)
        outputs = side(block, image, text, *arrays[2:])
        return sum(mx.square(each.astype(mx.float32)).mean() for each in outputs)

    weights = weights_of(block)
    block.update(weights)
    outputs = side(block, *arrays)
    gradients = mx.grad(loss, argnums=(0, 1, 2))(weights, *arrays[:2])
    block.update(weights)
    mx.eval(outputs, gradients)
    return [array.astype(mx.float32) for _, array in tree_flatten([outputs, gradients])]


def distances(found, exact):
    return [
        (mx.linalg.norm(a - b) / mx.linalg.norm(b)).item()
        for a, b in zip(found, exact, strict=True)
    ]


def as_float32(block):
    return tree_map(lambda a: a.astype(mx.float32), block.parameters())


def as_they_are(block):
    return block.parameters()


@pytest.mark.parametrize("dtype", (mx.float32, mx.bfloat16, mx.float16), ids=str)
def test_our_block_is_the_stock_one(dtype):
    mx.random.seed(3)
    block, _ = diffusion.build(diffusion.TINY, dtype)
    kept = block.parameters()
    arrays = diffusion.inputs(diffusion.TINY, dtype)
    wide = [array.astype(mx.float32) for array in arrays]
    exact = outputs_and_gradients(diffusion.stock, as_float32, block, wide)
    found = {}
    for name, side in (("stock", diffusion.stock), ("ours", diffusion.ours)):
        block.update(kept)
        found[name] = distances(outputs_and_gradients(side, as_they_are, block, arrays), exact)
    for stock, ours in zip(found["stock"], found["ours"], strict=True):
        assert ours <= (2e-6 if dtype == mx.float32 else 1.5 * stock)


def test_a_scale_of_the_text_is_not_the_images():
    mx.random.seed(4)
    block, _ = diffusion.build(diffusion.TINY, mx.float32)
    arrays = diffusion.inputs(diffusion.TINY, mx.float32)
    before = diffusion.ours(block, *arrays)
    block.txt_mod_linear.weight = -block.txt_mod_linear.weight
    after = diffusion.ours(block, *arrays)
    assert not mx.allclose(before[0], after[0])
    stock = diffusion.stock(block, *arrays)
    for ours, its in zip(after, stock, strict=True):
        assert mx.allclose(ours, its, rtol=1e-4, atol=1e-4)
