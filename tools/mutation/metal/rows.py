"""What every kernel stands on: float types, rows, the threads of a row."""

from ..mutant import Mutant
from .texts import GRADIENT, NORM, NORM_LINEAR, ONE, ROWS

FLOATS = "kernels/common/float_types.h"
ROW_THREADS = "kernels/common/row_threads.h"
SIMDS_SUM = "kernels/common/simds_sum.h"

MUTANTS = [
    # --- What Metal's compiler is told
    Mutant(
        "an argument named that is not there",
        NORM_LINEAR,
        "linear_bias_1 ? bias1 : w1,",
        "bias1,",
        "tests/linear/test_linear_kernel.py::test_constant_rows",
    ),
    Mutant(
        "more threads declared than are launched",
        NORM,
        "INSTANTIATE_NORM(4, 8, 256)",
        "INSTANTIATE_NORM(4, 8, 512)",
        "tests/norm/test_group_sizes.py",
    ),
    # --- Float types
    Mutant(
        "bfloat16 is cut",
        FLOATS,
        "(bits & 0x10000u) != 0 ? 0x8000u : 0x7fffu",
        "0u",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "bfloat16 ties go up",
        FLOATS,
        "(bits & 0x10000u) != 0 ? 0x8000u : 0x7fffu",
        "0x8000u",
        "tests/norm/test_fused.py::test_fused_is_add_and_then_norm[metal-sim-add_rms_norm-33]",
    ),
    Mutant(
        "NaN rounds to inf in bfloat16",
        FLOATS,
        "is_nan(v) ? 0x7fc00000u : bits",
        "bits",
        "tests/norm/test_probes.py::test_every_nan_stays_nan",
    ),
    Mutant(
        "the half that rounding to bfloat16 leaves over is kept",
        FLOATS,
        "as_type<float4>(rounded & 0xffff0000u)",
        "as_type<float4>(rounded)",
        "tests/norm/test_rounding.py::test_each_is_its_formula",
    ),
    Mutant(
        "bfloat16 is cut in vectors, as if it were rounded",
        FLOATS,
        "  if (type == kRoundedBFloat16) {\n    uint4",
        "  if (type != kFloat32) {\n    uint4",
        "tests/norm/test_rounding.py::test_each_where_nothing_is_left_to_chance",
    ),
    # --- Rows
    Mutant(
        "no tail in vector loads",
        ROWS,
        "  if (row.vectors && in_row(i, N, length)) {\n    load_vector",
        "  if (row.vectors) {\n    load_vector",
        f"{ONE}[metal-sim-rms_norm-129]",
    ),
    Mutant(
        "no tail in vector stores",
        ROWS,
        "  if (row.vectors && in_row(i, N, length)) {\n    store_vector",
        "  if (row.vectors) {\n    store_vector",
        f"{ONE}[metal-sim-rms_norm-128]",
    ),
    Mutant(
        "vector loads of rows that are not aligned",
        ROWS,
        "  if (row.vectors && in_row(i, N, length)) {\n    load_vector",
        "  if (in_row(i, N, length)) {\n    load_vector",
        f"{ONE}[metal-sim-rms_norm-65]",
    ),
    Mutant(
        "no bounds check in loads",
        ROWS,
        "    v[j] = in_row(i + j, 1, length)\n"
        "        ? load(row.data + at * size_of(row.type), row.type)\n"
        "        : 0.0f;",
        "    v[j] = load(row.data + at * size_of(row.type), row.type);",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "no bounds check in stores",
        ROWS,
        "    if (in_row(i + j, 1, length)) {\n      store(",
        "    {\n      store(",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "step of a row ignored",
        ROWS,
        "long(i + j) * row.step;",
        "long(i + j);",
        "tests/norm/test_layouts.py::test_layout -k every_third",
    ),
    Mutant(
        "second stride of a layout ignored",
        ROWS,
        "long(outer % uint(layout[kSize1])) * layout[kStride1]",
        "0",
        "tests/norm/test_layouts.py::test_axes_in_another_order",
    ),
    Mutant(
        "third stride of a layout ignored",
        ROWS,
        "long(outer / uint(layout[kSize1])) * layout[kStride2]",
        "0",
        "tests/norm/test_layouts.py::test_axes_in_another_order",
    ),
    # --- The threads of a row
    Mutant(
        "no barrier in a sum",
        SIMDS_SUM,
        "  threadgroup_barrier(mem_flags::mem_threadgroup);\n  return simd_total",
        "  return simd_total",
        f"{ONE}[metal-sim-rms_norm-1025]",
    ),
    Mutant(
        "one half of the partial sums for every sum",
        ROW_THREADS,
        "    parity = 1 - parity;\n",
        "",
        f"{GRADIENT}[metal-sim-layer_norm-1025]",
    ),
    Mutant(
        "partial sums of SIMD-groups that there are not",
        SIMDS_SUM,
        "lane < simds ? totals[lane] : T(0.0f)",
        "totals[lane]",
        f"{ONE}[metal-sim-rms_norm-1025]",
    ),
    Mutant(
        "every lane writes its SIMD-group's sum",
        SIMDS_SUM,
        "  if (lane == 0) {\n",
        "  {\n",
        f"{ONE}[metal-sim-rms_norm-1025]",
    ),
    Mutant(
        "sums of one SIMD-group of several",
        SIMDS_SUM,
        "  if (simds == 1) {\n    return v;",
        "  if (true) {\n    return v;",
        f"{ONE}[metal-sim-rms_norm-1025]",
    ),
    Mutant(
        "only the first chunk of a long row",
        ROW_THREADS,
        "chunk == 0 || (looped && chunk < length)",
        "chunk == 0",
        f"{ONE}[metal-sim-rms_norm-65536]",
    ),
]
