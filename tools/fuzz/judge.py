"""Decides whether two runs of a program agree as well as promised."""

from functools import cached_property

import mlx.core as mx
import numpy as np

from support.oracle import numpy32, unit_roundoff

from .backends import Backend
from .modes import run_stock
from .promises import Promise

JITTERED_RUNS = 4
# The effect of errors is judged by four runs with errors of norms, and by four with errors this
# many times as large, since later sums may round small errors away.
FACTOR = 8
# In 16 bits stock's own error, which is no norm's, may be as large; ours may be the other way.
OWN = 3
# Errors of fewer roundings of a row's largest value are accepted without such runs.
ROUNDINGS = 8


class Judge:
    """Compares runs of one program with its stock run."""

    def __init__(self, program, backend, stock):
        self.program, self.backend = program, backend
        self._runs = {}  # runs by the size of their errors
        self.stock = {number: numpy32(a) for number, a in stock.values.items()}
        self.dtypes = {number: a.dtype for number, a in stock.values.items()}
        dtypes = {*program.dtypes, *self.dtypes.values()}
        self.roundoff = max(unit_roundoff(dtype) for dtype in dtypes)

    def wrong(self, number, a, promise):
        """What is wrong with the value of this number, or None."""
        expected = self.stock[number]
        if a.dtype != self.dtypes[number] or a.shape != expected.shape:
            return f"is {a.dtype} {a.shape}, not {self.dtypes[number]} {expected.shape}"
        got = numpy32(a)
        if promise == Promise.SAME_BITS:
            return differing_bits(got, expected)
        return self._far(number, got, expected, promise)

    def _far(self, number, got, expected, promise):
        with np.errstate(invalid="ignore", over="ignore"):
            bound = ROUNDINGS * self.roundoff * row_largest(expected)
            right = agree(got, expected, bound)
            if promise == Promise.CLOSE:
                # Infinities of a gradient's terms may cancel, or not, and be made finite by others;
                # MLX adds those of a norm on the CPU in float32, so that few of a row overflow.
                right |= ~np.isfinite(got) & has_infinities(expected) | np.isnan(expected)
            if right.all():
                return None
            least = bound
            for times in (1, FACTOR):
                runs = [run[number] for run in self._jittered(times)]
                off = max(float(finite(np.abs(run - expected)).max()) for run in runs)
                bound = least + FACTOR / times * off
                right |= agree(got, expected, bound)
                if times == 1:
                    right |= unstable(runs, expected)
                if right.all():
                    return None
            if self.roundoff > unit_roundoff(mx.float32):
                off = finite(np.abs(self._wide[number] - expected)).max()
                bound = np.maximum(bound, least + OWN * off)
                right |= agree(got, expected, bound)
                if right.all():
                    return None
            if self.backend.name == "cuda":
                # MLX's own results there are no oracle: those on the CPU are of other code.
                right |= agree(got, self._on_cpu[number], bound)
                if right.all():
                    return None
        return describe(~right, got, expected) + f", allowed {first(~right, bound):.3g}"

    @cached_property
    def _wide(self):
        """The stock run of the same inputs in float32."""
        run = run_stock(self.program, self.backend, dtype=mx.float32)
        return {number: numpy32(a) for number, a in run.values.items()}

    @cached_property
    def _on_cpu(self):
        """The stock run on the CPU."""
        device = mx.default_device()
        try:
            run = run_stock(self.program, Backend("cpu"))
            return {number: numpy32(a) for number, a in run.values.items()}
        finally:
            mx.set_default_device(device)

    def _jittered(self, times):
        if times not in self._runs:
            runs = [
                run_stock(self.program, self.backend, jitter=i, times=times)
                for i in range(JITTERED_RUNS)
            ]
            self._runs[times] = [
                {number: numpy32(a) for number, a in run.values.items()} for run in runs
            ]
        return self._runs[times]


def unstable(runs, expected):
    """Where a value is finite in one run and not in another."""
    found = np.zeros(expected.shape, bool)
    for run in runs:
        found |= ~((np.isfinite(run) & np.isfinite(expected)) | same(run, expected))
    return found


def finite(a):
    return np.where(np.isfinite(a), a, 0.0)


def same(a, b):
    return (a == b) | (np.isnan(a) & np.isnan(b))


def agree(got, expected, bound):
    return same(got, expected) | (np.isfinite(got) & (np.abs(got - expected) <= bound))


def row_largest(a):
    """The largest finite value of each row."""
    a = finite(np.abs(a)).astype(np.float64)
    return a.max(-1, keepdims=True, initial=0.0) if a.ndim else a


def has_infinities(a):
    """Whether a row has values that are not finite."""
    return ~np.isfinite(a).all(-1 if a.ndim else None, keepdims=True)


def differing_bits(got, expected):
    """The values whose bits differ, except NaNs; None if there are none."""
    wrong = (got.view(np.uint32) != expected.view(np.uint32)) & ~(
        np.isnan(got) & np.isnan(expected)
    )
    return describe(wrong, got, expected) + ", bits should be equal" if wrong.any() else None


def first(wrong, a):
    return np.broadcast_to(a, wrong.shape)[tuple(np.argwhere(wrong)[0])]


def describe(wrong, got, expected):
    at = np.argwhere(wrong)[0].tolist()
    return (
        f"{wrong.sum()} of {wrong.size} values are wrong, first at {at}: "
        f"{first(wrong, got):.9g}, not {first(wrong, expected):.9g}"
    )
