"""Drawn graphs, most of which are nearly a norm: they have their values after a pass.

So do graphs in which other code stands around it.
"""

import random

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms

pytestmark = pytest.mark.usefixtures("backend")

EPS = 0.25
# Lengths coincide, so that a statistic or a weight fits along an axis that is not its own.
SHAPES = [(4, 4), (3, 4), (4, 3), (1, 4), (4, 1), (4, 4, 4), (2, 4, 4), (4, 1, 4), (1, 4, 3), (4,)]
TOLERANCES = {mx.float32: 1e-4, mx.float16: 2e-2, mx.bfloat16: 1.5e-1}


class Drawn:
    """Code that computes something like a norm. Each choice is made once, by the seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.choices = []
        self.heads = None
        self.wide = mx.float32  # what the code computes in, if not in x's dtype

    def one(self, *options, rarely=()):
        """One of the options; of ten times, one of those rarely taken."""
        if self.at == len(self.choices):
            is_rare = bool(rarely) and self.random.random() < 0.1
            self.choices.append(
                (is_rare, self.random.randrange(len(rarely if is_rare else options)))
            )
        is_rare, i = self.choices[self.at]
        self.at += 1
        return (rarely if is_rare else options)[i]

    def __call__(self, x, w, b, heads=None):
        self.at = 0
        self.heads = heads
        there, back = self.moves(x.ndim)
        self.is_moved = there is not None
        y = self.norm(x.transpose(there), w, b) if there else self.norm(x, w, b)
        return y.transpose(back) if there else y

    def moves(self, ndim):
        """Orders of axes before and after the norm, mostly those that undo each other."""
        if ndim < 2 or self.one(*[True] * 7, False):
            return None, None
        first, last = [*range(1, ndim), 0], [ndim - 1, *range(ndim - 1)]
        return first, self.one(last, rarely=(first,))

    def norm(self, x, w, b):
        dtype = x.dtype
        axis = self.one(-1, -1, -1, 0, 1)
        wide = self.one(True, False)
        x = x.astype(self.wide) if wide else x
        x = x * self.one(1, rarely=(w, 2.0))
        centered = self.one(True, False)
        of = x - self.mean(x, axis) if centered else x
        square = self.one(
            lambda a: a * a,
            mx.square,
            lambda a: a**2,
            lambda a: mx.abs(a) ** 2,
            rarely=(lambda a: a * x, lambda a: a * w, lambda a: mx.abs(a) * a),
        )
        if centered and self.one(False, True):
            moment = mx.var(x, axis, keepdims=True, ddof=self.one(0, rarely=(1,)))
        else:
            moment = self.mean(square(self.one(of, rarely=(x, w, of * 0.5, of * 0.25))), axis)
        moment = self.one(
            lambda m: m + EPS, lambda m: m, rarely=(lambda m: mx.maximum(m, EPS), lambda m: m * 2)
        )(moment)
        y = self.one(
            lambda a, m: a * mx.rsqrt(m),
            lambda a, m: a / mx.sqrt(m),
            lambda a, m: mx.power(m, -0.5) * a,
            lambda a, m: a * (1 / mx.sqrt(m)),
            lambda a, m: a / mx.maximum(mx.sqrt(m), EPS),
            lambda a, m: a / mx.maximum(mx.sqrt(m) * 0.5, EPS),
            rarely=(lambda a, m: a / (mx.sqrt(m) + EPS), lambda a, m: a * m, lambda a, m: a / m),
        )(self.one(of, rarely=(x, of + x)), moment)
        y = y.astype(self.one(dtype, y.dtype))
        y = y * self.one(1, rarely=(0.5, 2.0))
        y = self.one(
            lambda y: y * w,
            lambda y: y,
            lambda y: (1 + w) * y,
            lambda y: y * self.along(w),
            lambda y: y * (w if self.heads is None else self.heads),
            rarely=(lambda y: y * w * b, lambda y: y + w * y),
        )(y)
        y = self.one(lambda y: y, lambda y: y + b, lambda y: y + self.along(b))(y)
        return y.astype(self.one(dtype, y.dtype))

    def mean(self, a, axis):
        axis = self.one(axis, rarely=(0, -1))
        n = a.shape[axis]
        mean = self.one(
            lambda a, **options: a.mean(axis, **options),
            lambda a, **options: a.sum(axis, **options) / n,
            lambda a, **options: a.sum(axis, **options) * (1 / n),
            rarely=(
                lambda a, **options: a.sum(axis, **options) / (n + 1),
                lambda a, **options: a.sum(axis, **options),
                lambda a, **options: a.mean((0, -1), **options),
            ),
        )
        return self.one(
            lambda: mean(a, keepdims=True),
            lambda: mx.expand_dims(mean(a), axis),
            rarely=(lambda: mean(a), lambda: mx.expand_dims(mean(a), 0)),
        )()

    def along(self, w):
        return self.one(w[:, None], w.reshape(1, -1), w[:, None, None], w[None])


def arrays(shape, length, dtype, seed=0):
    keys = [mx.random.key(100 * seed + i) for i in range(3)]
    x = mx.random.normal(shape, key=keys[0]) * 0.7 + 0.5
    w, b = (mx.random.normal((length,), key=key) + 1 for key in keys[1:])
    return [a.astype(dtype) for a in (x, w, b)]


def computed(code, given):
    """What the code returns, or None if it raises."""
    try:
        return code(*given)
    except (ValueError, IndexError):
        return None


def heads_of(shape, dtype, seed):
    """A weight of the rows along one axis, or of one element."""
    shape = [shape[-2:], (1,), (1, 4)][seed % 3]
    return arrays(shape, 4, dtype, seed + 50)[0]


PARTS = [*range(5), *(pytest.param(part, marks=pytest.mark.slow) for part in range(5, 14))]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("part", PARTS)
def test_what_is_recognized_is_a_norm(dtype, part):
    taken, moved = {}, 0
    for seed in range(part * 250, (part + 1) * 250):
        shape = SHAPES[seed % len(SHAPES)]
        code = Drawn(seed)
        given = [*arrays(shape, 4, dtype, seed), heads_of(shape, dtype, seed)]
        theirs = computed(code, given)
        if theirs is None:
            continue
        with mlx_norms.patched():
            ours = computed(code, given)
            mx.eval(ours)
            written = mlx_norms.report().written
        if not written:
            continue
        taken |= written
        moved += code.is_moved
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        ours, theirs = (y.astype(mx.float32) for y in (ours, theirs))
        largest = mx.abs(theirs).max().item()
        if largest != largest:
            continue  # a row without a deviation
        assert mx.abs(ours - theirs).max().item() <= TOLERANCES[dtype] * max(largest, 1.0), seed
    assert {"rms_norm", "layer_norm"} <= taken.keys() <= {"rms_norm", "layer_norm", "l2_norm"}
    assert moved >= 1


class DrawnBlock(Drawn):
    """A norm, of MLX or drawn as above, and what code does around it."""

    def __call__(self, x, w, b, r, z, g, s, t):
        self.at = 0
        h = self.one(
            lambda: x,
            lambda: x + r,
            lambda: x + g * r,
            lambda: r * 0.5 + x,
            lambda: x * self.activation(z),
            lambda: r + self.mlx_norm(x, w, b),
        )()
        y = self.one(self.mlx_norm, self.norm)(h, w, b)
        y = self.one(
            lambda: y * (1 + s) + t,
            lambda: (1 + s) * y,
            lambda: t + y,
            lambda: y * self.activation(z),
            lambda: self.activation(y),
            lambda: y.astype(self.one(x.dtype, self.wide)),
            lambda: y,
            rarely=(
                lambda: y * s + t,
                lambda: y * (1 + s) + y,
                lambda: y * (1 + mx.tanh(h.mean(0, keepdims=True))),
                lambda: y * mx.sigmoid(h),
                lambda: (y + r) * (1 + s),
            ),
        )()
        return self.one(lambda: (y, h), lambda: (y,), lambda: (h + y, h), lambda: (mx.tanh(y), y))()

    def mlx_norm(self, x, w, b):
        w, b = self.one(w, None), self.one(b, None)
        layer = self.one(False, True)
        if x.dtype != mx.float64:  # of which mx.fast has none
            return mx.fast.layer_norm(x, w, b, EPS) if layer else mx.fast.rms_norm(x, w, EPS)
        x = x - x.mean(-1, keepdims=True) if layer else x
        y = x * mx.rsqrt((x * x).mean(-1, keepdims=True) + EPS)
        y = y if w is None else y * w
        return y + b if layer and b is not None else y

    def activation(self, z):
        return self.one(
            lambda: z * mx.sigmoid(z),
            lambda: mx.sigmoid(z),
            lambda: mx.square(mx.maximum(z, 0)),
            rarely=(lambda: mx.tanh(z), lambda: z * mx.sigmoid(z + 1)),
        )()


BLOCK_SHAPES = [(2, 3, 4), (2, 4, 4), (4, 4), (1, 1, 4), (2, 1, 4)]


def block_arrays(shape, dtype, seed):
    x, w, b = arrays(shape, 4, dtype, seed)
    r, z = (arrays(shape, 4, dtype, seed + i)[0] for i in (7000, 8000))
    row = (*shape[:-2], 1, 4) if seed % 2 else (1, *shape[1:])
    g, s, t = (arrays(row, 4, dtype, seed + i)[0] for i in (9000, 9500, 9900))
    return [x, w, b, r, z, g, s, t]


def exact(results):
    return [np.array(y.astype(mx.float32)).astype(np.float64) for y in results]


def in_float64(code, given):
    code.wide = mx.float64
    with mx.stream(mx.cpu):
        results = code(*(a.astype(mx.float64) for a in given))
        results = [np.array(y) for y in results]
    code.wide = mx.float32
    return results


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("part", range(2))
def test_blocks_have_their_values(dtype, part):
    slack = {mx.float32: 2e-6, mx.float16: 2e-3, mx.bfloat16: 1.6e-2}[dtype]
    seen = set()
    for seed in range(part * 150, (part + 1) * 150):
        code = DrawnBlock(seed)
        given = block_arrays(BLOCK_SHAPES[seed % len(BLOCK_SHAPES)], dtype, seed)
        stock = computed(code, given)
        if stock is None:
            continue
        with mlx_norms.patched():
            make = mlx_norms.fuse if seed % 2 else mx.checkpoint
            ours = make(lambda *a, code=code: code(*a))(*given)
            report = mlx_norms.report()
            seen |= set(report.written) | set(report.around)
        truth = in_float64(code, given)
        if not all(np.isfinite(a).all() for a in truth + exact(stock)):
            continue  # a row without a deviation, or a sum in 16 bits that overflows
        for y, s, e in zip(ours, stock, truth, strict=True):
            assert (y.shape, y.dtype) == (s.shape, s.dtype), seed
            largest = max(np.abs(e).max(), 1.0)
            [y], [s] = exact([y]), exact([s])
            error, of_stock = np.abs(y - e).max(), np.abs(s - e).max()
            assert error <= 2 * of_stock + slack * largest, (seed, error, of_stock, largest)
    assert len(seen) >= 5
