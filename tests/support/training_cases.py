"""The checks that a member of a group makes of distributed training, against a single process."""

import mlx.core as mx
import mlx.nn as nn
from mlx.nn.layers.distributed import shard_linear
from mlx.utils import tree_flatten

import mlx_norms

from .inputs import normal

DIMS = 48


def randomize(model):
    """Weights drawn from a seed made of their names, including those of norms."""
    for name, a in tree_flatten(model.parameters()):
        model.load_weights([(name, normal(a.shape, a.dtype, seed=name, std=0.3))], strict=False)
    return model


def check_near(got, expected, note):
    """Allows the difference of sums of some hundred products in two orders, with cancellation."""
    size = mx.abs(expected).max().item()
    error = mx.abs(got - expected).max().item() / size
    assert got.shape == expected.shape and error <= 1e-5, f"{note}: off by {error:.3g} of {size}"


class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm(DIMS)
        self.up = nn.Linear(DIMS, 2 * DIMS)
        self.down = nn.Linear(2 * DIMS, DIMS)

    def __call__(self, h):
        return h + self.down(nn.silu(self.up(self.norm(h))))


class Tiny(nn.Module):
    def __init__(self, vocabulary=40):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, DIMS)
        self.blocks = [Block(norm) for norm in (nn.RMSNorm, nn.LayerNorm, nn.RMSNorm)]
        self.norm = nn.LayerNorm(DIMS)

    def __call__(self, tokens):
        h = self.embedding(tokens)
        for block in self.blocks:
            h = block(h)
        return self.embedding.as_linear(self.norm(h))


def next_token_loss(model, tokens):
    return nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], reduction="mean")


def data_parallel_and_patched(member):
    """Gradients averaged over parts of a batch equal those of one unpatched process."""
    model = randomize(Tiny())
    tokens = mx.random.randint(0, 40, (8, 12), key=mx.random.key(1))
    step = nn.value_and_grad(model, next_token_loss)
    _, expected = step(model, tokens)
    mx.eval(expected)
    mlx_norms.patch()
    try:
        _, own = step(model, member.part(tokens, axis=0))
        mx.eval(own)  # `step` was made before patch(): what is fused in it, its evaluation fuses
        fused = mlx_norms.report().fused
    finally:
        mlx_norms.unpatch()
    averaged = dict(tree_flatten(nn.average_gradients(own, member.group)))
    assert fused == 3, fused  # each block's residual add, fused into the next norm
    for name, gradient in tree_flatten(expected):
        check_near(averaged[name], gradient, name)


class Attention(nn.Module):
    """An attention layer reduced to the norms of its queries and keys, over all heads at once."""

    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(DIMS, DIMS)
        self.k_proj = nn.Linear(DIMS, DIMS)
        self.o_proj = nn.Linear(DIMS, DIMS)
        self.q_norm = mx.zeros(DIMS)
        self.k_norm = mx.zeros(DIMS)
        self._group = None

    def shard(self, member):
        self._group = member.group
        for name in ("q_proj", "k_proj"):
            self[name] = shard_linear(self[name], "all-to-sharded", group=member.group)
        self.o_proj = shard_linear(self.o_proj, "sharded-to-all", group=member.group)
        self.q_norm, self.k_norm = member.parts([self.q_norm, self.k_norm])

    def __call__(self, x):
        q = mlx_norms.rms_norm(self.q_proj(x), self.q_norm, group=self._group)
        k = mlx_norms.rms_norm(self.k_proj(x), self.k_norm, group=self._group)
        return self.o_proj(q * mx.sigmoid(k))


def tensor_parallel(member):
    """A model of MLX's sharded layers has its parts of the whole model's gradients."""
    x, y = (normal((5, DIMS), mx.float32, seed=i) for i in range(2))
    model = randomize(Attention())

    def gradients(x):
        def loss(parameters, x):
            model.update(parameters)
            return ((model(x) - y) ** 2).mean()

        return mx.grad(loss, argnums=(0, 1))(model.trainable_parameters(), x)

    expected, expected_x = gradients(x)
    model.shard(member)
    got, got_x = gradients(x)
    check_near(got_x, expected_x, "x")
    got = dict(tree_flatten(got))
    for name, gradient in tree_flatten(expected):
        axis = {"o_proj.weight": -1, "o_proj.bias": None}.get(name, 0)
        part = gradient if axis is None else member.part(gradient, axis)
        check_near(got[name], part, name)


CASES = (data_parallel_and_patched, tensor_parallel)
