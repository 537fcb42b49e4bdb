"""A second of sound through its Conformer."""

import mlx.core as mx
from parakeet_mlx.conformer import Conformer, ConformerArgs


def families():
    args = ConformerArgs(16, 2, 64, 4, 2, 8, "rel_pos", "dw_striding", 5, 16, 100)
    sound = mx.random.normal((2, 96, 16))
    yield "Conformer", Conformer(args), lambda m: m(sound, mx.array([96, 96]))
