"""mlx_norms.warm_up runs a function here and now, and says which kernels that made ready."""

import subprocess
import sys
import threading

import mlx.core as mx
import mlx.nn as nn
import pytest

import mlx_norms
from harness.graph_nodes import nodes
from hostmetal.build import for_tests
from mlx_norms import _ext
from support import hangs
from support.inputs import normal

X, R, W = (normal(shape, mx.float32, seed=i) for i, shape in enumerate([(3, 64), (3, 64), (64,)]))


def add_and_norm(x, r, w):
    h = x + r
    return {"norm": [mx.fast.rms_norm(h, w, 1e-5)], "sum": h, "name": "a block"}


def test_what_it_returns_is_evaluated(backend):
    results = []

    def function(*arrays):
        results.append(add_and_norm(*arrays))
        return results[0]

    done = mlx_norms.warm_up(function, X, R, W)
    assert type(done) is mlx_norms.WarmUp and done == (done.kernels, done.seconds)
    assert done.seconds > 0 and (done.kernels == 0 or backend != "cpu")
    assert not nodes(results[0]["norm"][0], results[0]["sum"])
    assert mlx_norms.warm_up(function, X, R, W).kernels == 0


def test_a_module_and_no_arrays(backend):
    assert mlx_norms.warm_up(nn.RMSNorm(64), X).seconds > 0
    assert mlx_norms.warm_up(lambda: "a text").kernels == 0


def test_it_runs_in_the_scope_that_it_is_called_in(backend):
    with mlx_norms.patched():
        mlx_norms.warm_up(add_and_norm, X, R, W)
        assert (mlx_norms.report().calls, mlx_norms.report().fused) == (1, 1)
        written = lambda x: x * mx.rsqrt(x.square().mean(-1, keepdims=True) + 1e-5)  # noqa: E731
        mlx_norms.warm_up(written, X)  # which the pass of mx.eval finds
        assert mlx_norms.report().written == {"rms_norm": 1}
    with mlx_norms.patched():
        assert mlx_norms.report().calls == 0


class Compiler:
    """Kernels that were made ready, instead of the extension's list."""

    def __init__(self, monkeypatch):
        self.uses = [("before", 1.0)]
        monkeypatch.setattr(_ext, "first_uses", lambda seen=0: self.uses[seen:])


class Stream:
    """Says when a text has come."""

    def __init__(self):
        self.text, self.came = "", threading.Event()

    def write(self, text):
        self.text += text
        self.came.set()

    def flush(self):
        pass


@pytest.fixture
def compiler(monkeypatch):
    return Compiler(monkeypatch)


def test_a_kernel_is_shown_while_others_compile(compiler, monkeypatch):
    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)

    def function():
        compiler.uses.append(("norm_float32", 0.25))
        assert stream.came.wait(hangs.SECONDS)
        compiler.uses.append(("norm_bfloat16", 1.5))

    assert mlx_norms.warm_up(function).kernels == 2
    assert stream.text.splitlines() == [
        "mlx_norms: norm_float32 is ready, 0.25 s",
        "mlx_norms: norm_bfloat16 is ready, 1.50 s",
    ]


def test_nothing_is_shown(compiler, monkeypatch, capsys):
    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    mlx_norms.warm_up(lambda: None)
    assert mlx_norms.warm_up(lambda: compiler.uses.append(("k", 1.0)), progress=False).kernels == 1
    assert stream.text == ""
    monkeypatch.setattr(sys, "stderr", None)
    assert mlx_norms.warm_up(lambda: compiler.uses.append(("k", 1.0))).kernels == 1
    assert capsys.readouterr().out == ""


def test_what_is_no_function():
    with pytest.raises(TypeError, match=r"^\[warm_up\] function must be a .* but is array"):
        mlx_norms.warm_up(X, X)
    with pytest.raises(TypeError, match="returned a generator, which has not run"):
        mlx_norms.warm_up(lambda x: (x for _ in range(2)), X)

    async def function():
        raise AssertionError("not run")

    coroutines = []
    with pytest.raises(TypeError, match="returned a coroutine"):
        mlx_norms.warm_up(lambda: coroutines.append(function()) or coroutines[0])
    coroutines[0].close()


def test_errors_of_the_function_are_its_own():
    threads = threading.active_count()
    with pytest.raises(TypeError, match=r"^add_and_norm\(\) missing 1 required .* 'w'$"):
        mlx_norms.warm_up(add_and_norm, X, R)
    with pytest.raises(ValueError, match=r"^\[rms_norm\] "):
        mlx_norms.warm_up(mlx_norms.rms_norm, X, W[:3])
    assert threading.active_count() == threads


SIMULATED = """
import hostmetal
simulator = hostmetal.start()
import mlx.core as mx
import mlx_norms
from mlx_norms import _ext
mx.set_default_device(mx.cpu)
x, w = mx.random.normal((4, 96)), mx.ones(96)
mx.eval(x, w)

def calls(x):
    return mlx_norms.rms_norm(x, w), mlx_norms.rms_norm(x.astype(mx.float16), w)

first = mlx_norms.warm_up(calls, x)
print(first.kernels)
print([name for name, _ in _ext.first_uses()])
built = len(_ext.built_pipelines())
second = mlx_norms.warm_up(calls, x)
mx.eval(calls(x))
assert second.kernels == 0 and len(_ext.built_pipelines()) == built
assert mlx_norms.warm_up(lambda: mx.exp(x) + 1).kernels == 0
assert mlx_norms.warm_up(calls, x.astype(mx.bfloat16)).kernels > 0
simulator.wait()
assert not simulator.faults, simulator.faults
"""


@pytest.mark.instrument
@pytest.mark.build
@pytest.mark.backends("cpu", "metal-sim")
@pytest.mark.parametrize("check", ["1", "0"])
def test_kernels_of_a_new_process(check):
    done = for_tests("_ext").python(
        "-c",
        SIMULATED,
        variables={"MLX_NORMS_SELF_CHECK": check},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=hangs.SECONDS,
    )
    assert done.returncode == 0, done.stderr
    count, names = (eval(line) for line in done.stdout.splitlines())
    lines = done.stderr.splitlines()
    assert len(names) == count >= 2
    assert [line.split()[1] for line in lines[:count]] == names
    # Those of bfloat16, and nothing for what was ready or is MLX's.
    assert len(lines) > count and all("is ready" in line for line in lines)
