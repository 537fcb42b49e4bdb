"""What each rung of the ladder of layer norms asks of the memory and of a threadgroup."""

from dataclasses import dataclass

from harness import page_part

from .simulated import launches

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


def measure(simulator) -> str:
    """A table in Markdown."""
    import mlx.core as mx

    from mlx_norms.ladders import LAYER_NORM

    heading = ["rung", "what it fixes", "bytes per element", "barriers", "SIMD-group operations"]
    lines = []
    for rung in LAYER_NORM:
        c = count_layer_norm(simulator, rung.name, mx.float32, LENGTH)
        read = f"{c.of_rows:.3g} + {c.of_parameters:.3g}"
        lines.append([rung.name, rung.fixes, read, f"{c.barriers:.3g}", f"{c.simd_ops:.3g}"])
    return page_part.markdown(heading, lines)
