"""What kind of machine it is, and what is installed on it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

from . import items

_SECONDS = 10  # of a command
TOOLCHAIN = "xcodebuild -downloadComponent MetalToolchain"
XCODE = f"Xcode 26 or newer, of the App Store, then: {TOOLCHAIN}"
_SYSCTL = {
    "model": "hw.model",
    "cores": "hw.ncpu",
    "performance cores": "hw.perflevel0.physicalcpu",
    "efficiency cores": "hw.perflevel1.physicalcpu",
    "memory, bytes": "hw.memsize",
}
# Of a GPU that macOS has in a virtual machine, by what others met on GitHub's.
VIRTUAL = (
    "A virtual machine's GPU: its times are no figures of a Mac. Known of GitHub's: 7 GB of "
    "memory, buffers of 3.75 GB at most, GPU family Apple5 in public, so that what needs a newer "
    'one may fail; and after heavy use "Compilation failed (code=2)" for every kernel of every '
    "process, which a new machine alone ends."
)
_PACKAGES = ("mlx", "mlx-metal", "mlx_norms", "mlx-lm", "numpy", "pytest", "rich", "nanobind")
_GPU_FACTS = """
import json, mlx.core as mx
print(json.dumps({"metal": mx.metal.is_available(), **mx.device_info(mx.default_device())}))
"""


def printed(*command: str) -> str:
    """What a command prints.

    Raises:
        items.NotRun: If there is no such command here, or it fails.
    """
    if not shutil.which(command[0]):
        raise items.NotRun(f"there is no {command[0]} here")
    options = dict(capture_output=True, text=True, timeout=_SECONDS, errors="replace")
    done = subprocess.run(command, **options)
    text = items.private((done.stdout or done.stderr).strip())
    if done.returncode != 0:
        raise items.NotRun(f"{' '.join(command)}: {text or f'exit status {done.returncode}'}")
    return text


def sysctl(name: str) -> str:
    return printed("sysctl", "-n", name)


def is_virtual() -> bool:
    try:
        return sysctl("kern.hv_vmm_present") == "1"
    except items.NotRun:
        return False


def system() -> str:
    version = platform.mac_ver()[0]
    return f"macOS {version}, {platform.machine()}" if version else platform.platform()


def system_version() -> tuple[int, ...]:
    """macOS's; nothing elsewhere."""
    return tuple(map(int, platform.mac_ver()[0].split("."))) if platform.mac_ver()[0] else ()


def gpu_cores() -> str:
    text = printed("system_profiler", "SPDisplaysDataType")
    found = re.search(r"Total Number of Cores: (\d+)", text)
    return found[1] if found else "not said"


def compiler() -> str:
    """Xcode's compiler of Metal.

    Raises:
        items.NotRun: If there is none, with the command that installs it.
    """
    if not shutil.which("xcrun"):
        reason = "there is no Xcode: kernels are compiled when they are first called"
        raise items.NotRun(reason, XCODE)
    options = dict(capture_output=True, text=True, timeout=_SECONDS, errors="replace")
    done = subprocess.run(["xcrun", "-sdk", "macosx", "metal", "--version"], **options)
    text = items.private((done.stdout + done.stderr).strip())
    if done.returncode != 0:
        help = TOOLCHAIN if "Toolchain" in text else XCODE
        raise items.NotRun(f"Xcode has no compiler of Metal: {text}", help)
    return text.splitlines()[0] if text else "it says no version"


def packages() -> dict[str, str]:
    import importlib.metadata

    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def device() -> dict:
    """What MLX says of its device, by another process: MLX may end one."""
    import json

    done = subprocess.run(
        [sys.executable, "-c", _GPU_FACTS], capture_output=True, text=True, timeout=2 * _SECONDS
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-600:])
    return json.loads(done.stdout)


def of_package() -> dict:
    import json

    command = [sys.executable, "-m", "mlx_norms", "info", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _SECONDS)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-600:])
    return json.loads(items.private(done.stdout))["facts"]


def listed() -> list[items.Item]:
    def fact(name: str, of: Callable[[], object]) -> items.Item:
        return name, lambda: {"value": of()}

    return [
        fact("system", system),
        fact("chip", lambda: sysctl("machdep.cpu.brand_string")),
        *(fact(name, lambda key=key: sysctl(key)) for name, key in _SYSCTL.items()),
        fact("GPU's cores", gpu_cores),
        fact("virtual machine", lambda: VIRTUAL if is_virtual() else "no"),
        fact("Xcode", lambda: printed("xcodebuild", "-version")),
        fact("compiler of Metal", compiler),
        fact("Python", lambda: items.private(f"{platform.python_version()}, {sys.executable}")),
        fact("packages", packages),
        fact("commit", lambda: printed("git", "describe", "--always", "--dirty", "--abbrev=12")),
        fact("MLX's device", device),
        fact("mlx_norms", of_package),
        fact(
            "variables",
            lambda: {
                key: items.private(os.environ[key]) for key in sorted(os.environ) if _ours(key)
            },
        ),
    ]


def _ours(key: str) -> bool:
    return key.startswith(("MLX_", "MTL_", "METAL_", "METALSIM_"))
