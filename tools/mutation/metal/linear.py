"""Norm and projections: the op, its kernel, and what finds them in a graph."""

from ..mutant import Mutant
from .texts import NORM_LINEAR

NORMED = "kernels/linear/normed_rows.h"
WEIGHTS = "kernels/linear/weights.h"
PROJECTIONS = "csrc/patching/fuse_projections.cpp"
PRODUCTS = "csrc/patching/take_products.cpp"
PENDING_GRAPH = "csrc/patching/pending_graph.cpp"
PLAN_LINEAR = "csrc/linear/plan.cpp"
LINEAR = "csrc/linear/norm_linear.cpp"
PROJECTION = "csrc/linear/projection.cpp"
MLX_PRODUCT = "csrc/linear/mlx_product.cpp"
TILES = "kernels/linear/cuda/quantized_tiles.metal"
PACKED_TILES = "kernels/linear/cuda/packed_tiles.h"
STAGED_LINES = "kernels/linear/cuda/staged_lines.h"

MUTANTS = [
    # --- Norm and projections as one node
    Mutant(
        "weights that are pending taken for dense",
        PROJECTION,
        "if (a.is_available() && a.flags().row_contiguous) {",
        "if (true) {",
        "tests/linear/test_linear.py::test_layouts",
    ),
    Mutant(
        "shapes of projections unchecked",
        LINEAR,
        "  check_projections(name(), spec, inputs);\n",
        "",
        "tests/linear/test_linear.py::test_shapeless_call_with_shapes_that_do_not_fit",
    ),
    Mutant(
        "batched parameters taken for rows",
        LINEAR,
        "any_batched(axes, n_rows, axes.size())",
        "false",
        "tests/linear/test_linear.py::test_vmap_of_parameters",
    ),
    # --- Quantized products without a norm
    Mutant(
        "weights of a product mapped",
        MLX_PRODUCT,
        "return a >= 0;",
        "return false;",
        "tests/linear/test_quantized_matmul.py::test_weights_are_not_mapped",
    ),
    Mutant(
        "a residual that is not mapped added as a mapped one",
        LINEAR,
        "(axes[0] >= 0 && axes[1] >= 0)",
        "axes[0] >= 0",
        "tests/linear/test_quantized_matmul.py::test_vmap",
    ),
    Mutant(
        "a product scaled like a norm",
        NORM_LINEAR,
        "linear_normed ? scale.inverse_root(eps) : 1.0f",
        "scale.inverse_root(eps)",
        "tests/linear/test_quantized_matmul.py::test_rows",
    ),
    Mutant(
        "a residual added to a product that is not rounded",
        NORM_LINEAR,
        "round_to(float4(out, out, out, out), type)",
        "float4(out, out, out, out)",
        "tests/linear/test_quantized_matmul.py::test_residual_is_added_to_the_rounded_product",
    ),
    Mutant(
        "the same by tiles",
        TILES,
        "round_to(float4(v, v, v, v), quantized_type).x",
        "v",
        "tests/linear/test_quantized_matmul.py::test_residual_is_added_to_the_rounded_product",
    ),
    Mutant(
        "the higher digits left out",
        TILES,
        "          if (two_digits) {",
        "          if (false) {",
        "tests/linear/test_quantized_matmul.py::test_rows",
    ),
    Mutant(
        "a group's sums of x kept for the next one",
        TILES,
        "          of_ones[i] = 0.0f;",
        "          of_ones[i] = j == 0 ? 0.0f : of_ones[i];",
        "tests/linear/test_quantized_matmul.py::test_rows",
    ),
    Mutant(
        "words of the next line in a line's last step",
        STAGED_LINES,
        "} else if (there) {",
        "} else if (true) {",
        "tests/linear/test_quantized_matmul.py::test_sizes",
    ),
    Mutant(
        "x read past its end in a line's last step",
        STAGED_LINES,
        "return whole || now + uint(g) < line_groups;",
        "return true;",
        "tests/linear/test_quantized_matmul.py::test_sizes",
    ),
    Mutant(
        "the rest of a float left out of a product",
        PACKED_TILES,
        "constexpr int kParts = 3;",
        "constexpr int kParts = 2;",
        "tests/linear/test_quantized_matmul.py::test_values_of_one_sign",
    ),
    Mutant(
        "partial sums of tiles read before they are written",
        TILES,
        "  threadgroup_barrier(mem_flags::mem_threadgroup);\n",
        "",
        "tests/linear/test_quantized_matmul.py::test_long_rows",
    ),
    # --- Products that a pass before evaluation takes
    Mutant(
        "a product of nobody's taken",
        PRODUCTS,
        "  bool used = graph.is_root(product);",
        "  bool used = true;",
        "tests/patching/test_products.py::test_products_after_a_norm_are_not_taken_twice",
    ),
    Mutant(
        "a product that is used elsewhere given its residual",
        PENDING_GRAPH,
        "return use.previous < 0 ?",
        "return true ?",
        "tests/patching/test_products.py::test_a_residual_is_not_added_where_others_use_the_product",
    ),
    Mutant(
        "a product by weights that are pending",
        PRODUCTS,
        "!std::all_of(in.begin() + 1, in.end(), is_readable)",
        "false",
        "tests/patching/test_products.py::test_what_is_not_taken",
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
        "v - shift : 0.0f",
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
        "in_row(i + j, 1, length) ? v - shift : 0.0f",
        "v - shift",
        "tests/linear/test_linear.py::test_sizes",
    ),
    Mutant(
        "x + residual projected before it is rounded",
        NORMED,
        "  round_vector<P>(type, v);\n",
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
        "rows past the last one before projections",
        NORM_LINEAR,
        "at = min(at + pieces, last);",
        "at = at + pieces;",
        "tests/linear/test_linear.py::test_sizes",
    ),
    Mutant(
        "no tail in indexed vectors of a row",
        NORMED,
        "!row.vectors || !in_row(0, P, left)",
        "!row.vectors",
        "tests/linear/test_linear.py::test_sizes",
    ),
    Mutant(
        "a residual's layout by that of x before projections",
        NORMED,
        "(!linear_adds_first || (linear_residual_flags & ~3) == kVectors)",
        "true",
        "tests/linear/test_linear.py",
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
        "linear_adds_first && block == 0",
        "linear_adds_first && block == 1",
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
        "!is_separable(norm->op().spec, a.inputs()) || graph_.is_root(a) ||",
        "!is_separable(norm->op().spec, a.inputs()) ||",
        "tests/patching/test_projections.py::test_left_alone",
    ),
    Mutant(
        "weights that are not there yet",
        PRODUCTS,
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
        "node->last_use < 0 || node->root",
        "node->last_use < 0",
        "tests/patching/test_projections.py::test_pair_of_which_one_is_taken_elsewhere",
    ),
    Mutant(
        "the sum left to its norm",
        PROJECTIONS,
        "      outputs.push_back(sum);\n",
        "",
        "tests/patching/test_projections.py::test_of_a_sum",
    ),
]
