"""Where a patch acts: attributes replaced and put back, blocks, threads, tasks and generators."""

import asyncio
import contextlib
import contextvars
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import mlx.nn
import pytest

import mlx_norms
from mlx_norms import _ext
from mlx_norms.patching import replaced
from support import hangs
from support.inputs import normal
from support.patched_runs import DIMS, EPS, FUNCTIONS, METHODS, ROWS, operations

pytestmark = pytest.mark.usefixtures("backend")

STOCK = [getattr(module, name) for module, name in FUNCTIONS]
STOCK_METHODS = [getattr(cls, name) for cls, name in METHODS]

# What the norm of a pending sum is made of.
UNFUSED = {"Add": 1, "mlx_norms::RMSNorm": 1}
FUSED = {"mlx_norms::AddRMSNorm": 1}


def attributes():
    return [getattr(module, name) for module, name in FUNCTIONS]


def methods():
    return [getattr(cls, name) for cls, name in METHODS]


def same(attributes, others):
    return all(a is b for a, b in zip(attributes, others, strict=True))


@pytest.fixture(autouse=True)
def everything_is_put_back():
    scopes_open = _ext.scopes_changed(0)
    yield
    mlx_norms.unpatch()
    left = attributes()
    for (module, name), function in zip(FUNCTIONS, STOCK, strict=True):
        setattr(module, name, function)
    assert same(left, STOCK)
    assert same(methods(), STOCK_METHODS)
    assert _ext.scopes_changed(0) == scopes_open  # or each call looks for its scope


@pytest.fixture(scope="module", autouse=True)
def array(backend):
    """x, which all threads may use as it has been evaluated."""
    global x
    x = normal((ROWS, DIMS), mx.float32, seed="x")
    mx.eval(x)


def norm_of_sum(norm=None):
    """What a patch makes of a sum and its norm: STOCK's operations, UNFUSED or FUSED."""
    norm = norm or mx.fast.rms_norm
    n = norm(x + x, None, EPS)
    return operations(n)


def stock_operations():
    return operations(STOCK[0](x + x, None, EPS))


class TestProcess:
    def test_attributes_are_replaced_and_put_back(self):
        mlx_norms.patch()
        assert not any(a is b for a, b in zip(attributes(), STOCK, strict=True))
        assert norm_of_sum() == FUSED
        mlx_norms.unpatch()
        assert same(attributes(), STOCK)
        assert norm_of_sum() == stock_operations()

    def test_replacements_are_called_as_what_they_replace(self):
        names = [(f.__name__, f.__doc__) for f in STOCK + STOCK_METHODS]
        mlx_norms.patch()
        assert [(f.__name__, f.__doc__) for f in attributes() + methods()] == names

    def test_methods_are_replaced_once(self):
        """Not by each block: Python 3.13 slows a type for good after a thousand changes."""
        with mlx_norms.patched():
            once = methods()
            assert not any(a is b for a, b in zip(once, STOCK_METHODS, strict=True))
        assert same(methods(), once)
        assert (x[0, 0].item(), (x + x).tolist()) == (x.tolist()[0][0], (2 * x).tolist())
        with mlx_norms.patched():
            assert same(methods(), once)
        mlx_norms.patch()
        assert same(methods(), once)
        mlx_norms.unpatch()
        assert same(methods(), STOCK_METHODS)

    def test_methods_are_set_once(self, monkeypatch):
        """Not even to what is there already, which Python 3.13 counts as a change."""
        seen = []

        def setting(owner, name, value):
            if isinstance(owner, type):
                seen.append((owner, name))
            setattr(owner, name, value)

        mlx_norms.unpatch()
        monkeypatch.setattr(replaced, "setattr", setting, raising=False)
        fused = mlx_norms.fuse(norm_of_sum)
        for _ in range(3):
            with mlx_norms.patched(), mlx_norms.patched(fuse=False):
                fused()
            fused()
        mlx_norms.patch()
        mlx_norms.patch()
        assert seen == METHODS
        mlx_norms.unpatch()
        assert seen == METHODS * 2

    def test_is_patched(self):
        def of_another_thread():
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(mlx_norms.is_patched).result()

        assert not mlx_norms.is_patched()
        mlx_norms.patch()
        assert mlx_norms.is_patched() and of_another_thread()
        mlx_norms.unpatch()
        assert not mlx_norms.is_patched()
        with mlx_norms.patched():
            assert mlx_norms.is_patched() and not of_another_thread()
        assert not mlx_norms.is_patched()

    def test_twice(self):
        mlx_norms.patch()
        once = attributes()
        mlx_norms.patch()
        assert same(attributes(), once)
        mlx_norms.unpatch()
        assert same(attributes(), STOCK)
        mlx_norms.unpatch()
        assert same(attributes(), STOCK)

    def test_unpatch_of_what_is_not_patched(self):
        mlx_norms.unpatch()
        assert norm_of_sum() == stock_operations()

    def test_the_last_patch_holds(self):
        mlx_norms.patch(fuse=False)
        assert norm_of_sum() == UNFUSED
        mlx_norms.patch()
        assert norm_of_sum() == FUSED

    def test_other_threads(self):
        started, may_call = threading.Event(), threading.Event()
        seen = {}

        def earlier():
            started.set()
            may_call.wait()
            seen["earlier"] = norm_of_sum()

        def later():
            seen["later"] = norm_of_sum()

        thread = threading.Thread(target=earlier)
        thread.start()
        started.wait()
        mlx_norms.patch()
        may_call.set()
        thread.join()
        thread = threading.Thread(target=later)
        thread.start()
        thread.join()
        assert seen == {"earlier": FUSED, "later": FUSED}


class TestImported:
    """Functions that were looked up once, as by ``from mlx.core.fast import rms_norm``."""

    def test_before(self):
        imported = mx.fast.rms_norm
        mlx_norms.patch()
        assert norm_of_sum(imported) == stock_operations()

    def test_while_patched(self):
        mlx_norms.patch()
        imported = mx.fast.rms_norm
        assert norm_of_sum(imported) == FUSED
        mlx_norms.unpatch()
        assert norm_of_sum(imported) == stock_operations()
        mlx_norms.patch(fuse=False)
        assert norm_of_sum(imported) == UNFUSED

    def test_within_a_block(self):
        with mlx_norms.patched():
            imported = mx.fast.rms_norm
        assert norm_of_sum(imported) == stock_operations()
        with mlx_norms.patched():
            assert norm_of_sum(imported) == FUSED


class TestReplacedBySomebodyElse:
    @staticmethod
    def other(calls):
        inner = mx.fast.rms_norm

        def rms_norm(*args, **kwargs):
            calls.append(args)
            return inner(*args, **kwargs)

        return rms_norm

    def test_meanwhile(self):
        """Their function stays, and what it calls of ours is mx.fast's again."""
        calls = []
        mlx_norms.patch()
        mx.fast.rms_norm = mine = self.other(calls)
        assert norm_of_sum() == FUSED
        with pytest.warns(UserWarning, match="mlx.core.fast.rms_norm has been replaced"):
            mlx_norms.unpatch()
        assert mx.fast.rms_norm is mine
        assert mx.fast.layer_norm is STOCK[1]
        assert norm_of_sum() == stock_operations()
        assert len(calls) == 2
        mx.fast.rms_norm = STOCK[0]

    def test_before(self):
        """Theirs stays, and is called."""
        calls = []
        mx.fast.rms_norm = mine = self.other(calls)
        with warnings.catch_warnings(), mlx_norms.patched():
            warnings.simplefilter("error")
            assert mx.fast.rms_norm is mine
            assert norm_of_sum() == stock_operations()
            assert len(calls) == 1
        assert mx.fast.rms_norm is mine
        mx.fast.rms_norm = STOCK[0]

    def test_and_put_back(self):
        before = mx.fast.rms_norm
        with warnings.catch_warnings(), mlx_norms.patched():
            warnings.simplefilter("error")
            ours = mx.fast.rms_norm
            mx.fast.rms_norm = before
            assert norm_of_sum() == stock_operations()
            mx.fast.rms_norm = ours
            assert norm_of_sum() == FUSED


class TestBlocks:
    def test_acts_within(self):
        with mlx_norms.patched() as nothing:
            assert nothing is None
            assert norm_of_sum() == FUSED
        assert norm_of_sum() == stock_operations()

    def test_without_fusion(self):
        with mlx_norms.patched(fuse=False):
            assert norm_of_sum() == UNFUSED

    def test_innermost_holds(self):
        with mlx_norms.patched():
            with mlx_norms.patched(fuse=False):
                assert norm_of_sum() == UNFUSED
                with mlx_norms.patched():
                    assert norm_of_sum() == FUSED
                assert norm_of_sum() == UNFUSED
            assert norm_of_sum() == FUSED

    def test_inside_of_a_patched_process(self):
        mlx_norms.patch(fuse=False)
        with mlx_norms.patched():
            assert norm_of_sum() == FUSED
        assert norm_of_sum() == UNFUSED
        mlx_norms.unpatch()
        assert same(attributes(), STOCK)

    def test_holds_over_what_happens_to_the_process_inside(self):
        with mlx_norms.patched():
            mlx_norms.patch(fuse=False)
            assert norm_of_sum() == FUSED
            mlx_norms.unpatch()
            assert norm_of_sum() == FUSED
        assert same(attributes(), STOCK)

    def test_overlaps_with_a_patch_of_the_process(self):
        with mlx_norms.patched():
            mlx_norms.patch(fuse=False)
        assert norm_of_sum() == UNFUSED

    def test_exceptions(self):
        with pytest.raises(KeyError), mlx_norms.patched():
            with pytest.raises(ValueError), mlx_norms.patched(fuse=False):
                raise ValueError
            assert norm_of_sum() == FUSED
            raise KeyError
        assert same(attributes(), STOCK)
        assert norm_of_sum() == stock_operations()

    def test_errors_of_mx_fast(self):
        with mlx_norms.patched():
            with pytest.raises(ValueError, match="rms_norm"):
                mx.fast.rms_norm(x, x, EPS)
            assert norm_of_sum() == FUSED

    def test_layers(self):
        layer = mlx.nn.RMSNorm(DIMS)
        mx.eval(layer.parameters())
        with mlx_norms.patched():
            assert operations(layer(x)) == {"mlx_norms::RMSNorm": 1}
        assert "mlx_norms::RMSNorm" not in operations(layer(x))

    def test_as_decorator(self):
        @mlx_norms.patched()
        def f():
            return norm_of_sum()

        assert f() == f() == FUSED
        assert norm_of_sum() == stock_operations()

    def test_is_entered_once(self):
        block = mlx_norms.patched()
        with block:
            pass
        with pytest.raises(RuntimeError, match="has been entered before"), block:
            pass
        assert same(attributes(), STOCK)

    def test_on_an_exit_stack(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(mlx_norms.patched())
            assert norm_of_sum() == FUSED
        assert same(attributes(), STOCK)

    def test_what_is_evaluated_after_the_block_is_not_fused(self):
        with mlx_norms.patched():
            h = x + x
            n = mx.fast.rms_norm(h, None, EPS)
        assert operations(h, n) == UNFUSED
        assert mx.array_equal(h, 2 * x)

    def test_what_was_built_before_the_block_is_fused(self):
        with mlx_norms.patched(fuse=False):
            n = mx.fast.rms_norm(x + x, None, EPS)
        with mlx_norms.patched():
            assert operations(n) == FUSED


class TestCompiled:
    def test_while_patched_stays_patched(self):
        with mlx_norms.patched():
            compiled = mx.compile(lambda a: mx.fast.rms_norm(a + a, None, EPS))
            compiled(x)
        assert operations(compiled(x)) == FUSED

    def test_by_mlx_s_own_compile_has_no_pass(self):
        compiled = mx.compile(lambda a: mx.fast.rms_norm(a + a, None, EPS))
        with mlx_norms.patched():
            compiled(x)
        assert operations(compiled(x)) == UNFUSED

    def test_before_stays_as_it_was(self, backend):
        """On a GPU its norm is a node of MLX's, which a pass takes."""
        compiled = mx.compile(lambda a: mx.fast.rms_norm(a + a, None, EPS))
        before = operations(compiled(x))
        with mlx_norms.patched():
            is_node = backend == "cuda"
            assert operations(compiled(x)) == (FUSED if is_node else before)


class TestThreads:
    def test_others_are_as_they_were(self):
        """Both threads have the patched attribute; one is in the block."""
        both = threading.Barrier(2, timeout=hangs.SECONDS)

        def inside():
            with mlx_norms.patched():
                both.wait()
                seen = norm_of_sum()
                both.wait()
            return seen

        def outside():
            both.wait()
            replaced = mx.fast.rms_norm is not STOCK[0]
            seen = norm_of_sum()
            both.wait()
            return replaced, seen

        with ThreadPoolExecutor(2) as pool:
            futures = pool.submit(inside), pool.submit(outside)
            assert futures[0].result() == FUSED
            assert futures[1].result() == (True, stock_operations())

    def test_started_inside_of_a_block(self):
        """A block holds in its own context only."""
        stock = stock_operations()
        with mlx_norms.patched(), ThreadPoolExecutor(1) as pool:
            assert pool.submit(norm_of_sum).result() == stock
            copy = contextvars.copy_context()
            assert pool.submit(copy.run, norm_of_sum).result() == FUSED

    def test_in_and_out_at_once(self):
        """Each thread sees its own block whatever the others do, and nothing is left."""
        kinds = [dict(fuse=True), dict(fuse=False), None, "process"]
        stock = stock_operations()

        def work(kind):
            wrong = []
            for _ in range(200):
                if kind == "process":
                    mlx_norms.patch()
                    mlx_norms.unpatch()
                    continue
                with mlx_norms.patched(**kind) if kind else contextlib.nullcontext():
                    seen = norm_of_sum()
                expected = [FUSED if kind["fuse"] else UNFUSED] if kind else [stock, FUSED, UNFUSED]
                if seen not in expected:
                    wrong.append(seen)
            return wrong

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            with ThreadPoolExecutor(8) as pool:
                assert list(pool.map(work, kinds * 2)) == [[]] * 8
        finally:
            sys.setswitchinterval(interval)
        assert same(attributes(), STOCK)

    def test_counts_of_all_threads(self):
        def work():
            with mlx_norms.patched():
                for _ in range(25):
                    mx.fast.rms_norm(x, None, EPS)

        with mlx_norms.patched():
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert mlx_norms.report().calls == 100


class TestTasks:
    def test_each_has_its_own(self):
        async def patched(**options):
            seen = []
            with mlx_norms.patched(**options):
                for _ in range(3):
                    await asyncio.sleep(0)
                    seen.append(norm_of_sum())
            return seen

        async def stock():
            seen = []
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append(norm_of_sum())
            return seen

        async def main():
            return await asyncio.gather(patched(), stock(), patched(fuse=False))

        expected = [[FUSED] * 3, [stock_operations()] * 3, [UNFUSED] * 3]
        assert asyncio.run(main()) == expected

    def test_started_inside_of_a_block(self):
        async def call():
            return norm_of_sum()

        async def main():
            with mlx_norms.patched():
                task = asyncio.create_task(call())
                return await task, await asyncio.to_thread(norm_of_sum)

        assert asyncio.run(main()) == (FUSED, FUSED)

    def test_that_outlives_its_block(self):
        """It has a copy of a context whose block is over."""

        async def call(may_call):
            await may_call.wait()
            return norm_of_sum()

        async def main():
            may_call = asyncio.Event()
            with mlx_norms.patched():
                task = asyncio.create_task(call(may_call))
                await asyncio.sleep(0)
            with mlx_norms.patched(fuse=False):  # the attribute is replaced again
                may_call.set()
                return await task

        assert asyncio.run(main()) == stock_operations()


class TestGenerators:
    """Their code runs in the context of whoever asks for the next value."""

    @staticmethod
    def generate(**options):
        with mlx_norms.patched(**options):
            while True:
                yield norm_of_sum()

    def test_acts_within(self):
        def run():
            generator = self.generate()
            assert [next(generator), next(generator)] == [FUSED, FUSED]
            generator.close()
            assert norm_of_sum() == stock_operations()

        contextvars.copy_context().run(run)

    @pytest.mark.parametrize("first", [0, 1])
    def test_closed_in_any_order(self, first):
        def run():
            generators = [self.generate(), self.generate(fuse=False)]
            for generator in generators:
                next(generator)
            generators.pop(first).close()
            assert norm_of_sum() == (UNFUSED if first == 0 else FUSED)
            generators.pop().close()
            assert same(attributes(), STOCK)
            with held():
                assert norm_of_sum() == stock_operations()

        contextvars.copy_context().run(run)

    def test_ends_between_calls_of_a_copy(self):
        """A copied context has the block that the other one closes, and calls before and after."""

        def run():
            generator = self.generate()
            next(generator)
            copy, norm = contextvars.copy_context(), mx.fast.rms_norm
            assert copy.run(norm_of_sum, norm) == FUSED
            generator.close()
            assert copy.run(norm_of_sum, norm) == stock_operations()

        contextvars.copy_context().run(run)

    def test_closed_in_another_context(self):
        def run():
            generator = self.generate()
            next(generator)
            contextvars.Context().run(generator.close)
            assert same(attributes(), STOCK)
            with held():
                assert norm_of_sum() == stock_operations()

        contextvars.copy_context().run(run)


@contextlib.contextmanager
def held():
    """Has the attributes replaced by a block of another thread, to see what holds in this one."""
    inside, done = threading.Event(), threading.Event()

    def hold():
        with mlx_norms.patched():
            inside.set()
            done.wait(hangs.SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(hangs.SECONDS)
    try:
        yield
    finally:
        done.set()
        thread.join()
