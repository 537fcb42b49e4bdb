"""The check of a Metal specialization before its first use, with bad kernels planted."""

import signal
import subprocess
import textwrap

import pytest

from hostmetal.build import for_tests
from support import hangs

pytestmark = [
    pytest.mark.instrument,
    pytest.mark.build,
    pytest.mark.backends("cpu", "metal-sim"),  # the latter with a defect in the extension
]

# What each process begins with: the software device, and a way to plant a defect in the kernels.
PRELUDE = """
import pathlib
import warnings
import hostmetal
from hostmetal import simulator as module
simulator = hostmetal.start()
import mlx.core as mx
import mlx_norms
mx.set_default_device(mx.cpu)
x, r = (mx.random.normal((5, 96)) for _ in range(2))
w, b = (mx.random.normal((96,)) for _ in range(2))
mx.eval(x, r, w, b)
compiled = module._compile
LAID = dict(layout="BLHD", offset=0)

def norm_rope(x, weight, **options):
    return mlx_norms.norm_rope(x, weight, **LAID | options)

def qk_norm_rope(*arrays, **options):
    return mlx_norms.qk_norm_rope(*arrays, **LAID | options)

def plant(old, new):
    kernels = pathlib.Path(hostmetal.__file__).parents[2] / "kernels"
    sources = (path for path in kernels.rglob("*.*") if path.suffix in (".h", ".metal"))
    assert any(old in source.read_text() for source in sources), f"in no kernel: {old}"
    before = module._compile
    def planted(text, name, check):
        assert text.count(old) <= 1, text.count(old)
        return before(text.replace(old, new), name, check)
    module._compile = planted

def break_texts(library, kernel=""):
    def broken(text, name, check):
        of = name.startswith(f"mlx_norms_{library}_") and name.endswith(kernel)
        return compiled(text + "\\n#error planted" * of, name, check)
    module._compile = broken

def launched(kernel, f):
    simulator.clear()
    mx.eval(f())
    simulator.wait()
    return sum(launch.kernel.startswith(kernel) for launch in simulator.launches)

def close(a, b):
    return mx.max(mx.abs(a - b)).item() < 1e-4

def record(f):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = f()
    return result, [str(warning.message) for warning in caught]
"""
FAULT = "[METAL] Command buffer execution failed: Caused GPU Address Fault Error."
BAD_LAYER = 'plant("? (v - mean - correction)", "? 2.0f * (v - mean - correction)")\n'


@pytest.fixture(scope="module")
def run():
    build = for_tests("_ext")

    def run(script, status=0, **environment):
        done = build.python(
            "-c",
            PRELUDE + textwrap.dedent(script),
            variables={"MLX_NORMS_SELF_CHECK": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=hangs.SECONDS,
        )
        assert done.returncode == status, done.stdout
        return done.stdout

    return run


def test_a_good_kernel_is_used_and_checked_once(run):
    run("""
        def build():
            return mlx_norms.layer_norm(x, w, b)

        simulator.clear()
        y, said = record(build)
        simulator.wait()
        kept, donated = simulator.launches  # checked when it is first called
        assert donated.donated and not kept.donated
        assert not said
        assert launched("norm_4", lambda: [y, build(), mlx_norms.layer_norm(x + 1, w, b)]) == 3
        # Another dtype, length or flag is another specialization.
        for call in (
            lambda: mlx_norms.layer_norm(x.astype(mx.float16), w, b),
            lambda: mlx_norms.layer_norm(x, w.astype(mx.float16), b),
            lambda: mlx_norms.layer_norm(mx.contiguous(x[:, :95]), w[:95], b[:95]),
            lambda: mlx_norms.layer_norm(x, w, b, rounding="late"),
            lambda: mlx_norms.layer_norm(x, w),
        ):
            assert launched("norm_", call) == 3
    """)


def test_a_bad_kernel_is_not_used(run):
    run(
        BAD_LAYER
        + """\
def layer():
    return mlx_norms.layer_norm(x, w, b)

y, said = record(layer)
assert len(said) == 1, said
for part in ("LayerNorm", "float32", "rows of 96", "mlx_norms selftest", "off by"):
    assert part in said[0], said[0]
assert close(y, mx.fast.layer_norm(x, w, b, 1e-5))
# Once found, nothing is said again, and the kernel is not launched.
again, said = record(layer)
assert not said
assert launched("norm_", lambda: [again, layer()]) == 0
assert close(again, y)
# Others are used, and do not suffer.
good, said = record(lambda: mlx_norms.rms_norm(x, w))
assert not said
assert launched("norm_", lambda: good) == 1
"""
    )


def test_a_bad_product_is_not_used(run):
    run("""
        plant("fma(w_of[i][j], v[j], sum[r][i])", "fma(w_of[i][j], v[j] + 0.5f, sum[r][i])")
        a, c = mx.random.normal((9, 96)), mx.random.normal((9, 96))

        def products(rows):
            return [mlx_norms.matmul(a[:rows], c.T), mlx_norms.matmul(a[:rows], mx.contiguous(c.T))]

        few, said = record(lambda: products(2))
        assert len(said) == 1, said
        for part in ("gemv", "float32", "mlx_norms selftest", "off by"):
            assert part in said[0], said[0]
        assert all(close(product, a[:2] @ c.T) for product in few)
        assert launched("gemv", lambda: products(2)) == 0
        # The other kernel is used.
        more, said = record(lambda: products(9))
        assert not said
        assert launched("simdgroup_blocked", lambda: more) == 2
        assert all(close(product, a @ c.T) for product in more)
        # The one that is named is used.
        assert launched("gemv", lambda: mlx_norms.matmul(a[:2], c.T, kernel="gemv")) == 1
    """)


def test_a_batch_that_may_be_many_rows_needs_both_products(run):
    run("""
        plant("left[i], right[j]", "left[0], right[j]")
        warnings.simplefilter("ignore")
        a, c = mx.random.normal((9, 1, 96)), mx.random.normal((40, 96))
        row = mlx_norms.matmul(a[0], c.T)
        assert launched("gemv", lambda: row) == 1
        batch = mlx_norms.matmul(a, c.T)
        assert launched("", lambda: batch) == 0
        assert close(batch, a @ c.T)
    """)


def test_transforms_of_a_bad_kernel(run):
    run(
        BAD_LAYER
        + """\
warnings.simplefilter("ignore")

def f(x, w, b):
    return (mlx_norms.layer_norm(x, w, b) * r).sum()

def fast(x, w, b):
    return (mx.fast.layer_norm(x, w, b, 1e-5) * r).sum()

for got, expected in zip(mx.grad(f, (0, 1, 2))(x, w, b), mx.grad(fast, (0, 1, 2))(x, w, b)):
    assert close(got, expected)
assert close(mx.compile(mx.grad(f))(x, w, b), mx.grad(fast)(x, w, b))
assert close(
    mx.vmap(mlx_norms.layer_norm, (0, None, None))(x, w, b), mx.fast.layer_norm(x, w, b, 1e-5)
)
"""
    )


def test_a_bad_gradient_is_not_used(run):
    run("""
        plant("fma(-n, sums.mean_wgn", "fma(-2.0f * n, sums.mean_wgn")

        def f(x):
            return (mlx_norms.rms_norm(x, w) * r).sum()

        gradient, said = record(lambda: mx.grad(f)(x))
        assert len(said) == 1 and "NormVJP" in said[0], said
        fast = mx.grad(lambda x: (mx.fast.rms_norm(x, w, 1e-5) * r).sum())(x)
        assert close(gradient, fast)
        assert launched("norm_vjp", lambda: mx.grad(f)(x)) == 0
        assert launched("norm_4", lambda: f(x)) == 1
    """)


def test_a_kernel_that_gives_nan_is_not_used(run):
    run("""
        plant("precise::rsqrt(eps_bounds ? square : square + eps)", "precise::rsqrt(-square)")
        y, said = record(lambda: mlx_norms.rms_norm(x, w))
        assert len(said) == 1 and "off by nan" in said[0], said
        assert close(y, mx.fast.rms_norm(x, w, 1e-5))
    """)


def test_a_kernel_that_cannot_be_launched_is_not_used(run):
    run("""
        simulator.max_threads = 64
        y, said = record(lambda: mlx_norms.rms_norm(x, w))
        assert len(said) == 1 and "256 threads" in said[0] and "64 at most" in said[0], said
        assert close(y, mx.fast.rms_norm(x, w, 1e-5))
    """)


def test_the_variable_turns_it_off(run):
    run(
        BAD_LAYER
        + """\
y, said = record(lambda: mlx_norms.layer_norm(x, w, b))
assert not said and launched("norm_", lambda: y) == 1
assert not close(y, mx.fast.layer_norm(x, w, b, 1e-5))
""",
        MLX_NORMS_SELF_CHECK="0",
    )


def test_a_launch_that_is_too_large_is_refused(run):
    """Without the check, too: MLX only asserts it."""
    run(
        """
        simulator.max_threads = 64
        try:
            mx.eval(mlx_norms.rms_norm(x, w))
        except RuntimeError as error:
            assert "norm_4_1_512" in str(error) and "256" in str(error) and "64" in str(error)
        else:
            raise AssertionError("launched")
    """,
        MLX_NORMS_SELF_CHECK="0",
    )


def test_inside_a_compiled_function(run):
    run("""
        f = mx.compile(lambda x, w: mlx_norms.rms_norm(x, w) * 2)
        assert close(f(x, w), mx.fast.rms_norm(x, w, 1e-5) * 2)
        assert launched("norm_", lambda: f(x + 1, w)) == 1
    """)


def test_from_several_threads(run):
    run("""
        from concurrent.futures import ThreadPoolExecutor

        def call(i):
            mx.set_default_device(mx.cpu)
            with mx.stream(mx.new_stream(mx.cpu)):
                y = mlx_norms.rms_norm(x[:, : 32 + i % 4], w[: 32 + i % 4])
                expected = mx.fast.rms_norm(x[:, : 32 + i % 4], w[: 32 + i % 4], 1e-5)
                mx.eval(y, expected)
            return close(y, expected)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(call, range(32)))
        simulator.wait()
        assert not simulator.faults, simulator.faults
    """)


def test_values_of_one_call_condemn_no_kernel(run):
    """What is NaN or inf for any kernel says nothing about this one."""
    run("""
        def build():
            # Rows of one element: no spread, so that an eps of 0 divides by it.
            mlx_norms.layer_norm(x[:, :1], eps=0.0)
            mlx_norms.rms_norm(x.astype(mx.float16), w.astype(mx.float16), weight_offset=1e6)

        _, said = record(build)
        assert not said
        column = mx.contiguous(x[:, :1])
        assert launched("norm_", lambda: mlx_norms.layer_norm(column)) == 1
        y = lambda: mlx_norms.rms_norm(
            x.astype(mx.float16), w.astype(mx.float16), weight_offset=1.0
        )
        assert launched("norm_", y) == 1
    """)


def test_for_the_stream_of_another_thread(run):
    run("""
        import threading

        built, ready = {}, threading.Event()

        def work():
            stream = mx.new_stream(mx.cpu)
            built["stream"] = stream
            ready.set()
            done.wait()
            mx.eval(built["y"])

        done = threading.Event()
        thread = threading.Thread(target=work)
        thread.start()
        ready.wait()
        built["y"], said = record(lambda: mlx_norms.rms_norm(x, w, stream=built["stream"]))
        assert not said, said
        done.set()
        thread.join()
        assert close(built["y"], mx.fast.rms_norm(x, w, 1e-5))
        assert launched("norm_", lambda: mlx_norms.rms_norm(x, w)) == 1
    """)


def test_a_library_that_cannot_be_built(run):
    """It takes no other along, and is said once."""
    run("""
        break_texts("norm_vjp")
        loss = lambda norm: lambda x, w: (norm(x, w) * r).sum()
        calls = [
            mx.grad(loss(norm), argnums)
            for norm in (mlx_norms.rms_norm, mlx_norms.layer_norm)
            for argnums in (0, 1)
        ]
        gradients, said = record(lambda: [call(x, w) for call in calls])
        (text,) = said
        assert " of library norm_vjp cannot be built: text: " in text, text
        assert "#error planted" in text, text
        fast = lambda x, w: mx.fast.rms_norm(x, w, 1e-5)
        for got, argnums in zip(gradients, (0, 1)):
            assert close(got, mx.grad(loss(fast), argnums)(x, w))
        assert record(lambda: [call(x, w) for call in calls])[1] == []
        for call in (mlx_norms.rms_norm, mlx_norms.layer_norm):
            result, said = record(lambda: call(x, w))
            assert not said and launched("norm_4", lambda: result) == 1
        y, said = record(lambda: mlx_norms.rms_norm_linear(x, w, mx.ones((5, 96))))
        assert not said and launched("norm_linear", lambda: y) == 1
        simulator.clear()  # the device has noted what it refused
    """)


def test_native_bfloat(run):
    """Where it is asked for; on this device its conversions have the bits of the kernels'."""
    script = """
        texts = []
        def seen(text, name, check):
            texts.append(text)
            return compiled(text, name, check)
        module._compile = seen
        x, w = x.astype(mx.bfloat16), w.astype(mx.bfloat16)
        y, said = record(lambda: mlx_norms.rms_norm(x, w))
        assert not said and mx.array_equal(y, mx.fast.rms_norm(x, w, 1e-5))
        assert launched("norm_", lambda: mlx_norms.rms_norm(x + 1, w)) == 1
        define = "#define MLX_NORMS_NATIVE_BFLOAT\\n"
        assert {text.startswith(define) for text in texts} == {ASKED}
    """
    run(script.replace("ASKED", "False"))
    run(script.replace("ASKED", "True"), MLX_NORMS_NATIVE_BFLOAT="1")


FALTERS = (
    "Compiler encountered XPC_ERROR_CONNECTION_INTERRUPTED (is the OS shutting down?)",
    "Compiler encountered an internal error",
    "Compilation failed (code=2)",
)


@pytest.mark.parametrize("text", FALTERS)
def test_a_compiler_that_falters_is_asked_again(run, text):
    """Of a library and of a kernel, each as it is built."""
    run(f"""
        asked = []

        def falters(name):
            asked.append(name)
            return {text!r} if asked.count(name) == 1 else None

        simulator.falters = falters
        y, said = record(lambda: mlx_norms.rms_norm(x, w))
        assert not said, said
        assert asked[0].startswith("mlx_norms_norm_"), asked
        assert asked == 2 * asked[:1] + 2 * ["norm_4_1_512"], asked
        assert launched("norm_4", lambda: y) == 1
    """)


def test_a_compiler_that_goes_on_faltering(run):
    """Later uses try again, ever less often."""
    run(f"""
        asked, text = [], {FALTERS[0]!r}
        simulator.falters = lambda name: asked.append(name) or text
        tries, said = [], []
        for use in range(1, 17):
            before = len(asked)
            y, warned = record(lambda: mlx_norms.rms_norm(x, w))
            assert close(y, mx.fast.rms_norm(x, w, 1e-5))
            said += [(use, warning) for warning in warned]
            tries += [use] * (len(asked) > before)
        assert tries == [1, 2, 3, 4, 8, 16], tries
        ((use, warning),) = said
        assert use == 3 and "later uses will try again" in warning and text in warning, said
        simulator.falters = lambda name: None
        assert launched("norm_4", lambda: [mlx_norms.rms_norm(x, w) for _ in range(15)]) == 0
        y, said = record(lambda: mlx_norms.rms_norm(x, w))
        assert not said and launched("norm_4", lambda: y) == 1
    """)


@pytest.mark.parametrize("of", ["mlx_norms_norm_", "norm_4_1_512"])
def test_a_diagnostic_is_remembered(run, of):
    """What the compiler says of a line of a library, or of a kernel, it would say again."""
    run(f"""
        asked = []

        def falters(name):
            if name.startswith({of!r}):
                asked.append(name)
                return "program_source:7:1: error: planted"

        simulator.falters = falters
        for _ in range(5):
            y, _ = record(lambda: mlx_norms.rms_norm(x, w))
            assert close(y, mx.fast.rms_norm(x, w, 1e-5))
        assert len(asked) == 1, asked
    """)


def test_a_fault_ends_the_process_before_mlx_0_32(run):
    """MLX throws it where nobody catches: also a self-check's."""
    died = run(
        f"""
        simulator.mlx = "0.31.2"
        simulator.fails = lambda launch: {FAULT!r}
        mlx_norms.rms_norm(x, w)
        """,
        status=-signal.SIGABRT,
    )
    assert f"terminating due to uncaught exception: {FAULT}" in died


def test_a_kernel_that_cannot_be_built(run):
    """It takes no other of its library along."""
    run("""
        break_texts("norm", "norm_4_1_512")
        y, (text,) = record(lambda: mlx_norms.rms_norm(x, w))
        assert "Kernel norm_4_1_512 of library norm cannot be built: text: " in text, text
        assert close(y, mx.fast.rms_norm(x, w, 1e-5))
        wide, v = mx.random.normal((3, 4096)), mx.random.normal((4096,))
        z, said = record(lambda: mlx_norms.rms_norm(wide, v))
        assert not said and launched("norm_4_2_512", lambda: z) == 1
        simulator.clear()  # the device has noted what it refused
    """)


def test_selftest_goes_on_with_the_other_libraries(run):
    run("""
        import contextlib, io, re
        from mlx_norms.__main__ import main
        from mlx_norms.commands import selftest

        break_texts("norm_vjp")
        good = selftest.checks()
        selftest.Checked.sizes = (33, 256)
        selftest.checks = lambda: [
            *good[:2],
            ("forward", lambda: mx.eval(mlx_norms.rms_norm(x, w)) or []),
            ("matmul by gemv, float32", lambda: selftest.check_products("gemv", "float32")),
        ]
        selftest._PRODUCTS["gemv"] = ((2, 41, 104),)
        selftest.times = lambda: ()
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = main(["selftest", "-v"])
        said = out.getvalue()
        assert status == 1, said
        lines = said.splitlines()
        at_top = said.index("pass  ")
        assert said.rindex("#error planted") < at_top, said
        assert "library norm_vjp: is not usable" in lines, said
        assert any(line.startswith("library norm: text, ") for line in lines), said
        libraries = len(selftest._ext.built_libraries())
        assert sum(line.startswith("library ") for line in lines) == libraries, said
        assert said.count("library norm_vjp is not usable, as said above") == 2, said
        assert "pass  matmul by gemv, float32" in lines, said
        (gemv,) = [line for line in lines if line.startswith("gemv_lines_2: ")]
        assert re.search(r": [0-9]+ pipelines?, at most [0-9]+ threads, [0-9]+ B of", gemv), gemv
        assert any("norm_4_1_512: " in line for line in lines), said
        simulator.clear()  # the device has noted what it refused
    """)


def test_a_bad_kernel_of_norm_and_projection_is_not_used(run):
    run("""
        v, q = mx.random.normal((7, 96)), mx.quantize(mx.random.normal((5, 96)), 32, 4)
        plant("float v = variance;", "float v = center ? variance : 2.0f * variance;")
        y = mlx_norms.rms_norm(x, w) @ v.T

        def build():
            return mlx_norms.rms_norm_linear(x, w, v)

        got, said = record(build)
        assert len(said) == 1 and "NormLinear" in said[0] and "off by" in said[0], said
        assert close(got, y)
        assert launched("norm_linear", build) == 0
        mlx_norms._ext.set_product_rows(8)  # one launch, also with few bits
        layer = lambda: mlx_norms.layer_norm_linear(x, w, b, q)
        _, said = record(layer)
        assert not said
        assert launched("norm_linear", layer) == 1
    """)


def test_a_bad_kernel_of_quantized_products_is_not_used(run):
    run("""
        q, added = mx.quantize(mx.random.normal((7, 96)), 32, 4), mx.random.normal((5, 7))
        plant("scale.inverse_root(eps) : 1.0f;", "scale.inverse_root(eps) : 2.0f;")

        def build(**options):
            return mlx_norms.quantized_matmul(x, *q, group_size=32, **options)

        for options in ({}, {"residual": added}):
            got, said = record(lambda: build(**options))
            assert len(said) == 1 and "QuantizedMatmul" in said[0] and "off by" in said[0], said
            expected = mx.quantized_matmul(x, *q, group_size=32)
            assert close(got, expected + added if options else expected)
            assert launched("norm_linear", lambda: build(**options)) == 0
        _, said = record(lambda: mlx_norms.rms_norm_linear(x, w, [q]))
        assert not said
    """)


def test_a_good_kernel_of_quantized_products_is_used(run):
    run("""
        q, added = mx.quantize(mx.random.normal((7, 96)), 32, 4), mx.random.normal((5, 7))
        for options in ({}, {"residual": added}):
            build = lambda: mlx_norms.quantized_matmul(x, *q, group_size=32, **options)
            _, said = record(build)
            assert not said, said
            assert launched("norm_linear", build) == 1
    """)


def test_a_large_weight_is_checked_by_a_small_one(run):
    run("""
        heads = mx.random.normal((6000, 96)), mx.random.normal((5000, 96))
        mx.eval(heads)
        simulator.clear()
        for head in heads:
            mlx_norms.rms_norm_linear(x, w, head)
        simulator.wait()
        (checked,) = [l for l in simulator.launches if l.kernel.startswith("norm_linear")]
        assert checked.result.bytes["y1"] == (0, 4 * 2048 * 4)  # a block's rows
    """)


def test_numbers_of_rows_with_one_kernel_are_checked_once(run):
    """Of a norm and its projections: a product's block has 1, 2, 4 or 8 rows."""
    run("""
        q = mx.quantize(mx.random.normal((64, 96)), 32, 4)
        many = mx.random.normal((8, 96))
        mx.eval(q, many)
        checked = []
        for rows in range(1, 9):
            simulator.clear()
            y, said = record(lambda: mlx_norms.rms_norm_linear(many[:rows], w, [q], 1e-5))
            assert not said, said
            simulator.wait()
            if simulator.launches:
                checked.append(rows)
            n = mx.fast.rms_norm(many[:rows], w, 1e-5)
            assert close(y[0], mx.quantized_matmul(n, *q, group_size=32))
        assert checked == [1, 2, 3, 5], checked
    """)


def test_norms_are_checked_in_the_buffers_of_their_inputs(run):
    run("""
        def first_launches(kernel, f):
            simulator.clear()
            f()
            simulator.wait()
            launches = [l for l in simulator.launches if l.kernel.startswith(kernel)]
            return [launch.donated for launch in launches]

        for call in (
            lambda: mlx_norms.rms_norm(x, w),
            lambda: mlx_norms.layer_norm(x, w, b),
            lambda: mlx_norms.add_rms_norm(x, r, w),
            lambda: mlx_norms.add_layer_norm(x, r, w, b),
        ):
            found = first_launches("norm_4", call)
            assert found == [False, True], found
        for norm in (mlx_norms.rms_norm, mlx_norms.layer_norm):
            gradient = mx.grad(lambda x, w: norm(x, w).sum(), (0, 1))
            found = first_launches("norm_vjp", lambda: gradient(x, w))
            assert found == [False, True], found
    """)


def test_a_kernel_that_reads_what_it_wrote(run):
    """It is right but where its output is in its input's buffer."""
    run("""
        plant(
            "write<N>(out, of, y);",
            '''write<N>(out, of, y);
            HeldRow<N, V> other;
            float again[N], v[N];
            other.read_vector(in, k, of, again);
            held.get_vector(in, k, of, v);
            for (int j = 0; j < N; ++j) {
              y[j] += again[j] - v[j];
            }
            write<N>(out, of, y);''',
        )
        y, said = record(lambda: mlx_norms.layer_norm(x, w, b))
        assert len(said) == 1 and "off by" in said[0], said
        assert "(in the inputs' buffers)" in said[0], said
        assert close(y, mx.fast.layer_norm(x, w, b, 1e-5))
        assert launched("norm_", lambda: mlx_norms.layer_norm(x, w, b)) == 0
        simulator.clear()
    """)


def test_a_fault_is_a_bad_verdict(run):
    run(f"""
        fault = {FAULT!r}
        faults = []

        def fails(launch):
            if launch.pipeline.kernel.startswith("norm_4"):
                faults.append(launch.pipeline.kernel)
                return fault

        simulator.fails = fails
        y, said = record(lambda: mlx_norms.rms_norm(x, w))
        assert len(said) == 1 and fault in said[0] and "not used" in said[0], said
        assert close(y, mx.fast.rms_norm(x, w, 1e-5))
        again, said = record(lambda: mlx_norms.rms_norm(x, w))
        assert not said and close(again, y)
        assert len(faults) == 1, faults
    """)


def test_an_earlier_fault_is_its_callers(run):
    run(f"""
        fault = {FAULT!r}
        ready, streams = mlx_norms.rms_norm(x, w), []
        simulator.fails = lambda launch: streams.append(launch.stream)
        mx.eval(ready)
        simulator.failed[streams[0]] = fault
        y, said = record(lambda: mlx_norms.layer_norm(x, w, b))  # checked on another stream
        assert not said, said
        try:
            mx.eval(y)
        except RuntimeError as error:
            assert str(error) == fault, error
        else:
            raise AssertionError("the fault is lost")
        again = mlx_norms.layer_norm(x, w, b)
        assert launched("norm_4", lambda: again) == 1
        assert close(again, mx.fast.layer_norm(x, w, b, 1e-5))
    """)


def test_without_a_verdict(run):
    """Memory is no kernel's fault, twice in a row."""
    run(f"""
        memory = {FAULT!r}.replace("Caused GPU Address Fault Error", "Insufficient Memory")
        simulator.fails = lambda launch: memory
        for _ in range(2):
            y, said = record(lambda: mlx_norms.rms_norm(x, w))
            assert not said and close(y, mx.fast.rms_norm(x, w, 1e-5))
        simulator.fails = lambda launch: None
        y, said = record(lambda: mlx_norms.rms_norm(x, w))
        assert not said and launched("norm_4", lambda: y) == 1

        simulator.fails = lambda launch: memory
        said = [record(lambda: mlx_norms.layer_norm(x, w, b))[1] for _ in range(4)]
        assert said[:2] == [[], []] and said[3] == [], said
        assert "no verdict in 3 checks" in said[2][0] and memory in said[2][0], said
        simulator.fails = lambda launch: None
        y, said = record(lambda: mlx_norms.layer_norm(x, w, b))
        assert not said and launched("norm_4", lambda: y) == 0
        assert close(y, mx.fast.layer_norm(x, w, b, 1e-5))
    """)


GROUP_NORMS = """
    c = mx.random.normal((2, 300, 16))
    v = mx.random.uniform(shape=(16,)) + 0.5
    mx.eval(c, v)

    def pulled(norm):
        return [norm(c, v), *mx.vjp(norm, [c, v], [c])[1]]

    def calls():
        for torch in (False, True):
            yield lambda x, w: mlx_norms.group_norm(
                x, 4, w, v, pytorch_compatible=torch, activation="silu")
        yield lambda x, w: mlx_norms.instance_norm(x, w)
        yield lambda x, w: mlx_norms.batch_norm(x, w, None, mean=v, var=v)
"""


def test_group_norms(run):
    """A good kernel is used without a word, a bad one is not, forward or backward."""
    run(
        GROUP_NORMS
        + """
    for norm in calls():
        outputs, said = record(lambda: pulled(norm))
        assert not said, said
        assert launched(("group_", "held_groups"), lambda: outputs) >= 3
    """
    )
    for positions, bad, words in (
        (300, "v[j] = fma((v[j] - high[j]) * power, scale[j], offset[j]);", "GroupNorm "),
        (3000, "mean[j] = fma(before, share, mean[j]);", "GroupNorm "),
        (300, "v[k * N + j] = d * rstd[j];", "NormVJP "),
    ):
        run(
            GROUP_NORMS.replace("300", str(positions))
            + f"""
    norm = next(iter(calls()))
    plant({bad!r}, "")
    outputs, said = record(lambda: pulled(norm))
    assert len(said) == 1 and {words!r} in said[0], said
    n = mx.var(c.reshape(2, -1, 4), axis=1)
    y = (c.reshape(2, -1, 4) - mx.mean(c.reshape(2, -1, 4), axis=1, keepdims=True))
    y = (y * mx.rsqrt(n[:, None] + 1e-5)).reshape(c.shape) * v + v
    assert close(outputs[0], y * mx.sigmoid(y))
    """
        )


ROPES = """
heads, kv = (mx.random.normal((2, 5, n, 96)) for n in (4, 2))
v = mx.random.normal((2, 5, 2, 96))

def calls():
    for options in (
        dict(),
        dict(traditional=True),
        dict(dims=34, rope_first=True),
        dict(base=None, freqs=mx.arange(1.0, 49.0)),
        dict(weight_offset=1.0, output_layout="BLHD"),
    ):
        for dtype in (mx.float32, mx.bfloat16):
            q, k, w2 = (a.astype(dtype) for a in (heads, kv, w))
            yield lambda: norm_rope(q, w2, offset=3, **options)
            more = dict(v=v.astype(dtype), q_multiplier=0.5)
            yield lambda: qk_norm_rope(q, k, w2, w2, offset=mx.array([1, 2]), **more)
    yield lambda: mx.grad(lambda x: norm_rope(x, w).sum())(heads)
"""


def test_rotary_embeddings(run):
    """A good kernel is used without a word, a bad one is not: neither by far nor by little."""
    run(
        ROPES
        + """
for call in calls():
    y, said = record(call)
    assert not said, said
    mx.eval(y)  # cotangents are not dense, and so are checked now
    assert launched("norm_rope", call) == 1
"""
    )
    for planted in (
        'plant("first ? -sines[j] : sines[j]", "sines[j]")',
        'plant("odd = fma(odd, z, -0.16666663f)", "odd = fma(odd, z, -0.163f)")',
    ):
        run(
            ROPES
            + planted
            + """
y, said = record(lambda: norm_rope(heads, w, offset=3))
assert len(said) == 1 and "NormRope" in said[0], said
n = mx.fast.rms_norm(heads, w, 1e-5).transpose(0, 2, 1, 3)
assert close(y, mx.fast.rope(n, 96, traditional=False, base=1e4, scale=1.0, offset=3))
"""
        )


def test_what_metal_permits_its_fast_functions_condemns_no_kernel(run):
    """Nor would three times as much, of MLX's ropes or of our activations."""
    run(
        ROPES
        + """
long_heads, long_weight = mx.random.normal((1, 3, 2, 256)), mx.ones(256)

def more():
    yield from calls()
    for traditional in (False, True):
        options = dict(traditional=traditional, weight_offset=1.0)
        yield lambda: norm_rope(long_heads, long_weight, **options)
    for shape in ((2, 8, 96), (1, 64, 64, 96)):
        for dtype in (mx.float16, mx.bfloat16):
            images = mx.random.normal(shape).astype(dtype)
            yield lambda: mlx_norms.group_norm(images, 4, activation="silu")

for call in more():
    _, said = record(call)
    assert not said, said
""",
        METALSIM_FAST_ERROR="3",
    )


# Each op, as a function of arrays, and their shapes; what is read in place may have any layout.
LAYOUTS = """
packed = mx.quantize(mx.random.normal((64, 96)), 32, 4)
scale = mx.random.normal((96,))
loss = lambda f: lambda *args: mx.sin(f(*args)).sum()
first = lambda f: lambda *args: f(*args)[0]
rows, d = (5, 96), (96,)
OPS = {
    "rms_norm": (mlx_norms.rms_norm, rows, d),
    "layer_norm": (mlx_norms.layer_norm, rows, d, d),
    "rms_norm scale": (lambda x, w, s: mlx_norms.rms_norm(x, w, scale=s), rows, d, d),
    "rms_norm gate": (lambda x, g: mlx_norms.rms_norm(x, None, gate=g), rows, rows),
    "rms_norm axis": (lambda x, w: mlx_norms.rms_norm(x, w, axis=1), (2, 8, 96), (8,)),
    "add_rms_norm": (first(mlx_norms.add_rms_norm), rows, rows, d),
    "norm_add_norm": (first(mlx_norms.norm_add_norm), rows, rows, d, d),
    "norm_rope": (lambda x, w: norm_rope(x, w, dims=64, offset=3), (2, 3, 4, 96), d),
    "group_norm": (lambda x, w: mlx_norms.group_norm(x, 4, w), (2, 8, 96), d),
    "rms_norm_linear": (mlx_norms.rms_norm_linear, rows, d, (64, 96)),
    "quantized_matmul": (lambda x: mlx_norms.quantized_matmul(x, *packed, group_size=32), (2, 96)),
    "matmul": (lambda a, b: mlx_norms.matmul(a, b, kernel="gemv"), (2, 96), (96, 64)),
}
for name in ("rms_norm", "layer_norm", "norm_add_norm", "group_norm", "rms_norm axis"):
    f, *shapes = OPS[name]
    OPS[name + " gradient"] = (mx.grad(loss(f), 0), *shapes)
    OPS[name + " gradient of the weight"] = (mx.grad(loss(f), len(shapes) - 1), *shapes)

def as_it_is(a):
    return a

def strided(a):
    both = mx.contiguous(mx.stack([a, a], -1))
    mx.eval(both)
    return both[..., 0]

def unaligned(a):
    longer = mx.concatenate([mx.zeros(1), a.flatten()])
    mx.eval(longer)
    return longer[1:].reshape(a.shape)
"""


def test_a_kernel_that_is_refused_for_a_layout(run):
    """The self-check has seen dense, aligned arrays: what it has not seen is refused here."""
    run(
        textwrap.indent(LAYOUTS, "        ")
        + """
        seen, constant_values = set(), module.constant_values

        def key_of(pipeline):
            return pipeline.kernel, tuple((c.index, c.value) for c in pipeline.constants)

        def see(pipeline, declared):
            seen.add(key_of(pipeline))
            return constant_values(pipeline, declared)

        module.constant_values = see
        for name, (f, *shapes) in OPS.items():
            arrays = [mx.random.normal(shape) for shape in shapes]
            expected, said = record(lambda: mx.eval(y := f(*arrays)) or y)
            assert not said, (name, said)
            asked, warned, known = [], 0, set(seen)

            def refuse(pipeline, declared):
                key = key_of(pipeline)
                if key not in known and not pipeline.kernel.startswith("gather_rows"):
                    asked.append(pipeline.kernel)
                    said = f"{pipeline.kernel}: error: planted, {name}, {layout}"
                    raise module.Refused(said)
                return constant_values(pipeline, declared)

            module.constant_values = refuse
            for layout in (strided, unaligned, as_it_is):
                for again in (False, True):
                    asked.clear()
                    given = [layout(a) for a in arrays]
                    got, said = record(lambda: mx.eval(y := f(*given)) or y)
                    assert close(got, expected), (name, layout)
                    assert all("are copied instead" in text for text in said), said
                    assert bool(asked) == bool(said), (name, asked, said)
                    assert not (asked and (again or layout is as_it_is)), (name, layout, asked)
                    warned += len(said)
            # Both gradients may have a kernel in common, for which the compiler is asked once.
            assert warned > 0 or name.endswith("of the weight"), name
            module.constant_values = see
        simulator.clear()  # the device has noted what it refused
        """
    )


# Each op of the table, on arrays of these sizes.
UNCHECKED = """
import threading
from mlx_norms._table import OPS

launches, check_launch = [], module.check_launch

def see(launch, parameters, bound):
    constants = tuple((c.index, c.value) for c in launch.pipeline.constants)
    in_check = threading.current_thread() is not threading.main_thread()
    launches.append((in_check, (launch.pipeline.kernel, constants)))
    return check_launch(launch, parameters, bound)

module.check_launch = see

def arrays_of(op, sizes):
    sizes = {axis: -(-n // op.multiple.get(axis, 1)) * op.multiple.get(axis, 1)
             for axis, n in sizes.items()}
    for i, name in enumerate(op.inputs):
        a = mx.random.normal(op.shape(name, sizes), key=mx.random.key(i))
        yield mx.abs(a) + 0.5 if name == "var" else a

def functions(op, arrays):
    yield op.ours()
    yield mx.grad(
        lambda *args: sum(mx.sin(y).sum() for y in op.ours()(*args)), list(range(len(arrays)))
    )

checked = set()

def run(f, arrays):
    "The results, and the kernels that were launched before a check had."
    launches.clear()
    results, said = record(lambda: f(*arrays))
    mx.eval(results)
    assert not said, said
    checked.update(kernel for in_check, kernel in launches if in_check)
    return results, {kernel for in_check, kernel in launches if not in_check} - checked
"""
SIZES = (  # some numbers of rows, of heads, of positions and of samples
    dict(B=2, N=3, D=64, H=2, K=2, L=3, C=16, P=5, M=8),
    dict(B=1, N=1, D=33, H=1, K=1, L=1, C=10, P=1, M=8),
    dict(B=3, N=40, D=64, H=4, K=2, L=20, C=64, P=40, M=8),
    dict(B=40, N=1, D=36, H=40, K=3, L=1, C=12, P=70, M=8),
    dict(B=1, N=300, D=32, H=300, K=1, L=2, C=8, P=3, M=8),
)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_no_kernel_is_launched_unchecked(run, sizes):
    run(
        UNCHECKED
        + f"""
sizes = {sizes}
for name, op in OPS.items():
    if "batch_norm" in name and sizes["B"] == 1:
        continue  # it may need two values of a channel
    arrays = list(arrays_of(op, sizes))
    mx.eval(arrays)
    for f in functions(op, arrays):
        _, unchecked = run(f, arrays)
        assert not unchecked, (name, f, unchecked)
"""
    )


# Arrays whose memory is not dense, or not aligned.
IN_MEMORY = """
def steps(a):
    both = mx.contiguous(mx.stack([a, a], -1))
    mx.eval(both)
    return both[..., 0]

def unaligned(a):
    longer = mx.concatenate([mx.zeros(1), a.flatten()])
    mx.eval(longer)
    return longer[1:].reshape(a.shape)

def apart(a):
    both = mx.concatenate([a, a], -1)
    mx.eval(both)
    return both[..., : a.shape[-1]]

def swapped(a):
    if a.ndim < 3:
        return a
    other = mx.contiguous(a.swapaxes(-3, -2))
    mx.eval(other)
    return other.swapaxes(-3, -2)
"""


@pytest.mark.parametrize("layout", ["steps", "unaligned", "apart", "swapped"])
def test_no_layout_is_read_unchecked(run, layout):
    """Nor is it copied, but for channels that do not adjoin."""
    run(
        UNCHECKED
        + IN_MEMORY
        + f"""
for name, op in OPS.items():
    if name.startswith("matmul"):
        continue  # its check has no layouts but dense and transposed ones
    arrays = list(arrays_of(op, {SIZES[0]}))
    given = [{layout}(a) for a in arrays]
    mx.eval(arrays, given)
    for f in functions(op, arrays):
        dense, _ = run(f, arrays)
        results, unchecked = run(f, given)
        assert not unchecked, (name, f, unchecked)
        for got, expected in zip(results, dense, strict=True):
            assert mx.allclose(got, expected, rtol=1e-4, atol=1e-4), (name, f)
        copied = [kernel for _, (kernel, _) in launches if kernel.startswith("gather")]
        assert not copied or "axis" in name, (name, f)
"""
    )


def test_a_wrong_kernel_for_a_layout_is_not_used(run):
    """It is found as that layout is first met, and the operands are copied from then on."""
    run(
        IN_MEMORY
        + """
plant("long(outer) * layout[kStride1]", "long(outer) * layout[kStride0]")
a = mx.random.normal((3, 4, 96))
expected = mx.fast.rms_norm(a, w, 1e-5)
for given, warnings_of in ((a, 0), (swapped(a), 1), (swapped(a), 0), (a, 0)):
    y, said = record(lambda: mlx_norms.rms_norm(given, w))
    assert not said, said
    _, said = record(lambda: mx.eval(y))
    assert close(y, expected) and len(said) == warnings_of, said
    for text in said:
        assert "off by" in text and "unaligned operands are copied" in text, text
assert launched("gather_rows", lambda: mlx_norms.rms_norm(swapped(a), w)) == 1
"""
    )


def test_a_wrong_copy_is_not_used(run):
    """Then there is nothing in place of the kernel that is refused."""
    run(
        IN_MEMORY
        + """
plant("long(outer) * layout[kStride1]", "long(outer) * layout[kStride0]")
plant("in[long(i) * layout[kStep]]", "in[0]")
warnings.simplefilter("ignore")
y = mlx_norms.rms_norm(swapped(mx.random.normal((3, 4, 96))), w)
try:
    mx.eval(y)
except RuntimeError as error:
    assert "copies operands failed its check" in str(error), error
    assert "call its own function, or mlx_norms.unpatch()" in str(error), error
else:
    raise AssertionError("copied")
"""
    )


def test_what_is_refused_in_a_graph_says_what_to_do(run):
    """Nothing can take its place there."""
    refused = """
        def falters(name):
            return "program_source:7:1: error: planted" if name == REFUSED else None

        simulator.falters = falters
        f = mx.compile(mlx_norms.rms_norm, shapeless=True)
        mx.eval(f(x, w))  # by another kernel than that for longer rows
        try:
            mx.eval(f(*(mx.random.normal(shape) for shape in ((5, 4096), (4096,)))))
        except RuntimeError as error:
            said = str(error)
            assert f"Kernel {REFUSED} cannot be built" in said, said
            assert SAYS in said, said
        else:
            raise AssertionError("launched")
    """.replace("REFUSED", "'norm_4_2_512'")
    run(refused.replace("SAYS", "'mlx_norms.unpatch()'"))
    run(refused.replace("SAYS", "'Unset MLX_NORMS_SELF_CHECK'"), MLX_NORMS_SELF_CHECK="0")


def test_a_graph_of_other_shapes(run):
    """Than it was traced for: its kernels are checked as it is evaluated."""
    run("""
        f = mx.compile(mlx_norms.rms_norm, shapeless=True)
        wide = [mx.random.normal(shape) for shape in ((5, 256), (256,))]
        assert launched("norm_4", lambda: f(x, w)) == 3
        assert launched("norm_4", lambda: f(*wide)) == 3
        assert close(f(*wide), mx.fast.rms_norm(*wide, 1e-5))
        assert launched("norm_4", lambda: f(*wide)) == 1
    """)
