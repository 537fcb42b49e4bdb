"""torch's norms, as they are and compiled, Liger's and quack's, if they are installed."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from collections.abc import Callable, Iterable

from mlx_norms._measure import machine

from .configs import EPS

NAMES = ("mx.fast", "torch", "torch.compile", "liger", "quack")
_TORCH_DEVICES = {"cpu": "cpu", "cuda": "cuda", "metal": "mps"}
_PACKAGES = {name: ("torch",) for name in ("torch", "torch.compile")}
_PACKAGES |= {"liger": ("liger-kernel", "triton"), "quack": ("quack-kernels",)}


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

    def rms(x, weight):
        return F.rms_norm(x, weight.shape, weight, EPS)

    def norm_add_norm(x, residual, post_weight, weight):
        total = residual + rms(x, post_weight)
        return rms(total, weight), total

    return {
        "rms": rms,
        "gated_rms": lambda x, gate, w: rms(x, w) * F.silu(gate),
        "norm_add_norm": norm_add_norm,
        "layer": lambda x, w, b: F.layer_norm(x, w.shape, w, b, EPS),
        "add_rms": add_rms,
        "add_layer": add_layer,
        "matmul": torch.matmul,
    }


def _compiled() -> dict[str, Callable]:
    import torch

    # Each shape by itself, as a user with one shape has it.
    compiled = functools.partial(torch.compile, dynamic=False)
    return {name: compiled(function) for name, function in FUNCTIONS["torch"]().items()}


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


def _quack() -> dict[str, Callable]:
    from quack.rmsnorm import rmsnorm

    return {
        "rms": lambda x, w: rmsnorm(x, w, eps=EPS),
        "add_rms": lambda x, r, w: rmsnorm(x, w, residual=r, eps=EPS, prenorm=True),
    }


FUNCTIONS = {
    "torch": functools.cache(_torch),
    "torch.compile": functools.cache(_compiled),
    "liger": functools.cache(_liger),
    "quack": functools.cache(_quack),
}


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
