"""Where norms that models write are ours, what the report says of them, and that it is undone."""

import copy
import pickle
import threading

import mlx.core as mx
import mlx.nn as nn
import pytest

import mlx_norms
from support.inputs import normal
from support.written_norms import WIDTH, Layer

pytestmark = pytest.mark.usefixtures("backend")


class Rms(Layer):
    def __init__(self):
        super().__init__(weight=(WIDTH,))

    def __call__(self, x):
        return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weight


class Unit(Layer):
    def __call__(self, x):
        return x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), self.eps)


class Outside(Layer):
    def __call__(self, x):
        return x / (mx.sqrt((x * x).mean(-1, keepdims=True)) + self.eps)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = [Rms(), Rms(), Unit(), Outside()]

    def __call__(self, x):
        for norm in self.norms:
            x = norm(x)
        return x


HERE = __name__
TAKEN = {f"l2_norm: {HERE}.Unit": 1, f"rms_norm: {HERE}.Rms": 2}
LEFT = {f"{HERE}.Outside": "it adds eps to the root, which no kernel of ours does"}


def x_of():
    return normal((2, 5, WIDTH), mx.float32, seed="x", mean=0.25)


def close(a, b):
    return mx.allclose(a, b, rtol=1e-5, atol=1e-5, stream=mx.cpu)


@pytest.fixture(params=["patch", "patched", "patch(model)", "patched(model)"])
def way(request):
    """Runs a model with its norms patched in some way, and then unpatches it."""

    def run(model, x, **options):
        of = (model,) if "model" in request.param else ()
        if "patched" in request.param:
            with mlx_norms.patched(*of, **options):
                return model(x), mlx_norms.report()
        mlx_norms.patch(*of, **options)
        try:
            return model(x), mlx_norms.report()
        finally:
            mlx_norms.unpatch(*of)

    return run


class TestReport:
    def test_taken_and_left(self, way):
        model, x = Model(), x_of()
        stock = model(x)
        y, report = way(model, x)
        assert (report.written, report.left) == (TAKEN, LEFT)
        assert report.calls == 3
        assert report.passed_on == 0
        assert close(y, stock)

    def test_refused(self, way):
        model, x = Model(), x_of()
        stock = model(x)
        y, report = way(model, x, written=False)
        assert (report.calls, report.written, report.left) == (0, {}, {})
        assert mx.array_equal(y, stock, stream=mx.cpu)

    def test_counts_calls_and_starts_anew(self):
        model, x = Model(), x_of()
        with mlx_norms.patched():
            for _ in range(5):
                model(x)
            assert mlx_norms.report().written == {name: 5 * n for name, n in TAKEN.items()}
        with mlx_norms.patched():
            assert (mlx_norms.report().written, mlx_norms.report().left) == ({}, {})
            model(x)
            assert (mlx_norms.report().written, mlx_norms.report().left) == (TAKEN, LEFT)

    def test_text(self):
        with mlx_norms.patched():
            Model()(x_of())
            text = str(mlx_norms.report())
        assert text.startswith("3 calls: 3 by mlx_norms, 0 left to MLX\n")
        assert f"\n       2  written as rms_norm: {HERE}.Rms\n" in text
        assert f"\n{HERE}.Outside is left as it is: {LEFT[f'{HERE}.Outside']}" in text

    def test_lines_of_calls(self):
        with mlx_norms.patched(trace=True):
            Rms()(x_of())
            [(site, _)] = mlx_norms.report().sites
        assert site.startswith(__file__)

    def test_no_recognition_counts(self):
        """The rows on which a norm is checked are no calls."""
        with mlx_norms.patched():
            Rms()(x_of())
            assert mlx_norms.report().calls == 1


def replaced_functions():
    return [nn.Module.__init__, *(vars(cls)["__call__"] for cls in (Rms, Unit, Outside))]


ORIGINALS = replaced_functions()


class TestUndone:
    def is_undone(self):
        return replaced_functions() == ORIGINALS

    def test_after_each_way(self, way):
        model, x = Model(), x_of()
        classes = [type(m) for m in model.modules()]
        stock = model(x)
        way(model, x)
        assert self.is_undone()
        assert [type(m) for m in model.modules()] == classes
        assert mx.array_equal(model(x), stock, stream=mx.cpu)

    def test_after_an_error(self):
        with pytest.raises(ZeroDivisionError), mlx_norms.patched():
            assert not self.is_undone()
            1 / 0  # noqa: B018
        assert self.is_undone()

    def test_of_blocks_that_nest(self):
        layer, x = Rms(), x_of()
        with mlx_norms.patched():
            with mlx_norms.patched(written=False):
                layer(x)
                assert mlx_norms.report().written == {}
                with mlx_norms.patched():
                    layer(x)
            layer(x)
            assert mlx_norms.report().written == {f"rms_norm: {HERE}.Rms": 2}
        assert self.is_undone()

    def test_a_call_that_others_replaced(self):
        class Own(Rms):
            def __call__(self, x):
                return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + self.eps)

        layer, x = Own(), x_of()
        stock = layer(x)
        with mlx_norms.patched():
            inner = Own.__call__
            Own.__call__ = lambda self, x: inner(self, x) + 1
            assert close(layer(x), stock + 1)
            assert list(mlx_norms.report().written.values()) == [1]
        assert mx.array_equal(layer(x), stock + 1, stream=mx.cpu)


class TestClasses:
    def test_defined_while_patched(self):
        mlx_norms.patch()
        try:

            class Later(Rms):
                def __call__(self, x):
                    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + self.eps)

            original = Later.__call__
            Later()(x_of())
            [name] = mlx_norms.report().written
            assert name.endswith("Later")
        finally:
            mlx_norms.unpatch()
        assert Later.__call__ is original

    def test_a_subclass_without_a_call(self):
        class Same(Rms):
            pass

        with mlx_norms.patched():
            Same()(x_of())
            [name] = mlx_norms.report().written
            assert name.endswith("Same")

    def test_a_subclass_that_calls_its_base(self):
        class Scaled(Rms):
            def __call__(self, x):
                return 2 * super().__call__(x)

        layer, x = Scaled(), x_of()
        stock = layer(x)
        with mlx_norms.patched():
            y = layer(x)
            assert list(mlx_norms.report().written.values()) == [1]
        assert close(y, stock)

    def test_other_attributes(self):
        """Layers of one class that differ in a number are told apart."""
        layers, x = [Rms() for _ in range(6)], x_of() * 0.01
        for i, layer in enumerate(layers):
            layer.eps = 10.0**-i
        stock = [layer(x) for layer in layers]
        with mlx_norms.patched():
            ours = [layer(x) for layer in layers]
            assert mlx_norms.report().written == {f"rms_norm: {HERE}.Rms": 6}
        assert all(close(a, b) for a, b in zip(ours, stock, strict=True))

    def test_frozen_layers(self):
        model, x = Model(), x_of()
        model.freeze()
        with mlx_norms.patched():
            model(x)
            assert mlx_norms.report().written == TAKEN


class TestCopies:
    def test_have_the_original_class(self):
        model, x = Model(), x_of()
        stock = model(x)
        with mlx_norms.patched(model):
            copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        with mlx_norms.patched():
            copies += [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        for twin in copies:
            assert [type(norm) for norm in twin.norms] == [Rms, Rms, Unit, Outside]
            assert mx.array_equal(twin(x), stock, stream=mx.cpu)

    def test_a_module_is_not_marked(self):
        layer = Rms()
        before = dict(vars(layer)), list(layer)
        with mlx_norms.patched():
            layer(x_of())
        assert (vars(layer), list(layer)) == before


class TestContexts:
    def test_another_thread_is_not_patched(self):
        layer, x = Rms(), x_of()
        with mlx_norms.patched():
            thread = threading.Thread(target=layer, args=(x,))
            thread.start()
            thread.join()
            assert mlx_norms.report().written == {}

    def test_threads_that_share_a_model(self):
        model, x, results = Model(), x_of(), []
        mx.eval(model.parameters(), x)
        stock = model(x)
        mx.eval(stock)

        def run():
            with mx.stream(mx.new_stream(mx.default_device())):
                for _ in range(20):
                    y = model(x)
                    mx.eval(y)
                    results.append(y)

        mlx_norms.patch(fuse=False)
        try:
            threads = [threading.Thread(target=run) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert mlx_norms.report().written == {name: 80 * n for name, n in TAKEN.items()}
        finally:
            mlx_norms.unpatch()
        assert len(results) == 80
        assert all(close(y, stock) for y in results)

    def test_an_export_has_mlx_alone(self, tmp_path):
        layer, x = Rms(), x_of()
        stock = layer(x)
        with mlx_norms.patched():
            mx.export_function(str(tmp_path / "layer"), layer, x)
            assert mlx_norms.report().written == {}
        [y] = mx.import_function(str(tmp_path / "layer"))(x)
        assert close(y, stock)

    def test_what_was_compiled_stays_patched(self):
        layer, x = Rms(), x_of()
        compiled = mx.compile(lambda x: layer(x))
        with mlx_norms.patched():
            y = compiled(x)
        assert mx.array_equal(compiled(x), y, stream=mx.cpu)
