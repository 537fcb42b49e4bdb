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
    if op == "qk_norm":
        return dict(
            q=mx.ones((3, 2, 4)), k=mx.ones((3, 1, 4)), q_weight=mx.ones(4), k_weight=mx.ones(4)
        )
    if op == "head_rms_norm":
        return dict(x=mx.ones((3, 2, 4)), weight=mx.ones((2, 4)))
    if op == "head_layer_norm":
        return dict(x=mx.ones((3, 2, 4)), weight=mx.ones((2, 4)), bias=mx.ones(4))
    return {n: row if n in ("weight", "bias") else mx.ones(shape) for n in Norm(op).arguments}


def call(op, arrays, **options):
    options = {"eps": 1e-5, **options}
    return getattr(mlx_norms, op)(**arrays, **options)


WEIGHTED = (*OPS, "head_rms_norm", "head_layer_norm", "qk_norm")
ALL = (*WEIGHTED, "l2_norm")
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


@pytest.mark.parametrize(
    ("op", "name"), [(o, n) for o, n in ARGUMENTS if n in ("x", "residual", "q", "k")]
)
def test_array_is_required(op, name):
    with pytest.raises(TypeError):
        call(op, arrays_for(op) | {name: None})


@pytest.mark.parametrize(
    ("op", "name"), [(o, n) for o, n in ARGUMENTS if n in ("weight", "bias") and o in OPS]
)
def test_parameter_shape(op, name):
    for shape in [(), (3,), (5,), (1,), (0,), (1, 4), (2, 4), (4, 1)]:
        with refused(op, rf"\b{name}\b", r"\(4\)", rf"\({','.join(map(str, shape))}\)"):
            call(op, arrays_for(op) | {name: mx.ones(shape)})


@pytest.mark.parametrize(
    ("op", "name", "heads"),
    [
        ("head_rms_norm", "weight", 2),
        ("head_layer_norm", "weight", 2),
        ("head_layer_norm", "bias", 2),
        ("qk_norm", "q_weight", 2),
        ("qk_norm", "k_weight", 1),
    ],
)
def test_head_weight_shape(op, name, heads):
    for shape in [(), (3,), (1,), (3, 4), (4, 2), (heads, 3), (1, 2, 4), (3, heads, 4)]:
        with refused(op, rf"\b{name}\b", r"\(4\)", rf"\({heads},4\)"):
            call(op, arrays_for(op) | {name: mx.ones(shape)})


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


@pytest.mark.parametrize(
    ("op", "name"),
    [("head_rms_norm", "x"), ("head_layer_norm", "x"), ("qk_norm", "q"), ("qk_norm", "k")],
)
def test_heads_need_two_axes(op, name):
    for shape in [(), (4,)]:
        with refused(op, rf"\b{name}\b", "at least "):
            call(op, arrays_for(op) | {name: mx.ones(shape)})


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


@pytest.mark.parametrize("op", WEIGHTED)
def test_rounding(op):
    for rounding in ("", "Early", "never"):
        with refused(op, r"\brounding\b", '"early" or "late"'):
            call(op, arrays_for(op), rounding=rounding)
    with pytest.raises(TypeError):
        call(op, arrays_for(op), rounding=1)


@pytest.mark.parametrize("op", WEIGHTED)
def test_weight_offset_needs_a_weight(op):
    arrays = {n: a for n, a in arrays_for(op).items() if "weight" not in n}
    absent = {"q_weight": None, "k_weight": None} if op == "qk_norm" else {"weight": None}
    with refused(op, "weight_offset", r"\bweight\b"):
        call(op, arrays | absent, weight_offset=1.0)
    call(op, arrays | absent, weight_offset=0.0)


def test_qk_norm_needs_both_weights_or_none():
    arrays = arrays_for("qk_norm")
    for name in ("q_weight", "k_weight"):
        with refused("qk_norm", rf"\b{name}\b"):
            call("qk_norm", arrays | {name: None})
    call("qk_norm", arrays | {"q_weight": None, "k_weight": None})


def test_qk_norm_needs_one_head_dim_and_dtype():
    arrays = arrays_for("qk_norm")
    with refused("qk_norm", r"\bk\b", "head_dim"):
        call("qk_norm", arrays | {"k": mx.ones((3, 1, 5)), "k_weight": mx.ones(5)})
    with refused("qk_norm", r"\bk\b", "dtype"):
        call("qk_norm", arrays | {"k": mx.ones((3, 1, 4), mx.float16)})


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
