"""What patched calls return: results and errors of mx.fast's, and the report of them."""

import itertools

import mlx.core as mx
import mlx.nn
import pytest

import mlx_norms
from support import oracle
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES, Norm, describe, short
from support.patched_runs import (
    ALONE,
    ARGUMENTS,
    DIMS,
    DTYPE,
    EPS,
    FUSED,
    NORMS,
    ROUNDINGS,
    ROUNDOFF,
    ROWS,
    assert_close,
    check,
    largest,
    operations,
    run_patched,
)

pytestmark = pytest.mark.usefixtures("backend")

SHAPE = (ROWS, DIMS)
# Of a norm that is rounded to 16 bits before the weight, after it, after the bias and at the end.
ROUNDINGS_16 = 4


def row(dtype=mx.float32, seed="row"):
    return normal((DIMS,), dtype, seed=seed)


def rows(dtype=mx.float32, seed="rows"):
    return normal(SHAPE, dtype, seed=seed)


class TestResults:
    @pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
    def test_dtypes(self, norm):
        """The result has the dtype that mx.fast gives it, for parameters of any of them."""
        given = ("x", "weight", "bias")[: 2 + norm.layer]
        for absent in ((), ("weight",), ("bias",), ("weight", "bias")):
            present = [name for name in given if name not in absent]
            for dtypes in itertools.product(DTYPES, repeat=len(present)):
                arrays = {
                    name: rows(dtype) if name == "x" else row(dtype, seed=name)
                    for name, dtype in zip(present, dtypes, strict=True)
                }
                expected = norm(**arrays)
                got, report = run_patched(lambda arrays=arrays: norm(**arrays))
                note = f"{norm.name} of {', '.join(map(short, dtypes))} without {absent}"
                assert report.reasons == {ALONE: 1}, note
                assert got.dtype == expected.dtype, note
                narrow = max(ROUNDOFF[d] for d in dtypes)
                bound = narrow * (ROUNDINGS if narrow == ROUNDOFF[mx.float32] else ROUNDINGS_16)
                assert largest(got - expected) <= bound * largest(expected), note

    @pytest.mark.parametrize(
        "call",
        [
            lambda x, w: mx.fast.rms_norm(x, w, 1),
            lambda x, w: mx.fast.rms_norm(x, w, 0.0),
            lambda x, w: mx.fast.rms_norm(x, weight=w, eps=EPS),
            lambda x, w: mx.fast.rms_norm(eps=EPS, x=x, weight=None, stream=mx.cpu),
            lambda x, w: mx.fast.layer_norm(x, w, None, EPS),
            lambda x, w: mx.fast.layer_norm(x, None, bias=w, eps=EPS),
            lambda x, w: mx.fast.layer_norm(x, None, None, EPS, stream=mx.cpu),
        ],
    )
    def test_forms_of_calls(self, call):
        check(lambda: call(rows(), row()), {ALONE: 1})

    @pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
    @pytest.mark.parametrize("wide", ["x", "weight"])
    def test_float64_is_passed_on(self, norm, wide):
        def f():
            with mx.stream(mx.cpu):
                arrays = {"x": rows(), "weight": row()}
                arrays[wide] = arrays[wide].astype(mx.float64)
                return norm(**arrays)

        got, report = run_patched(f, fuse=False)
        assert report.reasons == {DTYPE: 1}
        assert report.passed_on == 1
        assert got.dtype == mx.float64
        assert mx.array_equal(got, f(), stream=mx.cpu)

    def test_integer_weight_is_passed_on(self):
        weight = mx.arange(DIMS)
        got, report = run_patched(lambda: mx.fast.rms_norm(rows(), weight, EPS), fuse=False)
        assert report.reasons == {DTYPE: 1}
        expected = mx.fast.rms_norm(rows(), weight, EPS)
        assert got.dtype == expected.dtype
        assert mx.array_equal(got, expected)

    def test_float64_sum_is_passed_on(self):
        def f():
            with mx.stream(mx.cpu):
                h = rows().astype(mx.float64) + rows(seed=2).astype(mx.float64)
                return h, mx.fast.rms_norm(h, None, EPS)

        got, report = run_patched(f, fuse=False)
        assert report.reasons == {DTYPE: 1}
        assert all(mx.array_equal(a, b, stream=mx.cpu) for a, b in zip(got, f(), strict=True))

    def test_a_norm_is_ours(self):
        with mlx_norms.patched():
            assert operations(mx.fast.rms_norm(rows(), row(), EPS)) == {"mlx_norms::RMSNorm": 1}
            n = mx.fast.layer_norm(rows(), row(), row(), EPS)
            assert operations(n) == {"mlx_norms::LayerNorm": 1}


BAD_CALLS = {
    "integers": lambda f, x, *p: f(x.astype(mx.int32), *p, EPS),
    "complex": lambda f, x, *p: f(x.astype(mx.complex64), *p, EPS),
    "scalar": lambda f, x, *p: f(mx.array(1.0), *p, EPS),
    "weight of another length": lambda f, x, w, *p: f(x, w[1:], *p, EPS),
    "weight of two axes": lambda f, x, w, *p: f(x, w[None], *p, EPS),
    "last parameter of another length": lambda f, x, *p: f(x, *p[:-1], p[-1][1:], EPS),
    "last parameter of two axes": lambda f, x, *p: f(x, *p[:-1], p[-1][None], EPS),
    "negative eps": lambda f, x, *p: f(x, *p, -1.0),
    "no eps": lambda f, x, *p: f(x, *p),
    "no weight": lambda f, x, *p: f(x, eps=EPS),
    "no arguments": lambda f, x, *p: f(),
    "too many": lambda f, x, *p: f(x, *p, EPS, mx.cpu),
    "unknown keyword": lambda f, x, *p: f(x, *p, EPS, axis=-1),
    "argument given twice": lambda f, x, *p: f(x, *p, EPS, eps=EPS),
    "eps as text": lambda f, x, *p: f(x, *p, "1e-5"),
    "eps None": lambda f, x, *p: f(x, *p, eps=None),
    "weight as list": lambda f, x, w, *p: f(x, [1.0] * DIMS, *p, EPS),
    "number": lambda f, x, *p: f(3, *p, EPS),
    "stream as text": lambda f, x, *p: f(x, *p, EPS, stream="cpu"),
}


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
@pytest.mark.parametrize("bad", BAD_CALLS)
def test_errors_are_those_of_mx_fast(norm, bad):
    def outcome():
        try:
            result = BAD_CALLS[bad](getattr(mx.fast, norm.name), rows(), *norm.parameters)
            mx.eval(result)
            return str(result)
        except Exception as error:
            return type(error), str(error)

    expected = outcome()
    with mlx_norms.patched():
        got = outcome()
    assert got == expected


def test_arguments_that_no_kernel_takes_are_counted():
    def f():
        with pytest.raises(ValueError, match="weight"):
            mx.fast.rms_norm(rows(), row()[1:], EPS)
        return mx.fast.rms_norm(rows(), row(), -1e-9)

    _, report = run_patched(f)
    assert report.reasons == {ARGUMENTS: 2}
    assert report.passed_on == 2


SHIFTED = {
    "1 + w": lambda w: 1 + w,
    "w + 1": lambda w: w + 1,
    "1.0 + w": lambda w: 1.0 + w,
    "array(1) + w": lambda w: mx.array(1, w.dtype) + w,
}


class TestOffset:
    """A pending 1 + w is not computed: its sum with w is kept in float32."""

    @pytest.mark.parametrize("dtype", DTYPES, ids=short)
    @pytest.mark.parametrize("form", SHIFTED)
    @pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
    def test_is_the_truth_rounded(self, norm, form, dtype):
        arrays = {"x": rows(dtype), "weight": row(dtype)}
        if norm.layer:
            arrays["bias"] = row(dtype, seed="bias")

        def f():
            return norm(**arrays | {"weight": SHIFTED[form](arrays["weight"])})

        got, report = run_patched(f)
        assert report.offsets == 1
        assert report.reasons == {ALONE: 1}
        assert got.dtype == f().dtype
        case = Norm(norm.name, eps=EPS, weight_offset=1.0, rounding="late", dtype=got.dtype)
        oracle.forward(case, arrays)[0].check(got, describe(case, arrays))

    def test_dtype_is_that_of_the_shifted_weight(self):
        """A float32 one makes the sum float32, and so the result."""

        def f():
            weight = mx.array(1.0) + row(mx.float16)
            return weight, mx.fast.rms_norm(rows(mx.float16), weight, EPS)

        (weight, n), report = run_patched(f)
        assert report.offsets == 1
        assert weight.dtype == n.dtype == f()[1].dtype == mx.float32
        assert mx.array_equal(weight, f()[0])  # for those who hold it

    def test_with_a_sum(self):
        def f():
            h = rows() + rows(seed=2)
            return h, mx.fast.rms_norm(h, 1 + row(), EPS)

        check(f, {FUSED: 1})
        assert mlx_norms.report().offsets == 1

    def test_gradients(self):
        def f(x, w):
            h = x + rows(seed=2)
            return (h * mx.fast.rms_norm(h, 1 + w, EPS)).sum()

        check(lambda: mx.grad(f, argnums=(0, 1))(rows(), row()), {FUSED: 1})
        assert mlx_norms.report().offsets == 1

    def test_compiled(self):
        f = lambda x, w: mx.fast.rms_norm(x, 1 + w, EPS)  # noqa: E731
        got, report = run_patched(lambda: mx.compile(f)(rows(), row()))
        assert report.offsets == 1
        assert_close(got, mx.fast.rms_norm(rows(), 1 + row(), EPS))

    @pytest.mark.parametrize("transform", [mx.grad, mx.compile, mx.checkpoint])
    def test_number_that_is_an_argument_is_none(self, transform):
        """It looks like a constant, but is to be differentiated, or to change."""

        def f():
            fn = transform(lambda s, w: mx.fast.rms_norm(rows(), s + w, EPS).sum())
            return [fn(mx.array(s), row()) for s in (1.0, 2.0)]

        check(f, {ALONE: 2 - (transform is mx.compile)})
        assert mlx_norms.report().offsets == 2 * (transform is mx.checkpoint)

    def test_evaluated_number_that_is_differentiated_is_none(self):
        def f():
            def loss(s, w):
                assert s.item() == 1
                return mx.fast.rms_norm(rows(), s + w, EPS).sum()

            return mx.grad(loss)(mx.array(1.0), row())

        check(f, {ALONE: 1})
        assert mlx_norms.report().offsets == 0

    @pytest.mark.parametrize(
        "weight",
        [
            lambda w: w + row(seed=2),
            lambda w: mx.ones(DIMS) + w,
            lambda w: 2 * w,
            lambda w: 1 - w,
            lambda w: w + w,
            lambda w: mx.mean(w) + w,
            lambda w: 0 + w,
        ],
    )
    def test_other_weights_are_none(self, weight):
        check(lambda: mx.fast.rms_norm(rows(), weight(row()), EPS), {ALONE: 1})
        assert mlx_norms.report().offsets == 0

    def test_computed_weight_is_none(self):
        weight = 1 + row()
        mx.eval(weight)
        check(lambda: mx.fast.rms_norm(rows(), weight, EPS), {ALONE: 1})
        assert mlx_norms.report().offsets == 0

    def test_bias_is_none(self):
        check(lambda: mx.fast.layer_norm(rows(), row(), 1 + row(), EPS), {ALONE: 1})
        assert mlx_norms.report().offsets == 0


def some_calls():
    """One of each kind: fused, not fused, passed on, with an offset."""
    h = rows() + rows(seed=2)
    mx.eval(mx.fast.rms_norm(h, 1 + row(), EPS))
    mx.eval(mx.fast.layer_norm(rows(), row(), row(), EPS))
    mx.fast.rms_norm(rows(), mx.arange(DIMS), EPS)


class TestReport:
    def test_counts_add_up(self):
        _, report = run_patched(lambda: [some_calls() for _ in range(3)] and mx.zeros(1))
        assert (report.calls, report.fused, report.passed_on, report.offsets) == (9, 3, 3, 3)
        assert report.reasons == {FUSED: 3, ALONE: 3, DTYPE: 3}

    def test_printed(self):
        with mlx_norms.patched():
            some_calls()
            mx.fast.rms_norm(rows(), mx.arange(DIMS), EPS)
        report = mlx_norms.report()
        lines = str(report).splitlines()
        assert lines[:3] == [
            "4 calls: 2 by mlx_norms, 2 left to MLX",
            "1 fused with the addition before them",
            "1 with a weight 1 + w taken as w and an offset",
        ]
        for reason, count in report.reasons.items():
            assert [line.split(maxsplit=1) for line in lines].count([str(count), reason]) == 1

    def test_printed_names_what_there_is(self):
        _, report = run_patched(lambda: mx.fast.rms_norm(rows(), row(), EPS))
        assert str(report).splitlines()[:3] == [
            "1 call: 1 by mlx_norms, 0 left to MLX",
            "0 fused with the addition before them",
            f"       1  {ALONE}",
        ]

    def test_printed_without_a_call(self):
        with mlx_norms.patched():
            patched = mlx_norms.report()
        after = mlx_norms.report()
        assert (patched.is_patched, after.is_patched) == (True, False)
        assert str(patched).startswith("0 calls: no patched norm was called since patch().")
        assert str(after).startswith("0 calls: nothing is patched. Call mlx_norms.patch()")
        for cause in ("mx.compile", "its own norms", "by name before"):
            assert cause in str(patched) and cause in str(after)

    @pytest.mark.parametrize("model", [None, mlx.nn.RMSNorm(DIMS)], ids=["process", "model"])
    def test_tells_whether_anything_is_patched(self, model):
        assert not mlx_norms.report().is_patched
        try:
            mlx_norms.patch(model)
            assert mlx_norms.report().is_patched
        finally:
            mlx_norms.unpatch(model)
        assert not mlx_norms.report().is_patched

    def test_a_call_counts_once(self):
        """However often a function returns it, or computes it, compiled."""
        w = row()
        with mlx_norms.patched():
            pending = mx.fast.rms_norm(rows() + rows(seed="r"), 1.0 + w, EPS)
            again = mlx_norms.fuse(lambda: pending)
            compiled = mx.compile(lambda h: mx.fast.rms_norm(h, w, EPS))
            first, *others = [again() for _ in range(3)]
            mx.eval(first, others)
            for _ in range(3):
                mx.eval(compiled(rows() + rows(seed="r")))
            report = mlx_norms.report()
        assert (report.calls, report.fused, report.offsets) == (2, 2, 1)
        assert report.reasons == {FUSED: 2}
        for other in others:
            assert_same_bits(other, first)

    def test_a_call_counts_in_its_own_block(self):
        with mlx_norms.patched():
            y = mx.fast.rms_norm(rows() + rows(seed="r"), 1.0 + row(), EPS)
        with mlx_norms.patched():
            mx.eval(y)
            report = mlx_norms.report()
        assert (report.calls, report.fused, report.offsets, report.reasons) == (0, 0, 0, {})

    def test_is_a_snapshot(self):
        with mlx_norms.patched():
            some_calls()
            first = mlx_norms.report()
            some_calls()
        assert (first.calls, mlx_norms.report().calls) == (3, 6)

    def test_starts_anew_with_the_outermost_block(self):
        with mlx_norms.patched():
            some_calls()
            with mlx_norms.patched():
                some_calls()
            assert mlx_norms.report().calls == 6
        assert mlx_norms.report().calls == 6
        with mlx_norms.patched():
            report = mlx_norms.report()
            seen = dict(missed=report.missed)
            assert report == mlx_norms.Report(0, 0, 0, 0, {}, 0, 0, is_patched=True, **seen)

    def test_starts_anew_with_a_patch(self):
        try:
            mlx_norms.patch()
            some_calls()
            mlx_norms.patch()
            assert mlx_norms.report().calls == 0
            some_calls()
        finally:
            mlx_norms.unpatch()
        some_calls()
        assert mlx_norms.report().calls == 3
