"""How long to wait for something that may hang: many times what it takes on a busy machine."""

import os

SECONDS = float(os.environ.get("MLX_NORMS_HANG_SECONDS", 1800))
