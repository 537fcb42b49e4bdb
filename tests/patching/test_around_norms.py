"""What stands before and after a norm and is an option of ours: it becomes part of the norm."""

from dataclasses import dataclass, field

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.activations import swiglu

import mlx_norms
from mlx_norms import _ext
from support.inputs import normal
from support.norm_case import DTYPES
from support.patched_runs import operations

pytestmark = pytest.mark.usefixtures("backend")

B, T, D, EPS = 2, 5, 96, 1e-3
ROWS, VECTOR = (B, T, D), (D,)
# Relative to the largest value; in 16 bits the code rounds at each of some steps, and so may ours.
BOUNDS = {mx.float32: 4e-6, mx.float16: 4e-3, mx.bfloat16: 3e-2}
CASES = []


@dataclass(frozen=True)
class Case:
    """``code(*arrays)`` of these shapes, our ops that compute it, and what the report counts."""

    code: object
    shapes: tuple
    ops: dict
    around: dict = field(default_factory=dict)
    written: dict = field(default_factory=dict)
    fused: int = 0
    dtypes: tuple = tuple(DTYPES)


def case(*shapes, ops, **options):
    def added(code):
        CASES.append(Case(code, shapes, ops, **options))
        return code

    return added


RMS, LAYER = "mlx_norms::RMSNorm", "mlx_norms::LayerNorm"
ADD_RMS, ADD_LAYER = "mlx_norms::AddRMSNorm", "mlx_norms::AddLayerNorm"
GROUPED, CHANNELS = "mlx_norms::GroupNorm", "mlx_norms::ChannelRMSNorm"
TWO = "mlx_norms::NormAddNorm"
SHIFT = "1 + scale and shift after a norm"
GATE, FIRST = "an activated gate after a norm", "a gate or a weight before a norm"
ACTIVATION, CAST = "an activation after a norm", "a cast after a norm"
BEFORE, GROUP = "a norm before the addition", "weight and bias after a group norm"


def rms(x, w=None):
    return mx.fast.rms_norm(x, w, EPS)


def layer(x, w=None, b=None):
    return mx.fast.layer_norm(x, w, b, EPS)


def written(x):
    """A written rms norm, in float32."""
    wide = x.astype(mx.float32)
    return (wide * mx.rsqrt((wide * wide).mean(-1, keepdims=True) + EPS)).astype(x.dtype)


def silu(z):
    return z * mx.sigmoid(z)


@case(ROWS, (B, 1, 3 * D), ops={LAYER: 1}, around={SHIFT: 2})
def one_projection_split(x, m):
    shift, scale, _ = mx.split(m, 3, axis=-1)
    return layer(x) * (1 + scale) + shift


@case(ROWS, (B, D), (B, D), ops={LAYER: 1}, around={SHIFT: 2})
def expanded_scales(x, s, t):
    return layer(x) * (1 + s[:, None]) + t[:, None]


@case(ROWS, (B, D), (B, D), ops={LAYER: 1}, around={SHIFT: 2})
def one_added_before_it_is_expanded(x, s, t):
    return mx.expand_dims(t, 1) + mx.expand_dims(s + 1, 1) * layer(x)


@case(ROWS, (1, T, D), (1, T, D), ops={RMS: 1}, around={SHIFT: 2})
def scales_of_positions(x, s, t):
    return rms(x) * (1 + s) + t


@case(ROWS, (B, 1, D), VECTOR, ops={RMS: 1}, around={SHIFT: 1})
def a_scale_alone(x, s, w):
    return rms(x, w) * (1.0 + s)


@case(ROWS, (2, D), VECTOR, VECTOR, ops={LAYER: 1}, around={SHIFT: 2})
def of_a_table(x, table, w, b):
    shift, scale = table[0], table[1]
    return layer(x, w, b) * (1 + scale) + shift


@case(ROWS, (B, 1, D), (B, 1, D), ops={RMS: 1}, around={SHIFT: 2}, written={"rms_norm": 1})
def of_a_written_norm(x, s, t):
    return written(x) * (1 + s) + t


@case(ROWS, ROWS, (B, 1, 3 * D), ops={ADD_LAYER: 1}, around={SHIFT: 2}, fused=1)
def gated_sum_before(x, y, m):
    gate, shift, scale = mx.split(m, 3, axis=-1)
    h = x + gate * y
    return h, layer(h) * (1 + scale) + shift


@case(ROWS, ROWS, (B, 6 * D), (D, D), ops={ADD_LAYER: 1, LAYER: 1}, around={SHIFT: 4}, fused=1)
def a_block_with_six_modulations(x, y, m, w):
    gate, shift, scale, gate2, shift2, scale2 = mx.split(m[:, None], 6, axis=-1)
    y = mx.tanh((layer(x) * (1 + scale) + shift) @ w) * 0.1 + y
    h = x + gate * y
    return h + gate2 * (layer(h) * (1 + scale2) + shift2)


@case(ROWS, ROWS, VECTOR, ops={RMS: 1}, around={GATE: 1})
def silu_of_a_gate(x, z, w):
    return rms(x, w) * silu(z)


@case(ROWS, ROWS, VECTOR, ops={RMS: 1}, around={GATE: 1})
def sigmoid_of_a_gate(x, z, w):
    return mx.sigmoid(z) * rms(x, w)


@case(ROWS, ROWS, ops={RMS: 1}, around={GATE: 1}, written={"rms_norm": 1})
def gelu_of_a_gate_of_a_written_norm(x, z):
    return written(x) * (z * (1 + mx.erf(z / 2**0.5)) / 2)


@case(ROWS, ROWS, VECTOR, ops={RMS: 1}, around={FIRST: 1})
def gate_before(x, z, w):
    return rms(x * silu(z), w)


@case(ROWS, VECTOR, VECTOR, ops={RMS: 1}, around={FIRST: 1})
def weight_before(x, v, w):
    return rms(v * x, w)


@case(ROWS, VECTOR, ops={RMS: 1}, around={ACTIVATION: 1})
def silu_of_a_norm(x, w):
    y = rms(x, w)
    return y * mx.sigmoid(y)


@case(ROWS, VECTOR, ops={RMS: 1}, around={ACTIVATION: 1})
def relu_squared_of_a_norm(x, w):
    return mx.square(mx.maximum(rms(x, w), 0))


@case(ROWS, ROWS, VECTOR, VECTOR, ops={TWO: 1}, around={BEFORE: 1})
def norm_add_norm(x, r, v, w):
    h = r + rms(x, v)
    return h, rms(h, w)


@case(ROWS, ROWS, VECTOR, VECTOR, ops={TWO: 1}, around={BEFORE: 1})
def alpha_times_a_residual(x, r, v, w):
    h = rms(x, v) + 0.7 * r
    return h, rms(h, w)


@case(ROWS, ROWS, VECTOR, ops={TWO: 1}, around={BEFORE: 1}, written={"rms_norm": 2})
def norm_add_norm_as_written(x, r, w):
    h = written(x) + r
    return h, written(h) * w


@case(ROWS, VECTOR, ops={RMS: 1}, around={CAST: 1}, dtypes=(mx.float16, mx.bfloat16))
def cast_after(x, w):
    return rms(x.astype(mx.float32), w.astype(mx.float32)).astype(x.dtype)


@case(
    ROWS,
    ROWS,
    ops={RMS: 1},
    around={CAST: 1, GATE: 1},
    written={"rms_norm": 1},
    dtypes=(mx.float16, mx.bfloat16),
)
def gated_before_it_is_narrow(x, z):
    wide = x.astype(mx.float32)
    y = wide * mx.rsqrt((wide * wide).mean(-1, keepdims=True) + EPS)
    return (y * nn.silu(z.astype(mx.float32))).astype(x.dtype)


@case(
    ROWS,
    (B, D),
    (B, D),
    ops={RMS: 1},
    around={SHIFT: 2, CAST: 1},
    written={"rms_norm": 1},
    dtypes=(mx.float16, mx.bfloat16),
)
def modulated_before_it_is_narrow(x, s, t):
    wide = x.astype(mx.float32)
    y = wide * mx.rsqrt(mx.mean(mx.square(wide), axis=-1, keepdims=True) + EPS)
    return (y * (1.0 + s[:, None]) + t[:, None]).astype(x.dtype)


@case(ROWS, ROWS, VECTOR, ops={RMS: 1}, around={GATE: 1})
def silu_of_mlx_nn(x, z, w):
    return rms(x, w) * nn.silu(z)


@case(ROWS, VECTOR, ops={RMS: 1}, around={ACTIVATION: 1})
def gelu_of_mlx_nn(x, w):
    return nn.gelu(rms(x, w))


@case(ROWS, VECTOR, VECTOR, ops={LAYER: 1}, around={ACTIVATION: 1})
def gelu_of_a_layer_norm(x, w, b):
    return nn.gelu(layer(x, w, b))


@case(ROWS, ops={LAYER: 1}, around={ACTIVATION: 1})
def silu_of_a_layer_norm(x):
    return silu(layer(x))


@case(ROWS, ROWS, VECTOR, ops={RMS: 1}, around={FIRST: 1})
def relu_squared_of_mlx_nn_before(x, z, w):
    return rms(x * nn.relu2(z), w)


@case(ROWS, ROWS, VECTOR, ops={RMS: 1}, around={GROUP: 1, GATE: 1})
def weight_and_gate_after_groups(x, z, w):
    n = rms(mx.unflatten(x, -1, (4, -1)))
    return w * mx.flatten(n, -2) * mx.sigmoid(z)


@case(ROWS, ROWS, ops={RMS: 1}, around={GATE: 1})
def gate_after_groups(x, z):
    return rms(x.reshape(B, T, 3, -1)).reshape(B, T, -1) * nn.silu(z)


@case(ROWS, ROWS, VECTOR, ops={RMS: 1}, around={FIRST: 1, GROUP: 1})
def gate_before_groups_and_weight(x, z, w):
    return w * rms(mx.unflatten(x * silu(z), -1, (4, -1))).flatten(-2)


@case(ROWS, ROWS, ops={RMS: 1}, around={FIRST: 1})
def swiglu_of_mlx_lm_before_groups(x, z):
    return rms(swiglu(z, x).reshape(B, T, 3, -1))


@case(ROWS, ROWS, ops={RMS: 1}, around={GATE: 1})
def swiglu_of_mlx_lm_after(x, z):
    return swiglu(z, rms(x))


@case(ROWS, ROWS, ops={RMS: 1}, around={FIRST: 1})
def swiglu_of_mlx_lm_before(x, z):
    return rms(swiglu(z, x))


@case(ROWS, ROWS, ops={RMS: 1}, around={ACTIVATION: 1})
def gelu_of_mlx_nn_and_a_difference(x, z):
    return nn.gelu(rms(x)) - z


@case(ROWS, ROWS, ops={RMS: 1}, around={ACTIVATION: 1})
def silu_of_mlx_nn_and_a_sum(x, z):
    return nn.silu(rms(x)) + z


GROUPS = nn.GroupNorm(8, D, pytorch_compatible=True, affine=False)


@case((B, 4, 4, D), VECTOR, VECTOR, ops={GROUPED: 1}, around={GROUP: 1, ACTIVATION: 1})
def group_norm_outside(x, w, b):
    return silu(GROUPS(x) * w + b)


@case((B, 4, 4, D), ops={GROUPED: 1}, around={ACTIVATION: 1})
def group_norm_and_silu(x):
    return nn.silu(GROUPS(x))


def channels(x):
    """A written rms norm of axis 1."""
    wide = x.astype(mx.float32)
    return (wide * mx.rsqrt((wide * wide).mean(1, keepdims=True) + EPS)).astype(x.dtype)


@case((B, D, T), ops={CHANNELS: 1}, around={ACTIVATION: 1}, written={"rms_norm": 1})
def silu_of_channels(x):
    return silu(channels(x))


@case((B, D, T), VECTOR, ops={CHANNELS: 1}, around={ACTIVATION: 1})
def gelu_of_channels_of_ours(x, w):
    return nn.gelu(mlx_norms.rms_norm(x, w, EPS, axis=1))


cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.code.__name__)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def arrays_of(case, dtype):
    arrays = []
    for i, shape in enumerate(case.shapes):
        scale = 1.0 if i == 0 else 0.4
        mean = 1.0 if shape == VECTOR else 0.1
        arrays.append((normal(shape, mx.float32, seed=f"{i}") * scale + mean).astype(dtype))
    mx.eval(arrays)
    return arrays


def listed(results):
    return list(results) if isinstance(results, tuple) else [results]


def exact(a):
    return np.array(a.astype(mx.float32)).astype(np.float64)


def in_float32(code, arrays):
    """The code's results, of MLX's operations in float32 on the CPU, as they would be exact."""
    with mx.stream(mx.cpu):
        return [exact(y) for y in listed(code(*(a.astype(mx.float32) for a in arrays)))]


def error(got, expected):
    assert got.shape == expected.shape
    return np.max(np.abs(exact(got) - expected)) / np.max(np.abs(expected))


def at_eval():
    return mlx_norms.patched(projections=True)


def ours_after_pass(arrays):
    """Those of the graph that mx.eval evaluates."""
    _ext.fuse_at_eval(arrays, True, True)
    return ours_of(arrays)


# By what makes the pass; mx.compile is looked up when it is patched.
WAYS = {
    "fuse": mlx_norms.fuse,
    "compile": lambda code: mx.compile(code),
    "eval": lambda code: code,
}
ways = pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)


def ours_of(arrays):
    seen = operations(*arrays)
    return {name: n for name, n in seen.items() if name.startswith("mlx_norms::")}


def check_report(case, times=1):
    report = mlx_norms.report()
    assert report.around == {kind: n * times for kind, n in case.around.items()}
    assert report.written == {kind: n * times for kind, n in case.written.items()}
    return report


@cases
@dtypes
def test_by_fuse(case, dtype):
    if dtype not in case.dtypes:
        return
    arrays = arrays_of(case, dtype)
    stock = listed(case.code(*arrays))
    with mlx_norms.patched():
        ys = listed(mlx_norms.fuse(case.code)(*arrays))
        assert check_report(case).fused == case.fused
    assert ours_of(ys) == case.ops
    for y, s, expected in zip(ys, stock, in_float32(case.code, arrays), strict=True):
        assert (y.dtype, y.shape) == (s.dtype, s.shape)
        assert error(y, expected) <= BOUNDS[dtype]
        assert error(y, expected) <= 1.5 * error(s, expected) + BOUNDS[dtype] / 8


@cases
@dtypes
def test_at_eval(case, dtype):
    """Of code that no transform is given."""
    if dtype not in case.dtypes:
        return
    arrays = arrays_of(case, dtype)
    stock = listed(case.code(*arrays))
    with at_eval():
        ys = listed(case.code(*arrays))
        graph = ours_after_pass(ys)
        mx.eval(ys)
        # A sum of a norm is taken when the next norm is called.
        assert check_report(case).fused in (case.fused, case.around.get(BEFORE))
    assert graph == case.ops
    for y, s, expected in zip(ys, stock, in_float32(case.code, arrays), strict=True):
        assert (y.dtype, y.shape) == (s.dtype, s.shape)
        assert error(y, expected) <= BOUNDS[dtype]
        assert error(y, expected) <= 1.5 * error(s, expected) + BOUNDS[dtype] / 8


@cases
def test_compiled(case):
    dtype = mx.bfloat16
    arrays = arrays_of(case, dtype)
    with mlx_norms.patched():
        ys = listed(mx.compile(case.code)(*arrays))
        check_report(case)
    assert ours_of(ys) == case.ops
    for y, expected in zip(ys, in_float32(case.code, arrays), strict=True):
        assert error(y, expected) <= BOUNDS[dtype]


@cases
def test_mapped(case):
    """No pass is made within vmap, and what it makes of the norms has their values."""
    if mx.float32 not in case.dtypes:
        return
    arrays = arrays_of(case, mx.float32)
    pairs = [mx.stack([a, 1.5 * a]) for a in arrays]
    with mlx_norms.patched():
        ys = listed(mx.vmap(case.code)(*pairs))
        mx.eval(ys)
    for i in range(2):
        for y, expected in zip(ys, in_float32(case.code, [a[i] for a in pairs]), strict=True):
            assert error(y[i], expected) <= BOUNDS[mx.float32]


def gradients(code, arrays):
    def loss(*arrays):
        total = 0.0
        for i, y in enumerate(listed(code(*arrays))):
            # A product that no norm takes, before the cast, which one would.
            c = normal(y.shape, mx.bfloat16, seed=f"c{i}").astype(y.dtype)
            total += (y * c).astype(mx.float32).sum()
        return total

    return mx.grad(loss, list(range(len(arrays))))(*arrays)


@cases
@pytest.mark.parametrize(
    "is_compiled, dtype",
    [(False, mx.float32), (False, mx.bfloat16), (True, mx.float32)],
    ids=["grad", "grad in 16 bits", "compiled grad"],
)
def test_gradients(case, dtype, is_compiled):
    if dtype not in case.dtypes:
        return
    arrays = arrays_of(case, dtype)
    expected = [exact(g) for g in gradients(case.code, [a.astype(mx.float32) for a in arrays])]
    with mlx_norms.patched():
        run = lambda *a: gradients(case.code, list(a))  # noqa: E731
        ours = (mx.compile(run) if is_compiled else run)(*arrays)
        check_report(case)
    for g, e in zip(ours, expected, strict=True):
        assert error(g, e) <= 4 * BOUNDS[dtype]


def test_a_gated_sum_that_a_variable_holds():
    """Where a pass will see whether anything else takes the product."""
    arrays = arrays_of(Case(None, (ROWS, ROWS, (B, 1, D)), {}), mx.float32)

    def code(x, y, gate):
        y = gate * y
        h = x + y
        return h, layer(h)

    expected = code(*arrays)
    with mlx_norms.patched():
        ys = mx.compile(code)(*arrays)
        assert mlx_norms.report().fused == 1
    assert operations(*ys).keys() == {ADD_LAYER}
    for y, e in zip(ys, expected, strict=True):
        assert error(y, exact(e)) <= BOUNDS[mx.float32]


def test_what_is_rounded_before_float32_is_left():
    """The code rounds the norm to 16 bits, and its gate is activated in float32."""
    x, z = (normal(ROWS, mx.bfloat16, seed=name) for name in "xz")
    with mlx_norms.patched():

        def code(x, z):
            wide = mlx_norms.rms_norm(x).astype(mx.float32)
            return (wide * nn.silu(z.astype(mx.float32))).astype(x.dtype)

        y = mlx_norms.fuse(code)(x, z)
        assert mlx_norms.report().around == {}
    assert mx.array_equal(y, code(x, z)).item()


# What is no option of the norm, or may not become part of it.
LEFT = []


def left(*shapes, ops):
    def added(code):
        LEFT.append(Case(code, shapes, ops))
        return code

    return added


@left(ROWS, (B, 1, D), ops={LAYER: 1})
def scale_without_one(x, s):
    return layer(x) * s


@left(ROWS, (B, 1, D), ops={LAYER: 1})
def two_plus_scale(x, s):
    return layer(x) * (2 + s)


@left(ROWS, (B, T, 1), ops={LAYER: 1})
def scale_of_each_row(x, s):
    return layer(x) * (1 + s)


@left(ROWS, (B, 1, D), (B, 1, D), ops={LAYER: 1})
def norm_used_twice(x, s, t):
    y = layer(x)
    return y * (1 + s) + t, y


@left(ROWS, ROWS, ops={LAYER: 1})
def residual_after(x, r):
    return r + layer(x)


@left(ROWS, ROWS, ops={LAYER: 1})
def gate_of_a_layer_norm(x, z):
    return layer(x) * silu(z)


@left(ROWS, ROWS, ops={RMS: 1})
def another_activation(x, z):
    return rms(x) * mx.tanh(z)


@left(ROWS, ops={RMS: 1})
def another_activation_of_mlx_nn(x):
    return nn.gelu_approx(rms(x))


@left(ROWS, ops={LAYER: 1})
def another_activation_of_a_layer_norm(x):
    return mx.tanh(layer(x))


@left(ROWS, ops={LAYER: 1})
def activation_of_a_layer_norm_used_twice(x):
    y = layer(x)
    return silu(y), y


@left((B, D, T), ops={CHANNELS: 1})
def activation_of_channels_used_twice(x):
    y = mlx_norms.rms_norm(x, None, EPS, axis=1)
    return silu(y), y


@left((B, D, T), ops={CHANNELS: 1})
def activation_of_channels_in_float32(x):
    return silu(mlx_norms.rms_norm(x, None, EPS, axis=1).astype(mx.float32) + 1)


@left(ROWS, VECTOR, ops={RMS: 1})
def groups_joined_across_rows(x, w):
    return (rms(x.reshape(B, T, 4, -1)).reshape(-1, D) * w).reshape(B, 1, T * D)


@left(ROWS, VECTOR, ops={RMS: 1})
def joined_groups_used_twice(x, w):
    joined = mx.flatten(rms(mx.unflatten(x, -1, (4, -1))), -2)
    return joined * w, joined


@left(ROWS, ROWS, ops={RMS: 1})
def joined_groups_times_another_activation(x, z):
    return mx.flatten(rms(mx.unflatten(x, -1, (4, -1))), -2) * mx.tanh(z)


@left(ROWS, ROWS, ops={RMS: 1})
def gated_groups_used_twice(x, z):
    product = x * silu(z)
    return rms(mx.unflatten(product, -1, (4, -1))), product


@left(ROWS, ops={RMS: 1})
def silu_of_something_else(x):
    y = rms(x)
    return y * mx.sigmoid(y + 1)


@left(ROWS, VECTOR, VECTOR, ops={RMS: 2})
def norms_of_two_eps(x, v, w):
    h = x + mx.fast.rms_norm(x, v, 0.1)
    return mx.fast.rms_norm(mx.tanh(h), w, EPS)


@left(ROWS, ROWS, ops={RMS: 1})
def norm_as_the_gate_of_swiglu(x, z):
    return swiglu(rms(x), z)


@left(ROWS, ROWS, ops={RMS: 1, LAYER: 1})
def swiglu_of_two_norms(x, z):
    return swiglu(rms(x) + z, layer(x) + z)


@left(ROWS, (B, 1, D), ops={"mlx_norms::L2Norm": 1})
def scale_of_a_unit_row(x, s):
    return x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), EPS) * (1 + s)


@left((B, 4, 4, D), (B, 1, 1, D), ops={GROUPED: 1})
def group_norm_times_a_scale(x, s):
    return GROUPS(x) * (1 + s)


@pytest.mark.parametrize("case", LEFT, ids=lambda case: case.code.__name__)
@dtypes
def test_is_left(case, dtype):
    arrays = arrays_of(case, dtype)
    with mlx_norms.patched():
        ys = listed(mlx_norms.fuse(case.code)(*arrays))
        assert mlx_norms.report().around == {}
    assert ours_of(ys) == case.ops
    for y, expected in zip(ys, in_float32(case.code, arrays), strict=True):
        assert error(y, expected) <= BOUNDS[dtype]


@pytest.mark.parametrize("case", LEFT, ids=lambda case: case.code.__name__)
@dtypes
def test_is_left_at_eval(case, dtype):
    arrays = arrays_of(case, dtype)
    with at_eval():
        ys = listed(case.code(*arrays))
        assert ours_after_pass(ys) == case.ops
        mx.eval(ys)
        assert mlx_norms.report().around == {}
    for y, expected in zip(ys, in_float32(case.code, arrays), strict=True):
        assert error(y, expected) <= BOUNDS[dtype]


@ways
def test_a_sum_of_three_is_none_of_norm_add_norm(make):
    def code(x, y, r, w):
        h = (x + rms(y, w)) + r
        return h, rms(h)

    case = Case(code, (ROWS, ROWS, ROWS, VECTOR), {})
    arrays = arrays_of(case, mx.float32)
    with at_eval():
        ys = make(code)(*arrays)
        mx.eval(ys)
        assert mlx_norms.report().around == {}
        assert mlx_norms.report().fused == 1
    for y, expected in zip(ys, in_float32(code, arrays), strict=True):
        assert error(y, expected) <= BOUNDS[mx.float32]


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("used", [False, True])
def test_a_product_before_a_norm_that_is_used(weight, used):
    def code(x, r, w):
        p = w * x if weight else 0.7 * r
        h = p if weight else p + rms(x, w)
        return (rms(h), p) if used else (rms(h),)

    case = Case(code, (ROWS, ROWS, VECTOR), {})
    arrays = arrays_of(case, mx.float32)
    with mlx_norms.patched():
        ys = mlx_norms.fuse(code)(*arrays)
        assert ("Multiply" in operations(*ys)) == used
    for y, expected in zip(ys, in_float32(code, arrays), strict=True):
        assert error(y, expected) <= BOUNDS[mx.float32]


def test_weights_of_tokens_are_none_of_norm_add_norm():
    def code(x, r, v, w):
        h = r + written(x) * v
        return h, written(h) * w

    case = Case(code, (ROWS, ROWS, (T, D), (T, D)), {})
    arrays = arrays_of(case, mx.float32)
    with mlx_norms.patched():
        ys = mlx_norms.fuse(code)(*arrays)
    assert TWO not in ours_of(ys)
    for y, expected in zip(ys, in_float32(code, arrays), strict=True):
        assert error(y, expected) <= BOUNDS[mx.float32]


class TestOrder:
    """A sum is no part of a norm whose other operands depend on it."""

    def test_scale_of_the_sum(self):
        def code(x, r):
            h = x + r
            s = mx.tanh(h.mean(1, keepdims=True))
            return h, layer(h) * (1 + s)

        x, r = arrays_of(Case(code, (ROWS, ROWS), {}), mx.float32)
        for make in (mlx_norms.fuse, lambda code: mx.compile(code), lambda code: code):
            with at_eval():
                ys = make(code)(x, r)
                mx.eval(ys)
                assert mlx_norms.report().fused == 0
                assert mlx_norms.report().around == {SHIFT: 1}
            for y, expected in zip(ys, in_float32(code, [x, r]), strict=True):
                assert error(y, expected) <= 4e-6

    @ways
    def test_an_operation_between_two_norms(self, make):
        """It becomes part of one: the written norm adds, and multiplies what it adds."""

        def code(x, s, w):
            h = x + layer(x) * (1 + s)
            return written(h) * w, h

        arrays = arrays_of(Case(code, (ROWS, (B, 1, D), VECTOR), {}), mx.float32)
        with at_eval():
            ys = make(code)(*arrays)
            ours = ours_after_pass(ys)
            mx.eval(ys)
            report = mlx_norms.report()
        assert (report.written, report.around, report.fused) == ({"rms_norm": 1}, {}, 1)
        assert ours == {LAYER: 1, ADD_RMS: 1}
        for y, expected in zip(ys, in_float32(code, arrays), strict=True):
            assert error(y, expected) <= 4e-6

    def test_two_streams(self):
        """Each one's scale is of the other one's sum: one of the two sums is fused at most."""

        def code(x, r, y, q):
            h, g = x + r, y + q
            s, t = mx.tanh(g.mean(1, keepdims=True)), mx.tanh(h.mean(1, keepdims=True))
            return layer(h) * (1 + s), layer(g) * (1 + t), h, g

        arrays = arrays_of(Case(code, (ROWS,) * 4, {}), mx.float32)
        with at_eval():
            eager = code(*arrays)
            mx.eval(eager)
        ys = mlx_norms.fuse(code)(*arrays)
        assert ours_of(ys) == {ADD_LAYER: 1, LAYER: 1}
        for y, expected in zip(eager, in_float32(code, arrays), strict=True):
            assert error(y, expected) <= 4e-6
        for y, expected in zip(ys, in_float32(code, arrays), strict=True):
            assert error(y, expected) <= 4e-6
