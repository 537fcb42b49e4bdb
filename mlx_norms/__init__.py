"""Normalization kernels for MLX, as real primitives: lazy, differentiable, compilable."""

from pkgutil import extend_path

# In a checkout this folder hides the installed package, which has the extension.
__path__ = extend_path(__path__, __name__)

from mlx_norms import _guard  # noqa: E402

try:
    _guard.load()
except ImportError as error:
    _guard.explain(error)
    raise

from mlx_norms import _built, ladders, nn, ops  # noqa: E402
from mlx_norms._guard import UnsupportedMLX  # noqa: E402
from mlx_norms._warm_up import WarmUp, warm_up  # noqa: E402
from mlx_norms.ops import *  # noqa: E402, F403
from mlx_norms.patching import (  # noqa: E402
    Report,
    environment,
    fuse,
    is_patched,
    patch,
    patched,
    report,
    unpatch,
)

__version__ = _built.VERSION

__all__ = [
    *ops.__all__,
    "Report",
    "UnsupportedMLX",
    "WarmUp",
    "fuse",
    "is_patched",
    "ladders",
    "nn",
    "patch",
    "patched",
    "report",
    "unpatch",
    "warm_up",
]


def __dir__() -> list[str]:
    return [name for name in globals() if name in __all__ or name.startswith("__")]


try:
    environment.patch_as_asked()
except ValueError as error:
    _guard.explain(error)
    raise
