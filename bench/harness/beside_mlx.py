"""Norms of a GPU beside MLX's chain of ops, evaluated eagerly and compiled."""

from __future__ import annotations

from collections.abc import Mapping

from . import providers
from .suite import Case

LARGE = 32 << 20  # bytes in and out, from which shares of a copy are meant
SLOWER = 0.98  # than MLX's, if less


def case(config, labels: Mapping[str, object], least: Mapping[str, float]) -> Case:
    """A config of configs.py or images.py; of little, ours is to lose to neither."""

    def sides() -> dict:
        ours, mlx = config.functions()
        return providers.in_turn(
            {"ours": ours, "eager": mlx, "compiled": mlx},
            config.inputs(),
            of_bytes=config.input_bytes,
            output_bytes=config.output_bytes,
            caches=providers.CACHES,
            cotangents=config.cotangents() if config.backward else None,
        )

    if config.moved < LARGE:
        least = dict(eager=SLOWER, compiled=SLOWER)
    return Case(labels, sides, config.moved, least=least)
