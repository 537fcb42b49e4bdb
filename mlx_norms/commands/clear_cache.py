"""The command ``clear-cache``."""

from __future__ import annotations

import argparse

from . import CommandError, _json, _kernel_cache, _output

SUMMARY = "Remove the compiled CUDA kernels that are kept on disk."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the argument of the command."""
    _json.add_option(parser)


def run(args: argparse.Namespace) -> int:
    try:
        found = _kernel_cache.find()
        for file in found.files:
            file.unlink(missing_ok=True)  # of a link the link, never its target
    except OSError as error:
        raise CommandError(f"The cache cannot be cleared: {_output.line(error)}") from None
    if found.files:
        print(f"Removed {found.contents}, from {found.folder}.")
    else:
        print(f"Nothing to remove: {found}.")
    args.figures["removed"] = found.figures()
    return 0
