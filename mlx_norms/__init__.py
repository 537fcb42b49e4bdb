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

from mlx_norms import _built, _functions, ladders, nn  # noqa: E402
from mlx_norms._ext import (  # noqa: E402
    add_layer_norm,
    add_rms_norm,
    batch_norm,
    group_norm,
    head_layer_norm,
    head_rms_norm,
    instance_norm,
    l2_norm,
    l2_norms,
    layer_norm,
    layer_norm_linear,
    matmul,
    norm_add_norm,
    norm_rope,
    qk_norm,
    qk_norm_rope,
    quantized_matmul,
    rms_norm,
    rms_norm_linear,
    rms_norms,
)
from mlx_norms._guard import UnsupportedMLX  # noqa: E402
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

_functions.expose(globals())

__all__ = [
    "Report",
    "UnsupportedMLX",
    "add_layer_norm",
    "add_rms_norm",
    "batch_norm",
    "fuse",
    "group_norm",
    "head_layer_norm",
    "head_rms_norm",
    "instance_norm",
    "is_patched",
    "l2_norm",
    "l2_norms",
    "ladders",
    "layer_norm",
    "layer_norm_linear",
    "matmul",
    "norm_add_norm",
    "norm_rope",
    "nn",
    "patch",
    "patched",
    "qk_norm",
    "qk_norm_rope",
    "quantized_matmul",
    "report",
    "rms_norm",
    "rms_norm_linear",
    "rms_norms",
    "unpatch",
]


def __dir__() -> list[str]:
    return [name for name in globals() if name in __all__ or name.startswith("__")]


try:
    environment.patch_as_asked()
except ValueError as error:
    _guard.explain(error)
    raise
