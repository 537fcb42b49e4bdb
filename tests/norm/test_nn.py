"""mlx_norms.nn: the layers against mlx.nn's, and replacing those inside a model."""

import copy
import itertools
import pickle
import sys

import mlx.core as mx
import mlx.nn
import pytest
from mlx.utils import tree_flatten, tree_map

import mlx_norms
from mlx_norms import nn
from support.patched_runs import run_stock
from support.releases import since

pytestmark = pytest.mark.usefixtures("backend", "no_fusion")

DIMS = 48
DTYPES = (mx.float32, mx.float16, mx.bfloat16)
LAYERS = [
    ("RMSNorm", (DIMS,), {}),
    ("RMSNorm", (DIMS, 1e-3), {}),
    ("LayerNorm", (DIMS,), {}),
    ("LayerNorm", (DIMS, 1e-3), {}),
    ("LayerNorm", (DIMS,), {"bias": False}),
    ("LayerNorm", (DIMS,), {"affine": False}),
]
# By output dtype: the unit roundoff, and how many of them two norms may differ by that round at
# different points (twice the error bound that the ops are held to, more for 16-bit products).
ROUNDOFF = {mx.float32: 2.0**-24, mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}
ROUNDINGS = {mx.float32: 32, mx.float16: 6, mx.bfloat16: 6}


@pytest.fixture(autouse=True)
def seed():
    mx.random.seed(0)


def pair(name, args, kwargs):
    """The layer of mlx.nn and ours, with the same random parameters."""
    stock = getattr(mlx.nn, name)(*args, **kwargs)
    stock.update({key: mx.random.normal(value.shape) for key, value in stock.parameters().items()})
    own = getattr(nn, name)(*args, **kwargs)
    own.load_weights(tree_flatten(stock.parameters()))
    return stock, own


def same_tree(a, b):
    a, b = tree_flatten(a, destination={}), tree_flatten(b, destination={})
    return a.keys() == b.keys() and all(mx.array_equal(a[key], b[key]) for key in a)


def agree(layer, got, expected):
    """Whether two outputs of ``layer`` differ by nothing but rounding."""
    dtype = expected.dtype
    scale = mx.abs(expected.astype(mx.float32)) + mx.abs(layer.get("weight", mx.array(1.0)))
    scale = scale + mx.abs(layer.get("bias", mx.array(0.0)))
    difference = mx.abs(got.astype(mx.float32) - expected.astype(mx.float32))
    return mx.all(difference <= ROUNDINGS[dtype] * ROUNDOFF[dtype] * scale).item()


def largest_difference(a, b):
    return mx.max(mx.abs(a.astype(mx.float32) - b.astype(mx.float32))).item()


@pytest.mark.parametrize("name, args, kwargs", LAYERS)
class TestLayers:
    def test_state_and_repr(self, name, args, kwargs):
        stock, own = getattr(mlx.nn, name)(*args, **kwargs), getattr(nn, name)(*args, **kwargs)
        assert isinstance(own, getattr(mlx.nn, name))
        assert repr(own) == repr(stock)
        assert own.eps == stock.eps
        assert same_tree(own.state, stock.state)
        assert same_tree(own.trainable_parameters(), stock.trainable_parameters())

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_output(self, name, args, kwargs, dtype):
        stock, own = pair(name, args, kwargs)
        stock.set_dtype(dtype)
        own.set_dtype(dtype)
        x = (3 * mx.random.normal((2, 5, DIMS)) + 1).astype(dtype)
        assert own(x).dtype == stock(x).dtype == dtype
        assert own(x).shape == x.shape
        assert agree(stock, own(x), stock(x))

    def test_output_dtype_of_mixed_dtypes(self, name, args, kwargs):
        stock, own = pair(name, args, kwargs)
        x = mx.random.normal((5, DIMS))
        parameters = stock.parameters()
        for dtypes in itertools.product(DTYPES, repeat=1 + len(parameters)):
            for layer in (stock, own):
                for key, dtype in zip(sorted(parameters), dtypes[1:], strict=True):
                    layer[key] = parameters[key].astype(dtype)
            got, expected = own(x.astype(dtypes[0])), stock(x.astype(dtypes[0]))
            assert got.dtype == expected.dtype, dtypes
            assert agree(stock, got, expected), dtypes

    def test_runs_our_op(self, name, args, kwargs, monkeypatch):
        op = {"RMSNorm": "rms_norm", "LayerNorm": "layer_norm"}[name]
        monkeypatch.setattr(mlx_norms, op, lambda *args, **kwargs: "ours")
        assert getattr(nn, name)(*args, **kwargs)(mx.zeros((1, DIMS))) == "ours"

    def test_freezing(self, name, args, kwargs):
        own = getattr(nn, name)(*args, **kwargs)
        own.freeze()
        assert own.trainable_parameters() == {}
        own.unfreeze()
        assert same_tree(own.trainable_parameters(), own.parameters())

    def test_deepcopy(self, name, args, kwargs):
        _, own = pair(name, args, kwargs)
        twin = copy.deepcopy(own)
        x = mx.random.normal((3, DIMS))
        assert type(twin) is type(own)
        assert mx.array_equal(twin(x), own(x))


@since("0.32.2")
@pytest.mark.parametrize("layer", [nn.RMSNorm, nn.LayerNorm])
def test_eps_is_checked(layer):
    with pytest.raises(ValueError, match="'eps' must be positive"):
        layer(DIMS, eps=0.0)


def test_bias_without_weight_does_not_count_for_the_dtype():
    stock, own = pair("LayerNorm", (DIMS,), {})
    x = mx.random.normal((5, DIMS)).astype(mx.float16)
    for layer in (stock, own):
        del layer["weight"]
    assert own(x).dtype == stock(x).dtype == mx.float16
    assert agree(stock, own(x), stock(x))


@pytest.mark.parametrize("extension", ["npz", "safetensors"])
def test_weights_of_a_file_load_unchanged(tmp_path, extension):
    stock, _ = pair("LayerNorm", (DIMS,), {})
    path = str(tmp_path / f"weights.{extension}")
    stock.save_weights(path)
    own = nn.LayerNorm(DIMS)
    own.load_weights(path)
    assert same_tree(own.parameters(), stock.parameters())


class Block(mlx.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = mlx.nn.Linear(DIMS, DIMS)
        self.norm = mlx.nn.RMSNorm(DIMS)

    def __call__(self, x):
        return x + self.linear(self.norm(x))


class Model(mlx.nn.Module):
    """Norms as attributes, in lists, in dicts and in both nested."""

    def __init__(self):
        super().__init__()
        self.layers = [Block(), Block()]
        self.heads = {"a": mlx.nn.LayerNorm(DIMS), "deep": [{"b": mlx.nn.LayerNorm(DIMS)}]}
        self._private = mlx.nn.RMSNorm(DIMS)
        self.last = mlx.nn.LayerNorm(DIMS, bias=False)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        x = self.heads["a"](x) + self.heads["deep"][0]["b"](x)
        return self.last(self._private(x))


PATHS = {
    "layers.0.norm",
    "layers.1.norm",
    "heads.a",
    "heads.deep.0.b",
    "_private",
    "last",
}


def named(name, *bases):
    """A module of a class of this name, which a model may have for a norm of its own."""
    bases = [type(base) for base in bases] or [mlx.nn.Module]
    return type(name, (*bases,), {"__module__": "models"})()


def norms(model):
    """The norms in ``model`` by path, ours or mlx.nn's."""
    kinds = (mlx.nn.RMSNorm, mlx.nn.LayerNorm)
    return {path: module for path, module in model.named_modules() if isinstance(module, kinds)}


def are(a, b):
    """Whether both map the same paths to the very same modules (== of modules compares arrays)."""
    return a.keys() == b.keys() and all(a[path] is b[path] for path in a)


def loss(model, x, y):
    return mx.mean((model(x) - y) ** 2)


def train(model, steps=3):
    x, y = mx.random.normal((2, 7, DIMS), key=mx.random.key(1))
    step = mlx.nn.value_and_grad(model, loss)
    for _ in range(steps):
        _, grads = step(model, x, y)
        model.update(tree_map(lambda p, g: p - 0.1 * g, model.trainable_parameters(), grads))
    mx.eval(model.parameters())


class TestReplace:
    def test_finds_every_norm(self):
        model = Model()
        before = norms(model)
        assert before.keys() == PATHS
        replaced = nn.replace(model)
        assert are(dict(replaced), before)
        after = norms(model)
        assert after.keys() == PATHS
        for path, module in after.items():
            assert type(module) is getattr(nn, type(before[path]).__name__), path

    def test_outputs_and_parameters_stay(self):
        model = Model()
        x = mx.random.normal((7, DIMS))
        expected, parameters = model(x), model.parameters()
        nn.replace(model)
        assert same_tree(model.parameters(), parameters)
        assert largest_difference(model(x), expected) < 2e-5

    def test_undo_restores_the_very_same_modules(self):
        model = Model()
        before, expected = norms(model), repr(model)
        x = mx.random.normal((7, DIMS))
        output = model(x)
        nn.replace(model).undo()
        assert are(norms(model), before)
        assert repr(model) == expected
        assert mx.array_equal(model(x), output)

    def test_subclasses_and_tuples_stay(self):
        class Special(mlx.nn.RMSNorm):
            pass

        model = mlx.nn.Module()
        model.special = Special(DIMS)
        model.pair = (mlx.nn.RMSNorm(DIMS),)
        special, inside = model.special, model.pair[0]
        assert nn.replace(model) == {}
        assert model.special is special
        assert model.pair[0] is inside

    def test_names_the_norms_that_it_left_and_why(self):
        class Own(mlx.nn.Module):
            pass

        class Special(mlx.nn.RMSNorm):
            pass

        class Shifted(mlx.nn.LayerNorm):
            def __call__(self, x):
                return super().__call__(x) + 1

        model = Model()
        model.deep = [{"own": named("RMSNormGated")}, named("rmsnorm"), named("Own", named("Norm"))]
        model.special, model.shifted = Special(DIMS), Shifted(DIMS)
        model.array = mlx.nn.LayerNorm(DIMS)
        model.array.eps = mx.array(1e-5)
        model.ours, model.fine = nn.RMSNorm(DIMS), [Own(), mlx.nn.Linear(1, 1)]
        holder = named("NormAndLinear")  # what it holds is listed, not itself
        holder.linear, holder.norm = mlx.nn.Linear(1, 1), named("Norm")
        model.holder = holder
        replaced = nn.replace(model)
        local = f"{__name__}.{TestReplace.__qualname__}.{sys._getframe().f_code.co_name}.<locals>."
        left = {
            "deep.0.own": "models.RMSNormGated is no subclass of mlx.nn's norms: use patch()",
            "deep.1": "models.rmsnorm is no subclass of mlx.nn's norms: use patch()",
            "deep.2": "models.Own is no subclass of mlx.nn's norms: use patch()",
            "special": f"{local}Special is a subclass of mlx.nn.RMSNorm: use patch()",
            "shifted": f"{local}Shifted overrides __call__ of mlx.nn.LayerNorm: use patch()",
            "array": "mlx.nn.layers.normalization.LayerNorm has an array as eps, which our kernels "
            "take as a number",
            "holder.norm": "models.Norm is no subclass of mlx.nn's norms: use patch()",
        }
        assert replaced.left == left
        assert replaced.keys() == PATHS

    def test_of_a_patched_model(self):
        """Its modules have their classes; a norm that is patched itself stays."""
        model = Model()
        norm = model["_private"]
        mlx_norms.patch(model)
        mlx_norms.patch(norm)
        replaced = nn.replace(model)
        assert replaced.keys() == PATHS - {"_private"}
        reason = "RMSNorm is patched, by patch(model): call unpatch(model) before"
        assert replaced.left == {"_private": f"mlx.nn.layers.normalization.{reason}"}
        mlx_norms.unpatch(norm)
        assert nn.replace(model).keys() == {"_private"}
        mlx_norms.unpatch(model)

    def test_prints_counts(self):
        model = Model()
        model.deep = [named("RMSNorm"), named("RMSNorm"), named("LayerNorm")]
        replaced = nn.replace(model)
        assert repr(replaced) == "<Replaced: 6 norms replaced, 3 left as they are>"
        assert str(replaced).splitlines() == [
            "6 norms replaced, 3 left as they are",
            "       2  models.RMSNorm is no subclass of mlx.nn's norms: use patch()",
            "       1  models.LayerNorm is no subclass of mlx.nn's norms: use patch()",
        ]

    def test_nothing_left_for_a_second_replace(self):
        model = Model()
        first = nn.replace(model)
        after = norms(model)
        second = nn.replace(model)
        assert second == {}
        second.undo()
        assert are(norms(model), after)
        first.undo()
        assert are(norms(model), dict(first))

    def test_a_shared_module_stays_shared(self):
        model = Model()
        shared = model.layers[0].norm
        model.layers[1].norm = shared
        replaced = nn.replace(model)
        assert replaced["layers.0.norm"] is replaced["layers.1.norm"] is shared
        assert type(model.layers[0].norm) is nn.RMSNorm
        assert model.layers[0].norm is model.layers[1].norm
        replaced.undo()
        assert model.layers[0].norm is model.layers[1].norm is shared

    def test_a_module_that_holds_norms_may_be_shared(self):
        model = Model()
        model.layers[1] = model.layers[0]
        norm = model.layers[0].norm
        replaced = nn.replace(model)
        assert type(model.layers[1].norm) is nn.RMSNorm
        assert replaced.keys() == PATHS
        replaced.undo()
        assert model.layers[1].norm is norm

    @pytest.mark.parametrize("name", ["RMSNorm", "LayerNorm"])
    def test_a_norm_itself_is_an_error(self, name):
        norm = getattr(mlx.nn, name)(DIMS)
        with pytest.raises(ValueError, match=rf"make an mlx_norms\.nn\.{name}"):
            nn.replace(norm)

    def test_what_the_error_advises_works(self):
        norm, _ = pair("LayerNorm", (DIMS,), {})
        own = nn.LayerNorm(DIMS)
        own.update(norm.parameters())
        assert same_tree(own.parameters(), norm.parameters())

    def test_other_types_are_an_error(self):
        with pytest.raises(TypeError, match="must be an mlx.nn.Module, got list"):
            nn.replace([mlx.nn.RMSNorm(DIMS)])


class TestUndo:
    def test_training_in_between_is_kept(self):
        model = Model()
        before = copy.deepcopy(norms(model)["heads.a"].parameters())
        replaced = nn.replace(model)
        train(model)
        trained = model.parameters()
        assert not same_tree(model.heads["a"].parameters(), before)
        replaced.undo()
        assert same_tree(model.parameters(), trained)

    def test_load_weights_in_between_is_kept(self, tmp_path):
        model = Model()
        path = str(tmp_path / "weights.npz")
        other = Model()
        train(other)
        other.save_weights(path)
        replaced = nn.replace(model)
        model.load_weights(path)
        replaced.undo()
        assert same_tree(model.parameters(), other.parameters())

    def test_freezing_and_mode_are_carried_both_ways(self):
        model = Model()
        model.last.freeze()
        model.eval()
        replaced = nn.replace(model)
        assert model.last.trainable_parameters() == {}
        assert not model.last.training
        model.train()
        model.last.unfreeze()
        model.heads["a"].freeze(keys="bias")
        # The originals do not follow before undo.
        assert replaced["last"].trainable_parameters() == {}
        replaced.undo()
        assert model.last.training
        assert "weight" in model.last.trainable_parameters()
        assert model.heads["a"].trainable_parameters().keys() == {"weight"}

    def test_other_attributes_are_carried_back(self):
        model = Model()
        replaced = nn.replace(model)
        model.last.eps = 0.5
        model.last.note = "new"
        model.last.bias = mx.ones(DIMS)
        replaced.undo()
        assert type(model.last) is mlx.nn.LayerNorm
        assert model.last.eps == 0.5
        assert model.last.note == "new"
        assert mx.array_equal(model.last.bias, mx.ones(DIMS))

    def test_what_was_deleted_stays_deleted(self):
        model = Model()
        norm = model.heads["a"]
        norm.note = "old"
        replaced = nn.replace(model)
        del model.heads["a"]["bias"]
        del model.heads["a"].note
        replaced.undo()
        assert model.heads["a"] is norm
        assert norm.parameters().keys() == {"weight"}
        assert not hasattr(norm, "note")

    def test_twice_does_nothing(self):
        model = Model()
        replaced = nn.replace(model)
        replaced.undo()
        before = norms(model)
        train(model)
        trained = model.parameters()
        replaced.undo()
        assert are(norms(model), before)
        assert same_tree(model.parameters(), trained)

    def test_a_place_that_holds_something_else_is_left(self):
        model = Model()
        replaced = nn.replace(model)
        mine = mlx.nn.RMSNorm(DIMS)
        model.layers[0].norm = mine
        with pytest.warns(UserWarning, match=r"not put back.*: layers\.0\.norm\.$"):
            replaced.undo()
        assert model.layers[0].norm is mine
        assert are({**norms(model), "layers.0.norm": None}, {**replaced, "layers.0.norm": None})

    def test_follows_modules_that_moved(self):
        model = mlx.nn.Module()
        model.norms = [mlx.nn.RMSNorm(DIMS) for _ in range(3)]
        first, _, third = model.norms
        replaced = nn.replace(model)
        model.norms = [model.norms[2], model.norms[0]]
        with pytest.warns(UserWarning, match=r"not put back.*: norms\.1\.$"):
            replaced.undo()
        assert model.norms[0] is third
        assert model.norms[1] is first

    def test_follows_modules_that_are_shared(self):
        model = Model()
        replaced = nn.replace(model)
        model.heads["b"] = [model.last, mlx.nn.Sequential(model.last)]
        replaced.undo()
        last = replaced["last"]
        assert model.last is model.heads["b"][0] is model.heads["b"][1].layers[0] is last

    def test_of_a_place_out_of_reach(self):
        """MLX does not look into tuples."""
        model = Model()
        replaced = nn.replace(model)
        model.pair = (model.last,)
        del model.last
        with pytest.warns(UserWarning, match=r"not put back.*: last\.$"):
            replaced.undo()

    def test_copies_of_replacements_become_norms_of_mlx_nn(self):
        model = Model()
        replaced = nn.replace(model)
        model.layers[0].norm.weight = mx.full(DIMS, 3.0)
        own = nn.RMSNorm(DIMS)
        model.heads["b"] = own
        model.layers.append(copy.deepcopy(model.layers[0]))
        model.layers.append(model.layers[-1])
        replaced.undo()
        assert model.layers[0].norm is replaced["layers.0.norm"]
        twin = model.layers[-1].norm
        assert type(twin) is mlx.nn.RMSNorm
        assert model.layers[-2].norm is twin is not model.layers[0].norm
        assert mx.array_equal(twin.weight, mx.full(DIMS, 3.0))
        assert vars(twin).keys() == vars(mlx.nn.RMSNorm(DIMS)).keys()
        assert model.heads["b"] is own

    def test_replace_again_after_undo(self):
        model = Model()
        nn.replace(model).undo()
        before = norms(model)
        replaced = nn.replace(model)
        assert are(dict(replaced), before)


def pickled(what):
    return pickle.loads(pickle.dumps(what))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
class TestCopies:
    """Of a model together with what replace returned."""

    def test_are_undone(self, copied):
        model = Model()
        before, classes = norms(model), [type(norm) for norm in norms(model).values()]
        twin, replaced = copied((model, nn.replace(model)))
        after = norms(model)
        train(twin)
        trained = twin.parameters()
        replaced.undo()
        assert [type(norm) for norm in norms(twin).values()] == classes
        assert are(norms(twin), dict(replaced))
        assert same_tree(twin.parameters(), trained)
        assert are(norms(model), after)
        assert not are(after, before)

    def test_leave_the_original_to_its_own_undo(self, copied):
        model = Model()
        before, replaced = norms(model), nn.replace(model)
        twin, _ = copied((model, replaced))
        replaced.undo()
        assert are(norms(model), before)
        assert all(isinstance(norm, (nn.RMSNorm, nn.LayerNorm)) for norm in norms(twin).values())

    def test_after_modules_moved(self, copied):
        model = mlx.nn.Module()
        model.norms = [mlx.nn.RMSNorm(DIMS) for _ in range(3)]
        twin, replaced = copied((model, nn.replace(model)))
        twin.norms = [twin.norms[2], twin.norms[0], mlx.nn.Sequential(twin.norms[1])]
        replaced.undo()
        assert twin.norms[0] is replaced["norms.2"]
        assert twin.norms[1] is replaced["norms.0"]
        assert twin.norms[2].layers[0] is replaced["norms.1"]

    def test_after_one_was_exchanged(self, copied):
        model = Model()
        twin, replaced = copied((model, nn.replace(model)))
        twin.last = mlx.nn.LayerNorm(DIMS)
        with pytest.warns(UserWarning, match=r"not put back.*: last\.$"):
            replaced.undo()


def test_value_and_grad_agrees_with_the_model_before():
    model = Model()
    x, y = mx.random.normal((2, 7, DIMS))
    step = mlx.nn.value_and_grad(model, loss)
    value, grads = run_stock(lambda: step(model, x, y))
    nn.replace(model)
    own_value, own_grads = mlx.nn.value_and_grad(model, loss)(model, x, y)
    assert abs(own_value.item() - value.item()) < 1e-5 * abs(value.item())
    grads, own_grads = tree_flatten(grads, destination={}), tree_flatten(own_grads, destination={})
    assert grads.keys() == own_grads.keys()
    # The norms' own gradients are among them, and are no zeros.
    assert mx.max(mx.abs(own_grads["layers.0.norm.weight"])).item() > 1e-6
    for key, grad in grads.items():
        scale = mx.max(mx.abs(grad)).item()
        assert largest_difference(own_grads[key], grad) < 1e-4 * scale + 1e-7, key


def test_training_goes_the_same_way_with_frozen_norms():
    stock = Model()
    own = copy.deepcopy(stock)
    for model in (stock, own):
        model.layers[0].norm.freeze()
    frozen = mx.array(own.layers[0].norm.weight)
    nn.replace(own)
    train(stock)
    train(own)
    assert mx.array_equal(own.layers[0].norm.weight, frozen)
    for (key, a), (_, b) in zip(
        tree_flatten(stock.parameters()), tree_flatten(own.parameters()), strict=True
    ):
        assert largest_difference(a, b) < 1e-4, key


def test_compiled_model():
    model = Model()
    x = mx.random.normal((7, DIMS))
    expected = model(x)
    nn.replace(model)
    compiled = mx.compile(model)
    assert largest_difference(compiled(x), expected) < 2e-5
