"""Defects planted in the CPU kernels, and the part of the suite that must see each."""

from dataclasses import dataclass

KERNELS = "csrc/norm/cpu_kernels.cpp"
SIMD = "csrc/cpu/simd.h"
SUM = "csrc/cpu/pairwise_sum.h"
AXES = "csrc/common/axes.cpp"
RUNS = "csrc/cpu/row_runs.h"
OUTPUTS = "csrc/common/outputs.cpp"
PARAMETERS = "csrc/norm/cpu_parameters.h"
BLOCKS = "csrc/cpu/row_blocks.h"
THREADS = "csrc/cpu/threads.cpp"
PAGES = "csrc/cpu/memory.cpp"
LINEAR = "csrc/linear/primitive.cpp"
LINEAR_CHECKS = "csrc/linear/checks.cpp"


@dataclass(frozen=True)
class Mutant:
    """One defect: the text `old`, which occurs once in `file`, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    tests: str | None  # pytest's arguments
    redundant: str | None = None  # why no test can see it; it is then not run
    at_levels: bool = False  # whether it shows at some levels of the CPU kernels only


MUTANTS = [
    # --- Statistics
    Mutant(
        "drop eps",
        KERNELS,
        "__builtin_sqrtf(variance + eps)",
        "__builtin_sqrtf(variance)",
        "tests/norm/test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "eps outside the root",
        KERNELS,
        "__builtin_sqrtf(variance + eps)",
        "(__builtin_sqrtf(variance) + eps)",
        "tests/norm/test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "D - 1 for D",
        KERNELS,
        "summed.sums.v[0] / width;",
        "summed.sums.v[0] / (width - 1);",
        "tests/norm/test_forward.py::test_one_dtype -k norm-33",
    ),
    Mutant(
        "D - 1 for D after a shift",
        KERNELS,
        "variance = sums.v[0] / width - ",
        "variance = sums.v[0] / (width - 1) - ",
        "tests/norm/test_probes.py::test_one_hot",
    ),
    Mutant(
        "mean not subtracted",
        KERNELS,
        "(v - mean - correction) * rstd",
        "(v - correction) * rstd",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "deviation not taken",
        KERNELS,
        "Floats d = v - shift;\n      return",
        "Floats d = v;\n      return",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "mean correction dropped",
        KERNELS,
        "s.correction = summed.sums.v[1] / width;",
        "s.correction = 0.0f;",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "variance not corrected",
        KERNELS,
        "    variance -= square;",
        "",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "variance from a difference alone",
        KERNELS,
        "    if (variance * 8 < square || !is_finite(variance)) {",
        "    if (!is_finite(variance)) {",
        "tests/norm/test_probes.py::test_one_hot",
    ),
    Mutant(
        "squares of deviations past the largest float not seen",
        KERNELS,
        "variance * 8 < square || !is_finite(variance)",
        "variance * 8 < square",
        "tests/norm/test_magnitudes.py::test_outliers",
    ),
    Mutant(
        "zeros where the variance is past the largest float",
        KERNELS,
        "      if (!is_finite(variance)) {\n        variance =",
        "      if (false) {\n        variance =",
        "tests/norm/test_magnitudes.py::test_what_is_too_large_is_not_wrong_in_silence",
    ),
    Mutant(
        "padding counted in the spread",
        KERNELS,
        "      row.pad(s.mean);",
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
        KERNELS,
        "    store(padded + i, replace_from(load(padded + i), width - i, value));",
        "",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "later padding not cleared",
        KERNELS,
        "      store(padded + i, splat(value));",
        "",
        "tests/norm/test_forward.py::test_one_dtype -k norm-33",
    ),
    Mutant(
        "lanes past a short row not cleared",
        KERNELS,
        "    v = replace_from(v, width, value);\n",
        "",
        "tests/norm/test_forward.py::test_one_dtype[cpu-layer_norm-2]",
    ),
    Mutant(
        "short rows of the first batch only",
        KERNELS,
        "            first + i,\n            0,",
        "            i,\n            0,",
        "tests/norm/test_forward.py::test_one_dtype[cpu-rms_norm-1]",
    ),
    Mutant(
        "padding unlike the mean",
        KERNELS,
        "    row.pad(s.mean); // no deviation past the row's end",
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
        KERNELS,
        "    if (early) {",
        "    if (false) {",
        "tests/norm/test_rounding.py",
    ),
    Mutant(
        "late rounding is early",
        KERNELS,
        "with_flag(!job.late,",
        "with_flag(true,",
        "tests/norm/test_rounding.py",
        at_levels=True,
    ),
    Mutant(
        "statistics of the unrounded sum",
        KERNELS,
        "return round_to<S>(clamp ? clamp_half(v) : v);",
        "return clamp ? clamp_half(v) : v;",
        "tests/norm/test_rounding.py tests/norm/test_fused.py",
    ),
    Mutant(
        "clamp missing",
        KERNELS,
        "round_to<S>(clamp ? clamp_half(v) : v)",
        "round_to<S>(v)",
        "tests/norm/test_clamp.py",
    ),
    Mutant(
        "clamp of the positive side only",
        KERNELS,
        "below < -kFloat16Max ? splat(-kFloat16Max) : below",
        "below",
        "tests/norm/test_clamp.py",
    ),
    Mutant(
        "clamp's derivative",
        KERNELS,
        "        dx = x == -kFloat16Max ? Floats{} : dx;",
        "",
        "tests/norm/test_clamp.py",
    ),
    Mutant(
        "bias missing",
        KERNELS,
        "    if (bias) {",
        "    if (false) {",
        "tests/norm/test_forward.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "first head's weight for all",
        KERNELS,
        "(rows == 1 ? 0 : (job.first_row + row) % rows)",
        "0",
        "tests/norm/test_heads.py::test_head_rms_norm",
    ),
    Mutant(
        "weight offset missing",
        PARAMETERS,
        "copy_[i] += p.offset;",
        "copy_[i] += 0.0f;",
        "tests/norm/test_forward.py::test_options",
    ),
    # --- Backward
    Mutant(
        "mean of the weighted cotangent dropped",
        KERNELS,
        "Floats dx = kCenter ? wg - each.mean_wg : wg;",
        "Floats dx = wg;",
        "tests/norm/test_gradients.py::test_one_dtype -k layer_norm-33",
    ),
    Mutant(
        "projection on the normalized row dropped",
        KERNELS,
        "dx = (dx - n * each.mean_wgn)",
        "dx = dx",
        "tests/norm/test_gradients.py::test_one_dtype -k norm-33",
    ),
    Mutant(
        "means of a shift far from the others",
        KERNELS,
        "to.statistics.mean != shift || !is_finite(to.mean_wgn)",
        "!is_finite(to.mean_wgn)",
        "tests/norm/test_probes.py::test_one_hot",
    ),
    Mutant(
        "sums with the cotangent past the largest float kept",
        KERNELS,
        "to.statistics.mean != shift || !is_finite(to.mean_wgn)",
        "to.statistics.mean != shift",
        "tests/norm/test_magnitudes.py::test_large_cotangents",
    ),
    Mutant(
        "one cotangent for four rows",
        KERNELS,
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
        KERNELS,
        "        dx += load(each.sum_cotangent + i);",
        "",
        "tests/norm/test_gradients.py::test_outputs_that_a_loss_uses",
    ),
    Mutant(
        "rounding error of the row sums dropped",
        KERNELS,
        "Floats y = v - load(to.error + i);",
        "Floats y = v;",
        "tests/norm/test_gradients.py::test_many_like_rows",
    ),
    Mutant(
        "latest rows' sums dropped",
        KERNELS,
        "  add_partial(from, size);\n",
        "",
        "tests/norm/test_gradients.py::test_one_dtype -k norm-33",
    ),
    Mutant(
        "latest rows' sums counted twice",
        KERNELS,
        "    store(to.partial + i, Floats{});\n",
        "",
        "tests/norm/test_gradients.py::test_one_dtype -k norm-33",
    ),
    Mutant(
        "blocks of sums by threads",
        BLOCKS,
        "constexpr int64_t kMost = 32;",
        "int64_t kMost = 2 * thread_count();",
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
        KERNELS,
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
    # --- Norm and projections
    Mutant(
        "bias of a quantized projection lost",
        LINEAR,
        "return in.bias ? mx::add(y, *in.bias, s) : y;",
        "return y;",
        "tests/linear/test_linear.py::test_options",
    ),
    Mutant(
        "x in place of x + residual",
        LINEAR,
        "outputs.push_back(normalized[1]);",
        "outputs.push_back(in.x);",
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
        LINEAR,
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
]
