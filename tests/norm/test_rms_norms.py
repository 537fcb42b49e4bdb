"""rms_norms and l2_norms: each result has the bits of a call alone, whatever is beside it."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support import inputs
from support.bits import assert_same_bits
from support.checks import check_outputs
from support.inputs import normal, unless_slow
from support.norm_case import DTYPES, Norm

pytestmark = pytest.mark.usefixtures("backend", "no_fusion")

EPS = 1e-6
# Lengths and rows of two, three and four arrays. Of one length, or of threads, vectors and
# SIMD-groups of their own; rows that fill no SIMD-group, one, or several.
TOGETHER = (
    ((64, 3), (64, 5)),
    ((1, 3), (2, 70), (3, 9), (5, 1)),
    ((128, 9), (128, 0), (128, 1), (128, 40)),
    ((16, 33), (256, 3), (16, 33)),
    ((1536, 2), (512, 3)),
    ((512, 21), (1536, 5), (64, 37)),
    ((4096, 2), (4096, 3)),
    ((6144, 2), (1024, 3)),
    ((96, 70), (2560, 3), (1000, 5), (2048, 1)),
    ((33, 5), (1001, 2), (130, 7)),
    ((7, 3), (8, 3), (12, 3), (20000, 2)),
    ((20000, 1), (20000, 2)),
    *unless_slow(((16384, 2), (128, 600)), ((65536, 1), (4096, 300), (8192, 3))),
)


def arrays_of(together, dtypes, seed=0):
    """Arrays, and weights of dtypes of which some are None."""
    dtypes = itertools.cycle(dtypes)
    xs = [
        normal((rows, length), next(dtypes), seed=(seed, i))
        for i, (length, rows) in enumerate(together)
    ]
    weights = [
        None if i % 3 == 2 else normal((length,), DTYPES[(seed + i) % 3], seed=(seed, 10 + i))
        for i, (length, _) in enumerate(together)
    ]
    return xs, weights


def alone(x, weight, scale=None, **options):
    """A call alone and MLX's product, each rounding in its turn."""
    y = mlx_norms.rms_norm(x, weight, EPS, **options)
    return y if scale is None else y * mx.array(scale, y.dtype)


def assert_alone(got, xs, weights, scales=None, note="", **options):
    __tracebackhide__ = True
    scales = scales or [None] * len(xs)
    for i, (y, x, w, s) in enumerate(zip(got, xs, weights, scales, strict=True)):
        assert_same_bits(y, alone(x, w, s, **options), f"{i} of {note} {options}")


@pytest.mark.parametrize("together", TOGETHER, ids=str)
def test_each_has_the_bits_of_a_call_alone(together):
    for turn, dtype in enumerate(DTYPES):
        xs, weights = arrays_of(together, [dtype], turn)
        scales = [0.3, 1.0, -2.7, 0.0][: len(xs)]
        assert_alone(mlx_norms.rms_norms(xs, weights, EPS), xs, weights, note=together)
        no_weights = [None] * len(xs)
        got = mlx_norms.rms_norms(xs, eps=EPS, multipliers=scales)
        assert_alone(got, xs, no_weights, scales, note=together)
        got = mlx_norms.rms_norms(xs, weights, EPS, multipliers=scales)
        assert_alone(got, xs, weights, scales, note=together)
    xs, weights = arrays_of(together, DTYPES, 5)
    assert_alone(mlx_norms.rms_norms(xs, weights, EPS), xs, weights, note=together)


@pytest.mark.parametrize("together", TOGETHER[:6], ids=str)
def test_options(together):
    for turn, dtype in enumerate(DTYPES):
        xs, weights = arrays_of(together, [dtype], turn)
        for options in (
            dict(rounding="late"),
            dict(dtype=mx.float32),
            dict(dtype=mx.float16),
            dict(rounding="late", dtype=mx.bfloat16),
        ):
            got = mlx_norms.rms_norms(xs, weights, EPS, **options)
            assert_alone(got, xs, weights, note=together, **options)
        got = mlx_norms.rms_norms(xs, weights, EPS, weight_offset=1.0)
        for y, x, w in zip(got, xs, weights, strict=True):
            options = dict(weight_offset=1.0) if w is not None else dict(rounding="late")
            assert_same_bits(y, alone(x, w, **options), str(together))


@pytest.mark.parametrize("together", TOGETHER, ids=str)
def test_l2_norms(together):
    for dtype, inside in itertools.product(DTYPES, (False, True)):
        xs, _ = arrays_of(together, [dtype])
        options = dict(eps=EPS, eps_inside=inside)
        got = mlx_norms.l2_norms(xs, **options)
        scales = [0.125, 3.3, 1.0, -1.0][: len(xs)]
        scaled = mlx_norms.l2_norms(xs, scales, **options)
        for y, z, x, s in zip(got, scaled, xs, scales, strict=True):
            want = mlx_norms.l2_norm(x, EPS, eps_inside=inside)
            assert_same_bits(y, want, f"{together} {options}")
            assert_same_bits(z, want * mx.array(s, want.dtype), f"{together} {options} by {s}")
            check_outputs(Norm("l2_norm", eps=EPS, eps_inside=inside), {"x": x}, [y])


def test_lengths():
    """Each beside one that is longer, and one that is shorter by one."""
    for length in range(2, 301, 37 if inputs.SLOW else 5):
        for dtype in inputs.in_turn(DTYPES, length):
            xs, weights = arrays_of(((length, 5), (length - 1, 3), (3 * length, 2)), [dtype])
            got = mlx_norms.rms_norms(xs, weights, EPS)
            assert_alone(got, xs, weights, note=f"{length} {dtype}")


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_parts_of_a_packed_projection(count):
    """They are read in place."""
    sizes = (256, 96, 16, 33)[:count]
    for dtype in DTYPES:
        packed = normal((2, 5, sum(sizes)), dtype, seed=count)
        mx.eval(packed)
        xs = mx.split(packed, list(itertools.accumulate(sizes))[:-1], axis=-1)
        heads = [x.reshape(2, 5, -1, 16) if x.shape[-1] % 16 == 0 else x for x in xs]
        for of in (xs, heads, [x.swapaxes(0, 1) for x in xs]):
            weights = [normal(x.shape[-1:], dtype, seed=3) for x in of]
            assert_alone(mlx_norms.rms_norms(of, weights, EPS), of, weights, note=f"{dtype}")


def test_of_one_array():
    for dtype in DTYPES:
        x = normal((3, 64), dtype, seed=1)
        w = normal((64,), dtype, seed=2)
        got = mlx_norms.rms_norms([x, x, x], [w, None, w], EPS, multipliers=[1, 2, 3])
        assert_alone(got, [x] * 3, [w, None, w], [1, 2, 3])
        assert_alone(mlx_norms.rms_norms([x], [w], EPS, multipliers=[0.7]), [x], [w], [0.7])


@pytest.mark.parametrize("shapeless", [False, True])
def test_compiled(shapeless):
    def f(x, z, w):
        a, b = mlx_norms.rms_norms([x, z], [w, None], EPS, multipliers=[0.5, 0.3])
        c, d = mlx_norms.rms_norms([x, z], [w, None], EPS, multipliers=[0.5, 0.4])
        return [a, b, c, d, *mlx_norms.l2_norms([z, x], [2.0, 3.0])]

    compiled = mx.compile(f, shapeless=shapeless)
    gradient = mx.grad(lambda *a: sum(mx.sin(y).sum() for y in f(*a)), argnums=(0, 1, 2))
    compiled_gradient = mx.compile(gradient, shapeless=shapeless)
    for length, other in ((64, 96), (96, 8), (33, 4096), (5000, 5000)):
        x, z = normal((3, length), mx.float32, seed=1), normal((2, other), mx.float32, seed=2)
        w = normal((length,), mx.float32, seed=3)
        for got, want in zip(compiled(x, z, w), f(x, z, w), strict=True):
            assert_same_bits(got, want, f"{length} and {other}")
        for got, want in zip(compiled_gradient(x, z, w), gradient(x, z, w), strict=True):
            assert mx.allclose(got, want, 1e-5, 1e-5), f"{length} and {other}"


@pytest.mark.gpu
def test_recorded():
    """The same call again is encoded by the plan of the first, with other arrays."""
    w = normal((64,), mx.float32, seed=9)
    for seed in range(4):
        x, z = normal((3, 64), mx.float32, seed=seed), normal((2, 1024), mx.float32, seed=seed)
        mx.eval(x, z)
        assert_alone(mlx_norms.rms_norms([x, z], [w, None], EPS), [x, z], [w, None])


def shares(launches, lengths, dtypes, rows=3):
    """How many launches norms of these lengths take."""
    xs = [
        normal((rows, length), dtype, seed=i)
        for i, (length, dtype) in enumerate(zip(lengths, itertools.cycle(dtypes)))
    ]
    mx.eval(xs)
    return len(launches(*mlx_norms.rms_norms(xs)))


def test_launches(launches):
    half, single = [mx.bfloat16], [mx.float32]
    for lengths in ((128, 128), (1536, 512), (256, 16, 16), (4096, 4096), (64, 128, 2048, 8)):
        assert shares(launches, lengths, half) == 1
        assert shares(launches, lengths, single) == 1
    assert shares(launches, (64, 64), (mx.float16, mx.bfloat16)) == 1
    assert shares(launches, (20000, 20000), half) == 1
    assert shares(launches, (33, 1001), half) == 1
    assert shares(launches, (60, 64), single) == 1
    # Of no common instance.
    assert shares(launches, (64, 64), (mx.float32, mx.bfloat16)) == 2
    assert shares(launches, (60, 64), half) == 2
    assert shares(launches, (63, 64), single) == 2
    assert shares(launches, (20000, 64), single) == 2
    assert shares(launches, (64, 63, 128, 65), single) == 2


def refused(op, *words):
    return pytest.raises(ValueError, match=rf"^\[{op}\] " + ".*".join(["", *words]))


def test_what_is_refused():
    x, z = mx.ones((2, 4)), mx.ones((2, 6))
    w, v = mx.ones(4), mx.ones(6)
    rms, l2 = mlx_norms.rms_norms, mlx_norms.l2_norms
    for op, f in (("rms_norms", rms), ("l2_norms", l2)):
        for count in (0, 5):
            with refused(op, r"\bxs\b", "1 to 4", str(count)):
                f([x] * count)
        with refused(op, r"\bxs\[1\] ", "float32, float16 or bfloat16", "int32"):
            f([x, z.astype(mx.int32)])
        with refused(op, r"\bxs\[0\] ", "at least 1 axis"):
            f([mx.array(1.0), x])
        with refused(op, r"\bmultipliers\b", "2", "3"):
            f([x, z], multipliers=[1, 2, 3])
        with refused(op, r"\beps\b"):
            f([x, z], eps=-1.0)
        with refused(op, r"\bdtype\b"):
            f([x, z], dtype=mx.int32)
        with pytest.raises(TypeError):
            f([x, None])
        with pytest.raises(TypeError):
            f([x, 1.0])
    with refused("rms_norms", r"\bweights\b", "2", "1"):
        rms([x, z], [w])
    with refused("rms_norms", r"weights\[1\] ", r"\(6\)", r"\(4\)"):
        rms([x, z], [w, w])
    with refused("rms_norms", r"weights\[0\] ", "float32, float16 or bfloat16"):
        rms([x, z], [w.astype(mx.int32), v])
    with refused("rms_norms", "weight_offset", "no weight"):
        rms([x, z], [None, None], weight_offset=1.0)
    with refused("rms_norms", "rounding"):
        rms([x, z], [w, v], rounding="never")
