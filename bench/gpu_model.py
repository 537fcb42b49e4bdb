"""Times a llama with random weights of 8B shapes, stock against patched, on a GPU.

Stock, patched (sums fused into norms) and projections (norms of few rows fused into the products
that take them, too) take turns at the prefill of a prompt and at decoding after it. There each
token is chosen on the device while the next step is being built, as mlx_lm generates. Prefill and
each decode step give logits, which are compared bit by bit, given the same tokens.

The model is mlx_lm's where that can be imported, else mlx_norms/_bench/llama.py's. --device cpu tries the
script with a tiny one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import mlx.core as mx
import mlx.nn
from rich.console import Console
from rich.table import Table

import mlx_norms
from mlx_norms._bench import llama, machine, timing
from mlx_norms._bench.results import CsvFile
from mlx_norms.commands._sides import CONTEXTS as SIDES
from mlx_norms.commands.compare import relative_difference

FORMATS = {"bf16": None, "4-bit": 4}
TINY = llama.Shapes(2, 128, 256, 4, 2, 512)

COLUMNS = ["format", "phase", "side", "ms", "ms_lower", "ms_upper", "stock_over_side"]
COLUMNS += ["ratio_lower", "ratio_upper", "rounds", "tokens_a_second", "logits"]
COLUMNS += ["largest_difference", "fused", "projections", "model", "layers", "prompt"]


def prefill(model: mlx.nn.Module, prompt: mx.array) -> tuple[mx.array, list]:
    """The token after the prompt, and the cache that holds the prompt."""
    cache = llama.new_cache(model)
    token = mx.argmax(model(prompt[None], cache=cache)[:, -1], axis=-1)
    mx.eval(token)
    return token, cache


def decode(model: mlx.nn.Module, token: mx.array, cache: list, count: int) -> None:
    """Generate ``count`` tokens after ``token``, and forget them again."""
    for _ in range(count):
        following = mx.argmax(model(token[None], cache=cache)[:, -1], axis=-1)
        mx.async_eval(following)
        token.item()
        token = following
    token.item()
    for layer in cache:
        layer.trim(count)


def logits(model: mlx.nn.Module, prompt: mx.array, tokens: mx.array) -> dict[str, mx.array]:
    """Those of the prompt, and of each of ``tokens`` after it."""
    cache = llama.new_cache(model)
    first = model(prompt[None], cache=cache)
    mx.eval(first)
    steps = []
    for token in tokens.tolist():
        steps.append(model(mx.array([[token]]), cache=cache))
        mx.eval(steps[-1])
    return {"prefill": first, "decode": mx.concatenate(steps, axis=1)}


def fused_in_a_step(model: mlx.nn.Module, prompt: mx.array) -> mlx_norms.Report:
    token, cache = prefill(model, prompt)
    with mlx_norms.patched(projections=True):
        decode(model, token, cache, 1)
        return mlx_norms.report()


def measure(
    model: mlx.nn.Module, prompt: mx.array, args: argparse.Namespace
) -> dict[str, dict[str, timing.Samples]]:
    """Milliseconds of a prefill and of a decode step of each side, which take turns."""

    def prefills() -> None:
        for _ in range(args.prefills):
            prefill(model, prompt)

    token, cache = prefill(model, prompt)
    phases: dict[str, tuple[Callable[[], None], int]] = {
        "prefill": (prefills, args.prefills),
        "decode": (lambda: decode(model, token, cache, args.tokens), args.tokens),
    }
    found = {}
    for phase, (run, count) in phases.items():
        values: dict[str, list[float]] = {side: [] for side in SIDES}
        for side in timing.turns(SIDES, args.rounds + 1):
            with SIDES[side]():
                start = time.perf_counter()
                run()
                values[side].append((time.perf_counter() - start) / count * 1e3)
        # The first round compiles kernels and instantiates graphs.
        found[phase] = {side: timing.Samples(tuple(v[1:])) for side, v in values.items()}
    return found


def spread(samples: timing.Samples, places: int) -> str:
    lower, upper = samples.quartiles
    return f"{samples.median:.{places}f} ({lower:.{places}f} to {upper:.{places}f})"


def write(path: str, columns: list[str], facts: dict[str, str], rows: list) -> None:
    """A CSV file of rows in the order of the columns."""
    with open(path, "w", newline="") as file:
        writer = CsvFile(file, columns, facts)
        for row in rows:
            writer.write(dict(zip(columns, row, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, help="fewer layers")
    parser.add_argument("--prompt", type=int, default=128, help="tokens to prefill")
    parser.add_argument("--tokens", type=int, default=16, help="tokens decoded in a sample")
    parser.add_argument("--prefills", type=int, default=4, help="prefills in a sample")
    parser.add_argument("--rounds", type=int, default=21, help="samples of each side")
    parser.add_argument("--format", choices=FORMATS, action="append", help="one of the formats")
    parser.add_argument("--csv", metavar="FILE", help="write the figures with device and versions")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    args = parser.parse_args()

    mx.set_default_device(mx.cpu if args.device == "cpu" else mx.gpu)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    facts = machine.facts() | {"driver": machine.driver_version()}
    console.print(", ".join(f"{key} {value}" for key, value in facts.items()))
    shapes = TINY if args.device == "cpu" else llama.Shapes()
    if args.layers:
        shapes = llama.Shapes(args.layers, *list(vars(shapes).values())[1:])

    table = Table(title="median (quartiles)", title_justify="left")
    for heading in ("", "side", "ms", "tokens/s", "stock over it", "logits"):
        table.add_column(heading, justify="left" if heading in ("", "side") else "right")
    rows = []
    for name in args.format or FORMATS:
        mx.random.seed(0)
        model, source = llama.build(shapes, FORMATS[name])
        prompt = mx.random.randint(0, shapes.vocab_size, (args.prompt,))
        tokens = mx.random.randint(0, shapes.vocab_size, (args.tokens,))
        mx.eval(prompt, tokens)
        of_side = {}
        for side, context in SIDES.items():
            with context():
                of_side[side] = logits(model, prompt, tokens)
        report = fused_in_a_step(model, prompt)
        console.print(
            f"{name}, {source}, {shapes.num_hidden_layers} layers: {report.fused} of "
            f"{report.calls} norms of a decode step are fused, {report.passed_on} passed on, "
            f"{report.projections} computed with the products that take them"
        )
        for phase, milliseconds in measure(model, prompt, args).items():
            count = args.prompt if phase == "prefill" else 1
            for side, samples in milliseconds.items():
                stock, its = of_side["stock"][phase], of_side[side][phase]
                difference = relative_difference(stock, its)
                same = mx.array_equal(stock, its).item()
                verdict = "bit-equal" if same else f"differ by {difference:.1e}"
                ratio = milliseconds["stock"].over(samples)
                rate = 1e3 * count / samples.median
                table.add_row(
                    *(f"{phase}, {name}", side, spread(samples, 3), f"{rate:.1f}"),
                    *(("", "") if side == "stock" else (spread(ratio, 4), verdict)),
                )
                figures = (samples.median, *samples.quartiles, ratio.median, *ratio.quartiles)
                about = ("bit-equal" if same else "differ", difference)
                rows.append(
                    [name, phase, side, *figures, len(samples.values), rate, *about]
                    + [report.fused, report.projections, source]
                    + [shapes.num_hidden_layers, args.prompt]
                )
        del model, of_side
        mx.clear_cache()
    console.print(table)
    if args.csv:
        write(args.csv, COLUMNS, facts, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
