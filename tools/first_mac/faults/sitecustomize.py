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


def _plant(simulator) -> None:
    if "compiler" in PLANTED:
        simulator.falters = lambda name: INTERRUPTED
    if "library" in PLANTED:
        simulator.falters = lambda name: TEXT_ERROR if "norm_rope" in name else None
    if "limit" in PLANTED:
        limit = simulator.thread_limit
        simulator.thread_limit = lambda pipeline: (
            32 if pipeline.kernel.startswith("norm_4_1_") else limit(pipeline)
        )
    if "wrong" in PLANTED and _is("checks rope"):
        run_launch = simulator.run
        simulator.run = lambda launch: (
            None if launch.pipeline.kernel.startswith("norm_rope") else run_launch(launch)
        )
    if "abort" in PLANTED:
        run = simulator.run

        def aborting(launch):
            once = Path(os.environ["FIRST_MAC_ONCE"])
            if "linear" in os.environ.get("PYTEST_CURRENT_TEST", "") and not once.exists():
                once.touch()
                print("-[MTLDebugComputeCommandEncoder ...] failed assertion", file=sys.stderr)
                os.abort()
            run(launch)

        simulator.run = aborting


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

    _plant(hostmetal.start())
    if "row" in PLANTED and _is("speed"):
        _raise_in_a_row()
    if "hang" in PLANTED and _is("checks rms_norms") and not _is("validated"):
        _hang_in_a_check()
    if "model" in PLANTED and _is("compare"):
        sys.modules["mlx_lm"] = None
