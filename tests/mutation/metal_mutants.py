"""Defects planted in the Metal kernels and their plans: barriers, bounds checks, corrections."""

from mutants import Mutant

FLOATS = "kernels/float_types.h"
ROWS = "kernels/rows.h"
TEAM = "kernels/team.h"
WALK = "kernels/walk.h"
STATISTICS = "kernels/statistics.h"
SUM = "kernels/compensated_sum.h"
PARAMETERS = "kernels/parameters.h"
NORM = "kernels/norm.metal"
VJP = "kernels/norm_vjp.metal"
GRADIENTS = "kernels/parameter_gradients.metal"
GATHER = "kernels/gather_rows.metal"
PLAN_ROWS = "csrc/plan/rows.cpp"
EVAL = "csrc/plan/norm_eval.cpp"
ENCODE = "csrc/metal/encode.cpp"

ONE = "test_forward.py::test_one_dtype"
GRADIENT = "test_gradients.py::test_one_dtype"

METAL_MUTANTS = [
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
        "test_fused.py::test_fused_is_add_and_then_norm[metal-sim-add_rms_norm-33]",
    ),
    Mutant(
        "NaN rounds to inf in bfloat16",
        FLOATS,
        "is_nan(v) ? bits | 0x00400000u : rounded",
        "rounded",
        "test_probes.py::test_every_nan_stays_nan",
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
        "test_layouts.py::test_layout -k every_third",
    ),
    Mutant(
        "second stride of a layout ignored",
        ROWS,
        "long(outer % uint(layout[kSize1])) * layout[kStride1]",
        "0",
        "test_layouts.py::test_axes_in_another_order",
    ),
    Mutant(
        "third stride of a layout ignored",
        ROWS,
        "long(outer / uint(layout[kSize1])) * layout[kStride2]",
        "0",
        "test_layouts.py::test_axes_in_another_order",
    ),
    # --- Teams
    Mutant(
        "no barrier in a sum",
        TEAM,
        "    threadgroup_barrier(mem_flags::mem_threadgroup);\n",
        "",
        f"{ONE}[metal-sim-rms_norm-1025]",
    ),
    Mutant(
        "one half of the partial sums for every sum",
        TEAM,
        "    turn = 1 - turn;\n",
        "",
        f"{ONE}[metal-sim-layer_norm-1025]",
    ),
    Mutant(
        "partial sums of SIMD-groups that there are not",
        TEAM,
        "lane < simds_per_row ? of_simds[lane] : T(0.0f)",
        "of_simds[lane]",
        f"{ONE}[metal-sim-rms_norm-1025]",
    ),
    Mutant(
        "every lane writes its SIMD-group's sum",
        TEAM,
        "    if (lane == 0) {\n",
        "    {\n",
        f"{ONE}[metal-sim-rms_norm-1025]",
    ),
    Mutant(
        "sums of one SIMD-group of several",
        TEAM,
        "    if (simds_per_row == 1) {\n      return v;",
        "    if (true) {\n      return v;",
        f"{ONE}[metal-sim-rms_norm-1025]",
    ),
    Mutant(
        "only the first chunk of a long row",
        TEAM,
        "chunk == 0 || (looped && chunk < length)",
        "chunk == 0",
        f"{ONE}[metal-sim-rms_norm-65536]",
    ),
    # --- Statistics
    Mutant(
        "eps dropped in rms",
        STATISTICS,
        "precise::sqrt(mean + eps)",
        "precise::sqrt(mean)",
        "test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "eps dropped in layer",
        STATISTICS,
        "precise::sqrt(variance + eps)",
        "precise::sqrt(variance)",
        "test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "mean correction dropped",
        STATISTICS,
        "    return (v - shift - correction) * rstd;",
        "    return (v - shift) * rstd;",
        "test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "variance not corrected",
        STATISTICS,
        "float variance = sums.y - square;",
        "float variance = sums.y;",
        "test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "no third pass",
        STATISTICS,
        "variance < 16.0f * square",
        "false",
        "test_probes.py::test_rows_that_are_constant_but_for_an_ulp",
    ),
    Mutant(
        "deviations past the row's end",
        STATISTICS,
        "d = in_row(i + j, 1, length) ? d : 0.0f;",
        "",
        f"{ONE}[metal-sim-layer_norm-33]",
    ),
    Mutant(
        "deviations of one chunk of a long row",
        STATISTICS,
        "    if (looped) {\n",
        "    if (false) {\n",
        f"{ONE}[metal-sim-layer_norm-65536]",
    ),
    # --- Parameters
    Mutant(
        "weight offset dropped",
        PARAMETERS,
        "has_weight_offset ? w[j] + offset : w[j]",
        "w[j]",
        "test_forward.py::test_options[metal-sim-rms_norm]",
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
        "test_clamp.py::test_sum_saturates",
    ),
    Mutant(
        "no clamp below",
        NORM,
        "below < -65504.0f ? -65504.0f : below",
        "below",
        "test_clamp.py::test_sum_saturates",
    ),
    Mutant(
        "statistics of the sum before it is rounded",
        NORM,
        "round_to(clamp_sum ? clamp_half(s) : s, sum.type)",
        "clamp_sum ? clamp_half(s) : s",
        "test_fused.py::test_fused_is_add_and_then_norm[metal-sim-add_rms_norm-33]",
    ),
    Mutant(
        "long rows of x for those of the sum",
        NORM,
        "    in = as_input(s); // written by the thread that reads it\n",
        "",
        f"{ONE}[metal-sim-add_rms_norm-65536]",
    ),
    Mutant(
        "one chunk of a long row written",
        NORM,
        "    if (looped) {\n      read_chunk",
        "    if (false) {\n      read_chunk",
        f"{ONE}[metal-sim-rms_norm-65536]",
    ),
    Mutant(
        "early rounding dropped",
        NORM,
        "round_early ? round_to(n, out.type) : n",
        "n",
        "test_rounding.py::test_each_is_its_formula",
    ),
    Mutant(
        "k's rows counted on from q's",
        NORM,
        "    row -= uint(rows);\n",
        "",
        "test_heads.py::test_qk_norm_is_head_rms_norm_of_each",
    ),
    Mutant(
        "q's weight for k",
        NORM,
        "row_in(weight2, weight2_access, weight2_layout, row, length)",
        "row_in(weight, weight_access, weight_layout, row, length)",
        "test_heads.py::test_qk_norm_is_head_rms_norm_of_each",
    ),
    # --- Backward
    Mutant(
        "teams past the last one",
        VJP,
        "    return; // a whole SIMD-group",
        "    // a whole SIMD-group",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "mean of the weighted cotangent dropped",
        VJP,
        "float mean_wg = centre ? sums.x : 0.0f;",
        "float mean_wg = 0.0f;",
        f"{GRADIENT}[metal-sim-layer_norm-33]",
    ),
    Mutant(
        "mean of the weighted cotangent in rms",
        VJP,
        "float mean_wg = centre ? sums.x : 0.0f;",
        "float mean_wg = sums.x;",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
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
        "clamped_sum && fabs(x) == 65504.0f ? 0.0f : d",
        "d",
        "test_clamp.py::test_gradient_is_zero_where_the_sum_is_saturated",
    ),
    Mutant(
        "cotangents of one chunk of a long row summed",
        VJP,
        "    for (int chunk = 0; next_chunk(chunk, length);\n"
        "         chunk += chunk_length<N, V>()) {\n"
        "      if (looped) {\n"
        "        read_chunk<N, V>(s_row, team, chunk, length, v);\n"
        "        read_chunk<N, V>(g_row, team, chunk, length, g);\n"
        "      }\n"
        "      for (int k = 0; k < V; ++k) {\n"
        "        int i = element<N>(team, chunk, k);\n"
        "        thread float* g_of",
        "    for (int chunk = 0; next_chunk(chunk, length);\n"
        "         chunk += chunk_length<N, V>()) {\n"
        "      for (int k = 0; k < V; ++k) {\n"
        "        int i = element<N>(team, chunk, k);\n"
        "        thread float* g_of",
        f"{GRADIENT}[metal-sim-rms_norm-65536]",
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
        "uint next = row + walk.step;",
        "uint next = row;",
        f"{GRADIENT}[metal-sim-rms_norm-128]",
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
        TEAM,
        "(in_row(i, N, length) || i >= length)",
        "true",
        f"{GRADIENT}[metal-sim-rms_norm-129]",
    ),
    Mutant(
        "vectors of other sizes fetched",
        ROWS,
        "row.vectors && N * size_of(row.type) == 16",
        "row.vectors",
        "test_gradients.py::test_options",
    ),
    Mutant(
        "every row taken for whole",
        "csrc/plan/geometry.h",
        "return length % (width * vectors * kSimdSize * simds) == 0;",
        "return true;",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "the mean subtracted twice",
        STATISTICS,
        "float shift = shifts ? 0.0f : mean;",
        "float shift = mean;",
        f"{ONE}[metal-sim-layer_norm-33]",
    ),
    Mutant(
        "deviations taken for clamped sums",
        VJP,
        "eps, !clamped_sum, v",
        "eps, true, v",
        "test_clamp.py",
    ),
    Mutant(
        "a team walks past its rows",
        WALK,
        "min(rows_per_team, of_head - first)",
        "rows_per_team",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "heads in one walk",
        WALK,
        "first * heads + team % heads",
        "first * heads",
        "test_heads.py::test_qk_norm_gradients",
    ),
    Mutant(
        "plain sums over rows",
        SUM,
        "float y = v - error;",
        "float y = v;",
        "test_gradients.py::test_many_like_rows",
    ),
    Mutant(
        "infinite sums become NaN",
        SUM,
        "is_nan(lost) ? 0.0f : lost",
        "lost",
        "test_gradients.py::test_infinite_cotangent",
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
        "test_gradients.py::test_long_rows_with_a_tail",
    ),
    Mutant(
        "a thread past a long row's end",
        GRADIENTS,
        "  if (i >= length) {\n    return;\n  }\n",
        "",
        None,
        redundant="Its loads and stores are checked; it spares the walk over the rows.",
    ),
    Mutant(
        "gathered elements past the row's end",
        GATHER,
        "  if (at.y < uint(length)) {\n",
        "  {\n",
        "test_layouts.py::test_many_axes_of_rows",
    ),
    # --- Plans
    Mutant(
        "every row is said to be aligned",
        PLAN_ROWS,
        "  return is_multiple(a.offset(), alignment) &&",
        "  return true || is_multiple(a.offset(), alignment) &&",
        "test_layouts.py::test_layout",
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
        "test_layouts.py::test_layout -k every_second",
    ),
    Mutant(
        "offsets of gathered parts dropped",
        PLAN_ROWS,
        "launch.input(0, a, offset * a.itemsize());",
        "launch.input(0, a);",
        "test_layouts.py::test_many_axes_of_rows",
    ),
    Mutant(
        "a gradient in the memory of rows still to be read",
        EVAL,
        " && !reads_rows_again(spec_, in.s, stream())) {",
        ") {",
        "test_gradients.py::test_long_rows_with_a_tail",
    ),
    Mutant(
        "temporaries freed before the launches ran",
        ENCODE,
        "  encoder.add_temporaries({plan.temporaries.begin(), plan.temporaries.end()});\n",
        "",
        f"{GRADIENT}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "one pipeline for every specialisation",
        ENCODE,
        "    name += '_' + std::to_string(c.index) + '_' + std::to_string(c.value);\n",
        "    name += c.value > 1000 ? '_' : 'x';\n",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
]
