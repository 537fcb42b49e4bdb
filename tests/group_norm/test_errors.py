"""What group, instance and batch norm refuse, and that the message names the argument."""

import inspect

import mlx.core as mx
import pytest

import mlx_norms

pytestmark = pytest.mark.usefixtures("backend")

X = mx.zeros((2, 3, 8))
V, SHORT, INT = mx.zeros(8), mx.zeros(7), mx.zeros(8, mx.int32)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: mlx_norms.group_norm(X.astype(mx.int32), 2), "x must be float32"),
        (lambda: mlx_norms.group_norm(V, 2), "x must have at least 2 axes"),
        (lambda: mlx_norms.group_norm(X, 3), "num_groups must divide"),
        (lambda: mlx_norms.group_norm(X, 0), "num_groups must divide"),
        (lambda: mlx_norms.group_norm(X, -2), "num_groups must divide"),
        (lambda: mlx_norms.group_norm(X, 2, SHORT), "weight must have shape"),
        (lambda: mlx_norms.group_norm(X, 2, V, SHORT), "bias must have shape"),
        (lambda: mlx_norms.group_norm(X, 2, INT), "weight must be float32"),
        (lambda: mlx_norms.group_norm(X, 2, eps=-1.0), "eps must not be negative"),
        (lambda: mlx_norms.group_norm(X, 2, eps=float("nan")), "eps must not be negative"),
        (lambda: mlx_norms.group_norm(X, 2, activation="relu"), "activation must be"),
        (lambda: mlx_norms.group_norm(X, 2, dtype=mx.int8), "dtype must be float32"),
        (lambda: mlx_norms.instance_norm(X[0]), "x must have at least 3 axes"),
        (lambda: mlx_norms.instance_norm(X, SHORT), "weight must have shape"),
        (lambda: mlx_norms.batch_norm(V, mean=None, var=None), "x must have at least 2 axes"),
        (lambda: mlx_norms.batch_norm(X, mean=V, var=None), "var must not be None"),
        (lambda: mlx_norms.batch_norm(X, mean=None, var=V), "mean must not be None"),
        (lambda: mlx_norms.batch_norm(X, mean=SHORT, var=V), "mean must have shape"),
        (lambda: mlx_norms.batch_norm(X, mean=V, var=INT), "var must be float32"),
        (
            lambda: mlx_norms.batch_norm(X[:1, :1], V, V, mean=V, var=V, training=True),
            "more than one value per channel",
        ),
    ],
)
def test_is_refused(call, named):
    with pytest.raises(ValueError, match=named):
        call()


@pytest.mark.parametrize("name", ["group_norm", "instance_norm", "batch_norm"])
def test_docstring(name):
    text = inspect.getdoc(getattr(mlx_norms, name))
    for part in ("Args:", "Returns:", "Raises:", "eps", "weight", "dtype", "stream"):
        assert part in text, f"{name}: {part}"
