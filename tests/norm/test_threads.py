"""The CPU kernels give the same bits on any number of threads, at every dispatch level."""

import os
import resource
import subprocess
import sys
from functools import partial

import mlx.core as mx
import pytest

from mlx_norms import _ext
from support import hangs, variant

# Of rows that several threads share, which of gradients' sums takes more than 64 of a weight's.
PREAMBLE = """
import hashlib, os, sys, threading
import mlx.core as mx
mx.set_default_device(mx.cpu)
from support.bits import bits
from support.inputs import arguments, cotangents
from support.group_norm import GroupCase, parameters_of
from support.inputs import normal
from support.norm_case import DTYPES, OPS, Norm
import mlx_norms

def group_cases(shape, dtype):
    x, given = normal(shape, dtype, seed=1), parameters_of(shape[-1], dtype, running=True)
    p = {n: given[n] for n in ("weight", "bias")}
    yield GroupCase("group_norm", x, num_groups=4, activation="silu", **p)
    yield GroupCase("group_norm", x.swapaxes(1, 2), num_groups=4, pytorch_compatible=True, **p)
    yield GroupCase("instance_norm", x)
    yield GroupCase("batch_norm", x, training=True, **given)
    yield GroupCase("batch_norm", x, **given)

def digest():
    digest = hashlib.sha256()
    for op in OPS:
        for shape, dtype in zip(((2101, 257), (1, 5700, 100), (3, 1431, 128)), DTYPES):
            norm = Norm(op)
            arrays = arguments(norm, shape, dtype)
            outputs, gradients = norm.vjp(arrays, cotangents(norm, arrays))
            for a in (*outputs, *gradients):
                digest.update(bits(a).tobytes())
    # Few samples, of which threads share each, and many.
    for shape, dtype in zip(((2, 70, 80, 52), (90, 13, 17, 28), (1, 9000, 3, 20)), DTYPES):
        for case in group_cases(shape, dtype):
            cotangent = normal(case.x.shape, dtype, seed=2)
            gradients = mx.vjp(case, case.arrays(), [cotangent])[1]
            for a in (*case.results(*case.arrays()), *gradients):
                digest.update(bits(a).tobytes())
    # Runs of rows that the blocks cut: a transposed array, and weights of heads.
    x = mx.random.normal((70, 4, 9, 260), key=mx.random.key(1)).swapaxes(0, 2)
    w = mx.random.normal((260,), key=mx.random.key(2))
    heads = mx.random.normal((70, 260), key=mx.random.key(3))
    for f, weight in ((mlx_norms.rms_norm, w), (mlx_norms.rms_norm, heads)):
        loss = lambda *a: (f(*a, 1e-5) * x).sum()
        for a in (f(x, weight, 1e-5), *mx.grad(loss, (0, 1))(x, weight)):
            digest.update(bits(a).tobytes())
    return digest.hexdigest()
"""


def run(script, stack_bytes=None, **environment):
    env = variant.environment(**environment)
    for name in env.keys() - environment.keys():
        if name.startswith("MLX_NORMS_CPU_"):
            del env[name]
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + script],
        env=env,
        capture_output=True,
        text=True,
        timeout=hangs.SECONDS,
        preexec_fn=stack_bytes and partial(limit, resource.RLIMIT_STACK, stack_bytes),
    )


def limit(resource_limit, value):
    resource.setrlimit(resource_limit, (value, resource.getrlimit(resource_limit)[1]))


def printed(script, stack_bytes=None, **environment):
    done = run(script, stack_bytes, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def one_thread():
    return printed("print(digest())", MLX_NORMS_CPU_THREADS="1")


@pytest.mark.parametrize("threads", ["2", "3", "16", ""])
def test_threads_have_the_bits_of_one(threads, one_thread):
    """Without a number there are as many as cores."""
    assert printed("print(digest())", MLX_NORMS_CPU_THREADS=threads) == one_thread


@pytest.mark.parametrize("level", _ext.cpu_isas())
def test_levels_have_the_same_bits_on_threads(level, one_thread):
    options = {"MLX_NORMS_CPU_ISA": level, "MLX_NORMS_CPU_THREADS": "3"}
    assert printed("print(digest())", **options) == one_thread


def test_streams_share_the_threads(one_thread):
    script = """
got = []
def work():
    with mx.stream(mx.new_stream(mx.cpu)):
        got.append(digest())
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*sorted(set(got)), len(got))
"""
    assert printed(script, MLX_NORMS_CPU_THREADS="3") == [*one_thread, "3"]


# With CUDA MLX's own ops end the child.
@pytest.mark.applies(hasattr(os, "fork") and not mx.cuda.is_available())
def test_child_of_fork_has_threads_of_its_own(one_thread):
    """MLX's streams do not outlive a fork, so the child makes one."""
    script = """
digest()
child = os.fork()
if child == 0:
    with mx.stream(mx.new_stream(mx.cpu)):
        print(digest(), len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 4)
    sys.stdout.flush()
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""
    digest, threads = printed(script, MLX_NORMS_CPU_THREADS="3")
    assert [digest] == one_thread
    assert int(threads) >= 4  # its own, that of its stream, and two that help


@pytest.mark.applies("ASAN_OPTIONS" not in os.environ)  # which takes all addresses for itself
def test_threads_that_cannot_be_had(one_thread):
    """There is room for the stacks of two, and for all else."""
    stack_bytes = 2 << 30
    script = """
import resource
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (5 << 30), resource.RLIM_INFINITY))
print(digest())
"""
    assert printed(script, stack_bytes, MLX_NORMS_CPU_THREADS="1000") == one_thread


def test_a_refused_count_is_no_gradient():
    script = """
x, w = mx.ones((4, 8)), mx.ones((8,))
gradient = mx.grad(lambda w: mlx_norms.rms_norm(x, w, 1e-5).sum())(w)
mx.eval(gradient)
"""
    done = run(script, MLX_NORMS_CPU_THREADS="zero")
    assert "ValueError" in done.stderr and "MLX_NORMS_CPU_THREADS" in done.stderr, done.stderr


@pytest.mark.parametrize("count", ["0", "-1", "two", "2x", "1e3", "99999999999"])
def test_other_counts_are_refused(count):
    done = run("digest()", MLX_NORMS_CPU_THREADS=count)
    assert done.returncode != 0
    assert "ValueError" in done.stderr and "MLX_NORMS_CPU_THREADS" in done.stderr, done.stderr
