"""Lists in arguments, and the cases of norms that they name."""

from __future__ import annotations

import argparse
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator

from mlx_norms._measure import machine
from mlx_norms.commands import CommandError

from . import copy_speed, providers
from .configs import DTYPES, HEAD_OPS, OPS, Config
from .suite import COPIED, Case

_MOST = 2**31 - 1  # the most elements that an axis of MLX can have
# Numbers of rows and lengths by default, and with --full.
_ROWS, _LENGTHS = ((1, 512), (1, 32, 512, 4096)), ((4096,), (768, 4096))
_HEAD_LENGTHS, _DTYPES = (128,), ("float32", "bfloat16")


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
        if not re.fullmatch("0*[1-9][0-9]{0,9}", part) or int(part) > _MOST:
            raise CommandError(
                f"{option} takes numbers from 1 to {_MOST}, such as 32,1024: got "
                f"{textwrap.shorten(repr(part), 40)}."
            )
    return list(dict.fromkeys(map(int, parts)))


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--ops", metavar="NAMES", help=f"some of {','.join(OPS)}")
    add("--rows", metavar="NUMBERS", help="such as 32,1024; of a group norm, positions of 4 images")
    add("--lengths", metavar="NUMBERS", help="lengths of rows")
    add("--dtypes", metavar="NAMES", help=f"some of {','.join(DTYPES)}")
    add("--full", action="store_true", help="more rows and lengths, where none are given")
    add("--hot", action="store_true", help="keep the inputs in the cache, with one set of them")
    add("--details", action="store_true", help="times, shares of a copy's speed and each dtype")


def cases(args: argparse.Namespace, backward: bool) -> Iterator[Case]:
    """Norms of the ops, dtypes, lengths and rows that the arguments ask for."""
    rows, lengths = numbers(args.rows, "--rows"), numbers(args.lengths, "--lengths")
    dtypes = names(args.dtypes, "--dtypes", DTYPES) or _DTYPES
    found = False
    for op in names(args.ops, "--ops", OPS) or OPS:
        of_op = lengths or (_HEAD_LENGTHS if op in HEAD_OPS else _LENGTHS[args.full])
        grid = itertools.product(dtypes, of_op, rows or _ROWS[args.full])
        for dtype, length, count in grid:
            if count > 1 or op != "batch_training":  # which refuses a single value per channel
                found = True
                yield case(Config(op, dtype, count, length, backward), args.peers, hot=args.hot)
    if not found:
        raise CommandError("--rows: batch_training takes at least 2.")


def case(config: Config, names: list[str], *, hot: bool = False, **labels) -> Case:
    """A norm beside peers, and by the host's clock a copy."""

    def sides() -> dict:
        found = providers.sides_of(config, names, hot)
        if machine.backend() != "cuda" and config.moved >= COPIED:
            found["copy"] = copy_speed.side(config.moved // 2, hot)
        return found

    about = dict(op=config.label, dtype=config.dtype, rows=config.rows, length=config.length)
    sets = providers.sets_needed(config.input_bytes, hot)
    alive = sets * config.input_bytes + config.alive
    return Case(about | labels, sides, config.moved, alive=alive)


def hows() -> tuple[str]:
    return ("kernels",) if machine.backend() == "cuda" else ("evals",)
