"""For compatibility: runs tiny models with MLX's norms and patched, in a package's environment.

    python tiny_run.py PACKAGE

Prints JSON, for each family of models/PACKAGE.py: the largest differences of its outputs and of its
gradients, each as a share of the largest value, and what the patch's report counts. The weights are
random, float32; nothing is downloaded. Each is computed patched twice, as the first call of a norm
that a model writes is where it is recognized.
"""

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map

import mlx_norms

MODELS = {path.stem: path for path in (Path(__file__).parent / "models").glob("*.py")}
COUNTS = "calls fused passed_on written around ropes rope_pairs".split()


def is_floating(value: object) -> bool:
    return isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.floating)


def without_constants(parameter: mx.array) -> mx.array:
    """Norms' weights that are all 1 would hide that one is left out."""
    return (
        parameter + 0.1 * mx.random.normal(parameter.shape) if is_floating(parameter) else parameter
    )


def floating(outputs: object) -> list[mx.array]:
    """The arrays in nested lists, tuples, dicts and objects such as dataclasses."""
    if isinstance(outputs, mx.array):
        return [outputs] if is_floating(outputs) else []
    if isinstance(outputs, dict):
        outputs = [*outputs.values()]
    elif hasattr(outputs, "__dict__"):
        outputs = [*vars(outputs).values()]
    elif not isinstance(outputs, (list, tuple)):
        return []
    return [array for each in outputs for array in floating(each)]


def results(model: nn.Module, run: Callable) -> tuple[list[mx.array], list[mx.array]]:
    """The outputs, and the gradients of the sum of their squares."""

    def loss(model: nn.Module) -> mx.array:
        return sum(mx.square(y).sum() for y in floating(run(model)))

    outputs = floating(run(model))
    gradients = [g for _, g in tree_flatten(nn.value_and_grad(model, loss)(model)[1])]
    mx.eval(outputs, gradients)
    return outputs, gradients


def difference(expected: list[mx.array], got: list[mx.array], least: float = 0.0) -> float:
    """The largest, as a share of an array's largest value, and at least of ``least``."""
    shares = [mx.array(0.0)]
    for a, b in zip(expected, got, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        shares.append(mx.abs(a - b).max() / mx.maximum(mx.abs(a).max(), max(least, 1e-30)))
    return mx.stack(shares).max().item()  # NaN if one is


def largest(arrays: list[mx.array]) -> float:
    return max((mx.abs(a).max().item() for a in arrays), default=0.0)


def compare(model: nn.Module, run: Callable) -> dict:
    """The differences and counts of a model."""
    model.update(tree_map(without_constants, model.parameters()))
    model.eval()
    for module in model.modules():
        module.freeze(
            recurse=False,
            keys=[k for k, v in module.items() if isinstance(v, mx.array) and not is_floating(v)],
        )
    outputs, gradients = results(model, run)
    # That of a bias before a norm is nothing but rounding.
    least = 1e-2 * largest(gradients)
    found = dict(difference=0.0, gradient=0.0)
    mlx_norms.patch()
    try:
        for _ in range(2):
            got, slopes = results(model, run)
            shares = difference(outputs, got), difference(gradients, slopes, least)
            for key, share in zip(found, shares, strict=True):
                found[key] = share if share != share else max(found[key], share)
        report = mlx_norms.report()
    finally:
        mlx_norms.unpatch()
    return found | {name: getattr(report, name) for name in COUNTS}


def main() -> None:
    mx.random.seed(0)
    found = {}
    for name, model, run in runpy.run_path(str(MODELS[sys.argv[1]]))["families"]():
        found[name] = compare(model, run)
        print(name, found[name], file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
