"""What cannot work is refused at import, in one sentence that says what to type.

Each case is made for real: virtual environments with another MLX or with none of its backends, and
an extension built with another nanobind. That takes packages from an index and a compiler.
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import mlx_norms
from mlx_norms import _built

ROOT = Path(__file__).parent.parent
OTHER_MLX = "0.32.3"
OTHER_NANOBIND = "2.15.0"


def run(*command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Environment:
    """A virtual environment with these packages and a copy of the installed mlx_norms."""

    def __init__(self, path, *packages):
        venv.create(path, with_pip=True)
        self.python = path / "bin" / "python"
        self.pip("install", *packages)
        (purelib,) = path.glob("lib/python*/site-packages")
        self.package = purelib / "mlx_norms"
        for root in mlx_norms.__path__:
            shutil.copytree(root, self.package, dirs_exist_ok=True)

    def pip(self, *arguments):
        run(self.python, "-m", "pip", "--disable-pip-version-check", "-q", *arguments)

    def import_error(self):
        """The message of the ImportError that `import mlx_norms` raises, which must be all."""
        code = "try: import mlx_norms\nexcept ImportError as e: print(e)"
        message = run(self.python, "-c", code, cwd="/").strip()
        # Who tries again in the same process is told the same.
        assert run(self.python, "-c", f"{code}\n{code}", cwd="/").splitlines() == [message] * 2
        return message

    def use(self):
        code = (
            "import mlx.core as mx, mlx_norms;"
            "print(mlx_norms.rms_norm(mx.array([3.0, 3.0]), eps=0.0).tolist())"
        )
        return run(self.python, "-c", code, cwd="/").strip()


def is_one_sentence(text):
    return "\n" not in text and text.endswith(".")


def test_without_extension(tmp_path):
    """As in a checkout that nothing was built in."""
    shutil.copytree(ROOT / "mlx_norms", tmp_path / "mlx_norms")
    # -S: without site-packages, where mlx_norms is installed.
    code = "import mlx_norms"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    error = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and error.startswith("ImportError: mlx_norms is here as source")
    assert "pip install '.[cpu]'" in error


@pytest.mark.applies(sys.platform == "linux")  # where MLX's library is a package of its own
def test_without_libmlx(tmp_path):
    """Then with it: the sentence names what mends it."""
    env = Environment(tmp_path / "venv", f"mlx=={_built.MLX_VERSION}")
    message = env.import_error()
    assert is_one_sentence(message)
    assert "libmlx.so" in message and "pip install 'mlx_norms[cpu]'" in message
    assert "[cuda12]" in message and "[cuda13]" in message

    env.pip("install", f"mlx-cpu=={_built.MLX_VERSION}")
    assert env.use() == "[1.0, 1.0]"


def test_against_another_mlx(tmp_path):
    """Then against the right one, as the sentence says it."""
    env = Environment(tmp_path / "venv", f"mlx[cpu]=={OTHER_MLX}")
    message = env.import_error()
    assert is_one_sentence(message)
    assert f"built against mlx {_built.MLX_VERSION}" in message
    assert f"mlx {OTHER_MLX} is installed" in message
    _, command = message.split("pip ")
    env.pip(*command.rstrip(".").replace("'", "").split())
    assert env.use() == "[1.0, 1.0]"


def test_with_another_backend_version(tmp_path):
    env = Environment(tmp_path / "venv", f"mlx=={_built.MLX_VERSION}", f"mlx-cpu=={OTHER_MLX}")
    message = env.import_error()
    assert is_one_sentence(message)
    assert f"mlx-cpu {OTHER_MLX} is installed" in message


@pytest.mark.build
def test_with_another_nanobind(tmp_path):
    env = Environment(
        tmp_path / "venv",
        f"mlx[cpu]=={_built.MLX_VERSION}",
        f"nanobind=={OTHER_NANOBIND}",
        "cmake",
        "ninja",
    )
    build = tmp_path / "build"
    cmake = env.python.parent / "cmake"
    path = {"PATH": f"{env.python.parent}:/usr/local/bin:/usr/bin:/bin"}
    options = [f"-DPython_EXECUTABLE={env.python}", "-DCMAKE_CXX_FLAGS_RELEASE=-O0", "-GNinja"]
    options.append("-DMLX_NORMS_CPU_LEVELS=baseline")
    run(cmake, "-S", ROOT, "-B", build, *options, env=path)
    run(cmake, "--build", build, "--target", "_ext", env=path)
    (built,) = build.glob("_ext*.so")
    (env.package / built.name).write_bytes(built.read_bytes())
    (env.package / "_built.py").write_bytes((build / "_built.py").read_bytes())

    message = env.import_error()
    assert is_one_sentence(message)
    assert f"built with nanobind {OTHER_NANOBIND}" in message
    assert message.count("ABI") == 2
    _, command = message.split("pip ")
    assert command == "install --force-reinstall --no-deps . in its checkout."
    # Not where the checkout is built for use: CMake would keep what makes it quick.
    quickly = {
        "build-dir": tmp_path / "again",
        "cmake.define.CMAKE_CXX_FLAGS_RELEASE": "-O0",
        "cmake.define.MLX_NORMS_CPU_LEVELS": "baseline",
    }
    settings = [f"--config-settings={name}={value}" for name, value in quickly.items()]
    env.pip("install", "--force-reinstall", "--no-deps", *settings, ROOT)
    assert env.use() == "[1.0, 1.0]"
