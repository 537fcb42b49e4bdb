"""The kinds of cases: how a seed is run, and how its case is shown."""

from . import numerics, programs, shapeless
from .program_check import Void, check
from .shrink import shrink


def program_failures(seed, backend):
    """Failures as sentences; None if MLX itself cannot run the program."""
    backend.tell_stage("stock")
    try:
        return [str(failure) for failure in check(programs.generate(seed, backend), backend)]
    except Void:
        return None


def shown_program(seed, backend):
    """The program of a seed; if it fails, with as few steps as still make that mode fail."""
    program = programs.generate(seed, backend)
    lines = [str(program)]
    try:
        failures = check(program, backend)
    except Void as void:
        return "\n".join([*lines, f"MLX itself raises {void}"])
    if failures:
        modes = {failure.mode for failure in failures}

        def fails(smaller):
            try:
                return any(failure.mode in modes for failure in check(smaller, backend))
            except Void:
                return False

        small = shrink(program, fails)
        lines += ["", "with fewer steps:", str(small), *map(str, check(small, backend))]
    return "\n".join(lines)


def of(module):
    """What runs and what shows the cases of a module that generates and checks them."""

    def failures(seed, backend):
        return module.check(module.generate(seed, backend), backend)

    return failures, lambda seed, backend: str(module.generate(seed, backend))


_KINDS = {
    "programs": (program_failures, shown_program),
    "numerics": of(numerics),
    "shapeless": of(shapeless),
}
FAILURES, SHOWN = ({kind: each[i] for kind, each in _KINDS.items()} for i in range(2))
# Kinds whose cases start processes of their own, which cannot share a device's threads; they get
# the backend's name.
FORKING = {"shapeless"}
