"""The nodes of a pending graph that launch something when MLX evaluates it."""

from __future__ import annotations

import io
import re
from collections import Counter

import mlx.core as mx

# Their outputs are their inputs' memory, at one token.
VIEWS = {"Broadcast", "ExpandDims", "Flatten", "Reshape", "Slice", "Split", "Squeeze"}
VIEWS |= {"StopGradient", "Transpose", "Unflatten"}


def nodes(*pending: mx.array) -> Counter:
    """What is to be run for some arrays, by name."""
    graph = io.StringIO()
    mx.export_to_dot(graph, *pending)
    found = re.findall(r'label ="([^"]+)", shape=rectangle', graph.getvalue())
    return Counter(name for name in found if name not in VIEWS)
