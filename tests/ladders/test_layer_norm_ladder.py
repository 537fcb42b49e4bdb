"""Each rung of the LayerNorm ladder against the float64 oracle, and what is refused."""

import re

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from counts.layer_norm_ladder import count_layer_norm
from mlx_norms.ladders import LAYER_NORM, layer_norm
from support import oracle
from support.bits import assert_same_bits
from support.checks import check, check_with_gradients
from support.inputs import arguments, cotangents, unless_slow
from support.layouts import LAYOUTS, strided_parameters
from support.norm_case import Norm, short
from support.variant import ROOT

pytestmark = pytest.mark.usefixtures("backend")

RUNGS = LAYER_NORM[:-1]
# The variance is the difference of E[x^2] and E[x]^2.
DIFFERENCES = ("fused", "robust")
CASES = [pytest.param(r.name, t, id=f"{r.name}-{short(t)}") for r in RUNGS for t in r.dtypes]
# About each number of threads and of elements at which a rung changes its way; of rows past
# registers one is aligned and one is not.
LENGTHS = (
    *(1, 2, 3, 4, 31, 32, 33, 63, 127, 128, 129, 256, 513, 768, 1023, 1024, 1025),
    *(4095, 4096, 4097, 8193, 16384, 16385, 65536),
)


def every_case(test):
    return pytest.mark.gpu(pytest.mark.parametrize("name, dtype", CASES)(test))


def rung(name, **options):
    return Norm("layer_norm", rung=name, **options)


def with_x(arrays, x):
    """The arrays with these rows, which x's dtype holds."""
    return arrays | {"x": mx.array(np.asarray(x, np.float32)).astype(arrays["x"].dtype)}


def times_bound(norm, arrays):
    """The largest error of the output, in bounds of the oracle."""
    (truth,), (y,) = oracle.forward(norm, arrays), norm(arrays)
    bound = truth.slack + 0.5 * oracle.ulp(truth.value, truth.dtype)
    return float(np.max(np.abs(oracle.exact(y) - truth.value) / bound))


@every_case
def test_values(name, dtype):
    for length in LENGTHS:
        for rows in (1, 3) if length <= 4097 else (1,):
            arrays = arguments(rung(name), (rows, length), dtype)
            if name.startswith("naive") and length > 1025:
                assert times_bound(rung(name), arrays) < length / 1024  # it adds up one by one
            else:
                check(rung(name), arrays)


@every_case
def test_many_rows(name, dtype):
    """More than a group of threads that have a row each; any number of axes; none at all."""
    for shape in (
        (1025, 32),
        (67, 5, 3),
        (33,),
        (0,),
        (3, 0),
        (0, 5),
        *unless_slow((3000, 65)),
    ):
        check(rung(name), arguments(rung(name), shape, dtype))


@every_case
def test_without_weight_or_bias(name, dtype):
    for length in (33, 128):
        for without in (("weight",), ("bias",), ("weight", "bias")):
            check(rung(name), arguments(rung(name), (3, length), dtype, without=without))


@every_case
def test_every_element_counts(name, dtype):
    """One that is not zero stands at each end of what a lane, a SIMD-group and a row have."""
    for length in (31, 33, 128, 255, 1025, 4097):
        places = sorted({0, 3, 4, 30, length // 2, length - 33, length - 2, length - 1} - {-2})
        x = np.zeros((len(places), length))
        x[range(len(places)), places] = 2.0
        arrays = arguments(rung(name), x.shape, dtype)
        check(rung(name), with_x(arrays, x))


@every_case
def test_constant_rows(name, dtype):
    """Zero rows among them."""
    for length in (1, 33, 128, 1000):
        x = np.repeat(np.float32([0.0, 1.0, -3.0, 100.0, 0.0])[:, None], length, axis=1)
        arrays = with_x(arguments(rung(name), x.shape, dtype), x)
        check(rung(name), arrays)
        y = rung(name)(arrays)[0]
        assert mx.array_equal(y, mx.broadcast_to(arrays["bias"], y.shape))


@every_case
def test_values_about_the_root_of_eps(name, dtype):
    for eps in (1e-5, 1e-3):
        for factor in (0.1, 1.0, 10.0):
            norm = rung(name, eps=eps)
            arrays = arguments(norm, (3, 65), dtype, std=factor * eps**0.5)
            if name == "fused" and factor**2 * eps < 1e-6:
                assert times_bound(norm, arrays) > 100  # it takes such a variance for zero
            else:
                check(norm, arrays)


@every_case
def test_what_is_not_finite_stays_in_its_row(name, dtype):
    for length in (65, 128):
        arrays = arguments(rung(name), (3, length), dtype)
        clean = rung(name)(arrays)[0]
        for bad in (float("nan"), float("inf")):
            arrays["x"][1, length - 2] = bad
            y = rung(name)(arrays)[0]
            assert mx.all(mx.isnan(y[1]))
            assert_same_bits(y[::2], clean[::2])


@pytest.mark.gpu
@pytest.mark.parametrize("length", [768, 1025])
@pytest.mark.parametrize("mean", [1e4, -1e6])
def test_a_large_mean(mean, length):
    """The difference of two squares is lost, a rounded mean is felt, and these two hold."""
    arrays = arguments(rung("ours"), (3, length), mx.float32, mean=mean)
    for name in ("welford", "ours"):
        check(rung(name), arrays)
    for name in DIFFERENCES:
        assert times_bound(rung(name), arrays) > 1e4
    assert times_bound(rung("regtiled"), arrays) > 10


@pytest.mark.gpu
def test_a_large_mean_in_float16():
    for length in (33, 768, 4097):
        check(rung("welford"), arguments(rung("welford"), (3, length), mx.float16, mean=1e4))


@every_case
def test_layouts(name, dtype):
    """Strided arrays become dense; rows at an odd offset, whose fours are not aligned, are read."""
    for length in (33, 64):
        arrays = arguments(rung(name), (3, length), dtype)
        expected = rung(name)(arrays)[0]
        for layout in LAYOUTS:
            check(rung(name), arrays | {"x": layout(arrays["x"])}, layout.__name__)
        got = rung(name)(arrays | strided_parameters(arrays))[0]
        assert_same_bits(got, expected)
        for parameter in ("weight", "bias"):
            longer = mx.concatenate([arrays[parameter][:1], arrays[parameter]])
            mx.eval(longer)
            assert_same_bits(rung(name)(arrays | {parameter: longer[1:]})[0], expected)


@every_case
def test_output_in_the_memory_of_a_temporary(name, dtype):
    for length in (33, 1028):
        arrays = arguments(rung(name), (3, length), dtype)
        got = rung(name)(arrays | {"x": mx.abs(arrays["x"])})[0]
        expected = rung(name)(arrays | {"x": mx.contiguous(mx.abs(arrays["x"]))})[0]
        assert_same_bits(got, expected)


@every_case
def test_rows_have_the_same_bits_in_any_batch(name, dtype):
    for length in (33, 1028):
        arrays = arguments(rung(name), (5, length), dtype)
        whole = rung(name)(arrays)[0]
        for row in (0, 4):
            alone = rung(name)(arrays | {"x": arrays["x"][row]})[0]
            assert_same_bits(alone, whole[row])


@every_case
def test_gradients(name, dtype):
    for without in ((), ("weight",), ("bias",)):
        check_with_gradients(rung(name), arguments(rung(name), (3, 65), dtype, without=without))


@every_case
def test_derivatives_are_those_of_the_op(name, dtype):
    """Along tangents, and of gradients."""
    arrays = arguments(rung(name), (3, 33), dtype)
    primals, tangents = (
        list(arrays.values()),
        list(arguments(rung(name), (3, 33), dtype, seed=1).values()),
    )

    def forward(norm):
        return norm.function(norm.arguments)

    def pullback(norm):
        cots = cotangents(norm, arrays)
        return lambda *args: mx.vjp(forward(norm), list(args), cots)[1]

    ours = Norm("layer_norm", rounding="late")
    for of in (forward, pullback):
        _, got = mx.jvp(of(rung(name)), primals, tangents)
        _, expected = mx.jvp(of(ours), primals, tangents)
        for a, b in zip(got, expected, strict=True):
            assert_same_bits(a, b, of.__name__)


@every_case
def test_vmap(name, dtype):
    norm = rung(name)
    examples = [arguments(norm, (2, 36), dtype, seed=i) for i in range(3)]
    for axes in ((0, None, None), (2, None, None), (1, 0, None), (None, 1, 0), (0, 0, 1)):
        args = [
            examples[0][n] if axis is None else mx.stack([e[n] for e in examples], axis=axis)
            for n, axis in zip(norm.arguments, axes, strict=True)
        ]
        (got,) = mx.vmap(norm.function(norm.arguments), in_axes=axes)(*args)
        for i, example in enumerate(examples):
            chosen = [examples[0] if axis is None else example for axis in axes]
            of = {n: e[n] for n, e in zip(norm.arguments, chosen, strict=True)}
            (truth,) = oracle.forward(norm, of)
            truth.check(got[i], f"vmap over {axes}")


@every_case
def test_compile(name, dtype):
    norm = rung(name)
    for shapeless in (False, True):
        compiled = mx.compile(norm.function(norm.arguments), shapeless=shapeless)
        for shape in ((3, 33), (5, 33), (4, 64)):
            arrays = arguments(norm, shape, dtype)
            assert_same_bits(compiled(*arrays.values())[0], norm(arrays)[0])


@pytest.mark.gpu
def test_another_rung_or_eps_is_another_node():
    """Compiled functions merge nodes that are alike."""
    arrays = arguments(rung("naive"), (3, 33), mx.float32)
    norms = [rung("simd"), rung("welford"), rung("simd", eps=0.5), rung("simd")]
    got = mx.compile(lambda x: [norm(arrays | {"x": x})[0] for norm in norms])(arrays["x"])
    for norm, y in zip(norms, got, strict=True):
        assert_same_bits(y, norm(arrays)[0])


on_simulator = pytest.mark.backends("metal-sim")


# Bytes an element, of x and y and of parameters, of float32.
BYTES = {"naive": 24, "naive_32": 24, "shared": 24, "simd": 24, "vectorized": 24}
BYTES |= {"fused": 20, "robust": 20, "welford": 20, "regtiled": 16, "ours": 16}


@on_simulator
def test_counts(simulator):
    """What each rung asks of the memory."""
    counts = {r.name: count_layer_norm(simulator, r.name, mx.float32, 768) for r in LAYER_NORM}
    assert {n: c.of_rows + c.of_parameters for n, c in counts.items()} == BYTES
    assert all(c.of_parameters == 8 for c in counts.values())
    half = count_layer_norm(simulator, "welford", mx.float16, 768)
    assert half.of_rows + half.of_parameters == 10
    assert counts["shared"].barriers > counts["simd"].barriers > counts["fused"].barriers > 0
    assert counts["ours"].barriers == 1
    long = [count_layer_norm(simulator, "regtiled", mx.float32, n).of_rows for n in (16384, 16388)]
    assert long == [8, 16], "the longest row that registers hold, and one beyond"


# Threads of a group, of rows of 7, 768 and 65536 elements.
THREADS = {"naive": (1024, 1024, 1024), "naive_32": (32, 32, 32), "shared": (4, 512, 1024)}
THREADS |= {"simd": (32, 768, 1024), "regtiled": (32, 192, 1024)}


@on_simulator
def test_threads(simulator):
    for r in RUNGS:
        for length, threads in zip((7, 768, 65536), THREADS.get(r.name, (32, 192, 1024))):
            simulator.clear()
            mx.eval(layer_norm(mx.ones((3, length)), rung=r.name))
            simulator.wait()
            (launch,) = simulator.launches
            assert launch.group == (threads, 1, 1), r.name
            assert launch.grid == (1 if r.name.startswith("naive") else 3, 1, 1), r.name


def test_the_kernels_text_says_what_each_fixes():
    header = (ROOT / "kernels/ladders/layer_norm/ladder.h").read_text()
    said = re.sub(r"\s+", " ", header.replace("\n//", "\n"))
    for r in LAYER_NORM:
        assert f" {r.name} {r.fixes} " in f"{said} ", r.name


def refused(*words):
    return pytest.raises(ValueError, match=r"^\[layer_norm\] " + ".*".join(["", *words]))


def test_unknown_rung():
    names = ", ".join(r.name for r in LAYER_NORM)
    for name in ("Naive", "", "ours ", "tile_16"):
        with refused(f'rung must be one of {names} but is "{name}"'):
            layer_norm(mx.ones((2, 4)), rung=name)
    for wrong in (None, 1, b"simd"):
        with pytest.raises(TypeError):
            layer_norm(mx.ones((2, 4)), rung=wrong)


@pytest.mark.backends("cpu", "cuda", "metal")
def test_rungs_do_not_run_on_the_cpu(backend):
    """But on the simulated device, which is the CPU's."""
    for r in RUNGS:
        with refused(f'"{r.name}"', "GPU kernel", "CPU"):
            layer_norm(mx.ones((2, 4)), rung=r.name, stream=mx.cpu)


@pytest.mark.parametrize("name", [r.name for r in RUNGS])
def test_refusals(name):
    x, w = mx.ones((2, 4)), mx.ones(4)
    with refused("eps", "-1"):
        layer_norm(x, w, eps=-1.0, rung=name)
    with refused("x", "axis"):
        layer_norm(mx.array(1.0), rung=name)
    for shape in ((), (3,), (2, 4)):
        with refused("weight", r"\(4\)"):
            layer_norm(x, mx.ones(shape), rung=name)
        with refused("bias", r"\(4\)"):
            layer_norm(x, w, mx.ones(shape), rung=name)


@pytest.mark.parametrize("r", RUNGS, ids=lambda r: r.name)
def test_dtypes(r):
    x = mx.ones((2, 4))
    for wrong in (mx.bfloat16, mx.float16, mx.int32):
        if wrong not in r.dtypes:
            with refused(*(["x"] if wrong == mx.int32 else [f'"{r.name}"', "float32", "x is"])):
                layer_norm(x.astype(wrong), rung=r.name)
        if wrong != mx.int32:
            w = mx.ones(4, wrong)
            for name, arrays in (("weight", (x, w)), ("bias", (x, None, w))):
                with refused(f'"{r.name}"', f"{name} is {str(wrong).split('.')[-1]}"):
                    layer_norm(*arrays, rung=r.name)


def test_ours_is_the_op(backend):
    """Of mixed dtypes, and on the CPU, too."""
    arrays = arguments(Norm("layer_norm"), (3, 33), mx.bfloat16, others={"weight": mx.float32})
    got = layer_norm(**arrays, eps=1e-3, rung="ours")
    assert_same_bits(got, mlx_norms.layer_norm(**arrays, eps=1e-3))


def test_the_rung_is_a_keyword():
    x, w = mx.ones((2, 4)), mx.ones(4)
    with pytest.raises(TypeError):
        layer_norm(x, w, w, 1e-5, "ours")
