"""The configs that a run of the command measures, from its arguments."""

from __future__ import annotations

import argparse
import itertools
import re
import textwrap
from collections.abc import Iterable

from harness import providers
from harness.configs import DTYPES, HEAD_OPS, LADDER_OPS, OPS, Config
from harness.ladder import Product
from mlx_norms._measure import machine
from mlx_norms.commands import CommandError

MOST = 2**31 - 1  # the most elements that an axis of MLX can have

# Defaults for times, of norms also with --full, for --trace and --capture ("few"), and for counts,
# which run on a slow simulator.
_ROWS = {"times": (1, 512), "full": (1, 32, 512, 4096), "few": (512,), "counts": (64,)}
_LENGTHS = {"times": (4096,), "full": (768, 4096), "few": (4096,), "counts": (128, 4096)}
_HEAD_LENGTHS = (128,)
_DTYPES = {name: ("float32", "bfloat16") for name in ("times", "full")}
_DTYPES |= {name: ("float32",) for name in ("few", "counts")}
_LADDER_ROWS = {"times": (32, 128, 512, 1024, 2048, 4096, 8192), "few": (1024,), "counts": (64,)}
_LADDER_LENGTHS = (768,)
_SIZES = {"times": (256, 512, 1024, 2048, 4096), "few": (1024,), "counts": (64, 128)}


def configs(args: argparse.Namespace, purpose: str) -> list[Config | Product]:
    """The requested configs, or the defaults for "times", "full", "few" or "counts".

    Raises:
        CommandError: If an argument is not a list of valid values.
    """
    rows = numbers(args.rows, "--rows")
    lengths = numbers(args.lengths, "--lengths")
    dtypes = names(args.dtypes, "--dtypes", DTYPES)
    if args.what == "ladder":
        found: list[Config | Product] = []
        ops = names(args.ops, "--ops", LADDER_OPS) or LADDER_OPS
        sizes = numbers(args.sizes, "--sizes") or _SIZES[purpose]
        if "layer_norm" in ops:
            shapes = (dtypes or ("float32",), lengths or _LADDER_LENGTHS)
            grid = itertools.product(*shapes, rows or _LADDER_ROWS[purpose])
            found += [Config("layer", dtype, count, length) for dtype, length, count in grid]
        if "sgemm" in ops:
            found += map(Product, sizes)
        return found
    found = []
    for op in names(args.ops, "--ops", OPS) or OPS:
        of_op = lengths or (_HEAD_LENGTHS if op in HEAD_OPS else _LENGTHS[purpose])
        grid = itertools.product(dtypes or _DTYPES[purpose], of_op, rows or _ROWS[purpose])
        backward = args.what == "backward"
        found += [
            Config(op, dtype, count, length, backward)
            for dtype, length, count in grid
            if count > 1 or op != "batch_training"  # which refuses a single value per channel
        ]
    if not found:
        raise CommandError("--rows: batch_training takes at least 2.")
    return found


def names(text: str | None, option: str, known: Iterable[str]) -> list[str]:
    """A list of names from an option's text, empty if the option was not given."""
    found = (text or "").split(",") if text is not None else []
    for name in found:
        if name not in known:
            raise CommandError(f"{option}: {name!r} is none of {', '.join(known)}.")
    return list(dict.fromkeys(found))


def numbers(text: str | None, option: str) -> list[int]:
    """A list of numbers from an option's text, empty if the option was not given."""
    parts = (text or "").split(",") if text is not None else []
    for part in parts:
        if not re.fullmatch("0*[1-9][0-9]{0,9}", part) or int(part) > MOST:
            raise CommandError(
                f"{option} takes numbers from 1 to {MOST}, such as 32,1024: got "
                f"{textwrap.shorten(repr(part), 40)}."
            )
    return list(dict.fromkeys(map(int, parts)))


def check_memory(configs: Iterable[Config | Product], peer_names: Iterable[str], hot: bool) -> None:
    """Refuse configs that do not fit into memory, since MLX would crash.

    Raises:
        CommandError: If the arrays of a config need more memory than is available.
    """
    there = machine.memory_bytes()
    for config in configs:
        if (needed := providers.memory_needed(config, peer_names, hot)) > there:
            raise CommandError(
                f"{config.op} {config.rows}x{config.length} in {config.dtype} takes about "
                f"{machine.gib(needed)} at once, and there are {machine.gib(there)}: ask for "
                f"{'smaller --sizes' if config.op == 'sgemm' else 'smaller --rows or --lengths'}."
            )
