"""The pass over what mx.eval evaluates: what is held, and graphs of any kind, stay right."""

import threading

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.activations import swiglu

import mlx_norms
from mlx_norms import _ext
from support.inputs import normal
from support.patched_runs import operations

pytestmark = pytest.mark.usefixtures("backend")

ROWS, D, EPS = (2, 5, 96), 96, 1e-3
SHIFT, GATE = "1 + scale and shift after a norm", "an activated gate after a norm"
BEFORE = "a norm before the addition"
BOUND = 4e-6  # of the largest value, in float32


def at_eval(**options):
    return mlx_norms.patched(**options)


def rms(x, w=None):
    return mx.fast.rms_norm(x, w, EPS)


def layer(x):
    return mx.fast.layer_norm(x, None, None, EPS)


def root(x):
    return mx.rsqrt((x * x).mean(-1, keepdims=True) + EPS)


def modulated(x, s, t):
    return layer(x) * (1 + s) + t


def given(*seeds, shape=ROWS):
    arrays = [normal(shape, mx.float32, seed=seed, mean=0.25) for seed in seeds]
    mx.eval(arrays)
    return arrays


def scales():
    return given("s", "t", shape=(2, 1, D))


def exact(code, *arrays):
    """The code's results in float64, by norms in operations."""

    def layer_norm(x, w, b, eps):
        x = x - x.mean(-1, keepdims=True)
        return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + eps)

    def rms_norm(x, w, eps):
        y = x * mx.rsqrt((x * x).mean(-1, keepdims=True) + eps)
        return y if w is None else y * w

    ours = mx.fast.layer_norm, mx.fast.rms_norm
    mx.fast.layer_norm, mx.fast.rms_norm = layer_norm, rms_norm
    try:
        with mx.stream(mx.cpu):
            return [np.array(y) for y in listed(code(*(a.astype(mx.float64) for a in arrays)))]
    finally:
        mx.fast.layer_norm, mx.fast.rms_norm = ours


def listed(results):
    return [results] if isinstance(results, mx.array) else list(results)


def check(got, expected):
    for y, e in zip(listed(got), expected, strict=True):
        assert y.shape == e.shape
        assert np.max(np.abs(np.array(y).astype(np.float64) - e)) <= BOUND * np.max(np.abs(e))


class TestHolders:
    """An array that Python or another graph holds is computed once, and is what it was."""

    def test_an_intermediate_that_is_held(self):
        x, (s, t) = given("x")[0], scales()
        with at_eval():
            n = layer(x)
            y = n * (1 + s) + t
            mx.eval(y)
            assert mlx_norms.report().around == {}
            assert not operations(n)  # computed with y
        check([y, n], exact(lambda x, s, t: (modulated(x, s, t), layer(x)), x, s, t))

    def test_one_that_another_graph_takes(self):
        x, (s, t) = given("x")[0], scales()
        with at_eval():

            def both():
                n = layer(x)
                return n * (1 + s) + t, mx.exp(n).sum()

            y, total = both()
            mx.eval(y)
            assert mlx_norms.report().around == {}
            mx.eval(total)
        check(
            [y, total], exact(lambda x, s, t: (modulated(x, s, t), mx.exp(layer(x)).sum()), x, s, t)
        )

    def test_one_that_two_calls_of_a_compiled_function_take(self):
        """Whose nodes have one primitive in MLX."""
        x, y, z = given("x", "y", "z")

        def code(x, y, z):
            n = mx.fast.rms_norm(x, None, EPS)
            return swiglu(y, n) + swiglu(z, n)

        with at_eval():
            both = code(x, y, z)
            mx.eval(both)
            assert mlx_norms.report().around == {}
        with mx.stream(mx.cpu):
            expected = code(x, y, z)
        check(both, [np.array(expected).astype(np.float64)])

    def test_the_sum_is_held(self):
        x, r = given("x", "r")
        s, t = scales()

        def code(x, r, s, t):
            h = x + r
            return h, modulated(h, s, t)

        with at_eval():
            h, y = code(x, r, s, t)
            graph = [h, y]
            _ext.fuse_at_eval([y], True, True)
            assert operations(*graph)["mlx_norms::AddLayerNorm"] == 1
            assert operations(*graph)["Add"] == 0
            mx.eval(y)
            assert mlx_norms.report().around == {SHIFT: 2}
            assert not operations(h)  # computed with y
        check([h, y], exact(code, x, r, s, t))

    def test_a_result_that_is_held_twice_and_used_on(self):
        x, (s, t) = given("x")[0], scales()
        with at_eval():
            y = modulated(x, s, t)
            held = {"y": y}
            z = mx.exp(y)
            mx.eval(z)
            assert mlx_norms.report().around == {SHIFT: 2}
            assert not operations(held["y"])
        check([y, z], exact(lambda *a: (modulated(*a), mx.exp(modulated(*a))), x, s, t))

    @pytest.mark.parametrize("part", ["variance", "root", "centered"])
    def test_a_part_of_a_written_norm(self, part):
        """It is computed as well: our norm's bits do not depend on who holds it."""
        [x] = given("x")

        def code(x):
            parts = {"centered": x - x.mean(-1, keepdims=True)}
            parts["variance"] = mx.square(parts["centered"]).mean(-1, keepdims=True)
            parts["root"] = mx.rsqrt(parts["variance"] + EPS)
            return parts["centered"] * parts["root"], parts[part]

        with at_eval():
            y, held = code(x)
            mx.eval(y)
            assert mlx_norms.report().written == {"layer_norm": 1}
            assert operations(held)
            [y2] = code(x)[:1]
            mx.eval(y2)
        check([y, held], exact(code, x))
        assert mx.array_equal(y, y2)

    def test_a_shared_part_of_an_activation(self):
        [x] = given("x")

        def code(x):
            y = rms(x)
            gate = mx.sigmoid(y)
            return y * gate, gate

        with at_eval():
            ys = code(x)
            mx.eval(ys)
            assert mlx_norms.report().around == {}
            y, gate = code(x)
            mx.eval(y)
            assert mlx_norms.report().around == {}
        check(ys, exact(code, x))
        check([y, gate], exact(code, x))

    def test_used_twice(self):
        x, (s, t) = given("x")[0], scales()

        def code(x, s, t):
            n = layer(x)
            return n * (1 + s) + t, n * (1 + t) + s, n * n

        with at_eval():
            ys = code(x, s, t)
            mx.eval(ys)
            assert mlx_norms.report().around == {}
        check(ys, exact(code, x, s, t))

    def test_a_held_inner_norm(self):
        x, r = given("x", "r")

        def code(x, r):
            n = rms(x)
            h = r + n
            return rms(h), h, n

        with at_eval():
            y, h, n = code(x, r)
            mx.eval(y)
            assert mlx_norms.report().around == {}
            y2, h2 = code(x, r)[:2]
            mx.eval(y2)
            assert mlx_norms.report().around == {BEFORE: 1}
        check([y, h, n], exact(code, x, r))
        check([y2, h2], exact(code, x, r)[:2])


class TestGraphs:
    def test_several_outputs_in_a_tree(self):
        x, z = given("x", "z")
        s, t = scales()

        def code(x, z, s, t):
            return modulated(x, s, t), rms(x) * (z * mx.sigmoid(z)), x * root(x)

        with at_eval():
            ys = code(x, z, s, t)
            mx.eval({"a": [ys[0]], "b": (ys[1], 3.0)}, ys[2])
            report = mlx_norms.report()
        assert report.around == {SHIFT: 2, GATE: 1}
        assert report.written == {"rms_norm": 1}
        check(ys, exact(code, x, z, s, t))

    def test_async_eval_and_more_after_it(self):
        x, (s, t) = given("x")[0], scales()
        with at_eval():
            y = modulated(x, s, t)
            mx.async_eval(y)
            z = modulated(y, s, t)
            mx.eval(z)
            assert mlx_norms.report().around == {SHIFT: 4}
        check(z, exact(lambda x, s, t: modulated(modulated(x, s, t), s, t), x, s, t))

    def test_a_graph_that_changes_after_many_equal_steps(self):
        x, (s, t) = given("x")[0], scales()

        def plain():
            y = x
            for _ in range(9):
                y = layer(y).sum(0, keepdims=True) + x * 2 - 1
            return y

        def changed():
            y = x
            for _ in range(9):
                y = modulated(y, s, t).sum(0, keepdims=True) + x * 2 - 1
            return y

        with at_eval():
            for _ in range(100):
                mx.eval(plain())
            assert mlx_norms.report().around == {}
            for _ in range(16):
                y = changed()
                mx.eval(y)
            assert mlx_norms.report().around.get(SHIFT, 0) >= 9 * 18
        stock = changed()
        assert mx.max(mx.abs(y - stock)).item() <= 1e-4

    def test_written_norms_are_found_after_large_graphs_without(self):
        """No norm that was called tells those graphs apart."""
        [x] = given("x")

        def large():
            y = x
            for _ in range(300):
                y = y + 1
            return y

        with at_eval():
            for _ in range(20):
                mx.eval(large())
            for _ in range(8):
                y = x * root(x)
                mx.eval(y)
            assert mlx_norms.report().written.get("rms_norm", 0) >= 1
        check(y, exact(lambda x: x * root(x), x))

    def test_two_threads(self):
        x, (s, t) = given("x")[0], scales()
        expected = exact(modulated, x, s, t)
        results, errors = [], []

        def work():
            try:
                for _ in range(30):
                    y = modulated(x, s, t)
                    mx.eval(y)
                    results.append(y)
            except Exception as e:  # noqa: BLE001
                errors.append(e)

        mlx_norms.patch(projections=True)
        try:
            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert mlx_norms.report().around == {SHIFT: 120}
        finally:
            mlx_norms.unpatch()
        assert not errors
        for y in results:
            check(y, expected)

    def test_scales_that_are_computed_from_the_result_of_another(self):
        x, (s, t) = given("x")[0], scales()

        def code(x, s, t):
            y = modulated(x, s, t)
            scale = mx.tanh(y.mean(1, keepdims=True))
            return modulated(mx.sin(y), scale, t)

        with at_eval():
            y = code(x, s, t)
            mx.eval(y)
            assert mlx_norms.report().around == {SHIFT: 4}
        check(y, exact(code, x, s, t))


class TestTransforms:
    """What they trace is theirs; what they make is passed over as any graph."""

    def test_eval_within_a_gradient(self):
        x, (s, t) = given("x")[0], scales()

        def loss(x):
            y = modulated(x, s, t)
            mx.eval(y)
            return mx.sin(y).sum()

        stock = mx.grad(loss)(x)
        with at_eval():
            gradient = mx.grad(loss)(x)
            mx.eval(gradient)
            assert mlx_norms.report().around == {}
        assert mx.max(mx.abs(gradient - stock)).item() <= 1e-5

    def test_an_intermediate_of_a_gradient(self):
        """The gradient's nodes take the norm, too, and so it stays."""
        x, (s, t) = given("x")[0], scales()

        def loss(x):
            y = modulated(x, s, t)
            return (y * y).sum(), y

        stock = mx.value_and_grad(loss)(x)
        with at_eval():
            (value, y), gradient = mx.value_and_grad(loss)(x)
            mx.eval(gradient, value)
            mx.eval(y)
        check(y, exact(modulated, x, s, t))
        assert mx.max(mx.abs(gradient - stock[1])).item() <= 2e-5


class TestScopes:
    def both(self, **options):
        x, (s, t) = given("x")[0], scales()
        with mlx_norms.patched(**options):
            ys = modulated(x, s, t), x * root(x)
            mx.eval(ys)
            report = mlx_norms.report()
        check(ys, exact(lambda x, s, t: (modulated(x, s, t), x * root(x)), x, s, t))
        return report.around, report.written

    def test_options(self):
        taken = {SHIFT: 2}, {"rms_norm": 1}
        assert self.both() == self.both(projections=True) == taken
        assert self.both(fuse=False) == self.both(projections=True, fuse=False) == ({}, {})


def test_a_held_result_leaves_the_sum_alone():
    """Of a norm with a sum whose result is cast: what a view reads stays where it is."""
    x, r = given("x", "r")
    with at_eval():
        y, h = mlx_norms.add_rms_norm(x, r, eps=EPS)
        z = y.astype(mx.float16)
        mx.eval(z, h)
        view = np.asarray(memoryview(h))
        kept, place = view.copy(), view.ctypes.data
        mx.eval(y)
        assert np.asarray(memoryview(h)).ctypes.data == place
        assert np.array_equal(view, kept)
    check([y], [exact(lambda x, r: [rms(x + r)], x, r)[0]])
