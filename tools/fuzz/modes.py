"""The modes in which a program is run."""

import contextlib
import functools
from dataclasses import dataclass

import mlx.core as mx

import mlx_norms

from .jitter import jittered
from .norms import Ours, Stock, TiedStock, composed
from .program import evaluate, inputs_of, run_steps, start

UNFUSED = "patched(fuse=False)"
FUSE = "fuse"


@contextlib.contextmanager
def process_patched(**options):
    mlx_norms.patch(**options)
    try:
        yield
    finally:
        mlx_norms.unpatch()


WITH_PROJECTIONS = {
    "patched(projections=True)": functools.partial(mlx_norms.patched, projections=True),
    "patch(projections=True)": functools.partial(process_patched, projections=True),
}
MODES = {
    # The first mode; the others are compared with it.
    UNFUSED: functools.partial(mlx_norms.patched, fuse=False),
    "patched": mlx_norms.patched,
    **WITH_PROJECTIONS,
}


@dataclass(frozen=True)
class Run:
    """Evaluated arrays by number, and the exceptions that were caught, as (type, text)."""

    values: dict
    raised: list


def run(program, backend, mode):
    """Runs a program in one of `MODES`, or within mlx_norms.fuse."""
    if mode == FUSE:
        return _fused(program, backend)
    arrays = inputs_of(program)
    with MODES[mode]():
        return _run(program, backend, Ours, arrays)


def run_stock(program, backend, jitter=None, times=1, dtype=None):
    """Runs a program with MLX's own norms. ``jitter``, if not None, is the seed of errors that are
    added to them, and ``times`` is their size; ``dtype``, if not None, is that of all inputs."""
    with contextlib.ExitStack() as stack:
        if backend.name == "cuda":
            stack.enter_context(replaced("layer_norm", composed))
        if jitter is not None:
            for name in ("rms_norm", "layer_norm"):
                stack.enter_context(
                    replaced(name, functools.partial(jittered, seed=jitter, times=times))
                )
        norms = Stock if jitter is None else TiedStock
        arrays = inputs_of(program)
        if dtype:
            arrays = [a.astype(dtype) for a in arrays]
        return _run(program, backend, norms, arrays)


@contextlib.contextmanager
def replaced(name, replacement_of):
    before = getattr(mx.fast, name)
    setattr(mx.fast, name, replacement_of(before))
    try:
        yield
    finally:
        setattr(mx.fast, name, before)


def _run(program, backend, norms, arrays):
    context = start(program, norms, backend.streams, arrays)
    run_steps(program.steps, context)
    evaluate(program, context.values)
    return Run(context.values, context.raised)


def _fused(program, backend):
    """Runs a pure program as one function of its inputs."""

    def function(*arrays):
        context = start(program, Ours, backend.streams, arrays)
        run_steps(program.steps, context)
        return context.values

    values = mlx_norms.fuse(function)(*inputs_of(program))
    evaluate(program, values)
    return Run(values, [])
