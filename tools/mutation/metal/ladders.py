"""The ladders' kernels."""

from ..mutant import Mutant

LADDER = "kernels/ladders/layer_norm"
SGEMM = "kernels/ladders/sgemm/ladder.h"
SGEMM_SQUARE = "kernels/ladders/sgemm/square_tiles.h"
SGEMM_THREADS = "kernels/ladders/sgemm/tile_threads.metal"
SGEMM_SIMDGROUP = "kernels/ladders/sgemm/tile_simdgroup.metal"
PLAN_BATCH = "csrc/gpu/batch_axes.cpp"
RUNGS = "tests/ladders/test_layer_norm_ladder.py"

MUTANTS = [
    # --- The SGEMM ladder
    Mutant(
        "no barrier before square tiles are read",
        SGEMM_SQUARE,
        "    threadgroup_barrier(mem_flags::mem_threadgroup); // the tiles are there\n",
        "",
        "tests/matmul/test_matmul.py::test_sizes[tile_16-metal-sim]",
    ),
    Mutant(
        "no barrier after tiles of threads were read",
        SGEMM_THREADS,
        "    threadgroup_barrier(mem_flags::mem_threadgroup); // and have been read\n",
        "",
        "tests/matmul/test_matmul.py::test_sizes[tile_threads-metal-sim]",
    ),
    Mutant(
        "no barrier after blocks with an edge were read",
        SGEMM_SIMDGROUP,
        "    simdgroup_barrier(mem_flags::mem_threadgroup); // the edges have been read\n",
        "",
        "tests/matmul/test_matmul.py::test_sizes[tile_simdgroup-metal-sim]",
    ),
    Mutant(
        "every block's columns are said to be within the matrix",
        SGEMM_SIMDGROUP,
        "row + 8 <= rows && column + 8 <= columns",
        "row + 8 <= rows",
        "tests/matmul/test_matmul.py::test_sizes[tile_simdgroup-metal-sim]",
    ),
    Mutant(
        "no K tail in tiles of A",
        SGEMM,
        "row < rows && column < columns ?",
        "row < rows ?",
        "tests/matmul/test_matmul.py::test_sizes[tile_16-metal-sim]",
    ),
    Mutant(
        "a batch axis of one matrix is walked as many",
        PLAN_BATCH,
        "size == 1 ? 0 : operand->strides(-i)",
        "i > static_cast<int>(operand->ndim()) ? 0 : operand->strides(-i)",
        "tests/matmul/test_matmul.py::test_batches[naive-metal-sim]",
    ),
    # --- The LayerNorm ladder
    Mutant(
        "no barrier before a tree grows again",
        f"{LADDER}/shared.metal",
        "  threadgroup_barrier(mem_flags::mem_threadgroup); // the tree grows again\n",
        "",
        f"{RUNGS}::test_values[metal-sim-shared-f32]",
    ),
    Mutant(
        "no barrier between a tree's levels",
        f"{LADDER}/shared.metal",
        "    threadgroup_barrier(mem_flags::mem_threadgroup);\n    if",
        "    if",
        f"{RUNGS}::test_values[metal-sim-shared-f32]",
    ),
    Mutant(
        "no barrier between two sums of a rung",
        f"{LADDER}/simd.metal",
        "  threadgroup_barrier(mem_flags::mem_threadgroup); // partial is written again\n",
        "",
        f"{RUNGS}::test_values[metal-sim-simd-f32]",
    ),
    Mutant(
        "no barrier before moments are merged",
        f"{LADDER}/moments.h",
        "  threadgroup_barrier(mem_flags::mem_threadgroup);\n",
        "",
        f"{RUNGS}::test_values[metal-sim-welford-f32]",
    ),
    Mutant(
        "moments of SIMD-groups that there are not",
        f"{LADDER}/moments.h",
        "lane < simds ? partial[lane] : float4(0.0f)",
        "partial[lane]",
        f"{RUNGS}::test_values[metal-sim-welford-f32]",
    ),
    Mutant(
        "half of the elements counted in a merge",
        f"{LADDER}/moments.h",
        "* a.count, count};",
        "* a.count, a.count};",
        f"{RUNGS}::test_values[metal-sim-welford-f32]",
    ),
    Mutant(
        "a mean in float32 alone",
        f"{LADDER}/moments.h",
        "base = count == 0.0f ? v : base;",
        "base = 0.0f;",
        f"{RUNGS}::test_a_large_mean",
    ),
    Mutant(
        "no tail in fours",
        f"{LADDER}/fours.h",
        "  } else if (unaligned == kPacked && i + 4 <= length) {\n    put(v",
        "  } else if (unaligned == kPacked) {\n    put(v",
        f"{RUNGS}::test_values[metal-sim-robust-f32]",
    ),
    Mutant(
        "deviations past the end of a rung's row",
        f"{LADDER}/fours.h",
        "rung_aligned || i + j < length ? d * d : 0.0f",
        "d * d",
        f"{RUNGS}::test_values[metal-sim-vectorized-f32]",
    ),
    Mutant(
        "eps dropped in a rung",
        f"{LADDER}/welford.metal",
        "precise::rsqrt(m.squares / float(length) + eps)",
        "precise::rsqrt(m.squares / float(length))",
        f"{RUNGS}::test_values_about_the_root_of_eps[metal-sim-welford-f32]",
    ),
]
