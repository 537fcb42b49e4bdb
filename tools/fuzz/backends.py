"""The backend on which a worker process runs its cases."""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx

from mlx_norms import _built

DEVICES = {"cpu": mx.cpu, "metal-sim": mx.cpu, "cuda": mx.gpu, "metal": mx.gpu}


@dataclass
class Backend:
    """A device, its streams, and its reports other than results.

    Attributes:
        name: One of `DEVICES`.
        tell_stage: Called with "stock" before MLX's own norms run, and with "ours" before ours run.
        streams: The default stream, and others that steps of programs may use.
    """

    name: str
    tell_stage: Callable[[str], None] = lambda stage: None
    streams: list = field(default_factory=list)

    def __post_init__(self):
        if self.name not in _built.BACKENDS:
            raise SystemExit(f"{_built.__file__} was not built for {self.name}")
        # The cases are the check here: a kernel that fails must not be replaced by MLX's ops.
        os.environ["MLX_NORMS_SELF_CHECK"] = "0"
        os.environ.setdefault("MLX_ENABLE_TF32", "0")  # as in conftest.py
        device = DEVICES[self.name]
        mx.set_default_device(device)
        # No CPU stream beside a GPU's: MLX's CUDA backend moves a buffer that the CPU reads to
        # other memory, while kernels that were encoded before may still use its old address.
        self.streams = [mx.default_stream(device), mx.new_stream(device), mx.new_stream(device)]
        mx.eval(mx.zeros(1) + 1)
        self._simulator = None
        if self.simulated:
            import hostmetal

            self._simulator = hostmetal.start()

    @property
    def simulated(self):
        return self.name == "metal-sim"

    def faults(self):
        """The faults that the simulated device has found since the last call."""
        if self._simulator is None:
            return []
        self._simulator.wait()
        faults = list(dict.fromkeys(self._simulator.faults))
        self._simulator.clear()
        return faults


def fuse_compiled(fuse):
    """Sets whether mx.compile fuses elementwise ops: on the CPU each such kernel takes seconds.

    MLX's Python API can only switch mx.compile on or off as a whole.
    """
    library = next((Path(mx.__file__).parent / "lib").glob("libmlx.*"))
    set_mode = getattr(
        ctypes.CDLL(str(library)), "_ZN3mlx4core16set_compile_modeENS0_11CompileModeE"
    )
    set_mode.argtypes, set_mode.restype = [ctypes.c_int], None
    set_mode(3 if fuse else 2)  # CompileMode::enabled, CompileMode::no_fuse
