"""Times the norms' kernels against mx.fast's and a device-to-device copy on a GPU, in one run.

Sections, all of them by default:

  kernels           the kernels' time, forward, with bytes per second and their share of a copy's
  backward          the same for the gradients of every input, with the forward already evaluated
  lengths           as kernels, for rows of many lengths, of about as many elements
  lengths_backward  as backward, for these rows

Bytes are those of the tensors of x's shape, each counted once: 2 forward (4 with a residual), 3
backward (4). The copy is of 1 GiB to 1 GiB. "together" is the device's busy time per call while
independent calls are evaluated together; "alone" is that of a call that is evaluated by itself.

Times are CUPTI's, by torch's profiler, if torch is installed, or else the slope of the time of
evals over the number of calls in them, and the table says so. gpu_calls.py times whole calls. The
CSV file is written during the run. --device cpu tries the script at tiny shapes.
"""

from __future__ import annotations

import itertools

from harness import device_copy, kernels
from harness.configs import LENGTHS as ROW_LENGTHS
from harness.configs import Config
from harness.providers import providers
from harness.script import Script
from harness.tables import red_if, table

OPS = ("rms", "layer", "add_rms")
DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
LARGE = ((32768, 4096), (8192, 8192), (4096, 16384))
SHORT = (8192, 768)
LENGTHS = [((1 << 26) // length, length) for length in ROW_LENGTHS]
FORWARD_TARGET, SHORT_TARGET, BACKWARD_TARGET = 0.95, 0.75, 0.90  # shares of the copy
COPY_BYTES = 1 << 30

COLUMNS = ["section", "op", "dtype", "rows", "length", "provider", "method", "us", "us_lower"]
COLUMNS += ["us_upper", "alone_us", "gbps", "of_copy", "of_copy_alone", "copy_gbps"]
COLUMNS += ["same_size_copy_gbps", "kernels_per_call", "calls_per_eval", "rounds", "best_peer"]
COLUMNS += ["over_best_peer", "over_lower", "over_upper"]

SECTIONS = {
    "kernels": (OPS, DTYPES, [*LARGE, SHORT], False),
    "backward": (OPS, DTYPES, LARGE, True),
    "lengths": (OPS, ["bfloat16", "float32"], LENGTHS),
    "lengths_backward": (OPS, ["bfloat16", "float32"], LENGTHS, True),
}


def configs(tiny: bool, ops=OPS, dtypes=DTYPES, shapes=(), backward: bool = False) -> list[Config]:
    if tiny:
        shapes = dict.fromkeys((min(rows, 16), min(length, 96)) for rows, length in shapes)
    grid = itertools.product(ops, dtypes, shapes)
    found = [Config(op, dtype, *shape, backward) for op, dtype, shape in grid]
    return found[::5] if tiny else found


def about(config: Config) -> dict[str, object]:
    """A config's columns in the file."""
    return dict(op=config.label, dtype=DTYPES[config.dtype], rows=config.rows, length=config.length)


def labels(config: Config) -> tuple[str, str, str]:
    """A config's labels in a table."""
    return config.label, DTYPES[config.dtype], config.shape


def section(script: Script, name: str) -> None:
    """Measure a section's configs, and print and write their times."""
    of_section = configs(script.tiny, *SECTIONS[name])
    sizes = [COPY_BYTES >> 10 if script.tiny else COPY_BYTES, *(c.moved // 2 for c in of_section)]
    rates = {size: device_copy.rate(size, script.say) for size in dict.fromkeys(sizes)}
    copy = rates[sizes[0]]
    names = ["ours", "mx.fast", *script.peers]
    measured = kernels.measure(
        of_section,
        lambda config: providers(config, names[1:]),
        lambda config: 2 if script.tiny else kernels.calls_past_cache(config),
        say=script.say,
    )
    numbers = [*names, "ours, of copy", "alone", "target", "kernels", "by"]
    found = table(f"{name}: GB/s and share of the copy", ("op", "dtype", "shape"), numbers)
    missed = 0
    for config, times in measured.items():
        gbps = {of: config.moved / time.together.median / 1e9 for of, time in times.items()}
        shares = {of: rate * 1e9 / copy for of, rate in gbps.items()}
        alone = {of: config.moved / t.alone.median / copy for of, t in times.items() if t.alone}
        for of, time in times.items():
            values = dict(provider=of, method=time.method, us=time.together.median * 1e6)
            values |= dict(gbps=gbps[of], of_copy=shares[of], copy_gbps=copy / 1e9)
            values |= dict(alone_us=time.alone.median * 1e6 if time.alone else "")
            values |= dict(of_copy_alone=alone.get(of, ""), kernels_per_call=time.kernels or "")
            values |= dict(same_size_copy_gbps=rates[config.moved // 2] / 1e9)
            script.write(section=name, **about(config), **values)
        target = SHORT_TARGET if (config.rows, config.length) == SHORT else FORWARD_TARGET
        target = BACKWARD_TARGET if config.backward else target
        missed += (slow := shares["ours"] < target)
        ours, of_all = times["ours"], (f"{gbps[of]:.0f}" if of in gbps else "" for of in names)
        texts = [red_if(slow, f"{shares['ours']:.1%}"), f"{alone['ours']:.1%}" if alone else ""]
        texts += [f"{target:.0%}", f"{ours.kernels:.3g}" if ours.kernels else "", ours.method]
        found.add_row(*labels(config), *of_all, *texts)
    script.console.print(found)
    script.say(f"{name}: {missed} of {len(measured)} configs are under their target.")


def main() -> None:
    script = Script(__doc__, COLUMNS, peers=True)
    known = ", ".join(SECTIONS)
    script.parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {known}")
    args = script.begin()
    if unknown := set(args.sections) - set(SECTIONS):
        script.parser.error(f"no section {', '.join(sorted(unknown))}")
    for name in args.sections or SECTIONS:
        section(script, name)
