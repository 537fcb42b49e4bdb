"""torch's and Liger's norms, if they are installed."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from collections.abc import Callable, Iterable

from . import machine
from .configs import EPS

NAMES = ("mx.fast", "torch", "liger")
_TORCH_DEVICES = {"cpu": "cpu", "cuda": "cuda", "metal": "mps"}
_PACKAGES = {"torch": ("torch",), "liger": ("liger-kernel", "triton")}


def torch_device() -> str:
    """torch's name of MLX's default device."""
    return _TORCH_DEVICES[machine.backend()]


def synchronize() -> None:
    if (device := torch_device()) != "cpu":
        getattr(sys.modules["torch"], device).synchronize()


def random(shape: tuple[int, ...], dtype: str, gradient: bool = False):
    torch = sys.modules["torch"]
    options = {"device": torch_device(), "dtype": getattr(torch, dtype)}
    return torch.randn(shape, requires_grad=gradient, **options)


def _torch() -> dict[str, Callable]:
    import torch
    import torch.nn.functional as F

    torch.empty(1, device=torch_device())  # raises if torch was built without this device

    def add_rms(x, residual, weight):
        total = x + residual
        return F.rms_norm(total, weight.shape, weight, EPS), total

    def add_layer(x, residual, weight, bias):
        total = x + residual
        return F.layer_norm(total, weight.shape, weight, bias, EPS), total

    return {
        "rms": lambda x, w: F.rms_norm(x, w.shape, w, EPS),
        "layer": lambda x, w, b: F.layer_norm(x, w.shape, w, b, EPS),
        "add_rms": add_rms,
        "add_layer": add_layer,
        "matmul": torch.matmul,
    }


def _liger() -> dict[str, Callable]:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    # An offset of 0 and the casts of a llama; not in place, like the other providers.
    options = (EPS, 0.0, "llama", False)
    return {
        "rms": lambda x, w: LigerRMSNormFunction.apply(x, w, *options),
        "layer": lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, EPS),
        "add_rms": lambda x, r, w: LigerFusedAddRMSNormFunction.apply(x, r, w, *options),
    }


FUNCTIONS = {"torch": functools.cache(_torch), "liger": functools.cache(_liger)}


def available(names: Iterable[str], say: Callable[[str], None]) -> list[str]:
    """The peers among ``names`` that are installed; tells ``say`` why others are not available."""
    found = []
    for name in names:
        try:
            if name in FUNCTIONS:
                FUNCTIONS[name]()
        except Exception as error:  # torch and Triton may raise anything
            say(f"no {name} here: {error}")
        else:
            found.append(name)
    return found


def versions(names: Iterable[str]) -> dict[str, str]:
    packages = [package for name in names for package in _PACKAGES.get(name, ())]
    return {package: importlib.metadata.version(package) for package in packages}
