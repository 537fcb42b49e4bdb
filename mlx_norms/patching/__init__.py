"""Our norms in models that call ``mx.fast``, fused with the residual adds before them."""

from .apply import is_patched, patch, patched, unpatch
from .graph_pass import fuse
from .reporting import Report, report

__all__ = ["Report", "fuse", "is_patched", "patch", "patched", "report", "unpatch"]
