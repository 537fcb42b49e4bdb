"""A wheel without code, of the names that a built one has."""

import subprocess
import sys


def wheel(directory, mlx, tag="cp311-cp311-linux_x86_64", kernels="kernels"):
    """A wheel for this release of MLX, whose extension and kernels are texts."""
    name = "mlx_norms-0.1.0"
    folder = f"mlx_norms/_mlx_{mlx.replace('.', '_')}"
    files = {
        "mlx_norms/__init__.py": "",
        f"{folder}/_ext.so": mlx,
        f"{folder}/libmlx_norms_cpu.so": kernels,
        f"{name}.dist-info/METADATA": (
            "Metadata-Version: 2.2\nName: mlx_norms\nVersion: 0.1.0\n"
            f"Requires-Dist: mlx=={mlx}\nRequires-Dist: rich; extra == 'demo'\n"
        ),
        f"{name}.dist-info/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n"
        ),
    }
    root = directory / mlx / name
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    command = [sys.executable, "-m", "wheel", "pack", "--dest-dir", directory / mlx, root]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return directory / mlx / f"{name}-{tag}.whl"
