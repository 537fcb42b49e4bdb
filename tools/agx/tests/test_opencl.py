import pytest

from agx.opencl import translate
from msl.tokens import SourceError

KERNEL = """
#include <metal_stdlib>
using namespace metal;

constant bool scaled [[function_constant(3)]];
constant int flags [[function_constant(4)]];
constant bool strided = flags & 4;

inline float twice(float v) {
  return 2.0 * v;
}

inline float unused(float v) {
  simdgroup_float8x8 m;
  return v;
}

template <int N, typename T>
[[kernel, max_total_threads_per_threadgroup(32 * N)]] void add(
    device const T* x [[buffer(0)]],
    device const float* by [[buffer(1), function_constant(scaled)]],
    device float4* y [[buffer(2)]],
    constant const int& length [[buffer(3)]],
    uint2 at [[thread_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float sums[N];
  thread const float* none;
  sums[lane] = twice(x[at.x]);
  y[at.x] = float4(scaled ? by[0] : 1.0f);
}

template [[host_name("add_4")]] [[kernel]] decltype(add<4, float>) add<4, float>;
template [[host_name("add_8")]] [[kernel]] decltype(add<8, uchar>) add<8, uchar>;
"""


def text_of(kernel="add_4", source=KERNEL):
    return " ".join(translate(source, "add.metal", kernel).text.split())


def test_function_constants_and_what_is_made_of_them_have_values_where_they_are_specialized():
    text = text_of()
    assert "FUNCTION_CONSTANT(bool, scaled, VALUE_scaled);" in text
    assert "FUNCTION_CONSTANT(int, flags, VALUE_flags);" in text
    assert "FUNCTION_CONSTANT(bool, strided, flags & 4);" in text
    head, _, kernel = text.partition("#ifndef SPECIALIZED __kernel")
    assert "FUNCTION_CONSTANT(bool, strided" in head and kernel.count("#endif") == 1


def test_values_of_function_constants_are_by_name_or_index():
    made = translate(KERNEL, "add.metal", "add_4")
    assert made.macros({"scaled": True, "4": 5})[1:] == ["-DVALUE_scaled=1", "-DVALUE_flags=5"]
    assert made.macros({})[1:] == ["-DVALUE_scaled=0", "-DVALUE_flags=0"]
    with pytest.raises(SourceError, match="no function constant 'scale'"):
        made.macros({"scale": 1})


def test_arguments_of_a_template_are_bound():
    text = text_of("add_8")
    assert "constexpr int N = 8;" in text and "using T = uchar;" in text
    assert "__global const uchar * __restrict x" in text


def test_references_are_parameters_by_address():
    assert "__constant const int & length = *reference_length;" in text_of()


def test_positions_are_calls():
    text = text_of()
    assert "const uint2 at = (uint2)((uint)get_global_id(0), (uint)get_global_id(1));" in text
    assert "const uint lane = get_sub_group_local_id();" in text


def test_words_and_numbers_are_of_opencl():
    text = text_of()
    assert "__local float sums[N];" in text and "make_float4(scaled ?" in text
    assert "INLINE float twice(float v)" in text and "2.0f * v" in text


def test_member_functions_of_a_thread_are_for_any_space():
    """Not __private: clang takes no temporary for the object of one."""
    members = "float sum() const thread { return a; } void add(float v) thread { a += v; }"
    members = f"struct Pair {{ float a; {members} }};"
    source = KERNEL.replace("inline float twice", f"{members}\ninline float twice")
    source = source.replace("thread const float* none;", "Pair{x[0]}.add(Pair{x[1]}.sum());")
    text = text_of(source=source)
    assert "float sum() const { return a; }" in text
    assert "void add(float v) { a += v; }" in text


def test_what_a_kernel_does_not_come_to_is_left_out():
    assert "unused" not in text_of()


@pytest.mark.parametrize("word", ["simdgroup_float8x8", "bfloat", "bfloat4"])
def test_types_that_would_be_others_are_refused(word):
    source = KERNEL.replace("thread const float* none", f"thread const {word}* none")
    with pytest.raises(SourceError, match="no translation"):
        text_of(source=source)


def test_a_kernel_that_is_not_there_is_refused():
    with pytest.raises(SourceError, match="no kernel 'add_5'"):
        text_of("add_5")


@pytest.mark.parametrize(
    ("group", "exactly", "compiled_for"),
    [
        (None, False, (128, 1, 1)),
        ((64, 1, 1), False, (128, 1, 1)),
        ((64, 1, 1), True, (64, 1, 1)),
        ((8, 4, 1), False, (8, 4, 1)),
    ],
)
def test_a_kernel_is_compiled_for_the_threads_it_declares(group, exactly, compiled_for):
    made = translate(KERNEL, "add.metal", "add_4", group, exactly)
    assert made.group == compiled_for
    sizes = ", ".join(map(str, compiled_for))
    assert f"reqd_work_group_size({sizes})" in made.text
