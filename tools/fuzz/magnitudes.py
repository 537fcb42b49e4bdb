"""Values of all magnitudes that float32 can normalize, and of some that it cannot."""

import mlx.core as mx
import numpy as np

# Powers of ten by dtype; those of float16 go up to its largest value.
POWERS = {mx.float32: (-19, 19), mx.bfloat16: (-19, 19), mx.float16: (-6, 4.8)}


def values_of_rows(rng, shape, dtype):
    """Rows of one magnitude or of one each; some have a mean or an outlier, are constant or zero.

    One in a few arrays has a row that is not finite.
    """
    low, high = POWERS[dtype]
    a = rng.standard_normal(shape, dtype=np.float32)
    rows = a.reshape(-1, shape[-1])
    how = rng.choice(["plain", "one size", "any size"], p=[0.4, 0.3, 0.3])
    if how != "plain":
        sizes = 10.0 ** rng.uniform(low, high, 1 if how == "one size" else len(rows))
        rows *= sizes.astype(np.float32).reshape(-1, 1)
    if rng.random() < 0.3:
        means = 10.0 ** rng.uniform(-1, 5, (len(rows), 1)) * rng.choice([-1, 1], (len(rows), 1))
        rows += (means * np.abs(rows[:, :1])).astype(np.float32)
    few = max(1, len(rows) // 4)
    for row in rng.integers(0, len(rows), few) if rng.random() < 0.5 else ():
        place = rng.choice([0, shape[-1] // 2, shape[-1] - 1])
        rows[row, place] = 10.0 ** rng.uniform(low, high) * rng.choice([-1, 1])
    for row in rng.integers(0, len(rows), few) if rng.random() < 0.2 else ():
        rows[row] = rows[row, 0] if rng.random() < 0.5 else 0.0
    if rng.random() < 0.08:
        bad = rng.choice([np.nan, np.inf, -np.inf])
        rows[rng.integers(len(rows)), rng.integers(shape[-1])] = bad
    if dtype == mx.float16:
        np.clip(a, -65504, 65504, out=a, where=np.isfinite(a))
    return a


def row_values(rng, shape):
    """A weight or bias."""
    scale = 10.0 ** rng.uniform(-3, 3) if rng.random() < 0.3 else 1.0
    return (rng.standard_normal(shape, dtype=np.float32) * scale).astype(np.float32)
