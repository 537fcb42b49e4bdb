"""Launch plans, libraries, and the check of a specialization before its first use."""

from ..mutant import Mutant
from .texts import GRADIENT, ONE, PLAN_MATMUL, PLAN_VJP

PLAN_ROWS = "csrc/gpu/rows.cpp"
PLAN_NORM = "csrc/norm/plan.cpp"
RECORDED = "csrc/gpu/recorded.cpp"
EVAL = "csrc/norm/norm_vjp.cpp"
ENCODE = "csrc/gpu/metal/encode.cpp"
LIBRARY = "csrc/gpu/metal/library.cpp"
AGAIN = "tests/norm/test_recorded_calls.py"
SPECIALIZATION = "csrc/gpu/specialization.cpp"
SELF_CHECK = "csrc/common/self_check.cpp"
CHECK_STREAM = "csrc/common/check_stream.cpp"
CHECKED = "-m build tests/cli/test_self_check.py::"

MUTANTS = [
    # --- Plans that are encoded again
    Mutant(
        "strides left out of a call's key",
        RECORDED,
        "      add(stride);\n",
        "",
        AGAIN,
    ),
    Mutant(
        "dtypes left out of a call's key",
        RECORDED,
        "add(static_cast<int64_t>(a.dtype().val()) |\n        a.offset()",
        "add(a.offset()",
        AGAIN,
    ),
    Mutant(
        "switches of geometries left out of a call's key",
        RECORDED,
        "switches_set.fetch_add(1,",
        "switches_set.fetch_add(0,",
        AGAIN,
    ),
    Mutant(
        "sizes left out of a call's key",
        RECORDED,
        "    for (auto size : a.shape()) {\n      add(size);\n    }\n    for (auto stride",
        "    for (auto stride",
        AGAIN,
    ),
    Mutant(
        "alignment left out of a call's key",
        RECORDED,
        "        a.offset() % kMaxAlignment << 8 | ",
        "        ",
        AGAIN,
    ),
    Mutant(
        "contiguity left out of a call's key",
        RECORDED,
        "int64_t{flags.contiguous} << 17 | int64_t{flags.col_contiguous} << 18 |",
        "",
        AGAIN,
        redundant="what a plan reads of them follows from sizes and strides",
    ),
    Mutant(
        "the outputs' places left out of a call's key",
        RECORDED,
        "  for (const auto& a : outputs) {\n    add_array(a);\n  }\n",
        "",
        AGAIN,
    ),
    Mutant(
        "an op's options left out of a call's key",
        "csrc/gpu/recorded.h",
        "call->key == key && call->op == op",
        "call->key == key",
        AGAIN,
    ),
    Mutant(
        "a number's sign left out of a call's key",
        "csrc/common/number.h",
        "std::bit_cast<uint32_t>(a.value_) ==\n        std::bit_cast<uint32_t>(b.value_)",
        "a.value_ == b.value_",
        AGAIN,
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
        "tests/norm/test_short_rows.py::test_in_the_memory_of_dead_inputs",
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
        "operand == kBias || reads_rows_again(in.x(), s)",
        "operand == kBias",
        "tests/norm/test_gradients.py::test_long_rows_with_a_tail",
    ),
    Mutant(
        "views of inputs handed over as temporaries",
        PLAN_ROWS,
        "auto& view = plan.views.emplace_back(",
        "auto& view = plan.temporaries.emplace_back(",
        "tests/norm/test_pending_operands.py",
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
        "  launch.set(\n      K::clamped_sum, "
        "norm.clamp && read[kX]->array->dtype() == mx::float16);\n",
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
        "++misses[key] < kMaxMisses",
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
