"""``python bench norm``, ``backward``, ``ladder`` and ``model``; bench.py puts it together."""

WHAT = {
    "norm": "the norms: rms, layer, with a residual, per head, queries with keys, group, batch",
    "backward": "their gradients for every input, the forward evaluated before",
    "ladder": "the kernels of the LayerNorm and the matmul ladder, on a GPU",
    "model": "a language model of mlx_lm, stock against patched",
}
