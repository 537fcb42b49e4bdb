"""Norms computed with the products that take them, by a pass before evaluation."""

import contextlib
import functools
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models import gemma3_text
from mlx_lm.models.activations import swiglu
from mlx_lm.models.cache import make_prompt_cache

import mlx_norms
from counts import launches
from mlx_norms import _ext
from mlx_norms.commands import _tiny_models
from support.inputs import normal
from support.model_fusions import generated_tokens, tokens
from support.patched_runs import operations

pytestmark = pytest.mark.usefixtures("backend")

DIMS = 64
EPS = 1e-5


@pytest.fixture
def fuses(backend):
    """How many times a norm is fused where it can be: on the CPU two steps are taken."""
    return 0 if backend == "cpu" else 1


def linear(outputs, *, bias=False, bits=None, seed=0):
    layer = nn.Linear(DIMS, outputs, bias=bias)
    parameters = layer.parameters()
    shapes = {name: normal(p.shape, mx.float32, seed=seed + 7) for name, p in parameters.items()}
    layer.update(shapes)
    if bits:
        layer = nn.QuantizedLinear.from_linear(layer, group_size=32, bits=bits)
    mx.eval(layer.parameters())
    return layer


def row(rows=1, seed=1):
    x = normal((rows, DIMS), mx.float32, seed=seed)
    mx.eval(x)
    return x[None] + 0  # pending, of shape (1, rows, DIMS)


def norm(x):
    return mx.fast.rms_norm(x, WEIGHT, EPS)


WEIGHT = 1 + 0.1 * normal((DIMS,), mx.float32, seed=3)
mx.eval(WEIGHT)  # which threads take, too


@contextlib.contextmanager
def process_patched():
    """What patched(projections=True) does, for the process."""
    mlx_norms.patch(projections=True)
    try:
        yield
    finally:
        mlx_norms.unpatch()


def run(function, *, evaluate=None, patched=functools.partial(mlx_norms.patched, projections=True)):
    """What a function's arrays are when they are evaluated with the pass, and its count."""
    with patched():
        arrays = function()
        (evaluate or mx.eval)(arrays)
        return arrays, mlx_norms.report().projections


def check(function, expected, **options):
    """The pass fuses as many norms, and the results are stock's but for rounding."""
    stock = function()
    mx.eval(stock)
    arrays, fused = run(function, **options)
    assert fused == expected
    for ours, theirs in zip(arrays, stock, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        scale = mx.abs(theirs).max().item()
        assert mx.abs(ours - theirs).max().item() <= 1e-5 * scale


def identity():
    """A function with a gradient of its own, as mlx.nn's sharded layers have it."""

    @mx.custom_function
    def f(x):
        return x

    @f.vjp
    def f(x, dx, _):
        return 2 * dx

    return f


@pytest.mark.parametrize("bits", [None, 4])
def test_products_of_sharded_layers(bits, fuses):
    """Each sums its gradients by a function that returns its argument."""
    layers = [linear(n, bits=bits, seed=i) for i, n in enumerate((64, 32, 32, 96))]
    f = identity()

    def products():
        n = norm(row())
        return [layer(f(n)) for layer in layers]

    check(products, fuses)


# On CUDA MLX's own quantized product of a vector raises an IndexError.
NOT_OF_MLX_ON_CUDA = pytest.mark.backends("cpu", "metal", "metal-sim")


@pytest.mark.parametrize("bits", [None, pytest.param(4, marks=NOT_OF_MLX_ON_CUDA)])
def test_a_vector(bits, fuses):
    """Which MLX makes a row of."""
    layer = linear(48, bits=bits)
    check(lambda: [layer(norm(row()[0, 0]))], fuses)


def test_results_of_such_a_function_that_are_taken_elsewhere():
    layer, f = linear(48), identity()

    def taken(use):
        def products():
            n = norm(row())
            m = f(n)
            return [layer(m), *use(n, m)]

        return products

    check(taken(lambda n, m: [m]), 0)
    check(taken(lambda n, m: [m + 1]), 0)
    check(taken(lambda n, m: [n]), 0)
    check(taken(lambda n, m: [mx.stop_gradient(n)]), 0)


def test_other_functions_with_a_gradient_of_their_own():
    layer = linear(48)

    @mx.custom_function
    def twice(x):
        return 2 * x

    @twice.vjp
    def twice(x, dx, _):
        return 2 * dx

    check(lambda: [layer(twice(norm(row())))], 0)


def test_gradients_of_sharded_layers():
    """Projections are looked for on evaluation, when the function's own gradient has been taken."""
    layer, f = linear(48), identity()

    def gradients():
        return [mx.grad(lambda x: layer(f(norm(x))).sum())(row())]

    stock = gradients()
    mx.eval(stock)
    (got,), _ = run(gradients)
    assert mx.allclose(got, stock[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bits", [None, 4, 8])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("outputs", [[48], [64, 32], [64, 32, 32], [64, 32, 32, 96]])
@pytest.mark.parametrize("rows", [1, 3])
def test_products(rows, outputs, bias, bits, fuses):
    layers = [linear(n, bias=bias, bits=bits, seed=i) for i, n in enumerate(outputs)]

    def products():
        n = norm(row(rows))
        return [layer(n) for layer in layers]

    check(products, fuses)


@pytest.mark.parametrize("bits", [None, 4])
def test_one_number_for_a_bias(bits, fuses):
    layer, number = linear(32, bits=bits), mx.array([0.5])
    mx.eval(number)
    check(lambda: [layer(norm(row())) + number], fuses)
    if not bits:
        check(lambda: [mx.addmm(number, norm(row()), layer.weight.T)], 0)


def test_of_a_sum(fuses):
    """The sum is the fused node's as well, for the norm after it."""
    q, o, up = linear(64), linear(DIMS, seed=1), linear(32, seed=2)

    def block():
        x = row()
        h = x + row(seed=2)
        h2 = h + o(mx.tanh(q(norm(h))))
        return [up(norm(h2)), h2, h]

    check(block, 2 * fuses)


@pytest.mark.parametrize("factor", [0.3, mx.linspace(0.5, 1.5, DIMS)], ids=["number", "array"])
def test_of_a_sum_with_a_factor(factor, fuses):
    """Its product is MLX's again, for a norm that is fused with what takes it."""
    mx.eval(factor)
    q, up = linear(64), linear(32, seed=2)

    def block():
        h = row() + row(seed=2) * factor
        h2 = h + mx.tanh(q(norm(h))) * factor
        return [up(norm(h2)), h2, h]

    check(block, 2 * fuses)


@pytest.mark.parametrize("bits", [None, 4])
def test_of_a_clamped_sum(bits, fuses):
    """A node of MLX's has it again, for all who hold it."""
    layer = linear(64, bits=bits)
    layer.set_dtype(mx.float16)
    weight = WEIGHT.astype(mx.float16)
    a, b = (40000 * row(2, seed=seed) for seed in (1, 2))
    a, b = a.astype(mx.float16), b.astype(mx.float16)
    mx.eval(layer.parameters(), weight, a, b)

    def block():
        h = gemma3_text.clip_residual(a, b)
        return [layer(mx.fast.rms_norm(h, weight, EPS)), h, mx.abs(h)]

    stock = block()
    mx.eval(stock)
    arrays, fused = run(block)
    assert fused == fuses
    for ours, theirs in zip(arrays[1:], stock[1:], strict=True):
        assert mx.array_equal(ours, theirs)
    assert mx.max(mx.abs(stock[1])).item() == 65504
    scale = mx.abs(stock[0]).max().item()
    assert mx.abs(arrays[0] - stock[0]).max().item() <= 4e-3 * scale


@pytest.mark.parametrize("bits", [None, 4])
def test_of_a_sum_times_an_array_of_one_element(bits, fuses):
    layer, f = linear(64, bits=bits), mx.array([0.7])
    mx.eval(f)

    def block():
        h = (row() + row(seed=2)) * f
        return [layer(norm(h)), h, mx.abs(h)]

    check(block, fuses)


def to_run(function):
    """What is to be run for a function's arrays after the pass, by name."""
    with mlx_norms.patched(projections=True):
        arrays = function()
        _ext.fuse_at_eval(arrays, False, True)
        return launches.nodes(*arrays)


# The pass meets a product with a bias later than one without.
@pytest.mark.parametrize("biases", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("bits", [None, 4])
def test_gated_pair(bits, biases, fuses):
    gate, up = (linear(96, bias=b, bits=bits, seed=i) for i, b in enumerate(biases))

    def pair():
        n = norm(row(2))
        return [swiglu(gate(n), up(n))]

    check(pair, fuses)
    if fuses:
        names = to_run(pair)
        assert names["mlx_norms::NormLinear"] == 1
        assert not any(name.startswith("Compiled") for name in names)


@pytest.mark.parametrize("asked_for", [True, False])
def test_pair_of_which_one_is_taken_elsewhere(asked_for, fuses):
    gate, up = linear(96), linear(96, seed=1)

    def pair():
        n = norm(row())
        g, u = gate(n), up(n)
        return [swiglu(g, u), u if asked_for else mx.abs(u)]

    check(pair, fuses)
    if fuses:
        names = to_run(pair)
        assert names["mlx_norms::NormLinear"] == 1 and names["Matmul"] == 0


def test_product_of_a_gate_with_itself(fuses):
    gate = linear(96)

    def squared():
        g = gate(norm(row()))
        return [swiglu(g, g)]

    check(squared, fuses)


STRIDED = normal((32, 2 * DIMS), mx.float32, seed=5)[:, ::2]
mx.eval(STRIDED)

LEFT = {
    "the norm is returned": lambda n, layer: [layer(n), n],
    "the norm is taken elsewhere": lambda n, layer: [layer(n), mx.abs(n)],
    "a weight that is not transposed": lambda n, layer: [n @ layer.weight],
    "a weight on the left": lambda n, layer: [layer.weight @ mx.swapaxes(n, -1, -2)],
    "a weight that is pending": lambda n, layer: [n @ (layer.weight + 1).T],
    "by itself": lambda n, layer: [n @ mx.swapaxes(n, -1, -2)],
    "no product": lambda n, layer: [mx.abs(n)],
    "five products": lambda n, layer: [layer(n) for _ in range(5)],
    "a weight that lies otherwise": lambda n, layer: [n @ STRIDED.T],
    "a batch of weights": lambda n, layer: [n @ mx.stack([layer.weight] * 2)],
}


@pytest.mark.parametrize("case", LEFT)
def test_left_alone(case):
    layer = linear(DIMS)
    check(lambda: LEFT[case](norm(row()), layer), 0)


def test_many_rows_are_left_alone():
    layer = linear(32)
    check(lambda: [layer(norm(row(9)))], 0)


def test_weights_of_two_forms_are_left_alone():
    layers = linear(32), linear(32, bits=4)

    def products():
        n = norm(row())
        return [layer(n) for layer in layers]

    check(products, 0)


def test_one_product_evaluated_before_the_other(fuses):
    q, k = linear(64), linear(32, seed=1)

    def products():
        h = row() + row(seed=2)
        n = norm(h)
        return [q(n), k(n), n, h]

    stock = products()
    mx.eval(stock)
    with mlx_norms.patched(projections=True):
        arrays = products()
        for array in arrays:
            mx.eval(array)
        assert mlx_norms.report().projections == 2 * fuses
    for ours, theirs in zip(arrays, stock, strict=True):
        assert mx.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_async_eval_and_containers(fuses):
    layer = linear(32)
    for evaluate in (
        lambda arrays: mx.async_eval(arrays),  # which is another one in the block
        lambda arrays: mx.eval({"a": [arrays[0], 1]}),
    ):
        check(lambda: [layer(norm(row()))], fuses, evaluate=evaluate)


def deep(nest):
    def nested(arrays):
        for _ in range(10_000):
            arrays = nest(arrays)
        return arrays

    return nested


def refuse(*args):
    raise KeyError("refused")


class RefusingList(list):
    __iter__ = refuse


class RefusingDict(dict):
    __iter__ = __getitem__ = keys = values = items = refuse


# Of a list of arrays, what is evaluated.
TREES = {
    "deep lists": deep(lambda tree: [tree]),
    "deep tuples": deep(lambda tree: (tree,)),
    "deep dicts": deep(lambda tree: {"a": tree}),
    "no array": lambda arrays: [object(), None, "array"],
    "a set": lambda arrays: set(map(id, arrays)),
    "a proxy of an array": lambda arrays: weakref.proxy(arrays[0]),
    "a proxy of what is gone": lambda arrays: weakref.proxy(type("Gone", (), {})()),
    "a list that cannot be iterated": RefusingList,
    "a dict whose methods fail": lambda arrays: RefusingDict(a=arrays),
}


@pytest.mark.parametrize("name", ["eval", "async_eval"])
@pytest.mark.parametrize("tree", TREES)
def test_trees_end_as_of_stock(tree, name, fuses):
    layer = linear(32)

    def evaluate(arrays):
        getattr(mx, name)(TREES[tree](arrays))

    def outcome():
        arrays = [layer(norm(row()))]
        try:
            evaluate(arrays)
        except Exception as error:
            return type(error)
        return "left pending" if operations(*arrays) else "evaluated"

    stock = outcome()
    with mlx_norms.patched(projections=True):
        assert outcome() == stock
    if tree.startswith("deep"):
        check(lambda: [layer(norm(row()))], fuses, evaluate=evaluate)


# MLX itself may end the process.
IN_ITSELF = """
import contextlib, resource, sys
import mlx.core as mx, mlx_norms

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
resource.setrlimit(resource.RLIMIT_STACK, (1 << 23, hard))
tree = {"a": [mx.ones(3) + 1]}
tree["a"].append(tree)
projections = {"stock": contextlib.nullcontext(), "patched": mlx_norms.patched(projections=True)}
with projections[sys.argv[1]]:
    getattr(mx, sys.argv[2])(tree)
"""


@pytest.mark.parametrize("name", ["eval", "async_eval"])
def test_a_tree_in_itself_ends_as_of_stock(name):
    def outcome(side):
        run = [sys.executable, "-c", IN_ITSELF, side, name]
        ended = subprocess.run(run, capture_output=True, text=True)
        return ended.returncode, ended.stderr.splitlines()[-1:]

    assert outcome("patched") == outcome("stock")


def test_compiled(fuses):
    layer = linear(32)
    with mlx_norms.patched(projections=True):
        compiled = mx.compile(lambda x: [layer(norm(x + x))])
        mx.eval(compiled(row()))
    check(lambda: compiled(row()), fuses)


def test_every_step_is_looked_at(fuses):
    """However many before it had nothing to fuse."""
    layer = linear(40)
    with mlx_norms.patched(projections=True):
        for then, fused in [(lambda x: 2 * x, 0)] * 20 + [(layer, 8 * fuses)] * 3:
            before = mlx_norms.report().projections
            mx.eval([then(norm(row(seed=seed))) for seed in range(8)])
            assert mlx_norms.report().projections - before == fused


def test_only_within_the_block_and_its_context():
    layer = linear(32)
    with mlx_norms.patched():
        mx.eval(layer(norm(row())))
        assert mlx_norms.report().projections == 0
    with mlx_norms.patched(projections=True):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: mx.eval(layer(norm(row())))).result()
        assert mlx_norms.report().projections == 0
    assert mx.eval.__name__ == mx.async_eval.__name__[-4:] and not hasattr(mx.eval, "__wrapped__")


@pytest.fixture
def passes(monkeypatch):
    """A list of the threads that have made a pass, of any backend."""
    threads = []
    fuse_at_eval = _ext.fuse_at_eval

    def counted(*args):
        threads.append(threading.get_ident())
        return fuse_at_eval(*args)

    monkeypatch.setattr(_ext, "fuse_at_eval", counted)
    return threads


class TestProcess:
    """patch(projections=True)"""

    @pytest.fixture(autouse=True)
    def unpatched(self):
        functions = mx.eval, mx.async_eval
        yield
        mlx_norms.unpatch()
        assert (mx.eval, mx.async_eval) == functions

    @staticmethod
    def is_looked_at(passes):
        """Whether what is evaluated now is, in either way."""
        before = len(passes)
        mx.eval(mx.ones(1) + 1)
        mx.async_eval(mx.ones(1) + 1)
        made = len(passes) - before
        assert made in (0, 2)
        return made == 2

    @pytest.mark.parametrize("name", ["eval", "async_eval"])
    def test_values_and_counts(self, name, fuses):
        layers = linear(64), linear(32, seed=1)

        def products():
            n = norm(row() + row(seed=2))
            return [layer(n) for layer in layers]

        def evaluate(arrays):
            getattr(mx, name)(arrays)

        check(products, fuses, evaluate=evaluate, patched=process_patched)

    def test_until_it_is_undone(self, passes):
        mlx_norms.patch(projections=True)
        assert self.is_looked_at(passes)
        mlx_norms.unpatch()
        assert not self.is_looked_at(passes)

    def test_the_last_patch_holds(self, passes):
        mlx_norms.patch(fuse=False)
        assert not self.is_looked_at(passes)
        mlx_norms.patch(fuse=False, projections=True)
        assert self.is_looked_at(passes)
        mlx_norms.patch(fuse=False)
        assert not self.is_looked_at(passes)
        mlx_norms.patch()
        assert self.is_looked_at(passes)

    def test_the_innermost_block_decides(self, passes):
        mlx_norms.patch(projections=True)
        with mlx_norms.patched(fuse=False):
            assert not self.is_looked_at(passes)
            with mlx_norms.patched(projections=True):
                assert self.is_looked_at(passes)
            assert not self.is_looked_at(passes)
        assert self.is_looked_at(passes)
        with mlx_norms.patched(projections=True):
            mlx_norms.unpatch()
            assert self.is_looked_at(passes)
        assert not self.is_looked_at(passes)

    def test_threads(self, passes):
        """Those started before, and those started after."""
        with ThreadPoolExecutor(1) as earlier:
            first = earlier.submit(threading.get_ident).result()
            mlx_norms.patch(projections=True)
            assert earlier.submit(self.is_looked_at, passes).result()
            with ThreadPoolExecutor(1) as later:
                second = later.submit(threading.get_ident).result()
                assert later.submit(self.is_looked_at, passes).result()
            mlx_norms.unpatch()
            assert not earlier.submit(self.is_looked_at, passes).result()
        assert passes == [first] * 2 + [second] * 2

    def test_counts_of_all_threads(self, passes, fuses):
        """All of them, and no others: of the same product, whose weight they share."""
        layer, rows = linear(32), [row(seed=i) for i in range(4)]
        mx.eval(rows)
        expected = [layer(norm(x)) for x in rows]
        mx.eval(expected)
        together = threading.Barrier(len(rows))  # else one thread may do another's work, too

        def work(x, expected):
            stream = mx.new_stream(mx.default_device())
            together.wait()
            for _ in range(25):
                with mx.stream(stream):
                    product = layer(norm(x))
                mx.eval(product)
                assert mx.allclose(product, expected, rtol=1e-5, atol=1e-5, stream=stream)

        mlx_norms.patch(projections=True)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, rows, expected))
        report = mlx_norms.report()
        assert (report.calls, report.projections, len(passes)) == (100, 100 * fuses, 100)
        assert len(set(passes)) == 4
        assert ("computed with the products" in str(report)) == bool(fuses)
        mlx_norms.patch(projections=True)
        assert mlx_norms.report().projections == 0

    def test_generated_tokens(self, fuses):
        model, prompt = _tiny_models.build("llama"), tokens("llama", 4)

        generated = functools.partial(generated_tokens, model, prompt, 4)

        stock = generated()
        mlx_norms.patch(projections=True)
        assert generated() == stock
        assert mlx_norms.report().projections >= fuses * 4 * 2 * len(model.layers)

    def test_of_a_model_alone(self, passes):
        """A model's calls evaluate nothing; the message says what does it."""
        model = nn.Sequential(nn.RMSNorm(DIMS), linear(32))
        before = type(model)
        with pytest.raises(ValueError) as raised:
            mlx_norms.patch(model, projections=True)
        for text in ("[patch] projections", "patch(projections=True)", "patched(projections=True)"):
            assert text in str(raised.value)
        assert type(model) is before and not self.is_looked_at(passes)


def test_gradients_are_not_changed():
    layer = linear(32)

    def loss(x):
        return layer(norm(x)).sum()

    stock = mx.grad(loss)(row())
    with mlx_norms.patched(projections=True):
        ours = mx.grad(loss)(row())
        mx.eval(ours)
    assert mx.allclose(ours, stock, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
def test_generated_tokens(name, bits, fuses):
    model = _tiny_models.build(name)
    if bits:
        nn.quantize(model, group_size=32, bits=bits)
        mx.eval(model.parameters())
    prompt = tokens(name, 8)

    generated = functools.partial(generated_tokens, model, prompt, 8)

    stock = generated()
    with mlx_norms.patched(projections=True):
        assert generated() == stock
        count = mlx_norms.report().projections
    # Two in a layer, of each token but the first; and the last norm, before the head.
    assert count >= fuses * 8 * 2 * len(model.layers)
    assert fuses or not count


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name, bits, norms",
    [("llama", None, 0), ("qwen3", None, 0), ("gemma2", None, 2), ("llama", 4, 0)],
)
def test_launches_of_a_layer(name, bits, norms):
    """One for q, k, v and the norm before them; one for gate, up, that norm and their product.

    qwen3's norms of queries and keys are one launch with their ropes.
    """
    model = launches.build(name, bits, {}, mx.float32)
    patched, projections = (
        launches.of_layers(model, 1, launches.SIDES[side]) for side in ("patched", "projections")
    )
    product = "QuantizedMatmul" if bits else "Matmul"
    assert projections["mlx_norms::NormLinear"] == 2
    assert patched[product] - projections[product] == 5
    assert projections["mlx_norms::AddRMSNorm"] + projections["mlx_norms::RMSNorm"] == norms
    assert projections["mlx_norms::NormRope"] == (name == "qwen3")
    gelu = name == "gemma2"  # whose gate is a launch of its own
    assert patched.total() - projections.total() == 6 - gelu


def test_a_cache_is_not_computed_twice(fuses):
    """Who holds keys and values holds those of the fused node."""
    model = _tiny_models.build("llama")
    cache = make_prompt_cache(model)
    with mlx_norms.patched(projections=True):
        mx.eval(model(tokens("llama", 1)[None], cache=cache))
        before = mlx_norms.report().projections
        assert before == fuses * (2 * len(model.layers) + 1)
        mx.eval([c.state for c in cache])
        assert mlx_norms.report().projections == before
