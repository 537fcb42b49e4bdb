"""Times a language model with random weights, stock against patched, on a GPU.

Stock, patched (residual adds fused into norms) and projections (norms of few rows fused with the
matmuls that read them, and quantized products by our kernel, too) take turns at the prefill of a
prompt and at decoding after it. Decode steps of several rows take so many tokens of one sequence
together, as in speculative decoding. Each step's tokens are chosen on the device while the next
step is being built, as in mlx_lm. The logits of prefill and of each decode step are compared bit by
bit, given the same tokens.

"host" is the time that the host's thread itself needs to build and encode a step, "kernels" that in
which at least one kernel runs, by CUPTI, if torch is installed. Where the first is not well below
the second, the host limits.

The models are mlx_lm's, by default a llama of 8B shapes. --device cpu tries the script with a tiny
one.
"""

from __future__ import annotations

import dataclasses

import mlx.core as mx

import mlx_norms
from harness import llama, phases, step_costs
from harness.script import Script
from harness.tables import table
from mlx_norms._measure import timing
from mlx_norms.commands._sides import CONTEXTS as SIDES
from mlx_norms.commands._sides import relative_difference

COLUMNS = ["format", "phase", "side", "rows", "ms", "ms_lower", "ms_upper", "stock_over_side"]
COLUMNS += ["ratio_lower", "ratio_upper", "rounds", "tokens_a_second", "host_us", "kernels_us"]
COLUMNS += ["kernels_a_step", "logits", "largest_difference", "fused", "projections", "products"]
COLUMNS += ["model", "layers", "prompt"]


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=21)
    add = script.parser.add_argument
    add("--model", choices=llama.MODELS, default="llama-8B", help="(default: %(default)s)")
    add("--layers", type=int, help="fewer layers")
    add("--prompt", type=int, default=128, help="tokens to prefill")
    add("--rows", default="1,4", help="numbers of rows of a decode step")
    add("--steps", type=int, default=16, help="decode steps in a sample")
    add("--prefills", type=int, default=4, help="prefills in a sample")
    add("--format", choices=llama.FORMATS, action="append", help="one of the formats")
    args = script.begin()
    rows = [int(n) for n in args.rows.split(",")]
    samples_of = dict(prefills=args.prefills, steps=args.steps)
    shapes = llama.shapes_of(args.model, tiny=script.tiny)
    shapes = dataclasses.replace(shapes, num_hidden_layers=args.layers or shapes.num_hidden_layers)
    numbers = ("ms", "tokens/s", "host µs", "kernels µs", "stock over it", "logits")
    found = table("median (quartiles)", ("", "side"), numbers)
    for name in args.format or llama.FORMATS:
        bits = llama.FORMATS[name]
        on_device = step_costs.device_times(shapes, bits, args.prompt, rows, args.steps)
        mx.random.seed(0)
        model, package = llama.build(shapes, bits)
        source = f"{args.model} of {package}"
        prompt = mx.random.randint(0, shapes.vocab_size, (args.prompt,))
        mx.eval(prompt)
        for phase in phases.of(model, prompt, rows, **samples_of):
            logits, counts = {}, {"stock": ("", "", "")}
            for side, context in SIDES.items():
                with context():
                    logits[side] = phase.logits()
                    mx.eval(logits[side])
                with context():
                    phase.run(1)
                    report = mlx_norms.report()
                counts.setdefault(side, (report.fused, report.projections, report.products))
            script.say(
                f"{name}, {source}, {shapes.num_hidden_layers} layers, {phase.name}: of "
                f"{report.calls} norms {report.fused} are fused, {report.passed_on} passed on, "
                f"{report.projections} computed with the products that take them; "
                f"{report.products} other products taken"
            )
            runs = {side: timing.Runs(phase.run, context) for side, context in SIDES.items()}
            seconds = timing.measure(runs, rounds=args.rounds, count=phase.count)
            host = timing.measure(phase.host, rounds=args.rounds, count=phase.count)
            for side, samples in seconds.items():
                difference = relative_difference(logits["stock"], logits[side])
                same = mx.array_equal(logits["stock"], logits[side]).item()
                ratio = seconds["stock"].over(samples)
                rate = phase.rows / samples.median
                host_us = 1e6 * host[side].median if host else ""
                kernels = on_device.get((phase.rows, side)) if host else None
                kernels_us = 1e6 * kernels.seconds if kernels else ""
                verdict = "bit-equal" if same else f"differ by {difference:.1e}"
                found.add_row(
                    *(f"{phase.name}, {name}", side, samples.spread(".3f", 1e3), f"{rate:.1f}"),
                    *(figure and f"{figure:.0f}" for figure in (host_us, kernels_us)),
                    *(("", "") if side == "stock" else (ratio.spread(".4f"), verdict)),
                )
                ms = samples.figures(1e3)
                times = (*ms, *ratio.figures(), args.rounds, rate, host_us)
                times += (kernels_us, kernels.kernels if kernels else "")
                verdict = "bit-equal" if same else "differ"
                about = (verdict, difference, *counts[side], source, shapes.num_hidden_layers)
                script.write(name, phase.name, side, phase.rows, *times, *about, args.prompt)
        del model, phase, runs, logits
        mx.clear_cache()
    script.console.print(found)
