"""Patched group, instance and batch norm: results, state and errors of mlx.nn's, and the report."""

import contextlib
import copy

import mlx.core as mx
import mlx.nn
import pytest

import mlx_norms
from harness.graph_nodes import nodes
from support.group_layers import (
    BLOCKS,
    CALLS,
    CHANNELS,
    LAYERS,
    ConformerConvolution,
    ResidualBlock,
    block,
    block_input,
    case_of,
    pair,
    stock_layer,
    training_run,
)
from support.inputs import normal
from support.norm_case import DTYPES
from support.patched_runs import (
    ARGUMENTS,
    DTYPE,
    FUSED,
    GROUPS,
    arrays_of,
    assert_close,
    run_patched,
    run_stock,
)
from support.releases import since

pytestmark = pytest.mark.usefixtures("backend")

SHAPE = (3, 4, CHANNELS)


def x_of(dtype=mx.float32, shape=SHAPE):
    return normal(shape, dtype, seed="x", mean=1.0)


def identical(a, b):
    a, b = arrays_of(a), arrays_of(b)
    assert len(a) == len(b)
    return all(
        (p.dtype, p.shape) == (q.dtype, q.shape) and mx.array_equal(p, q, stream=mx.cpu)
        for p, q in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name, args, kwargs", LAYERS)
class TestResults:
    def test_are_those_of_our_layers(self, name, args, kwargs, training):
        for dtype in DTYPES:
            layer, own = pair(name, args, kwargs)
            layer.train(training)
            own.train(training)
            case = case_of(layer, x_of(dtype), layer(x_of(dtype)).dtype)
            layer, _ = pair(name, args, kwargs)
            layer.train(training)
            y, report = run_patched(lambda layer=layer, dtype=dtype: layer(x_of(dtype)))
            assert report.reasons == {GROUPS: 1}
            assert (report.calls, report.fused, report.passed_on) == (1, 0, 0)
            case.check_result(y)
            assert identical((y, layer.state), (own(x_of(dtype)), own.state))


def test_forms_of_calls():
    layer = stock_layer(*LAYERS[0])
    results, report = run_patched(lambda: [layer(x=x_of()), type(layer).__call__(layer, x_of())])
    assert report.reasons == {GROUPS: 2}
    assert identical(results, [results[0]] * 2)
    with mlx_norms.patched(), pytest.raises(TypeError, match="takes 2 positional arguments but 3"):
        layer(x_of(), x_of())


def change(**values):
    def apply(layer):
        for name, value in values.items():
            setattr(layer, name, value)

    return apply


def drop(name):
    return lambda layer: layer.pop(name)


# What no op of ours takes: the layer, the input, what is changed in the layer, and the reason, if
# it is counted.
C = CHANNELS
GROUP, BATCH, INSTANCE = ("GroupNorm", 4, C), ("BatchNorm", C), ("InstanceNorm", C, 1e-5, True)
PASSED_ON = {
    "integers in groups": (GROUP, lambda: mx.arange(96).reshape(2, 2, C), None, DTYPE),
    "integers in a batch": (BATCH, lambda: mx.arange(96).reshape(4, C), None, DTYPE),
    "an integer weight": (INSTANCE, x_of, change(weight=mx.arange(C)), DTYPE),
    "integer statistics": (BATCH, x_of, change(running_mean=mx.arange(C)), DTYPE),
    "complex": (BATCH, lambda: x_of() * 1j, None, DTYPE),
    "one weight for all": (GROUP, x_of, change(weight=mx.ones(1)), ARGUMENTS),
    "a weight of two axes": (INSTANCE, x_of, change(weight=mx.ones((4, C))), ARGUMENTS),
    "one statistic for all": (BATCH, x_of, change(running_mean=mx.ones(1)), ARGUMENTS),
    "negative eps": (GROUP, x_of, change(eps=-1e-9), ARGUMENTS),
    "groups that reach over positions": (
        ("GroupNorm", 2, 2, 1e-5, False),
        lambda: x_of(shape=(2, 4, 3)),
        None,
        ARGUMENTS,
    ),
    "five axes": (BATCH, lambda: x_of(shape=(1, 2, 2, 2, C)), None, ARGUMENTS),
    "two axes": (INSTANCE, lambda: x_of(shape=(4, C)), None, ARGUMENTS),
    "one axis": (GROUP, lambda: x_of(shape=(C,)), None, ARGUMENTS),
    "another length": (GROUP, lambda: x_of(shape=(2, 3, 20)), None, ARGUMENTS),
    "a number": (BATCH, lambda: 3, None, None),
    "a list": (GROUP, lambda: [1.0] * C, None, None),
    "nothing": (INSTANCE, lambda: None, None, None),
    "no bias": (GROUP, x_of, drop("bias"), None),
    "no statistics": (BATCH, x_of, drop("running_mean"), None),
    "momentum as text": (BATCH, x_of, change(momentum="0.1"), None),
}


def outcome(layer, x):
    """Result or error, and the state after it."""
    try:
        y = layer(x)
        mx.eval(y, layer.state)
    except Exception as error:
        return (type(error), str(error)), [layer.state]
    return (), [y, layer.state]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("what", PASSED_ON)
def test_what_no_op_takes_goes_to_mlx_nn(what, training):
    (name, *args), x, apply, reason = PASSED_ON[what]
    layers = [stock_layer(name, args, {}).train(training) for _ in range(2)]
    if apply:
        for layer in layers:
            apply(layer)
    error, expected = outcome(layers[0], x())
    with mlx_norms.patched(fuse=False):
        got_error, got = outcome(layers[1], x())
        report = mlx_norms.report()
    assert got_error == error
    assert identical(got, expected)
    assert report.reasons == ({reason: 1} if reason else {})
    assert report.passed_on == len(report.reasons)


def test_compiled_inference_by_given_statistics_is_part_of_mlx_kernels():
    layer, x = stock_layer("BatchNorm", (C,), {}).train(False), x_of()
    mx.eval(x, layer.state)

    def step(x):
        return mlx.nn.silu(layer(x + 1)) * 2

    stock = nodes(mx.compile(step)(x))
    for derived in (False, True):
        with mlx_norms.patched():
            step_or_gradient = mx.grad(lambda x: step(x).sum()) if derived else step
            launched = nodes(mx.compile(step_or_gradient)(x))
            assert mlx_norms.report().reasons == ({GROUPS: 1} if derived else {})
        assert derived or launched == stock
    layer.train()
    with mlx_norms.patched():
        mx.compile(step, inputs=layer.state, outputs=layer.state)(x)
        assert mlx_norms.report().reasons == {GROUPS: 1}


@since("0.32.1")
def test_one_value_in_training_is_mlx_nns_error():
    layer = mlx.nn.BatchNorm(C)
    with mlx_norms.patched():
        with pytest.raises(ValueError, match="BatchNorm training requires more than one value"):
            layer(x_of(shape=(1, 1, C)))
        assert mlx_norms.report().reasons == {ARGUMENTS: 1}


def test_float64_goes_to_mlx_nn():
    with mx.stream(mx.cpu):
        for name, args, kwargs in LAYERS:
            stock = stock_layer(name, args, kwargs)
            layer = copy.deepcopy(stock)
            x = x_of().astype(mx.float64)
            y, report = run_patched(lambda layer=layer, x=x: layer(x), fuse=False)
            assert identical((y, layer.state), (stock(x), stock.state))
            assert report.reasons == {DTYPE: 1}


class Inherits(mlx.nn.BatchNorm):
    def __call__(self, x):
        return 2 * super().__call__(x)


class OtherStatistics(mlx.nn.BatchNorm):
    """As one whose statistics are those of all devices."""

    def _calc_stats(self, x, ddof=0):
        mean, var = super()._calc_stats(x, ddof)
        return mean + 1, var


class OtherGroups(mlx.nn.GroupNorm):
    def _group_norm(self, x):
        return mx.fast.layer_norm(x + x, None, None, self.eps)


class NormOfTransposed(mlx.nn.GroupNorm):
    def __call__(self, x):
        return super().__call__(x.swapaxes(0, 1)).swapaxes(0, 1)


class TestSubclasses:
    def test_that_call_mlx_nns(self):
        layer, other = Inherits(C), Inherits(C)
        y, report = run_patched(lambda: layer(x_of()))
        assert report.reasons == {GROUPS: 1}
        assert_close((y, layer.state), (other(x_of()), other.state))

    def test_that_call_mlx_nns_write_no_norm(self):
        layer = NormOfTransposed(4, C)
        y, report = run_patched(lambda: layer(x_of()))
        assert (report.reasons, report.left) == ({GROUPS: 1}, {})
        assert_close(y, layer(x_of()))

    @since("0.32.1")
    def test_that_compute_something_else(self):
        layer, other = OtherStatistics(C), OtherStatistics(C)
        y, report = run_patched(lambda: layer(x_of()))
        assert report.calls == 0
        assert identical((y, layer.state), (other(x_of()), other.state))

    def test_whose_own_norm_is_patched(self):
        layer = OtherGroups(4, C)
        y, report = run_patched(lambda: layer(x_of()))
        assert report.reasons == {FUSED: 1}
        assert_close(y, layer(x_of()))

    def test_instance_with_a_method_of_its_own(self):
        layer = mlx.nn.BatchNorm(C)
        layer._calc_stats = lambda x, ddof=0: (mx.zeros(C), mx.ones(C))
        y, report = run_patched(lambda: layer(x_of()))
        assert report.calls == 0
        assert_close(y, x_of())


@contextlib.contextmanager
def process(model):
    mlx_norms.patch()
    try:
        yield
    finally:
        mlx_norms.unpatch()


@contextlib.contextmanager
def one_model(model):
    mlx_norms.patch(model)
    try:
        yield
    finally:
        mlx_norms.unpatch(model)


PATCHES = [process, lambda model: mlx_norms.patched(), one_model]


@pytest.mark.parametrize("patch", PATCHES, ids=["process", "block", "model"])
@pytest.mark.parametrize("cls", BLOCKS)
def test_training(cls, patch):
    expected = run_stock(lambda: training_run(block(cls)))
    mlx_norms.unpatch()  # what a block of another test has left
    before = [vars(layer)["__call__"] for layer in (mlx.nn.GroupNorm, mlx.nn.BatchNorm)]
    model = block(cls)
    with patch(model):
        got = training_run(model)
        assert mlx_norms.report().reasons[GROUPS] == 3 * CALLS[cls]
        assert mlx_norms.report().passed_on == 0
    assert_close(got, expected)
    mlx_norms.unpatch()
    after = [vars(layer)["__call__"] for layer in (mlx.nn.GroupNorm, mlx.nn.BatchNorm)]
    assert all(a is b for a, b in zip(before, after, strict=True))
    training_run(model)
    assert mlx_norms.report().reasons[GROUPS] == 3 * CALLS[cls]


def test_compiled_while_patched():
    """The state is among the inputs and outputs, and the patch stays after its block."""
    expected, model = block(ConformerConvolution), block(ConformerConvolution)
    compiled = mx.compile(model, inputs=model.state, outputs=model.state)
    for seed in range(3):
        x = block_input(seed)
        with mlx_norms.patched() if seed == 0 else contextlib.nullcontext():
            y = compiled(x)
            assert mlx_norms.report().reasons[GROUPS] == 1
        assert_close((y, model.state), (expected(x), expected.state))


def test_only_in_the_models_calls():
    model, other = block(ResidualBlock), block(ResidualBlock)
    with one_model(model):
        other(block_input())
        assert mlx_norms.report().calls == 0
        model(block_input())
        assert mlx_norms.report().reasons == {GROUPS: 3}


def test_fuse():
    model = block(ResidualBlock).eval()
    expected = run_stock(lambda: model(block_input()))
    with mlx_norms.patched():
        got = mlx_norms.fuse(model)(block_input())
        assert mlx_norms.report().reasons == {GROUPS: 3}
    assert_close(got, expected)


def test_without_fusion():
    layer = stock_layer(*LAYERS[0])
    _, report = run_patched(lambda: layer(x_of()), fuse=False)
    assert report.reasons == {GROUPS: 1}


def test_vmap():
    layer = stock_layer(*LAYERS[0])
    x = x_of(shape=(2, *SHAPE))
    got, report = run_patched(lambda: mx.vmap(layer)(x))
    assert report.reasons == {GROUPS: 1}
    assert_close(got, mx.vmap(layer)(x))


def test_an_export_has_mlxs_ops(tmp_path):
    layer, path = stock_layer(*LAYERS[0]), str(tmp_path / "layer.mlxfn")
    with mlx_norms.patched():
        mx.export_function(path, lambda x: layer(x), x_of())
        assert mlx_norms.report().calls == 0
    assert_close(mx.import_function(path)(x_of())[0], layer(x_of()))
