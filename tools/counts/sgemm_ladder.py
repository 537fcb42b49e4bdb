"""What the rungs of the SGEMM ladder ask for.

Of a product of two matrices of SIZE x SIZE, as metalsim counts: bytes of A and B that loads from
device memory request for a multiply-add, threadgroup memory, and a threadgroup's barriers and
SIMD-group operations. Then the tiles that simdgroup_blocked could have, of TILED x TILED, and a
check that what it has asks for the bytes that its tiles should, of products of any size.
"""

import itertools

import join
from harness import page_part

from .simulated import launches

SIZE = 256
THREADGROUP_MEMORY = 32 << 10  # of a core, on Apple's GPUs

TILED = 192
TILES = ((64, 64, 16), (48, 48, 24), (64, 32, 32), (32, 32, 32))  # rows, columns, depth

HEADS = (
    *("rung", "what it fixes", "group", "bytes per multiply-add", "threadgroup bytes"),
    *("groups in 32 KB", "barriers per group", "SIMD-group operations per group"),
)
TILE_HEADS = (
    *("tile", "sums per SIMD-group", "loads per multiply", "bytes per multiply-add"),
    *("threadgroup bytes", "groups in 32 KB", "barriers for 64 of K"),
)


def measure(simulator) -> str:
    """Two tables in Markdown."""
    import mlx.core as mx

    from mlx_norms.ladders import SGEMM, sgemm

    check_blocked(simulator)
    a, b = (mx.random.normal((SIZE, SIZE)) for _ in range(2))
    lines = []
    for rung in SGEMM:
        (launch,) = launches(simulator, sgemm(a, b, rung=rung.name))
        lines.append([rung.name, rung.fixes, *_cells(launch.group, launch.result)])
    return (
        page_part.markdown(HEADS, lines)
        + "\nThe tiles of `simdgroup_blocked`, of 192×192×192:\n\n"
        + _tiles()
    )


def check_blocked(simulator) -> None:
    """Compares the bytes of simdgroup_blocked with those of its tiles.

    Raises:
        RuntimeError: If they differ by more than a tenth, or a launch has a fault.
    """
    import mlx.core as mx

    import mlx_norms

    shapes = ((128, 128, 64), (130, 100, 70), (32, 64, 64), (70, 20, 33))
    dtypes = (mx.float32, mx.float16, mx.bfloat16)
    for (m, n, k), dtype, stored in itertools.product(shapes, dtypes, ("plain", "transposed")):
        a, b = mx.ones((m, k), dtype), mx.ones((k, n), dtype)
        if stored == "transposed":
            a, b = mx.ones((k, m), dtype).T, mx.ones((n, k), dtype).T
        mx.eval(a, b)
        simulator.clear()
        mx.eval(mlx_norms.matmul(a, b, kernel="simdgroup_blocked"))
        simulator.wait()
        (launch,) = simulator.launches
        tile = 64 if min(m, n) > 32 else 32
        # Each row of tiles reads B, and each column of tiles A.
        should = dtype.size * k * (m * -(-n // tile) + n * -(-m // tile))
        read = sum(launch.result.bytes[name][0] for name in "ab")
        written = launch.result.bytes["c"][1]
        if simulator.faults or abs(read - should) > should / 10 or written != m * n * dtype.size:
            raise RuntimeError(
                f"{m}x{n}x{k} {dtype} {stored}: {read / (2 * m * n * k):.4g} bytes a FLOP are read "
                f"where tiles of {tile} need {should / (2 * m * n * k):.4g}; {simulator.faults}"
            )


def _tiles() -> str:
    import numpy as np

    from metalsim import Library

    kernels = {f"{r}_{c}_{d}": f"simdgroup_blocked<{r}, {c}, {d}>" for r, c, d in TILES}
    entries = "".join(
        f'template [[host_name("{name}")]] [[kernel]] decltype({kernel}) {kernel};\n'
        for name, kernel in kernels.items()
    )
    text = join.texts()["matmul"] + entries
    library = Library.from_source(text, name="tiles", check=1)
    a, b, c = (np.ones((TILED, TILED), np.float32) for _ in "abc")
    lines = []
    for rows, columns, depth in TILES:
        groups = (TILED // rows) * (TILED // columns)
        result = library.launch(
            f"{rows}_{columns}_{depth}",
            # Rows, columns, depth, lines of a and b; and their matrices, of which there is one.
            dict(a=a, b=b, c=c, words_=np.int32([*[TILED] * 5, 0, 0])),
            groups=groups,
            group=128,
            constants=dict(matmul_type=0, a_transposed=False, b_transposed=False)
            | dict(a_vectors=True, b_vectors=True, whole_tiles=True),
            out=["c"],
        )
        if result.faults or np.any(c != TILED):
            raise RuntimeError(f"tile {rows}x{columns}x{depth}: {result.faults}")
        multiplies = (TILED // 8) ** 3
        loads = result.simd_ops - multiplies - (TILED // 8) ** 2  # the last are stores
        memory = result.threadgroup_bytes
        lines.append(
            [
                f"{rows}×{columns}×{depth}",
                str(rows // 16 * (columns // 16)),
                f"{loads / multiplies:.3g}",
                f"{sum(result.bytes[name][0] for name in 'ab') / TILED**3:.3g}",
                str(memory),
                str(THREADGROUP_MEMORY // memory),
                f"{result.barriers / groups * 64 / TILED:.3g}",
            ]
        )
    return page_part.markdown(TILE_HEADS, lines)


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
