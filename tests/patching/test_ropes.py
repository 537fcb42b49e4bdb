"""Norms of queries and keys that a pass makes one node with the rope after them, and only those."""

import gc
import threading

import mlx.core as mx
import pytest

import mlx_norms
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES
from support.patched_runs import (
    ALONE,
    WITH_OTHERS,
    assert_close,
    operations,
    run_patched,
    run_stock,
)
from support.rope_case import Case, tensors

pytestmark = pytest.mark.usefixtures("backend")

B, L, H, D = 2, 5, 4, 32
EPS = 1e-6
PLAIN = dict(traditional=False, base=10000.0, scale=1.0, offset=3)
NODE = "mlx_norms::NormRope"


@pytest.fixture
def case(request):
    """Makes a case of options, for the backend in use."""
    gpu = request.config.getoption("--backend") != "cpu"
    return lambda **options: Case(dict(eps=EPS, **options), gpu)


@pytest.fixture(scope="module", autouse=True)
def arrays(backend):
    """q, k and their weights, made on the device under test."""
    global Q, K, QW, KW
    Q, K, QW, KW = tensors((B, L, H, D), mx.float32, kv_heads=2)
    mx.eval(Q, K, QW, KW)


def over_heads(a):
    """A sum with weights: MLX's gradient of a rope misreads a broadcast cotangent on CUDA."""
    return (a * normal(a.shape, mx.float32, seed=9)).sum(1)


def tokens_first(x, weight):
    """As qwen3: the norm of what is then transposed."""
    return mx.fast.rms_norm(x, weight, EPS).transpose(0, 2, 1, 3)


def heads_first(x, weight):
    """As gemma3: what is transposed is normalized."""
    return mx.fast.rms_norm(x.transpose(0, 2, 1, 3), weight, EPS)


FORMS = [tokens_first, heads_first]


def rope(x, dims=None, **options):
    return mx.fast.rope(x, dims or x.shape[-1], **(PLAIN | options))


def q_and_k(q, k, q_weight, k_weight, form=tokens_first, **options):
    q, k = form(q, q_weight), form(k, k_weight)
    return rope(q, **options), rope(k, **options)


def pair(form=tokens_first, **options):
    return q_and_k(Q, K, QW, KW, form, **options)


def are_ours(report, ropes, pairs=0):
    __tracebackhide__ = True
    assert (report.ropes, report.rope_pairs) == (ropes, pairs), report


def is_mlx_s(f):
    """Whether f() ropes apart from its norm, as MLX, and gives what it gives without a patch."""
    __tracebackhide__ = True
    results, report = run_patched(f)
    are_ours(report, 0)
    assert_close(results, run_stock(f))


OPTIONS = [
    {},
    dict(traditional=True),
    dict(dims=D // 2),
    dict(scale=0.25, base=500000.0),
    dict(offset=mx.array(7)),
    dict(offset=mx.array([-2])),
    dict(offset=mx.array([-3, 4])),
    dict(offset=mx.array([-3, 4], mx.int64)),
    dict(base=None, freqs=mx.arange(1, D // 2 + 1, dtype=mx.float32)),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options))
def test_one_node_of_q_and_k(case, form, options):
    """Within the op's bounds, on the CPU with the bits of a norm, a transpose and MLX's rope."""
    with mlx_norms.patched():
        q, k = pair(form, **options)
        are_ours(mlx_norms.report(), 0)
        found = operations(q, k)
        assert operations(q) == operations(k) == found
        assert found[NODE] == 1 and found["Transpose"] == 0
        assert not any(name.endswith(("RMSNorm", "RoPE", "::Rope")) for name in found)
        are_ours(mlx_norms.report(), 2, 1)
    numbers = case(**(PLAIN | options | dict(dims=options.get("dims", D))))
    numbers.truth(Q, QW).check(q)
    numbers.truth(K, KW).check(k)
    if not numbers.gpu:
        for got, x, weight in ((q, Q, QW), (k, K, KW)):
            y = mlx_norms.rms_norm(x, weight, EPS).transpose(0, 2, 1, 3)
            assert_same_bits(got, rope(y, **options))


@pytest.mark.backends("cpu")
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options))
def test_a_rope_alone(options):
    """A node of ours, whether a pass is made or not, with the bits of MLX's operations."""
    for dtype in DTYPES:
        x = Q.transpose(0, 2, 1, 3).astype(dtype)
        expected = rope(x, **options)
        mx.eval(x, expected)
        for fuse in (True, False):
            with mlx_norms.patched(fuse=fuse):
                y = rope(x, **options)
                assert operations(y)["mlx_norms::Rope"] == 1
                mx.eval(y)
                are_ours(mlx_norms.report(), 0)
            assert_same_bits(y, expected)


def test_dtypes(case):
    for dtype in DTYPES:
        q, k, q_weight, k_weight = tensors((B, L, H, D), dtype, kv_heads=2)
        with mlx_norms.patched():
            results = q_and_k(q, k, q_weight, k_weight)
            mx.eval(results)
            are_ours(mlx_norms.report(), 2, 1)
        for y, x, weight in zip(results, (q, k), (q_weight, k_weight), strict=True):
            assert y.dtype == dtype
            case(**PLAIN).truth(x, weight).check(y)


@pytest.mark.parametrize("weights", [False, True])
def test_without_weights_and_with_those_less_one(case, weights):
    """1 + w is rounded where the result is."""
    q, k, q_weight, k_weight = tensors((B, L, H, D), mx.bfloat16)

    def f():
        if weights:
            return q_and_k(q, k, 1 + q_weight, 1 + k_weight)
        return q_and_k(q, k, None, None)

    (y, _), report = run_patched(f)
    are_ours(report, 2, 1)
    assert report.offsets == 2 * weights
    if weights:
        case(weight_offset=1.0, **PLAIN).truth(q, q_weight).check(y)
    else:
        case(**PLAIN).truth(q).check(y)


def test_one_token_and_packed_heads(case):
    packed = normal((B, 1, 3 * H, D), mx.float32, seed="packed")

    def f():
        return q_and_k(packed[:, :, :H], packed[:, :, H : 2 * H], QW, KW)

    results, report = run_patched(f)
    are_ours(report, 2, 1)
    case(**PLAIN).truth(packed[:, :, :H], QW).check(results[0])
    case(**PLAIN).truth(packed[:, :, H : 2 * H], KW).check(results[1])


def test_a_layer_of_a_model():
    """Pending projections of one pending input."""
    h = normal((B, L, 64), mx.float32, seed="h")
    wq, wk = (normal((64, n * D), mx.float32, seed=n, std=0.1) for n in (H, 2))

    def f():
        x = mx.tanh(h)
        q, k = (x @ w for w in (wq, wk))
        q, k = q_and_k(q.reshape(B, L, H, D), k.reshape(B, L, 2, D), QW, KW)
        return q, k, mx.repeat(k, 2, axis=1) * q

    results, report = run_patched(f)
    are_ours(report, 2, 1)
    assert_close(results, run_stock(f))


def test_by_fuse():
    """Its pass alone takes them, before anything is evaluated."""
    with mlx_norms.patched(fuse=False):
        results = mlx_norms.fuse(pair)()
        are_ours(mlx_norms.report(), 2, 1)
    assert_close(results, run_stock(pair))


def test_a_sum_before_the_norm():
    """It is computed first: the norm goes with its rope."""

    def f():
        return rope(tokens_first(Q + Q, QW))

    results, report = run_patched(f)
    are_ours(report, 1)
    assert (report.fused, report.reasons) == (0, {WITH_OTHERS: 1})
    assert_close(results, run_stock(f))


class TestLeftToMlx:
    def test_without_fusion(self):
        results, report = run_patched(pair, fuse=False)
        are_ours(report, 0)
        assert report.reasons == {ALONE: 2}
        assert_close(results, run_stock(pair))

    def test_layer_norms(self):
        def f():
            y = mx.fast.layer_norm(Q, QW, None, EPS)
            return rope(y.transpose(0, 2, 1, 3))

        is_mlx_s(f)

    def test_biases(self):
        def f():
            y = mlx_norms.layer_norm(Q, QW, QW, EPS)
            return rope(y.transpose(0, 2, 1, 3))

        is_mlx_s(f)

    def test_results_of_another_dtype(self):
        """Two dtypes make float32."""
        q = Q.astype(mx.bfloat16)
        is_mlx_s(lambda: rope(tokens_first(q, QW)))
        is_mlx_s(lambda: rope(tokens_first(q.astype(mx.float32), QW)))

    def test_a_weight_for_each_head(self):
        """Heads before tokens, so many that a weight of [H, D] is one of [L, D] as well."""
        x, weights = Q[:, :H], normal((H, D), mx.float32, seed="weights")
        is_mlx_s(lambda: rope(mlx_norms.rms_norm(x.transpose(0, 2, 1, 3), weights, EPS)))

    def test_other_axes(self):
        for axes in ((0, 1, 2, 3), (1, 2, 0, 3), (2, 0, 1, 3), (0, 3, 2, 1)):
            is_mlx_s(lambda axes=axes: rope(mx.fast.rms_norm(Q, QW, EPS).transpose(axes), 4))
        is_mlx_s(lambda: rope(mx.fast.rms_norm(Q, QW, EPS)))
        is_mlx_s(lambda: rope(mx.fast.rms_norm(Q[0], QW, EPS).transpose(1, 0, 2)))

    def test_what_has_no_inputs(self, tmp_path):
        mx.save(str(tmp_path / "a.npy"), Q)
        is_mlx_s(lambda: rope(mx.load(str(tmp_path / "a.npy"))))

    def test_something_between(self):
        is_mlx_s(lambda: rope(2 * tokens_first(Q, QW)))
        is_mlx_s(lambda: rope(tokens_first(Q, QW)[:, :, 1:]))
        is_mlx_s(lambda: rope(2 * mx.fast.rms_norm(Q, QW, EPS).transpose(0, 2, 1, 3)))

    def test_evaluated_before(self):
        def f():
            y = tokens_first(Q, QW)
            mx.eval(y)
            return rope(y)

        is_mlx_s(f)

    def test_another_stream(self):
        s = mx.new_stream(mx.default_device())
        is_mlx_s(lambda: rope(tokens_first(Q, QW), stream=s))

    def test_norms_used_elsewhere_are_computed_once(self):
        def norm():
            n = mx.fast.rms_norm(Q, QW, EPS)
            return n, rope(n.transpose(0, 2, 1, 3))

        def transpose():
            t = tokens_first(Q, QW)
            return t * 2, rope(t)

        def heads():
            n = heads_first(Q, QW)
            return n * 2, rope(n)

        for f in (norm, transpose, heads):
            is_mlx_s(f)
            with mlx_norms.patched():
                assert operations(*f())["mlx_norms::RMSNorm"] == 1

    def test_used_later(self):
        """Whether the rope is evaluated before that or not: a variable holds what is used.

        On a GPU, where MLX's rope has other roundings, that is computed as well.
        """

        def f(is_first):
            t = tokens_first(Q, QW)
            q = rope(t)
            if is_first:
                mx.eval(q)
            return q, t * 2

        is_mlx_s(lambda: f(is_first=False))
        if mx.default_device() == mx.cpu:
            is_mlx_s(lambda: f(is_first=True))

    def test_wrong_arguments(self):
        for options in (
            dict(base=None),
            dict(freqs=mx.ones(D // 2)),
            dict(base=None, freqs=mx.ones(3)),
            dict(offset=mx.array(1.5)),
            dict(offset=True),
            dict(offset=mx.array([1, 2, 3])),
            dict(scale="x"),
            dict(dims="x"),
            dict(by=3),
        ):
            with pytest.raises((ValueError, TypeError)) as stock:
                rope(tokens_first(Q, QW), **options)
            with mlx_norms.patched(), pytest.raises(stock.type) as error:
                rope(tokens_first(Q, QW), **options)
            assert str(error.value) == str(stock.value)

    def test_what_is_no_array(self):
        for arguments in ((), (None, 4), ([1.0], 4)):
            with pytest.raises(TypeError) as stock:
                mx.fast.rope(*arguments, **PLAIN)
            with mlx_norms.patched(), pytest.raises(TypeError) as error:
                mx.fast.rope(*arguments, **PLAIN)
            assert str(error.value) == str(stock.value)


class TestPairs:
    @pytest.mark.parametrize("first", [0, 1])
    def test_one_evaluated_alone(self, first):
        """The other one is in no graph that is passed over then."""

        def f():
            both = pair()
            mx.eval(both[first])
            return both

        self.is_apart(f)

    def test_one_dropped(self):
        for i in (0, 1):
            self.is_apart(lambda i=i: pair()[i], 1)

    def is_apart(self, f, ropes=2):
        results, report = run_patched(f)
        are_ours(report, ropes)
        assert_close(results, run_stock(f))

    @pytest.mark.parametrize("steps", [0, 1, 20, 50])
    def test_k_computed_from_q(self, steps):
        def f():
            q = x = rope(tokens_first(Q, QW))
            for _ in range(steps):
                x = mx.tanh(x)
            return q, rope(tokens_first(x.transpose(0, 2, 1, 3), KW))

        self.is_apart(f)

    def test_weight_computed_from_q(self):
        def f():
            q = rope(tokens_first(Q, QW))
            return q, rope(tokens_first(K, KW + q[0, 0, 0]))

        self.is_apart(f)

    def test_offset_computed_from_q(self):
        def f():
            q = rope(tokens_first(Q, QW), offset=mx.array(2))
            return q, rope(tokens_first(K, KW), offset=(q[0, 0, 0, 0] * 0).astype(mx.int32) + 2)

        self.is_apart(f)

    def test_an_input_by_many_operations(self):
        def f():
            x = K
            for _ in range(300):
                x = x + 1
            return rope(tokens_first(Q, QW)), rope(tokens_first(x, KW))

        self.is_apart(f)

    @pytest.mark.parametrize(
        "other",
        [
            dict(offset=4),
            dict(offset=mx.array(4)),
            dict(scale=2.0),
            dict(base=20000.0),
            dict(traditional=True),
            dict(dims=D // 2),
            dict(base=None, freqs=mx.ones(D // 2)),
        ],
        ids=str,
    )
    def test_other_options(self, other):
        self.is_apart(lambda: (rope(tokens_first(Q, QW)), rope(tokens_first(K, KW), **other)))

    def test_an_offset_in_an_array_of_its_value(self):
        def f():
            return rope(tokens_first(Q, QW)), rope(tokens_first(K, KW), offset=mx.array(3))

        results, report = run_patched(f)
        are_ours(report, 2, 1)
        assert_close(results, run_stock(f))

    def test_offsets_and_frequencies_of_one_value(self):
        """Those of several numbers are compared as arrays, not by what is in them."""

        def f(first, second):
            return rope(tokens_first(Q, QW), **first), rope(tokens_first(K, KW), **second)

        def offsets():
            return [dict(offset=mx.array([1, 2])) for _ in range(2)]

        def frequencies():
            return [dict(base=None, freqs=mx.ones(D // 2)) for _ in range(2)]

        for options in (offsets, frequencies):
            self.is_apart(lambda options=options: f(*options()))

    def test_an_offset_that_is_counted_up(self):
        """Another array then has the name, and the memory of the first one may be taken."""

        def f():
            offset = mx.array([1, 2])
            q = rope(tokens_first(Q, QW), offset=offset)
            offset += 1
            return q, rope(tokens_first(K, KW), offset=offset)

        self.is_apart(f)

    def test_other_shapes_norms_and_dtypes(self):
        first = (Q, QW, EPS)
        others = [
            (K[:1], KW, EPS),
            (K[:, 1:], KW, EPS),
            (K[..., : D // 2], KW[: D // 2], EPS),
            (K, KW, 2 * EPS),
            (K, None, EPS),
            (K.astype(mx.float16), KW.astype(mx.float16), EPS),
        ]
        for other in others:

            def f(other=other):
                both = [mx.fast.rms_norm(*each).transpose(0, 2, 1, 3) for each in (first, other)]
                return [rope(x, 16) for x in both]

            self.is_apart(f)

    def test_q_evaluated_before(self):
        def f():
            q = rope(tokens_first(Q, QW))
            mx.eval(q)
            return q, rope(tokens_first(K, KW))

        self.is_apart(f)

    def test_three(self):
        """The third one begins another pair, if there is a fourth."""

        def f(n):
            return [*pair(), *pair()][:n]

        for n in (3, 4):
            results, report = run_patched(lambda n=n: f(n))
            are_ours(report, n, n // 2)
            assert_close(results, run_stock(lambda n=n: f(n)))

    def test_another_thread(self):
        """What is evaluated there takes no part of what is pending here."""
        results = []

        def f():
            k = rope(tokens_first(K, KW))
            mx.eval(k)  # of a stream of this thread
            results.append(k)

        def both():
            results.append(rope(tokens_first(Q, QW)))
            thread = threading.Thread(target=f)
            thread.start()
            thread.join()
            mx.eval(results[0])

        mlx_norms.patch()
        try:
            both()
            are_ours(mlx_norms.report(), 2)
        finally:
            mlx_norms.unpatch()
        patched = list(results)
        results.clear()
        both()
        assert_close(patched, results)

    def test_two_threads_at_once(self):
        expected = run_stock(pair)
        wrong = []

        def f():
            for _ in range(50):
                q, k = pair()
                mx.eval(q, k)
                for got, should in zip((q, k), expected, strict=True):
                    if not mx.allclose(got, should, atol=1e-4).item():
                        wrong.append(got)

        mlx_norms.patch()
        try:
            threads = [threading.Thread(target=f) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            are_ours(mlx_norms.report(), 200, 100)
        finally:
            mlx_norms.unpatch()
        assert not wrong

    def test_they_go_when_nobody_holds_them(self):
        def run():
            with mlx_norms.patched():
                pair()
                q, k = pair()
                mx.eval(q)
                del q, k
                q, k = pair()
                mx.eval(q, k)
                rope(tokens_first(Q, QW))

        run()
        gc.collect()
        mx.clear_cache()
        before = mx.get_active_memory()
        for _ in range(20):
            run()
        gc.collect()
        assert mx.get_active_memory() == before


class TestTransforms:
    """The parameters, and what they are of."""

    def is_the_same(self, f, ropes, pairs):
        results, report = run_patched(f)
        are_ours(report, ropes, pairs)
        assert_close(results, run_stock(f))

    @pytest.mark.parametrize("shapeless", [False, True])
    def test_compile(self, shapeless):
        def f():
            compiled = mx.compile(lambda x: q_and_k(x * 2, x, QW, KW), shapeless=shapeless)
            return compiled(Q), compiled(Q * 3), compiled(Q[:, :3] if shapeless else Q)

        self.is_the_same(f, 2, 1)

    def test_compile_of_parameters(self):
        """No argument depends on the other."""
        self.is_the_same(lambda: mx.compile(q_and_k)(Q, K, QW, KW), 2, 1)

    def test_compile_of_an_offset(self):
        def f():
            compiled = mx.compile(lambda x, offset: q_and_k(x * 2, x, QW, KW, offset=offset))
            # None is negative: MLX's rope on CUDA is wrong there.
            return [compiled(Q, mx.array(offset)) for offset in (0, 5, 2)]

        self.is_the_same(f, 2, 1)

    def test_what_a_compiled_function_is_made_of_stays(self):
        """A node of its graph is not extended from outside."""

        def f():
            compiled = mx.compile(lambda x: rope(tokens_first(x, QW)))
            constant = mx.compile(lambda x: x + rope(tokens_first(Q, QW)))
            y = Q.transpose(0, 2, 1, 3)
            first = compiled(Q), constant(y)
            second = rope(tokens_first(K, KW))
            mx.eval(second)
            return first, second, compiled(Q + 1), constant(y + 1)

        self.is_the_same(f, 3, 0)

    def test_a_constant_in_a_compiled_function(self):
        """It becomes no part of a node of outside, nor of another function's."""

        def f():
            q = rope(tokens_first(Q, QW))
            functions = [mx.compile(lambda x, w=w: x + rope(tokens_first(K, w))) for w in (KW, QW)]
            y = mx.ones((B, 2, L, D))
            return q, [g(y) for g in functions], [g(y + 1) for g in functions]

        self.is_the_same(f, 3, 0)

    def test_grad_of_all(self):
        def loss(q, k, q_weight, k_weight):
            q, k = q_and_k(q, k, q_weight, k_weight)
            return (over_heads(mx.tanh(q)) * over_heads(k)).sum()

        self.is_the_same(lambda: mx.grad(loss, argnums=(0, 1, 2, 3))(Q, K, QW, KW), 2, 1)

    @pytest.mark.parametrize("of", [(0,), (1,), (2,), (3,), (0, 2), (0, 1), (2, 3)])
    def test_grad_of_some(self, of):
        """What nothing is asked of joins what is traced."""

        def loss(*traced):
            given = [Q, K, QW, KW]
            for i, x in zip(of, traced, strict=True):
                given[i] = x
            q, k = q_and_k(*given)
            return (over_heads(mx.tanh(q)) * over_heads(k)).sum()

        def f():
            traced = [(Q, K, QW, KW)[i] for i in of]
            return mx.grad(loss, argnums=tuple(range(len(of))))(*traced)

        self.is_the_same(f, 2, 1)

    def test_grad_of_k_with_q_of_outside(self):
        """q stays as it is."""

        def f():
            q = rope(tokens_first(Q, QW))
            g = mx.grad(lambda k: (over_heads(q) * over_heads(rope(tokens_first(k, KW)))).sum())
            return g(K), q

        self.is_the_same(f, 2, 0)

    def test_grad_of_grad(self):
        def loss(x):
            q, k = q_and_k(x, x, QW, KW)
            return (mx.tanh(q) * k).sum()

        self.is_the_same(lambda: mx.grad(lambda x: mx.grad(loss)(x).square().sum())(Q), 2, 1)

    def test_grad_of_an_inner_function(self):
        """Its norm has a gradient before the outer pass, and stays alone."""

        def f():
            def outer(x):
                q = rope(tokens_first(x, QW))
                g = mx.grad(lambda k: (over_heads(q) * over_heads(rope(tokens_first(k, KW)))).sum())
                return (g(x[:, :, :2]) * x[:, :, :2]).sum() + over_heads(q).sum()

            return mx.grad(outer)(Q)

        self.is_the_same(f, 1, 0)

    @pytest.mark.parametrize(
        "axes, ropes",
        [((0, 0, None, None), 0), ((None, 0, None, None), 1), ((1, 0, None, 0), 0)],
        ids=str,
    )
    def test_vmap(self, axes, ropes):
        """A mapped rope has five axes, and is left: q, if it is not mapped, has four."""
        q, k = (
            mx.stack([x, 2 * x, x + 1], axis or 0) for x, axis in zip((Q, K), axes, strict=False)
        )
        given = [
            Q if axes[0] is None else q,
            k,
            QW,
            KW if axes[3] is None else mx.stack([KW, KW + 1, 2 * KW]),
        ]
        mx.eval(given)
        self.is_the_same(lambda: mx.vmap(q_and_k, in_axes=axes)(*given), ropes, 0)

    def test_vmap_within_vmap(self):
        """k belongs to the inner one, q to the outer one."""

        def outer(q):
            q = rope(tokens_first(q, QW))
            inner = mx.vmap(lambda k: rope(tokens_first(k, KW)).sum(1))
            return q + inner(mx.stack([K, K + 1])).sum((0,))[:, None]

        def f():
            return mx.vmap(outer)(mx.stack([Q, 2 * Q, Q - 1]))

        self.is_the_same(f, 0, 0)

    def test_vmap_of_what_k_is_made_of(self):
        def f():
            q = rope(tokens_first(Q, QW))
            k = mx.vmap(lambda k: rope(tokens_first(k, KW)))(mx.stack([K, K + 1]))
            return q, k

        self.is_the_same(f, 1, 0)

    def test_checkpoint(self):
        """Those that are computed again stay apart."""

        def block(x):
            q, k = q_and_k(x, mx.tanh(x), QW, KW)
            return q * k

        def f():
            return mx.value_and_grad(lambda x: mx.checkpoint(block)(x).sum())(Q)

        self.is_the_same(f, 4, 1)

    def test_a_compiled_training_step(self):
        def loss(q_weight, k_weight):
            q, k = q_and_k(Q, K, q_weight, k_weight)
            return (over_heads(mx.tanh(q)) * over_heads(k)).sum()

        step = mx.compile(mx.value_and_grad(loss, argnums=(0, 1)))
        results, report = run_patched(lambda: step(QW, KW))
        are_ours(report, 2, 1)
        assert_close(results, run_stock(lambda: mx.value_and_grad(loss, argnums=(0, 1))(QW, KW)))


def test_the_report_says_it():
    _, report = run_patched(pair)
    assert "2 computed with the rope after them, 1 pairs at once" in str(report)
    assert "rope" not in str(run_patched(lambda: mx.fast.rms_norm(Q, QW, EPS))[1])
