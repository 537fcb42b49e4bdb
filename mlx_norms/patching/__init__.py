"""Our norms in models that call ``mx.fast``, and sums fused into the norms that take them."""

from .apply import patch, patched, unpatch
from .graph_pass import fuse
from .reporting import Report, report

__all__ = ["Report", "fuse", "patch", "patched", "report", "unpatch"]
