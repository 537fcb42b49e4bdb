"""The forward kernel."""

from ..mutant import Mutant
from .texts import BESIDE, CHUNKS, NORM, ONE, ONE_CHUNK

ADD_RESIDUAL = "kernels/norm/add_residual.h"
HELD = "kernels/norm/held_row.h"
STATISTICS = "kernels/norm/statistics.h"
MODULATE = "kernels/norm/modulate.h"
MODULATED = "tests/norm/test_modulated.py"
GATE = "kernels/norm/gate.h"
GATED = "tests/norm/test_gated.py"
FACTOR = "tests/norm/test_factor.py"
PROLOGUES = "tests/patching/test_prologues.py"
PARAMETERS = "kernels/common/parameters.h"
NORM_ADD_NORM = "kernels/norm/norm_add_norm/norm_add_norm.metal"
FETCHED = "kernels/norm/fetched_row.h"

MUTANTS = [
    # --- Statistics
    Mutant(
        "eps dropped in rms",
        STATISTICS,
        "eps_bounds ? square : square + eps",
        "square",
        "tests/norm/test_probes.py::test_values_about_the_root_of_eps",
    ),
    Mutant(
        "mean for sum in l2",
        STATISTICS,
        "square = l2 ? square : square / float(length);",
        "square = square / float(l2 ? length : length);",
        "tests/norm/test_l2.py::test_every_length",
    ),
    Mutant(
        "a root below eps kept in l2",
        STATISTICS,
        "factor > 1.0f / eps ? 1.0f / eps",
        "factor > 1.0f / eps ? factor",
        "tests/norm/test_l2.py::test_rows_about_eps",
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
        "  if (for_any_row(lost)) {\n    float2 of_d",
        "  if (false) {\n    float2 of_d",
        "tests/norm/test_probes.py::test_large_mean_and_small_variance",
    ),
    Mutant(
        "no third pass",
        STATISTICS,
        "    if (for_any_row(lost)) {\n      of_d",
        "    if (false) {\n      of_d",
        "tests/norm/test_probes.py::test_rows_that_are_constant_but_for_an_ulp",
    ),
    Mutant(
        "deviations past the row's end",
        STATISTICS,
        "d = of.has(j) ? d : 0.0f;",
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
    Mutant(
        "a row's second pass by its neighbor's",
        STATISTICS,
        "    if (lost) {\n      correction = of_d.x;",
        "    {\n      correction = of_d.x;",
        BESIDE,
    ),
    Mutant(
        "a row's third pass by its neighbor's",
        STATISTICS,
        "      if (lost) {\n        correction += of_d.x;",
        "      {\n        correction += of_d.x;",
        BESIDE,
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
        "    return; // all lanes of a row",
        "    // all lanes of a row",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "one row a SIMD-group, for all of its lanes",
        NORM,
        " +\n      row_in_simd(lane);",
        ";",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "rows counted as if each had a SIMD-group",
        NORM,
        "simd) * rows_per_simd() +",
        "simd) +",
        f"{ONE}[metal-sim-rms_norm-33]",
    ),
    Mutant(
        "no clamp above",
        ADD_RESIDUAL,
        "v > 65504.0f ? 65504.0f : v",
        "v",
        "tests/norm/test_clamp.py::test_sum_saturates",
    ),
    Mutant(
        "no clamp below",
        ADD_RESIDUAL,
        "below < -65504.0f ? -65504.0f : below",
        "below",
        "tests/norm/test_clamp.py::test_sum_saturates",
    ),
    Mutant(
        "statistics of the sum before it is rounded",
        ADD_RESIDUAL,
        "  round_vector<N>(sum_type, v);\n",
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
        "    if (looped) {\n      read<N>(row, of, to);\n",
        "    if (false) {\n      read<N>(row, of, to);\n",
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
        "x's norm not rounded before it is added",
        NORM_ADD_NORM,
        "    if (round_early) {\n      round_vector<N>(type, v);",
        "    if (round_early && false) {\n      round_vector<N>(type, v);",
        "tests/norm/test_norm_add_norm.py::test_early_is_the_chain",
    ),
    Mutant(
        "x's norm not rounded before its weight",
        NORM_ADD_NORM,
        "  if (round_early) {\n    round_vector<N>(type, v);",
        "  if (round_early && false) {\n    round_vector<N>(type, v);",
        "tests/norm/test_norm_add_norm.py::test_early_is_the_chain",
    ),
    Mutant(
        "no offset of the post weight",
        NORM_ADD_NORM,
        "        post.values(k, of, w);\n        add_offset<N>(weight_offset, w);\n",
        "        post.values(k, of, w);\n",
        "tests/norm/test_norm_add_norm.py::test_early_is_the_chain",
    ),
    Mutant(
        "the sum's norm with x's root",
        NORM_ADD_NORM,
        "normalize_and_weigh<N>(of_s,",
        "normalize_and_weigh<N>(length > 0 ? of_x : of_s,",
        "tests/norm/test_norm_add_norm.py::test_every_length",
    ),
    Mutant(
        "x held for the sum",
        NORM_ADD_NORM,
        "      held.put_vector(k, s.type, v);\n",
        "",
        "tests/norm/test_norm_add_norm.py::test_every_length",
    ),
    Mutant(
        "a residual of the first chunk for all",
        FETCHED,
        "(ALWAYS && !looped)",
        "ALWAYS",
        "tests/norm/test_norm_add_norm.py::test_long_rows[metal-sim-20000]",
    ),
    Mutant(
        "a long row of x for that of the sum",
        NORM_ADD_NORM,
        "  in = as_input(s); // written by the thread that reads it\n",
        "",
        "tests/norm/test_norm_add_norm.py::test_long_rows[metal-sim-20000]",
    ),
    Mutant(
        "product with a factor not rounded",
        NORM,
        "  if (round_factored) {",
        "  if (round_factored && false) {",
        f"{FACTOR}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "a sum not rounded before its factor",
        NORM,
        "          add_residual<N>(of_r, s.type, v);\n",
        "          add_residual<N>(of_r, factor_of_sum ? kFloat32 : s.type, v);\n",
        f"{PROLOGUES}::TestFactorOfSum::test_taken",
    ),
    Mutant(
        "a factor's first element for all",
        NORM,
        "(has_number ? number : factor[j])",
        "(has_number ? number : factor[0])",
        f"{FACTOR}::test_forms[metal-sim-add_layer_norm-sample]",
    ),
    Mutant(
        "a gate's steps not rounded",
        GATE,
        "  if (rounds) {\n    round_vector<N>(type, v);",
        "  if (false) {\n    round_vector<N>(type, v);",
        f"{GATED}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "a sigmoid of the other sign",
        GATE,
        "to[j] = v[j] < 0.0f ? to[j] : 1.0f - to[j];",
        "to[j] = v[j] < 0.0f ? 1.0f - to[j] : to[j];",
        f"{GATED}::test_lengths",
    ),
    Mutant(
        "result not rounded before its gate",
        NORM,
        "        round_step<N>(round_early, out.type, y);\n        if (has_gate) {",
        "        if (has_gate) {",
        f"{GATED}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "x times its gate not rounded",
        NORM,
        "  if (round_gated) {",
        "  if (round_gated && false) {",
        f"{GATED}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "a long row without its gate at the second reading",
        NORM,
        "        gate_input<N, V>(z_row, k, of, x_row.row.type, v);\n",
        "",
        f"{GATED}::test_long_rows[metal-sim-40000-before]",
    ),
    Mutant(
        "scale for 1 + scale",
        MODULATE,
        "s[j] = 1.0f + s[j];",
        "s[j] = s[j];",
        f"{MODULATED}::test_forms[metal-sim-layer_norm-sample]",
    ),
    Mutant(
        "1 + scale not rounded",
        MODULATE,
        "      if (rounds) {\n        round_vector<N>(float_type(scale_flags), s);",
        "      if (false) {\n        round_vector<N>(float_type(scale_flags), s);",
        f"{MODULATED}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "product of 1 + scale not rounded",
        MODULATE,
        "if (round_product) {",
        "if (round_product && false) {",
        f"{MODULATED}::test_early_is_the_chain_of_ops",
    ),
    Mutant(
        "norm not rounded before 1 + scale",
        MODULATE,
        "    if (rounds) {\n      round_vector<N>(y_type, y);",
        "    if (false) {\n      round_vector<N>(y_type, y);",
        f"{MODULATED}::test_early_is_the_chain_of_ops",
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
        "row_in(weight2, weight2_flags, layouts, row, length)",
        "row_in(weight, weight2_flags, layouts, row, length)",
        "tests/norm/test_heads.py::test_qk_norm_is_head_rms_norm_of_each",
    ),
]
