"""mlx_norms.fuse: sums fused by building the graph anew, no array changed."""

import collections
import dataclasses

import mlx.core as mx
import mlx.nn
import pytest

import mlx_norms
from support.inputs import normal
from support.patched_runs import (
    DIMS,
    EPS,
    FUSED,
    NORMS,
    ROWS,
    assert_close,
    operations,
    run_stock,
)

pytestmark = pytest.mark.usefixtures("backend")

each_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)


class Attributed(tuple):
    """A tuple that has attributes, as a class of a user's may."""

    def __new__(cls, items, note):
        made = super().__new__(cls, items)
        made.note = note
        return made


class Guarded(dict):
    """A dict whose methods are for those that know them."""

    def _refuse(self, *args, **kwargs):
        raise AssertionError("called")

    __iter__ = __getitem__ = __setitem__ = keys = values = items = update = _refuse


class GuardedList(list):
    __iter__ = __getitem__ = __setitem__ = Guarded._refuse


Pair = collections.namedtuple("Pair", ["hidden", "normalized", "other"])

# What arrays are returned in, made of a list of them.
KINDS = {
    "list": list,
    "tuple": tuple,
    "dict": lambda items: dict(zip("cab", items, strict=True)),
    "OrderedDict": lambda items: collections.OrderedDict(zip("cab", items, strict=True)),
    "defaultdict": lambda items: collections.defaultdict(list, zip("cab", items, strict=True)),
    "named tuple": lambda items: Pair(*items),
    "tuple with attributes": lambda items: Attributed(items, "kept"),
    "dict of one's own": lambda items: Guarded(zip("cab", items, strict=True)),
    "list of one's own": GuardedList,
}


def vars_of(container):
    factory = getattr(container, "default_factory", None)
    return getattr(container, "__dict__", None), factory


def keys_of(container):
    return list(dict.keys(container)) if isinstance(container, dict) else len(container)


def arrays_of(container):
    kind = next(k for k in (dict, list, tuple) if isinstance(container, k))
    items = kind.values(container) if kind is dict else kind.__iter__(container)
    return [item for item in items if isinstance(item, mx.array)]


SHAPE = (ROWS, DIMS)
STOCK = mx.fast.rms_norm


@pytest.fixture(scope="module", autouse=True)
def arrays(backend):
    """x, r and a matrix, made on the device under test."""
    global x, r, matrix
    x, r = (normal(SHAPE, mx.float32, seed=seed) for seed in ("x", "r"))
    matrix = normal((DIMS, DIMS), mx.float32, seed="matrix", std=0.1)
    mx.eval(x, r, matrix)


@pytest.fixture(autouse=True)
def patches_nothing():
    yield
    assert mx.fast.rms_norm is STOCK


def nodes(*outputs):
    """How many nodes of this package are fused, and how many are not."""
    seen = operations(*outputs)
    fused = seen["mlx_norms::AddRMSNorm"] + seen["mlx_norms::AddLayerNorm"]
    return fused, seen["mlx_norms::RMSNorm"] + seen["mlx_norms::LayerNorm"]


def node(norm):
    return "LayerNorm" if norm.layer else "RMSNorm"


def block_of(norm):
    parameters = norm.parameters
    mx.eval(parameters)

    def block(x, r, parameters=parameters):
        h = x + r
        o = h + mx.tanh(norm(h, *parameters) @ matrix)
        return o * norm(o, *parameters)

    return block


def test_no_norm():
    got = mlx_norms.fuse(lambda x: x + x)(x)
    assert operations(got) == {"Add": 1}


def test_shifted_weight():
    w = normal((DIMS,), mx.float32, seed="w")

    def f(x, r):
        return mx.fast.rms_norm(x + r, 1 + w, EPS)

    got = mlx_norms.fuse(f)(x, r)
    assert operations(got) == {"mlx_norms::AddRMSNorm": 1}
    assert_close(got, f(x, r))


class TestNoArrayIsChanged:
    @each_norm
    def test_sum_of_outside(self, norm):
        """It is its holder's."""
        h = x + r
        got = mlx_norms.fuse(lambda a: norm(h, *norm.parameters) * a)(x)
        assert operations(h) == {"Add": 1}
        assert nodes(got) == (0, 1)
        assert_close([got, h], [norm(x + r, *norm.parameters) * x, x + r])

    @each_norm
    def test_what_is_kept_elsewhere(self, norm):
        kept = []

        def f(x, r):
            h = x + r
            n = norm(h, *norm.parameters)
            kept.extend([h, n])
            return n * 2

        got = mlx_norms.fuse(f)(x, r)
        assert operations(kept[0]) == {"Add": 1}
        assert nodes(kept[1]) == nodes(got) == (0, 1)
        assert_close([got, *kept], [norm(x + r, *norm.parameters) * 2, x + r, kept[1]])

    @each_norm
    @pytest.mark.parametrize("nested", [False, True])
    def test_arguments(self, norm, nested):
        """What the caller computes is the caller's, pending or not."""
        h = x + r

        def f(tree):
            h = tree["h"][0] if nested else tree
            return h, norm(h, *norm.parameters)

        got = mlx_norms.fuse(f)({"h": [h]} if nested else h)
        assert operations(h) == {"Add": 1}
        assert operations(*got) == {"Add": 1, f"mlx_norms::{node(norm)}": 1}
        assert_close(got, [x + r, norm(x + r, *norm.parameters)])

    @each_norm
    def test_pending_above_arguments(self, norm):
        """A norm of stock's and sums above the arguments stay as they are."""
        above = norm(x + r, *norm.parameters)
        before = operations(above)
        got = mlx_norms.fuse(lambda a: norm(a + x, *norm.parameters))(above)
        assert operations(above) == before
        assert nodes(got) == (1, 0)
        assert operations(got) - before == {f"mlx_norms::Add{node(norm)}": 1}

    @each_norm
    def test_keyword_arguments(self, norm):
        h = x + r
        got = mlx_norms.fuse(lambda *, h: norm(h, *norm.parameters))(h=h)
        assert operations(h) == {"Add": 1}
        assert nodes(got) == (0, 1)


class TestTrees:
    def test_any_nesting(self):
        def f(x, r):
            h = x + r
            n = mx.fast.rms_norm(h, None, EPS)
            return {"a": [h, (n, None)], "b": 3, "c": {"d": n * 2, "e": "text"}, "f": (), "g": [r]}

        got, expected = mlx_norms.fuse(f)(x, r), f(x, r)
        assert got["a"][1][1] is None
        assert isinstance(got["a"][1], tuple)
        assert (got["b"], got["c"]["e"], got["f"]) == (3, "text", ())
        assert nodes(got["a"][0], got["a"][1][0], got["c"]["d"]) == (1, 0)
        assert_close(got, expected)

    @pytest.mark.parametrize("value", [None, 3, "text", [], {}, (1, [None])], ids=repr)
    def test_without_arrays(self, value):
        assert mlx_norms.fuse(lambda: value)() == value

    def test_an_array_twice(self):
        def f(x):
            n = mx.fast.rms_norm(x + x, None, EPS)
            return n, [n]

        first, (second,) = mlx_norms.fuse(f)(x)
        assert nodes(first, second) == (1, 0)
        assert mx.array_equal(first, second)

    @pytest.mark.parametrize("kind", KINDS)
    def test_containers(self, kind):
        """The very object that was returned, if arrays can be set in it, and of its class."""
        returned = []

        def f(x, r):
            h = x + r
            returned.append(KINDS[kind]([h, mx.fast.rms_norm(h, None, EPS), "no array"]))
            return returned[-1]

        got, stock = mlx_norms.fuse(f)(x, r), f(x, r)
        assert type(got) is type(stock)
        assert isinstance(got, tuple) or got is returned[0]
        assert vars_of(got) == vars_of(stock)
        assert keys_of(got) == keys_of(stock)
        assert nodes(*arrays_of(got)) == (1, 0)
        assert_close(arrays_of(got), arrays_of(stock))

    def test_modules(self):
        class Outputs(mlx.nn.Module):
            def __init__(self, x):
                super().__init__()
                self.layer = mlx.nn.Linear(DIMS, DIMS)
                self.kept = [mx.fast.rms_norm(x + x, None, EPS)]

        got = mlx_norms.fuse(Outputs)(x)
        assert type(got) is Outputs and type(got.layer) is mlx.nn.Linear
        assert got.layer(x).shape == SHAPE
        assert nodes(got.kept[0]) == (1, 0)
        assert_close(got.kept, Outputs(x).kept)

    def test_other_objects(self):
        """They are not looked into, and what they hold is right without being fused."""

        @dataclasses.dataclass(frozen=True)
        class Outputs:
            hidden: mx.array
            normalized: mx.array

        def f(x, r):
            h = x + r
            return [Outputs(h, mx.fast.rms_norm(h, None, EPS))]

        (got,) = mlx_norms.fuse(f)(x, r)
        assert type(got) is Outputs
        assert nodes(got.hidden, got.normalized) == (0, 1)
        assert_close(list(vars(got).values()), list(vars(f(x, r)[0]).values()))

    def test_arguments_are_themselves(self):
        def f(x, r, *, pair, module):
            y = mx.fast.rms_norm(x + r, None, EPS)
            return y, x, [r], pair, module, matrix

        pending = x + r
        pair, module = (x, pending), mlx.nn.Linear(DIMS, DIMS)
        got = mlx_norms.fuse(f)(pending, r, pair=pair, module=module)
        assert nodes(got[0])[0] == 1
        assert got[1] is pending and got[2][0] is r
        assert got[3] is pair and got[4] is module and got[5] is matrix

    def test_an_argument_that_is_written_to(self):
        """It is as the function left it."""

        def f(x, cache):
            cache.append(mx.fast.rms_norm(x + x, None, EPS))
            kept.append(cache[0])
            return cache

        kept, cache = [], []
        assert mlx_norms.fuse(f)(x, cache) is cache
        assert cache[0] is kept[0]

    def test_a_tuple_that_nothing_changes(self):
        returned = (x + x, 3)
        assert mlx_norms.fuse(lambda: returned)() is returned

    @pytest.mark.parametrize("nest", [lambda a: [a], lambda a: (a,), lambda a: {"a": a}])
    def test_deep_trees(self, nest):
        def f(x):
            tree = mx.fast.rms_norm(x + x, None, EPS)
            for _ in range(10_000):
                tree = nest(tree)
            return tree

        tree = mlx_norms.fuse(f)(x)
        for _ in range(10_000):
            (tree,) = tree.values() if isinstance(tree, dict) else tree
        assert nodes(tree) == (1, 0)

    def test_trees_in_themselves(self):
        def f(x):
            n = mx.fast.rms_norm(x + x, None, EPS)
            tree = [n, (n,)]
            tree += [tree, {"tree": tree, "pair": (n, tree)}]
            return tree

        tree = mlx_norms.fuse(f)(x)
        assert tree[2] is tree and tree[3]["tree"] is tree and tree[3]["pair"][1] is tree
        found = tree[0], tree[1][0], tree[3]["pair"][0]
        assert [nodes(array) for array in found] == [(1, 0)] * 3

    def test_tuples_in_themselves(self):
        def f(x):
            n = mx.fast.rms_norm(x + x, None, EPS)
            inner = [n]
            pair = (n, inner)
            inner.append(pair)
            return pair

        pair = mlx_norms.fuse(f)(x)
        assert nodes(pair[0]) == nodes(pair[1][0]) == (1, 0)
        assert_close(pair[1][1][0], f(x)[0])  # of the tuple that was returned

    def test_name(self):
        def f(x):
            """What it does."""
            return x

        assert mlx_norms.fuse(f).__name__ == "f"
        assert mlx_norms.fuse(f).__doc__ == "What it does."

    def test_errors(self):
        def f():
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            mlx_norms.fuse(f)()
        assert mx.fast.rms_norm is STOCK

    def test_a_module(self):
        model = mlx.nn.Sequential(
            mlx.nn.Linear(DIMS, DIMS), lambda a: a + x, mlx.nn.RMSNorm(DIMS), mlx.nn.GELU()
        )
        got = mlx_norms.fuse(model)(x)
        assert sum(nodes(got)) == 1  # with the sum before or, as on a GPU, with the activation
        assert_close(got, model(x))


def gradient(f):
    return mx.grad(lambda x, r: (f(x, r) * r).sum(), argnums=(0, 1))


def mapped(f):
    return lambda x, r: mx.vmap(f)(mx.stack([x, 2 * x]), mx.stack([r, 3 * r]))


# What a transform makes of a fused function, and fuse() of a transformed one; how many nodes are
# fused in the graph of the results, where it is one with the function's.
COMPOSED = {
    "gradient of fused": (lambda fuse, f: gradient(fuse(f)), None),
    "fused gradient": (lambda fuse, f: fuse(gradient(f)), 2),
    "compiled, of fused": (lambda fuse, f: mx.compile(fuse(f)), 2),
    "fused, of compiled": (lambda fuse, f: fuse(mx.compile(f)), 1),
    "vmap of fused": (lambda fuse, f: mapped(fuse(f)), None),
    "fused vmap": (lambda fuse, f: fuse(mapped(f)), 2),
    "checkpoint of fused": (lambda fuse, f: gradient(mx.checkpoint(fuse(f))), None),
    "fused checkpoint": (lambda fuse, f: gradient(fuse(mx.checkpoint(f))), None),
    "twice": (lambda fuse, f: fuse(fuse(f)), 2),
}


class TestTransforms:
    @each_norm
    @pytest.mark.parametrize("compose, fused", COMPOSED.values(), ids=COMPOSED)
    def test_of_a_block(self, norm, compose, fused):
        block = block_of(norm)
        f = compose(mlx_norms.fuse, block)
        for _ in range(2):  # the second time as it was traced
            got = f(x, r)
            assert (
                fused is None or nodes(*([got] if isinstance(got, mx.array) else got))[0] >= fused
            )
            assert_close(got, run_stock(lambda: compose(lambda g: g, block)(x, r)))

    @each_norm
    def test_grad_of_parameters(self, norm):
        """Arguments of the fused function, and captured by it."""

        def f(x, parameters):
            h = x + r
            return (h * norm(h, *parameters)).sum()

        expected = run_stock(lambda: mx.grad(f, argnums=1)(x, norm.parameters))
        assert_close(mx.grad(mlx_norms.fuse(f), argnums=1)(x, norm.parameters), expected)

        def captured(parameters):
            return mlx_norms.fuse(lambda x: f(x, parameters))(x)

        assert_close(mx.grad(captured)(norm.parameters), expected)

    @pytest.mark.parametrize("kept", [False, True])
    @pytest.mark.parametrize("transform", ["fuse", "checkpoint", "compile", "grad"])
    @pytest.mark.parametrize("form", ["groups", "scale", "scales"])
    def test_vmap_of_what_moves(self, form, transform, kept):
        """MLX's vmap changes a reshape itself, which so can be no part of two graphs."""
        norm, still = mx.fast.layer_norm, []

        def code(x, z, s):
            if form == "groups":
                split = (x * mlx.nn.silu(z)).reshape(ROWS, DIMS // 2, 2)
                return mx.fast.rms_norm(split, None, EPS).reshape(ROWS, DIMS)
            factor = (1 + s)[None]
            first, second = norm(x, None, None, EPS) * factor, norm(z, None, None, EPS) * factor
            if kept:
                still.append(first.reshape(ROWS, DIMS // 2, 2))
            return first + second if form == "scales" else first + factor

        def run(code):
            if transform == "grad":
                return mx.grad(lambda *a: code(*a).square().sum())
            return getattr(mx if transform != "fuse" else mlx_norms, transform)(code)

        batch = [normal(shape, mx.float32, seed=i) for i, shape in enumerate([(3, ROWS, DIMS)] * 2)]
        batch.append(normal((3, DIMS), mx.float32, seed=2))

        def mapped():
            return mx.vmap(run(code) if transform != "fuse" or patched else code)(*batch)

        patched = False
        expected = run_stock(mapped)
        patched = True
        with mlx_norms.patched():
            assert_close(mapped(), expected)


class TestEqualNodes:
    """Of a compiled function they are merged: MLX fails at some that have several outputs."""

    B, T, D = 2, 4, 32

    def arrays(self):
        x = normal((self.B, self.T, self.D), mx.float32, seed="x")
        mods = normal((self.B + 1, 4 * self.D), mx.float32, seed="m")
        return x, mods, mx.array([[True, False, True, False]] * self.B)[..., None]

    def blocks(self, x, mods, mask):
        """Those of a transformer that share one modulation, of masked tokens another."""

        def of_tokens(m):
            return mx.where(mask, m[: self.B, None], m[self.B :, None])

        for _ in range(2):
            for m in mx.split(mods, 2, axis=-1):
                scale, gate = mx.split(m, 2, axis=-1)
                n = mx.fast.layer_norm(x, None, None, 1e-6) * (1 + of_tokens(scale))
                x = x + of_tokens(gate) * n
        return x

    def test_a_shared_modulation(self):
        arrays = self.arrays()
        stock = self.blocks(*arrays)
        assert_close(mx.compile(mlx_norms.fuse(self.blocks))(*arrays), stock)
        with mlx_norms.patched():
            assert_close(mx.compile(self.blocks)(*arrays), stock)
            assert mlx_norms.report().around

    def test_its_gradients(self):
        x, mods, mask = self.arrays()
        loss = lambda x, mods: mx.sin(self.blocks(x, mods, mask)).sum()  # noqa: E731
        stock = mx.grad(loss, (0, 1))(x, mods)
        with mlx_norms.patched():
            ours = mx.compile(mx.grad(loss, (0, 1)))(x, mods)
        for got, expected in zip(ours, stock, strict=True):
            assert mx.allclose(got, expected, rtol=1e-4, atol=1e-4).item()

    def test_what_differs_is_not_merged(self):
        """By its state, a constant, a dtype or a random key."""

        def f(x, r):
            h = mx.fast.rms_norm(x + r, None, EPS)
            parts = [mx.split(h, 2, axis=-1), mx.split(h, 2, axis=-2), mx.split(h, 4, axis=-1)]
            parts += [[h * 2.0, h * 3.0, h.astype(mx.float16) * 2.0, h.sum(-1), h.sum(-2)]]
            parts += [[mx.random.uniform(shape=(4,)), mx.random.uniform(shape=(4,))], [h, h]]
            return [a for part in parts for a in part]

        x, r = (normal((2, 4, 64), mx.float32, seed=name) for name in "xr")
        mx.random.seed(1)
        stock = mx.compile(f)(x, r)
        mx.random.seed(1)
        for got, expected in zip(mx.compile(mlx_norms.fuse(f))(x, r), stock, strict=True):
            assert got.dtype == expected.dtype and got.shape == expected.shape
            assert mx.allclose(got, expected, rtol=1e-4, atol=1e-5).item()


class TestWithAPatch:
    """The function's own way to fuse holds inside of it."""

    @each_norm
    def test_within_a_block(self, norm):
        h = x + r
        with mlx_norms.patched():
            got = mlx_norms.fuse(lambda: norm(h, *norm.parameters))()
        assert operations(h) == {"Add": 1}
        assert nodes(got) == (0, 1)

    def test_report(self):
        with mlx_norms.patched():
            mlx_norms.fuse(block_of(NORMS[0]))(x, r)
            report = mlx_norms.report()
        assert (report.calls, report.fused) == (2, 2)
        assert report.reasons == {FUSED: 2}

    def test_deep(self):
        """Without a call per node on the stack."""

        def f(h):
            for _ in range(2000):
                h = h + r
                h = h + 0.001 * mx.fast.rms_norm(h, None, EPS)
            return h

        got = mlx_norms.fuse(f)(x)
        # A difference grows with each of the 2000 norms by its share of the sum, e**2 at most, and
        # each of the 4000 sums adds a rounding.
        assert_close(got, f(x), roundings=8 * 4000)
