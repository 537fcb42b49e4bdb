"""The table of norms with what models write around them.

python bench chains --csv bench/results/h200_chains.csv
"""

from __future__ import annotations

from harness.beside_mlx import SLOWER
from harness.page_part import Part, Rows, each, matching, number, on_gpu, table

OPS = {
    "ada": "`layer_norm`, scale and shift",
    "add_ada": "`add_layer_norm`, factor, scale and shift",
    "gated_rms": "`rms_norm`, gate, silu",
    "norm_add_norm": "`norm_add_norm`",
}
LENGTHS = {"ada": "3072", "add_ada": "3072", "gated_rms": "4096", "norm_add_norm": "4096"}
IN_CACHE = "32"  # rows, of which a share of a copy says nothing
WAYS = {"": "False", "gradients: ": "True"}
GAINS = {
    f"{way}{name} / ours": number("over", ".2f", side=side, backward=backward)
    for way, backward in WAYS.items()
    for name, side in (("MLX", "eager"), ("compiled", "compiled"))
}


def chains(rows: Rows) -> str:
    """A line for each op, of the smallest and the largest number of rows."""
    shown = []
    for op, length in LENGTHS.items():
        of_length = matching(rows, op=op, length=length)
        counts = sorted(each(of_length, "rows"), key=int)
        for count in (counts[0], counts[-1]):
            shown += [
                row | {"shape": f"{count}×{length}"} for row in matching(of_length, rows=count)
            ]
    of_copy = number("share", ".0%", side="ours", backward="False")
    cells = {"of copy": lambda of: "" if of[0]["rows"] == IN_CACHE else of_copy(of)}
    keys = {"op": lambda of: OPS[of[0]["op"]], "rows": "shape"}
    return _about(rows) + table(shown, keys, cells | GAINS)


def lost_alone(rows: Rows, name) -> str:
    """Where calls that are evaluated alone are slower than MLX's, eager or compiled."""
    worst: dict[str, float] = {}
    for row in rows:
        if row["side"] != "ours" and row["alone_over"]:
            ratio = float(row["alone_over"])
            worst[name(row)] = min(ratio, worst.get(name(row), ratio))
    slower = [f"{about} ({ratio:.2f})" for about, ratio in worst.items() if ratio < SLOWER]
    return f" Slower if a call is evaluated alone: {', '.join(slower)}." if slower else ""


def _about(rows: Rows) -> str:
    lost = lost_alone(
        rows,
        lambda row: (
            f"{OPS[row['op']]} {'backward ' * (row['backward'] == 'True')}"
            f"{row['rows']}×{row['length']}"
        ),
    )
    return (
        f"{on_gpu(rows[0])}, {rows[0]['dtype']}, "
        "kernel time of independent calls beside MLX's chain of ops, evaluated eagerly and by "
        "`mx.compile`. The share is of a copy of the tensors of x's shape, each counted once; 32 "
        "rows stay in the cache. The compiled gradients compute again what they need of the "
        f"forward.{lost}\n\n"
    )


PARTS = [Part("docs/performance/chains_on_cuda.md", "chains on CUDA", ("h200_chains",), chains)]
