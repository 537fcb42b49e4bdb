"""A kernel launched by its name from Python, and what is refused."""

import mlx.core as mx
import pytest

import mlx_norms
from mlx_norms import _ext
from mlx_norms.ladders import layer_norm
from support.bits import assert_same_bits
from support.inputs import normal


def on_gpu(test):
    return pytest.mark.gpu(pytest.mark.usefixtures("backend")(test))


def of(x, weight=None, bias=None, eps=1e-5, **changes):
    """The arguments of a launch of a rung, some of them changed."""
    length, parameters = x.shape[-1], dict(weight=weight, bias=bias)
    given = {name: a for name, a in parameters.items() if a is not None}
    return (
        dict(
            kernel="layer_norm_simd_4",
            arguments=dict(x=x, length=length, eps=eps) | given,
            outputs=dict(y=(x.shape, x.dtype)),
            constants={f"rung_has_{name}": name in given for name in parameters},
            groups=(x.size // length, 1, 1),
            group=(32 * -(-length // 32), 1, 1),
        )
        | changes
    )


def arrays(shape=(3, 70)):
    return [normal(of, mx.float32, seed=i) for i, of in enumerate((shape, shape[-1:], shape[-1:]))]


@on_gpu
def test_a_rung_is_a_launch():
    x, *parameters = arrays()
    for given in ([], parameters[:1], parameters):
        y = _ext._launch(**of(x, *given))["y"]
        assert (y.shape, y.dtype) == (x.shape, x.dtype)
        assert_same_bits(y, layer_norm(x, *given, rung="simd"))
    transposed = mx.contiguous(x.T).T
    assert_same_bits(_ext._launch(**of(transposed))["y"], layer_norm(x, rung="simd"))
    assert _ext._launch(**of(mx.zeros((0, 33)), groups=(1, 1, 1)))["y"].shape == (0, 33)


@on_gpu
def test_it_is_lazy_and_on_its_stream(backend):
    x, *_ = arrays()
    stream = mx.new_stream(mx.cpu if backend == "metal-sim" else mx.gpu)
    mx.eval(x)
    before = mx.get_active_memory()
    y = _ext._launch(**of(x), stream=stream)["y"]
    assert mx.get_active_memory() == before
    mx.async_eval(y)
    mx.synchronize(stream)
    assert_same_bits(y, layer_norm(x, rung="simd"))


@on_gpu
def test_launches_that_differ_are_not_merged():
    x, weight, bias = arrays()

    def several(x):
        launches = (
            of(x),
            of(x, eps=0.5),
            of(x, weight),
            of(x, bias),
            of(x, kernel="layer_norm_shared_4"),
        )
        return [_ext._launch(**each)["y"] for each in (*launches, of(x))]

    for got, expected in zip(mx.compile(several)(x), several(x), strict=True):
        assert_same_bits(got, expected)


@on_gpu
def test_a_graph_has_the_sizes_of_its_trace():
    compiled = mx.compile(lambda x: _ext._launch(**of(x))["y"], shapeless=True)
    few, many = arrays()[0], arrays((5, 70))[0]
    assert_same_bits(compiled(few), layer_norm(few, rung="simd"))
    with pytest.raises(ValueError, match=r"^\[launch\] .*\(3,70\).*\(5,70\)"):
        mx.eval(compiled(many))


@on_gpu
def test_transforms_are_those_of_a_custom_function():
    x, weight, _ = arrays()

    @mx.custom_function
    def norm(x, weight):
        return _ext._launch(**of(x, weight))["y"]

    @norm.vjp
    def norm_vjp(primals, cotangent, output):
        return mx.vjp(
            lambda *of: mlx_norms.layer_norm(*of, None, 1e-5), list(primals), [cotangent]
        )[1]

    got = mx.grad(lambda *of: norm(*of).square().sum(), argnums=(0, 1))(x, weight)
    ours = mx.grad(lambda *of: mlx_norms.layer_norm(*of, None, 1e-5).square().sum(), (0, 1))(
        x, weight
    )
    for a, b in zip(got, ours, strict=True):
        assert mx.allclose(a, b, 1e-4, 1e-4)

    def alone(x):
        return _ext._launch(**of(x))["y"]

    for what, f in {
        "grad": lambda: mx.grad(lambda x: alone(x).sum())(x),
        "jvp": lambda: mx.jvp(alone, [x], [x]),
        "vmap": lambda: mx.vmap(alone)(x[:, None]),
    }.items():
        with pytest.raises(ValueError, match=rf"^\[launch\] .*\b{what}\b.* of a kernel alone"):
            f()


X = mx.zeros((3, 70))
ARGUMENTS, CONSTANTS = (of(X)[name] for name in ("arguments", "constants"))
REFUSED = {
    'kernel must be one of this build but is "layer_norm"': dict(kernel="layer_norm"),
    'constants must have "rung_has_weight"': dict(constants=dict(rung_has_bias=False)),
    'constants must have no "looped"': dict(constants=CONSTANTS | dict(looped=False)),
    '"rung_has_bias" must be a bool': dict(constants=CONSTANTS | dict(rung_has_bias=1)),
    '"rung_has_bias" must be a bool or': dict(constants=CONSTANTS | dict(rung_has_bias="1")),
    'arguments must have "eps"': dict(arguments=dict(x=X, length=70)),
    'arguments must have "x"': dict(arguments=dict(length=70, eps=0.1)),
    'arguments must have "weight"': dict(constants=CONSTANTS | dict(rung_has_weight=True)),
    '"weight" must be left out': dict(arguments=ARGUMENTS | dict(weight=X)),
    'there must be no "z"': dict(arguments=ARGUMENTS | dict(z=X)),
    '"x" must be an array': dict(arguments=ARGUMENTS | dict(x=1)),
    '"length" must be an int': dict(arguments=ARGUMENTS | dict(length=70.5)),
    '"length" must be an int of 32 bits': dict(arguments=ARGUMENTS | dict(length=2**31)),
    '"length" must be an int of 32 bits for': dict(arguments=ARGUMENTS | dict(length=[1] * 6)),
    '"eps" must be a float': dict(arguments=ARGUMENTS | dict(eps=X)),
    '"eps" must be an array, a number or six ints': dict(arguments=ARGUMENTS | dict(eps="0")),
    '"y" must be an output': dict(arguments=ARGUMENTS | dict(y=X)),
    'outputs must have "y"': dict(outputs={}),
    '"x" must be an array for': dict(outputs=dict(x=((3,), mx.float32))),
    '"y" must be a shape and a dtype': dict(outputs=dict(y=(3, 70))),
    "groups must be from 1 to": dict(groups=(0, 1, 1)),
    "groups must be from 1 to 2147483647, 65535": dict(groups=(1, 65536, 1)),
    "group must be from 1 thread": dict(group=(32, 0, 1)),
    "to 1024 in all": dict(group=(1025, 1, 1)),
    "1024 in all for": dict(group=(32, 33, 1)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message):
    with pytest.raises(ValueError, match=r"^\[launch\] ") as caught:
        _ext._launch(**of(X, **REFUSED[message]))
    assert message in str(caught.value)


def test_a_cpu_runs_no_kernel():
    with pytest.raises(ValueError, match=r'^\[launch\] kernel "layer_norm_simd_4" .* the CPU'):
        _ext._launch(**of(X), stream=mx.cpu)
