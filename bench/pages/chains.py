"""The table of norms with what models write around them, from the results of chains.py.

python bench chains --csv bench/results/h200_chains.csv
"""

from __future__ import annotations

from harness.beside_mlx import SLOWER, gains
from harness.page_part import Part, Rows, each, markdown, matching, on_gpu, one

OPS = {
    "ada": "`layer_norm`, scale and shift",
    "add_ada": "`add_layer_norm`, factor, scale and shift",
    "gated_rms": "`rms_norm`, gate, silu",
    "norm_add_norm": "`norm_add_norm`",
}


def table(rows: Rows) -> str:
    """A line for each op, length and the smallest and largest number of rows."""
    lines = []
    for op, length in each(rows, "op", "length"):
        of_length = matching(rows, op=op, length=length)
        counts = sorted(each(of_length, "rows"), key=int)
        for count in (counts[0], counts[-1]):
            forward, backward = (
                one(of_length, rows=count, backward=str(way)) for way in (False, True)
            )
            large = count == counts[-1]
            lines.append(
                [OPS[op], f"{count}×{length}", *_figures(forward, large), *gains(backward)]
            )
    way = ("MLX / ours", "compiled / ours")
    heading = ("op", "rows", "of copy", *way, *(f"gradients: {name}" for name in way))
    return _about(rows) + markdown(heading, lines)


def _figures(row: dict[str, str], large: bool) -> list[str]:
    return [f"{float(row['of_copy']):.0%}" if large else "", *gains(row)]


def _about(rows: Rows) -> str:
    slower = []
    for row in rows:
        alone = min(float(row[name]) for name in ("alone_eager_over", "alone_compiled_over"))
        if alone < SLOWER:
            way = "backward " if row["backward"] == "True" else ""
            slower.append(f"{OPS[row['op']]} {way}{row['rows']}×{row['length']} ({alone:.2f})")
    lost = f" Slower if a call is evaluated alone: {', '.join(slower)}." if slower else ""
    return (
        f"{on_gpu(rows[0])}, {rows[0]['dtype']}, "
        "kernel time of independent calls beside MLX's chain of ops, evaluated eagerly and by "
        "`mx.compile`. The share is of a copy of the tensors of x's shape, each counted once; 32 "
        "rows stay in the cache. The compiled gradients compute again what they need of the "
        f"forward.{lost}\n\n"
    )


PARTS = [Part("docs/performance/chains_on_cuda.md", "chains on CUDA", ("h200_chains",), table)]
