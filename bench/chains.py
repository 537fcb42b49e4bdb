"""Times the ops that do what models write around a norm against MLX's chains of ops on a GPU.

Ours, MLX's chain evaluated eagerly, and the same chain under mx.compile take turns, with inputs in
turn past the cache, and a copy of the same bytes is timed in the same run. "of copy" is the share
of its speed that ours reaches, each tensor of x's shape counted once; "mlx / ours" are times, round
by round, with quartiles, of independent calls in one eval, and "alone" of calls that are evaluated
one by one. The gradients are of all inputs, after the forward was evaluated; the compiled ones
compute again what they need of it.

Times are CUPTI's, by torch's profiler, if torch is installed, or else the slope of the time of
evals over the number of calls. --device cpu tries the script at tiny shapes.
"""

from __future__ import annotations

import itertools
import sys

import mlx.core as mx

from mlx_norms._bench import device_copy, kernels
from mlx_norms._bench.configs import OPS, Config
from mlx_norms._bench.providers import Calls, copies, sets_needed
from mlx_norms._bench.script import Script
from mlx_norms._bench.tables import red_if, table

CHAINS = ("ada", "add_ada", "gated_rms", "norm_add_norm")
LENGTHS = (1152, 1536, 3072, 4096, 5120)
ROWS = (1, 32, 512, 4096, 16384)
CACHES = 8  # caches' worth of inputs used in turn: with two, some stay in the cache
LARGE = 32 << 20  # bytes in and out, from which the shares are meant
OF_COPY, SLOWER = 0.85, 0.98
BACKWARD_GAIN = {"norm_add_norm": 1.35}  # MLX's own is near a copy's speed; 2 for others

COLUMNS = ["op", "backward", "dtype", "rows", "length", "method", "us", "eager_us", "compiled_us"]
COLUMNS += ["of_copy", "copy_gbps", "eager_over", "eager_lower", "eager_upper"]
COLUMNS += ["compiled_over", "compiled_lower", "compiled_upper"]
COLUMNS += ["alone_us", "alone_eager_us", "alone_compiled_us", "alone_eager_over"]
COLUMNS += ["alone_compiled_over", "kernels_per_call", "eager_kernels", "compiled_kernels"]


def providers(config: Config) -> dict[str, Calls]:
    op, count = OPS[config.op], sets_needed(config.input_bytes, caches=CACHES)
    inputs = copies(config.inputs(), count)
    cotangents = copies(config.cotangents(), count) if config.backward else None
    found = {"ours": Calls(op.ours, inputs, cotangents, config.output_bytes)}
    found["eager"] = Calls(op.fast, inputs, cotangents, config.output_bytes)
    function, arrays = op.fast, inputs
    if config.backward:
        arrays = [[*of, *its] for of, its in zip(inputs, cotangents, strict=True)]
        size = len(op.inputs)

        def function(*arrays):
            return mx.vjp(op.fast, arrays[:size], arrays[size:])[1]

    found["compiled"] = Calls(mx.compile(function), arrays, None, config.output_bytes)
    return found


def misses_target(config: Config, of_copy: float, gains: list[float]) -> bool:
    if config.moved < LARGE:
        return min(gains) < SLOWER
    if config.backward:
        return gains[0] < BACKWARD_GAIN.get(config.op, 2)
    return of_copy < OF_COPY


def main() -> int:
    script = Script(__doc__, COLUMNS, rounds=5)
    add = script.parser.add_argument
    add("--ops", default=",".join(CHAINS), help="of " + ", ".join(CHAINS))
    add("--dtypes", default="bfloat16", help="of bfloat16,float16,float32")
    add("--rows", default=",".join(map(str, ROWS)), help="numbers of rows")
    add("--lengths", default=",".join(map(str, LENGTHS)), help="lengths of rows")
    args = script.begin()
    lengths, rows = ([int(n) for n in of.split(",")] for of in (args.lengths, args.rows))
    if script.tiny:
        lengths, rows = (64, 96), (1, 4)
    configs = [
        Config(op, dtype, count, length, backward)
        for op, backward, dtype, length, count in itertools.product(
            args.ops.split(","), (False, True), args.dtypes.split(","), lengths, rows
        )
    ]
    sizes = dict.fromkeys(config.moved // 2 for config in configs)
    rates = {size: device_copy.rate(size, script.say) for size in sizes}
    times = kernels.measure(
        configs,
        providers,
        lambda config: 2 if script.tiny else kernels.calls_past_cache(config),
        rounds=args.rounds,
        say=script.say,
    )
    numbers = ("ours µs", "of copy", "eager / ours", "compiled / ours", "alone: eager", "compiled")
    found = table("ours beside MLX's chain of ops", ("op", "dtype", "shape"), (*numbers, "by"))
    missed = 0
    for config, of in times.items():
        ours, rate = of["ours"], rates[config.moved // 2]
        peers = [of["eager"], of["compiled"]]
        share = config.moved / ours.together.median / rate
        gains = [peer.together.over(ours.together) for peer in peers]
        alone = [peer.alone.over(ours.alone) for peer in peers if ours.alone]
        slow = misses_target(config, share, [gain.median for gain in (*gains, *alone)])
        missed += slow
        found.add_row(
            *(config.name, config.dtype, config.shape, f"{ours.together.median * 1e6:.2f}"),
            *(red_if(slow, f"{share:.1%}"), *(gain.spread(".2f") for gain in gains)),
            *([f"{gain.median:.2f}" for gain in alone] or ["", ""]),
            ours.method,
        )
        us = [time.together.median * 1e6 for time in (ours, *peers)]
        values = [config.op, config.backward, config.dtype, config.rows, config.length]
        values += [ours.method, *us, share, rate / 1e9]
        values += [n for gain in gains for n in (gain.median, *gain.quartiles)]
        values += [time.alone.median * 1e6 if time.alone else "" for time in (ours, *peers)]
        values += [gain.median for gain in alone] or ["", ""]
        values += [time.kernels or "" for time in (ours, *peers)]
        script.write(*values)
    script.console.print(found)
    script.say(f"{missed} of {len(times)} configs miss their target.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
