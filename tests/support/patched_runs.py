"""Runs a computation with MLX's own norms and with ours, and checks the outcomes of its norms."""

import contextlib
import io
import re
from collections import Counter
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_flatten

import mlx_norms
from mlx_norms import _ext
from mlx_norms._table.exact import ROUNDOFF, result_type
from mlx_norms.patching.scope import current

from .inputs import normal

# What a patch replaces; methods stay replaced after a block.
FUNCTIONS = [
    (mx.fast, "rms_norm"),
    (mx.fast, "layer_norm"),
    (mx.fast, "rope"),
    (mx, "export_function"),
    (mx, "exporter"),
    (mx, "eval"),
    (mx, "async_eval"),
    (mx, "compile"),
    (mx, "grad"),
    (mx, "value_and_grad"),
    (mx, "vjp"),
    (mx, "jvp"),
    (mx, "vmap"),
    (mx, "checkpoint"),
]
METHODS = [
    (mx.array, "item"),
    (mx.array, "tolist"),
    (mlx.nn.GroupNorm, "__call__"),
    (mlx.nn.InstanceNorm, "__call__"),
    (mlx.nn.BatchNorm, "__call__"),
]

ROWS, DIMS = 4, 32
EPS = 1e-5

# The outcomes of a norm, as a report names them.
FUSED = "fused with the addition before it"
WITH_OTHERS = "fused with what else stands around it"
ALONE = "norm alone"
OTHER_STREAM = "norm alone: the addition before it is on another stream"
REPEATED = "norm alone: the addition before it broadcasts along the row"
OF_SUM = "norm alone: its weight or bias is computed from the addition"
LONG_GRAPH = "norm alone: its weight or bias is pending, by many operations"
TRACED = "norm alone: its weight or bias is traced, the addition is not"
GROUPS = "norm alone: group, instance and batch norms take no addition"
DTYPE = "left to MLX: not float32, float16 or bfloat16"
ARGUMENTS = "left to MLX: shapes or options that no kernel takes"

# Two float32 results of one function agree within this many roundings of the largest value. A norm
# of 32 elements is off by at most 16. At most four norms follow, and sums of 32 to 128 products,
# each of which adds some, relative to the scale of its terms, not of its result: fewer than 100 are
# seen. A norm of a wrong sum, or a lost gradient, is off by 2**20.
ROUNDINGS = 512


@dataclass(frozen=True)
class FastNorm:
    """A norm of mx.fast, looked up at each call, as in models."""

    name: str

    @property
    def parameters(self):
        """The weight, and the bias if there is one."""
        return [normal((DIMS,), mx.float32, seed=i) for i in range(1 + self.layer)]

    @property
    def layer(self):
        return self.name == "layer_norm"

    def __call__(self, x, weight=None, bias=None, **kwargs):
        if self.layer:
            return mx.fast.layer_norm(x, weight, bias, EPS, **kwargs)
        return mx.fast.rms_norm(x, weight, EPS, **kwargs)


NORMS = [FastNorm("rms_norm"), FastNorm("layer_norm")]


def arrays_of(tree):
    return [leaf for _, leaf in tree_flatten(tree) if isinstance(leaf, mx.array)]


def run_patched(f, **options):
    """The results of f(), evaluated while patched, and the report."""
    with mlx_norms.patched(**options):
        results = f()
        mx.eval(results)
        return results, mlx_norms.report()


def composed_layer_norm(x, weight, bias, eps, *, stream=None):
    """``mx.fast.layer_norm`` in MLX's ops, as on the CPU."""
    with mx.stream(stream or mx.default_stream(mx.default_device())):
        dtype = x.dtype
        for parameter in (weight, bias) if weight is not None else ():
            if parameter is not None:
                dtype = result_type(dtype, parameter.dtype)
        centered = x.astype(mx.float32)
        centered = centered - centered.mean(axis=-1, keepdims=True)
        y = centered * mx.rsqrt(mx.square(centered).mean(axis=-1, keepdims=True) + eps)
        y = y.astype(dtype)
        y = y if weight is None else y * weight
        y = y if bias is None else y + bias
        return y.astype(dtype)  # a bias alone does not widen the result


@contextlib.contextmanager
def stock_norms():
    """MLX's own norms, with a layer norm whose gradient is correct on CUDA, where MLX's is not."""
    stock = mx.fast.layer_norm
    if mx.default_device() == mx.gpu and mx.cuda.is_available():
        mx.fast.layer_norm = composed_layer_norm
    try:
        yield
    finally:
        mx.fast.layer_norm = stock


def run_stock(f):
    """The results of f() with MLX's own norms, uncompiled: compiling the ops takes seconds."""
    mx.disable_compile()
    try:
        with stock_norms():
            results = f()
            mx.eval(results)
    finally:
        mx.enable_compile()
    return results


def check(f, reasons, *, others=0):
    """Compares f() with and without patching; ``reasons`` are the expected outcomes.

    ``others`` more sums are fused with norms that are no calls, as those of vmap.
    """
    __tracebackhide__ = True
    results, report = run_patched(f)
    assert_close(results, run_stock(f))
    assert report.reasons == reasons, f"{report.reasons}, not {reasons}"
    assert report.fused == reasons.get(FUSED, 0) + others, report
    return results


def assert_close(got, expected, *, roundings=ROUNDINGS):
    """Asserts that two trees of arrays differ only by rounding."""
    __tracebackhide__ = True
    got, expected = arrays_of(got), arrays_of(expected)
    assert len(got) == len(expected) > 0, f"{len(got)} outputs, not {len(expected)}"
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"output {i}: {a.dtype} {a.shape}"
        if a.size == 0:
            continue
        rounding = ROUNDOFF[b.dtype] * largest(b)
        off = largest(a.astype(mx.float32) - b.astype(mx.float32))
        assert off <= roundings * rounding, f"output {i} is off by {off:.3g} of {largest(b):.3g}"


def largest(a):
    return mx.max(mx.abs(a)).item()


def operations(*outputs):
    """How often each primitive occurs in the graph of the outputs, by name.

    It is the graph that evaluation here would compute, after the pass of a patched scope.
    """
    scope = current()
    _ext.fuse_at_eval(arrays_of(list(outputs)), scope.fuse, scope.projections)
    dot = io.StringIO()
    mx.export_to_dot(dot, *outputs)
    return Counter(re.findall(r'label ="([^"]+)", shape=rectangle', dot.getvalue()))
