"""A call, and its gradients, held against the oracle."""

import oracle
from inputs import cotangents


def check(norm, arrays, note=""):
    """Values of every output."""
    __tracebackhide__ = True
    check_outputs(norm, arrays, norm(arrays), note)


def check_with_gradients(norm, arrays, cots=None, note=""):
    """Values of every output, and gradients of every argument."""
    __tracebackhide__ = True
    cots = cots or cotangents(norm, arrays)
    outputs, gradients = norm.vjp(arrays, cots)
    check_outputs(norm, arrays, outputs, note)
    check_gradients(norm, arrays, cots, gradients, note)


def check_outputs(norm, arrays, outputs, note=""):
    __tracebackhide__ = True
    for truth, got in zip(oracle.forward(norm, arrays), outputs, strict=True):
        truth.check(got, note)


def check_gradients(norm, arrays, cots, gradients, note=""):
    """``cots`` may hold None for a cotangent that is zero."""
    __tracebackhide__ = True
    truths = oracle.gradients(norm, arrays, *cots)
    for truth, got in zip(truths.values(), gradients, strict=True):
        truth.check(got, note)
