"""patch(model): the calls of one model are patched, and nothing else about it changes."""

import copy
import gc
import inspect
import pickle
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import mlx.nn
import pytest
from mlx.utils import tree_flatten, tree_map

import mlx_norms
from support.inputs import normal
from support.patched_runs import DIMS, EPS, ROWS, assert_close, operations, run_stock

pytestmark = pytest.mark.usefixtures("backend")

STOCK = mx.fast.rms_norm


class Block(mlx.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = mlx.nn.Linear(DIMS, DIMS)
        self.norm = mlx.nn.RMSNorm(DIMS)

    def __call__(self, x):
        h = x + mx.tanh(self.linear(x))
        return h + self.norm(h)


class Holder(mlx.nn.Module):
    """A module that others reach into, and nobody calls."""

    def __init__(self):
        super().__init__()
        self.blocks = [Block(), Block()]


class Model(mlx.nn.Module):
    def __init__(self):
        super().__init__()
        self.holder = Holder()
        self.head = mlx.nn.Sequential(mlx.nn.LayerNorm(DIMS), mlx.nn.Linear(DIMS, DIMS))

    def __call__(self, x):
        """Through both blocks."""
        for block in self.holder.blocks:
            x = block(x)
        return self.head(mx.fast.rms_norm(x, None, EPS))

    @property
    def first(self):
        return self.holder.blocks[0]


def make(seed=0):
    """A model without pending parameters, none of which is 1 or 0."""
    mx.random.seed(seed)
    model = Model()
    model.update(
        tree_map(lambda p: p + 0.1 * mx.random.normal(p.shape), model.trainable_parameters())
    )
    mx.eval(model.parameters())
    return model


@pytest.fixture
def model(backend):
    model = make()
    yield model
    mlx_norms.unpatch(model)
    assert mx.fast.rms_norm is STOCK


@pytest.fixture
def x(backend):
    x = normal((ROWS, DIMS), mx.float32, seed="x")
    mx.eval(x)
    return x


def ours(*outputs):
    """Names of this package's nodes in the graph of some outputs."""
    return {name.removeprefix("mlx_norms::") for name in operations(*outputs) if "::" in name}


def types(model):
    return {path: type(module) for path, module in model.named_modules()}


FUSED = {"AddRMSNorm", "LayerNorm"}
UNFUSED = {"RMSNorm", "LayerNorm"}


class TestCalls:
    def test_of_the_model(self, model, x):
        expected = model(x)
        mlx_norms.patch(model)
        got = model(x)
        assert ours(got) == FUSED
        assert_close(got, expected)
        mlx_norms.unpatch(model)
        assert ours(model(x)) == set()
        assert mx.array_equal(model(x), expected)

    def test_counts(self, model, x):
        """Both blocks' sums fuse, and so does the model's own norm of the last."""
        mlx_norms.patch(model)
        model(x)
        report = mlx_norms.report()
        assert (report.calls, report.fused) == (4, 3)

    def test_not_of_its_modules(self, model, x):
        before = types(model)
        mlx_norms.patch(model)
        assert ours(model.first(x)) == ours(model.head(x)) == set()
        assert types(model) == before | {"": type(model)}

    def test_end_with_a_pass(self, model, x):
        """In place over what they return, or in the graph of a transform."""

        scale = normal((1, DIMS), mx.float32, seed="scale")

        class Written(mlx.nn.Module):
            def __call__(self, x, kept):
                kept.append(mx.fast.layer_norm(x, None, None, EPS) * (1 + scale))
                return {"y": x * mx.rsqrt((x * x).mean(-1, keepdims=True) + EPS)}

        written, kept = Written(), []
        expected = [written(x, kept)["y"], kept.pop()]
        mlx_norms.patch(written)
        try:
            y = written(x, kept)["y"]
            assert ours(y) == {"RMSNorm"} and operations(y)["Rsqrt"] == 0
            assert ours(*kept) == {"LayerNorm"} and operations(*kept)["Multiply"] == 0
            assert_close([y, *kept], expected)
            for transform in (mx.compile, mx.checkpoint):
                y = transform(lambda x: written(x, [])["y"])(x)
                assert ours(y) == {"RMSNorm"} and operations(y)["Rsqrt"] == 0
                assert_close(y, expected[0])
            mlx_norms.patch(written, fuse=False)
            assert ours(written(x, kept)["y"]) == set()
        finally:
            mlx_norms.unpatch(written)

    def test_nothing_else(self, model, x):
        other = make(1)
        mlx_norms.patch(model)
        assert mx.fast.rms_norm is not STOCK
        assert ours(other(x)) == set()
        assert ours(mx.fast.rms_norm(x, None, EPS)) == set()
        assert ours(model(x)) == FUSED
        assert ours(other(x)) == set()

    def test_of_two_models_of_one_class(self, model, x):
        other = make(1)
        mlx_norms.patch(model)
        mlx_norms.patch(other, fuse=False)
        assert (ours(model(x)), ours(other(x))) == (FUSED, UNFUSED)
        mlx_norms.unpatch(model)
        assert (ours(model(x)), ours(other(x))) == (set(), UNFUSED)
        mlx_norms.unpatch(other)
        assert mx.fast.rms_norm is STOCK

    def test_from_other_threads(self, model, x):
        mlx_norms.patch(model)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: ours(model(x))).result() == FUSED

    def test_within_other_scopes(self, model, x):
        """The model's calls are the inner scope."""
        mlx_norms.patch(model, fuse=False)
        with mlx_norms.patched(fuse=False):
            assert ours(model(x)) == UNFUSED
        with mlx_norms.patched():
            assert ours(mx.fast.rms_norm(x + x, None, EPS)) == {"AddRMSNorm"}
        mlx_norms.patch(fuse=False)
        try:
            assert ours(model(x)) == UNFUSED
        finally:
            mlx_norms.unpatch()
        assert ours(model(x)) == UNFUSED

    def test_with_a_block_inside(self, model, x):
        class Outer(mlx.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = model

            def __call__(self, x):
                with mlx_norms.patched(fuse=False):
                    y = mx.fast.rms_norm(x + x, None, EPS)
                    assert ours(y) == {"RMSNorm"}
                    return y

        outer = Outer()
        mlx_norms.patch(outer)
        assert ours(outer(x)) == {"AddRMSNorm"}  # by the pass that ends the call
        mlx_norms.unpatch(outer)

    def test_that_raise(self, model, x):
        mlx_norms.patch(model)
        with pytest.raises(ValueError):
            model(x[:, 1:])
        assert ours(mx.fast.rms_norm(x, None, EPS)) == set()
        assert ours(model(x)) == FUSED

    def test_of_functions_in_a_sequential(self, x):
        """It is a model of mlx.nn's own class."""
        model = mlx.nn.Sequential(lambda x: mx.fast.rms_norm(x + x, None, EPS))
        mlx_norms.patch(model)
        try:
            assert ours(model(x)) == {"AddRMSNorm"}
        finally:
            mlx_norms.unpatch(model)

    def test_of_a_norm(self, x):
        norm = mlx.nn.LayerNorm(DIMS)
        mlx_norms.patch(norm)
        try:
            assert ours(norm(x)) == {"LayerNorm"}
        finally:
            mlx_norms.unpatch(norm)

    def test_gradients(self, model, x):
        def loss(model, x):
            return mx.mean(model(x) ** 2)

        expected = run_stock(lambda: mlx.nn.value_and_grad(model, loss)(model, x))
        mlx_norms.patch(model)
        got = mlx.nn.value_and_grad(model, loss)(model, x)
        assert_close(got, expected)
        assert mlx_norms.report().fused == 3

    def test_compiled(self, model, x):
        expected = model(x)
        mlx_norms.patch(model)
        compiled = mx.compile(lambda x: model(x))
        assert_close(compiled(x), expected)
        assert ours(compiled(x)) == FUSED


class TestPatching:
    def test_twice(self, model, x):
        before = types(model)
        mlx_norms.patch(model)
        mlx_norms.patch(model, fuse=False)
        assert ours(model(x)) == UNFUSED
        mlx_norms.unpatch(model)
        assert types(model) == before
        assert mx.fast.rms_norm is STOCK
        mlx_norms.unpatch(model)
        assert mx.fast.rms_norm is STOCK

    def test_unpatch_restores_the_classes(self, model):
        before = types(model)
        mlx_norms.patch(model)
        mlx_norms.unpatch(model)
        after = types(model)
        assert after == before
        assert type(model) is Model
        assert type(model.first.norm) is mlx.nn.RMSNorm

    def test_of_a_part(self, model, x):
        mlx_norms.patch(model.first)
        assert ours(model.first(x)) == {"AddRMSNorm"}
        assert ours(model.holder.blocks[1](x)) == set()
        mlx_norms.unpatch(model.first)
        assert type(model.first) is Block

    def test_of_a_part_and_of_the_whole(self, model, x):
        mlx_norms.patch(model.first)
        mlx_norms.patch(model)
        assert ours(model(x)) == FUSED
        mlx_norms.unpatch(model)
        mlx_norms.unpatch(model.first)
        assert types(model) == types(make())
        assert mx.fast.rms_norm is STOCK

    def test_of_a_shared_module(self, model, x):
        model.holder.blocks[1] = model.first
        mlx_norms.patch(model)
        assert ours(model(x)) == FUSED
        mlx_norms.unpatch(model)
        assert type(model.first) is Block

    def test_modules_that_are_added(self, model, x):
        mlx_norms.patch(model)
        model.holder.blocks.append(Block())
        assert ours(model(x)) == FUSED
        assert mlx_norms.report().calls == 5
        mlx_norms.unpatch(model)
        assert types(model.holder.blocks[2]) == types(Block())

    def test_a_model_that_is_gone(self, x):
        model = make()
        mlx_norms.patch(model)
        del model
        gc.collect()
        assert mx.fast.rms_norm is STOCK

    @pytest.mark.parametrize("what", [[mlx.nn.RMSNorm(DIMS)], Model, "model", len], ids=repr)
    def test_other_types_are_an_error(self, what):
        for function in (mlx_norms.patch, mlx_norms.unpatch, mlx_norms.is_patched):
            with pytest.raises(TypeError, match="must be an mlx.nn.Module"):
                function(what)
        assert mx.fast.rms_norm is STOCK


class Sealed(mlx.nn.Module):
    def __init_subclass__(cls):
        raise ValueError("sealed")

    def __call__(self, x):
        return x


class TestOptions:
    """patch takes the options of patched, and refuses some."""

    def test_have_one_signature(self):
        of_patch, of_patched = (
            dict(inspect.signature(f).parameters) for f in (mlx_norms.patch, mlx_norms.patched)
        )
        del of_patch["model"]
        assert of_patch == of_patched

    def test_projections(self, model):
        with pytest.raises(ValueError, match=r"^\[patch\] projections cannot"):
            mlx_norms.patch(model, projections=True)
        assert types(model) == types(make())
        assert mx.fast.rms_norm is STOCK

    def test_classes_without_subclasses(self, x):
        with pytest.raises(TypeError, match=r"^\[patch\] model is of the class .*Sealed"):
            mlx_norms.patch(Sealed())
        assert mx.fast.rms_norm is STOCK

    def test_models_that_nobody_calls(self):
        with pytest.raises(TypeError, match=r"^\[patch\] model must be callable"):
            mlx_norms.patch(Holder())
        assert mx.fast.rms_norm is STOCK


class TestIsPatched:
    def test_what_patch_does(self, model):
        assert not mlx_norms.is_patched(model)
        mlx_norms.patch(model)
        assert mlx_norms.is_patched(model)
        assert not mlx_norms.is_patched(make())
        assert not mlx_norms.is_patched()
        mlx_norms.unpatch(model)
        assert not mlx_norms.is_patched(model)

    def test_parts(self, model):
        """Of which a module is patched."""
        mlx_norms.patch(model.first)
        assert mlx_norms.is_patched(model) and mlx_norms.is_patched(model.holder)
        assert not mlx_norms.is_patched(model.holder.blocks[1])
        mlx_norms.unpatch(model.first)

    def test_calls(self):
        class Asks(mlx.nn.Module):
            def __call__(self):
                return mlx_norms.is_patched()

        model = Asks()
        mlx_norms.patch(model)
        assert model()
        mlx_norms.unpatch(model)
        assert not model()


@pytest.fixture
def patched_model(model):
    mlx_norms.patch(model)
    return model


class TestAModelStaysWhatItIs:
    def test_types(self, patched_model):
        for path, module in patched_model.named_modules():
            original = types(make())[path]
            assert isinstance(module, original), path
            assert type(module).__name__ == original.__name__, path
            assert type(module).__qualname__ == original.__qualname__, path
            assert type(module).__module__ == original.__module__, path
        assert repr(patched_model) == repr(make())

    def test_signatures_and_docstrings(self, patched_model):
        """mlx_lm asks a model's signature whether it takes embeddings."""
        for module, stock in zip(patched_model.modules(), make().modules(), strict=True):
            assert type(module).__doc__ == type(stock).__doc__
            if callable(stock):
                assert inspect.signature(module) == inspect.signature(stock)
                assert inspect.signature(module.__call__) == inspect.signature(stock.__call__)
                assert module.__call__.__doc__ == stock.__call__.__doc__

    def test_paths_and_parameters(self, patched_model):
        assert types(patched_model).keys() == types(make()).keys()
        got, expected = (tree_flatten(m.parameters()) for m in (patched_model, make()))
        assert [path for path, _ in got] == [path for path, _ in expected]
        assert len(patched_model.leaf_modules()) == len(make().leaf_modules())
        assert patched_model.children().keys() == make().children().keys()

    def test_what_cannot_be_called(self, patched_model):
        stock = make().holder
        assert not callable(stock)
        assert not callable(patched_model.holder)
        with pytest.raises(TypeError, match="'Holder' object is not callable"):
            patched_model.holder(3)

    def test_update_and_load_weights(self, patched_model, x, tmp_path):
        other = make(1)
        path = str(tmp_path / "weights.safetensors")
        other.save_weights(path)
        patched_model.load_weights(path)
        assert_close(patched_model(x), other(x))
        patched_model.update(tree_map(lambda p: 2 * p, other.parameters()))
        other.update(tree_map(lambda p: 2 * p, other.parameters()))
        assert_close(patched_model(x), other(x))

    def test_saved_weights(self, patched_model, x, tmp_path):
        path = str(tmp_path / "weights.npz")
        patched_model.save_weights(path)
        other = make(1)
        other.load_weights(path)
        assert mx.array_equal(other(x), make()(x))

    def test_freezing_and_modes(self, patched_model):
        patched_model.freeze()
        assert patched_model.trainable_parameters() == make().freeze().trainable_parameters()
        patched_model.unfreeze(keys="weight", recurse=True)
        patched_model.eval()
        assert not patched_model.first.norm.training

    def test_set_dtype(self, patched_model, x):
        patched_model.set_dtype(mx.float16)
        assert patched_model(x.astype(mx.float16)).dtype == mx.float16

    def test_quantize(self, patched_model, x):
        stock = make()
        for model in (stock, patched_model):
            mlx.nn.quantize(model, group_size=32)
        assert isinstance(patched_model.first.linear, mlx.nn.QuantizedLinear)
        assert_close(patched_model(x), stock(x))
        assert ours(patched_model(x)) == FUSED

    def test_attributes(self, patched_model):
        patched_model.note = "new"
        patched_model.extra = mx.ones(3)
        del patched_model.first.norm["weight"]
        mlx_norms.unpatch(patched_model)
        assert patched_model.note == "new"
        assert "extra" in patched_model.parameters()
        assert "weight" not in patched_model.first.norm

    def test_deepcopy(self, patched_model, x):
        twin = copy.deepcopy(patched_model)
        assert_close(twin(x), patched_model(x))
        mlx_norms.unpatch(patched_model)
        assert ours(twin(x)) == set()  # of a model that has not been patched itself
        mlx_norms.unpatch(twin)
        assert types(twin) == types(make())

    def test_pickle(self, patched_model, x):
        twin = pickle.loads(pickle.dumps(patched_model))
        assert types(twin) == types(make())
        assert mx.array_equal(twin(x), make()(x))

    def test_in_modules_of_others(self, patched_model, x):
        """A model that is put into another keeps its patch."""
        outer = mlx.nn.Sequential(patched_model, make(1))
        assert ours(outer.layers[0](x)) == FUSED
        assert ours(outer.layers[1](x)) == set()
