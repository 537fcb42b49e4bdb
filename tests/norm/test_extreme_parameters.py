"""Weights, biases, scales, shifts, gates and factors of any magnitude, in every op.

A row is normalized before a parameter multiplies it, and a cotangent is multiplied by the weight
before it is scaled, as in MLX: rstd times a parameter may overflow, or be lost, where no value of
the result does.
"""

import math

import mlx.core as mx
import numpy as np
import pytest

from support import norm_add_norm, oracle
from support.checks import check_outputs, check_with_gradients
from support.group_norm import GroupCase, parameters_of
from support.inputs import arguments, normal
from support.norm_case import Norm

from .test_axis import check as check_axis

pytestmark = pytest.mark.usefixtures("backend")

WIDE = (mx.float32, mx.bfloat16)  # dtypes of float32's range
EPS = 1e-30
# The sizes of x, of a parameter and of cotangents: rstd times the parameter is past the largest
# float, past the smallest, and the parameter near the largest.
SIZES = {"up": (1e-12, 1e30, 1e-22), "down": (1e15, 1e-30, 1e18), "largest": (1.0, 5e36, 1e-6)}
LENGTHS = (5, 64, 200)  # of no whole vector, of whole vectors, and of more

NORMS = {
    "rms_norm": ("rms_norm", "weight", {}),
    "layer_norm": ("layer_norm", "weight", {}),
    "layer_norm bias": ("layer_norm", "bias", {}),
    "add_rms_norm": ("add_rms_norm", "weight", {}),
    "add_layer_norm": ("add_layer_norm", "weight", {}),
    "late": ("layer_norm", "weight", dict(rounding="late")),
    "scale": ("rms_norm", "scale", {}),
    "layer_norm scale": ("layer_norm", "scale", {}),
    "shift": ("layer_norm", "shift", {}),
    "gated": ("rms_norm", "weight", dict(activation="silu")),
    "gate": ("rms_norm", "gate", {}),
    "gate first": ("rms_norm", "weight", dict(activation="sigmoid", norm_before_gate=False)),
}
GROUPS = {
    "group": ("group_norm", dict(num_groups=4)),
    "group pytorch": ("group_norm", dict(num_groups=4, pytorch_compatible=True)),
    "instance": ("instance_norm", {}),
    "batch": ("batch_norm", dict(training=True)),
    "running": ("batch_norm", {}),
}
# One position; some, that a threadgroup holds; and more.
SHAPES = ((3, 1, 8), (2, 3, 5, 12), (3, 70, 96), (1, 3000, 20))


def sized(a, size, dtype):
    return (a.astype(mx.float32) * size).astype(dtype)


def norm_case(name, length, dtype, sizes):
    """A norm with its arrays, of which x and one parameter have these sizes."""
    op, parameter, options = NORMS[name]
    x, by, _ = sizes
    norm = Norm(op, eps=EPS, **options)
    arrays = arguments(norm, (3, length), dtype)
    if name in ("scale", "gate", "gated", "gate first", "shift", "layer_norm scale"):
        of = "gate" if "gate" in name else parameter
        arrays[of] = normal((3, length), dtype, seed=of)
    for of in ("x", "residual"):
        if of in arrays:
            arrays[of] = sized(arrays[of], x, dtype)
    arrays[parameter] = sized(arrays[parameter], by, dtype)
    return norm, arrays


def group_case(name, shape, dtype, sizes):
    op, options = GROUPS[name]
    x, by, _ = sizes
    parameters = parameters_of(shape[-1], mx.float32, running=name == "running")
    for of in parameters:
        size = {"mean": x, "var": x * x}.get(of, by)
        parameters[of] = sized(parameters[of], size, mx.float32)
    return GroupCase(
        op, sized(normal(shape, mx.float32, seed=1), x, dtype), **parameters, eps=EPS, **options
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NORMS)
def test_norms(name, size):
    for dtype in WIDE:
        for length in LENGTHS:
            norm, arrays = norm_case(name, length, dtype, SIZES[size])
            g = normal((3, length), mx.float32, seed=2, std=SIZES[size][2])
            cots = [sized(g, 1, norm.out_dtype(arrays))]
            if norm.adds:
                cots.append(mx.zeros((3, length), norm.sum_dtype(arrays)))
            check_with_gradients(norm, arrays, cots)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_axis(op, size):
    x, by, g = SIZES[size]
    for dtype in WIDE:
        for shape in ((2, 5, 64), (1, 200, 9)):
            norm = Norm(op)
            arrays = arguments(norm, (shape[1],), dtype)
            arrays["x"] = normal(shape, dtype, seed=4, std=x)
            arrays["weight"] = sized(arrays["weight"], by, dtype)
            check_axis(op, arrays, cotangent=normal(shape, dtype, seed=5, std=g), eps=EPS)


# The squares of a large sum would overflow.
OF_SUMS = [("weight", size) for size in SIZES] + [("post_weight", "down")]


@pytest.mark.parametrize("parameter, size", OF_SUMS)
def test_norm_add_norm(parameter, size):
    x, by, g = SIZES[size]
    for dtype in WIDE:
        for length in LENGTHS:
            arrays = norm_add_norm.arrays_of((3, length), dtype, std=x)
            of_sum = by if parameter == "post_weight" else 1.0
            arrays["residual"] = normal((3, length), dtype, seed=3, std=of_sum)
            arrays[parameter] = sized(arrays[parameter], by, dtype)
            cots = [sized(c, g, dtype) for c in norm_add_norm.cotangents_of(arrays)]
            norm_add_norm.Case(arrays, eps=EPS).check(cots)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", ["add_rms_norm", "add_layer_norm"])
def test_factor(op, size):
    x, by, _ = SIZES[size]
    for dtype in WIDE:
        for length in LENGTHS:
            arrays = arguments(Norm(op), (3, length), dtype)
            arrays["x"] = sized(arrays["x"], 1 / by, dtype)
            arrays["factor"] = normal((3, length), dtype, seed=6, std=by)
            check_with_gradients(Norm(op), arrays)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", GROUPS)
def test_group_norms(name, size):
    for dtype in WIDE:
        for shape in SHAPES:
            if name == "instance" and math.prod(shape[1:-1]) == 1:
                continue  # each value is its group's mean
            case = group_case(name, shape, dtype, SIZES[size])
            case.check(sized(normal(shape, mx.float32, seed=7), SIZES[size][2], dtype))


@pytest.mark.parametrize("name", GROUPS)
def test_group_norms_by_mlx_ops(name):
    """What stands in for the kernels, here of a batch of weights."""
    for size in SIZES.values():
        case = group_case(name, (2, 9, 12), mx.float32, size)
        g = normal(case.x.shape, mx.float32, seed=8, std=size[2])

        def gradients(x, *parameters, case=case, g=g):
            (y,), found = mx.vjp(case, [x, *parameters], [g])
            return [y, *found]

        batch = [a[None] for a in case.arrays()]
        y, *found = (a[0] for a in mx.vmap(gradients)(*batch))
        case.check_result(y)
        for truth, got in zip(case.gradients(g), found, strict=True):
            truth.check(got)


INFINITE = ("rms_norm", "layer_norm", "add_rms_norm", "late", "scale", "gate", "shift")


@pytest.mark.parametrize("name", INFINITE)
def test_infinite_parameters(name):
    """A result is infinite, and NaN where the normalized value is 0 alone."""
    for dtype in WIDE:
        for length in LENGTHS:
            norm, arrays = norm_case(name, length, dtype, (1e-3, 1.0, 1.0))
            parameter = NORMS[name][1]
            arrays[parameter] = with_infinities(arrays[parameter])
            with np.errstate(invalid="ignore"):
                check_outputs(norm, arrays, norm(arrays))


@pytest.mark.parametrize("name", GROUPS)
def test_infinite_parameters_of_group_norms(name):
    for dtype in WIDE:
        for shape in SHAPES[1:]:
            case = group_case(name, shape, dtype, (1e-3, 1.0, 1.0))
            for of in ("weight", "bias"):
                given = case.parameters[of]
                case.parameters[of] = with_infinities(given)
                with np.errstate(invalid="ignore"):
                    case.check_result(case(*case.arrays()))
                case.parameters[of] = given


def with_infinities(a):
    """Infinities of both signs at the first and the last place."""
    values = np.array(a.astype(mx.float32))
    values[..., 0], values[..., -1] = math.inf, -math.inf
    return mx.array(values).astype(a.dtype)


def test_subnormal_rows():
    """Of which eps is all, and a large parameter makes ordinary values."""
    for name in NORMS.keys() - {"gate first"}:  # whose products are subnormal
        norm, arrays = norm_case(name, 64, mx.float32, (1e-40, 1e30, 1.0))
        check_outputs(norm, arrays, norm(arrays))
    for name in GROUPS:
        case = group_case(name, (2, 9, 12), mx.float32, (1e-40, 1e30, 1.0))
        case.check_result(case(*case.arrays()))


def test_float16_results():
    """Of parameters whose products with rows are near float16's largest value, or past it."""
    largest = oracle.F16_MAX
    for name in NORMS.keys() - {"gated", "gate"}:  # where what a gate multiplies is rounded before
        op, _, options = NORMS[name]
        norm, arrays = norm_case(name, 64, mx.float32, (1e-6, largest, 1.0))
        norm = Norm(op, eps=EPS, dtype=mx.float16, **options)
        check_outputs(norm, arrays, norm(arrays))
    for name in GROUPS:
        case = group_case(name, (2, 9, 12), mx.float32, (1e-6, largest, 1.0))
        case.options["dtype"] = case.dtype = mx.float16
        case.check_result(case(*case.arrays()))
