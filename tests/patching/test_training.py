"""Training steps of a small llama, full and LoRA, patched and not: gradients and peak memory."""

import contextlib
import gc

import mlx.core as mx
import mlx.nn
import pytest
from mlx.optimizers import SGD
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import llama
from mlx_lm.tuner.trainer import default_loss, grad_checkpoint
from mlx_lm.tuner.utils import linear_to_lora_layers

import mlx_norms
from support.patched_runs import (
    ALONE,
    FUSED,
    ROUNDOFF,
    largest,
    run_patched,
    run_stock,
)

pytestmark = pytest.mark.usefixtures("backend")

LAYERS = 2
VOCABULARY = 64
CONFIG = dict(
    model_type="llama",
    hidden_size=64,
    num_hidden_layers=LAYERS,
    intermediate_size=96,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=VOCABULARY,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
)
# Two norms a layer and the last one; the first takes the embedding, each other one a sum.
FORWARD = {FUSED: 2 * LAYERS, ALONE: 1}
# What a checkpointed layer is given and returns is no sum to others, so each has one sum and runs
# twice. The second time parameters that are trained wait for the layer's cotangent.
CHECKPOINTED = {
    "full": {FUSED: 2 * LAYERS, ALONE: 2 * LAYERS + 1},
    "lora": {FUSED: 2 * LAYERS, ALONE: 2 * LAYERS + 1},
}
# Gradients are sums over 48 tokens and up to 96 features, through some 50 operations, each of which
# adds roundings of its terms' scale: 150 of the largest gradient of an array are seen. A lost or
# doubled path is off by 2**20.
ROUNDINGS = 2048


def make(kind="full"):
    """A model whose norm weights are not 1 and, for LoRA, whose added weights are not 0."""
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs(**CONFIG))
    model.update(tree_map(lambda p: p + 0.05 * mx.random.normal(p.shape), model.parameters()))
    if kind != "full":
        model.freeze()
        if kind == "qlora":
            mlx.nn.quantize(model, group_size=32, bits=4)
        linear_to_lora_layers(model, LAYERS, {"rank": 4, "scale": 10.0, "dropout": 0.0})
        added = model.trainable_parameters()
        model.update(tree_map(lambda p: 0.1 * mx.random.normal(p.shape), added))
    mx.eval(model.parameters())
    return model


@pytest.fixture(scope="module")
def batch(backend):
    """Tokens, and which of each row's are counted."""
    tokens = mx.random.randint(0, VOCABULARY, (4, 13), key=mx.random.key(1))
    return tokens, mx.array([[0, 12], [0, 12], [2, 9], [0, 5]])


def step(model, batch):
    """Loss, number of tokens, and gradients."""
    return mlx.nn.value_and_grad(model, default_loss)(model, *batch)


def gradients(model, batch):
    (loss, _), grads = step(model, batch)
    return {"loss": loss, **tree_flatten(grads, destination={})}


def assert_same_gradients(got, expected):
    __tracebackhide__ = True
    assert got.keys() == expected.keys()
    for path, gradient in expected.items():
        scale = largest(gradient)
        assert scale > 0, f"{path} is not trained, so the test shows nothing of it"
        off = largest(got[path] - gradient)
        assert off <= ROUNDINGS * ROUNDOFF[mx.float32] * scale, f"{path}: {off:.3g} of {scale:.3g}"


@contextlib.contextmanager
def patched_process(model):
    mlx_norms.patch()
    try:
        yield
    finally:
        mlx_norms.unpatch()


@contextlib.contextmanager
def patched_model(model):
    mlx_norms.patch(model)
    try:
        yield
    finally:
        mlx_norms.unpatch(model)


def patched_block(model):
    return mlx_norms.patched()


kinds = pytest.mark.parametrize("kind", ["full", "lora", "qlora"])
patches = pytest.mark.parametrize("patch", [patched_process, patched_block, patched_model])


@kinds
@patches
def test_gradients(kind, patch, batch):
    model = make(kind)
    expected = gradients(model, batch)
    trained_norms = [path for path in expected if "norm" in path]
    assert len(trained_norms) == (2 * LAYERS + 1 if kind == "full" else 0)
    with patch(model):
        got = gradients(model, batch)
        assert mlx_norms.report().reasons == FORWARD
    assert_same_gradients(got, expected)


@kinds
def test_fuse(kind, batch):
    """By the graph pass, over forward and backward."""
    model = make(kind)
    expected = gradients(model, batch)
    assert_same_gradients(mlx_norms.fuse(gradients)(model, batch), expected)


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_compiled_steps(kind, batch):
    """Two steps, traced once with the parameters as state."""

    def train():
        model = make(kind)
        optimizer = SGD(learning_rate=0.01)
        optimizer.init(model.trainable_parameters())

        def one(*batch):
            (loss, _), grads = step(model, batch)
            optimizer.update(model, grads)
            return loss

        state = [model.state, optimizer.state]
        compiled = mx.compile(one, inputs=state, outputs=state)
        losses = []
        for _ in range(2):
            losses.append(compiled(*batch))
            mx.eval(losses, state)
        return {"losses": mx.stack(losses), **tree_flatten(model.parameters(), destination={})}

    got, report = run_patched(train)
    assert report.reasons == FORWARD
    assert got["losses"][-1] < got["losses"][0]
    assert_same_gradients(got, run_stock(train))


@pytest.fixture
def block_class(monkeypatch):
    """The class that grad_checkpoint changes, put back after the test."""
    cls = llama.TransformerBlock
    monkeypatch.setattr(cls, "__call__", cls.__call__)
    return cls


@pytest.mark.parametrize("kind", ["full", "lora"])
@patches
def test_grad_checkpoint(kind, patch, batch, block_class):
    expected = gradients(make(kind), batch)
    model = make(kind)
    with patch(model):
        grad_checkpoint(model.layers[0])
        got = gradients(model, batch)
        reasons = mlx_norms.report().reasons
    assert reasons == CHECKPOINTED[kind]
    assert_same_gradients(got, expected)


@patches
def test_grad_checkpoint_before_the_patch(patch, batch, block_class):
    expected = gradients(make("lora"), batch)
    model = make("lora")
    grad_checkpoint(model.layers[0])
    with patch(model):
        got = gradients(model, batch)
        assert mlx_norms.report().reasons == CHECKPOINTED["lora"]
    assert_same_gradients(got, expected)


def peak_memory(f):
    """Bytes that f() takes at once.

    With a memory limit MLX waits for what is under way before it allocates, so that the figure
    depends little on how far a CPU stream runs ahead, which MLX counts in operations.
    """
    mx.synchronize()
    mx.clear_cache()  # whose buffers may be larger than what is asked for
    limit = mx.set_memory_limit(1)
    try:
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(f())
        return mx.get_peak_memory() - before
    finally:
        mx.set_memory_limit(limit)


@kinds
def test_peak_memory_is_not_higher(kind, batch, backend):
    model = make(kind)
    gc.collect()

    times = 8

    def peak():
        # The least: how long arrays stay in flight is chance on a GPU.
        return min(peak_memory(lambda: step(model, batch)) for _ in range(times))

    stock = peak()
    with mlx_norms.patched():
        patched = peak()
        assert mlx_norms.report().fused == times * FORWARD[FUSED]
    # An array or two may still be in flight, or a few where a GPU runs behind. To keep one more
    # for each norm would take seven.
    activation = (batch[0].size - len(batch[0])) * CONFIG["hidden_size"] * 4
    assert patched <= stock + (5 if backend == "cuda" else 2) * activation
