"""Times two builds of this package against each other, turn by turn, on one machine.

    python bench/builds.py OLD NEW [--device cpu|gpu] [--calls]

OLD and NEW are folders that hold an installed ``mlx_norms`` each (pip install --target). Each build
has a process, and they take turns at samples of calls. There are several pairs of processes, since
where memory lies is one process's luck. The ratio is old over new, round by round: below 0.98 in
the median, the new build is slower, and the exit status is 1. On the CPU the calls of a sample are
evaluated together. On a GPU they are evaluated one by one, since kernels that run at once hide each
other, and the time is that in which kernels run, by CUPTI, which needs torch; with --calls they are
evaluated together there, too, and the time is the host's, of one row and of a llama's next token.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time

from mlx_norms._bench import kernel_times
from mlx_norms.ladders import LAYER_NORM, SGEMM

SHAPES = {
    "cpu": ((1, 4096), (64, 127), (512, 4096), (8192, 768), (2, 100003)),
    "gpu": ((1, 4096), (512, 128), (8192, 768), (4096, 4097), (4096, 16384), (8, 65536)),
}
NORMS = ("rms", "layer", "add_rms", "add_layer")
DTYPES = ("float32", "float16", "bfloat16")
LADDERS = {"layer": (512, 4096), "sgemm": (512, 512, 512)}
PRODUCTS = {
    "gemv": ((1, 4096, 4096), (8, 4096, 4096)),  # also by tiles, on matrix units
    "gemv_columns": ((1, 4096, 4096), (8, 4096, 4096)),
    "simdgroup_blocked": ((1024, 1024, 1024),),
}
DECODE = (1, 512, 16)  # rows, length, layers: of a llama that waits for the host
PROJECTED = ((1, 4096, 4096, 0), (4, 4096, 4096, 0), (1, 4096, 14336, 4), (8, 1024, 4096, 8))
SAMPLE_SECONDS = 0.02
SAMPLE_BYTES = 4 << 30  # of outputs that are alive together
MOST_CALLS = 4096  # of a sample
MOST_TRACED_CALLS = 64  # CUPTI keeps a record of each kernel
SLOWER = 0.98


def cells(device: str, calls: bool) -> list[list]:
    norms = [
        [name, backward, dtype, *shape]
        for name in NORMS
        for backward in (False, True)
        for dtype in DTYPES
        for shape in SHAPES[device]
    ]
    if device == "cpu":
        return norms
    if calls:
        return [cell for cell in norms if cell[3] == 1] + [["decode", False, "bfloat16", *DECODE]]
    linear = [
        [f"{name}_linear", False, dtype, *shape]
        for name in ("rms", "layer")
        for dtype in DTYPES
        for shape in PROJECTED
    ]
    products = [
        [name, False, dtype, *shape]
        for name, shapes in PRODUCTS.items()
        for dtype in DTYPES
        for shape in shapes
    ]
    gathered = [["gathered_rms", False, dtype, 4096, 512] for dtype in DTYPES]
    pairs = [["qk", False, dtype, 4096, 128] for dtype in DTYPES]
    rungs = [
        [f"{ladder}_{rung.name}", False, str(dtype).removeprefix("mlx.core."), *LADDERS[ladder]]
        for ladder, rungs in (("layer", LAYER_NORM[:-1]), ("sgemm", SGEMM))
        for rung in rungs
        for dtype in rung.dtypes
    ]
    return norms + linear + products + gathered + pairs + rungs


def worker(device: str, calls: bool) -> None:
    """Measures what the lines of the standard input ask for: a cell and how many calls, or the name
    of a sample of it; an empty one ends it."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    import mlx_norms

    mx.set_default_device(getattr(mx, device))

    def normal(*shape, dtype):
        return mx.random.normal(shape).astype(getattr(mx, dtype))

    def decode(dtype, rows, length, layers):
        from mlx_lm.models import llama

        heads = length // 128
        model = llama.Model(llama.ModelArgs("llama", length, layers, 4 * length, heads, 1e-5, 1000))
        model.set_dtype(getattr(mx, dtype))
        token = mx.zeros((rows, 1), mx.int32)
        mx.eval(model.parameters(), token)
        mlx_norms.patch()
        return lambda: model(token)

    def call_of(name, backward, dtype, rows, length, outputs=None, bits=None):
        if name == "decode":
            return decode(dtype, rows, length, outputs)
        ladder, _, rung = name.partition("_")
        if name in PRODUCTS or ladder == "sgemm":
            m, n, k = rows, length, outputs
            a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)
            if name == "gemv":
                b = normal(n, k, dtype=dtype).T
            mx.eval(a, b)
            if ladder == "sgemm":
                return lambda: mlx_norms.ladders.sgemm(a, b, rung=rung)
            return lambda: mlx_norms.matmul(a, b, kernel=name.removesuffix("_columns"))
        if name == "gathered_rms":  # of more axes than a layout holds
            x = normal(2, 4, 2, 4, rows // 64, 2 * length, dtype=dtype)
            x, w = x.transpose(4, 1, 3, 0, 2, 5)[..., ::2], normal(length, dtype=dtype)
            mx.eval(x, w)
            return lambda: mlx_norms.rms_norm(x, w)
        x, r = normal(rows, length, dtype=dtype), normal(rows, length, dtype=dtype)
        w, b = normal(length, dtype=dtype), normal(length, dtype=dtype)
        layer = "layer" in name
        parameters = [w, b] if layer else [w]
        if name.endswith("_linear"):
            weight = normal(outputs, length, dtype=dtype)
            weight = mx.quantize(weight, 64, bits) if bits else weight
            mx.eval(x, parameters, weight)
            op = mlx_norms.layer_norm_linear if layer else mlx_norms.rms_norm_linear
            return lambda: op(x, *parameters, [weight], 1e-5)
        if ladder == "layer" and rung:
            mx.eval(x, parameters)
            return lambda: mlx_norms.ladders.layer_norm(x, *parameters, rung=rung)
        if name == "qk":
            mx.eval(x, r, w)
            return lambda: mlx_norms.qk_norm(x, r, w, w, 1e-5)
        op = getattr(mlx_norms, f"{name}_norm")
        arrays = [x, r, *parameters] if name.startswith("add") else [x, *parameters]
        mx.eval(arrays)
        if not backward:
            return lambda: op(*arrays, 1e-5)
        f = lambda *arrays: op(*arrays, 1e-5)  # noqa: E731
        cotangents = [mx.ones_like(x)] * (1 + name.startswith("add"))
        mx.eval(cotangents)
        return lambda: mx.vjp(f, arrays, cotangents)[1]

    def calls_in_memory(call):
        outputs = [a for _, a in tree_flatten(call())]
        most = MOST_CALLS if calls else MOST_TRACED_CALLS
        return min(most, max(1, SAMPLE_BYTES // sum(a.nbytes for a in outputs)))

    def seconds(call, count):
        started = time.perf_counter()
        if trace:
            for _ in range(count):
                mx.eval(call())
        else:
            mx.eval([call() for _ in range(count)])
        mx.synchronize()
        return time.perf_counter() - started

    trace = None if calls else kernel_times.Trace()
    call, count, name, counts = None, 1, "", {}
    with trace or contextlib.nullcontext():
        for line in sys.stdin:
            if line.startswith("["):
                cell, count = json.loads(line)
                call = call_of(*cell)
                seconds(call, 1)
                most = calls_in_memory(call)
                if not count:
                    count = 1
                    while (took := seconds(call, count)) < SAMPLE_SECONDS and count < most:
                        wanted = round(count * SAMPLE_SECONDS / max(took, 1e-6))
                        count = min(most, max(2 * count, wanted))
                seconds(call, count)
                print(count, flush=True)
            elif name := line.strip():
                counts[name] = count
                with trace.range(name) if trace else contextlib.nullcontext():
                    took = seconds(call, count)
                print(took / count, flush=True)
            else:
                break
    activity = trace.activity if trace else {}
    print(json.dumps({name: of.seconds / counts[name] for name, of in activity.items()}))


class Build:
    def __init__(self, path: str, device: str, calls: bool) -> None:
        command = [sys.executable, __file__, "--worker", "--device", device]
        command += ["--calls"] * calls
        path = os.pathsep.join([path, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path}
        for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
            environment[name] = "4000000000"  # pages are kept, not made anew for each output
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, line: str) -> float:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> dict[str, float]:
        """The seconds of each sample's kernels, by its name; none on the CPU."""
        return json.loads(self._process.communicate("\n")[0])


def samples(found: list[list], args: argparse.Namespace) -> list[list[tuple[float, float]]]:
    """Seconds of old and new in each round, for each cell, by processes of their own."""
    builds = [Build(path, args.device, args.calls) for path in (args.old, args.new)]
    taken = {}  # by build, cell and round
    for i, cell in enumerate(found):
        count = 0  # of the first build, and then as many of the other
        for build in builds:
            count = round(build.ask(json.dumps([cell, count])))
        for turn in range(args.rounds):
            for build in builds if turn % 2 == 0 else builds[::-1]:
                taken[build, i, turn] = build.ask(f"{i}/{turn}")
    for build in builds:
        for name, seconds in build.end().items():
            i, turn = map(int, name.split("/"))
            taken[build, i, turn] = seconds
    return [
        [tuple(taken[build, i, turn] for build in builds) for turn in range(args.rounds)]
        for i in range(len(found))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", nargs="?", metavar="OLD")
    parser.add_argument("new", nargs="?", metavar="NEW")
    parser.add_argument("--device", choices=SHAPES, default="cpu")
    parser.add_argument("--calls", action="store_true", help="time the host's part on a GPU")
    parser.add_argument("--starts", type=int, default=5, help="pairs of processes")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each build a start")
    parser.add_argument("--only", metavar="TEXT", help="cells that have this")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.calls |= args.device == "cpu"
    if args.worker:
        worker(args.device, args.calls)
        return 0
    found = cells(args.device, args.calls)
    found = [cell for cell in found if (args.only or "") in " ".join(map(str, cell))]
    ratios, times = [[] for _ in found], [[] for _ in found]
    for _ in range(args.starts):
        for i, taken in enumerate(samples(found, args)):
            ratios[i] += [old / new for old, new in taken]
            times[i] += [new for _, new in taken]
    slower = 0
    for i, (name, backward, dtype, *shape) in enumerate(found):
        lower, median, upper = statistics.quantiles(ratios[i], n=4, method="inclusive")
        slower += median < SLOWER
        print(
            f"{name}{' backward' * backward} {dtype} {'x'.join(map(str, shape))}: "
            f"{statistics.median(times[i]) * 1e6:.2f} us, old over new {median:.3f} "
            f"({lower:.3f} to {upper:.3f}){'  SLOWER' if median < SLOWER else ''}"
        )
    print(f"{slower} of {len(found)} cells are slower by more than 2 per cent")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
