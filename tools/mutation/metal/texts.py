"""Files, texts and tests that several lists of defects name."""

ROWS = "kernels/common/rows.h"
NORM = "kernels/norm/norm.metal"
NORM_LINEAR = "kernels/linear/norm_linear.metal"
PLAN_MATMUL = "csrc/matmul/plan.cpp"
PLAN_VJP = "csrc/norm/vjp_plan.cpp"
ONE = "tests/norm/test_forward.py::test_one_dtype"
GRADIENT = "tests/norm/test_gradients.py::test_one_dtype"
EVERY_LENGTH = "tests/norm/test_short_rows.py::test_every_length"
BESIDE = "tests/norm/test_short_rows.py::test_a_row_is_the_same_beside_any_other"
CHUNKS = (
    "  for (int chunk = 0; next_chunk(chunk, length);\n       chunk += chunk_length<N, V>()) {\n"
)
ONE_CHUNK = "  for (int chunk = 0; chunk == 0; ++chunk) {\n"
