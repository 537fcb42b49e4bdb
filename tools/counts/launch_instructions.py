"""Counts the instructions that the host spends on encoding a launch for Metal.

    python tools counts.launch_instructions [SOURCE ...]

SOURCE is the root of a source tree, by default this one; several are compared with the first. The
extension runs on the software Metal device (tools/hostmetal), under callgrind, which must be
installed. Counted is `encode` of launch plans whose pipelines are there, without what the device
and MLX's encoder do.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from hostmetal.build import HostBuild
from support.variant import PATHS, ROOT

CALLS = 200
OPS = {
    "rms_norm": "mlx_norms.rms_norm(x, w)",
    "layer_norm": "mlx_norms.layer_norm(x, w, b)",
    "add_rms_norm": "mlx_norms.add_rms_norm(x, x, w)",
    "rms_norm_linear": "mlx_norms.rms_norm_linear(x, w, v)",
    "matmul": "mlx_norms.matmul(x, v.T)",
}
# Launches are neither checked nor run: callgrind runs no simulated kernel.
SCRIPT = """
from hostmetal.simulator import Simulator
Simulator.kernels = lambda self, library: {{}}
Simulator.pipeline = Simulator.run = lambda self, of: None
Simulator.thread_limit = lambda self, pipeline: 1024
Simulator.encode = lambda self, launch: []
import _hostmetal
_hostmetal.attach(Simulator(0, 0))
import mlx.core as mx, mlx_norms
x, v, w, b = mx.ones((1, 4096)), mx.ones((64, 4096)), mx.ones(4096), mx.ones(4096)
mx.eval(x, v, w, b)
for _ in range({calls}):
    mx.eval({op})
"""
# What encode calls of the device: collecting stops there, and goes on after it.
DEVICE = (
    "mlx::core::metal::get_command_encoder(*",
    "mlx::core::metal::device(*",
    "mlx::core::metal::Device::get_kernel(*",
    "mlx::core::metal::Device::get_library(*",
    "mlx::core::metal::CommandEncoder::get_command_encoder(*",
    "mlx::core::metal::CommandEncoder::set_input_array(*",
    "mlx::core::metal::CommandEncoder::set_output_array(*",
    "mlx::core::metal::CommandEncoder::dispatch_threadgroups(*",
    "mlx::core::metal::CommandEncoder::add_temporaries(*",
    "objc_msgSend",
)


def instructions(site: Path, op: str, calls: int) -> int:
    """Those of encode in so many calls and one more."""
    with tempfile.TemporaryDirectory() as folder:
        toggles = ["mlx_norms::encode(*", *DEVICE]
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [f"--toggle-collect={name}" for name in toggles]
        command += [sys.executable, "-c", SCRIPT.format(calls=calls, op=op)]
        path = os.pathsep.join(map(str, [site, *PATHS]))
        environment = os.environ | {"PYTHONPATH": path, "MLX_NORMS_SELF_CHECK": "0"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return int(re.search(r"Collected : (\d+)", done.stderr)[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="*", type=Path, default=[ROOT], metavar="SOURCE")
    given = parser.parse_args()
    sites = []
    for source in given.sources:
        # Callgrind finds functions by names, which a release is stripped of.
        build = HostBuild(source.resolve() / "build/named", source.resolve(), named=True)
        build.compile()
        sites.append(build.site)
    for name, op in OPS.items():
        each = []
        for site in sites:
            first = instructions(site, op, 1)
            each.append((instructions(site, op, 1 + CALLS) - first) / CALLS)
        ratios = "".join(f"  {n:6.0f} ({n / each[0]:.2f})" for n in each[1:])
        print(f"{name:16} {each[0]:6.0f}{ratios}  instructions per launch", flush=True)


if __name__ == "__main__":
    main()
