"""``--json``: prints a command's figures as one JSON document instead of text."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping

from .._measure import timing


def add_option(parser: argparse.ArgumentParser) -> None:
    """Declares ``--json``, which every command has that writes its own standard output."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="write one JSON document to the standard output, and no text: all figures of the "
        "tables, and the verdict; null stands for what is not a number or was not measured",
    )


def run(args: argparse.Namespace) -> int | Callable[[], int]:
    """Run the command of ``args``, and return its exit status.

    With ``--json``, only ``args.figures`` is printed to the standard output, nothing else. A
    command fills it completely or not at all, so a failure leaves no partial document.
    """
    if not args.json:
        return args.run(args)
    try:
        with (
            open(os.devnull, "w", encoding="utf-8", errors="replace") as nowhere,
            contextlib.redirect_stdout(nowhere),
        ):
            return args.run(args)
    finally:
        if args.figures:
            print(json.dumps(_plain({"command": args.command, **args.figures}), allow_nan=False))


def _plain(value: object) -> object:
    """``value`` in JSON's types; samples become their median and interval."""
    if isinstance(value, timing.Samples):
        lower, upper = value.interval
        about = {"median": value.median, "lower": lower, "upper": upper}
        if isinstance(value, timing.Ratio):
            about |= {"of_medians": value.of_medians, "differs": value.differs}
        return _plain({**about, "rounds": len(value.values)})
    if isinstance(value, Mapping):
        return {key: _plain(of_key) for key, of_key in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
