"""What is refused, and that the text says by which op, for which argument, and what it wanted."""

import mlx.core as mx
import mlx.nn
import pytest

import mlx_norms
from support.norm_case import OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")

WRONG_DTYPES = [mx.int32, mx.uint8, mx.int64, mx.bool_, mx.complex64, mx.float64]


def arrays_for(op, shape=(2, 4)):
    """Good arguments of any op, all float32."""
    row = mx.ones(shape[-1:])
    return {n: row if n in ("weight", "bias") else mx.ones(shape) for n in Norm(op).arguments}


def call(op, arrays, **options):
    options = {"eps": 1e-5, **options}
    return getattr(mlx_norms, op)(**arrays, **options)


ALL = (*OPS, "l2_norm")
ARGUMENTS = [(op, name) for op in ALL for name in arrays_for(op)]


def refused(op, *words):
    """A ValueError whose text begins with the op and holds the words in this order."""
    return pytest.raises(ValueError, match=rf"^\[{op}\] " + ".*".join(["", *words]))


@pytest.mark.parametrize(("op", "name"), ARGUMENTS)
def test_dtype(op, name):
    for dtype in WRONG_DTYPES:
        arrays = arrays_for(op)
        arrays[name] = arrays[name].astype(dtype, stream=mx.cpu)
        with refused(op, rf"\b{name}\b", "float32, float16 or bfloat16", str(dtype).split(".")[-1]):
            call(op, arrays)


@pytest.mark.parametrize(("op", "name"), ARGUMENTS)
def test_not_an_array(op, name):
    for bad in ("text", object(), [1.0, 2.0], 1.0):
        with pytest.raises(TypeError):
            call(op, arrays_for(op) | {name: bad})


@pytest.mark.parametrize(("op", "name"), [(o, n) for o, n in ARGUMENTS if n in ("x", "residual")])
def test_array_is_required(op, name):
    with pytest.raises(TypeError):
        call(op, arrays_for(op) | {name: None})


@pytest.mark.parametrize(("op", "name"), [(o, n) for o, n in ARGUMENTS if n in ("weight", "bias")])
def test_parameter_shape(op, name):
    for shape in [(), (3,), (5,), (1,), (0,), (1, 4), (3, 4), (4, 1), (1, 2, 4)]:
        with refused(op, rf"\b{name}\b", r"\(4\) or \(2,4\)", rf"\({','.join(map(str, shape))}\)"):
            call(op, arrays_for(op) | {name: mx.ones(shape)})
    for shape in [(2, 4), (1, 4)]:
        with refused(op, rf"\b{name}\b", r"\(4\)", rf"\({','.join(map(str, shape))}\)"):
            call(op, arrays_for(op, (4,)) | {name: mx.ones(shape)})


@pytest.mark.parametrize("options", [dict(num_groups=2), dict(axis=0)], ids=str)
def test_parameters_of_heads_are_those_of_rows(options):
    with refused("rms_norm", r"\bweight\b", r"\(\d\)", r"\(2,4\)"):
        mlx_norms.rms_norm(mx.ones((2, 4)), mx.ones((2, 4)), **options)


@pytest.mark.parametrize("op", OPS[2:])
def test_residual_shape(op):
    for shape in [(), (4,), (1, 4), (3, 4), (2, 1), (2, 5), (1, 2, 4), (4, 2)]:
        with refused(op, "residual", r"\(2,4\)"):
            call(op, arrays_for(op) | {"residual": mx.ones(shape)})


@pytest.mark.parametrize("op", OPS)
def test_no_axis(op):
    arrays = arrays_for(op, (1,))
    arrays |= {n: mx.array(1.0) for n in ("x", "residual") if n in arrays}
    with refused(op, r"\bx\b", "at least 1"):
        call(op, arrays)


@pytest.mark.parametrize("op", ALL)
def test_eps(op):
    for eps in (-1e-5, -1.0, float("-inf"), float("nan")):
        with refused(op, r"\beps\b"):
            call(op, arrays_for(op), eps=eps)
    with pytest.raises(TypeError):
        call(op, arrays_for(op), eps="small")
    call(op, arrays_for(op), eps=0.0)


@pytest.mark.parametrize("op", ALL)
def test_output_dtype(op):
    for dtype in WRONG_DTYPES:
        with refused(op, r"\bdtype\b", "float32, float16 or bfloat16"):
            call(op, arrays_for(op), dtype=dtype)
    with pytest.raises(TypeError):
        call(op, arrays_for(op), dtype="float32")


@pytest.mark.parametrize("op", OPS)
def test_rounding(op):
    for rounding in ("", "Early", "never"):
        with refused(op, r"\brounding\b", '"early" or "late"'):
            call(op, arrays_for(op), rounding=rounding)
    with pytest.raises(TypeError):
        call(op, arrays_for(op), rounding=1)


@pytest.mark.parametrize("op", OPS)
def test_weight_offset_needs_a_weight(op):
    arrays = arrays_for(op) | {"weight": None}
    with refused(op, "weight_offset", r"\bweight\b"):
        call(op, arrays, weight_offset=1.0)
    call(op, arrays, weight_offset=0.0)


@pytest.mark.parametrize("op", ALL)
def test_options_are_keywords(op):
    """Only arrays and eps go by position, and an unknown keyword is refused."""
    with pytest.raises(TypeError):
        getattr(mlx_norms, op)(*arrays_for(op).values(), 1e-5, 1.0)
    with pytest.raises(TypeError):
        call(op, arrays_for(op), epsilon=1e-5)


class Final(mlx.nn.RMSNorm):
    def __init_subclass__(cls, **kwargs):
        raise RuntimeError("Final is final")


def test_a_model_of_a_class_that_cannot_be_subclassed():
    model = Final(4)
    with pytest.raises(TypeError) as raised:
        mlx_norms.patch(model)
    for text in ("[patch] model", f"{__name__}.Final", "(Final is final)", "use patch() or"):
        assert text in str(raised.value)
    assert type(model) is Final
    with mlx_norms.patched():
        model(mx.ones((2, 4)))
    assert mlx_norms.report().calls == 1
