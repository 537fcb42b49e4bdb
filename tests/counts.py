"""Counts what the Metal kernels ask of the memory and of a threadgroup, on the software device.

    python tests/counts.py            prints the table of docs/performance.md
    python tests/counts.py --check    exits with 1 if the page has another
    python tests/counts.py --write    writes it into the page

A cell says, in float32 and as metalsim counts them: bytes that loads and stores request for an
element of x, those of arrays of x's shape and those of weights, biases and their gradients;
barriers a row; SIMD-group operations a row.
"""

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- counts: python tests/counts.py --write -->\n", "<!-- end of counts -->\n"

ROWS, HEADS = 64, 4
LENGTHS = (128, 4096, 65536)
OF_ROWS = {
    *("x", "residual", "x2", "normalised", "sum", "normalised2"),
    *("s", "cotangent", "sum_cotangent", "input_gradient"),
}
OF_PARAMETERS = {
    *("weight", "bias", "weight2"),
    *("weight_partials", "bias_partials", "kept_statistics", "partials", "gradient"),
}


def attached():
    """The simulator, where the extension is one that runs on the software device."""
    import hostmetal

    simulator = hostmetal.start()
    simulator.check = 1

    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    return simulator


def launches(simulator, *arrays):
    """What ran to evaluate the arrays."""
    import mlx.core as mx

    simulator.clear()
    mx.eval(*arrays)
    simulator.wait()
    if simulator.faults:
        raise RuntimeError("\n".join(simulator.faults))
    return list(simulator.launches)


def forward_and_backward(simulator, function, arrays):
    """The launches of a function's results, and those of the gradients of its arrays."""
    import mlx.core as mx

    def listed(*arrays):
        outputs = function(*arrays)
        return list(outputs) if isinstance(outputs, tuple) else [outputs]

    outputs = listed(*arrays)
    forward = launches(simulator, *outputs)
    cotangents = [mx.ones_like(output) for output in outputs]
    mx.eval(cotangents)
    # Outputs that are held keep their memory, so that each buffer is one array.
    both = launches(simulator, *mx.vjp(listed, list(arrays), cotangents))
    kernels = {launch.kernel for launch in forward}
    return forward, [launch for launch in both if launch.kernel not in kernels]


def measure() -> str:
    """The table, in Markdown. Runs where the extension is one that runs on the software device."""
    simulator = attached()

    import mlx.core as mx

    import mlx_norms as norms

    def ops(length):
        shape, heads = (ROWS // HEADS, HEADS, length), (HEADS, length)
        # About a mean of 0: one beyond a quarter of a row's spread takes LayerNorm more steps.
        x, r = (n - mx.mean(n, -1, keepdims=True) for n in map(mx.random.normal, 2 * [shape]))
        w, b, w1, w2 = (mx.random.normal(s) for s in ((length,), (length,), heads, heads))
        mx.eval(x, r, w, b, w1, w2)
        yield "rms_norm", norms.rms_norm, (x, w)
        yield "layer_norm", norms.layer_norm, (x, w, b)
        yield "add_rms_norm", norms.add_rms_norm, (x, r, w)
        yield "add_layer_norm", norms.add_layer_norm, (x, r, w, b)
        yield "head_rms_norm", lambda x, w: norms.head_rms_norm(x, w, 1e-5), (x, w1)
        yield "qk_norm", lambda *a: norms.qk_norm(*a, 1e-5), (x, r, w1, w2)

    cells: dict[str, list[str]] = {}
    for length in LENGTHS:
        for op, function, arrays in ops(length):
            rows = ROWS * (2 if op == "qk_norm" else 1)
            forward, backward = forward_and_backward(simulator, function, arrays)
            for label, part in ((op, forward), (f"{op}, backward", backward)):
                results = [launch.result for launch in part]
                cells.setdefault(label, []).append(_cell(results, rows, length))
    lines = [["op", *(f"rows of {length}" for length in LENGTHS)], ["---"] * (1 + len(LENGTHS))]
    lines += [[label, *row] for label, row in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(results, rows, length):
    def share(names):
        touched = (
            sum(count)
            for result in results
            for buffer, count in result.bytes.items()
            if buffer in names
        )
        return sum(touched) / (rows * length)

    barriers = sum(result.barriers for result in results) / rows
    simd_ops = sum(result.simd_ops for result in results) / rows
    return f"{share(OF_ROWS):.3g} + {share(OF_PARAMETERS):.3g}, {barriers:.3g}, {simd_ops:.3g}"


def table(script: str) -> str:
    """A script's table, from a process in which the extension runs on the software device."""
    from hostmetal.build import HostBuild

    build = HostBuild()
    build.compile()
    environment = {"MLX_NORMS_SELF_CHECK": "0"}  # its launches are not the ops'
    done = build.python(
        script, "--measure", environment=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def main(
    arguments: list[str],
    script: str,
    measure: Callable[[], str],
    page: Path,
    marks: tuple[str, str],
) -> int:
    """Runs a script whose table stands in a page between two marks."""
    if arguments == ["--measure"]:
        print(measure(), end="")
        return 0
    measured = table(script)
    begin, end = marks
    before, rest = page.read_text().split(begin)
    kept, after = rest.split(end)
    if arguments == ["--write"]:
        page.write_text(before + begin + measured + end + after)
    elif arguments == ["--check"]:
        if kept != measured:
            print(f"The counts in {page.name} are not what is measured:\n{measured}")
            return 1
    else:
        print(measured, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], __file__, measure, PAGE, (BEGIN, END)))
