"""Drawn graphs, most of which are nearly a norm: one that is recognized has the norm's values."""

import random

import mlx.core as mx
import pytest

from mlx_norms import _ext

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

    def __call__(self, x, w, b):
        self.at = 0
        dtype = x.dtype
        axis = self.one(-1, -1, -1, 0, 1)
        wide = self.one(True, False)
        x = x.astype(mx.float32) if wide else x
        x = x * self.one(1, rarely=(w, 2.0))
        centered = self.one(True, False)
        of = x - self.mean(x, axis) if centered else x
        square = self.one(
            lambda a: a * a, mx.square, lambda a: a**2, rarely=(lambda a: a * x, lambda a: a * w)
        )
        if centered and self.one(False, True):
            moment = mx.var(x, axis, keepdims=True, ddof=self.one(0, rarely=(1,)))
        else:
            moment = self.mean(square(self.one(of, rarely=(x, w))), axis)
        moment = self.one(
            lambda m: m + EPS, lambda m: m, rarely=(lambda m: mx.maximum(m, EPS), lambda m: m * 2)
        )(moment)
        y = self.one(
            lambda a, m: a * mx.rsqrt(m),
            lambda a, m: a / mx.sqrt(m),
            lambda a, m: mx.power(m, -0.5) * a,
            lambda a, m: a * (1 / mx.sqrt(m)),
            lambda a, m: a / mx.maximum(mx.sqrt(m), EPS),
            rarely=(lambda a, m: a / (mx.sqrt(m) + EPS), lambda a, m: a * m, lambda a, m: a / m),
        )(self.one(of, rarely=(x, of + x)), moment)
        y = y.astype(self.one(dtype, y.dtype))
        y = y * self.one(1, rarely=(0.5, 2.0))
        y = self.one(
            lambda y: y * w,
            lambda y: y,
            lambda y: (1 + w) * y,
            lambda y: y * self.along(w),
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


def recognized(code, given):
    x, *parameters = map(_ext.stand_in, given)
    y = computed(code, [x, *parameters])
    found = "it raises" if y is None else _ext.read_norm(y, x, parameters)
    return None if isinstance(found, str) else found


def check(norm, code, given, dtype):
    theirs = computed(code, given)
    if theirs is None:
        return
    x, *parameters = given
    weight, bias = (None if i is None else parameters[i] for i in (norm.weight, norm.bias))
    ours = norm.alone(x, weight, bias)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    ours, theirs = (y.astype(mx.float32) for y in (ours, theirs))
    largest = mx.abs(theirs).max().item()
    assert mx.abs(ours - theirs).max().item() <= TOLERANCES[dtype] * max(largest, 1.0)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("part", range(5))
def test_what_is_recognized_is_a_norm(dtype, part):
    taken = set()
    for seed in range(part * 300, (part + 1) * 300):
        shape = SHAPES[seed % len(SHAPES)]
        code = Drawn(seed)
        given = arrays(shape, 4, dtype, seed)
        norm = recognized(code, given)
        if norm is None:
            continue
        taken.add((norm.op, norm.weight, norm.bias))
        check(norm, code, given, dtype)
        if norm.axis == len(shape) - 1:
            # It is taken to be the same for other lengths of the other axes.
            other = (5,) * norm.axis + shape[norm.axis :]
            check(norm, code, arrays(other, 4, dtype, seed + 1), dtype)
    assert len(taken) >= 6
