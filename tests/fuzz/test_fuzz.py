"""The fuzzers: nothing fails at some seeds, and what is planted is found."""

import contextlib
import inspect
import itertools
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from fuzz import judge, modes, numerics, programs, shapeless, workers
from fuzz.backends import Backend, fuse_compiled
from fuzz.jitter import jittered
from fuzz.norms import Ours, Stock, TiedStock, composed
from fuzz.program import Step
from fuzz.program_check import Void, check
from fuzz.promises import Promise, Walk
from fuzz.shrink import shrink
from mlx_norms import _ext
from mlx_norms._table import OPS
from mlx_norms.patching.scope import current
from support import patched_runs, quantized_case
from support.inputs import normal
from support.oracle import unit_roundoff
from support.patched_runs import assert_close

TOOLS = Path(__file__).parents[2] / "tools"
FEW_CASES = {"programs": 60, "numerics": 120, "shapeless": 40}
CASES = {"programs": 300, "numerics": 400, "shapeless": 300}
COUNTS = [pytest.param(*of, id=of[0]) for of in FEW_CASES.items()]
COUNTS += [pytest.param(*of, id=f"many {of[0]}", marks=pytest.mark.slow) for of in CASES.items()]


@pytest.mark.parametrize("kind, cases", COUNTS)
def test_nothing_fails(kind, cases, backend):
    results = list(workers.run(kind, backend, range(cases)))
    assert sorted(result.seed for result in results) == list(range(cases))
    failing = [result for result in results if result.failures]
    assert not failing, "\n".join(map(str, failing))
    # On CUDA MLX compiles some of its quantized products at first use, by headers that not every
    # installation has. Of shapeless graphs MLX runs few.
    most = cases // (2 if kind == "shapeless" else 8 if backend == "cuda" else 20)
    assert sum(result.void for result in results) <= most


@pytest.fixture
def cpu():
    """The CPU, in this process."""
    before = mx.default_device()
    yield Backend("cpu")
    fuse_compiled(True)
    mx.set_default_device(before)


def failing(cpu, seeds=range(40)):
    """The programs that fail, as they are met."""
    for seed in seeds:
        program = programs.generate(seed, cpu)
        with contextlib.suppress(Void):
            if check(program, cpu):
                yield program


def test_a_seed_is_a_program(cpu):
    for seed in range(20):
        first, again = (str(programs.generate(seed, cpu)) for _ in range(2))
        assert first == again
        first, again = (str(numerics.generate(seed, cpu)) for _ in range(2))
        assert first == again
        assert shapeless.generate(1000 + seed) == shapeless.generate(1000 + seed)
    assert len({str(programs.generate(seed, cpu)) for seed in range(20)}) == 20


@pytest.mark.slow
def test_programs_reach_what_may_become_of_a_norm(cpu, monkeypatch):
    reasons = Counter()
    for name in ("_run", "_fused"):
        run = getattr(modes, name)

        def counted(*arguments, run=run):
            result = run(*arguments)
            reasons.update(mlx_norms.report().reasons)
            return result

        monkeypatch.setattr(modes, name, counted)
    assert not list(failing(cpu, range(700)))
    for name in ("FUSED", "WITH_OTHERS", "ALONE", "OTHER_STREAM", "REPEATED"):
        assert reasons[getattr(patched_runs, name)]
    for name in ("OF_SUM", "LONG_GRAPH", "TRACED", "DTYPE", "ARGUMENTS"):
        assert reasons[getattr(patched_runs, name)]


@pytest.mark.parametrize("length", [1, 7, 64])
def test_composed_layer_norm_is_mlx_s(length):
    """With which CUDA's stock runs are made: there MLX's own gradients are wrong."""
    x, w, b = (normal(s, mx.float32, seed=i) for i, s in enumerate([(3, length), *2 * [(length,)]]))

    def gradients(layer_norm, *has):
        parameters = [p if there else None for p, there in zip((w, b), has, strict=True)]
        return mx.value_and_grad(lambda x: (layer_norm(x, *parameters, 1e-5) * w).sum())(x)

    for has in itertools.product((True, False), repeat=2):
        expected = gradients(mx.fast.layer_norm, *has)
        assert_close(gradients(composed(mx.fast.layer_norm), *has), expected)
    with pytest.raises(ValueError, match="weight"):
        composed(mx.fast.layer_norm)(x, mx.zeros(length + 1), None, 1e-5)


def test_programs_that_are_not_wrong(cpu):
    """Of a zero cotangent of what is not finite, of a slice that a fused sum reaches, of infinities
    that cancel in MLX's gradient alone, whose tanh is 1 in ours, and of float16 that overflows in
    ours alone, of MLX's mean of 1e4, and of a norm that an op rounds before it adds it."""
    for seed in (4003916, 6000712, 7000495, 213979, 214155, 217646):
        assert not check(programs.generate(seed, cpu), cpu)


def test_a_mean_is_jittered():
    """Of two values, whose own errors scale what is divided by as much."""
    x = mx.array([[10061.48, 10046.269]])
    off = jittered(mx.fast.layer_norm, seed=0)(x, None, None, 1e-3) - mx.array([[1.0, -1.0]])
    assert mx.abs(off).max() > 1e-4


def test_stock_rounds_what_norm_add_norm_rounds(cpu):
    dtypes = (mx.bfloat16, mx.bfloat16, mx.float32, mx.float32, mx.float32)
    shapes = [(8, 64)] * 2 + [(64,)] * 3
    arrays = [normal(of, t, seed=i) for i, (of, t) in enumerate(zip(shapes, dtypes, strict=True))]
    op = OPS["norm_add_norm factor D"]
    (_, got), (_, expected) = (norms.call(op, arrays, eps=1e-5) for norms in (Stock, Ours))
    assert (got != expected).sum() <= 1  # a tie


def test_a_row_that_overflows_may_have_nan(cpu):
    """Its terms overflow, too, if they are not added in float32."""
    stock = modes.Run({0: mx.array([[1.0, np.inf]])}, [])
    judged = judge.Judge(programs.generate(0, cpu), cpu, stock)
    assert not judged.wrong(0, mx.array([[np.nan, np.inf]]), Promise.CLOSE)


def test_a_held_sum_that_is_a_cast_promises_no_bits_to_its_norm():
    """Which adds it up as 16 bits on a GPU, in another order."""
    options = dict(form="cast", held=True, has=(False, False))
    steps = [
        Step("prologue", (0, 1), (2, 3), options),
        Step("norm", (2,), (4,), dict(has=(False, False))),
        Step("norm", (0,), (5,), dict(has=(False, False))),
    ]
    walk = Walk(dict.fromkeys((0, 1), Promise.SAME_BITS), {0, 1})
    walk.all(steps)
    assert [walk.of(n) for n in (4, 5)] == [Promise.CLOSE, Promise.SAME_NORMS]


BAD_LAYER_NORMS = {
    "an unknown keyword": (dict(eps=1e-5, axis=0), (None, None)),
    "no eps": ({}, (None, None)),
    "a weight that is none": (dict(bias=None, eps=1e-5), ("w",)),
}


@pytest.mark.parametrize("options, arguments", BAD_LAYER_NORMS.values(), ids=BAD_LAYER_NORMS)
@pytest.mark.parametrize("of", [composed, partial(jittered, seed=0)], ids=["composed", "jitter"])
def test_exceptions_are_mlx_s(of, options, arguments):
    """Their texts tell which arguments are passed by name."""

    def text(norm):
        with pytest.raises(TypeError) as caught:
            norm(mx.ones((2, 4)), *arguments, **options)
        return str(caught.value)

    assert text(of(mx.fast.layer_norm)) == text(mx.fast.layer_norm)


def lost_gradient(x, y):
    return mx.stop_gradient(y)


def wrong_by_a_thousandth(x, y):
    return y * 1.001


def another_ulp_where_fused(x, y):
    return mx.abs(y) * (1 + 2.0**-20) * mx.sign(y) if current().fuse else y


def another_dtype(x, y):
    return y.astype(mx.float16)


def wrong_where_traced(x, y):
    return y + 0.1 if x.shape[:1] == (1,) else y


def changed_in_place(x, y):
    x += 1
    return y


def raising(x, y):
    raise RuntimeError("planted")


PLANTED = (
    *(lost_gradient, wrong_by_a_thousandth, another_ulp_where_fused, another_dtype),
    *(wrong_where_traced, changed_in_place, raising),
)


def plant(monkeypatch, defect):
    """Patched RMS norms with a defect."""
    right = _ext.patched_rms_norm

    def wrong(x, *arguments, **options):
        return defect(x, right(x, *arguments, **options))

    monkeypatch.setattr(_ext, "patched_rms_norm", wrong)


@pytest.mark.parametrize("defect", PLANTED, ids=lambda defect: defect.__name__)
def test_programs_find_what_is_planted(cpu, monkeypatch, defect):
    plant(monkeypatch, defect)
    assert any(failing(cpu))


def test_a_failing_program_is_made_shorter(cpu, monkeypatch):
    plant(monkeypatch, wrong_by_a_thousandth)

    def fails(program):
        return bool(check(program, cpu))

    program = next(program for program in failing(cpu) if len(program.steps) > 2)
    small = shrink(program, fails)
    assert fails(small) and len(small.steps) <= 2


def zeros_for_large_rows(y, x):
    """As of squares that overflow before the sum of those about the mean does."""
    return mx.where((x.astype(mx.float32) ** 2).sum(-1, keepdims=True) > 1e30, 0, y).astype(y.dtype)


def next_row(y, x):
    return mx.where(mx.isfinite(x).all(), y, mx.full(y.shape, float("nan"), y.dtype))


def lost_last_element(y, x):
    return mx.where(mx.arange(x.shape[-1]) + 1 < max(x.shape[-1], 2), y, 0).astype(y.dtype)


def rounded(y, x):
    return y.astype(mx.bfloat16).astype(y.dtype)


@pytest.mark.parametrize(
    "defect",
    [zeros_for_large_rows, next_row, lost_last_element, rounded],
    ids=lambda defect: defect.__name__,
)
@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_numerics_find_what_is_planted(cpu, monkeypatch, op, defect):
    right = getattr(mlx_norms, op)
    monkeypatch.setattr(mlx_norms, op, lambda x, *a, **k: defect(right(x, *a, **k), x))
    assert any(numerics.check(numerics.generate(seed, cpu), cpu) for seed in range(300))


@pytest.mark.slow
@pytest.mark.parametrize("op", ["group_norm", "instance_norm", "batch_norm"])
def test_a_wrong_group_norm_is_found(cpu, monkeypatch, op):
    right = getattr(mlx_norms, op)

    def wrong(*arguments, **options):
        y = right(*arguments, **options)
        return (1.001 * y[0], *y[1:]) if isinstance(y, tuple) else (1.001 * y).astype(y.dtype)

    monkeypatch.setattr(mlx_norms, op, wrong)
    assert any(numerics.check(numerics.generate(seed, cpu), cpu) for seed in range(100))
    assert any(failing(cpu, range(200)))


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_a_norm_over_another_axis_is_found(cpu, monkeypatch, op):
    right = getattr(mlx_norms, op)

    def wrong(*arguments, axis=-1, **options):
        y = right(*arguments, axis=axis, **options)
        return y if axis == -1 else (1.001 * y).astype(y.dtype)

    monkeypatch.setattr(mlx_norms, op, wrong)
    assert any(numerics.check(numerics.generate(seed, cpu), cpu) for seed in range(200))


def test_all_ops_are_called_at_all_sizes():
    public = {name: getattr(mlx_norms, name) for name in mlx_norms.__all__}
    ops = {name for name, f in public.items() if callable(f) and not inspect.isclass(f)}
    named = {name.split()[0] for name in shapeless.OPS}
    assert ops - named == {"fuse", "is_patched", "patch", "report", "unpatch", "warm_up"}


OF_SIZES = """
import mlx.core as mx

from fuzz import worker
from mlx_norms import _table


def sum_of_one(x, row, eps):
    return mx.sum(x * row[:, None], 0)


def traced_size(x, row, eps):
    return row @ (x + mx.zeros(x.shape))


def no_empty_rows(x, row, eps):
    if x.size == 0:
        raise ValueError("empty")
    return row @ x


def wrong_row(x, row, eps):
    return 1.01 * (row @ x)


_table.OPS.clear()
_table.op("planted", PLANTED, lambda m, x, row, eps: row @ x, dict(x="BD", row="B"))
worker.main()
"""


@pytest.mark.parametrize(
    "defect, found",
    [
        ("sum_of_one", "died of"),
        ("traced_size", "raises"),
        ("no_empty_rows", "raises"),
        ("wrong_row", "result 0 at"),
        ("lambda x, row, eps: row @ x", None),
    ],
    ids=lambda value: (value or "").split("(")[0],
)
def test_sizes_find_what_is_planted(tmp_path, defect, found):
    """The process that dies is the case's own."""
    main = tmp_path / "planted.py"
    main.write_text(OF_SIZES.replace("PLANTED", defect))
    results = list(workers.run("shapeless", "cpu", range(12), main=[str(main)]))
    failures = [text for result in results for text in result.failures]
    assert not any("process" in text for text in failures), failures
    assert any(found in text for text in failures) if found else not failures, failures


CRASHES = """
import os

from fuzz import worker

ran = []


def crashing(seed, backend):
    backend.tell_stage("ours" if seed == 3 else "stock")
    if seed in (3, 5) or (seed == 7 and ran):
        os.abort()
    ran.append(seed)
    return []


worker.FAILURES["programs"] = crashing
worker.main()
"""


def test_the_cpu_decides_where_mlx_is_wrong_on_cuda(cpu, monkeypatch):
    program = programs.generate(3, cpu)
    right = modes.run_stock(program, cpu)
    number, a = next((n, a) for n, a in right.values.items() if a.size and a.dtype == mx.float32)

    def run_stock(program, backend, **options):
        run = modes.run_stock(program, cpu, **options)
        wrong = run.values | {number: run.values[number] + 100}
        return modes.Run(wrong if backend.name == "cuda" else run.values, [])

    monkeypatch.setattr(judge, "run_stock", run_stock)
    cpu.name = "cuda"  # and still the CPU
    of_cuda = judge.Judge(program, cpu, run_stock(program, cpu))
    assert not of_cuda.wrong(number, a, Promise.CLOSE)
    assert of_cuda.wrong(number, a + 10, Promise.CLOSE)


def test_products_that_mlx_does_not_compute_are_left_out(cpu, monkeypatch):
    seed = next(s for s in itertools.count() if numerics.generate(s, cpu).op == numerics.QUANTIZED)
    call = numerics.generate(seed, cpu)

    def fail(*args, **kwargs):
        raise RuntimeError("not compiled")

    monkeypatch.setattr(mlx_norms, "quantized_matmul", fail)
    with pytest.raises(RuntimeError, match="not compiled"):
        numerics.check(call, cpu)
    monkeypatch.setattr(quantized_case.Product, "stock", fail)
    assert numerics.check(call, cpu) is None


def test_a_crash_loses_no_other_program(tmp_path):
    """One of MLX itself counts as no failure, unless it is due to what ran before."""
    main = tmp_path / "crashes.py"
    main.write_text(CRASHES)
    results = list(workers.run("programs", "cpu", range(9), main=[str(main)]))
    assert [result.seed for result in results] == list(range(9))
    assert results[3].failures == ["the process died of SIGABRT"] and not results[3].void
    assert results[5].void and not results[5].failures
    assert results[7].failures and not results[7].void
    assert not any(results[seed].failures or results[seed].void for seed in (0, 1, 2, 4, 6, 8))


def run(*arguments):
    command = [sys.executable, TOOLS, "fuzz", *arguments, "--backend", "cpu"]
    return subprocess.run(command, capture_output=True, text=True)


def test_command_line():
    done = run("programs", "--programs", "4", "--seed", "7", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("programs on cpu: 4 ran, 0 failed")
    done = run("programs", "--only", "7")
    assert done.returncode == 0, done.stderr
    assert "v0: " in done.stdout and "programs on cpu: 1 ran, 0 failed" in done.stdout
    done = run("shapeless", "--only", "1003")
    assert "traced at" in done.stdout and "shapeless on cpu: 1 ran" in done.stdout
    done = run("numerics", "--only", "7")
    assert "_norm" in done.stdout and "numerics on cpu: 1 ran" in done.stdout


def test_errors_of_second_derivatives_are_known():
    """In a row of one element the terms of a gradient's gradient cancel; their errors do not."""
    x, weight = mx.array([[0.7]]), mx.array([1.3])

    def gradient(norm):
        slope = mx.grad(lambda x, weight: norm(x, weight, 1e-5).sum())
        return mx.grad(lambda weight: slope(x, weight).sum())(weight).item()

    exact = gradient(mx.fast.rms_norm)
    off = [abs(gradient(jittered(mx.fast.rms_norm, seed)) - exact) for seed in range(4)]
    assert max(off) > 8 * unit_roundoff(mx.float32)


def test_squares_that_overflow_are_known():
    """As docs/accuracy.md says: then our layer norm is NaN, while MLX's is 0."""
    x = mx.array([[1e25, -1e25, 1.0], [1e18, -1e18, 1.0]])
    right = mx.array([[False] * 3, [True] * 3])
    for norm in (mlx_norms.layer_norm, jittered(mx.fast.layer_norm, 0)):
        y, dx = mx.vjp(lambda x, norm=norm: norm(x, None, None, 1e-5), [x], [mx.ones((2, 3))])
        assert mx.array_equal(mx.isfinite(y[0]), right) and mx.array_equal(
            mx.isfinite(dx[0]), right
        )


def test_zeros_times_what_is_not_finite_are_known():
    """An unused result of our op has zeros for a cotangent, one of MLX's has none."""
    rows = mx.array([[float("inf"), 1.0], [1.0, 2.0]])

    def slope(norms):
        def key(rows):
            q = mx.fast.layer_norm(rows, None, None, 1e-5)
            arrays = q, mx.ones((2, 2)), mx.ones(2)
            return norms.call(OPS["rms_norms"], arrays, eps=1e-5)[1].sum()

        return mx.grad(key)(rows)

    assert mx.array_equal(slope(Stock), mx.zeros((2, 2)))
    assert mx.array_equal(mx.isnan(slope(TiedStock)), mx.array([[True] * 2, [False] * 2]))
    assert mx.array_equal(slope(TiedStock)[1], mx.zeros(2))


def test_larger_errors_are_as_much_larger():
    """With them the judge sees what a sum may round away of small ones."""
    x = mx.array([[3.66]])

    def gradient(norm):
        return mx.grad(lambda x: norm(x, None, 1e-3).sum())(x).item()

    exact = gradient(mx.fast.rms_norm)
    times = [1, 8]
    off = [
        max(abs(gradient(jittered(mx.fast.rms_norm, i, size)) - exact) for i in range(4))
        for size in times
    ]
    assert off[1] > 4 * off[0] > 0


def test_what_mlx_alone_does_not_map():
    """Why all arrays are mapped where a shapeless graph maps a derivative."""

    def f(x, y):
        slope = mx.vjp(lambda x: x.sum(1), [x], [y])[1][0]  # y, not mapped, as large as x
        return mx.expand_dims(slope.sum(1), 1) * x

    x, y = mx.random.normal((2, 5, 3, 4)), mx.random.normal((5, 4))
    mapped = mx.vmap(f, in_axes=(0, None))
    assert mx.allclose(mapped(x, y), mx.stack([f(a, y) for a in x]))
    with pytest.raises(ValueError, match="squeeze"):
        mx.compile(mapped, shapeless=True)(x, y)
