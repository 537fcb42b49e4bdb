"""Defects planted in the CPU kernels, and the part of the suite that must see each."""

from .mutant import Mutant

ADDED = "csrc/norm/cpu/added_row.h"
COMPENSATED = "csrc/norm/cpu/compensated_sum.h"
FACTORED = "csrc/norm/cpu/factored_row.cpp"
GATED_ROWS = "csrc/norm/cpu/gated_rows.cpp"
GATED_VJP = "csrc/norm/cpu/gated_vjp.cpp"
GRADIENTS = "csrc/norm/cpu/gradients.h"
MODULATION = "csrc/norm/cpu/modulation.h"
OTHER_ROWS = "csrc/norm/cpu/other_rows.cpp"
ROWS = "csrc/norm/cpu/rows.h"
SHORT_ROWS = "csrc/norm/cpu/short_rows.cpp"
STATISTICS = "csrc/norm/cpu/statistics.h"
STORE = "csrc/norm/cpu/store_row.h"
TABLE = "csrc/norm/cpu/kernels.cpp"
WHOLE_ROWS = "csrc/norm/cpu/whole_rows.cpp"
EVAL = "csrc/norm/eval_cpu.cpp"
MODULATED = "tests/norm/test_modulated.py"
FACTOR = "tests/norm/test_factor.py"
NORM_ADD_NORM = "csrc/norm/norm_add_norm/eval_cpu.cpp"
NORM_ADD_NORM_TEST = "tests/norm/test_norm_add_norm.py"
GATED = "tests/norm/test_gated.py"
ACTIVATIONS = "csrc/cpu/activations.h"
SIMD = "csrc/cpu/simd.h"
SUM = "csrc/cpu/pairwise_sum.h"
AXES = "csrc/common/axes.cpp"
RUNS = "csrc/cpu/row_runs.h"
OUTPUTS = "csrc/common/outputs.cpp"
PARAMETERS = "csrc/norm/cpu_parameters.h"
BLOCKS = "csrc/cpu/row_blocks.h"
THREADS = "csrc/cpu/threads.cpp"
PAGES = "csrc/cpu/memory.cpp"
GROUP_KERNELS = "csrc/group_norm/cpu_kernels.cpp"
GROUP_SUMS = "csrc/group_norm/cpu_statistics.cpp"
GROUP_CHANNELS = "csrc/group_norm/cpu_channels.h"
GROUP_ROWS = "csrc/group_norm/cpu_rows.h"
GROUP_TEST = "tests/group_norm/test_forward.py"
GROUP_SIZES = f"{GROUP_TEST}::test_every_size_on_the_cpu"
GROUP_VIEWS = "tests/group_norm/test_transforms.py::test_views"
ROPE = "csrc/rope/cpu_kernels.cpp"
ROPE_ANGLES = "csrc/rope/cpu_angles.h"
ROPE_EVAL = "csrc/rope/eval_cpu.cpp"
ROPE_OP = "csrc/rope/transforms.cpp"
ROPE_TEST = "tests/rope/test_norm_rope.py"
LINEAR = "csrc/linear/norm_linear.cpp"
PROJECTION = "csrc/linear/projection.cpp"
LINEAR_CHECKS = "csrc/linear/checks.cpp"

MUTANTS = [
    # --- Statistics
    Mutant(
        "drop eps",
        STATISTICS,
        "__builtin_sqrtf(square + root.eps)",
        "__builtin_sqrtf(square)",
        "tests/norm/test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "eps outside the root",
        STATISTICS,
        "__builtin_sqrtf(square + root.eps)",
        "(__builtin_sqrtf(square) + root.eps)",
        "tests/norm/test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "D - 1 for D",
        STATISTICS,
        "summed.sums.v[0] / divisor(root, width);",
        "summed.sums.v[0] / divisor(root, width - 1);",
        "tests/norm/test_forward.py::test_one_dtype -k norm-33",
    ),
    Mutant(
        "D - 1 for D after a shift",
        STATISTICS,
        "variance = sums.v[0] / row.width - ",
        "variance = sums.v[0] / (row.width - 1) - ",
        "tests/norm/test_probes.py::test_one_hot",
    ),
    Mutant(
        "mean not subtracted",
        STATISTICS,
        "(v - mean - correction) * rstd",
        "(v - correction) * rstd",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "deviation not taken",
        STATISTICS,
        "Floats d = v - shift;\n      return",
        "Floats d = v;\n      return",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "mean correction dropped",
        STATISTICS,
        "s.correction = summed.sums.v[1] / width;",
        "s.correction = 0.0f;",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "variance not corrected",
        STATISTICS,
        "    variance -= square;",
        "",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "variance from a difference alone",
        STATISTICS,
        "    if (variance * 4 < square || !is_finite(variance)) {",
        "    if (!is_finite(variance)) {",
        "tests/norm/test_probes.py::test_one_hot",
    ),
    Mutant(
        "squares of deviations past the largest float not seen",
        STATISTICS,
        "variance * 4 < square || !is_finite(variance)",
        "variance * 4 < square",
        "tests/norm/test_magnitudes.py::test_outliers",
    ),
    Mutant(
        "zeros where the variance is past the largest float",
        STATISTICS,
        "return is_finite(variance) ? variance :",
        "return true ? variance :",
        "tests/norm/test_magnitudes.py::test_what_is_too_large_is_not_wrong_in_silence",
    ),
    Mutant(
        "padding counted in the spread",
        STATISTICS,
        "  row.pad(shift); // no deviation past the row's end",
        "",
        "tests/norm/test_probes.py::test_one_hot",
    ),
    # --- Rows and their ends
    Mutant(
        "lost tail",
        SIMD,
        "  if (i < width) {",
        "  if (false) {",
        "tests/norm/test_probes.py::test_one_hot -k float32",
    ),
    Mutant(
        "padding not cleared",
        ROWS,
        "    store(padded + i, replace_from(load(padded + i), width - i, value));",
        "",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "later padding not cleared",
        ROWS,
        "      store(padded + i, splat(value));",
        "",
        "tests/norm/test_forward.py::test_one_dtype -k norm-33",
    ),
    Mutant(
        "lanes past a short row not cleared",
        SHORT_ROWS,
        "    v = replace_from(v, width, value);\n",
        "",
        "tests/norm/test_forward.py::test_one_dtype[cpu-layer_norm-2]",
    ),
    Mutant(
        "short rows of the first batch only",
        SHORT_ROWS,
        "              first + i,\n              0,",
        "              i,\n              0,",
        "tests/norm/test_forward.py::test_one_dtype[cpu-rms_norm-1]",
    ),
    Mutant(
        "padding unlike the mean",
        STATISTICS,
        "  row.pad(shift); // no deviation past the row's end",
        "",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "lost level of the sum",
        SUM,
        "    levels[level] = sum;",
        "    if (level < 3) levels[level] = sum;",
        "tests/norm/test_forward.py::test_one_dtype -k 4096",
    ),
    Mutant(
        "blocks summed one by one",
        SUM,
        "for (; blocks >> level & 1; ++level) {",
        "for (; level < 1 && blocks; blocks = 0) {",
        "tests/norm/test_probes.py::test_long_constant_rows",
    ),
    # --- Rounding, clamp, weight, bias
    Mutant(
        "early rounding missing",
        STORE,
        "    if (early) {",
        "    if (false) {",
        "tests/norm/test_rounding.py",
    ),
    Mutant(
        "late rounding is early",
        WHOLE_ROWS,
        "with_flag(!job.late, with_early)",
        "with_flag(true, with_early)",
        "tests/norm/test_rounding.py",
        at_levels=True,
    ),
    Mutant(
        "statistics of the unrounded sum",
        ADDED,
        "return round_to<S>(clamp ? clamp_half(v) : v);",
        "return clamp ? clamp_half(v) : v;",
        "tests/norm/test_rounding.py tests/norm/test_fused.py",
    ),
    Mutant(
        "clamp missing",
        ADDED,
        "round_to<S>(clamp ? clamp_half(v) : v)",
        "round_to<S>(v)",
        "tests/norm/test_clamp.py",
    ),
    Mutant(
        "clamp of the positive side only",
        ADDED,
        "below < -kFloat16Max ? splat(-kFloat16Max) : below",
        "below",
        "tests/norm/test_clamp.py",
    ),
    Mutant(
        "clamp's derivative",
        GRADIENTS,
        "        dx = x == -kFloat16Max ? Floats{} : dx;",
        "",
        "tests/norm/test_clamp.py",
    ),
    Mutant(
        "bias missing",
        STORE,
        "    if (bias) {",
        "    if (false) {",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "first head's weight for all",
        ROWS,
        "(rows == 1 ? 0 : row % rows)",
        "0",
        "tests/norm/test_heads.py::test_head_rms_norm",
    ),
    Mutant(
        "1 + scale not rounded",
        MODULATION,
        "return job_.late ? v : round_to<S>(v);",
        "return v;",
        f"{MODULATED}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "a weighted result not rounded before its scale",
        EVAL,
        "early && (in[kWeight] || in[kBias])",
        "false",
        f"{MODULATED}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "product of 1 + scale not rounded",
        MODULATION,
        "    if (round_product) {",
        "    if (false) {",
        f"{MODULATED}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "another row's residual between two norms",
        NORM_ADD_NORM,
        "from(residual, row * residual.row_stride)",
        "residual",
        f"{NORM_ADD_NORM_TEST}::test_many_rows",
    ),
    Mutant(
        "no offset of the post weight",
        NORM_ADD_NORM,
        "post_weight(in.post_weight, spec.weight_offset)",
        "post_weight(in.post_weight, 0.0f)",
        f"{NORM_ADD_NORM_TEST}::test_early_is_the_chain",
    ),
    Mutant(
        "x's norm rounded late",
        NORM_ADD_NORM,
        "spec.late() ? Float::f32 : of_x.in[kX].type",
        "of_x.in[kX].type",
        f"{NORM_ADD_NORM_TEST}::test_late_rounds_once",
    ),
    Mutant(
        "the sum's cotangent not passed to x's norm",
        "csrc/norm/norm_add_norm/vjp.cpp",
        "      of_sum = *found[kX];\n",
        "",
        f"{NORM_ADD_NORM_TEST}::test_every_length",
    ),
    Mutant(
        "any two pairs of norms are the same",
        "csrc/op/node.h",
        "return op_ == node.op_ &&",
        "return",
        f"{NORM_ADD_NORM_TEST}::test_those_that_differ_are_not_merged",
    ),
    Mutant(
        "nodes of several outputs are merged again and again",
        "csrc/common/merging.h",
        "        !merged_.exchange(true, std::memory_order_relaxed);",
        "        true;",
        "tests/norm/test_compiled_twice.py::test_compiled_as_uncompiled",
    ),
    Mutant(
        "product with a factor not rounded",
        FACTORED,
        "      bool rounds = job.round_factored;",
        "      bool rounds = false;",
        f"{FACTOR}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "a sum not rounded before its factor",
        FACTORED,
        "Floats v = to.value(i, extent) * load(factor + i);",
        "Floats v = (to.x(i, extent) + to.residual(i, extent)) * load(factor + i);",
        "tests/patching/test_prologues.py::TestFactorOfSum::test_taken",
    ),
    Mutant(
        "no row's factor",
        OTHER_ROWS,
        "        modulation.load_factor(row);\n",
        "",
        f"{FACTOR}::test_forms[cpu-add_layer_norm-sample]",
    ),
    Mutant(
        "rows normalized in the gradient of a factor",
        GRADIENTS,
        "identity ? x : each.statistics.normalize(x)",
        "each.statistics.normalize(x)",
        f"{FACTOR}::test_forms[cpu-add_layer_norm-sample]",
    ),
    Mutant(
        "a gate's exponential not rounded",
        ACTIVATIONS,
        "round_to<T>(exponential(magnitude(v)))",
        "exponential(magnitude(v))",
        f"{GATED}::test_every_gate_of_16_bits",
    ),
    Mutant(
        "result not rounded before its gate",
        GATED_ROWS,
        "return (rounds ? round_to<T>(y) : y) * gate(i);",
        "return y * gate(i);",
        f"{GATED}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "x times its gate not rounded",
        GATED_ROWS,
        "gate, job.round_gated}",
        "gate, false}",
        f"{GATED}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "the activation for its slope",
        ACTIVATIONS,
        "return {y, sigmoid + y * rest};",
        "return {y, y};",
        f"{GATED}::test_lengths",
    ),
    Mutant(
        "gate's gradient without the weight",
        GATED_VJP,
        "(kFirst ? dx : n * w) * of_gate",
        "(kFirst ? dx : n) * of_gate",
        f"{GATED}::test_lengths",
    ),
    Mutant(
        "one value of a table for a vector",
        "csrc/cpu/activation_table.h",
        "static_cast<uint16_t>(i + j)",
        "static_cast<uint16_t>(i)",
        f"{GATED}::test_rows_have_the_same_bits_alone",
    ),
    Mutant(
        "a table's slopes in place of its values",
        "csrc/cpu/activation_table.h",
        "{v.value[i], v.slope[i]}",
        "{v.slope[i], v.value[i]}",
        f"{GATED}::test_rows_have_the_same_bits_alone",
        at_levels=True,
    ),
    Mutant(
        "a vector's values in place of its slopes",
        "csrc/cpu/activation_table.h",
        "_mm512_add_epi32(values, _mm512_set1_epi32(1))",
        "values",
        f"{GATED}::test_rows_have_the_same_bits_alone",
        at_levels=True,
    ),
    Mutant(
        "the first row's gate, read in place",
        GATED_ROWS,
        "data + row * job.in[kGate].row_stride",
        "data + 0 * row",
        f"{GATED}::test_rows_have_the_same_bits_alone",
        at_levels=True,
    ),
    Mutant(
        "a shift that is far from a column's other channels",
        "csrc/norm/channels/columns.h",
        "kFarVariances * variance[i] < mean * mean",
        "false",
        "tests/norm/test_axis.py",
    ),
    Mutant(
        "sums with the cotangent of deviations from the shift",
        "csrc/norm/channels/cpu_vjp.cpp",
        " - stats.mean[i] * of_wg;",
        ";",
        "tests/norm/test_axis.py",
        at_levels=True,
    ),
    Mutant(
        "a channel's sum among those of another",
        "csrc/norm/channels/cpu_vjp.cpp",
        "of_weights[part].of[c % kChannelsAtOnce]",
        "of_weights[part].of[0]",
        "tests/norm/test_axis.py",
        at_levels=True,
    ),
    Mutant(
        "another row's scale",
        MODULATION,
        "    if (at == last) {",
        "    if (last >= 0) {",
        f"{MODULATED}::test_forms[cpu-layer_norm-token]",
    ),
    Mutant(
        "the first sample's scale in the gradient",
        EVAL,
        "weight.only(group)",
        "weight.only(0)",
        f"{MODULATED}::test_forms[cpu-layer_norm-sample]",
    ),
    Mutant(
        "weight offset missing",
        PARAMETERS,
        "copy_[i] += p.offset;",
        "copy_[i] += 0.0f;",
        "tests/norm/test_forward.py::test_options",
    ),
    Mutant(
        "mean for sum in l2",
        STATISTICS,
        "return root.l2 ? 1.0f : width;",
        "return width;",
        "tests/norm/test_l2.py::test_every_length",
    ),
    Mutant(
        "a root below eps kept in l2",
        STATISTICS,
        "1.0f / (v < root.eps ? root.eps : v)",
        "1.0f / v",
        "tests/norm/test_l2.py::test_rows_about_eps",
    ),
    # --- Backward
    Mutant(
        "gradient of a root that eps stands for",
        GRADIENTS,
        "    to.mean_wgn = 0.0f; // a constant factor\n",
        "",
        "tests/norm/test_l2.py::test_rows_about_eps",
    ),
    Mutant(
        "mean of the weighted cotangent dropped",
        GRADIENTS,
        "Floats dx = kCenter ? wg - each.mean_wg : wg;",
        "Floats dx = wg;",
        "tests/norm/test_gradients.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "projection on the normalized row dropped",
        GRADIENTS,
        "dx = (dx - n * each.mean_wgn)",
        "dx = dx",
        "tests/norm/test_gradients.py::test_one_dtype -k norm-33",
    ),
    Mutant(
        "means of a shift far from the others",
        GRADIENTS,
        "to.statistics.mean != shift || !is_finite(to.mean_wgn)",
        "!is_finite(to.mean_wgn)",
        "tests/norm/test_probes.py::test_one_hot",
    ),
    Mutant(
        "sums with the cotangent past the largest float kept",
        GRADIENTS,
        "to.statistics.mean != shift || !is_finite(to.mean_wgn)",
        "to.statistics.mean != shift",
        "tests/norm/test_magnitudes.py::test_large_cotangents",
    ),
    Mutant(
        "one cotangent for four rows",
        GRADIENTS,
        "Floats g = load(each.cotangent + i);",
        "Floats g = load(in[0].cotangent + i);",
        "tests/norm/test_gradients.py::test_one_dtype -k norm-32",
    ),
    Mutant(
        "subnormals taken for zeros",
        SIMD,
        "  if (__builtin_expect(_mm512_fpclass_ps_mask(lanes, kSubnormal) != 0, 0)) {",
        "  if (false) {",
        "tests/norm/test_dispatch.py",
        at_levels=True,
    ),
    Mutant(
        "sum's own cotangent dropped",
        GRADIENTS,
        "        dx += load(each.sum_cotangent + i);",
        "",
        "tests/norm/test_gradients.py::test_outputs_that_a_loss_uses",
    ),
    Mutant(
        "rounding error of the row sums dropped",
        COMPENSATED,
        "Floats y = v - load(to.error + i);",
        "Floats y = v;",
        "tests/norm/test_gradients.py::test_many_like_rows",
    ),
    Mutant(
        "latest rows' sums dropped",
        TABLE,
        "  add_partial(from, size);\n",
        "",
        "tests/norm/test_gradients.py::test_one_dtype -k norm-33",
    ),
    Mutant(
        "latest rows' sums counted twice",
        COMPENSATED,
        "    store(to.partial + i, Floats{});\n",
        "",
        "tests/norm/test_gradients.py::test_one_dtype -k norm-33",
    ),
    Mutant(
        "blocks of sums by threads",
        BLOCKS,
        "constexpr int64_t kMax = 32;",
        "int64_t kMax = 2 * thread_count();",
        "tests/norm/test_threads.py::test_threads_have_the_bits_of_one",
    ),
    Mutant(
        "blocks share a gradient's sums",
        PARAMETERS,
        "sum += 3 * i * size();",
        "sum += i / blocks_ * 3 * size();",
        "tests/norm/test_threads.py tests/norm/test_gradients.py",
    ),
    Mutant(
        "huge pages not asked for",
        PAGES,
        "  if (begin < end) {",
        "  if (false) {",
        "tests/docs/test_pages.py",
    ),
    Mutant(
        "threads of the parent after a fork",
        THREADS,
        "[] { current_helpers.store(nullptr); }",
        "[] {}",
        "tests/norm/test_threads.py::test_child_of_fork_has_threads_of_its_own",
    ),
    Mutant(
        "infinite sum spreads NaN",
        COMPENSATED,
        "error == error ? error : Floats{}",
        "error",
        "tests/norm/test_gradients.py::test_infinite_cotangent",
    ),
    # --- float16 without F16C, bfloat16
    Mutant(
        "ties away from even in float16",
        SIMD,
        "0xfff + ((magnitude >> 13) & 1)) >> 13",
        "0x1000) >> 13",
        "tests/norm/test_dispatch.py",
        at_levels=True,
    ),
    Mutant(
        "float16 subnormals flushed",
        SIMD,
        "magnitude < 0x38800000u ? subnormal : normal",
        "magnitude < 0x38800000u ? Words{} : normal",
        "tests/norm/test_dispatch.py",
        at_levels=True,
    ),
    Mutant(
        "ties away from even in bfloat16",
        SIMD,
        "bits + 0x7fff + ((bits >> 16) & 1)",
        "bits + 0x8000",
        "tests/norm/test_fused.py::test_fused_is_add_and_then_norm tests/norm/test_dispatch.py",
        at_levels=True,
    ),
    Mutant(
        "bfloat16 NaN rounded up",
        SIMD,
        "return v != v ? quiet_nan : rounded;",
        "return rounded;",
        "tests/norm/test_probes.py::test_what_is_not_finite_stays_in_its_row"
        " tests/norm/test_probes.py::test_every_nan_stays_nan tests/norm/test_dispatch.py",
        at_levels=True,
    ),
    Mutant(
        "ties away from even in a bfloat16 that stays in registers",
        SIMD,
        "_mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1))",
        "_mm512_add_epi32(rounded, _mm512_set1_epi32(1))",
        "tests/norm/test_rounding.py tests/norm/test_dispatch.py",
        at_levels=True,
        isa="avx512",
    ),
    Mutant(
        "bfloat16 NaN rounded up in registers",
        SIMD,
        "_mm512_mask_and_epi32(\n      bits, number, rounded,",
        "_mm512_and_epi32(\n      rounded,",
        "tests/norm/test_probes.py::test_every_nan_stays_nan tests/norm/test_dispatch.py",
        at_levels=True,
        isa="avx512",
    ),
    # --- Strides and buffers
    Mutant(
        "rows merged whatever their strides",
        AXES,
        "merges &= last.strides[i] == inner.size * inner.strides[i];",
        "",
        "tests/norm/test_layouts.py::test_axes_in_another_order",
    ),
    Mutant(
        "outer axis does not wrap",
        RUNS,
        "move(a, wraps ? 1 - a.size : 1);",
        "move(a, 1);",
        "tests/norm/test_layouts.py",
    ),
    Mutant(
        "block begins with its run",
        RUNS,
        "auto in_run = begin % run.size;",
        "int64_t in_run = 0;",
        "tests/norm/test_threads.py::test_threads_have_the_bits_of_one",
    ),
    Mutant(
        "block begins with the first run",
        RUNS,
        "      move(a, index[axis - 1]);\n",
        "",
        "tests/norm/test_threads.py::test_threads_have_the_bits_of_one",
    ),
    Mutant(
        "strided input donated",
        OUTPUTS,
        "in->flags().row_contiguous &&",
        "",
        "tests/norm/test_layouts.py",
    ),
    Mutant(
        "held input donated",
        OUTPUTS,
        "mx::is_donatable(*in, out)",
        "in->itemsize() == out.itemsize()",
        "tests/norm/test_layouts.py",
    ),
    Mutant(
        "inputs of two outputs kept",
        OUTPUTS,
        "      out.inputs().clear();",
        "",
        "tests/norm/test_donation.py",
    ),
    # --- Group norms
    Mutant(
        "drop eps of groups",
        GROUP_CHANNELS,
        "std::sqrt(variances[i] + eps)",
        "std::sqrt(variances[i])",
        f"{GROUP_TEST}::test_instance_norm",
    ),
    Mutant(
        "second part of a group's mean dropped",
        GROUP_SUMS,
        "rest[group] = means[group] - mean[group];",
        "rest[group] = 0.0f;",
        f"{GROUP_TEST}::test_large_means",
    ),
    Mutant(
        "chunks that are apart count once",
        GROUP_SUMS,
        "sums[c] += squares[c] + count * apart * apart;",
        "sums[c] += squares[c] + apart * apart;",
        GROUP_SIZES,
    ),
    Mutant(
        "zeros where a group's variance is past the largest float",
        GROUP_SUMS,
        "std::isfinite(v) ? v : std::numeric_limits<float>::quiet_NaN()",
        "v",
        f"{GROUP_TEST}::test_what_is_too_large_is_not_wrong_in_silence",
    ),
    Mutant(
        "weight missing in the means of a group's cotangents",
        GROUP_SUMS,
        "      sums[c] *= weight[c];",
        "",
        f"{GROUP_TEST}::test_group_norm",
    ),
    Mutant(
        "rows of a block that are apart from those before",
        GROUP_KERNELS,
        "      square += apart * apart * apart_weight;\n",
        "",
        GROUP_SIZES,
    ),
    Mutant(
        "share of a block of rows",
        GROUP_KERNELS,
        "float share = count / (before + count);",
        "float share = 0.5f;",
        GROUP_SIZES,
    ),
    Mutant(
        "statistics begin again with each run of rows",
        GROUP_KERNELS,
        "static_cast<float>(job.before + row)",
        "static_cast<float>(row)",
        GROUP_VIEWS,
    ),
    Mutant(
        "gradients' sums begin again with each run of rows",
        GROUP_KERNELS,
        "bool first = job.before + row == 0;",
        "bool first = row == 0;",
        GROUP_VIEWS,
    ),
    Mutant(
        "rows past the last block lost",
        GROUP_KERNELS,
        "  } else if (row < rows) {",
        "  } else if (false) {",
        GROUP_SIZES,
    ),
    Mutant(
        "mean of a group's cotangents dropped",
        GROUP_KERNELS,
        "d = d - mean_wg - normalized * mean_wgn;",
        "d = d - normalized * mean_wgn;",
        f"{GROUP_TEST}::test_group_norm",
    ),
    Mutant(
        "cotangents read as x's dtype",
        GROUP_ROWS,
        "rows.step == 1 && rows.type == type",
        "rows.step == 1",
        f"{GROUP_TEST}::test_mixed_dtypes",
    ),
    # --- Norm and projections
    Mutant(
        "bias of a quantized projection lost",
        PROJECTION,
        "return in.bias ? mx::add(y, *in.bias, s) : y;",
        "return y;",
        "tests/linear/test_linear.py::test_options",
    ),
    Mutant(
        "x in place of x + residual",
        LINEAR,
        "outputs.push_back(normalized[1]);",
        "outputs.push_back(in.x());",
        "tests/linear/test_linear.py::test_options",
    ),
    Mutant(
        "silu of the wrong one of a pair",
        LINEAR,
        "mx::sigmoid(gate, stream)",
        "mx::sigmoid(outputs[1], stream)",
        "tests/linear/test_linear.py::test_options",
    ),
    Mutant(
        "shape of a bias written into the graph",
        PROJECTION,
        "if (!x.is_tracer()) {",
        "if (true) {",
        "tests/linear/test_linear.py::test_shapeless",
    ),
    Mutant(
        "groups of any size",
        LINEAR_CHECKS,
        "      (p.group_size == 32 || p.group_size == 64 || p.group_size == 128);",
        "      p.group_size > 0;",
        "tests/linear/test_linear.py::test_quantized_weights_that_do_not_fit",
    ),
    # --- Rotary embeddings
    Mutant(
        "a cosine's sign",
        ROPE_ANGLES,
        "Words turned = (~(eighths - 2) & 4) << 29;",
        "Words turned = (~eighths & 4) << 29;",
        f"{ROPE_TEST}::test_early_is_the_chain",
    ),
    Mutant(
        "an angle's last part",
        ROPE_ANGLES,
        "x = fused(y, splat(-3.77489497744594108e-8f), x);",
        "",
        f"{ROPE_TEST}::test_far_positions",
    ),
    Mutant(
        "a rotation rounded once",
        ROPE,
        "round_to<T>(round_to<T>(a) + round_to<T>(b))",
        "round_to<T>(a + b)",
        f"{ROPE_TEST}::test_early_is_the_chain",
    ),
    Mutant(
        "the other pair's angle",
        ROPE,
        "to[2 * i] = to[2 * i + 1] = from[i];",
        "to[2 * i] = to[2 * i + 1] = from[n - 1 - i];",
        f"{ROPE_TEST}::test_early_is_the_chain",
    ),
    Mutant(
        "a head's weight for all",
        ROPE_EVAL,
        "row.weight += head * padded(width);",
        "",
        f"{ROPE_TEST}::test_other_options",
    ),
    Mutant(
        "positions of another sequence",
        ROPE_EVAL,
        "auto index = first % positions;",
        "auto index = first;",
        f"{ROPE_TEST}::test_early_is_the_chain",
    ),
    Mutant(
        "one offset for all sequences",
        ROPE_EVAL,
        "offsets[batch / batches_per_offset]",
        "offsets[0]",
        f"{ROPE_TEST}::test_offsets",
    ),
    Mutant(
        "the gradient rotated forward",
        ROPE_OP,
        "back.scale = -float{scale};",
        "",
        f"{ROPE_TEST}::test_gradients",
    ),
]
