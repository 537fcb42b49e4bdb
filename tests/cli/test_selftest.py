"""``python -m mlx_norms selftest``, whose output a stranger is to paste into a report."""

import functools
import io
import json
import os
import re
import subprocess
import sys
import threading

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from metalsim import Library
from mlx_norms import _built
from mlx_norms.__main__ import main
from mlx_norms._measure import timing
from mlx_norms.commands import _bfloat, _progress, selftest
from support.variant import ROOT


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("op", selftest.NORMS, ids=lambda op: op.label)
def test_good_kernels_pass(op):
    for name in selftest._DTYPES:
        for size in (33, 768) if op in selftest.ROWS else op.sizes[:2]:
            assert selftest.check(op, name, size) == []


@pytest.mark.gpu
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", selftest._DTYPES)
@pytest.mark.parametrize("kernel", selftest._PRODUCTS)
def test_good_products_pass(kernel, name, monkeypatch):
    assert selftest.check_products(kernel, name) == []
    good = mlx_norms.matmul
    monkeypatch.setattr(mlx_norms, "matmul", lambda a, b, kernel: 1.1 * good(a, b, kernel=kernel))
    problems = selftest.check_products(kernel, name)
    assert len(problems) == 2 * len(selftest._PRODUCTS[kernel])


@pytest.mark.gpu
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", selftest._DTYPES)
@pytest.mark.parametrize("stored", selftest._STORED)
@pytest.mark.parametrize("op", ["rms_norm_linear", "layer_norm_linear"])
def test_good_projections_pass(op, stored, name, monkeypatch):
    bits = selftest._STORED[stored]
    assert selftest.check_projections(op, bits, name) == []
    good = getattr(mlx_norms, op)

    def wrong(*arrays, residual, **options):
        outputs, total = good(*arrays, residual=2 * residual, **options)
        return outputs, total

    monkeypatch.setattr(mlx_norms, op, wrong)
    problems = selftest.check_projections(op, bits, name)
    assert sum("the sum is another" in problem for problem in problems) == 5
    assert len(problems) > 5


@pytest.mark.gpu
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", selftest._DTYPES)
@pytest.mark.parametrize("bits", [4, 8])
def test_good_quantized_products_pass(bits, name, monkeypatch):
    assert selftest.check_quantized(bits, name) == []
    good = mlx_norms.quantized_matmul
    wrong = lambda *a, residual, **options: good(*a, residual=2 * residual, **options)  # noqa: E731
    monkeypatch.setattr(mlx_norms, "quantized_matmul", wrong)
    assert len(selftest.check_quantized(bits, name)) == len(selftest._QUANTIZED)


class TestBadKernels:
    def problems(self, name="float32"):
        op = next(op for op in selftest.ROWS if op.name == "layer_norm")
        return selftest.check(op, name, 128)

    @pytest.mark.parametrize("name", selftest._DTYPES)
    def test_wrong_values(self, monkeypatch, name):
        good = mlx_norms.layer_norm
        monkeypatch.setattr(mlx_norms, "layer_norm", lambda eps, **a: good(eps=eps + 0.1, **a))
        problems = self.problems(name)
        assert any("output 0 is off by" in problem for problem in problems), problems
        assert any("gradient of x is off by" in problem for problem in problems), problems

    def test_nan(self, monkeypatch):
        wrong = lambda x, weight, bias, eps: x + weight + bias + mx.nan  # noqa: E731
        monkeypatch.setattr(mlx_norms, "layer_norm", wrong)
        assert any("output 0 is off by nan" in problem for problem in self.problems())

    def test_a_gradient_alone(self, monkeypatch):
        good = mlx_norms.layer_norm

        @mx.custom_function
        def wrong(x, w, b):
            return good(x, w, b)

        @wrong.vjp
        def wrong_vjp(primals, cotangent, output):
            gradients = mx.vjp(good, list(primals), [cotangent])[1]
            return tuple(1.001 * gradient for gradient in gradients)

        of_arrays = lambda x, weight, bias, eps: wrong(x, weight, bias)  # noqa: E731
        monkeypatch.setattr(mlx_norms, "layer_norm", of_arrays)
        problems = self.problems()
        assert len(problems) == 3 and all("gradient of" in problem for problem in problems)

    def test_a_launch_that_throws(self, monkeypatch):
        def throw(**named):
            raise RuntimeError("no such kernel")

        monkeypatch.setattr(mlx_norms, "layer_norm", throw)
        assert self.problems() == ["rows of 128: RuntimeError: no such kernel"]


class TestBadGroupNorms:
    @pytest.mark.parametrize("op", selftest.IMAGES, ids=lambda op: op.label)
    def test_other_eps(self, monkeypatch, op):
        name = op.name.split()[0]
        good = getattr(mlx_norms, name)
        wrong = lambda x, eps, **options: good(x, eps=eps + 0.1, **options)  # noqa: E731
        monkeypatch.setattr(mlx_norms, name, wrong)
        for name in selftest._DTYPES:
            problems = selftest.check(op, name, op.sizes[0])
            assert any("output 0 is off by" in problem for problem in problems), problems
            assert any("gradient of x is off by" in problem for problem in problems), problems

    def test_other_order(self, monkeypatch):
        good, op = mlx_norms.group_norm, selftest.IMAGES[0]
        other = lambda pytorch_compatible, **options: good(pytorch_compatible=True, **options)  # noqa: E731
        monkeypatch.setattr(mlx_norms, "group_norm", other)
        assert (
            "images of 2x5x7x12: output 0 is off by"
            in selftest.check(op, "float32", op.sizes[0])[0]
        )

    def test_biased_variance_is_kept(self, monkeypatch):
        good, op = mlx_norms.batch_norm, selftest.IMAGES[-1]

        def wrong(x, var, **options):
            y, mean, new = good(x=x, var=var, **options)
            count = x.size // x.shape[-1]
            return y, mean, 0.9 * var + (new - 0.9 * var) * (count - 1) / count

        monkeypatch.setattr(mlx_norms, "batch_norm", wrong)
        assert "output 2 is off by" in selftest.check(op, "float32", op.sizes[0])[0]


def run(script=""):
    script += (
        "; import sys; from mlx_norms import __main__ as m; sys.exit(m.main(['selftest', '-v']))"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_no_float64_where_a_gpu_would_be_asked(monkeypatch):
    """On a Mac the default device has none."""
    inside = []

    class Inside:
        def __enter__(self):
            inside.append(True)

        def __exit__(self, *_):
            inside.pop()

    seen = []

    def guarded(function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            if result.dtype == mx.float64:
                seen.append(function)
                assert inside, function
            return result

        return call

    monkeypatch.setattr(mx, "stream", lambda device: Inside())
    for name in ("mean", "rsqrt", "abs", "max", "maximum", "sum"):
        monkeypatch.setattr(mx, name, guarded(getattr(mx, name)))
    op = selftest.ROWS[1]
    assert selftest.check(op, "float32", 128) == []
    assert len(seen) > 5


class Stream(io.StringIO):
    """A terminal or none, that says when something has been written to it."""

    def __init__(self, is_terminal=False):
        super().__init__()
        self.is_terminal, self.written = is_terminal, threading.Event()

    def isatty(self):
        return self.is_terminal

    def write(self, text):
        super().write(text)
        self.written.set()


class TestProgress:
    def said(self, stream, capsys):
        """While a step takes its time, and after what it printed."""
        with _progress.Progress(7, stream, every=1e-3) as progress:
            progress.begin("first")
            progress.begin("second")
            stream.written.clear()
            assert stream.written.wait(600)
            progress.print("a result")
        assert capsys.readouterr().out == "a result\n"
        return stream.getvalue()

    def test_in_a_file(self, capsys):
        lines = self.said(Stream(), capsys).splitlines()
        assert re.fullmatch(r"2 of 7, \d+ s: second", lines[-1])
        assert not any("\x1b" in line or "\r" in line for line in lines)

    def test_on_a_terminal(self, capsys):
        said = self.said(Stream(is_terminal=True), capsys)
        assert re.search(r"\r\x1b\[2K2 of 7, \d+ s: second", said)
        assert "\n" not in said and said.endswith("\r\x1b[2K")

    def test_nowhere(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "stderr", None)
        with _progress.Progress(1) as progress:
            progress.print("a result")
        assert capsys.readouterr().out == "a result\n"

    def test_results_are_printed_at_once(self):
        """Also to a file or a pipe, while others are still to come."""
        script = (
            "from mlx_norms.commands import selftest; from mlx_norms.__main__ import main;"
            "selftest.checks = lambda: [('first', list), ('second', input)];"
            "main(['selftest', '-v'])"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
        with process:
            try:
                assert "pass  first\n" in iter(process.stdout.readline, "")
            finally:
                process.kill()


@pytest.mark.parametrize("device", [mx.cpu, mx.gpu])
def test_what_is_left_out(device, monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: device)
    labels = [label for label, _ in selftest.checks()]
    others = [label for label in labels if "matmul" in label or "_linear" in label]
    assert len(labels) - len(others) == 3 * len(selftest.NORMS)
    assert len(others) == (0 if device == mx.cpu else 6 + 6 + 18)


def test_json(monkeypatch, capsys):
    """Checks, their problems and times; what is said meanwhile is on the other stream."""
    monkeypatch.setattr(selftest, "_outcomes", lambda checks: iter([[], ["It is off."]]))
    monkeypatch.setattr(selftest, "checks", lambda: [("one", None), ("two", None)])
    ratio = timing.Ratio((2.0, 3.0, 4.0), 2.5)
    monkeypatch.setattr(selftest, "times", lambda: iter([(1, 8, "float32", {"add+rms": ratio})]))
    assert main(["selftest", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == {"passed": False, "failed": 1, "checked": 2}
    assert found["checks"] == [
        {"kernel": "one", "problems": []},
        {"kernel": "two", "problems": ["It is off."]},
    ]
    (measured,) = found["fast_over_ours"]
    assert measured["rows"] == 1 and measured["add_rms"]["median"] == 3
    assert found["bfloat16_conversion"].startswith("bfloat16 conversion: ")
    assert found["facts"]["mlx_norms"] == mlx_norms.__version__


@pytest.mark.slow
def test_output():
    result = run("import mlx_norms")
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.fullmatch(r"(\d+ of \d+, \d+ s: .*\n)*", result.stderr)
    assert (selftest._LEFT_OUT in result.stdout) == (mx.default_device() == mx.cpu)
    (conversion,) = re.findall(r"^bfloat16 conversion: (.*)$", result.stdout, re.M)
    assert conversion.startswith("not run") != mx.metal.is_available()
    lines = result.stdout.splitlines()
    for label in ("chip: ", "mlx_norms: ", "mlx: ", "platform: "):
        assert any(line.startswith(label) and len(line) > len(label) for line in lines), label
    assert sum(line.startswith("pass  ") for line in lines) == len(selftest.NORMS) * 3
    assert "time of mx.fast over ours" in result.stdout
    assert re.fullmatch(r"0 of \d+ checks failed, [\d.]+ s", lines[-1])


def test_output_with_a_bad_kernel():
    result = run(
        "import mlx_norms; good = mlx_norms.rms_norm;"
        "mlx_norms.rms_norm = lambda **k: good(**k) * 1.02;"
        "from mlx_norms.commands import selftest; selftest.Checked.sizes = (33, 256);"
        "type(selftest.IMAGES[0]).sizes = ((2, 5, 7, 12),);"
        "selftest.times = lambda: ()"
    )
    assert result.returncode == 1
    for dtype in ("float32", "float16", "bfloat16"):
        assert f"FAIL  rms_norm, {dtype}" in result.stdout
    assert "      rows of 33: output 0 is off by" in result.stdout
    assert "pass  layer_norm, float32" in result.stdout
    assert re.search(r"\n30 of \d+ checks failed", result.stdout)


def test_what_failed_is_printed_alone(monkeypatch, capsys):
    monkeypatch.setattr(selftest, "_outcomes", lambda checks: iter([[], ["It is off."]]))
    monkeypatch.setattr(selftest, "checks", lambda: [("one", None), ("two", None)])
    monkeypatch.setattr(selftest, "times", lambda: ())
    assert main(["selftest"]) == 1
    said = capsys.readouterr().out
    assert "FAIL  two\n      It is off.\n" in said and "one" not in said.splitlines()
    assert "pass  " not in said and "\n1 of 2 checks failed" in said


def test_note_on_faults(monkeypatch):
    """Of releases of MLX that end the process, where there is a GPU of Metal's."""
    for metal in (False, True):
        monkeypatch.setattr(mx.metal, "is_available", lambda metal=metal: metal)
        said = [bool(selftest._note_on_faults(mlx)) for mlx in ("0.31.2", "0.32.0", "0.32.4")]
        assert said == [metal, False, False]
    assert "MLX 0.31.2 a GPU fault ends this process" in selftest._note_on_faults("0.31.2")


class TestBfloat:
    """Whether native conversions of bfloat16 are ours, with conversions that are made up."""

    @pytest.fixture
    def converted(self):
        """The floats, and what both conversions make of them in the simulator."""
        text = (
            "#include <metal_stdlib>\nusing namespace metal;\ntypedef ushort uint16_t;\n"
            f"{_bfloat.header()}\n[[kernel]] void custom(\n"
            "  const device uint* floats [[buffer(0)]], device uint* ours [[buffer(1)]],\n"
            "  device uint* native [[buffer(2)]],\n"
            "  uint3 thread_position_in_grid [[thread_position_in_grid]]) {"
            f"{_bfloat.SOURCE}}}\n"
        )
        floats = np.array(_bfloat.patterns())
        ours, native = (np.zeros((floats.size, 2), np.uint32) for _ in range(2))
        arrays = {"floats": floats, "ours": ours, "native": native}
        out = ["ours", "native"]
        library = Library.from_source(text, name="mlx_norms_bfloat")
        result = library.launch("custom", arrays, grid=floats.size, group=256, out=out)
        assert not result.faults
        return [mx.array(a) for a in (floats, ours, native)]

    def verdict(self, monkeypatch, convert):
        monkeypatch.setattr(mx.metal, "is_available", lambda: True)
        monkeypatch.setattr(_bfloat, "convert", convert)
        return _bfloat.verdict()

    @pytest.mark.instrument
    def test_the_kernel_in_the_simulator(self, converted, monkeypatch):
        floats, ours, native = converted
        right = mx.view(mx.view(floats, mx.float32).astype(mx.bfloat16), mx.uint16)
        finite = mx.abs(mx.view(floats, mx.float32)) <= mx.inf
        assert mx.all((ours[:, 0] == right) | ~finite) and mx.all(ours[:, 1] == floats >> 16 << 16)
        said = self.verdict(monkeypatch, lambda _: (ours, native))
        assert said == "bfloat16 conversion: native bits equal ours (393216 patterns)"
        assert mx.any(ours != native)  # of NaN

    def test_other_bits(self, monkeypatch):
        """Native ones that round up what ours cut, and that take subnormals for zeros."""

        def convert(floats):
            high = floats >> 16
            ours = mx.stack([high, high << 16], axis=1)
            rounds_up = (floats & 0xFFFF) > 0x8000
            subnormal = (floats & 0x7F800000) == 0
            widened = mx.where(subnormal, high << 16 & 0x80000000, high << 16)
            return ours, mx.stack([mx.where(rounds_up, high + 1, high), widened], axis=1)

        cut = 2 * (65536 - 252)  # two low halves; 252 of the high ones are NaN both ways
        zeros = 6 * 2 * 127
        assert self.verdict(monkeypatch, convert) == (
            f"bfloat16 conversion: native bits differ from ours, rounded in {cut} and widened in"
            f" {zeros} of 393216 patterns; first 0x8001 rounded: 0x1 instead of 0x0"
        )

    def test_nan_is_no_number(self, monkeypatch):
        def convert(floats):
            ours = mx.stack([floats >> 16, floats >> 16 << 16], axis=1)
            number = mx.where(ours[:, :1] == 0x7FC0, mx.array([0x7F80, 0x7F800000]), ours)
            return ours, number.astype(mx.uint32)

        said = self.verdict(monkeypatch, convert)
        assert "rounded in 6 and widened in 6 of" in said and "first 0x7fc00000 rounded" in said

    def test_a_compiler_without_it(self, monkeypatch):
        def convert(floats):
            raise RuntimeError("unknown type name 'bfloat'")

        assert self.verdict(monkeypatch, convert) == (
            "bfloat16 conversion: not run: RuntimeError: unknown type name 'bfloat'"
        )

    @pytest.mark.applies(not mx.metal.is_available())
    def test_without_metal(self):
        assert _bfloat.verdict() == "bfloat16 conversion: not run, as there is no Metal device"

    def test_the_text_is_the_kernels(self):
        assert _built.FLOAT_TYPES == (ROOT / "kernels/common/float_types.h").read_text()


class Dies:
    def __call__(self):
        os._exit(3)


def test_process_that_dies():
    """Its check fails, and no other."""
    good = functools.partial(selftest.check, selftest.ROWS[0], "float32", 33)
    assert not any(list(selftest._by_processes([good, good], 2)))
    first, died, last = selftest._by_processes([good, Dies(), good], 2)
    assert first == last == [] and died
