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


def numeric_failures(seed, backend):
    return numerics.check(numerics.generate(seed, backend), backend)


def shown_numerics(seed, backend):
    return str(numerics.generate(seed, backend))


def shapeless_failures(seed, backend):
    return shapeless.check(shapeless.generate(seed), backend)


def shown_shapeless(seed, backend):
    return str(shapeless.generate(seed))


FAILURES = {
    "programs": program_failures,
    "numerics": numeric_failures,
    "shapeless": shapeless_failures,
}
SHOWN = {"programs": shown_program, "numerics": shown_numerics, "shapeless": shown_shapeless}
# Kinds whose cases start processes of their own, which cannot share a device's threads; they get
# the backend's name.
FORKING = {"shapeless"}
