"""What every kernel stands on: float types, rows, the threads of a row."""

from ..mutant import Mutant
from .texts import BESIDE, EVERY_LENGTH, GRADIENT, NORM, NORM_LINEAR, ONE, ROWS

FLOATS = "kernels/common/float_types.h"
ROW_THREADS = "kernels/common/row_threads.h"
GEOMETRY = "csrc/gpu/geometry.h"
SIMDS_SUM = "kernels/common/simds_sum.h"

WHOLE_VECTOR = "  if (row.vectors && span.is_full()) {\n"
AT = "    long at = long(span.begin) * size_of(row.type);\n"

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
        "max_total_threads_per_threadgroup(THREADS)",
        "max_total_threads_per_threadgroup(1024)",
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
        f"{WHOLE_VECTOR}{AT}    load_vector",
        f"  if (row.vectors) {{\n{AT}    load_vector",
        f"{EVERY_LENGTH}[metal-sim-rms_norm]",
    ),
    Mutant(
        "no tail in vector stores",
        ROWS,
        f"{WHOLE_VECTOR}{AT}    store_vector",
        f"  if (row.vectors) {{\n{AT}    store_vector",
        f"{EVERY_LENGTH}[metal-sim-rms_norm]",
    ),
    Mutant(
        "vectors past the row's end stored by elements",
        ROWS,
        "  } else if (!no_tail || span.is_full()) {",
        "  } else {",
        f"{EVERY_LENGTH}[metal-sim-rms_norm]",
    ),
    Mutant(
        "vector loads of rows that are not aligned",
        ROWS,
        f"{WHOLE_VECTOR}{AT}    load_vector",
        f"  if (span.is_full()) {{\n{AT}    load_vector",
        f"{ONE}[metal-sim-rms_norm-65]",
    ),
    Mutant(
        "no bounds check in loads",
        ROWS,
        "v[j] = span.has(j) ? of_row : 0.0f;",
        "v[j] = of_row;",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "elements past the row's end loaded",
        ROWS,
        "at += j > 0 && span.has(j) ?",
        "at += j > 0 ?",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "vectors past the row's end loaded by elements",
        ROWS,
        "  if (span.count == 0) {",
        "  if (false) {",
        f"{EVERY_LENGTH}[metal-sim-rms_norm]",
    ),
    Mutant(
        "no bounds check in stores",
        ROWS,
        "      if (no_tail || span.has(j)) {\n        store(",
        "      {\n        store(",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "step of a row ignored",
        ROWS,
        "long(row.step) * size_of(row.type)",
        "size_of(row.type)",
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
        "a row's sum over its whole SIMD-group",
        ROW_THREADS,
        "return lanes_sum(v, lanes_per_row);",
        "return lanes_sum(v, kSimdSize);",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "lanes counted on from the row before",
        ROW_THREADS,
        "lane % lanes_per_row, 0, partial",
        "lane, 0, partial",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "a sum that a SIMD-group's other rows take no part in",
        ROW_THREADS,
        "return lanes_per_row < kSimdSize ? simd_any(v) : v;",
        "return v;",
        BESIDE,
    ),
    Mutant(
        "one element of a scattered row left out",
        ROW_THREADS,
        "full + int(one_more)",
        "full",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "one element of each thread past a scattered row's end",
        ROW_THREADS,
        "full + int(one_more)",
        "full + 1",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "one thread past a scattered row's end",
        ROW_THREADS,
        "threads.thread_index() < length;",
        "threads.thread_index() <= length;",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "a long scattered row's last elements left out",
        ROW_THREADS,
        "(length - begin + step - 1) / step",
        "(length - begin) / step",
        "tests/norm/test_short_rows.py::test_long_rows_of_odd_vectors -k 16402",
    ),
    Mutant(
        "every row taken for whole",
        GEOMETRY,
        "return length % chunk() == 0;",
        "return true;",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "vectors across the row's end taken for full",
        GEOMETRY,
        "looped ? 0 : length / of_all;",
        "looped ? 0 : length / of_all + 1;",
        f"{EVERY_LENGTH}[metal-sim-rms_norm]",
    ),
    Mutant(
        "rows of any length taken for vectors",
        "csrc/gpu/rows.h",
        "launch.set(K::no_tail, !geometry.is_scattered(length));",
        "launch.set(K::no_tail, true);",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
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
