"""The command ``selftest``.

The output is plain text to paste into a report. Results are compared with float64 on the CPU: a
norm may be off by a few roundings of its arithmetic, a gradient by a few of its largest element's.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator

import mlx.core as mx

import mlx_norms

from .. import _ext
from .._measure import machine, timing
from .._table import EPS, exact
from .._table.exact import ROUNDOFF
from . import _bfloat, _json, _progress, check_environment, info
from ._checked import HEADS, IMAGES, ROWS, Checked

SUMMARY = "Check every kernel on this machine and time it against mx.fast."

NORMS = (*ROWS, *IMAGES, *HEADS)

_DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
_HALF_ULP = {name: ROUNDOFF[dtype] for name, dtype in _DTYPES.items()}
_SUBNORMAL = {name: exact.LEAST[dtype] for name, dtype in _DTYPES.items()}
# Rows, columns and depth of matmuls: for gemv each number of rows, for the other kernel whole tiles
# and edges of both sizes.
_PRODUCTS = {
    "gemv": ((1, 40, 1100), (2, 41, 104), (3, 64, 96), (4, 64, 520), (5, 40, 64), (6, 33, 7)),
    "simdgroup_blocked": ((32, 32, 64), (64, 128, 32), (70, 67, 35), (9, 200, 129)),
}
_PRODUCTS["gemv"] += ((7, 100, 2000), (8, 136, 256), (300, 2, 130), (136, 8, 64))
# Rows, row length, outputs of each projection, and whether two projections are a gated pair.
_PROJECTIONS = (
    (1, 4096, (64,), False),
    (1, 256, (40, 8, 9), False),
    (2, 2048, (33, 33), True),
    (4, 512, (5, 64), False),
    (8, 8192, (20,), False),
)
# Rows, row length and outputs of a quantized product.
_QUANTIZED = ((1, 4096, 40), (3, 192, 33), (8, 2112, 17), (13, 256, 64), (16, 1024, 20))
_STORED = {"float": 0, "4 bits": 4, "8 bits": 8}  # how the projections' weights are stored
_LEFT_OUT = (
    "left out: matmul, quantized_matmul, rms_norm_linear and layer_norm_linear, which have kernels "
    "of their own on GPUs only; on this CPU they are MLX's matmuls, after a norm that is checked "
    "above."
)
_MOST_PROCESSES = 16  # each uses some hundred MB of a GPU
_SAMPLE_SECONDS = 0.005
_TIMED = ((1, 4096), (512, 4096), (4096, 1024))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of the command."""
    parser.add_argument("-v", "--verbose", action="store_true", help="print what passed, too")
    _json.add_option(parser)


def run(args: argparse.Namespace) -> int:
    # Otherwise a kernel that fails its check would be replaced, and MLX's ops tested instead.
    os.environ["MLX_NORMS_SELF_CHECK"] = "0"
    # MLX's own matmuls, which some projections use, would be TF32 on CUDA otherwise.
    os.environ["MLX_ENABLE_TF32"] = "0"
    check_environment()
    started = time.perf_counter()
    libraries = _ext.built_libraries()
    found = checks()
    facts, left_out = _facts(), _LEFT_OUT if mx.default_device() == mx.cpu else None
    results, measured = [], []
    with _progress.Progress(len(found) + 1) as progress:
        for label, value in facts:
            progress.print(f"{label}: {value}")
        for library in libraries:
            progress.print(info.library_line(library))
        if note := _note_on_faults(mx.__version__):
            progress.print(note)
        progress.print()
        outcomes = _outcomes([check for _, check in found])
        for label, _ in found:
            progress.begin(label)
            problems = next(outcomes)
            results.append({"kernel": label, "problems": problems})
            if problems or args.verbose:
                progress.print(f"{'FAIL' if problems else 'pass'}  {label}")
            for problem in problems:
                progress.print(f"      {problem}")
        if left_out:
            progress.print(left_out)
        conversion = _bfloat.verdict()
        progress.print(conversion)
        progress.print()
        compiled = pipelines()
        for kernel, of in compiled.items():
            progress.print(pipelines_line(kernel, of))
        if compiled:
            progress.print()
        progress.begin("times")
        progress.print("time of mx.fast over ours, medians of interleaved rounds on this machine:")
        for rows, length, name, ratios in times():
            said = ", ".join(f"{op} {ratio.text(2)}" for op, ratio in ratios.items())
            by_op = {op.replace("+", "_"): ratio for op, ratio in ratios.items()}
            measured.append({"rows": rows, "length": length, "dtype": name} | by_op)
            progress.print(f"  {rows} x {length}, {name}: {said}")
    failures = sum(bool(result["problems"]) for result in results)
    seconds = time.perf_counter() - started
    print(f"\n{failures} of {len(found)} checks failed, {seconds:.0f} s")
    args.figures |= {
        "verdict": {"passed": not failures, "failed": failures, "checked": len(found)},
        "facts": info.by_key(facts),
        "libraries": libraries,
        "checks": results,
        "pipelines": compiled,
        "left_out": left_out,
        "bfloat16_conversion": conversion,
        "fast_over_ours": measured,
        "seconds": seconds,
    }
    return 1 if failures else 0


def _note_on_faults(mlx: str) -> str | None:
    """What a fault of the GPU does with this release of MLX, if it cannot be reported."""
    if not mx.metal.is_available() or tuple(map(int, mlx.split(".")[:2])) >= (0, 32):
        return None
    return (
        f"with MLX {mlx} a GPU fault ends this process: the check after the last one printed has "
        "caused it. Later releases report it."
    )


def pipelines() -> dict[str, list[dict]]:
    """The pipelines that Metal's compiler built so far, by kernel: one per set of constants."""
    kernels = sorted((name for name, *_ in _ext.built_kernels()), key=len, reverse=True)
    found: dict[str, list[dict]] = {}
    for name, threads, memory, *_ in _ext.built_pipelines():
        kernel = next(kernel for kernel in kernels if name.startswith(kernel))
        of = {"name": name, "max_threads": threads, "threadgroup_memory": memory}
        found.setdefault(kernel, []).append(of)
    return found


def pipelines_line(kernel: str, of: list[dict]) -> str:
    """The limits of a kernel's pipelines, smallest to largest."""
    limits = []
    for key, unit in (
        ("max_threads", "threads"),
        ("threadgroup_memory", "B of threadgroup memory"),
    ):
        values = sorted({pipeline[key] for pipeline in of})
        span = str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"
        limits.append(f"{span} {unit}")
    return f"{kernel}: {len(of)} pipeline{'s' * (len(of) > 1)}, at most {', '.join(limits)}"


class _Unusable(Exception):
    """The call needs a library that the compiler refused, which is reported once, at the top."""


def _said(error: Exception) -> str:
    """An exception in one line.

    Raises:
        _Unusable: If the exception reports a library that cannot be used.
    """
    text = f"{type(error).__name__}: {error}"
    for library in _ext.built_libraries():
        if not library["usable"] and f"of library {library['name']} cannot be built" in text:
            raise _Unusable(f"library {library['name']} is not usable, as said above") from error
    return text


def _outcomes(checks: list[Callable[[], list[str]]]) -> Iterator[list[str]]:
    """What is wrong with each of ``checks``, in order."""
    if mx.default_device() == mx.gpu and mx.cuda.is_available():
        # Nearly all of the time is spent in the compiler, for which each specialization waits.
        return _by_processes(checks, min(os.cpu_count() or 1, _MOST_PROCESSES))
    return map(_outcome, checks)


def _outcome(check: Callable[[], list[str]]) -> list[str]:
    try:
        return check()
    except _Unusable as unusable:
        return [str(unusable)]


def _by_processes(checks: list[Callable[[], list[str]]], workers: int) -> Iterator[list[str]]:
    spawn = multiprocessing.get_context("spawn")  # a forked child would share the driver's state
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=spawn)
    try:
        futures = [pool.submit(check) for check in checks]
        for i, future in enumerate(futures):
            try:
                yield future.result()
            except concurrent.futures.BrokenExecutor as error:
                if workers == 1:
                    yield [str(error)]
                else:  # rerun one by one, to find the check that ends its process
                    for check in checks[i:]:
                        yield from _by_processes([check], 1)
                    return
    finally:
        pool.shutdown(cancel_futures=True)


def checks() -> list[tuple[str, Callable[[], list[str]]]]:
    """Each kernel at each dtype, with a function that returns what is wrong with it."""
    found = [
        (f"{op.label}, {name}", functools.partial(_check_sizes, op, name))
        for op, name in itertools.product(NORMS, _DTYPES)
    ]
    if mx.default_device() == mx.cpu:
        return found  # _LEFT_OUT says why
    found += [
        (f"matmul by {kernel}, {name}", functools.partial(check_products, kernel, name))
        for kernel, name in itertools.product(_PRODUCTS, _DTYPES)
    ]
    found += [
        (f"quantized_matmul, {bits} bits, {name}", functools.partial(check_quantized, bits, name))
        for bits, name in itertools.product((4, 8), _DTYPES)
    ]
    linear = itertools.product(("rms_norm_linear", "layer_norm_linear"), _STORED.items(), _DTYPES)
    return found + [
        (f"{op}, weights of {stored}, {name}", functools.partial(check_projections, op, bits, name))
        for op, (stored, bits), name in linear
        if not (bits and op == "layer_norm_linear" and mx.metal.is_available())  # two steps there
    ]


def _check_sizes(op: Checked, name: str) -> list[str]:
    return [problem for size in op.sizes for problem in check(op, name, size)]


def check(op: Checked, name: str, size: int | tuple[int, ...]) -> list[str]:
    """What is wrong with an op and its gradients at one dtype and row length or image's size."""
    dtype = _DTYPES[name]
    arrays = op.arrays(dtype, size)
    relative = 16 * 2.0**-24 + 2 * _HALF_ULP[name]
    try:
        outputs = op.ours(size)(*arrays)
        keys = mx.random.split(mx.random.key(50), len(outputs))
        cotangents = [
            mx.random.normal(o.shape, key=key).astype(o.dtype) for o, key in zip(outputs, keys)
        ]
        _, gradients = mx.vjp(op.ours(size), arrays, cotangents)
        mx.eval(outputs, cotangents, gradients)
    except Exception as error:  # whatever the GPU's driver raises is reported
        return [f"{op.where(size)}: {_said(error)}"]
    problems = []
    with mx.stream(mx.cpu):  # a GPU has no float64
        for i, (got, truth) in enumerate(zip(outputs, op.exact(size)(*arrays), strict=True)):
            problem = _compare(got, truth.value, truth.allowed(got.dtype))
            problems += [f"output {i} {problem}"] if problem else []
        of_float64 = [[exact_of(a) for a in given] for given in (arrays, cotangents)]
        truths = mx.vjp(op.values(size), *of_float64)[1]
        for argument, got, truth in zip(op.op.inputs, gradients, truths, strict=True):
            rounding = relative + (2 * _HALF_ULP["float16"] if got.dtype == mx.float16 else 0)
            problem = _compare(got, truth, 4 * rounding * mx.max(mx.abs(truth)))
            problems += [f"gradient of {argument} {problem}"] if problem else []
    return [f"{op.where(size)}: {problem}" for problem in problems]


def check_products(kernel: str, name: str) -> list[str]:
    """What is wrong with a kernel's matmuls, for matrices stored by rows and by columns."""
    dtype = _DTYPES[name]
    problems = []
    for (m, n, k), transposed in itertools.product(_PRODUCTS[kernel], (False, True)):
        shapes = ((k, m), (n, k)) if transposed else ((m, k), (k, n))
        keys = mx.random.split(mx.random.key(m + n + k))
        a, b = (mx.random.normal(s, key=key).astype(dtype) for s, key in zip(shapes, keys))
        if transposed:
            a, b = a.T, b.T
        where = f"{m}x{n}x{k}{', transposed' * transposed}"
        try:
            c = mlx_norms.matmul(a, b, kernel=kernel)
            mx.eval(a, b, c)
        except Exception as error:  # as in check
            problems.append(f"{where}: {_said(error)}")
            continue
        with mx.stream(mx.cpu):  # a GPU has no float64
            truth = exact_of(a) @ exact_of(b)
            sizes = mx.abs(exact_of(a)) @ mx.abs(exact_of(b))
            allowed = (k + 2) * 2.0**-24 * sizes + _HALF_ULP[name] * mx.abs(truth)
            if problem := _compare(c, truth, allowed + _SUBNORMAL[name]):
                problems.append(f"{where}: {problem}")
    return problems


def check_quantized(bits: int, name: str) -> list[str]:
    """What is wrong with quantized products of few rows, plus a residual."""
    problems = []
    for rows, length, width in _QUANTIZED:
        keys = iter(mx.random.split(mx.random.key(length + rows), 3))
        x, w, residual = (
            mx.random.normal(shape, key=next(keys)).astype(_DTYPES[name])
            for shape in ((rows, length), (width, length), (rows, width))
        )
        packed, *of_groups = mx.quantize(w / length**0.5, 64, bits)
        where = f"{rows}x{length} to {width}"
        try:
            y = mlx_norms.quantized_matmul(x, packed, *of_groups, bits=bits, residual=residual)
            mx.eval(x, residual, packed, of_groups, y)
        except Exception as error:  # as in check
            problems.append(f"{where}: {_said(error)}")
            continue
        with mx.stream(mx.cpu):  # a GPU has no float64
            wide = (a.astype(mx.float32) for a in of_groups)
            w = exact_of(mx.dequantize(packed, *wide, 64, bits))
            product = exact_of(x) @ w.T
            sizes = mx.abs(exact_of(x)) @ mx.abs(w).T
            truth = product + exact_of(residual)
            # The product is rounded, and then the sum.
            rounded = mx.abs(product) + mx.abs(truth)
            if rows > 4:  # this may be MLX's kernel, which rounds weights, and first without bias
                biases = mx.repeat(exact_of(of_groups[1]), 64, axis=1)
                rounded += mx.abs(exact_of(x)) @ (2 * mx.abs(w) + mx.abs(biases)).T
            bound = 32 * 2.0**-24 * sizes + _HALF_ULP[name] * rounded + _SUBNORMAL[name]
            if problem := _compare(y, truth, bound):
                problems.append(f"{where}: {problem}")
    return problems


def check_projections(op: str, bits: int, name: str) -> list[str]:
    """What is wrong with a norm and its projections, with weights of ``bits`` bits (0: floats)."""
    problems = []
    center = op == "layer_norm_linear"
    for rows, length, widths, gated in _PROJECTIONS:
        keys = iter(mx.random.split(mx.random.key(length + rows), 4 + 2 * len(widths)))

        def draw(*shape, keys=keys):
            return mx.random.normal(shape, key=next(keys)).astype(_DTYPES[name])

        x, residual = draw(rows, length), draw(rows, length)
        norm = [1 + draw(length) / 8, draw(length)][: 1 + center]
        weights = [draw(width, length) / length**0.5 for width in widths]
        biases = [draw(width) for width in widths]
        stored = [mx.quantize(w, 64, bits) for w in weights] if bits else weights
        where = f"{rows}x{length} to {', '.join(map(str, widths))}{', gated' * gated}"
        try:
            outputs, total = getattr(mlx_norms, op)(
                x, *norm, stored, EPS, biases=biases, residual=residual, gated=gated
            )
            outputs = [outputs] if gated else outputs
            mx.eval(x, residual, norm, stored, biases, outputs, total)
        except Exception as error:  # as in check
            problems.append(f"{where}: {_said(error)}")
            continue
        with mx.stream(mx.cpu):  # a GPU has no float64
            if bits:
                weights = [
                    mx.dequantize(w, *(a.astype(mx.float32) for a in of), 64, bits)
                    for w, *of in stored
                ]
            exact = _exact_projections(center, x + residual, norm, weights, biases, name)
            if gated:
                exact = [_exact_gate(*exact, name)]
            for got, (truth, allowed) in zip(outputs, exact, strict=True):
                if problem := _compare(got, truth, allowed + _SUBNORMAL[name]):
                    problems.append(f"{where}: {problem}")
            if not mx.array_equal(total, x + residual).item():
                problems.append(f"{where}: the sum is another")
    return problems


def _exact_projections(center, x, norm, weights, biases, name):
    """Each projection in float64, and its error bound."""
    of = exact.layer if center else exact.rms
    normed = of(*map(exact.given, (x, *norm)), eps=EPS)
    found = []
    for weight, bias in zip(weights, biases, strict=True):
        truth, sizes = (
            of @ part(exact_of(weight)).T + part(exact_of(bias))
            for of, part in ((normed.value, lambda a: a), (normed.size, mx.abs))
        )
        # In two steps, the normalized row is rounded, and then the result of the matmul.
        slack = (16 * 2.0**-24 + 2 * _HALF_ULP[name]) * sizes
        found.append((truth, slack + _HALF_ULP[name] * mx.abs(truth)))
    return found


def _exact_gate(gate, up, name):
    (a, a_slack), (b, b_slack) = gate, up
    silu = a * exact.sigmoid(a)
    # The derivative of silu is at most 1.1 in magnitude.
    slack = 1.1 * a_slack * (mx.abs(b) + b_slack) + mx.abs(silu) * b_slack
    return silu * b, slack + 8 * _HALF_ULP[name] * mx.abs(a * b)


def times() -> Iterator[tuple[int, int, str, dict[str, timing.Ratio]]]:
    """Rows, row length, dtype and, by op, the ratio of mx.fast's time to ours."""
    for (rows, length), name in itertools.product(_TIMED, _DTYPES):
        shapes = ((rows, length), (rows, length), (length,), (length,))
        arrays = [mx.random.normal(shape).astype(_DTYPES[name]) for shape in shapes]
        mx.eval(arrays)
        ratios = {}
        for op, sides in _SIDES.items():
            calls = {side: functools.partial(call, *arrays) for side, call in sides.items()}
            samples = timing.measure(calls, sample_seconds=_SAMPLE_SECONDS)
            ratios[op] = samples["mx.fast"].over(samples["ours"])
        yield rows, length, name, ratios


def _fast_add_rms(x, residual, weight, bias):
    total = x + residual
    return mx.fast.rms_norm(total, weight, EPS), total


# What is timed, functions of a row, a residual, a weight and a bias.
_SIDES = {
    "rms": {
        "ours": lambda x, r, w, b: mlx_norms.rms_norm(x, w, EPS),
        "mx.fast": lambda x, r, w, b: mx.fast.rms_norm(x, w, EPS),
    },
    "layer": {
        "ours": lambda x, r, w, b: mlx_norms.layer_norm(x, w, b, EPS),
        "mx.fast": lambda x, r, w, b: mx.fast.layer_norm(x, w, b, EPS),
    },
    "add+rms": {
        "ours": lambda x, r, w, b: mlx_norms.add_rms_norm(x, r, w, EPS),
        "mx.fast": _fast_add_rms,
    },
}


def _facts() -> info.Facts:
    return [("chip", machine.chip()), *info.facts()]


def exact_of(a: mx.array) -> mx.array:
    return a.astype(mx.float64)


def _compare(got: mx.array, truth: mx.array, allowed: mx.array) -> str | None:
    error = mx.abs(exact_of(got) - truth)
    worst = mx.max(error / mx.maximum(allowed, 1e-30)).item()
    if worst <= 1:  # NaN is not
        return None
    return f"is off by {worst:.3g} times what is allowed"
