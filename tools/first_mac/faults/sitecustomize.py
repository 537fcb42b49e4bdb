"""Attaches the simulated device, as tools/hostmetal does, with the faults of FIRST_MAC_FAULT.

Before it on Python's path, so in each process of a rehearsal (tools/first_mac/rehearsal.py).
"""

import os
import sys
from pathlib import Path

_TOOLS = Path(__file__).resolve().parents[2]
sys.path += [str(_TOOLS), str(_TOOLS / "metalsim")]

PLANTED = os.environ.get("FIRST_MAC_FAULT", "").split("+")
TEXT_ERROR = "program_source:67:14: error: reference to 'level' is ambiguous"
INTERRUPTED = "Compiler encountered XPC_ERROR_CONNECTION_INTERRUPTED"


def _is(*words: str) -> bool:
    return any(word in " ".join(sys.orig_argv) for word in words)


def _plant(device: type) -> None:
    """In the simulator's class: the device asks for its methods when it is attached."""
    limit, run = device.thread_limit, device.run

    def low_limit(self, pipeline):
        return 32 if pipeline.kernel.startswith("norm_4_1_") else limit(self, pipeline)

    def aborting(self, launch):
        once = Path(os.environ["FIRST_MAC_ONCE"])
        if "linear" in os.environ.get("PYTEST_CURRENT_TEST", "") and not once.exists():
            once.touch()
            print("-[MTLDebugComputeCommandEncoder ...] failed assertion", file=sys.stderr)
            os.abort()
        run(self, launch)

    def writing_nothing(self, launch):
        if not launch.pipeline.kernel.startswith("norm_rope"):
            run(self, launch)

    if "limit" in PLANTED:
        device.thread_limit = low_limit
    if "abort" in PLANTED and _is("pytest"):
        device.run = aborting
    if "wrong" in PLANTED and _is("checks rope"):
        device.run = writing_nothing


def _fail_to_compile(simulator) -> None:
    if "compiler" in PLANTED:
        simulator.falters = lambda name: INTERRUPTED
    if "library" in PLANTED:
        simulator.falters = lambda name: TEXT_ERROR if "norm_rope" in name else None


def _raise_in_a_row() -> None:
    import mlx_norms

    def raising(*_, **__):
        raise RuntimeError("[metal::malloc] Attempting to allocate more than the maximum buffer")

    mlx_norms.add_rms_norm = raising


def _hang_in_a_check() -> None:
    import time

    from mlx_norms.commands import selftest

    selftest._check_sizes = lambda *_: time.sleep(3600)


# The builds of the device ask Python for its folders alone.
if os.environ.get("MLX_NORMS_UNDER_TEST"):
    import hostmetal
    from hostmetal.simulator import Simulator

    _plant(Simulator)
    _fail_to_compile(hostmetal.start())
    if "row" in PLANTED and _is("speed"):
        _raise_in_a_row()
    if "hang" in PLANTED and _is("checks rms_norms") and not _is("validated"):
        _hang_in_a_check()
    if "model" in PLANTED and _is("compare"):
        sys.modules["mlx_lm"] = None
