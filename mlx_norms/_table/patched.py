"""MLX's chains in a patched process."""

from __future__ import annotations

import mlx_norms

from . import others, rows  # noqa: F401
from .op import OPS, op


def in_patch(of):
    """MLX's chain in a patched process."""

    def patched(**named):
        with mlx_norms.patched():
            return of.stock(**{n: v for n, v in named.items() if n not in of.axes})(
                *(named[n] for n in of.axes)
            )

    return patched


for name in (
    *("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm", "group_norm"),
    *("instance_norm BNC", "batch_norm BNC", "batch_norm BNC running training"),
):
    of = OPS[name]
    more = dict(options=of.options, multiple=of.multiple)
    op(f"patched {name}", in_patch(of), of.chain, of.axes, **more)
