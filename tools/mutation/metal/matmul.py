"""The matmul's kernels."""

from ..mutant import Mutant
from .texts import PLAN_MATMUL

BLOCKED = "kernels/matmul/blocked.h"
GEMV_LINES = "kernels/matmul/gemv_lines.metal"
GEMV_COLUMNS = "kernels/matmul/gemv_columns.metal"
LINE_TILES = "kernels/matmul/cuda/gemv_line_tiles.metal"
COLUMN_TILES = "kernels/matmul/cuda/gemv_column_tiles.metal"

MUTANTS = [
    # --- Products
    Mutant(
        "no barrier after tiles of blocks were read",
        BLOCKED,
        "    threadgroup_barrier(mem_flags::mem_threadgroup); // and have been read\n",
        "",
        "tests/matmul/test_matmul.py::test_sizes[simdgroup_blocked-metal-sim]",
    ),
    Mutant(
        "no edge along the lines of tiles",
        BLOCKED,
        "in_line && (whole_tiles || at + j < m.length)",
        "in_line",
        "tests/matmul/test_matmul.py::test_sizes[simdgroup_blocked-metal-sim]",
    ),
    Mutant(
        "blocks of transposed tiles are read as of others",
        BLOCKED,
        "elements += column * (ROWS + 4) + row;",
        "elements += row * (COLUMNS + 4) + column;",
        "tests/matmul/test_matmul.py::test_plain_and_transposed[simdgroup_blocked-metal-sim-dtype0]",
    ),
    Mutant(
        "one SIMD-group's sum for those of all",
        GEMV_LINES,
        "s < splits",
        "s < 1",
        "tests/matmul/test_matmul.py::test_plain_and_transposed[gemv-metal-sim-dtype0]",
    ),
    Mutant(
        "no barrier before columns' sums are added",
        GEMV_COLUMNS,
        "  threadgroup_barrier(mem_flags::mem_threadgroup);\n",
        "",
        "tests/matmul/test_matmul.py::test_plain_and_transposed[gemv-metal-sim-dtype0]",
    ),
    Mutant(
        "x stays where it is while lines are read on",
        GEMV_LINES,
        "    of_x.move(V * step, x_step);\n",
        "",
        "tests/matmul/test_matmul.py::test_plain_and_transposed[gemv-metal-sim-dtype0]",
    ),
    Mutant(
        "no tail in lines",
        GEMV_LINES,
        "w_vectors && n == 0 ? E : elements_left(k + at, depth)",
        "E",
        "tests/matmul/test_matmul.py::test_plain_and_transposed[gemv-metal-sim-dtype0]",
    ),
    Mutant(
        "vectors of columns past the last one",
        GEMV_COLUMNS,
        "? elements_left(column, columns)",
        "? 8",
        "tests/matmul/test_matmul.py::test_plain_and_transposed[gemv-metal-sim-dtype0]",
    ),
    Mutant(
        "columns past the last one",
        GEMV_COLUMNS,
        "w_vectors || column < columns ? depth : 0",
        "depth",
        "tests/matmul/test_matmul.py::test_plain_and_transposed[gemv-metal-sim-dtype0]",
    ),
    Mutant(
        "rows of columns past the last one",
        GEMV_COLUMNS,
        "w_vectors ? L : elements_left(k + part, depth)",
        "L",
        "tests/matmul/test_matmul.py::test_plain_and_transposed[gemv-metal-sim-dtype0]",
    ),
    Mutant(
        "lines are read before they are all staged",
        LINE_TILES,
        "    simdgroup_barrier(mem_flags::mem_threadgroup);\n    for (int n = 0",
        "    for (int n = 0",
        "tests/matmul/test_matmul.py::test_tiles[metal-sim-lines-dtype0]",
    ),
    Mutant(
        "the upper half of a tile is the lower one",
        LINE_TILES,
        "tile_place(row + 8,",
        "tile_place(row,",
        "tests/matmul/test_matmul.py::test_tiles[metal-sim-lines-dtype0]",
    ),
    Mutant(
        "a tile has the same rows of columns twice",
        COLUMN_TILES,
        "high_halves(words[2][q], words[3][q])",
        "high_halves(words[0][q], words[1][q])",
        "tests/matmul/test_matmul.py::test_tiles[metal-sim-columns-dtype1]",
    ),
    Mutant(
        "a tile has the same rows of columns of floats twice",
        COLUMN_TILES,
        "words[1][2 * q + 1]",
        "words[0][2 * q + 1]",
        "tests/matmul/test_matmul.py::test_tiles[metal-sim-columns-dtype0]",
    ),
    Mutant(
        "batches of any strides are more rows",
        PLAN_MATMUL,
        "inner.strides[0] == a.rows * a.row_stride",
        "true",
        "tests/matmul/test_matmul.py::test_products_of_batches",
    ),
]
