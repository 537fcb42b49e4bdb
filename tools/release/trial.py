"""Packages are installed where there is nothing else, and used."""

import subprocess
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from release.wheels import clean, environment

# Norms, patched and back, beside MLX's; run by itself in the package's environment.
PROGRAM = """
import mlx.core as mx
import mlx.nn as nn
import mlx_norms

x, w = mx.random.normal((8, 512)), mx.random.normal((512,))
assert mx.allclose(mlx_norms.rms_norm(x, w), mx.fast.rms_norm(x, w, 1e-5), atol=1e-4)
assert mx.allclose(mlx_norms.layer_norm(x, w), mx.fast.layer_norm(x, w, None, 1e-5), atol=1e-4)
y, total = mlx_norms.add_rms_norm(x, x, w)
assert mx.array_equal(total, x + x)
gradient = mx.grad(lambda x: mlx_norms.rms_norm(x, w).sum())(x)
assert mx.allclose(gradient, mx.grad(lambda x: mx.fast.rms_norm(x, w, 1e-5).sum())(x), atol=1e-3)
model = nn.Sequential(nn.Linear(512, 512), nn.RMSNorm(512), nn.LayerNorm(512))
before = model(x)
with mlx_norms.patched():
    assert mx.allclose(model(x), before, atol=1e-4)
    report = mlx_norms.report()
    assert report.calls == 2 and not report.passed_on, report
print(f"mlx_norms {mlx_norms.__version__} with MLX {mx.__version__} on {mx.default_device()}")
"""


def fits(wheel: Path) -> bool:
    """Whether this Python on this machine can install it."""
    return not parse_wheel_filename(wheel.name)[3].isdisjoint(sys_tags())


def run(outdir: Path, releases: list[str]) -> None:
    """Tries the wheels of a folder with each MLX; says of which it cannot.

    Raises:
        subprocess.CalledProcessError: If one does not install or does not work.
    """
    record = outdir / "parts" / "tried"
    record.mkdir(parents=True, exist_ok=True)
    for wheel in sorted(outdir.glob("*.whl")):
        if not fits(wheel):
            print(f"{wheel.name}: NOT TRIED, it is for another Python or system")
            continue
        for mlx in releases:
            file = record / f"{wheel.stem}-mlx_{mlx}.txt"
            if not file.exists():
                file.write_text(tried(wheel, mlx, outdir / "parts" / "trial"))
            print(f"{wheel.name}: {file.read_text().splitlines()[-1]}", flush=True)


def tried(wheel: Path, mlx: str, folder: Path) -> str:
    """What a wheel prints in an environment with this MLX."""
    backend = "" if "macosx" in wheel.name else "[cpu]"
    python = environment(folder, f"{wheel}{backend}", f"mlx=={mlx}")
    printed = ""
    for command in (["-m", "mlx_norms", "info"], ["-c", PROGRAM]):
        done = subprocess.run(
            [python, *command], cwd=folder, env=clean(), check=True, capture_output=True, text=True
        )
        printed += done.stdout
    return printed
