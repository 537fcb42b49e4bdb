"""The ops that have docstrings with examples."""

import mlx_norms

OPS = [name for name in mlx_norms.__all__ if name.endswith(("norm", "norm_linear"))] + ["matmul"]
