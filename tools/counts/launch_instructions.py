"""For who changes C++: host instructions of a call and its launch; found calls that got slower.

    python tools counts.launch_instructions [SOURCE ...]

SOURCE is the root of a source tree, by default this one; several are compared with the first. The
extension runs on the software Metal device (tools/hostmetal), under callgrind, which must be
installed. "build" is all that Python, MLX and we do for a call that is not evaluated; "encode" is
that of a plan, made before or not, whose pipeline is there, without what the device and MLX's
encoder do. The calls have been made before.
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
GRADIENT = "mx.vjp(lambda x: mlx_norms.{}, [x], [x])[1]"
OPS = {
    "rms_norm": "mlx_norms.rms_norm(x, w)",
    "layer_norm": "mlx_norms.layer_norm(x, w, b)",
    "rms_norm, patched": "mx.fast.rms_norm(x, w, 1e-5)",
    "add_rms_norm": "mlx_norms.add_rms_norm(x, r, w)",
    "norm_add_norm": "mlx_norms.norm_add_norm(x, r, w, b)",
    "layer_norm, scale": "mlx_norms.layer_norm(x, scale=w, shift=b)",
    "rms_norm, gate": "mlx_norms.rms_norm(x, w, gate=r, activation='silu')",
    "rms_norm, axis": "mlx_norms.rms_norm(v, axis=0)",
    "l2_norm": "mlx_norms.l2_norm(x)",
    "layer_norm of heads": "mlx_norms.layer_norm(v, w, b)",
    "rms_norms of heads": "mlx_norms.rms_norms([v, v], [w, w])",
    "rms_norms of two": "mlx_norms.rms_norms([v, x], [w, None])",
    "group_norm": "mlx_norms.group_norm(v, 32, w, b)",
    "batch_norm": "mlx_norms.batch_norm(v, w, b, mean=w, var=b)",
    "rms_norm_linear": "mlx_norms.rms_norm_linear(x, w, v)",
    "quantized_matmul": "mlx_norms.quantized_matmul(x, *q)",
    "matmul": "mlx_norms.matmul(x, v.T)",
    "gradient of rms_norm": GRADIENT.format("rms_norm(x, w)"),
    "gradient of group_norm": GRADIENT.format("group_norm(x, 32, w, b)"),
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
x, r, v = mx.ones((1, 4096)), mx.ones((1, 4096)), mx.ones((64, 4096))
w, b = mx.ones(4096), mx.ones(4096)
q = mx.quantize(v)
mx.eval(x, r, v, w, b, q)
{patch}
for _ in range(3):
    mx.eval({op})
for _ in range({calls}):
    {evaluate}({op})
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


def instructions(site: Path, name: str, calls: int, *, encode: bool) -> int:
    """Those of a process with so many calls; of ``encode`` alone, if it evaluates them."""
    op = OPS[name]
    patch = "mlx_norms.patch()" if "patched" in name else ""
    script = SCRIPT.format(calls=calls, op=op, patch=patch, evaluate="mx.eval" if encode else "")
    toggles = ["mlx_norms::encode(*", *DEVICE] if encode else []
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [f"--toggle-collect={function}" for function in toggles]
        command += [sys.executable, "-P", "-c", script]
        path = os.pathsep.join(map(str, [site, *PATHS]))
        environment = os.environ | {"PYTHONPATH": path, "MLX_NORMS_SELF_CHECK": "0"}
        environment["PYTHONHASHSEED"] = "0"  # or Python's start takes other instructions
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
    for name in OPS:
        for what in ("build", "encode"):
            each = []
            for site in sites:
                more = CALLS if what == "encode" else 10 * CALLS
                few, many = (
                    instructions(site, name, calls, encode=what == "encode")
                    for calls in (CALLS, CALLS + more)
                )
                each.append((many - few) / more)
            ratios = "".join(f"  {n:6.0f} ({n / each[0]:.2f})" for n in each[1:])
            print(f"{name:24} {what:6} {each[0]:7.0f}{ratios}", flush=True)


if __name__ == "__main__":
    main()
