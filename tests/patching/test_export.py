"""mx.export_function and mx.exporter of patched models: what is exported is MLX's own form."""

import mlx.core as mx
import mlx.nn
import pytest

import mlx_norms
from support.inputs import normal
from support.patched_runs import DIMS, EPS, ROWS, assert_close, operations

pytestmark = pytest.mark.usefixtures("backend")


class Model(mlx.nn.Module):
    """Both norms of sums, Gemma's weight, and a norm that no layer computes."""

    def __init__(self):
        super().__init__()
        self.rms = mlx.nn.RMSNorm(DIMS)
        self.layer = mlx.nn.LayerNorm(DIMS)
        self.linear = mlx.nn.Linear(DIMS, DIMS, bias=False)

    def __call__(self, x, r):
        h = x + r
        h = h + self.linear(self.rms(h))
        h = h + self.layer(h)
        return mx.fast.rms_norm(h, 1.0 + self.rms.weight, EPS)


class Written(mlx.nn.Module):
    """A norm in operations."""

    def __call__(self, x):
        return x * mx.rsqrt(mx.square(x).mean(-1, keepdims=True) + EPS)


@pytest.fixture
def model(backend):
    mx.random.seed(0)
    model = Model()
    mx.eval(model.parameters())
    yield model
    mlx_norms.unpatch()
    mlx_norms.unpatch(model)


@pytest.fixture
def arguments(backend):
    return [normal((ROWS, DIMS), mx.float32, seed=seed) for seed in "xr"]


class Process:
    """patch() and unpatch() around a block."""

    def __init__(self, model):
        pass

    def __enter__(self):
        mlx_norms.patch()

    def __exit__(self, *error):
        mlx_norms.unpatch()


class OneModel:
    """patch(model) and unpatch(model) around a block."""

    def __init__(self, model):
        self.model = model

    def __enter__(self):
        mlx_norms.patch(self.model)

    def __exit__(self, *error):
        mlx_norms.unpatch(self.model)


patches = pytest.mark.parametrize(
    "patch",
    [Process, lambda model: mlx_norms.patched(), OneModel],
    ids=["process", "block", "model"],
)


def is_patched(model, arguments):
    seen = operations(model(*arguments))
    return seen["mlx_norms::AddRMSNorm"] == 2 and seen["mlx_norms::AddLayerNorm"] == 1


@patches
def test_export_function(model, arguments, tmp_path, patch):
    path = str(tmp_path / "model.mlxfn")
    expected = model(*arguments)
    mx.eval(expected)
    with patch(model):
        assert is_patched(model, arguments)
        mx.export_function(path, lambda x, r: model(x, r), *arguments)
        assert is_patched(model, arguments)
        imported = mx.import_function(path)
        assert_close(imported(*arguments), [expected])
    assert mx.array_equal(imported(*arguments)[0], expected)
    assert not is_patched(model, arguments)


@patches
def test_the_model_itself(model, arguments, tmp_path, patch):
    path = str(tmp_path / "model.mlxfn")
    expected = model(*arguments)
    with patch(model):
        mx.export_function(path, model, *arguments)
    assert mx.array_equal(mx.import_function(path)(*arguments)[0], expected)


@patches
def test_a_derivative(arguments, tmp_path, patch):
    """The calls that a transform within the export traces have no pass either."""
    path = str(tmp_path / "model.mlxfn")

    def gradient(x):
        return mx.grad(lambda x: mx.tanh(written(x)).sum())(x)

    written, x = Written(), arguments[0]
    expected = gradient(x)
    with patch(written):
        mx.export_function(path, gradient, x)
    assert_close(mx.import_function(path)(x), [expected])


@patches
def test_shapeless(model, arguments, tmp_path, patch):
    path = str(tmp_path / "model.mlxfn")
    with patch(model):
        mx.export_function(path, model, *arguments, shapeless=True)
    imported = mx.import_function(path)
    more = [mx.concatenate([a, 2 * a, a]) for a in arguments]
    assert_close(imported(*more), [model(*more)])


@patches
def test_keywords(model, arguments, tmp_path, patch):
    path = str(tmp_path / "model.mlxfn")
    x, r = arguments
    with patch(model):
        mx.export_function(path, lambda x, *, r: model(x, r), x, r=r)
    assert mx.array_equal(mx.import_function(path)(x, r=r)[0], model(x, r))


@patches
def test_exporter(model, arguments, tmp_path, patch):
    """Several traces in one file, the model patched in between."""
    path = str(tmp_path / "model.mlxfn")
    calls = [arguments, [a[:2] for a in arguments]]
    with patch(model):
        with mx.exporter(path, model) as export:
            for call in calls:
                export(*call)
                assert is_patched(model, call)
        assert is_patched(model, arguments)
    imported = mx.import_function(path)
    for call in calls:
        assert mx.array_equal(imported(*call)[0], model(*call))


@patches
def test_exporter_of_shapeless(model, arguments, tmp_path, patch):
    path = str(tmp_path / "model.mlxfn")
    with patch(model), mx.exporter(path, model, shapeless=True) as export:
        export(*arguments)
    more = [mx.concatenate([a, 2 * a]) for a in arguments]
    assert_close(mx.import_function(path)(*more), [model(*more)])


def test_exporter_that_outlives_its_patch(model, arguments, tmp_path):
    path = str(tmp_path / "model.mlxfn")
    mlx_norms.patch()
    exporter = mx.exporter(path, model)
    mlx_norms.unpatch()
    with exporter as export:
        export(*arguments)
    assert mx.array_equal(mx.import_function(path)(*arguments)[0], model(*arguments))


def test_within_an_imported_function(model, arguments, tmp_path):
    """What has been imported is a graph: no patch reaches into it."""
    path = str(tmp_path / "model.mlxfn")
    mx.export_function(path, model, *arguments)
    imported = mx.import_function(path)
    with mlx_norms.patched():
        (got,) = imported(*arguments)
        assert mlx_norms.report().calls == 0
    assert mx.array_equal(got, model(*arguments))


@patches
def test_errors_in_the_function(model, arguments, tmp_path, patch):
    path = str(tmp_path / "model.mlxfn")

    def f(x, r):
        model(x, r)
        raise KeyError("mine")

    with patch(model):
        with pytest.raises(KeyError, match="mine"):
            mx.export_function(path, f, *arguments)
        assert is_patched(model, arguments)
        for call in (lambda: mx.export_function(path), lambda: mx.exporter(path)):
            with pytest.raises(TypeError):
                call()


@patches
def test_to_a_callback(model, arguments, patch):
    """What is exported, as MLX tells it, are primitives of MLX's own."""
    told = []
    with patch(model):
        mx.export_function(told.append, model, *arguments)
    names = {event["name"] for event in told if event["type"] == "primitive"}
    assert "Add" in names
    assert not any("mlx_norms" in name for name in names)
