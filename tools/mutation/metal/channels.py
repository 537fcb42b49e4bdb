"""Norms over channels."""

from ..mutant import Mutant

COLUMNS = "kernels/norm/channels/columns.h"
STATISTICS = "kernels/norm/channels/column_statistics.h"
FORWARD = "kernels/norm/channels/channel_norm.metal"
BACKWARD = "kernels/norm/channels/channel_norm_vjp.metal"
PLAN = "csrc/norm/channels/plan.cpp"
NODE = "csrc/op/node.h"
TESTS = "tests/norm/test_axis.py"

MUTANTS = [
    Mutant(
        "channels: a lost variance kept",
        STATISTICS,
        "bool lost = is_lost(variance, rounded ? square / 256.0f : square);",
        "bool lost = false;",
        f"{TESTS}::test_a_mean_beside_which_the_spread_is_small",
    ),
    Mutant(
        "channels: columns past the last one",
        COLUMNS,
        "bool there = columns_whole || place < places;",
        "bool there = columns_whole || place <= places;",
        f"{TESTS}::test_every_size",
    ),
    Mutant(
        "channels: what is past the last one counts",
        BACKWARD,
        "within ? stats.normalized_value(j, v[j]) : 0.0f",
        "stats.normalized_value(j, v[j])",
        f"{TESTS}::test_channels_that_are_not_there_add_nothing_to_huge_columns",
    ),
    Mutant(
        "channels: a column's first SIMD-group alone",
        COLUMNS,
        "for (int other = 0; other < column_simds; ++other) {",
        "for (int other = 0; other < 1; ++other) {",
        f"{TESTS}::test_every_size",
    ),
    Mutant(
        "channels: a barrier missing",
        COLUMNS,
        """    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (M % 4 == 0) {""",
        """    if (M % 4 == 0) {""",
        f"{TESTS}::test_every_size",
    ),
    Mutant(
        "channels: not rounded before the weight",
        FORWARD,
        "if (channels_round_early) {",
        "if (channels_round_early && false) {",
        f"{TESTS}::test_rounding_is_that_of_rows",
    ),
    Mutant(
        "channels: partial sums not added up",
        BACKWARD,
        "first ? of_weight : weight_partials[to] + of_weight",
        "of_weight",
        f"{TESTS}::test_more_channels_than_registers_hold",
    ),
    Mutant(
        "channels: the bias's gradient from the first column alone",
        BACKWARD,
        "float of_bias = columns_sum(db[k]);",
        "float of_bias = db[k];",
        f"{TESTS}::test_every_size",
    ),
    Mutant(
        "channels: strided within and read in place",
        PLAN,
        "if (!adjoin || outer.size() > 3",
        "if (outer.size() > 3",
        f"{TESTS}::test_views",
    ),
    Mutant(
        "channels: any two axes are the same",
        NODE,
        "return op_ == node.op_ &&",
        "return",
        f"{TESTS}::test_compiled_axes_are_told_apart",
    ),
]
