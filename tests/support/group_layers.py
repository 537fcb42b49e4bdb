"""mlx.nn's group, instance and batch norm, ours, and small blocks of models that have them."""

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_map

from mlx_norms import nn

from .group_norm import GroupCase
from .inputs import normal

CHANNELS = 24
LAYERS = [
    ("GroupNorm", (4, CHANNELS), {}),
    ("GroupNorm", (4, CHANNELS), {"pytorch_compatible": True, "eps": 1e-3}),
    ("GroupNorm", (3, CHANNELS), {"affine": False}),
    ("InstanceNorm", (CHANNELS,), {}),
    ("InstanceNorm", (CHANNELS, 1e-3), {"affine": True}),
    ("BatchNorm", (CHANNELS,), {}),
    ("BatchNorm", (CHANNELS,), {"momentum": 0.3, "eps": 1e-3}),
    ("BatchNorm", (CHANNELS,), {"affine": False}),
    ("BatchNorm", (CHANNELS,), {"track_running_stats": False}),
]
RUNNING = {"running_mean": "mean", "running_var": "var"}


def stock_layer(name, args, kwargs):
    """mlx.nn's layer, with parameters and statistics that are not constant."""
    layer = getattr(mlx.nn, name)(*args, **kwargs)
    for key, value in layer.parameters().items():
        layer[key] = normal(value.shape, mx.float32, seed=key)
    if "running_var" in layer:
        layer.running_var = mx.square(layer.running_var) + 0.5
    return layer


def pair(name, args, kwargs):
    """mlx.nn's layer and ours, with the same state."""
    stock = stock_layer(name, args, kwargs)
    own = getattr(nn, name)(*args, **kwargs)
    own.update(stock.parameters())
    return stock, own


def case_of(layer, x, dtype):
    """The call of our op that the layer stands for, with its truth in float64."""
    arrays = {n: layer[n] for n in ("weight", "bias") if n in layer}
    options = {"eps": layer.eps, "dtype": dtype}
    if isinstance(layer, mlx.nn.GroupNorm):
        options |= dict(num_groups=layer.num_groups, pytorch_compatible=layer.pytorch_compatible)
        return GroupCase("group_norm", x, **arrays, **options)
    if isinstance(layer, mlx.nn.InstanceNorm):
        return GroupCase("instance_norm", x, **arrays, **options)
    arrays |= {RUNNING[n]: layer[n] for n in RUNNING if n in layer}
    return GroupCase("batch_norm", x, **arrays, training=layer.training, **options)


class ResidualBlock(mlx.nn.Module):
    """As in ResNet: convolutions and batch norms around a shortcut with its own."""

    def __init__(self, before=4, channels=8):
        super().__init__()
        self.conv1 = mlx.nn.Conv2d(before, channels, 3, stride=2, padding=1, bias=False)
        self.norm1 = mlx.nn.BatchNorm(channels)
        self.conv2 = mlx.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = mlx.nn.BatchNorm(channels)
        self.shortcut = [
            mlx.nn.Conv2d(before, channels, 1, stride=2, bias=False),
            mlx.nn.BatchNorm(channels),
        ]

    def __call__(self, x):
        y = self.norm2(self.conv2(mlx.nn.relu(self.norm1(self.conv1(x)))))
        conv, norm = self.shortcut
        return mlx.nn.relu(y + norm(conv(x)))


class UNetBlock(mlx.nn.Module):
    """As in diffusion models: PyTorch's group norms and silu, a time embedding, attention."""

    def __init__(self, before=4, channels=8, groups=2):
        super().__init__()
        self.first = mlx.nn.InstanceNorm(before, affine=True)
        self.norm1 = mlx.nn.GroupNorm(groups, before, pytorch_compatible=True)
        self.conv1 = mlx.nn.Conv2d(before, channels, 3, padding=1)
        self.time = mlx.nn.Linear(6, channels)
        self.norm2 = mlx.nn.GroupNorm(groups, channels, pytorch_compatible=True)
        self.conv2 = mlx.nn.Conv2d(channels, channels, 3, padding=1)
        self.shortcut = mlx.nn.Conv2d(before, channels, 1)
        self.norm3 = mlx.nn.GroupNorm(groups, channels)
        self.attention = mlx.nn.MultiHeadAttention(channels, 2)

    def __call__(self, x):
        x = self.first(x)
        t = mx.arange(6, dtype=x.dtype) / 6
        y = self.conv1(mlx.nn.silu(self.norm1(x))) + self.time(t)
        y = self.shortcut(x) + self.conv2(mlx.nn.silu(self.norm2(y)))
        z = self.norm3(y).flatten(1, 2)
        return y + self.attention(z, z, z).reshape(y.shape)


class ConformerConvolution(mlx.nn.Module):
    """As in speech encoders: layer norm, gated linear unit, a depthwise convolution, batch norm."""

    def __init__(self, dims=4):
        super().__init__()
        self.norm = mlx.nn.LayerNorm(dims)
        self.conv1 = mlx.nn.Conv1d(dims, 2 * dims, 1)
        self.depthwise = mlx.nn.Conv1d(dims, dims, 3, padding=1, groups=dims, bias=False)
        self.batch_norm = mlx.nn.BatchNorm(dims)
        self.conv2 = mlx.nn.Conv1d(dims, dims, 1)

    def __call__(self, x):
        b, h, w, c = x.shape
        x = x.reshape(b, h * w, c)
        y = mlx.nn.glu(self.conv1(self.norm(x)), axis=-1)
        y = mlx.nn.silu(self.batch_norm(self.depthwise(y)))
        return x + self.conv2(y)


BLOCKS = (ResidualBlock, UNetBlock, ConformerConvolution)
# Norms of each kind, per call.
CALLS = {ResidualBlock: 3, UNetBlock: 4, ConformerConvolution: 1}


def block(cls):
    mx.random.seed(0)
    model = cls()
    mx.eval(model.parameters())
    return model


def block_input(seed=0):
    return normal((2, 6, 6, 4), mx.float32, seed=seed)


def training_run(model, *, compiled=False, steps=2):
    """Losses and first gradients, the state afterwards and an inference with it."""

    def loss(x):
        return mx.mean(mx.square(model(x) - 0.1))

    def step(x):
        value, grads = mlx.nn.value_and_grad(model, loss)(x)
        new = tree_map(lambda p, g: p - 0.05 * g, model.trainable_parameters(), grads)
        model.update(new)
        return value, grads

    model.train()
    run = mx.compile(step, inputs=model.state, outputs=model.state) if compiled else step
    losses, gradients = [], []
    for i in range(steps):
        value, grads = run(block_input(i))
        mx.eval(value, grads, model.state)
        losses.append(value)
        gradients.append(grads)
    model.eval()
    return losses, gradients[0], model.parameters(), model(block_input("test"))
