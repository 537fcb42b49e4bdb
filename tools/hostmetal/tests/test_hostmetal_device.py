"""The software Metal device: what it runs, and what it refuses, by name."""

import faulthandler
import importlib
import struct
import sys

import mlx.core as mx
import numpy as np
import pytest

import hostmetal
from hostmetal.build import for_tests

pytestmark = [pytest.mark.instrument, pytest.mark.build]

TEXT = """
#include <metal_stdlib>
using namespace metal;

constant bool has_addend [[function_constant(0)]];
constant int times [[function_constant(1)]];
constant bool adds = has_addend;

kernel void scale(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant const float& factor [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = factor * x[i];
}

kernel void add(
    device const float* x [[buffer(0)]],
    device const float* addend [[buffer(1), function_constant(adds)]],
    device float* y [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = times * x[i] + (has_addend ? addend[i] : 0.0f);
}

kernel void reverse(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint i [[thread_position_in_threadgroup]],
    uint n [[threads_per_threadgroup]]) {
  shared[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[n - 1 - i] = shared[i];
}

kernel void copy4(
    device const float4* x [[buffer(0)]],
    device float4* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}

kernel void backwards(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[-int(i)];
}

kernel void spread(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[3 * i] = x[i];
}

kernel void fill(
    device float* y [[buffer(30)]],
    uint i [[thread_position_in_grid]]) {
  float add = 1.0f; // not the kernel, whose constants are not set for this one
  y[i] = add;
}

[[kernel, max_total_threads_per_threadgroup(64)]] void increment(
    device float* y [[buffer(0)]],
    uint i [[thread_position_in_grid]]) {
  y[i] += 1.0f;
}
"""

N = 8
INT, BOOL = 29, 53  # MTL::DataType
X, Y = 0, 1  # a script's first input and its output


def new_script(toy):
    """A script with an input and an allocated output, N floats each."""
    with mx.stream(mx.cpu):
        script = toy.Script(1, [([N], mx.float32)])
    script.allocate(Y)
    script.library("hostmetal_test", TEXT)
    return script


def float_bytes(value):
    return struct.pack("f", value)


def constants(addend, times):
    return [(0, BOOL, struct.pack("?", addend)), (1, INT, struct.pack("i", times))]


@pytest.fixture(scope="module")
def toy():
    build = for_tests("_toy")
    sys.path.insert(0, str(build.site))
    yield importlib.import_module("_toy")
    sys.path.remove(str(build.site))


@pytest.fixture(autouse=True)
def simulator(toy):
    """The device's simulator; what a test plants ends with it."""
    simulator = hostmetal.start()
    simulator.clear()
    before = simulator.check, simulator.order
    simulator.check = 2
    yield simulator
    simulator.clear()
    simulator.check, simulator.order = before
    simulator.max_threads = None


@pytest.fixture
def script(toy):
    return new_script(toy)


@pytest.fixture
def run(toy):
    """Runs a script on arrays, by default 1 to N; returns the outputs as NumPy arrays."""

    def run(script, *inputs):
        with mx.stream(mx.cpu):
            outputs = script([mx.array(a) for a in inputs or [np.arange(1, N + 1, dtype="f")]])
            mx.eval(outputs)
        outputs = [np.array(output) for output in outputs]
        return outputs if len(outputs) > 1 else outputs[0]

    return run


def run_kernel(script, name, *bindings, n=N):
    """Encodes a launch of n threads; each binding is a call of the script for the next index."""
    script.kernel(name)
    for index, (bind, what, *offset) in enumerate(bindings):
        getattr(script, f"set_{bind}")(what, index, *offset)
    script.dispatch_threads((n, 1, 1), (n, 1, 1))


def scale(script, x, y, factor=2.0, *, bind_x="input", bind_y="output", at=(0, 0), n=N):
    """Encodes y = factor * x, by default rightly; `at` is the bytes before the first elements."""
    factor = "bytes", float_bytes(factor)
    run_kernel(script, "scale", (bind_x, x, at[0]), (bind_y, y, at[1]), factor, n=n)


def incremented(toy, n=N):
    """A script that adds 1 to n of the N floats that it was given, in place."""
    with mx.stream(mx.cpu):
        script = toy.Script(1, [([N], mx.float32)])
    script.share(X, Y)
    script.library("hostmetal_test", TEXT)
    run_kernel(script, "increment", ("output", Y), n=n)
    return script


def reverse(script, x, y, n=N, memory=(4 * N,)):
    """Encodes y = x backwards, in one threadgroup, with memory of so many bytes each."""
    script.kernel("reverse")
    script.set_input(x, 0)
    script.set_output(y, 1)
    for index, size in enumerate(memory):
        script.set_threadgroup_memory(size, index)
    script.dispatch_threadgroups((1, 1, 1), (n, 1, 1))


def temporary(script, handed_over=True):
    """Adds an allocated array of N floats."""
    number = script.array([N], mx.float32)
    script.allocate(number)
    if handed_over:
        script.add_temporary(number)
    return number


# --- What it runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", range(4))
def test_launch(script, run, simulator, order):
    simulator.order = order
    scale(script, X, Y)
    np.testing.assert_array_equal(run(script), 2 * np.arange(1, N + 1))
    assert simulator.faults == []
    (launch,) = simulator.launches
    assert (launch.library, launch.kernel) == ("hostmetal_test", "scale")
    assert (launch.grid, launch.group, launch.in_threads) == ((N, 1, 1), (N, 1, 1), True)
    assert launch.buffers == {0: "Input", 1: "Output", 2: "Bytes"}
    assert launch.result.bytes["x"] == (4 * N, 0)
    assert launch.result.bytes["y"] == (0, 4 * N)


def test_launches_run_in_order(script, run, simulator):
    first, second = temporary(script), temporary(script)
    scale(script, X, first, 2.0)
    scale(script, first, second, 3.0)
    scale(script, second, Y, 5.0)
    np.testing.assert_array_equal(run(script), 30 * np.arange(1, N + 1))
    assert [launch.temporaries for launch in simulator.launches] == [{1}, {0, 1}, {0}]
    assert simulator.faults == []


def test_memory_is_written_again_after_it_was_read(script, run, simulator):
    middle = temporary(script)
    scale(script, X, middle, 2.0)
    scale(script, middle, Y, 3.0)
    scale(script, X, middle, 5.0)
    np.testing.assert_array_equal(run(script), 6 * np.arange(1, N + 1))
    assert simulator.faults == []


def test_primitives_chain_through_mlx(script, run, simulator):
    scale(script, X, Y)
    with mx.stream(mx.cpu):
        x = mx.arange(N, dtype=mx.float32) + 1
        (y,) = script([x * x])
        (z,) = script([y - 1])
        z = z + y
    np.testing.assert_array_equal(np.array(z), 6 * np.arange(1, N + 1) ** 2 - 2)
    assert simulator.faults == []


def test_function_constants(script, run, simulator):
    for addend in (True, False):
        script.kernel("add", f"add_{addend}", constants(addend, 3))
        script.set_input(X, 0)
        if addend:
            script.set_input(X, 1)
        script.set_output(Y, 2)
        script.dispatch_threadgroups((2, 1, 1), (N // 2, 1, 1))
    np.testing.assert_array_equal(run(script), 3 * np.arange(1, N + 1))
    assert [launch.constants for launch in simulator.launches] == [
        {"has_addend": True, "times": 3},
        {"has_addend": False, "times": 3},
    ]
    assert not simulator.launches[0].in_threads


def test_threadgroup_memory(script, run, simulator):
    reverse(script, X, Y)
    np.testing.assert_array_equal(run(script), np.arange(N, 0, -1))
    assert simulator.launches[0].result.barriers == 1
    assert simulator.faults == []


def test_donated_input(script, toy, run, simulator):
    script = incremented(toy)
    np.testing.assert_array_equal(run(script), np.arange(2, N + 2))
    assert simulator.faults == []


def test_part_of_a_donated_input(toy, run, simulator):
    """What the launch leaves alone is the input's."""
    script = incremented(toy, 1)
    np.testing.assert_array_equal(run(script), [2, *range(2, N + 1)])
    assert simulator.faults == []


def test_negative_strides(script, simulator):
    run_kernel(script, "backwards", ("input", X), ("output", Y))
    with mx.stream(mx.cpu):
        x = mx.arange(N, dtype=mx.float32)
        mx.eval(x)
        (y,) = script([x[::-1]])
    np.testing.assert_array_equal(np.array(y), np.arange(N)[::-1])
    assert simulator.faults == []


def test_metallib(script, run, simulator, tmp_path):
    (tmp_path / "ahead.metallib").write_text(TEXT)
    script.metallib("ahead", str(tmp_path))
    scale(script, X, Y)
    np.testing.assert_array_equal(run(script), 2 * np.arange(1, N + 1))
    assert simulator.launches[0].library == "ahead"


def test_concurrent_launches(script, run, simulator):
    other = temporary(script)
    script.start_concurrent()
    scale(script, X, other, 3.0)
    scale(script, X, Y, 4.0)
    script.end_concurrent()
    scale(script, other, Y)
    np.testing.assert_array_equal(run(script), 6 * np.arange(1, N + 1))
    assert simulator.faults == []


def test_concurrent_launches_of_two_halves(script, run, simulator):
    """Of one allocation, of which no byte is written by both."""
    script.start_concurrent()
    for start in (0, N // 2):
        half = script.array([N // 2], mx.float32)
        script.share(Y, half, start)
        scale(script, X, half, at=(4 * start, 0), n=N // 2)
    script.end_concurrent()
    np.testing.assert_array_equal(run(script), 2 * np.arange(1, N + 1))
    assert simulator.faults == []


def test_output_with_gaps(script, run, simulator):
    """What lies between the elements need not be written."""
    strided = script.array([N], mx.float32)
    script.allocate_with_stride(strided, 3)
    script.add_temporary(strided)
    run_kernel(script, "spread", ("input", X), ("output", strided))
    scale(script, X, Y)
    run(script)
    assert simulator.faults == []


def test_memory_freed_and_used_again(script, run, simulator):
    """A launch need not wait for one that used the same address for another array."""
    scale(script, X, Y, bind_x="buffer")
    for _ in range(20):
        np.testing.assert_array_equal(run(script), 2 * np.arange(1, N + 1))
    assert simulator.faults == []


@pytest.mark.parametrize(
    "wait",
    [lambda: mx.clear_cache(), lambda: mx.set_cache_limit(0), lambda: mx.synchronize()],
    ids=["clear_cache", "set_cache_limit", "synchronize"],
)
def test_waiting_for_streams(script, simulator, wait):
    """Not with the GIL held, which the launches waited for need."""
    faulthandler.dump_traceback_later(60, exit=True)
    for _ in range(300):
        scale(script, X, Y)
    with mx.stream(mx.cpu):
        mx.eval(mx.zeros(1 << 16))  # something for the cache
        mx.async_eval(script([mx.ones(N)]))
        limit = wait()
    faulthandler.cancel_dump_traceback_later()
    simulator.wait()
    assert len(simulator.launches) == 300
    if limit is not None:
        mx.set_cache_limit(limit)


def test_a_launch_after_the_output_is_gone(script, simulator):
    scale(script, X, Y)
    with mx.stream(mx.cpu):
        for _ in range(20):
            mx.async_eval(script([mx.ones(N)]))
    mx.synchronize(mx.default_stream(mx.cpu))
    assert len(simulator.launches) == 20
    assert simulator.faults == []


# --- What it refuses ---------------------------------------------------------------------------

REFUSED = []


def refused(message):
    """Adds a case: what the function makes of a script is refused with this message."""
    return lambda case: REFUSED.append(pytest.param(case, message, id=case.__name__))


@refused("nothing: library hostmetal_test has no kernel of this name")
def unknown_kernel(script):
    script.kernel("nothing")


@refused("arange: MLX's own metallib is not on this machine")
def kernel_of_mlx(script):
    script.mlx_kernel("arange")


@refused("add: MLX has add cached under the hash name add_3, with other function constants")
def one_hash_name_for_two_constants(script):
    script.kernel("add", "add_3", constants(False, 3))
    script.kernel("add", "add_3", constants(False, 4))


@refused("scale: MLX has add cached under the hash name add_5, .* or another kernel")
def one_hash_name_for_two_kernels(script):
    script.kernel("add", "add_5", constants(False, 5))
    script.kernel("scale", "add_5", constants(False, 5))


@refused("add: function constant 7 is set, which the library does not declare")
def undeclared_function_constant(script):
    script.kernel("add", "add_7", [*constants(False, 1), (7, BOOL, b"\1")])


@refused("add: function constant times is int, and was set as bool")
def function_constant_of_another_type(script):
    script.kernel("add", "add_bool", [(0, BOOL, b"\0"), (1, BOOL, b"\1")])


@refused("no function constant has MTL::DataType 99")
def function_constant_of_an_unknown_type(script):
    script.kernel("add", "add_99", [(0, 99, b"\0")])


@refused("add: it uses function constant times, which is not set")
def missing_function_constant(script):
    script.kernel("add", "add_missing", [(0, BOOL, b"\0")])


@refused("library hostmetal_test: the name was used before for another text")
def one_library_name_for_two_texts(script):
    script.library("hostmetal_test", TEXT + "// changed\n")


@refused("library hostmetal_greek: its text is not ASCII in line 2")
def text_that_is_not_ascii(script):
    script.library("hostmetal_greek", "// fine\n// \u03b5\n")


@refused("library hostmetal_none: there is no file .*/hostmetal_none.metallib to load it from")
def missing_metallib(script):
    script.metallib("hostmetal_none", "/nonexistent")


@refused("the software device does not answer to name")
def device_method(script):
    script.ask_device_for_its_name()


@refused(r"scale: buffer 1 \(y\) is written by the kernel, and was bound by set_input_array")
def written_buffer_bound_as_input(script):
    scale(script, X, Y, bind_y="input")


@refused(r"scale: buffer 0 \(x\) is only read by the kernel, and was bound by set_output_array")
def read_buffer_bound_as_output(script):
    scale(script, Y, Y, bind_x="output")


@refused(r"scale: buffer 0 \(x\) is device memory, and was bound by set_bytes")
def bytes_for_device_memory(script):
    run_kernel(script, "scale", ("bytes", bytes(4 * N)), ("output", Y), ("bytes", float_bytes(2)))


@refused("scale: it writes buffer 1, which was not bound by set_output_array")
def raw_buffer_written(script):
    scale(script, X, Y, bind_y="buffer")


@refused("scale: it writes buffer 1, which was not bound by set_output_array")
def raw_buffer_registered_for_an_earlier_launch(script):
    script.register_output(Y)
    for _ in range(2):
        scale(script, X, Y, bind_y="buffer")


@refused(r"scale: buffer 2 \(factor\) was bound for an earlier pipeline and not for this one")
def stale_binding(script):
    middle = temporary(script)
    scale(script, X, middle)
    run_kernel(script, "scale", ("input", middle), ("output", Y))


@refused(r"fill: buffer 30 \(y\) (is not bound|was bound for an earlier pipeline)")
def missing_binding(script):
    script.kernel("fill")
    script.dispatch_threads((N, 1, 1), (N, 1, 1))


@refused("scale: buffer 3 is bound, which the kernel does not have$")
def undeclared_binding(script):
    script.kernel("scale")
    script.set_input(X, 0)
    script.set_output(Y, 1)
    script.set_bytes(float_bytes(2), 2)
    script.set_bytes(float_bytes(2), 3)
    script.dispatch_threads((N, 1, 1), (N, 1, 1))


@refused("add: buffer 1 is bound, which the kernel does not have with these function constants")
def binding_that_is_off(script):
    script.kernel("add", "add_off", constants(False, 6))
    script.set_input(X, 0)
    script.set_input(X, 1)
    script.set_output(Y, 2)
    script.dispatch_threads((N, 1, 1), (N, 1, 1))


@refused("scale: 0 bytes are set at buffer 2, and Metal takes 1 to 4096")
def no_bytes(script):
    script.kernel("scale")
    script.set_bytes(b"", 2)


@refused("scale: 4097 bytes are set at buffer 2, and Metal takes 1 to 4096")
def too_many_bytes(script):
    script.kernel("scale")
    script.set_bytes(bytes(4097), 2)


@refused(r"scale: buffer 2 \(factor\) takes float of 4 bytes, and 8 were set")
def bytes_of_another_size(script):
    run_kernel(script, "scale", ("input", X), ("output", Y), ("bytes", bytes(8)))


@refused("scale: buffer 31 is bound, and the last one is 30")
def buffer_index(script):
    script.kernel("scale")
    script.set_input(X, 31)


@refused("scale: buffer 0 is bound on a stream where no eval_gpu is running")
def another_stream(script):
    script.use_another_stream()
    script.kernel("scale")
    script.set_input(X, 0)


@refused("reverse: threadgroup memory is set at index 31, and the last one is 30")
def threadgroup_memory_index(script):
    script.kernel("reverse")
    script.set_threadgroup_memory(16, 31)


@refused("reverse: threadgroup memory of 24 bytes is not a multiple of 16 up to 32768")
def odd_threadgroup_memory(script):
    script.kernel("reverse")
    script.set_threadgroup_memory(24, 0)


@refused("reverse: threadgroup memory of 32784 bytes is not a multiple of 16 up to 32768")
def too_much_threadgroup_memory(script):
    script.kernel("reverse")
    script.set_threadgroup_memory(32784, 0)


@refused("reverse: threadgroup memory of 40960 bytes in all is over 32768")
def too_much_threadgroup_memory_in_all(script):
    reverse(script, X, Y, memory=(20480, 20480))


@refused("reverse: threadgroup memory 1 is set, which the kernel does not have")
def undeclared_threadgroup_memory(script):
    reverse(script, X, Y, memory=(32, 32))


@refused(r"reverse: threadgroup memory 0 \(shared\) has no length")
def missing_threadgroup_memory(script):
    reverse(script, X, Y, memory=())


@refused(r"scale: the grid \(8, 0, 1\) is empty")
def empty_grid(script):
    script.kernel("scale")
    script.dispatch_threads((N, 0, 1), (N, 1, 1))


@refused(r"scale: a threadgroup of \(512, 4, 1\) threads, and the pipeline takes 1 to 1024")
def too_many_threads(script):
    script.kernel("scale")
    script.dispatch_threadgroups((1, 1, 1), (512, 4, 1))


@refused(r"scale: a threadgroup of \(0, 1, 1\) threads, and the pipeline takes 1 to 1024")
def no_threads(script):
    script.kernel("scale")
    script.dispatch_threadgroups((1, 1, 1), (0, 1, 1))


@refused(r"increment: a threadgroup of \(65, 1, 1\) threads, and the pipeline takes 1 to 64")
def more_threads_than_the_kernel_declares(script):
    script.kernel("increment")
    script.dispatch_threadgroups((1, 1, 1), (65, 1, 1))


@refused("a launch has no pipeline set in this eval_gpu")
def no_pipeline(script):
    script.set_input(X, 0)
    script.dispatch_threads((N, 1, 1), (N, 1, 1))


@refused("scale: buffer 0 is bound at offset 2, which is not a multiple of 4 bytes")
def offset_inside_an_element(script):
    script.kernel("scale")
    script.set_input(X, 0, 2)


@refused(r"copy4: buffer 0 \(x\) is bound at offset 4, and float4 is aligned to 16 bytes")
def offset_that_is_not_aligned(script):
    run_kernel(script, "copy4", ("input", X, 4), ("output", Y), n=1)


@refused("scale: the array bound at buffer 0 is not inside its allocation of 32 bytes")
def offset_behind_the_allocation(script):
    script.kernel("scale")
    script.set_input(X, 0, 4 * N + 4)


@refused("scale: the array bound at buffer 0 is not inside its allocation of 32 bytes")
def offset_before_the_allocation(script):
    script.kernel("scale")
    script.set_input(X, 0, -4)


@refused("scale: buffer 0 is bound at offset 36 of an allocation of 32 bytes")
def raw_offset_behind_the_allocation(script):
    script.kernel("scale")
    script.set_buffer(X, 0, 4 * N + 4)


@refused("scale: buffer 0 is bound by set_buffer, of no array that this eval_gpu was given")
def raw_buffer_of_an_unknown_array(script):
    script.kernel("scale")
    script.set_buffer(temporary(script), 0)


@refused("scale: the array bound at buffer 0 has no data")
def array_without_data(script):
    script.kernel("scale")
    script.set_input(script.array([N], mx.float32), 0)


@refused("scale: the array of buffer 1 was freed when eval_gpu returned: hand it to add_temporary")
def freed_temporary(script):
    freed = temporary(script, handed_over=False)
    scale(script, X, freed)
    scale(script, freed, Y)


@refused(
    r"Scripted: it handed to add_temporary the memory of input 0 \(scale: buffer 0\), for which "
    "command buffers then do not wait$"
)
def input_as_temporary(script):
    script.add_temporary(X)
    scale(script, X, Y)


@refused(r"Scripted: it handed to add_temporary the memory of input 0 \(reverse: buffer 0\), ")
def view_of_an_input_as_temporary(script):
    view = script.array([N // 2], mx.float32)
    script.share(X, view, N // 2)
    script.add_temporary(view)
    reverse(script, view, Y, N // 2)


@refused(
    r"Scripted: it handed to add_temporary the memory of input 0, output 0 \(scale: buffer 1\), "
)
def all_arrays_as_temporaries(script):
    middle = temporary(script)
    script.add_temporary(X)
    script.kernel("fill")
    script.set_output(middle, 30)
    script.dispatch_threads((N, 1, 1), (N, 1, 1))
    scale(script, middle, Y)
    script.add_temporary(Y)


@refused("no kernel yet: an array handed to add_temporary has no data")
def temporary_without_data(script):
    script.add_temporary(script.array([N], mx.float32))


@refused("no kernel yet: add_temporary is called on a stream where no eval_gpu is running")
def temporary_of_another_stream(script):
    script.use_another_stream()
    script.add_temporary(X)


@refused(
    r"scale: buffer 0 is written by an earlier launch \(scale\) for which it does not wait, "
    "as MLX was not told of it as input and output"
)
def raw_buffer_read_after_it_was_written(script):
    middle = temporary(script)
    scale(script, X, middle)
    scale(script, middle, Y, bind_x="buffer")


@refused(
    r"increment: buffer 0 is read by an earlier launch \(scale\) for which it does not wait, "
    "as both are in one concurrent context"
)
def concurrent_write_of_what_is_read(script):
    middle = temporary(script)
    scale(script, X, middle)
    script.start_concurrent()
    scale(script, middle, Y)
    run_kernel(script, "increment", ("output", middle))


@refused(
    r"scale: buffer 0 is written by an earlier launch \(scale\) for which it does not wait, "
    "as both are in one concurrent context"
)
def concurrent_read_of_what_is_written(script):
    middle = temporary(script)
    script.start_concurrent()
    scale(script, X, middle)
    scale(script, middle, Y)


@pytest.mark.parametrize("case, message", REFUSED)
def test_refusal(script, run, simulator, case, message):
    case(script)
    with pytest.raises(RuntimeError, match=rf"^\[hostmetal\] {message}") as raised:
        run(script)
    assert [f"[hostmetal] {fault}" for fault in simulator.faults] == [str(raised.value)]
    assert simulator.launches == []


def test_output_without_data(toy, run, simulator):
    with mx.stream(mx.cpu):
        script = toy.Script(1, [([N], mx.float32)])
    with pytest.raises(RuntimeError, match="Scripted: output 0 has no data"):
        run(script)


def test_a_refused_eval_leaves_nothing_behind(script, run, simulator):
    """What was encoded before the refusal does not run, and the next eval_gpu is as good as new."""
    bad = script
    scale(bad, X, Y)
    bad.kernel("scale")
    bad.set_input(X, 31)
    with pytest.raises(RuntimeError, match="buffer 31"):
        run(bad)
    simulator.wait()
    assert simulator.launches == []


def test_raw_buffer_read_behind_a_barrier(script, run, simulator):
    middle = temporary(script)
    scale(script, X, middle)
    script.barrier()
    scale(script, middle, Y, bind_x="buffer")
    np.testing.assert_array_equal(run(script), 4 * np.arange(1, N + 1))
    assert simulator.faults == []


def test_raw_buffer_registered_as_output(script, run, simulator):
    script.kernel("scale")
    script.set_input(X, 0)
    script.set_buffer(Y, 1)
    script.register_output(Y)
    script.set_bytes(float_bytes(2), 2)
    script.dispatch_threads((N, 1, 1), (N, 1, 1))
    np.testing.assert_array_equal(run(script), 2 * np.arange(1, N + 1))
    assert simulator.faults == []


def test_array_freed_before_its_launch(script, toy, simulator):
    late = temporary(script, handed_over=False)
    script.keep(late)
    for _ in range(300):
        scale(script, X, Y)
    scale(script, X, late)
    with mx.stream(mx.cpu):
        mx.async_eval(script([mx.ones(N)]))
    toy.release()
    simulator.wait()
    assert simulator.faults == [
        "scale: the array of buffer 1 was freed before the launch had run: hand it to add_temporary"
    ]
    assert len(simulator.launches) == 300


@pytest.mark.parametrize("launches", [50, 51])
def test_a_command_encoder_ends(script, toy, simulator, launches):
    """MLX ends it after some launches, and the next one waits for all in it."""
    script.barrier()
    for _ in range(launches):
        scale(script, X, Y, bind_x="buffer")
    with mx.stream(mx.cpu):
        x = mx.ones(N)
        mx.eval(x, script([x]))
        overwriting = new_script(toy)
        scale(overwriting, Y, X)
        y = overwriting([x])
        del x
        if launches == 50:
            with pytest.raises(RuntimeError, match="buffer 1 is read by an earlier launch"):
                mx.eval(y)
        else:
            mx.eval(y)


# --- Command buffers, of which each eval_gpu has one ---------------------------------------------


@pytest.fixture
def keep(toy, run):
    """Runs a script that writes an array and keeps it for later ones, which can `take` it."""

    def keep(script, handed_over=False):
        kept = temporary(script, handed_over)
        script.keep(kept)
        scale(script, X, kept)
        scale(script, kept, Y)
        run(script)

    yield keep
    toy.release()


def test_view_of_what_an_earlier_one_writes(script, toy, run, simulator):
    """The view is a temporary, so nothing waits for the writer."""
    scale(script, X, Y)
    after = new_script(toy)
    view = after.array([N], mx.float32)
    after.share(X, view)
    after.add_temporary(view)
    scale(after, view, Y)
    with mx.stream(mx.cpu):
        y = script([mx.ones(N)])
        with pytest.raises(RuntimeError) as raised:
            mx.eval(after(y))
    message = (
        "scale: buffer 0 is written in an earlier command buffer (by scale) for which it does not "
        "wait, as it was handed to add_temporary"
    )
    assert str(raised.value) == f"[hostmetal] {message}"
    simulator.wait()
    assert simulator.faults == [message]
    assert len(simulator.launches) == 1


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("reads", [False, True])
def test_memory_kept_between_two(keep, toy, run, simulator, before, after, reads):
    """The later one reads or overwrites it, and is ordered if neither calls it a temporary."""
    keep(new_script(toy), before)
    script = new_script(toy)
    kept = script.take()
    if after:
        script.add_temporary(kept)
    scale(script, *((kept, Y) if reads else (X, kept)))
    scale(script, X, Y)
    if before or after:
        ending = "add_temporary" if after else "add_temporary there"
        written = rf"scale: buffer {0 if reads else 1} is written in an earlier command buffer"
        with pytest.raises(RuntimeError, match=rf"{written} .* handed to {ending}$"):
            run(script)
    else:
        run(script)
        assert simulator.faults == []


@pytest.mark.parametrize("chained", [False, True])
def test_memory_read_by_an_earlier_one(keep, toy, run, simulator, chained):
    """What overwrites it waits for the reader only by what the reader has written."""
    keep(new_script(toy))
    reading, overwriting = new_script(toy), new_script(toy)
    scale(reading, reading.take(), Y)
    scale(overwriting, X, Y)
    scale(overwriting, X, overwriting.take())
    with mx.stream(mx.cpu):
        x = mx.ones(N)
        y = reading([x])
        if chained:
            mx.eval(overwriting(y))
            assert simulator.faults == []
        else:
            mx.async_eval(y)
            with pytest.raises(RuntimeError) as raised:
                mx.eval(overwriting([x]))
            assert str(raised.value) == (
                "[hostmetal] scale: buffer 1 is read in an earlier command buffer (by scale), and "
                "MLX only waits for those that write"
            )


@pytest.mark.parametrize("held", [None, "x", "view"])
def test_input_overwritten(toy, simulator, held):
    """Only if it was donated have its readers run."""
    script = incremented(toy)
    with mx.stream(mx.cpu):
        arrays = {"x": mx.ones(N)}
        arrays["view"] = arrays["x"][2:]
        mx.eval(arrays)
        y = script([arrays["x"]])
        for name in {"x", "view"} - {held}:
            del arrays[name]
        if held:
            with pytest.raises(RuntimeError) as raised:
                mx.eval(y)
            assert str(raised.value) == (
                "[hostmetal] increment: buffer 0 is written, the memory of input 0, which was not "
                "donated: earlier command buffers may still read it"
            )
        else:
            mx.eval(y)
            assert simulator.faults == []


def test_thread_limit_is_the_simulators(script, run, simulator):
    """A plugin that asks the pipeline sees a lower limit than its kernel declares."""
    simulator.max_threads = 4
    script.kernel("increment")
    script.check_threads((N, 1, 1))
    with pytest.raises(RuntimeError, match=f"Maximum threads .* is 4 but requested {N}"):
        run(script)
    assert simulator.faults == []


# --- What the simulator finds -------------------------------------------------------------------


def found(simulator):
    """Kind and buffer of the faults of all launches, each of which is reported."""
    faults = [fault for launch in simulator.launches for fault in launch.result.faults]
    assert simulator.faults == [str(fault) for fault in faults]
    return [(fault.kind, fault.buffer) for fault in faults]


def test_read_behind_the_array(script, run, simulator):
    scale(script, X, Y, at=(4, 0))
    run(script)
    assert found(simulator) == [("out-of-bounds device", "x")]


def test_output_that_is_not_filled(script, run, simulator):
    scale(script, X, Y, n=N - 1)
    run(script)
    assert found(simulator) == [("unwritten output", "y")]


def test_an_output_filled_by_two_launches(script, run, simulator):
    for start in (0, N // 2):
        scale(script, X, Y, at=(4 * start, 4 * start), n=N // 2)
    np.testing.assert_array_equal(run(script), 2 * np.arange(1, N + 1))
    assert simulator.faults == []


def test_temporary_read_before_it_was_written(script, run, simulator):
    scale(script, temporary(script), Y)
    run(script)
    assert found(simulator) == [("uninitialized device", "x")]


def test_slice_of_a_larger_array(script, run, simulator):
    """Only the slice can be read, although its allocation goes on."""
    with mx.stream(mx.cpu):
        large = mx.arange(4 * N, dtype=mx.float32)
        mx.eval(large)
        part = large[N : 2 * N]
        scale(script, X, Y)
        (y,) = script([part])
        np.testing.assert_array_equal(np.array(y), 2 * np.arange(N, 2 * N))
        assert simulator.faults == []
        script.set_input(X, 0, 4)
        script.dispatch_threads((N, 1, 1), (N, 1, 1))
        mx.eval(script([part]))
    assert found(simulator) == [("out-of-bounds device", "x")]
