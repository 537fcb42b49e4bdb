"""``python bench norm``, ``backward``, ``ladder`` and ``model``: their arguments."""

from __future__ import annotations

import argparse
import contextlib
import sys

import mlx.core as mx

from harness import peers
from harness.configs import DTYPES, LADDER_OPS, OPS
from mlx_norms._measure import timing
from mlx_norms.commands import CommandError, _json, _output, _sides, check_environment

from . import WHAT, grid

_CALLS = (
    "All providers take turns in one run, and are compared with a copy (or, if operations are "
    "counted, MLX's own matmul) that is measured in the same run. GB/s and bytes per element count "
    "each tensor of x's shape once. Times are medians, with quartiles. On CUDA they are the "
    "device's, by its own clock, for many independent calls. Elsewhere, as on Metal, MLX has no "
    "device clock for Python, and they are the host's, for evaluating many calls together. Inputs "
    "are taken from several sets in turn, together twice as large as the last-level cache (its "
    "size is the one that Linux reports, or CUDA's driver for the L2 cache; Apple's chips report "
    "none, and 96 MiB is assumed)."
)
_MODEL = (
    "The sides take turns at mlx_lm's own generation, by the host's clock. Times are medians, "
    "with quartiles. A decode step is held against a copy of as many bytes as the weights have. "
    "Logits are not looked at: compare does that."
)

_NORMS = ("norm", "backward")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status, as that of ``python -m mlx_norms``."""
    args = parser().parse_args(argv)
    args.is_process = argv is None
    args.figures = {}
    try:
        return _json.run(args)
    except CommandError as error:
        print(error, file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python bench",
        description="Time the norms, the ladders' kernels or a model here, against mx.fast and a "
        "copy.",
        epilog="python bench WHAT --help lists the options of each.",
    )
    parser.set_defaults(command="bench", run=run)
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for what, summary in WHAT.items():
        subparser = subparsers.add_parser(
            what,
            help=summary,
            description=f"Time {summary}. {_MODEL if what == 'model' else _CALLS}",
        )
        # Of a norm, so few that the default ends soon.
        _add_output(subparser, timing.ROUNDS if what in _NORMS else 9)
        if what == "model":
            _add_model(subparser)
        else:
            _add_grid(subparser, what)
    return parser


def _add_output(parser: argparse.ArgumentParser, rounds: int) -> None:
    parser.add_argument("--csv", metavar="FILE", help="write the figures, with device and versions")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw GB/s against the length of rows, with the copy, and a roofline; against their "
        "number where there is one length (of a model: time against the prompt's length)",
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=int,
        default=rounds,
        help=f"samples of each ({rounds}); ratios of fewer than {timing.ROUNDS} are noise",
    )
    parser.add_argument(
        "--trace",
        action="store_true",
        help="instead of times, print the host's cost of each of the first hundred calls, in which "
        "compilation, steady state and back-pressure show",
    )
    parser.add_argument(
        "--capture",
        metavar="FILE.gputrace",
        help="instead of times, put a few calls of each into a Metal GPU capture; needs a Mac, and "
        "MTL_CAPTURE_ENABLED=1 in the environment",
    )
    _json.add_option(parser)


def _add_grid(parser: argparse.ArgumentParser, what: str) -> None:
    ops = LADDER_OPS if what == "ladder" else OPS
    parser.add_argument(
        "--backend",
        default="auto",
        help="cpu, gpu, or metal-sim: instead of times, the counts of the simulated Metal device, "
        "and for kernels that read each tensor once a lower bound on an M1 to M4 (needs a checkout "
        "and clang); by default MLX's default device",
    )
    parser.add_argument("--ops", metavar="NAMES", help=f"some of {','.join(ops)}")
    parser.add_argument(
        "--rows",
        metavar="NUMBERS",
        help="numbers of rows, such as 32,1024; of a group norm, positions of 4 images",
    )
    parser.add_argument("--lengths", metavar="NUMBERS", help="lengths of rows")
    parser.add_argument("--dtypes", metavar="NAMES", help=f"some of {','.join(DTYPES)}")
    if what in _NORMS:
        parser.add_argument(
            "--full",
            action="store_true",
            help="all numbers of rows and lengths, where none are given: takes several minutes",
        )
    if what == "ladder":
        parser.add_argument("--sizes", metavar="NUMBERS", help="rows and columns of the matrices")
    parser.add_argument(
        "--peers",
        metavar="NAMES",
        default="mx.fast",
        help=f"providers besides ours, of {','.join(peers.NAMES)} (mx.fast); by the host's "
        "clock, the time of torch's calls has its dispatch in it, and that of MLX's no building "
        "of graphs",
    )
    parser.add_argument(
        "--hot",
        action="store_true",
        help="keep the inputs in the cache, with one set of them: a rate above the memory's is the "
        "cache's (each call writes memory of its own all the same)",
    )


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="what mlx_lm.load can load, or tiny:NAME, as for compare"
    )
    parser.add_argument("--backend", default="auto", help="cpu or gpu; MLX's default device")
    parser.add_argument(
        "--prompts", metavar="NUMBERS", default="128", help="tokens to prefill, such as 32,512"
    )
    parser.add_argument("--tokens", metavar="N", type=int, default=64, help="tokens to decode (64)")
    _sides.add_options(parser)


def run(args: argparse.Namespace) -> int:
    simulated = args.backend == "metal-sim" and args.what != "model"
    _check(args, simulated)
    check_environment()
    device = _device(args)
    _check_packages(args)
    from harness import conditions, driver

    from . import bench

    if args.is_process and device == mx.cpu and sys.platform == "linux":
        conditions.restart_keeping_memory()
    before = mx.default_device()
    mx.set_default_device(device)
    try:
        mx.random.seed(0)
        with contextlib.ExitStack() as stack:
            bench.Bench(args, stack).run()
    except driver.DriverError as error:
        raise CommandError(f"No time of a copy by CUDA's driver: {error}.") from None
    finally:
        mx.set_default_device(before)
    return 0


def _check(args: argparse.Namespace, simulated: bool) -> None:
    """Raise if the arguments are invalid, before anything takes time."""
    if args.rounds < 1:
        raise CommandError(f"--rounds must be at least 1, got {args.rounds}.")
    if args.what == "model":
        grid.numbers(args.prompts, "--prompts")
        if args.tokens < 2:
            raise CommandError(f"--tokens must be at least 2, got {args.tokens}.")
    ways = ["--trace"] * args.trace + ["--capture"] * bool(args.capture)
    ways += ["--backend metal-sim"] * simulated
    if len(ways) > 1:
        raise CommandError(f"{ways[0]} and {ways[1]} exclude each other.")
    if args.plot and ways:
        raise CommandError(f"--plot draws times, and {ways[0]} takes none.")
    if ways and getattr(args, "full", False):
        raise CommandError(f"--full is about times, and {ways[0]} takes none.")
    if args.csv and args.capture:
        raise CommandError("--csv has nothing to write with --capture.")
    if simulated and args.hot:
        raise CommandError("--hot is about time, and --backend metal-sim counts.")
    _output.check_file("--csv", args.csv)


def _check_packages(args: argparse.Namespace) -> None:
    _need("rich", "bench")
    if args.plot:
        _need("matplotlib", "bench --plot")
        _output.check_image("--plot", args.plot)
    if args.what == "model":
        _need("mlx_lm", "bench model", "mlx-lm")


def _need(module: str, what: str, package: str | None = None) -> None:
    try:
        __import__(module)
    except ImportError:
        raise CommandError(
            f"{what} needs a package: type  pip install {package or module}"
        ) from None


def _device(args: argparse.Namespace) -> mx.Device:
    has_gpu = mx.metal.is_available() or mx.cuda.is_available()
    names = {"auto": mx.default_device(), "cpu": mx.cpu, "metal-sim": mx.cpu, "gpu": mx.gpu}
    if args.what == "model":
        del names["metal-sim"]
    if args.backend not in names:
        raise CommandError(f"--backend {args.backend!r} is none of {', '.join(names)}.")
    if args.backend == "gpu" and not has_gpu:
        raise CommandError("--backend gpu: MLX has no GPU here.")
    device = names[args.backend]
    if args.what == "ladder" and device == mx.cpu and args.backend != "metal-sim":
        raise CommandError(
            "The rungs of the ladders are GPU kernels, and this is the CPU: --backend metal-sim "
            "counts what they do."
        )
    return device
