"""norm_rope and qk_norm_rope, beside float64 and MLX's ops."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from support import inputs
from support.bits import assert_same_bits
from support.inputs import normal, unless_slow
from support.norm_case import DTYPES
from support.oracle import exact
from support.rope_case import Case, norm_rope, qk_norm_rope, tensors

pytestmark = pytest.mark.usefixtures("backend", "no_fusion")

# To either side of what a thread, some lanes and a SIMD-group hold.
HEAD_DIMS = (2, 4, 6, 8, 16, 20, 34, 64, 80, 96, 128, 256, *unless_slow(258, 512, 514, 1024))


# Of the sines of MLX's kernel for Metal, within half a turn; elsewhere as of others.
MLX_TRIG = {"metal": 2.0**-13, "metal-sim": 2.0**-13}


@pytest.fixture
def case(request):
    """Makes a case of options, for the backend in use."""
    gpu = request.config.getoption("--backend") != "cpu"
    return lambda trig=Case.trig, **options: Case(options, gpu, trig)


def one(shape, dtype, seed=0):
    q, _, weight, _ = tensors(shape, dtype, seed=seed)
    return q, weight


@pytest.mark.parametrize("traditional", [False, True])
def test_head_dims(case, traditional):
    for d, dtype in itertools.product(HEAD_DIMS, DTYPES):
        x, weight = one((2, 3, 2, d), dtype)
        for rounding in ("early", "late"):
            case(traditional=traditional, rounding=rounding, offset=11).check(x, weight)
            case(traditional=traditional, rounding=rounding, rope_first=True).check(x, weight)


@pytest.mark.parametrize("traditional", [False, True])
def test_part_of_a_head(case, traditional):
    """Also of odd length."""
    sizes = ((3, 2), (7, 4), (33, 32), (64, 2), (64, 36), (65, 34), (96, 64), (128, 32), (256, 192))
    for d, dims in sizes:
        for dtype in inputs.in_turn(DTYPES, d):
            x, weight = one((1, 5, 3, d), dtype)
            for first in (False, True):
                case(dims=dims, traditional=traditional, rope_first=first).check(x, weight)


def test_longer_rows_than_a_simd_group_holds(case, backend):
    """Whose rotation is MLX's on a GPU."""
    trig = MLX_TRIG.get(backend, Case.trig)
    for d in (1026, 1536, 2048):
        for dtype in inputs.in_turn(DTYPES, d):
            x, weight = one((1, 2, 2, d), dtype)
            case(trig, dims=d // 2 // 2 * 2).check(x, weight)


def test_offsets(case):
    for dtype in DTYPES:
        x, weight = one((3, 4, 2, 32), dtype)
        for offset in (0, 7, -3, 4095, 131072 - 4):
            for given in (offset, mx.array(offset), mx.array([offset])):
                case(offset=given).check(x, weight)
        for kind in (mx.int32, mx.int64, mx.int16, mx.int8):
            case(offset=mx.array([5, -9, 0], dtype=kind)).check(x, weight)
        for kind in (mx.uint32, mx.uint64, mx.uint16, mx.uint8):
            case(offset=mx.array([5, 9, 0], dtype=kind)).check(x, weight)
        case(offset=mx.array([1, 100, 2, 200, 3, 300])[1::2]).check(x, weight)
        case(offset=mx.array([5, 6, 7])[::-1], scale=0.125).check(x, weight)


def test_bases_and_frequencies(case):
    freqs = mx.array(np.linspace(1, 500, 32, dtype=np.float32))
    for dtype in DTYPES:
        x, weight = one((2, 6, 2, 64), dtype)
        for base in (500.0, 1e6, 8e6):
            case(base=base, offset=1000).check(x, weight)
        for of in (freqs, freqs[::-1], freqs.astype(mx.bfloat16)):
            for base in ({}, {"base": None}):
                case(freqs=of, offset=77, **base).check(x, weight)
        case(freqs=freqs[:8], dims=16, scale=4.0, traditional=True).check(x, weight)


def test_far_positions(case):
    """Of all tokens at once, to 131072."""
    for dtype in DTYPES:
        x, weight = one((1, 7, 1, 128), dtype)
        for offset in (8191, 65533, 131065):
            for rounding in ("early", "late"):
                case(offset=offset, rounding=rounding).check(x, weight)


def test_other_options(case):
    for dtype, options in itertools.product(
        DTYPES,
        [
            dict(eps=0.5),
            dict(output_layout="BLHD"),
            dict(weight_offset=1.0),
            dict(weight_offset=1.0, rounding="early"),
            dict(rope_first=True, weight_offset=0.5, output_layout="BLHD", offset=9),
        ],
    ):
        x, weight = one((2, 3, 4, 64), dtype)
        case(**options).check(x, weight)
        if "weight_offset" not in options:
            case(**options).check(x)
    for x_dtype, w_dtype in itertools.permutations(DTYPES, 2):
        x, weight = one((2, 3, 4, 48), x_dtype)
        case().check(x, weight.astype(w_dtype))
        case().check(x, normal((4, 48), w_dtype, seed=5))


@pytest.mark.parametrize("rope_first", [False, True])
@pytest.mark.parametrize("rounding", ["early", "late"])
def test_queries_keys_and_values(case, rounding, rope_first):
    """Of other numbers of heads, with a factor of the queries."""
    for d, dtype in itertools.product((20, 64, 96), DTYPES):
        q, k, q_weight, k_weight = tensors((2, 5, 6, d), dtype, kv_heads=3)
        v = normal((2, 5, 7, d), dtype, seed=9)
        options = dict(rounding=rounding, rope_first=rope_first, offset=mx.array([3, -2]))
        of = case(**options)
        call = qk_norm_rope
        got = call(q, k, q_weight, k_weight, v=v, q_multiplier=0.37, **options)
        wanted = (
            of.truth(q, q_weight, factor=0.37),
            of.truth(k, k_weight),
            of.truth(v, rotates=False),
        )
        for y, truth in zip(got, wanted, strict=True):
            truth.check(y)
        pair = call(q, k, None, None, **options)
        assert len(pair) == 2
        for y, x in zip(pair, (q, k), strict=True):
            of.truth(x).check(y)


def test_one_launch_is_single_calls():
    for d, dtype in itertools.product((33, 96, 128), DTYPES):
        q, k, q_weight, k_weight = tensors((1, 9, 5, d), dtype, kv_heads=2)
        options = dict(dims=d // 4 * 2, offset=5)
        y = qk_norm_rope(q, k, q_weight, k_weight, **options)
        assert_same_bits(y[0], norm_rope(q, q_weight, **options))
        assert_same_bits(y[1], norm_rope(k, k_weight, **options))


@pytest.mark.backends("cpu", "cuda")
def test_early_is_the_chain():
    """The bits of a norm, a transposition and MLX's rope."""
    kinds = (False, True)
    # MLX's kernel on CUDA adds an offset to an unsigned number: below zero it is wrong.
    below = 3 if mx.default_device() == mx.gpu else -3
    offsets = (0, below, mx.array([7, 131000]), mx.array(5))
    for d, dims in ((2, 2), (8, 8), (33, 32), (64, 64), (96, 34), (128, 128), (256, 64)):
        freqs = mx.array(np.linspace(1, 900, dims // 2, dtype=np.float32))
        for dtype, traditional, offset, of, first in itertools.product(
            DTYPES, kinds, offsets, (None, freqs), kinds
        ):
            x, weight = one((2, 5, 3, d), dtype)
            base = None if of is not None else 1e5
            angles = dict(traditional=traditional, base=base, scale=0.5, offset=offset, freqs=of)
            heads = x.transpose(0, 2, 1, 3)
            if first:
                wanted = mlx_norms.rms_norm(mx.fast.rope(heads, dims, **angles), weight)
            else:
                normed = mlx_norms.rms_norm(x, weight).transpose(0, 2, 1, 3)
                wanted = mx.fast.rope(normed, dims, **angles)
            got = norm_rope(x, weight, dims=dims, rope_first=first, **angles)
            assert_same_bits(mx.contiguous(got), mx.contiguous(wanted), f"{d} {dtype} {angles}")


def test_late_rounds_once():
    """Half an ulp, but for what float32 loses."""
    for d in (64, 96):
        x, weight = one((1, 300, 2, d), mx.bfloat16)
        got = norm_rope(x, weight, rounding="late")
        wide = norm_rope(x.astype(mx.float32), weight.astype(mx.float32))
        different = (got != wide.astype(mx.bfloat16)).sum().item()
        assert different <= 1e-3 * got.size


def packed(dtype, d, heads=(4, 2, 2), tokens=6):
    """q, k and v as parts of one projection."""
    x = normal((2, tokens, sum(heads) * d), dtype, seed=(d, 1))
    ends = np.cumsum(heads)[:-1] * d
    return [a.reshape(2, tokens, -1, d) for a in mx.split(x, ends.tolist(), axis=-1)]


def test_strided():
    for d, dtype in itertools.product((33, 64, 96), DTYPES):
        q, k, v = packed(dtype, d)
        w = normal((d,), dtype, seed=1)
        dense = [mx.contiguous(a) for a in (q, k, v)]
        got = qk_norm_rope(q, k, w, w, dims=32, v=v)
        wanted = qk_norm_rope(*dense[:2], w, w, dims=32, v=dense[2])
        for a, b in zip(got, wanted, strict=True):
            assert_same_bits(a, b, f"{d} {dtype}")
        x = dense[0]
        views = {
            "head-major": mx.contiguous(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
            "columns": mx.contiguous(x.transpose(3, 0, 1, 2)).transpose(1, 2, 3, 0),
            "backward": mx.contiguous(x[:, ::-1, ::-1])[:, ::-1, ::-1],
        }
        for name, view in views.items():
            assert_same_bits(
                norm_rope(view, w, dims=32, offset=3),
                norm_rope(x, w, dims=32, offset=3),
                f"{name} {d} {dtype}",
            )


def test_empty_beside_what_is_not():
    q, k = normal((2, 4, 0, 8), mx.float32, seed=1), normal((2, 4, 3, 8), mx.float32, seed=2)
    for first, second in ((q, k), (k, q)):
        y = qk_norm_rope(first, second, None, None)
        assert_same_bits(y[0 if first is k else 1], norm_rope(k, None))
    assert norm_rope(mx.zeros((0, 4, 3, 8)), None, offset=mx.zeros(0, mx.int32)).size == 0


def test_many_tokens(case):
    """Past a block of rows, and a thread's heads."""
    for heads, tokens in ((1, 700), (5, 130), (40, 33), (9, 920)):
        for dtype in inputs.in_turn(DTYPES, tokens):
            q, k, q_weight, k_weight = tensors((2, tokens, heads, 64), dtype, kv_heads=3)
            of = case(offset=mx.array([0, -tokens // 2]))
            y = qk_norm_rope(q, k, q_weight, k_weight, **of.options)
            of.truth(q, q_weight).check(y[0])
            of.truth(k, k_weight).check(y[1])


def test_rows_do_not_affect_each_other():
    for d, dtype in itertools.product((20, 128), DTYPES):
        x, weight = one((2, 5, 4, d), dtype)
        clean = norm_rope(x, weight)
        for bad in (float("nan"), float("inf")):
            spoiled = mx.array(x)
            spoiled[1, 2, 3, d // 2] = bad
            y = norm_rope(spoiled, weight)
            assert mx.all(mx.isnan(y[1, 3, 2]).any())
            keep = np.ones(clean.shape[:3], bool)
            keep[1, 3, 2] = False
            same = np.array(mx.equal(y, clean).all(-1))
            assert same[keep].all()
    # Nor do the elements of a tail, which have no angle.
    x, _ = one((1, 3, 2, 64), mx.float32)
    weight = mx.where(mx.arange(64) == 40, mx.inf, mx.ones(64))
    for traditional in (False, True):
        y = norm_rope(x, weight, dims=32, traditional=traditional)
        assert mx.array_equal(mx.isinf(y), mx.broadcast_to(mx.arange(64) == 40, y.shape))
        assert not mx.any(mx.isnan(y))


def test_alone_or_among_others():
    x, weight = one((4, 6, 9, 96), mx.float16)
    whole = norm_rope(x, weight, offset=mx.array([0, 10, 20, 30]))
    for b, t in itertools.product(range(4), (0, 5)):
        part = norm_rope(x[b : b + 1, t : t + 1, 2:5], weight, offset=10 * b + t)
        assert_same_bits(part, mx.contiguous(whole[b : b + 1, 2:5, t : t + 1]))


def test_gradients(case):
    for d, options in itertools.product(
        (20, 64, 96),
        [
            dict(),
            dict(rope_first=True, output_layout="BLHD"),
            dict(traditional=True, dims=8, offset=mx.array([5, -3])),
            dict(weight_offset=1.0, scale=0.5, base=100.0),
        ],
    ):
        for dtype, each in itertools.product(DTYPES, (False, True)):
            x, weight = one((2, 3, 4, d), dtype)
            weight = normal((4, d), dtype, seed=4) if each else weight
            of = case(**options)
            c = normal(of.call(x, weight).shape, dtype, seed=7)
            _, got = mx.vjp(of.call, [x, weight], [c])
            unit = {mx.float32: 3e-6, mx.float16: 4e-3, mx.bfloat16: 3e-2}[dtype]
            for g, wanted in zip(got, of.gradients(x, weight, c), strict=True):
                assert g.dtype == dtype
                assert np.all(np.abs(exact(g) - wanted) <= unit * (1 + np.abs(wanted).max()))


def close(got, wanted, tolerance=1e-5):
    for a, b in zip(got, wanted, strict=True):
        assert mx.abs(a - b).max() <= tolerance * (1 + mx.abs(b).max())


def test_no_gradient_of_angles():
    x, weight = one((2, 3, 4, 16), mx.float32)
    freqs = mx.arange(1.0, 9.0)

    def f(freqs):
        return norm_rope(x, weight, freqs=freqs).sum()

    with pytest.raises(ValueError, match="vjp for offset or freqs is not supported"):
        mx.grad(f)(freqs)


def test_vmap(backend):
    x, weight = one((3, 2, 4, 32), mx.float32)
    x = mx.stack([x, 2 * x + 1, x - 3])  # [3, 3, 2, 4, 32]
    freqs = mx.arange(1.0, 17.0)
    scalars, several = mx.array([4, -2, 9]), mx.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    one_each, weights = scalars[:, None], mx.stack([weight, weight + 1, -weight])
    of = norm_rope
    cases = {
        "x": (lambda x: of(x, weight, offset=5), (0,), (x,)),
        "axis": (lambda x: of(x, weight, offset=5), (1,), (x.swapaxes(0, 1),)),
        "last": (lambda x: of(x, weight), (4,), (mx.moveaxis(x, 0, 4),)),
        "offset": (lambda x, o: of(x, weight, offset=o), (0, 0), (x, scalars)),
        "offset [1]": (lambda x, o: of(x, weight, offset=o), (0, 0), (x, one_each)),
        "offsets": (lambda x, o: of(x, weight, offset=o), (0, 0), (x, several)),
        "offsets' columns": (lambda x, o: of(x, weight, offset=o), (0, 1), (x, several)),
        "given offsets": (lambda x: of(x, weight, offset=several[1]), (0,), (x,)),
        "offset alone": (lambda o: of(x[0], weight, offset=o), (0,), (scalars,)),
        "weight": (lambda x, w: of(x, w, offset=2), (0, 0), (x, weights)),
        "weight alone": (lambda w: of(x[0], w, offset=2), (0,), (weights,)),
        "freqs": (lambda x: of(x, weight, freqs=freqs), (0,), (x,)),
        "freqs mapped": (
            lambda x, f: of(x, weight, freqs=f),
            (0, 0),
            (x, mx.stack([freqs, 2 * freqs, 3 * freqs])),
        ),
        "first": (lambda x: of(x, weight, rope_first=True, output_layout="BLHD"), (0,), (x,)),
    }
    for name, (f, axes, given) in cases.items():
        got = mx.vmap(f, in_axes=axes)(*given)
        for i in range(3):
            each = [mx.take(a, i, axis) for a, axis in zip(given, axes, strict=True)]
            wanted = f(*each)
            assert got[i].shape == wanted.shape, name
            # Some rotations are MLX's, of two elements and by up to four half turns.
            off = 2 * 4 * MLX_TRIG.get(backend, 0.0) * mx.abs(wanted).max()
            assert mx.abs(got[i] - wanted).max() <= 3e-5 + off, name


def test_compiled():
    """Also without shapes, and with an offset that is an input."""
    x, weight = one((2, 3, 4, 64), mx.float16)
    more = normal((3, 8, 4, 64), mx.float16, seed=8)

    def f(x, offset):
        return norm_rope(x, weight, offset=offset)

    for shapeless in (False, True):
        compiled = mx.compile(f, shapeless=shapeless)
        for of, offset in itertools.product((x, x[:, :1], more), (0, 5, -7)):
            assert_same_bits(compiled(of, mx.array(offset)), f(of, offset), f"{shapeless}")
    scaled = mx.compile(lambda x: [norm_rope(x, weight, scale=s, offset=1) for s in (1.0, 2.0)])
    for y, s in zip(scaled(x), (1.0, 2.0), strict=True):
        assert_same_bits(y, norm_rope(x, weight, scale=s, offset=1))


def test_gradients_compiled_without_shapes():
    x, weight = one((2, 3, 4, 64), mx.float32)
    more = normal((1, 9, 4, 64), mx.float32, seed=8)
    for first in (False, True):

        def loss(x, weight, offset, first=first):
            y = norm_rope(x, weight, offset=offset, rope_first=first)
            return (y * y * y).sum()

        gradients = mx.grad(loss, argnums=[0, 1])
        compiled = mx.compile(gradients, shapeless=True)
        for of, offset in itertools.product((x[:, :1], x, more), (mx.array(0), mx.array(6))):
            close(compiled(of, weight, offset), gradients(of, weight, offset))


def test_of_two_equal_nodes():
    """Which compile may merge, and no other."""
    x, weight = one((1, 4, 2, 16), mx.float32)
    options = [dict(), dict(), dict(traditional=True), dict(dims=8), dict(base=10.0)]
    options += [dict(rope_first=True), dict(output_layout="BLHD"), dict(eps=0.5)]

    def f(x):
        return [norm_rope(x, weight, offset=3, **o) for o in options]

    for a, b in zip(mx.compile(f)(x), f(x), strict=True):
        assert_same_bits(a, b)


def refused(*words, op="norm_rope"):
    return pytest.raises(ValueError, match=rf"^\[{op}\] " + ".*".join(["", *words]))


@pytest.mark.parametrize("output_layout", ["BHLD", "BLHD"])
def test_either_layout_has_the_same_bits(output_layout):
    """Of heads before tokens, as mx.fast.rope reads them, too, in place."""
    for dtype in DTYPES:
        q, k, q_weight, k_weight = tensors((2, 5, 6, 64), dtype, kv_heads=3)
        options = dict(offset=3, output_layout=output_layout)
        heads_first = [mx.contiguous(a.swapaxes(1, 2)) for a in (q, k)]
        got = norm_rope(heads_first[0], q_weight, layout="BHLD", **options)
        assert_same_bits(got, norm_rope(q, q_weight, **options))
        both = qk_norm_rope(*heads_first, q_weight, k_weight, layout="BHLD", **options)
        wanted = qk_norm_rope(q, k, q_weight, k_weight, **options)
        for got, y in zip(both, wanted, strict=True):
            assert_same_bits(got, y)


def test_a_layout_and_an_offset_are_asked_for():
    x = mx.ones((1, 4, 4, 16))
    with pytest.raises(TypeError, match="layout"):
        mlx_norms.norm_rope(x, None, offset=0)
    with pytest.raises(TypeError, match="offset"):
        mlx_norms.norm_rope(x, None, layout="BHLD")


def test_errors():
    x, w = mx.ones((2, 3, 4, 16)), mx.ones(16)
    of = norm_rope
    for bad in (mx.ones((3, 4, 16)), mx.ones((1, 2, 3, 4, 16)), mx.ones(16)):
        with refused("x must have 4 axes"):
            of(bad, w)
    with refused("x must be float32, float16 or bfloat16", "int32"):
        of(x.astype(mx.int32), w)
    for dims in (0, -2, 3, 18):
        with refused("dims", str(dims)):
            of(x, w, dims=dims)
    with refused("weight", r"\(15\)"):
        of(x, mx.ones(15))
    with refused("eps"):
        of(x, w, -1.0)
    with refused("weight_offset", "no weight"):
        of(x, None, weight_offset=1.0)
    with refused("rounding", "sometimes"):
        of(x, w, rounding="sometimes")
    for offset in (mx.array([1, 2, 3]), mx.array([[1], [2]])):
        with refused("offset"):
            of(x, w, offset=offset)
    with refused("offset must be an integer", "float32"):
        of(x, w, offset=mx.array(1.0))
    with refused("offset must be an integer", "bool"):
        of(x, w, offset=True)
    with refused("offset must be an integer", "bool", op="qk_norm_rope"):
        qk_norm_rope(x, x, w, w, offset=False)
    with refused("Only one of base or freqs"):
        of(x, w, base=500.0, freqs=mx.ones(8))
    with refused("layout must be", '"BDLH"'):
        of(x, w, layout="BDLH")
    with refused("output_layout must be", '"HLD"'):
        of(x, w, output_layout="HLD")
    with refused("Neither base nor freqs"):
        of(x, w, base=None)
    with refused("freqs", r"\(8\)", r"\(4\)"):
        of(x, w, freqs=mx.ones(4))
    both = qk_norm_rope
    with refused("k must have q's shape", op="qk_norm_rope"):
        both(x, mx.ones((2, 3, 4, 8)), w, w)
    with refused("k must have q's dtype", op="qk_norm_rope"):
        both(x, x.astype(mx.float16), w, w)
    with refused("v must have q's shape", op="qk_norm_rope"):
        both(x, x, w, w, v=mx.ones((2, 2, 4, 16)))
    with refused("k_weight must be given", op="qk_norm_rope"):
        both(x, x, w, None)
    for bad in ("text", 1.0, [1, 2]):
        with pytest.raises(TypeError):
            both(x, x, w, w, offset=bad)
