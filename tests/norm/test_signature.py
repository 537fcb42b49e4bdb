"""The ops can be called as mx.fast's are, and have the defaults that are documented."""

import copy
import inspect
import pickle
import pydoc
import re
from collections import deque

import mlx.core as mx
import pytest

import mlx_norms
from mlx_norms import _ext
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES

pytestmark = pytest.mark.usefixtures("backend")


def arrays(dtype):
    x = normal((3, 64), dtype, seed=1)
    return x, normal((64,), dtype, seed=2), normal((64,), dtype, seed=3)


def test_positional_as_in_mx_fast():
    for dtype in DTYPES:
        x, w, b = arrays(dtype)
        for args in ((x, w, 1e-5), (x, None, 1e-5)):
            near(mlx_norms.rms_norm(*args), mx.fast.rms_norm(*args))
            near(mlx_norms.rms_norm(*args, stream=mx.cpu), mx.fast.rms_norm(*args))
        for args in (
            (x, w, b, 1e-5),
            (x, None, None, 1e-5),
            (x, w, None, 1e-5),
            (x, None, b, 1e-5),
        ):
            near(mlx_norms.layer_norm(*args), mx.fast.layer_norm(*args))


def near(got, expected):
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    unit = {mx.float32: 2e-6, mx.float16: 2e-3, mx.bfloat16: 2e-2}[got.dtype]
    error = mx.abs(got.astype(mx.float32) - expected.astype(mx.float32))
    assert mx.all(error <= unit * (1 + mx.abs(expected.astype(mx.float32))))


def test_keywords_as_in_mx_fast():
    x, w, b = arrays(mx.float32)
    assert_same_bits(mlx_norms.rms_norm(x=x, weight=w, eps=1e-3), mlx_norms.rms_norm(x, w, 1e-3))
    assert_same_bits(
        mlx_norms.layer_norm(x=x, weight=w, bias=b, eps=1e-3), mlx_norms.layer_norm(x, w, b, 1e-3)
    )


def test_defaults():
    x, w, b = arrays(mx.float16)
    x = x * 0.003
    same = [
        (mlx_norms.rms_norm(x), mlx_norms.rms_norm(x, None, 1e-5)),
        (mlx_norms.rms_norm(x, w), mlx_norms.rms_norm(x, w, 1e-5)),
        (mlx_norms.layer_norm(x), mlx_norms.layer_norm(x, None, None, 1e-5)),
        (mlx_norms.layer_norm(x, w), mlx_norms.layer_norm(x, w, None, 1e-5)),
        *zip(mlx_norms.add_rms_norm(x, x), mlx_norms.add_rms_norm(x, x, None, 1e-5), strict=True),
        *zip(
            mlx_norms.add_rms_norm(x, x, w),
            mlx_norms.add_rms_norm(x, x, w, 1e-5, clamp=False),
            strict=True,
        ),
        *zip(
            mlx_norms.add_layer_norm(x, x),
            mlx_norms.add_layer_norm(x, x, None, None, 1e-5),
            strict=True,
        ),
        *zip(
            mlx_norms.add_layer_norm(x, x, w, b),
            mlx_norms.add_layer_norm(x, x, w, b, 1e-5),
            strict=True,
        ),
    ]
    for got, expected in same:
        assert_same_bits(got, expected)
    assert not mx.array_equal(mlx_norms.rms_norm(x), mlx_norms.rms_norm(x, None, 1e-6))


def test_two_outputs_are_a_tuple():
    x, w, b = arrays(mx.float32)
    for out in (
        mlx_norms.add_rms_norm(x, x, w),
        mlx_norms.add_layer_norm(x, x, w, b),
    ):
        assert type(out) is tuple and [type(o) for o in out] == [mx.array, mx.array]


@pytest.mark.parametrize("name", mlx_norms.ops.__all__)
def test_docstring(name):
    """It says what each argument is, and help() shows it on a screen or two."""
    function = getattr(mlx_norms, name)
    text = inspect.getdoc(function)
    for part in ("Args:", "Returns:", "Raises:"):
        assert part in text, f"{name}: {part}"
    described = text.partition("Args:")[2]
    for parameter in inspect.signature(function).parameters:
        of_another = "those\nof :func:`norm_rope`" in text and parameter not in "q k v"
        assert of_another or re.search(rf"^    .*\b{parameter}\b.*\(", described, re.M), parameter
    assert len(pydoc.render_doc(mlx_norms.rms_norm).splitlines()) <= 60


@pytest.mark.parametrize("name", ["layer_norm", "sgemm"])
def test_docstring_of_a_ladder(name):
    text = inspect.getdoc(getattr(mlx_norms.ladders, name))
    for part in (f"ladders.{name.upper()}", "Args:", "Returns:", "Raises:", "rung", "stream"):
        assert part in text, f"{name}: {part}"


FUNCTIONS = [getattr(mlx_norms, name) for name in mlx_norms.__all__]
FUNCTIONS = [f for f in FUNCTIONS if callable(f) and not inspect.isclass(f)]
FUNCTIONS += [mlx_norms.ladders.layer_norm, mlx_norms.ladders.sgemm]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_python_can_ask_for_a_signature(function):
    """The docstring of those that are no ops names each parameter."""
    signature = inspect.signature(function)
    for name in signature.parameters:
        if function.__name__ not in mlx_norms.ops.__all__:
            assert name in (function.__doc__ or ""), name
    assert max(map(len, inspect.getdoc(function).splitlines())) < 200


def test_signature_of_an_op():
    signature = inspect.signature(mlx_norms.rms_norm)
    assert [*signature.parameters][:3] == ["x", "weight", "eps"]
    assert signature.parameters["eps"].default == 1e-5
    assert signature.parameters["scale"].kind is inspect.Parameter.KEYWORD_ONLY
    assert signature.bind(1, eps=2).arguments == {"x": 1, "eps": 2}
    assert [*inspect.signature(mlx_norms.batch_norm).parameters][3:6] == ["eps", "mean", "var"]


@pytest.mark.parametrize("name", ["rms_norm", "batch_norm", "rms_norm_linear", "matmul"])
def test_an_op_is_copied_and_pickled_by_name(name):
    op = getattr(mlx_norms, name)
    assert pickle.loads(pickle.dumps(op)) is copy.deepcopy(op) is op


@pytest.mark.parametrize("op", [mlx_norms.rms_norm, mlx_norms.layer_norm])
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_for_scale_and_shift(op, dtype):
    """As arrays of the output's dtype."""
    x, w, _ = arrays(dtype)
    for scale, shift in ((0.3, None), (None, -0.7), (2, w), (w, 1.5)):
        given = [mx.array(n, dtype) if isinstance(n, int | float) else n for n in (scale, shift)]
        rows = [mx.broadcast_to(n, (64,)) if n is not None else None for n in given]
        got = op(x, w, scale=scale, shift=shift)
        assert_same_bits(got, op(x, w, scale=rows[0], shift=rows[1]))
    wide = op(x, w, scale=1 / 3, dtype=mx.float32)
    row = mx.broadcast_to(mx.array(1 / 3), (64,))
    assert_same_bits(wide, op(x, w, scale=row, dtype=mx.float32))


def test_numbers_for_scale_and_shift_of_a_sum():
    x, w, b = arrays(mx.bfloat16)
    row = mx.broadcast_to(mx.array(0.3, mx.bfloat16), (64,))
    for op, parameters in ((mlx_norms.add_rms_norm, (w,)), (mlx_norms.add_layer_norm, (w, b))):
        got = op(x, x, *parameters, scale=0.3, shift=0.3)
        for a, expected in zip(got, op(x, x, *parameters, scale=row, shift=row), strict=True):
            assert_same_bits(a, expected)


def test_a_number_beside_rows_of_another_length():
    """In a shapeless graph, and under transforms."""

    def f(x):
        return mlx_norms.layer_norm(x, scale=0.3, shift=0.1)

    shapeless = mx.compile(f, shapeless=True)
    for shape in ((3, 64), (2, 5, 7), (1, 1)):
        x = normal(shape, mx.float32, seed=3)
        assert_same_bits(shapeless(x), f(x))
        assert_same_bits(mx.vmap(f)(x), f(x))
        slope = mx.grad(lambda x: (f(x) * x).sum())(x)
        row = mx.full(shape[-1:], 0.3)
        stock = mx.grad(
            lambda x, row=row: (mlx_norms.layer_norm(x, scale=row, shift=0.1) * x).sum()
        )
        assert mx.allclose(slope, stock(x), atol=1e-5)


@pytest.mark.parametrize("positional", [3, 4, 5, 6], ids=lambda n: f"{n} more")
def test_statistics_of_batch_norm_are_taken_by_keyword(positional):
    """PyTorch has them right after x."""
    x, w, _ = arrays(mx.float32)
    with pytest.raises(TypeError, match="eps must be float but is|takes from 1 to 4 positional"):
        mlx_norms.batch_norm(x, *[w] * positional)


def test_batch_norm_without_statistics_has_those_of_the_batch():
    x, w, b = arrays(mx.float32)
    wanted = mlx_norms.layer_norm(x.T) * w[:, None] + b[:, None]
    assert mx.allclose(mlx_norms.batch_norm(x, w, b), wanted.T, atol=1e-5)
    with pytest.raises(ValueError, match="var must not be None with a mean"):
        mlx_norms.batch_norm(x, w, b, mean=w)


def test_a_scale_for_each_sample_is_told_its_shape():
    x = normal((2, 3, 64), mx.float32, seed=1)
    with pytest.raises(ValueError, match=r"One for each sample has shape \(2,1,64\)"):
        mlx_norms.layer_norm(x, scale=mx.zeros((2, 64)))
    with pytest.raises(ValueError, match=r"has shape \(64,2\)\.$"):
        mlx_norms.layer_norm(x, scale=mx.zeros((64, 2)))


X, V = mx.ones((2, 8)), mx.ones(8)
NOT_TAKEN = {
    "[rms_norm] x must be mx.array but is list": lambda: mlx_norms.rms_norm([[1.0]]),
    "rms_norm() missing 1 required positional argument: 'x'": lambda: mlx_norms.rms_norm(),
    "[rms_norm] eps must be float but is str": lambda: mlx_norms.rms_norm(X, V, "1e-5"),
    "[rms_norm] eps must be float but is NoneType": lambda: mlx_norms.rms_norm(X, V, None),
    "[layer_norm] weight must be mx.array or None but is float": lambda: mlx_norms.layer_norm(
        X, 1.0
    ),
    "[layer_norm] scale must be mx.array or float or None but is str": lambda: mlx_norms.layer_norm(
        X, scale="1"
    ),
    "[rms_norm] dtype must be mx.Dtype or None but is str": lambda: mlx_norms.rms_norm(
        X, dtype="float16"
    ),
    "[rms_norm] stream must be mx.StreamOrDevice but is str": lambda: mlx_norms.rms_norm(
        X, stream="cpu"
    ),
    "rms_norm() got an unexpected keyword argument 'epsilon'": lambda: mlx_norms.rms_norm(
        X, epsilon=1e-5
    ),
    "l2_norm() takes from 1 to 2 positional arguments but 3 were given": (
        lambda: mlx_norms.l2_norm(X, 1e-5, 3)
    ),
    "[layer_norm_by_rung] x must be mx.array but is str": lambda: mlx_norms.ladders.layer_norm("x"),
    "[group_norm] num_groups must be int but is float": lambda: mlx_norms.group_norm(X, 2.0),
}


@pytest.mark.parametrize("text", NOT_TAKEN)
def test_an_argument_of_another_type_is_named(text):
    with pytest.raises(TypeError) as caught:
        NOT_TAKEN[text]()
    assert str(caught.value).rstrip(".") == text


def test_items_of_another_type():
    wanted = "weights must be mx.array or what mx.quantize returns, or a sequence of them but is"
    for weights in ([3], [X, None], 3, "text", [[X], 3]):
        with pytest.raises(TypeError, match=rf"^\[rms_norm_linear\] {wanted}"):
            mlx_norms.rms_norm_linear(X, V, weights)
    several = mlx_norms.rms_norm_linear(X, V, deque([X, X]))
    assert [y.shape for y in several] == [(2, 2)] * 2
    with pytest.raises(TypeError, match="missing a required argument"):
        _ext.rms_norm(eps=1e-5)
    with pytest.raises(TypeError, match=r"\[rms_norms\] xs must be a sequence of arrays but is"):
        mlx_norms.rms_norms([X, 3])
    with pytest.raises(TypeError, match=r"\[rms_norms\] weights must be a sequence of arrays or"):
        mlx_norms.rms_norms([X], [3])
    with pytest.raises(TypeError, match=r"\[l2_norms\] multipliers must be a sequence of floats"):
        mlx_norms.l2_norms([X], ["1"])
    with pytest.raises(TypeError, match="fn must be a function or a module but is int"):
        mlx_norms.fuse(3)
