"""The commands of ``python -m mlx_norms``, one module each.

Modules with a leading underscore are helpers of the commands. A command module has

- ``SUMMARY``, its line in ``--help`` (no docstring, which Python's ``-OO`` leaves out),
- ``add_arguments(parser)``, which declares its arguments, including ``--json`` unless the standard
  output is not its own,
- ``run(args) -> int``, which does the work and returns the exit status: 0, or 1 if a check of the
  command failed. It prints text, and puts the same figures into the dict ``args.figures`` when it
  has all of them. It raises :class:`CommandError` if it cannot run. Of ``run``, a program's start
  is what it returns, which the process ends with.

Only MLX is imported before ``run``; anything else that a command needs is in an extra.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from types import ModuleType

from .. import _ext
from ..patching import environment, unpatch


class CommandError(Exception):
    """A command cannot run: one sentence that tells the user what to do about it."""


def check_environment() -> None:
    """Check the environment variables, for commands that compute norms and patch some themselves.

    Raises:
        CommandError: If one of our environment variables has an invalid value.
    """
    os.environ.pop(environment.VARIABLE, None)  # for their child processes
    unpatch()
    try:
        _ext.cpu_isa()
        _ext.cpu_threads()
    except ValueError as error:
        raise CommandError(str(error)) from None


def load() -> dict[str, ModuleType]:
    """The command modules by name, with dashes for underscores."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return {
        name.replace("_", "-"): importlib.import_module(f"{__name__}.{name}")
        for name in names
        if not name.startswith("_")
    }
