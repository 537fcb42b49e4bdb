"""Counts what each rung of a ladder asks of the memory and of a threadgroup, as norms.py does.

python tools counts.layer_norm_ladder            prints the table of docs/ladders.md
python tools counts.layer_norm_ladder --check    exits with 1 if the page has another
python tools counts.layer_norm_ladder --write    writes it into the page
"""

import sys
from dataclasses import dataclass

from harness import page_part
from support.variant import ROOT

from . import page
from .simulated import attached, launches

PAGE = ROOT / "docs" / "ladders.md"
BEGIN = "<!-- layer norm ladder: python tools counts.layer_norm_ladder --write -->\n"
END = "<!-- end of layer norm ladder -->\n"

ROWS = 64
LENGTH = 768
OF_ROWS = {"x", "y", "normalized"}
OF_PARAMETERS = {"weight", "bias"}


@dataclass(frozen=True)
class Count:
    """What a launch asks for: bytes per element of x; barriers and SIMD operations per row."""

    of_rows: float
    of_parameters: float
    barriers: float
    simd_ops: float


def count_layer_norm(simulator, rung, dtype, length) -> Count:
    """Counts a call on rows about a mean of 0, with which no rung takes more steps.

    Raises:
        RuntimeError: If the simulator finds a fault.
    """
    import mlx.core as mx

    from mlx_norms import ladders

    x = mx.random.normal((ROWS, length), key=mx.random.key(0))
    x = (x - mx.mean(x, -1, keepdims=True)).astype(dtype)
    w, b = mx.ones(length, dtype), mx.ones(length, dtype)
    mx.eval(x, w, b)
    (launch,) = launches(simulator, ladders.layer_norm(x, w, b, rung=rung))
    result = launch.result

    def share(names):
        touched = sum(sum(n) for buffer, n in result.bytes.items() if buffer in names)
        return touched / (ROWS * length)

    return Count(
        share(OF_ROWS), share(OF_PARAMETERS), result.barriers / ROWS, result.simd_ops / ROWS
    )


def measure() -> str:
    """The table, in Markdown. Runs where the extension is one that runs on the software device."""
    simulator = attached()

    import mlx.core as mx

    from mlx_norms.ladders import LAYER_NORM

    heading = ["rung", "what it fixes", "bytes per element", "barriers", "SIMD-group operations"]
    lines = []
    for rung in LAYER_NORM:
        c = count_layer_norm(simulator, rung.name, mx.float32, LENGTH)
        read = f"{c.of_rows:.3g} + {c.of_parameters:.3g}"
        lines.append([rung.name, rung.fixes, read, f"{c.barriers:.3g}", f"{c.simd_ops:.3g}"])
    return page_part.markdown(heading, lines)


def main(arguments: list[str]) -> int:
    return page.main(arguments, "counts.layer_norm_ladder", measure, PAGE, (BEGIN, END))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
