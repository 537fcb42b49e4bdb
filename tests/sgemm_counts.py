"""Counts what the rungs of the SGEMM ladder ask for, on the software device.

    python tests/sgemm_counts.py            prints the README's table
    python tests/sgemm_counts.py --check    exits with 1 if the README's is another
    python tests/sgemm_counts.py --write    puts it into the README

Of a product of two matrices of SIZE x SIZE, as metalsim counts: bytes of A and B that loads from
device memory request for a multiply-add, threadgroup memory, and a threadgroup's barriers and
SIMD-group operations.
"""

import sys

from counts import main

BEGIN = "<!-- sgemm counts: python tests/sgemm_counts.py --write -->\n"
END = "<!-- end of sgemm counts -->\n"

SIZE = 256
THREADGROUP_MEMORY = 32 << 10  # of a core, on Apple's GPUs

HEADS = (
    *("rung", "what it fixes", "group", "bytes a multiply-add", "threadgroup bytes"),
    *("groups in 32 KB", "barriers a group", "SIMD-group operations a group"),
)


def measure() -> str:
    """The table, in Markdown. Runs where the extension is one that runs on the software device."""
    import hostmetal

    simulator = hostmetal.start()
    simulator.check = 1

    import mlx.core as mx

    import mlx_norms
    from mlx_norms.ladders import SGEMM

    mx.set_default_device(mx.cpu)
    a, b = (mx.random.normal((SIZE, SIZE)) for _ in range(2))
    lines = [HEADS, ["---"] * len(HEADS)]
    for rung in SGEMM:
        simulator.clear()
        mx.eval(mlx_norms.matmul(a, b, kernel=rung.name))
        simulator.wait()
        if simulator.faults:
            raise RuntimeError("\n".join(simulator.faults))
        (launch,) = simulator.launches
        lines.append([rung.name, rung.fixes, *_cells(launch.group, launch.result)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(group, result):
    read = sum(result.bytes[name][0] for name in "ab")
    memory = result.threadgroup_bytes
    columns, rows, _ = group
    yield f"{columns}×{rows}" if rows > 1 else str(columns)
    yield f"{read / SIZE**3:.3g}"
    yield str(memory)
    yield str(THREADGROUP_MEMORY // memory) if memory else "any"
    yield f"{result.barriers / result.threadgroups:.3g}"
    yield f"{result.simd_ops / result.threadgroups:.3g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], __file__, measure, BEGIN, END))
