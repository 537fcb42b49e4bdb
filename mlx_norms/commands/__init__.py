"""The commands of ``python -m mlx_norms``, a module each.

Modules with a leading underscore are no commands but serve them. A command module has

- a docstring, its first line the command's summary in ``--help``,
- ``add_arguments(parser)``, which declares its arguments, ``--json`` among them,
- ``run(args) -> int``, which does the work and returns the exit status: 0, or 1 if what the command
  checks does not hold. It prints text, and puts the same figures into the dict ``args.figures``
  once it has them all. It raises :class:`CommandError` if it cannot run.

Nothing but MLX is imported before ``run``: what a command needs beyond that is in its extra.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from .. import _ext


class CommandError(Exception):
    """A command cannot run: one sentence for the user that says what to do about it."""


def check_environment() -> None:
    """For commands that compute norms.

    Raises:
        CommandError: If an environment variable of ours has a value that it cannot have.
    """
    try:
        _ext.cpu_isa()
        _ext.cpu_threads()
    except ValueError as error:
        raise CommandError(str(error)) from None


def load() -> dict[str, ModuleType]:
    """The command modules by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return {
        name: importlib.import_module(f"{__name__}.{name}")
        for name in names
        if not name.startswith("_")
    }
