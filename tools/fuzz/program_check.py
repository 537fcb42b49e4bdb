"""Compares all runs of a program with the one that uses MLX's own norms."""

from dataclasses import dataclass

from support.oracle import numpy32

from .backends import fuse_compiled
from .judge import Judge, differing_bits
from .modes import FUSE, MODES, UNFUSED, WITH_PROJECTIONS, run, run_stock
from .promises import Promise, promises

# A fused sum depends on its norm's weight, which may be a captured slice; stock's sum does not.
SHAPELESS_SLICE = "[Primitive::output_shapes] Slice cannot infer output shapes."


@dataclass(frozen=True)
class Failure:
    """What is wrong in a mode, and the number of the wrong value, if it is one value."""

    mode: str
    text: str
    number: int | None = None

    def __str__(self):
        value = "" if self.number is None else f" v{self.number}"
        return f"{self.mode}:{value} {self.text}"


class Void(Exception):
    """MLX itself cannot run the program to its end."""


def check(program, backend):
    """The failures of a program.

    Raises:
        Void: If its stock run raises, or does not return the same results twice.
    """
    fuse_compiled(program.fuses)
    backend.tell_stage("stock")
    try:
        stock = run_stock(program, backend)
    except Exception as error:
        raise Void(f"{type(error).__name__}: {error}") from error
    backend.tell_stage("ours")
    judge = Judge(program, backend, stock)
    promised = promises(program, compiled_is_exact=not program.fuses or backend.name == "cpu")
    failures = [Failure("the device", fault) for fault in backend.faults()]
    unfused = None
    for mode in (*MODES, FUSE) if program.pure else MODES:
        try:
            got = run(program, backend, mode)
        except Exception as error:
            if str(error) != SHAPELESS_SLICE:
                failures.append(Failure(mode, f"raised {type(error).__name__}: {error}"))
            continue
        failures += compare(judge, stock, got, promised, mode)
        rounds_otherwise = mode in WITH_PROJECTIONS and backend.name != "cpu"  # no launch of both
        if mode == UNFUSED:
            unfused = got
        elif unfused and not rounds_otherwise:
            failures += same_norms(unfused, got, promised, mode)
        failures += [Failure(mode, fault) for fault in backend.faults()]
    if failures and not repeats(run_stock(program, backend), stock):
        raise Void("a stock run gives other bits each time")
    return failures


def repeats(again, stock):
    return all(
        differing_bits(numpy32(again.values[number]), numpy32(a)) is None
        for number, a in stock.values.items()
    )


def compare(judge, stock, got, promised, mode):
    """Compares a run with the stock run."""
    failures = []
    if got.raised != stock.raised:
        failures.append(Failure(mode, f"caught {got.raised}, not {stock.raised}"))
    for number, a in got.values.items():
        if text := judge.wrong(number, a, promised[number]):
            failures.append(Failure(mode, text, number))
    return failures


def same_norms(unfused, got, promised, mode):
    """Compares a run with our norms without fusion."""
    failures = []
    for number, a in got.values.items():
        if promised[number] == Promise.SAME_NORMS:
            if text := differing_bits(numpy32(a), numpy32(unfused.values[number])):
                failures.append(Failure(f"{mode} beside fuse=False", text, number))
    return failures
