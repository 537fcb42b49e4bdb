"""Group, instance and batch norm."""

from ..mutant import Mutant

THREADS = "kernels/group_norm/channel_threads.h"
FORWARD = "kernels/group_norm/group_norm.metal"
HELD = "kernels/group_norm/held/held_groups.metal"
BACKWARD = "kernels/group_norm/vjp/group_norm_vjp.metal"
OP = "csrc/group_norm/group_norm.cpp"
NODE = "csrc/op/node.h"
PLAN = "csrc/group_norm/plan.cpp"
GEOMETRY = "csrc/group_norm/geometry.cpp"
VALUES = "tests/group_norm/test_forward.py"
TRANSFORMS = "tests/group_norm/test_transforms.py"

MUTANTS = [
    Mutant(
        "group norm: a thread's mean without what rounding loses of it",
        FORWARD,
        "add_exactly(shift[j], mean[j], high[j], low[j]);",
        "high[j] = shift[j] + mean[j];",
        f"{VALUES}::test_large_means",
    ),
    Mutant(
        "group norm: a group's mean without what rounding loses of it",
        FORWARD,
        "rest[to] = low;",
        "rest[to] = 0.0f;",
        f"{VALUES}::test_large_means",
    ),
    Mutant(
        "group norm: four positions weigh as much as those before",
        FORWARD,
        "float weight = count * share;",
        "float weight = share;",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "group norm: chunks that overlap",
        GEOMETRY,
        "ceil_div(wanted, kAtOnce) * kAtOnce, kMinSteps",
        "wanted, kMinSteps + 1",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "group norm: as many chunks of fewer steps",
        GEOMETRY,
        "  finer.chunks = ceil_div(positions, finer.chunk_size());\n",
        "",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "group norm: rows of threads share their places",
        THREADS,
        "int(at.y) * lanes + int(at.x),",
        "int(at.x),",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "group norm: the first lane's sums for those beside it",
        FORWARD,
        "v += partial[i * across + lane % across];",
        "v += partial[i * across];",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "group norm: the means of chunks as if they were alike",
        FORWARD,
        "fma(count * off, off, squares[at])",
        "squares[at]",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "group norm: every chunk is a whole one",
        FORWARD,
        "float count = float(min(chunk_size, positions - chunk * chunk_size));\n    float off = ",
        "float count = float(chunk_size);\n    float off = ",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "group norm: MLX's order taken for PyTorch's",
        THREADS,
        "int g = group_strided ? channel - cycles * groups",
        "int g = group_strided && false ? channel - cycles * groups",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "group norm: no barrier between sums of rows",
        THREADS,
        "    threadgroup_barrier(mem_flags::mem_threadgroup);\n    if (row < half_of",
        "    if (row < half_of",
        f"{VALUES}::test_instance_norm",
    ),
    Mutant(
        "group norm in one launch: a mean without what rounding loses of it",
        HELD,
        "offset[j] = -low[j] * scale[j];",
        "offset[j] = 0.0f;",
        f"{VALUES}::test_large_means",
    ),
    Mutant(
        "group norm in one launch: deviations from nothing",
        HELD,
        "shift[j] /= float(rows) * float(of_group);",
        "shift[j] = 0.0f;",
        f"{VALUES}::test_large_means",
    ),
    Mutant(
        "group norm in one launch: a thread's channels all of its first one's group",
        GEOMETRY,
        "strided || of_group % width != 0",
        "strided",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "group norm in one launch: no barrier after the sums",
        HELD,
        "    threadgroup_barrier(mem_flags::mem_threadgroup);\n    for (int j = 0; j < N;",
        "    for (int j = 0; j < N;",
        f"{VALUES}::test_instance_norm",
    ),
    Mutant(
        "group norm: no slope of the activation",
        BACKWARD,
        "g[j] *= slope[j];",
        "g[j] *= 1.0f;",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "group norm: sums of a group's first channels alone",
        BACKWARD,
        "begin < of_group; begin += width",
        "begin < min(of_group, width); begin += width",
        f"{VALUES}::test_group_norm",
    ),
    Mutant(
        "instance norm: a gradient's means at the first sample",
        BACKWARD,
        "uint to = sample * uint(groups) + channel;",
        "uint to = channel;",
        f"{VALUES}::test_instance_norm",
    ),
    Mutant(
        "instance norm: one chunk's means without the weight",
        BACKWARD,
        "w[j] / float(positions)",
        "1.0f / float(positions)",
        f"{VALUES}::test_instance_norm",
    ),
    Mutant(
        "batch norm: gradients of 16 bits apart by 32",
        BACKWARD,
        "sums + at * size_of(group_sums_type)",
        "sums + at * size_of(kFloat32)",
        f"{VALUES}::test_batch_norm",
    ),
    Mutant(
        "batch norm: one chunk's sums where there are more",
        PLAN,
        "geometry.chunks == 1 && (!of_sums",
        "(!of_sums",
        f"{VALUES}::test_batch_norm",
    ),
    Mutant(
        "group norm: a gradient as if the statistics were given",
        PLAN,
        "bool of_sums = vjp.input && !spec.running;",
        "bool of_sums = false;",
        f"{VALUES}::test_batch_norm",
    ),
    Mutant(
        "group norm: any two are the same",
        NODE,
        "return op_ == node.op_ &&",
        "return",
        f"{TRANSFORMS}::test_compile_tells_norms_apart",
    ),
    Mutant(
        "group norm: the new statistics have no gradient",
        OP,
        "if (of_statistics) {",
        "if (false) {",
        f"{VALUES}::test_gradients_of_the_new_statistics",
    ),
]
