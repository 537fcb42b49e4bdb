"""Times a llama with random weights of 8B shapes, stock against patched, on a GPU.

Stock, patched (residual adds fused into norms) and projections (norms of few rows fused with the
matmuls that read them, too) take turns at the prefill of a prompt and at decoding after it. When
decoding, each token is chosen on the device while the next step is being built, as in mlx_lm. The
logits of prefill and of each decode step are compared bit by bit, given the same tokens.

The model is mlx_lm's. --device cpu tries the script with a tiny one.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys

import mlx.core as mx
import mlx.nn

from mlx_norms._bench import llama, models, timing
from mlx_norms._bench.script import Script
from mlx_norms._bench.sides import CONTEXTS as SIDES
from mlx_norms._bench.sides import relative_difference
from mlx_norms._bench.tables import table

COLUMNS = ["format", "phase", "side", "ms", "ms_lower", "ms_upper", "stock_over_side"]
COLUMNS += ["ratio_lower", "ratio_upper", "rounds", "tokens_a_second", "logits"]
COLUMNS += ["largest_difference", "fused", "projections", "model", "layers", "prompt"]
PHASES = ("prefill", "decode")


def measure(
    model: mlx.nn.Module, prompt: mx.array, args: argparse.Namespace
) -> dict[str, dict[str, timing.Samples]]:
    """Seconds of a prefill and of a decode step of each side, which take turns."""
    token, cache = models.prefill(model, prompt)

    def prefills(count: int) -> None:
        for _ in range(count):
            models.prefill(model, prompt)

    def decode(count: int) -> None:
        models.decode(model, token, cache, count)

    found = {}
    for phase, run, count in zip(PHASES, (prefills, decode), (args.prefills, args.tokens)):
        runs = {side: timing.Runs(run, context) for side, context in SIDES.items()}
        found[phase] = timing.measure(runs, rounds=args.rounds, count=count)
    return found


def main() -> int:
    script = Script(__doc__, COLUMNS, rounds=21)
    add = script.parser.add_argument
    add("--layers", type=int, help="fewer layers")
    add("--prompt", type=int, default=128, help="tokens to prefill")
    add("--tokens", type=int, default=16, help="tokens decoded in a sample")
    add("--prefills", type=int, default=4, help="prefills in a sample")
    add("--format", choices=llama.FORMATS, action="append", help="one of the formats")
    args = script.begin()
    shapes = llama.TINY if script.tiny else llama.Shapes()
    shapes = dataclasses.replace(shapes, num_hidden_layers=args.layers or shapes.num_hidden_layers)
    numbers = ("ms", "tokens/s", "stock over it", "logits")
    found = table("median (quartiles)", ("", "side"), numbers)
    for name in args.format or llama.FORMATS:
        mx.random.seed(0)
        model, source = llama.build(shapes, llama.FORMATS[name])
        prompt = mx.random.randint(0, shapes.vocab_size, (args.prompt,))
        tokens = mx.random.randint(0, shapes.vocab_size, (args.tokens,)).tolist()
        mx.eval(prompt)
        logits = {}
        for side, context in SIDES.items():
            with context():
                both = models.logits(model, prompt, tokens)
                logits[side] = dict(zip(PHASES, both, strict=True))
        report = models.fused_in_a_step(model, prompt)
        script.say(
            f"{name}, {source}, {shapes.num_hidden_layers} layers: {report.fused} of "
            f"{report.calls} norms of a decode step are fused, {report.passed_on} passed on, "
            f"{report.projections} computed with the products that take them"
        )
        about = (report.fused, report.projections, source, shapes.num_hidden_layers, args.prompt)
        for phase, seconds in measure(model, prompt, args).items():
            for side, samples in seconds.items():
                stock, its = logits["stock"][phase], logits[side][phase]
                difference = relative_difference(stock, its)
                same = mx.array_equal(stock, its).item()
                verdict = "bit-equal" if same else f"differ by {difference:.1e}"
                ratio = seconds["stock"].over(samples)
                rate = (args.prompt if phase == "prefill" else 1) / samples.median
                found.add_row(
                    *(f"{phase}, {name}", side, samples.spread(".3f", 1e3), f"{rate:.1f}"),
                    *(("", "") if side == "stock" else (ratio.spread(".4f"), verdict)),
                )
                ms = (1e3 * value for value in (samples.median, *samples.quartiles))
                ratios = (ratio.median, *ratio.quartiles, args.rounds, rate)
                verdict = "bit-equal" if same else "differ"
                script.write(name, phase, side, *ms, *ratios, verdict, difference, *about)
        del model, logits
        mx.clear_cache()
    script.console.print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
