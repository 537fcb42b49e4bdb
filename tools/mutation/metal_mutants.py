"""Defects planted in the Metal kernels and their plans: barriers, bounds checks, corrections."""

from .mutants import Mutant

FLOATS = "kernels/common/float_types.h"
ROWS = "kernels/common/rows.h"
ROW_THREADS = "kernels/common/row_threads.h"
SIMDS_SUM = "kernels/common/simds_sum.h"
LOOP = "kernels/norm/persistent_loop.h"
HELD = "kernels/norm/held_row.h"
AHEAD = "kernels/norm/rows_ahead.h"
STATISTICS = "kernels/norm/statistics.h"
SUM = "kernels/common/compensated_sum.h"
PARAMETERS = "kernels/common/parameters.h"
NORM = "kernels/norm/norm.metal"
VJP = "kernels/norm/vjp/norm_vjp.metal"
GRADIENTS = "kernels/norm/vjp/parameter_gradients.metal"
GATHER = "kernels/common/gather_rows.metal"
LADDER = "kernels/ladders/layer_norm"
SGEMM = "kernels/ladders/sgemm/ladder.h"
SGEMM_SQUARE = "kernels/ladders/sgemm/square_tiles.h"
SGEMM_THREADS = "kernels/ladders/sgemm/tile_threads.metal"
SGEMM_SIMDGROUP = "kernels/ladders/sgemm/tile_simdgroup.metal"
NORMED = "kernels/linear/normed_rows.h"
WEIGHTS = "kernels/linear/weights.h"
NORM_LINEAR = "kernels/linear/norm_linear.metal"
PROJECTIONS = "csrc/patching/fuse_projections.cpp"
PENDING_GRAPH = "csrc/patching/pending_graph.cpp"
PLAN_LINEAR = "csrc/linear/plan.cpp"
BLOCKED = "kernels/matmul/blocked.h"
GEMV_LINES = "kernels/matmul/gemv_lines.metal"
GEMV_COLUMNS = "kernels/matmul/gemv_columns.metal"
LINE_TILES = "kernels/matmul/cuda/gemv_line_tiles.metal"
COLUMN_TILES = "kernels/matmul/cuda/gemv_column_tiles.metal"
PLAN_ROWS = "csrc/gpu/rows.cpp"
PLAN_NORM = "csrc/norm/plan.cpp"
PLAN_BATCH = "csrc/gpu/batch_axes.cpp"
PLAN_MATMUL = "csrc/matmul/plan.cpp"
PLAN_VJP = "csrc/norm/vjp_plan.cpp"
EVAL = "csrc/norm/eval_gpu.cpp"
ENCODE = "csrc/gpu/metal/encode.cpp"
LINEAR = "csrc/linear/primitive.cpp"
LIBRARY = "csrc/gpu/metal/library.cpp"
SPECIALIZATION = "csrc/gpu/specialization.cpp"
SELF_CHECK = "csrc/common/self_check.cpp"
CHECK_STREAM = "csrc/common/check_stream.cpp"

ONE = "tests/norm/test_forward.py::test_one_dtype"
RUNGS = "tests/ladders/test_layer_norm_ladder.py"
GRADIENT = "tests/norm/test_gradients.py::test_one_dtype"
CHECKED = "-m build tests/cli/test_self_check.py::"

CHUNKS = (
    "  for (int chunk = 0; next_chunk(chunk, length);\n       chunk += chunk_length<N, V>()) {\n"
)
ONE_CHUNK = "  for (int chunk = 0; chunk == 0; ++chunk) {\n"

METAL_MUTANTS = [
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
        "bits + 0x7fffu + ((bits >> 16) & 1u)",
        "bits",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "bfloat16 ties go up",
        FLOATS,
        "bits + 0x7fffu + ((bits >> 16) & 1u)",
        "bits + 0x8000u",
        "tests/norm/test_fused.py::test_fused_is_add_and_then_norm[metal-sim-add_rms_norm-33]",
    ),
    Mutant(
        "NaN rounds to inf in bfloat16",
        FLOATS,
        "is_nan(v) ? bits | 0x00400000u : rounded",
        "rounded",
        "tests/norm/test_probes.py::test_every_nan_stays_nan",
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
    # --- Statistics
    Mutant(
        "eps dropped in rms",
        STATISTICS,
        "precise::rsqrt(square + eps)",
        "precise::rsqrt(square)",
        "tests/norm/test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "eps dropped in layer",
        STATISTICS,
        "precise::rsqrt(variance + eps)",
        "precise::rsqrt(variance)",
        "tests/norm/test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "mean correction dropped",
        STATISTICS,
        "(v - mean - correction) * rstd",
        "(v - mean) * rstd",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "variance not corrected",
        STATISTICS,
        "variance = of_d.y - correction * correction;",
        "variance = of_d.y;",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "a lost difference kept",
        STATISTICS,
        "!is_finite(variance) || variance < 16.0f * square",
        "!is_finite(variance)",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "squares past the largest float not seen",
        STATISTICS,
        "!is_finite(variance) || variance < 16.0f * square",
        "variance < 16.0f * square",
        "tests/norm/test_probes.py::test_squares_past_the_largest_float",
    ),
    Mutant(
        "no second pass",
        STATISTICS,
        "  if (is_lost(variance, mean * mean)) {",
        "  if (false) {",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "no third pass",
        STATISTICS,
        "    if (is_lost(variance, correction * correction)) {",
        "    if (false) {",
        "tests/norm/test_probes.py::test_rows_that_are_constant_but_for_an_ulp",
    ),
    Mutant(
        "deviations past the row's end",
        STATISTICS,
        "d = in_row(i + j, 1, length) ? d : 0.0f;",
        "",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "deviations of one chunk of a long row",
        STATISTICS,
        CHUNKS,
        ONE_CHUNK,
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    # --- Parameters
    Mutant(
        "weight offset dropped",
        PARAMETERS,
        "has_weight_offset ? w[j] + offset : w[j]",
        "has_weight_offset ? w[j] : w[j]",
        "tests/norm/test_forward.py::test_options[metal-sim-rms_norm]",
    ),
    # --- Forward
    Mutant(
        "rows past the last one",
        NORM,
        "    return; // a whole SIMD-group",
        "    // a whole SIMD-group",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "no clamp above",
        NORM,
        "v > 65504.0f ? 65504.0f : v",
        "v",
        "tests/norm/test_clamp.py::test_sum_saturates",
    ),
    Mutant(
        "no clamp below",
        NORM,
        "below < -65504.0f ? -65504.0f : below",
        "below",
        "tests/norm/test_clamp.py::test_sum_saturates",
    ),
    Mutant(
        "statistics of the sum before it is rounded",
        NORM,
        "  round_vector<N>(sum.type, v);\n",
        "",
        "tests/norm/test_fused.py::test_fused_is_add_and_then_norm[metal-sim-add_rms_norm-33]",
    ),
    Mutant(
        "long rows of x for those of the sum",
        NORM,
        "    in = as_input(s); // written by the thread that reads it\n",
        "",
        f"{ONE}[metal-sim-add_rms_norm-65536]",
    ),
    Mutant(
        "long rows of the sum read as those of the residual",  # right in its memory
        NORM,
        "in = as_input(s); // written",
        "in = RowIn{r.row.data, s.type, s.vectors, 1}; // written",
        "tests/norm/test_donation.py::test_values_in_the_memory_of_dead_inputs[metal-sim-add_rms_norm-65536]",
    ),
    Mutant(
        "one chunk of a long row written",
        HELD,
        "    if (looped) {\n      read<N>(row, i, length, to);\n",
        "    if (false) {\n      read<N>(row, i, length, to);\n",
        f"{ONE}[metal-sim-rms_norm-65536]",
    ),
    Mutant(
        "early rounding dropped",
        NORM,
        "      if (round_early) {\n",
        "      if (round_early && false) {\n",
        "tests/norm/test_rounding.py::test_each_is_its_formula",
    ),
    Mutant(
        "k's rows counted on from q's",
        NORM,
        "    row -= uint(rows);\n",
        "",
        "tests/norm/test_heads.py::test_qk_norm_is_head_rms_norm_of_each",
    ),
    Mutant(
        "q's weight for k",
        NORM,
        "row_in(weight2, weight2_flags, weight2_layout, row, length)",
        "row_in(weight, weight2_flags, weight_layout, row, length)",
        "tests/norm/test_heads.py::test_qk_norm_is_head_rms_norm_of_each",
    ),
    # --- Backward
    Mutant(
        "loops past the last one",
        VJP,
        "    return; // a whole SIMD-group",
        "    // a whole SIMD-group",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "mean of the weighted cotangent dropped",
        VJP,
        "rstd}, means.z,",
        "rstd}, 0.0f,",
        f"{GRADIENT}[metal-sim-layer_norm-33]",
    ),
    Mutant(
        "sums with the cotangent past the largest float kept",
        VJP,
        "lost || !is_finite(wgd)",
        "lost",
        "tests/norm/test_magnitudes.py::test_large_cotangents",
    ),
    Mutant(
        "mean of the weighted cotangent not scaled",
        VJP,
        "-sums.mean_wg * rstd",
        "-sums.mean_wg",
        f"{GRADIENT}[metal-sim-layer_norm-33]",
    ),
    Mutant(
        "projection on the normalized row dropped",
        VJP,
        "d = fma(-n, sums.mean_wgn * rstd, d);",
        "",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "weighted cotangents' sum with x for that with d",
        VJP,
        "means.w - mean * means.z",
        "means.w",
        f"{GRADIENT}[metal-sim-layer_norm-33]",
    ),
    Mutant(
        "weighted cotangents' sum with d not corrected",
        VJP,
        "wgd = of_d.z - of_d.x * (by * means.z);\n    if",
        "wgd = of_d.z;\n    if",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "eps dropped in the gradient of rms",
        VJP,
        "precise::rsqrt(means.x + eps)",
        "precise::rsqrt(means.x)",
        "tests/norm/test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "eps dropped in the gradient of layer",
        VJP,
        "precise::rsqrt(variance + eps)",
        "precise::rsqrt(variance)",
        "tests/norm/test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "variance not corrected in the gradient",
        VJP,
        "variance = of_d.y - correction * correction;",
        "variance = of_d.y;",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "no second pass in the gradient",
        VJP,
        "bool lost = is_lost(variance, mean * mean);",
        "bool lost = false;",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "no third pass in the gradient",
        VJP,
        "      if (is_lost(variance, correction * correction)) {",
        "      if (false) {",
        "tests/norm/test_probes.py::test_rows_that_are_constant_but_for_an_ulp",
    ),
    Mutant(
        "deviations past the row's end in the gradient",
        VJP,
        "d = in_row(i + j, 1, length) ? d : 0.0f;",
        "",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "kept correction dropped",
        VJP,
        "kept[1] = sums.stats.correction;",
        "kept[1] = 0.0f;",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "the first head's weight for all",
        VJP,
        "weight_layout, loop.row, length)",
        "weight_layout, 0, length)",
        "tests/norm/test_heads.py::test_head_rms_norm",
    ),
    Mutant(
        "sum's cotangent dropped",
        VJP,
        "d = has_sum_cotangent ? d + h[j] : d;",
        "",
        f"{GRADIENT}[metal-sim-add_rms_norm-33]",
    ),
    Mutant(
        "gradient where the sum is saturated",
        VJP,
        "clamped_sum && fabs(x[j]) == 65504.0f ? 0.0f : d",
        "clamped_sum ? d : d",
        "tests/norm/test_clamp.py::test_gradient_is_zero_where_the_sum_is_saturated",
    ),
    Mutant(
        "cotangents of one chunk of a long row summed",
        VJP,
        "    sums += float4(of_x.x, of_x.y, of_wg.x, of_wg.y);\n",
        "    sums = float4(of_x.x, of_x.y, of_wg.x, of_wg.y);\n",
        f"{GRADIENT}[metal-sim-rms_norm-65536]",
    ),
    Mutant(
        "deviations of one chunk of a long row in the gradient",
        VJP,
        "  float4 sums = float4(0.0f);\n" + CHUNKS,
        "  float4 sums = float4(0.0f);\n" + ONE_CHUNK,
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "partial sums not aligned",
        VJP,
        "kFloat32 | (length % 4 == 0 ? kVectors : 0)",
        "kFloat32 | kVectors",
        f"{GRADIENT}[metal-sim-rms_norm-129]",
    ),
    Mutant(
        "the next row not fetched",
        VJP,
        "operands.fetch_ahead(loop, iteration + 1, k, threads, length);",
        "operands.fetch_ahead(loop, iteration, k, threads, length);",
        "tests/norm/test_gradients.py::test_rows_of_persistent_loops -k rms_norm",
    ),
    Mutant(
        "every row fetched past the next",
        VJP,
        "operands.fetch_ahead(loop, iteration + 1, k, threads, length);",
        "operands.fetch_ahead(loop, iteration + 2, k, threads, length);",
        "tests/norm/test_gradients.py::test_rows_of_persistent_loops -k rms_norm",
    ),
    Mutant(
        "the last row of a loop not fetched",
        VJP,
        "stages == 0 && iteration + 1 < loop.count",
        "stages == 0 && iteration + 2 < loop.count",
        "tests/norm/test_gradients.py::test_rows_of_persistent_loops -k rms_norm",
    ),
    Mutant(
        "rows of other heads in a loop",
        LOOP,
        "return row + iteration * step;",
        "return row + iteration;",
        "tests/norm/test_heads.py::test_rows_of_persistent_loops",
    ),
    Mutant(
        "vectors fetched past the row's end",
        ROWS,
        "  if (in_row(i, N, length)) {\n    return",
        "  {\n    return",
        f"{GRADIENT}[metal-sim-rms_norm-129]",
    ),
    Mutant(
        "a row's last elements not read",
        AHEAD,
        "if (is_fetched<N>(row, i, length)) {",
        "if (can_fetch<N>(row)) {",
        f"{GRADIENT}[metal-sim-rms_norm-129]",
    ),
    Mutant(
        "a weight's last elements not read",
        AHEAD,
        "!looped && is_fetched<N>(row, i, length)",
        "!looped && can_fetch<N>(row)",
        f"{GRADIENT}[metal-sim-rms_norm-129]",
    ),
    Mutant(
        "a weight's offset dropped in the gradient",
        AHEAD,
        "    add_offset<N>(offset, w);\n",
        "    add_offset<N>(0.0f, w);\n",
        "tests/norm/test_gradients.py::test_options",
    ),
    Mutant(
        "a long row's last chunk for all",
        AHEAD,
        "    if (looped) {\n      read<N>(row, i, length, v);\n",
        "    if (false) {\n      read<N>(row, i, length, v);\n",
        f"{GRADIENT}[metal-sim-rms_norm-65536]",
    ),
    Mutant(
        "vectors of other sizes fetched",
        ROWS,
        "row.vectors && N * size_of(row.type) == 16",
        "row.vectors",
        "tests/norm/test_gradients.py::test_options",
    ),
    Mutant(
        "every row taken for whole",
        "csrc/gpu/geometry.h",
        "return length % (width * vectors * kSimdSize * simds) == 0;",
        "return true;",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "a loop runs past its rows",
        LOOP,
        "min(rows_per_loop, of_head - first)",
        "rows_per_loop",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "heads in one loop",
        LOOP,
        "first * heads + index % heads",
        "first * heads",
        "tests/norm/test_heads.py::test_qk_norm_gradients",
    ),
    Mutant(
        "plain sums over rows",
        SUM,
        "float y = v - error;",
        "float y = v;",
        "tests/norm/test_gradients.py::test_many_like_rows",
    ),
    Mutant(
        "infinite sums become NaN",
        SUM,
        "is_nan(lost) ? 0.0f : lost",
        "lost",
        "tests/norm/test_gradients.py::test_infinite_cotangent",
    ),
    Mutant(
        "the weight's partial sums for the bias's",
        GRADIENTS,
        ": of_weight     ? weight_partials[at]",
        ": sums_weight   ? weight_partials[at]",
        f"{GRADIENT}[metal-sim-layer_norm-33]",
    ),
    Mutant(
        "the weight's gradient summed alone",
        PLAN_VJP,
        "(weight_gradient != nullptr) + (bias_gradient != nullptr)",
        "1",
        f"{GRADIENT}[metal-sim-layer_norm-33]",
    ),
    Mutant(
        "rows of partial sums past the last one",
        GRADIENTS,
        "row >= count ? 0.0f",
        "false ? 0.0f",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "few of many rows of partial sums",
        GRADIENTS,
        "i += 8 * kSumSimds",
        "i += count",
        "tests/norm/test_gradients.py::test_many_like_rows",
    ),
    Mutant(
        "no barrier before the sums of partial sums",
        GRADIENTS,
        "  threadgroup_barrier(mem_flags::mem_threadgroup);\n",
        "",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "partial sums of columns past the last one",
        GRADIENTS,
        "  if (column < columns) {\n    for",
        "  {\n    for",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "gradients past the last column",
        GRADIENTS,
        "simd == 0 && column < columns",
        "simd == 0",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "every SIMD-group writes the gradient",
        GRADIENTS,
        "simd == 0 && column < columns",
        "column < columns",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "columns past a long row's end",
        GRADIENTS,
        "    if (i + j < length) {\n      long to",
        "    {\n      long to",
        "tests/norm/test_gradients.py::test_long_rows_with_a_tail",
    ),
    Mutant(
        "a thread past a long row's end",
        GRADIENTS,
        "  if (i >= length) {\n    return;\n  }\n",
        "",
        None,
        redundant="Its loads and stores are checked; it spares the loop over the rows.",
    ),
    Mutant(
        "gathered elements past the row's end",
        GATHER,
        "  if (at.y < uint(length)) {\n",
        "  {\n",
        "tests/norm/test_layouts.py::test_many_axes_of_rows",
    ),
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
    # --- Plans
    Mutant(
        "every row is said to be aligned",
        PLAN_ROWS,
        "  return is_multiple(a.offset(), alignment) &&",
        "  return true || is_multiple(a.offset(), alignment) &&",
        "tests/norm/test_layouts.py::test_layout",
    ),
    Mutant(
        "every dense row is said to be aligned",
        PLAN_ROWS,
        "  bool vectors = is_multiple(a.offset(), alignment) &&",
        "  bool vectors = true || is_multiple(a.offset(), alignment) &&",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "elements apart are said to be vectors",
        PLAN_ROWS,
        "bool vectors = step_of(a) == 1 && aligned",
        "bool vectors = aligned",
        "tests/norm/test_layouts.py::test_layout -k every_second",
    ),
    Mutant(
        "offsets of gathered parts dropped",
        PLAN_ROWS,
        "launch.set(K::from, a, offset * a.itemsize());",
        "launch.set(K::from, a);",
        "tests/norm/test_layouts.py::test_many_axes_of_rows",
    ),
    Mutant(
        "a gradient in the memory of rows still to be read",
        EVAL,
        " && !reads_rows_again(spec_, in.s, stream())) {",
        ") {",
        "tests/norm/test_gradients.py::test_long_rows_with_a_tail",
    ),
    Mutant(
        "temporaries freed before the launches ran",
        ENCODE,
        "  encoder.add_temporaries({plan.temporaries.begin(), plan.temporaries.end()});\n",
        "",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "one pipeline for every specialization",
        SPECIALIZATION,
        "key.constants.at(n++) = value;",
        "key.constants.at(n++) = 0 * value;",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "a launch without a number",
        PLAN_NORM,
        "  launch.set(K::eps, spec.eps);\n",
        "",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "a launch without a function constant",
        PLAN_VJP,
        "  launch.set(K::clamped_sum, norm.clamp && b.s.array->dtype() == mx::float16);\n",
        "",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "a launch without an array",
        PLAN_MATMUL,
        "  launch.set(K::w, *w.array, first[1] * bytes);\n",
        "",
        "tests/matmul/test_matmul.py::test_plain_and_transposed -k gemv",
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
    # --- Norm and projections as one node
    Mutant(
        "weights that are pending taken for dense",
        LINEAR,
        "bool is_dense = a.is_available() && a.flags().row_contiguous;",
        "bool is_dense = true;",
        "tests/linear/test_linear.py::test_layouts",
    ),
    Mutant(
        "shapes of projections unchecked",
        LINEAR,
        "  check_projections(name(), spec_, inputs);\n",
        "",
        "tests/linear/test_linear.py::test_shapeless_call_with_shapes_that_do_not_fit",
    ),
    Mutant(
        "batched parameters taken for rows",
        LINEAR,
        "[](int a) { return a >= 0; }",
        "[](int) { return false; }",
        "tests/linear/test_linear.py::test_vmap_of_parameters",
    ),
    # --- The kernel of a norm and its projections
    Mutant(
        "eps dropped before projections",
        NORMED,
        "precise::rsqrt(v + eps)",
        "precise::rsqrt(v)",
        "tests/linear/test_linear.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "a shift far from the mean kept before projections",
        NORM_LINEAR,
        "center && pass == 0 && scale.shift_is_far()",
        "false",
        "tests/linear/test_linear_kernel.py::test_layer_norm_of_rows_with_an_outlier",
    ),
    Mutant(
        "all rows shifted anew with one before projections",
        NORM_LINEAR,
        "if (center && pass == 0 && scale.shift_is_far()) {",
        "if (center && pass == 0 && (again || scale.shift_is_far())) {",
        "tests/linear/test_linear_kernel.py::test_layer_norm_of_rows_with_an_outlier",
    ),
    Mutant(
        "no shift before projections",
        NORM_LINEAR,
        "v - shift[r] : 0.0f",
        "v : 0.0f",
        "tests/linear/test_linear.py::test_layer_norm_of_rows_with_a_large_mean",
    ),
    Mutant(
        "the shift of one element",
        NORMED,
        "  return simds_sum(v, 0, lane, 1, partial) / float(min(length, kSimdSize));",
        "  return simd_shuffle(v, 0);",
        "tests/linear/test_linear_kernel.py::test_an_outlier_takes_no_second_pass",
    ),
    Mutant(
        "shifted values past the row's end",
        NORM_LINEAR,
        "in_row(i + j, 1, length) ? v - shift[r] : 0.0f",
        "v - shift[r]",
        "tests/linear/test_linear.py::test_sizes",
    ),
    Mutant(
        "x + residual projected before it is rounded",
        NORMED,
        "    round_vector<P>(row.x.type, v);\n",
        "",
        "tests/linear/test_linear.py::test_options",
    ),
    Mutant(
        "no tail in weights",
        WEIGHTS,
        "  if (!in_row(i, 1, length)) {",
        "  if (false) {",
        "tests/linear/test_linear.py::test_sizes",
    ),
    Mutant(
        "no tail in vectors of weights",
        WEIGHTS,
        "    if (whole || i < length) {",
        "    if (true) {",
        "tests/linear/test_linear.py::test_sizes",
    ),
    Mutant(
        "no tail in packed weights",
        NORM_LINEAR,
        "} else if (in_row(i, N, length)) {",
        "} else if (true) {",
        "tests/linear/test_linear.py::test_quantized",
    ),
    Mutant(
        "weights past the last row",
        NORM_LINEAR,
        "min(first_output + o % outputs, of.size - 1)",
        "first_output + o % outputs",
        "tests/linear/test_linear.py::test_sizes",
    ),
    Mutant(
        "dot products of one SIMD-group of several",
        NORM_LINEAR,
        "threads.reduce(take(dots + r * R + 4 * q))",
        "simds_sum(take(dots + r * R + 4 * q), 0, threads.lane, 1, partial)",
        "tests/linear/test_linear_kernel.py::test_rows_that_simd_groups_share",
    ),
    Mutant(
        "the sum written by a block that computes",
        NORM_LINEAR,
        "linear_has_residual && block == 0",
        "linear_has_residual && block == 1",
        "tests/linear/test_linear.py::test_options",
    ),
    Mutant(
        "a gate's bias for both",
        NORM_LINEAR,
        "    other.bias = linear_bias_2 ? bias2 : w2;\n",
        "",
        "tests/linear/test_linear_kernel.py::test_a_gate_far_from_zero",
    ),
    Mutant(
        "vectors of weights that are not aligned",
        PLAN_LINEAR,
        "  return weight.offset() % kVectorBytes == 0 &&",
        "  return true &&",
        "tests/linear/test_linear_kernel.py::test_weights_that_are_not_aligned",
    ),
    Mutant(
        "the number of rows in how a row is shared",
        PLAN_LINEAR,
        "simds_for(n_outputs, length, width, stream)",
        "simds_for(n_outputs * rows, length, width, stream)",
        "tests/linear/test_linear_kernel.py::test_more_rows_do_not_change_how_a_row_is_shared",
    ),
    # --- Products before evaluation
    Mutant(
        "a norm that is asked for itself",
        PROJECTIONS,
        "norm->spec().clamp || graph_.is_root(a) ||",
        "norm->spec().clamp ||",
        "tests/patching/test_projections.py::test_left_alone",
    ),
    Mutant(
        "weights that are not there yet",
        PROJECTIONS,
        "return !is_pending(a) && !a.is_tracer()",
        "return !a.is_tracer()",
        "tests/patching/test_projections.py::test_left_alone",
    ),
    Mutant(
        "one number for a bias",
        PROJECTIONS,
        "a.inputs()[0].shape(0) == a.shape(-1)",
        "true",
        "tests/patching/test_projections.py::test_one_number_for_a_bias",
    ),
    Mutant(
        "up taken for gate",
        PROJECTIONS,
        "      std::swap(products[0], products[1]);\n",
        "",
        "tests/patching/test_projections.py::test_gated_pair",
    ),
    Mutant(
        "a product that is asked for itself in a gated pair",
        PENDING_GRAPH,
        "uses->count == 1 && !uses->root",
        "uses->count == 1",
        "tests/patching/test_projections.py::test_pair_of_which_one_is_taken_elsewhere",
    ),
    Mutant(
        "the sum left to its norm",
        PROJECTIONS,
        "      outputs.push_back(sum);\n",
        "",
        "tests/patching/test_projections.py::test_of_a_sum",
    ),
    # --- Libraries and the check of a specialization before its first use
    Mutant(
        "a kernel's library by the first name that begins so",
        LIBRARY,
        "name.starts_with(family) && family.size() > longest",
        "name.starts_with(family) && longest == 0",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "a library that cannot be built is built all the same",
        LIBRARY,
        "  if (!built.library) {\n    throw KernelError(",
        "  if (false) {\n    throw KernelError(",
        f"{CHECKED}test_a_library_that_cannot_be_built",
    ),
    Mutant(
        "a fault is no verdict",
        SELF_CHECK,
        "(is_ours && is_fault(outcome.reason))",
        "false",
        f"{CHECKED}test_a_fault_is_a_bad_verdict",
    ),
    Mutant(
        "too little memory is a bad verdict",
        SELF_CHECK,
        '!says("nsufficient Memory") && !says("OutOfMemory")',
        '!says("OutOfMemory")',
        f"{CHECKED}test_without_a_verdict",
    ),
    Mutant(
        "checks without a verdict for ever",
        SELF_CHECK,
        "++misses[key] < kMostMisses",
        "true",
        f"{CHECKED}test_without_a_verdict",
    ),
    Mutant(
        "the check takes the caller's fault",
        CHECK_STREAM,
        "  static thread_local std::optional<mx::Stream> own;\n",
        "  static thread_local std::optional<mx::Stream> own;\n"
        "  without_interpreter([&] { f(mx::default_stream(device)); });\n  return;\n",
        f"{CHECKED}test_an_earlier_fault_is_its_callers",
    ),
    Mutant(
        "no check in the inputs' buffers",
        SELF_CHECK,
        "!verdict.empty() || !sample.donates",
        "true",
        f"{CHECKED}test_norms_are_checked_in_the_buffers_of_their_inputs",
    ),
]
