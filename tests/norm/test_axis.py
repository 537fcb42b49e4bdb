"""rms_norm and layer_norm over an axis that is not the last one, such as channels."""

import itertools

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest

import mlx_norms
from support import inputs, oracle
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES, Norm
from support.releases import since

pytestmark = pytest.mark.usefixtures("backend")

OPS = ("rms_norm", "layer_norm")
OF_OP = pytest.mark.parametrize("op", OPS)


def arrays_of(op, shape, dtype, *, axis=1, plain=False, to=None, mean=0.0):
    x = (normal(shape, mx.float32, seed=shape) + mean).astype(dtype)
    arrays = {"x": x}
    if not plain:
        arrays["weight"] = normal((shape[axis],), to or dtype, seed=(1, shape[axis]), mean=1.0)
        if op == "layer_norm":
            arrays["bias"] = normal((shape[axis],), to or dtype, seed=(2, shape[axis]))
    return arrays


def truth(truths, axis):
    """A truth of rows as one of channels."""
    value, slack = truths.value, truths.slack
    if np.ndim(slack):
        slack = np.moveaxis(np.broadcast_to(slack, value.shape), -1, axis)
    return oracle.Truth(np.moveaxis(value, -1, axis), slack, truths.dtype, truths.config)


def check(op, arrays, axis=1, cotangent=None, **options):
    """The values and all gradients, against the oracle of the rows."""
    __tracebackhide__ = True
    norm = Norm(op, **options)
    of_norm = {k: v for k, v in norm.options.items() if k != "clamp"}
    names = list(arrays)
    note = f"axis {axis} of {arrays['x'].shape}"

    def f(*values):
        given = dict(zip(names, values, strict=True))
        return getattr(mlx_norms, op)(**given, **of_norm, axis=axis)

    rows = arrays | {"x": mx.contiguous(mx.moveaxis(arrays["x"], axis, -1))}
    dtype = norm.out_dtype(rows)
    if cotangent is None:
        cotangent = normal(arrays["x"].shape, dtype, seed=(3, arrays["x"].shape))
    (y,), gradients = mx.vjp(f, list(arrays.values()), [cotangent])
    truth(oracle.forward(norm, rows)[0], axis).check(y, note)
    of_rows = mx.contiguous(mx.moveaxis(cotangent, axis, -1))
    for name, gradient in zip(names, gradients, strict=True):
        wanted = oracle.gradients(norm, rows, of_rows)[name]
        (truth(wanted, axis) if name == "x" else wanted).check(gradient, f"{note}, of {name}")
    return y


# To either side of vectors, of what shares a SIMD-group and of what registers hold.
INNER = (1, 2, 3, 4, 7, 8, 9, 16, 49, 64, 100, 256, 257)
CHANNELS = (1, 2, 3, 5, 16, 31, 64, 65, 100, 320)


@OF_OP
def test_every_size(op):
    sizes = list(itertools.product(CHANNELS, INNER))
    for i, (channels, inner) in enumerate(sizes[:: 5 if inputs.SLOW else 1]):
        outer = (1, 2, 3)[i % 3] if channels * inner < 5000 else 1
        check(op, arrays_of(op, (outer, channels, inner), DTYPES[i % 3], plain=i % 2 == 1))


MANY_CHANNELS = ((600, 8), (1100, 64), (2100, 16), (1030, 3), (5000, 1))


@OF_OP
@pytest.mark.parametrize("channels, inner", MANY_CHANNELS)
def test_more_channels_than_registers_hold(op, channels, inner):
    for dtype in DTYPES:
        check(op, arrays_of(op, (2, channels, inner), dtype))


@OF_OP
def test_any_axis(op):
    for shape, axis in [((3, 5), 0), ((2, 3, 4, 5), 1), ((2, 3, 4, 5), 2), ((2, 3, 4, 5), 0)]:
        for dtype in DTYPES:
            arrays = arrays_of(op, shape, dtype, axis=axis)
            y = check(op, arrays, axis)
            again = getattr(mlx_norms, op)(**arrays, axis=axis - len(shape))
            assert_same_bits(again, y, "counted from the end")


@OF_OP
def test_the_last_axis_is_the_norm_of_rows(op):
    arrays = arrays_of(op, (2, 3, 16), mx.float16, axis=2)
    norm = getattr(mlx_norms, op)
    for axis in (2, -1):
        assert_same_bits(norm(**arrays, axis=axis), norm(**arrays))


@OF_OP
def test_dtypes_and_options(op):
    for x, to, out in itertools.product(DTYPES, DTYPES, (None, *DTYPES)):
        for inner in (20, 32):  # in 16 bits, vectors of four and of eight
            check(op, arrays_of(op, (2, 24, inner), x, to=to), dtype=out)
    for options in (dict(rounding="late"), dict(weight_offset=1.0), dict(eps=0.1)):
        for dtype, inner in itertools.product(DTYPES, (5, 32)):
            check(op, arrays_of(op, (2, 24, inner), dtype), **options)


@pytest.mark.parametrize("mean", [3.0, 10.0, 1000.0])
def test_a_mean_beside_which_the_spread_is_small(mean):
    for channels, inner in ((3, 7), (64, 16), (1100, 8)):
        for dtype in DTYPES:
            check("layer_norm", arrays_of("layer_norm", (2, channels, inner), dtype, mean=mean))


FIRST = pytest.mark.parametrize("first", [1, 3], ids=["one", "three"])


@FIRST
def test_first_channels_far_from_the_others(first):
    x = normal((2, 64, 16), mx.float32, seed=1)
    x[:, :first] = 3000.0
    check("layer_norm", {"x": x})


@OF_OP
def test_views(op):
    whole = normal((3, 6, 10, 12), mx.float32, seed=1)
    views = [whole.transpose(0, 3, 1, 2), whole[:, 1:, 2:, 3:], whole[::2], whole[:, ::2]]
    views += [
        mx.broadcast_to(whole[:1], (4, 6, 10, 12)),
        whole[..., ::-1],
        whole.T,
        whole[:, :, 1:],
    ]
    for view, dtype in itertools.product(views, DTYPES):
        x = normal(whole.shape, dtype, seed=1) if view is whole else view.astype(dtype)
        weight = normal((3 * x.shape[1],), dtype, seed=2)[::3]
        check(op, {"x": view if dtype == mx.float32 else x, "weight": weight})
        cotangent = normal((*x.shape[:1], *x.shape[2:], x.shape[1]), dtype, seed=3)
        check(op, {"x": x}, cotangent=mx.moveaxis(cotangent, -1, 1))


@OF_OP
@pytest.mark.parametrize("shape", [(1, 5), (5, 18), (513, 42)], ids=str)
def test_columns_that_are_not_there_add_nothing_without_eps(op, shape):
    """Theirs is a root of zero, whose inverse is infinite."""
    check(op, arrays_of(op, shape, mx.float32, axis=0, mean=1.0), axis=0, eps=0.0)


def test_channels_that_are_not_there_add_nothing_to_huge_columns():
    """Zero less the mean times rstd is infinite, though no channel's is."""
    x = mx.full((2, 5, 3), 5e37)
    g = normal(x.shape, mx.float32, seed=1)
    _, (of_x,) = mx.vjp(lambda x: mlx_norms.layer_norm(x, axis=1), [x], [g])
    rstd = np.float64(1e-5) ** -0.5
    expected = (np.array(g) - np.array(g).mean(1, keepdims=True)) * rstd
    np.testing.assert_allclose(np.array(of_x), expected, rtol=1e-4, atol=1e-3)


def test_gradients_are_deterministic():
    arrays = arrays_of("layer_norm", (6, 64, 320), mx.bfloat16)
    cotangent = normal(arrays["x"].shape, mx.bfloat16, seed=5)

    def once():
        f = lambda *a: mlx_norms.layer_norm(*a, axis=1)  # noqa: E731
        return mx.vjp(f, list(arrays.values()), [cotangent])[1]

    for a, b in zip(once(), once(), strict=True):
        assert_same_bits(a, b)


@OF_OP
def test_compiled_axes_are_told_apart(op):
    x = mx.random.normal((2, 4, 4, 3), key=mx.random.key(0))
    norm = getattr(mlx_norms, op)

    def f(x):
        # MLX merges no outputs.
        return [mx.negative(norm(x, axis=1)), mx.negative(norm(x, axis=2))]

    for a, b in zip(mx.compile(f)(x), f(x), strict=True):
        assert_same_bits(a, b)


ACTIVATIONS = {
    "silu": lambda y: y * mx.sigmoid(y),
    "sigmoid": mx.sigmoid,
    "gelu": mlx.nn.gelu,
    "relu2": mlx.nn.relu2,
}
PAIRS = list(itertools.product((mx.float32, mx.float16, mx.bfloat16), repeat=2))


# Metal's exponentials are not MLX's, which simulated Metal computes on the CPU.
@since("0.32.3")
@pytest.mark.parametrize(
    "activation",
    [
        pytest.param(name, marks=() if name == "relu2" else pytest.mark.backends("cpu", "cuda"))
        for name in ACTIVATIONS
    ],
)
def test_activation_is_bit_identical_to_ops(activation):
    """Early, each step rounds to the result's dtype, which may be wider than x's."""
    w = normal((7,), mx.float32, seed="w")
    for dtype, to in PAIRS:
        x = (normal((2, 7, 33), mx.float32, seed="x") * 3).astype(dtype)
        options = {"axis": 1, "dtype": to, "rounding": "early"}
        y = mlx_norms.rms_norm(x, w, **options)
        ours = mlx_norms.rms_norm(x, w, activation=activation, **options)
        assert_same_bits(ours, ACTIVATIONS[activation](y), f"{dtype} to {to}")


@OF_OP
def test_refusals(op):
    x = mx.ones((2, 4, 3))
    norm = getattr(mlx_norms, op)
    for axis in (3, -4, 100):
        with pytest.raises(ValueError, match=rf"axis must be from -3 to 2 .* is {axis}"):
            norm(x, axis=axis)
    with pytest.raises(ValueError, match="at least 1 axis"):
        norm(mx.array(1.0), axis=0)
    with pytest.raises(ValueError, match=r"weight must have shape \(4\), the normalized axis"):
        norm(x, mx.ones(3), axis=1)
    for name in ("scale", "shift"):
        with pytest.raises(ValueError, match=f"axis must be the last one with {name}"):
            norm(x, axis=1, **{name: mx.ones(3)})
    with pytest.raises(ValueError, match="x must be float32"):
        norm(x.astype(mx.int32), axis=1)
    with pytest.raises(ValueError, match="weight_offset"):
        norm(x, axis=1, weight_offset=1.0)
    if op == "rms_norm":
        with pytest.raises(ValueError, match="axis must be the last one with group"):
            norm(x, axis=1, group=mx.distributed.init())
        with pytest.raises(ValueError, match="axis must be the last one with gate"):
            norm(x, axis=1, gate=x)
        with pytest.raises(ValueError, match="axis must be the last one with num_groups"):
            norm(x, axis=1, num_groups=3)
    else:
        with pytest.raises(ValueError, match="bias must have shape"):
            norm(x, None, mx.ones(2), axis=1)


@OF_OP
def test_rounding_is_that_of_rows(op):
    """Early, the normalized value is rounded before the weight, to the same bits."""
    norm = getattr(mlx_norms, op)
    for dtype in (mx.float16, mx.bfloat16):
        for shape in ((2, 64, 40), (3, 33, 7)):
            arrays = arrays_of(op, shape, dtype)
            x, weight = arrays["x"], arrays["weight"]
            n, w = norm(x, axis=1).astype(mx.float32), weight.astype(mx.float32)
            wanted = (n * w[:, None]).astype(dtype)
            assert_same_bits(norm(x, weight, axis=1), wanted)


def test_many_channels_of_one_value():
    """The rounding errors of their sum all have one sign."""
    for op, value in itertools.product(OPS, (0.7, 1.1, 1.3)):
        x = mx.full((1, 4099, 5), value)
        x[0, ::2] *= -1.0 if op == "layer_norm" else 1.0
        weight = normal((4099,), mx.float32, seed=1, mean=1.0)
        check(op, {"x": x, "weight": weight})
    for value in (1.1, 1.34765625):  # float16 has their squares' roundings in float32 alone
        x = mx.full((1, 9410, 10), value, mx.float16)
        check("rms_norm", {"x": x}, rounding="late", dtype=mx.float32)


@FIRST
def test_first_channels_off_by_some_deviations(first):
    x = normal((1, 1372, 256), mx.float32, seed=1)
    x[:, :first] = mx.linspace(-100.0, 100.0, 256)
    check("layer_norm", {"x": x})
