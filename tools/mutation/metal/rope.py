"""Norms with a rotary embedding."""

from ..mutant import Mutant

KERNEL = "kernels/rope/norm_rope.metal"
PLAN = "csrc/rope/plan.cpp"
TESTS = "tests/rope/test_norm_rope.py"

MUTANTS = [
    Mutant(
        "rope: a sine's sign",
        KERNEL,
        "is_first(e, half_dims) ? -of_theta.sine : of_theta.sine",
        "of_theta.sine",
        f"{TESTS}::test_part_of_a_head",
    ),
    Mutant(
        "rope: the other half's sine",
        KERNEL,
        "same == at ? 0.0f : -angles.sines[same]",
        "same == at ? 0.0f : angles.sines[same]",
        f"{TESTS}::test_head_dims",
    ),
    Mutant(
        "rope: the tail is rotated",
        KERNEL,
        "v[j] = e < dims ? turned : v[j];",
        "v[j] = turned;",
        f"{TESTS}::test_rows_do_not_affect_each_other",
    ),
    Mutant(
        "rope: partners without their weight",
        KERNEL,
        "read_partners<N>(w, of, dims, of_w);",
        "read<N>(w, of, of_w);",
        f"{TESTS}::test_part_of_a_head",
    ),
    Mutant(
        "rope: the index of another sequence's token",
        KERNEL,
        "uint index = token - sequence * uint(positions);",
        "uint index = token;",
        f"{TESTS}::test_head_dims",
    ),
    Mutant(
        "rope: one offset for all",
        KERNEL,
        "offsets[sequence / uint(sequences_per_offset)]",
        "offsets[0]",
        f"{TESTS}::test_offsets",
    ),
    Mutant(
        "rope: heads past the last one are stored",
        KERNEL,
        "bool has_head = first_head + uint(i) < own_heads;",
        "bool has_head = true;",
        f"{TESTS}::test_many_tokens",
    ),
    Mutant(
        "rope: v is rotated",
        KERNEL,
        "bool rotated = item < end2;",
        "bool rotated = item <= end2;",
        f"{TESTS}::test_queries_keys_and_values",
    ),
    Mutant(
        "rope: k's norm has q's factor",
        KERNEL,
        "is_first_tensor ? factor : 1.0f",
        "rotated ? factor : 1.0f",
        f"{TESTS}::test_queries_keys_and_values",
    ),
    Mutant(
        "rope: partners of odd halves in whole vectors",
        PLAN,
        "half % geometry.width == 0 ? kInRow : kScattered",
        "half % 2 == 0 ? kInRow : kScattered",
        f"{TESTS}::test_part_of_a_head",
    ),
    Mutant(
        "rope: an angle's last part",
        "kernels/rope/angles.h",
        "x = fma(quarters, -7.549789948768648e-8f, x);",
        "",
        f"{TESTS}::test_far_positions",
    ),
]
