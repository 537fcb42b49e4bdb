"""MLX's ropes of queries and keys in one launch, where a pass fuses products of few rows anyway."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

import mlx_norms
from mlx_norms import _ext
from mlx_norms.commands import _tiny_models
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES
from support.patched_runs import ROUNDOFF, operations

# On the CPU MLX composes a rope of many operations.
pytestmark = [pytest.mark.usefixtures("mlx_ropes"), pytest.mark.gpu]

WIDTH, D, EPS = 128, 64, 1e-5
BESIDE = "a rope beside another, in its launch"
PLAIN = dict(traditional=False, base=10000.0, scale=1.0, offset=3)
ROPE = mx.fast.rope


@pytest.fixture
def mlx_ropes(backend, monkeypatch):
    """The simulated device has MLX's nodes, which it cannot compute."""
    if backend == "metal-sim":
        from _hostmetal import rope

        monkeypatch.setattr(mx.fast, "rope", rope)


def graph(of_q, of_k, dtype=mx.float16, batch=1, tokens=1, dims=(D, D), heads=(4, 2)):
    """q and k before their ropes, and a function that rotates them."""
    arrays = normal((WIDTH,), dtype, seed="w"), normal((batch, tokens, WIDTH), dtype, seed="x")
    matrices = [normal((h * D, WIDTH), dtype, seed=f"m{h}") * 0.1 for h in heads]
    mx.eval(arrays, matrices)

    def before():
        n = mx.fast.rms_norm(arrays[1], arrays[0], EPS)
        shape = batch, tokens, -1, D
        return [(n @ m.T).reshape(shape).transpose(0, 2, 1, 3) for m in matrices]

    def after(q, k, rope=None):
        rope = rope or mx.fast.rope
        return [rope(y, n, **o) for y, n, o in zip((q, k), dims, (of_q, of_k), strict=True)]

    return before, after


def pairs(*args, **kwargs):
    """The pairs found, once the results are known to have the bits of MLX's rope on CUDA."""
    before, after = graph(*args, **kwargs)
    with mlx_norms.patched(projections=True):
        got = after(*before())
        _ext.fuse_at_eval(got, True, True)
        found = mlx_norms.report().around.get(BESIDE, 0)
        rows = before()
        mx.eval(rows)
        if found:
            mx.eval(got)
            for y, expected in zip(got, after(*rows, ROPE), strict=True):
                if mx.cuda.is_available():
                    assert_same_bits(y, expected)
                else:
                    off = mx.max(mx.abs(y - expected)) / mx.max(mx.abs(expected))
                    far = args[0]["offset"] if isinstance(args[0]["offset"], int) else 0
                    assert (
                        off.item() <= 2 * ROUNDOFF[y.dtype] + 1e-5 + 4 * far * ROUNDOFF[mx.float32]
                    )
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"traditional": True}, {"scale": 0.5, "base": 5e5}, {"offset": 100_000}, {"offset": 0}],
)
def test_options(options, tokens, dtype):
    options = PLAIN | options
    assert pairs(options, options, dtype=dtype, tokens=tokens) == 1


def test_part_of_the_head():
    assert pairs(PLAIN, PLAIN, dims=(32, 32)) == 1


def test_an_array_of_an_offset():
    offset = mx.array([7])
    assert pairs(PLAIN | {"offset": offset}, PLAIN | {"offset": offset}) == 1


def test_frequencies():
    freqs = mx.exp(mx.arange(D // 2) / 8)
    options = PLAIN | {"freqs": freqs, "base": None}
    assert pairs(options, options, tokens=2) == 1


def test_sequences():
    assert pairs(PLAIN, PLAIN, batch=3, tokens=2) == 1


@pytest.mark.parametrize(
    "other", [{"offset": 4}, {"base": 5e5}, {"scale": 0.5}, {"traditional": True}], ids=str
)
def test_other_angles(other):
    assert pairs(PLAIN, PLAIN | other) == 0


def test_other_dims():
    assert pairs(PLAIN, PLAIN, dims=(D, 32)) == 0


def test_many_tokens():
    assert pairs(PLAIN, PLAIN, tokens=17) == 0


def test_keys_of_rotated_queries():
    before, _ = graph(PLAIN, PLAIN)
    with mlx_norms.patched(projections=True):
        q, _ = before()
        q = mx.fast.rope(q, D, **PLAIN)
        k = (q.transpose(0, 2, 1, 3) * 2).transpose(0, 2, 1, 3)
        _ext.fuse_at_eval([q, mx.fast.rope(k, D, **PLAIN)], True, True)
        assert mlx_norms.report().around.get(BESIDE, 0) == 0


def test_layers_of_a_model():
    """Those of one layer are joined, though others stand between them in the graph."""
    model = _tiny_models.build("llama", head_dim=128)
    mx.eval(model.parameters())
    cache = make_prompt_cache(model)
    with mlx_norms.patched(projections=True):
        logits = model(mx.array([[3]]), cache=cache)
        _ext.fuse_at_eval([logits], True, True)
        assert mlx_norms.report().around.get(BESIDE, 0) == len(model.layers)
        assert operations(logits)["mlx_norms::Rope"] == len(model.layers)
        assert operations(logits)["RoPE"] == 0
