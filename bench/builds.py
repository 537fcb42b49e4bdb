"""Times two builds of this package against each other, turn by turn, on one machine.

    python bench builds OLD NEW [--device cpu|gpu] [--calls]

OLD and NEW are folders, each with an installed ``mlx_norms`` (pip install --target). Each build has
its own process, and they take turns at samples of calls. There are several pairs of processes,
since memory placement differs from process to process. The ratio is old over new, round by round:
if the median is below 0.98, the new build is slower, and the exit status is 1.

On the CPU the calls of a sample are evaluated together. On a GPU they are evaluated one by one,
since concurrent kernels hide each other, and the time is that of kernels, by CUPTI, which needs
torch. With --calls they are evaluated together on a GPU, too, and the time is the host's, for one
row and for a llama's next token. With --lengths they are norms of rows of many lengths. With --pass
it is the host's time of the pass before evaluation, as in pass_overhead.py.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import mlx.core as mx

import mlx_norms

# The benchmark code is this checkout's, whichever build it measures.
mlx_norms.__path__.insert(0, str(Path(__file__).parents[1] / "mlx_norms"))

from harness import builds, graph_pass, images, ladder, llama  # noqa: E402
from harness.configs import DTYPES, HEAD_OPS, LENGTHS, OPS, Config  # noqa: E402
from harness.providers import Calls  # noqa: E402
from harness.script import CommandLine  # noqa: E402
from mlx_norms._measure.timing import Timed  # noqa: E402
from mlx_norms.ladders import LAYER_NORM  # noqa: E402

SHAPES = {
    "cpu": ((1, 4096), (64, 127), (512, 4096), (8192, 768), (2, 100003)),
    "gpu": ((1, 4096), (512, 128), (8192, 768), (4096, 4097), (4096, 16384), (8, 65536)),
}
NORMS = ("rms", "layer", "add_rms", "add_layer")
OTHERS = [op for op in OPS if op not in NORMS]
PRODUCTS = {
    "gemv": ((1, 4096, 4096), (8, 4096, 4096)),  # also by tiles, with matrix units
    "gemv_columns": ((1, 4096, 4096), (8, 4096, 4096)),
    "simdgroup_blocked": ((1024, 1024, 1024),),
}
IMAGES = ((4, 128, 128, 320), (32, 8, 8, 2560), (1, 64, 64, 320))
DECODED = llama.Shapes(16, 512, 2048, 4, 4, 1000)  # so small that decoding waits for the host
PROJECTED = ((1, 4096, 4096, 0), (4, 4096, 4096, 0), (1, 4096, 14336, 4), (8, 1024, 4096, 8))
SLOWER = 0.98

Make = Callable[[], Calls | Timed]


def of_config(config: Config | images.ImageConfig | ladder.Product, function: Callable) -> Calls:
    cotangents = [config.cotangents()] if config.backward else None
    return Calls(function, [config.inputs()], cotangents)


def product(name: str, dtype: str, m: int, n: int, k: int) -> Calls:
    a, b = (mx.random.normal(shape).astype(DTYPES[dtype]) for shape in ((m, k), (n, k)))
    b = b.T if name == "gemv" else mx.contiguous(b.T)
    kernel = name.removesuffix("_columns")
    return Calls(lambda a, b: mlx_norms.matmul(a, b, kernel=kernel), [[a, b]])


def projection(op: str, dtype: str, rows: int, length: int, outputs: int, bits: int) -> Calls:
    x, *parameters = Config(op, dtype, rows, length).inputs()
    weight = mx.random.normal((outputs, length)).astype(DTYPES[dtype])
    weight = mx.quantize(weight, 64, bits) if bits else weight
    function = getattr(mlx_norms, f"{op}_norm_linear")
    return Calls(lambda *arrays: function(*arrays, [weight], 1e-5), [[x, *parameters]])


def gathered(dtype: str, rows: int, length: int) -> Calls:
    """Calls on rows with more axes than a layout can describe."""
    x = mx.random.normal((2, 4, 2, 4, rows // 64, 2 * length)).astype(DTYPES[dtype])
    w = mx.ones(length, DTYPES[dtype])
    return Calls(OPS["rms"].ours, [[x.transpose(4, 1, 3, 0, 2, 5)[..., ::2], w]])


def decode() -> Calls:
    model, _ = llama.build(DECODED, None)
    mlx_norms.patch()
    return Calls(model, [[mx.zeros((1, 1), mx.int32)]])


def of_norm(config: Config) -> tuple[str, Make]:
    shape = f"{config.dtype} {config.rows}x{config.length}"
    name = f"{config.op}{' backward' * config.backward} {shape}"
    return name, partial(of_config, config, OPS[config.op].ours)


def of_images(dtype: str) -> Iterator[tuple[str, Make]]:
    for op, backward, sizes in itertools.product(images.OPS, (False, True), IMAGES):
        config = images.ImageConfig(op, dtype, sizes, backward=backward)
        ours, _ = config.functions()
        yield f"{config.name} {dtype} {config.shape}", partial(of_config, config, ours)


def lengths() -> Iterator[tuple[str, Make]]:
    """Norms of 64 Mi elements; of queries and keys, whose heads are short, a quarter."""
    for op, backward, dtype in itertools.product(
        ("rms", "layer", "head", "qk"), (False, True), ("bfloat16", "float32")
    ):
        of_heads = op in HEAD_OPS
        for length in LENGTHS:
            rows = (1 << 24 if of_heads else 1 << 26) // length // 64 * 64
            if not of_heads or length <= 256:
                yield of_norm(Config(op, dtype, rows, length, backward))


def passes() -> Iterator[tuple[str, Make]]:
    for name, case in graph_pass.CASES.items():
        yield f"pass {name}", partial(graph_pass.Pass, *case)


def configs(device: str, calls: bool) -> Iterator[tuple[str, Make]]:
    """The names of what is timed, each with a function that makes its calls."""
    shapes = [shape for shape in SHAPES[device] if device == "cpu" or not calls or shape[0] == 1]
    grid = [(op, shape) for op in NORMS for shape in shapes]
    if device == "cpu":
        grid += [(op, (32768, 128) if op in HEAD_OPS else (512, 4096)) for op in OTHERS]
    grid = itertools.product(grid, (False, True), DTYPES)
    norms = [Config(op, dtype, *shape, backward) for (op, shape), backward, dtype in grid]
    traced = device == "gpu" and not calls
    norms += [Config("qk", dtype, 4096, 128) for dtype in DTYPES if traced]
    yield from map(of_norm, norms)
    if device == "gpu" and calls:
        yield "decode bfloat16", decode
    if not traced:
        return
    for dtype in DTYPES:
        for name, m, n, k in ((name, *shape) for name in PRODUCTS for shape in PRODUCTS[name]):
            yield f"{name} {dtype} {m}x{n}x{k}", partial(product, name, dtype, m, n, k)
        for op, shape in itertools.product(("rms", "layer"), PROJECTED):
            name = f"{op}_linear {dtype} {'x'.join(map(str, shape))}"
            yield name, partial(projection, op, dtype, *shape)
        yield f"gathered_rms {dtype} 4096x512", partial(gathered, dtype, 4096, 512)
        yield from of_images(dtype)
        layers = [Config("layer", dtype, 512, 4096)]
        for config in layers + [ladder.Product(512)] * (dtype == "float32"):
            for rung in ladder.rungs(config):
                if rung == LAYER_NORM[-1]:
                    continue  # the op itself
                function = ladder.function(config, rung.name)
                name = f"{config.op}_{rung.name} {dtype} {config.rows}x{config.length}"
                yield name, partial(of_config, config, function)


def main() -> int:
    parser = CommandLine(__doc__)
    parser.add_argument("old", nargs="?", metavar="OLD")
    parser.add_argument("new", nargs="?", metavar="NEW")
    parser.add_argument("--device", choices=SHAPES, default="cpu")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--calls", action="store_true", help="time the host's part on a GPU")
    what.add_argument("--lengths", action="store_true", help="time rows of many lengths")
    what.add_argument("--pass", action="store_true", dest="passes", help="time the graph pass")
    parser.add_argument("--starts", type=int, default=5, help="pairs of processes")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each build a start")
    parser.add_argument("--only", metavar="TEXT", help="configs that have this")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    mx.set_default_device(getattr(mx, args.device))
    known = lengths() if args.lengths else configs(args.device, args.calls)
    known = dict(passes() if args.passes else known)
    by_host = args.device == "cpu" or args.calls or args.passes
    if args.worker:
        builds.work(known, traces=not by_host)
        return 0
    names = [name for name in known if (args.only or "") in name]
    options = ["--device", args.device, *["--calls"] * args.calls, *["--lengths"] * args.lengths]
    options += ["--pass"] * args.passes
    taken = builds.compare(
        [args.old, args.new], options, names, rounds=args.rounds, starts=args.starts
    )
    slower = 0
    for name, (before, after) in taken.items():
        ratio = before.over(after)
        slower += ratio.median < SLOWER
        said = f"{name}: {after.median * 1e6:.2f} us, old over new {ratio.spread('.3f')}"
        print(f"{said}{'  SLOWER' if ratio.median < SLOWER else ''}")
    print(f"{slower} of {len(names)} configs are slower by more than 2 per cent")
    return 1 if slower else 0
