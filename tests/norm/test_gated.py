"""gate, activation, norm_before_gate and num_groups of rms_norm."""

import itertools
import math

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from support import inputs
from support.bits import assert_same_bits, ulps_apart
from support.checks import check_outputs, check_with_gradients
from support.inputs import cotangents, normal
from support.norm_case import DTYPES, Norm

pytestmark = pytest.mark.usefixtures("backend")

ACTIVATIONS = (None, "sigmoid", "silu", "gelu", "relu2")
# A gate after the norm, before it, and an activation alone.
FORMS = {"after": dict(), "before": dict(norm_before_gate=False), "alone": dict()}
OF_FORM = pytest.mark.parametrize("form", FORMS)


def norm_of(form, activation, **options):
    return Norm("rms_norm", activation=activation, **FORMS[form], **options)


def arrays_of(form, shape, dtype, *, others=None, weight=True):
    dtypes = dict(x=dtype, weight=dtype, gate=dtype) | (others or {})
    arrays = {"x": normal(shape, dtypes["x"], seed=1)}
    if weight:
        arrays["weight"] = normal(shape[-1:], dtypes["weight"], seed=2)
    if form != "alone":
        arrays["gate"] = normal(shape, dtypes["gate"], seed=3, std=2.0)
    return arrays


@OF_FORM
def test_groups(form):
    for groups, dtype in itertools.product((2, 3, 8), DTYPES):
        for length, activation in ((24, "silu"), (240, "sigmoid"), (1536, "silu")):
            norm = norm_of(form, activation, num_groups=groups)
            for weight in (True, False):
                arrays = arrays_of(form, (2, 5, length), dtype, weight=weight)
                check_with_gradients(norm, arrays)
    one = arrays_of(form, (24,), mx.float32)
    check_with_gradients(norm_of(form, "silu", num_groups=4), one)


def test_groups_alone():
    """Without a gate or an activation they are norms of views."""
    for dtype, rounding in itertools.product(DTYPES, ("early", "late")):
        arrays = arrays_of("alone", (3, 2, 60), dtype)
        norm = norm_of("alone", None, num_groups=5, rounding=rounding)
        check_with_gradients(norm, arrays)
        split = {n: a.reshape(*a.shape[:-1], 5, 12) for n, a in arrays.items()}
        plain = mlx_norms.rms_norm(split["x"], split["weight"], 1e-5, rounding=rounding)
        assert_same_bits(norm(arrays)[0], plain.reshape(3, 2, 60))


@OF_FORM
def test_many_rows(form):
    """Whose sums threads share."""
    rows = 40 if inputs.SLOW else 700
    for length, groups in ((64, 1), (96, 4)):
        arrays = arrays_of(form, (rows, length), mx.bfloat16)
        check_with_gradients(norm_of(form, "silu", num_groups=groups), arrays)


@pytest.mark.parametrize("form", ["after", "before"])
@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
def test_rows_have_the_same_bits_alone(form, activation):
    """As they have among others."""
    for dtype, length in itertools.product((mx.float16, mx.bfloat16), (1024, 1030)):
        for norm in (norm_of(form, activation), norm_of(form, activation, rounding="late")):
            arrays = arrays_of(form, (33, length), dtype)
            cots = cotangents(norm, arrays)
            outputs, gradients = norm.vjp(arrays, cots)
            for row in (slice(0, 1), slice(32, 33)):
                some = arrays | {name: arrays[name][row] for name in ("x", "gate")}
                alone, of_alone = norm.vjp(some, [c[row] for c in cots])
                note = f"{dtype}, {length}, {row}"
                for i, got in enumerate((alone[0], of_alone[0], of_alone[2])):
                    want = (outputs[0], gradients[0], gradients[2])[i]
                    assert_same_bits(got, want[row], f"{note}, {i}")


def rounded_sigmoid(a):
    """mx.sigmoid, as MLX rounds its steps on a GPU."""
    e = 1 / (1 + mx.exp(mx.abs(a)))
    return mx.where(a < 0, e, 1 - e)


def activated(name, a, sigmoid=mx.sigmoid):
    """As mlx.nn's functions without compile."""
    if name == "gelu":
        return a * (1 + mx.erf(a / math.sqrt(2))) / 2
    if name == "relu2":
        return mx.square(mx.maximum(a, 0))
    return {None: lambda: a, "sigmoid": lambda: sigmoid(a), "silu": lambda: a * sigmoid(a)}[name]()


def chain(norm, arrays, sigmoid=mx.sigmoid):
    """Our norm, and what MLX's ops make of it or of its input."""
    x, weight, gate = (arrays.get(name) for name in ("x", "weight", "gate"))
    dtype = norm.out_dtype(arrays)
    of = activated(norm.activation, gate, sigmoid) if gate is not None else None
    before = gate is not None and not norm.norm_before_gate
    y = mlx_norms.rms_norm(x * of if before else x, weight, rounding="early", dtype=dtype)
    if gate is None:
        y = activated(norm.activation, y, sigmoid)
    elif not before:
        y = y * of
    return y.astype(dtype)


def assert_chain(norm, arrays, backend):
    """Bit by bit, except in the simulator, whose exponential is not MLX's."""
    note = f"{norm}, {[a.dtype for a in arrays.values()]}"
    got, want = norm(arrays)[0], chain(norm, arrays)
    if backend != "metal-sim":
        assert_same_bits(got, want, note)
        return
    want = chain(norm, arrays, rounded_sigmoid)
    apart = np.abs(np.array(got.astype(mx.float32)) - np.array(want.astype(mx.float32)))
    close = apart <= 1e-5 * (1 + np.abs(np.array(want.astype(mx.float32))))
    # A step whose exponential lies at a tie rounds to the other side.
    assert np.mean(~close) < 1e-2, note


@OF_FORM
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_early_is_the_chain_of_ops(form, activation, backend):
    """In every mix of dtypes."""
    for x, gate in itertools.product(DTYPES, repeat=2):
        for length, weight, dtype in ((130, True, None), (7, False, None), (33, True, mx.float16)):
            arrays = arrays_of(form, (8, length), x, others=dict(gate=gate), weight=weight)
            norm = norm_of(form, activation, dtype=dtype, rounding="early")
            assert_chain(norm, arrays, backend)


@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
def test_every_gate_of_16_bits(activation, backend):
    """All that are finite, and what is not."""
    for dtype in (mx.float16, mx.bfloat16):
        gate = mx.arange(0, 65536).astype(mx.uint16).view(dtype).reshape(64, 1024)
        if inputs.SLOW:
            gate = gate[::8, ::4]
        arrays = {"x": mx.ones(gate.shape, dtype), "gate": gate}
        norm = norm_of("after", activation)
        got, want = norm(arrays)[0], chain(norm, arrays)
        if backend == "metal-sim":
            want = chain(norm, arrays, rounded_sigmoid)
        finite = mx.isfinite(want) & mx.isfinite(got)
        assert mx.array_equal(mx.isnan(got), mx.isnan(want))
        assert mx.array_equal(mx.isinf(got), mx.isinf(want))
        got, want = (mx.where(finite, a, 0) for a in (got, want))
        if backend == "metal-sim":
            assert ulps_apart(got, want) <= 2
        else:
            assert_same_bits(got, want, f"{activation}, {dtype}")


def test_a_gate_that_is_x():
    for form, dtype in itertools.product(("after", "before"), DTYPES):
        x = normal((3, 64), dtype, seed=1)
        norm = norm_of(form, "silu")
        check_outputs(norm, {"x": x, "gate": x}, norm({"x": x, "gate": x}))


@pytest.mark.parametrize("form", ["after", "before"])
def test_one_launch_and_no_copy(form, launches):
    """Forward one launch; backward one, and one that adds up the weight's gradient."""
    for groups in (1, 4):
        arrays = arrays_of(form, (6, 64), mx.float32)
        norm = norm_of(form, "silu", num_groups=groups)
        mx.eval(list(arrays.values()))
        assert len(launches(*norm(arrays))) == 1, form
        cots = cotangents(norm, arrays)
        mx.eval(cots)
        _, gradients = norm.vjp(arrays, cots)
        assert len(launches(*gradients)) <= 2, form


def test_what_is_refused():
    x, z = mx.ones((2, 3, 12)), mx.ones((2, 3, 12))
    f = mlx_norms.rms_norm
    for shape in [(), (12,), (3, 12), (2, 3, 1), (2, 3, 6), (1, 2, 3, 12), (2, 1, 12)]:
        for groups in (1, 2):
            with pytest.raises(ValueError, match=r"^\[rms_norm\] gate\b.*\(2,3,12\)"):
                f(x, gate=mx.ones(shape), num_groups=groups)
    with pytest.raises(ValueError, match=r"^\[rms_norm\] gate\b.*float32, float16 or bfloat16"):
        f(x, gate=mx.ones(x.shape, mx.int32))
    for name in ("swish", "", "SiLU", "gelu_approx"):
        with pytest.raises(ValueError, match=rf'^\[rms_norm\] activation\b.*"{name}"'):
            f(x, gate=z, activation=name)
    for groups in (0, -1, 5, 24):
        with pytest.raises(ValueError, match=rf"^\[rms_norm\] num_groups\b.*12.*{groups}\."):
            f(x, num_groups=groups)
    with pytest.raises(TypeError):
        f(x, gate=1.0)
    for other in (dict(gate=z), dict(activation="silu"), dict(num_groups=2)):
        for name in ("scale", "shift"):
            with pytest.raises(ValueError, match=rf"^\[rms_norm\] {name}\b.*{next(iter(other))}"):
                f(x, **other, **{name: mx.ones(12)})
        group = mx.distributed.init()
        with pytest.raises(ValueError, match=rf"^\[rms_norm\] group\b.*{next(iter(other))}"):
            f(x, group=group, **other)
