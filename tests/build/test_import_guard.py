"""What cannot work is refused at import, in one sentence that says what to type.

Each case is made for real: virtual environments with another MLX or with none of its backends, and
an extension built with another nanobind. That takes packages from an index and a compiler.
"""

import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import venv

import pytest

import mlx_norms
import mlx_versions
from mlx_norms import _built
from support import known_objects
from support.variant import ROOT

FOLDER = mlx_versions.folder(_built.MLX_VERSION)
OTHER_MLX = "0.32.3" if _built.MLX_VERSION != "0.32.3" else "0.32.4"
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
        if packages:
            self.pip("install", *packages)
        (purelib,) = path.glob("lib/python*/site-packages")
        self.package = purelib / "mlx_norms"
        for root in mlx_norms.__path__:
            shutil.copytree(root, self.package, dirs_exist_ok=True)

    def pip(self, *arguments, **kwargs):
        run(self.python, "-m", "pip", "--disable-pip-version-check", "-q", *arguments, **kwargs)

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
    built = shutil.ignore_patterns("_ext*", "_mlx_*")
    shutil.copytree(ROOT / "mlx_norms", tmp_path / "mlx_norms", ignore=built)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    # -S: without site-packages, where mlx_norms is installed.
    code = "import mlx_norms"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    error = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and error.startswith("ImportError: mlx_norms is here as source")
    assert "pip install '.[cpu]'" in error


@pytest.fixture
def installed(tmp_path):
    """A copy of the installed package, outside of any checkout."""
    package = tmp_path / "mlx_norms"
    for root in mlx_norms.__path__:
        shutil.copytree(root, package, dirs_exist_ok=True)
    return package


def error_of(package, path=None, code="import mlx_norms"):
    """The last line that importing this package ends with."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or [str(package.parent)])}
    # -S: without site-packages, where mlx_norms is installed.
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=package, env=environment)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_an_installation_that_is_not_whole(installed):
    """Where nothing speaks of a checkout: there is none."""
    (installed / FOLDER).rename(installed / "other")
    error = error_of(installed)
    assert error.startswith(f"ImportError: mlx_norms is not whole: {installed}/_mlx_* is")
    assert "--force-reinstall" in error and "checkout" not in error


@pytest.mark.parametrize("text", [None, "VERSION = ("])
def test_a_file_that_is_not_whole(installed, text):
    built = installed / FOLDER / "_built.py"
    built.unlink() if text is None else built.write_text(text)
    path = [str(installed.parent), *site.getsitepackages()]
    error = error_of(installed, path)
    assert error.startswith(f"ImportError: mlx_norms is not whole: {built} is missing or damaged")


def test_for_another_python(installed):
    """As where the site-packages of one Python are on the path of another."""
    for extension in (installed / FOLDER).glob("_ext.*.so"):
        extension.rename(extension.with_name("_ext.cpython-30-other.so"))
    error = error_of(installed)
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    assert f"mlx_norms in {installed} has no extension for {python}" in error
    assert f"{sys.executable} -m pip" in error


def test_without_a_gil(installed):
    """Where sysconfig says so: MLX has no such wheel."""
    code = "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1; import mlx_norms"
    error = error_of(installed, code=code)
    assert error.startswith("ImportError: mlx_norms has no extension for a free-threaded Python")


def test_a_release_that_is_no_plain_version(installed):
    """As of MLX built from a checkout."""
    (installed / FOLDER).rename(installed / "_mlx_0_33_0_dev1_g12")
    code = (
        "import importlib.metadata as m\n"
        "m.version = lambda name: '0.33.0.dev1+g12'\n"
        "import mlx_norms; print(mlx_norms._ext.__file__)"
    )
    environment = os.environ | {"PYTHONPATH": str(installed.parent)}
    done = run(sys.executable, "-P", "-c", code, env=environment)
    assert done.startswith(f"{installed}/_mlx_0_33_0_dev1_g12/")


def test_info_names_a_copy_that_is_not_used(installed):
    other = installed.parent / "other"
    shutil.copytree(installed, other / "mlx_norms")
    path = os.pathsep.join(map(str, (installed.parent, other)))
    done = run(
        *(sys.executable, "-P", "-m", "mlx_norms", "info"),
        env=os.environ | {"PYTHONPATH": path},
        cwd="/",
    )
    assert re.search(rf"^extension +{installed}/{FOLDER}/", done, re.M)
    assert re.search(rf"^not used +{other}/mlx_norms$", done, re.M)


@pytest.mark.slow
@pytest.mark.applies(sys.platform == "linux")  # where MLX's library is a package of its own
def test_without_libmlx(tmp_path):
    """Without MLX or with it alone; then with both, as the sentence says it."""
    env = Environment(tmp_path / "venv")
    message = env.import_error()
    env.pip("install", f"mlx=={_built.MLX_VERSION}")
    assert message == env.import_error()
    assert is_one_sentence(message)
    assert "needs mlx's library libmlx.so" in message
    assert "[cuda12]" in message and "[cuda13]" in message
    command = re.search("pip (install '.*?')", message)[1]
    env.pip(*command.replace("'", "").split())
    assert env.use() == "[1.0, 1.0]"

    env.pip("uninstall", "-y", "mlx")
    message = env.import_error()
    assert is_one_sentence(message)
    assert "no package mlx is installed" in message
    assert f"pip install 'mlx[cpu]=={_built.MLX_VERSION}'" in message


@pytest.mark.slow
def test_with_another_mlx(tmp_path):
    """A newer one than any that was known, as far as the wheel can tell."""
    env = Environment(tmp_path / "venv", f"mlx[cpu]=={OTHER_MLX}")
    message = env.import_error()
    assert is_one_sentence(message)
    assert message.startswith(
        f"mlx {OTHER_MLX} is installed, and this mlx_norms is for {_built.MLX_VERSION}: "
    )
    assert f"MLX_NORMS_MLX={OTHER_MLX} pip install --force-reinstall --no-deps" in message
    code = "try: import mlx_norms\nexcept ImportError as e:\n"
    code += " print(type(e).__name__, e.installed, e.supported)"
    assert run(env.python, "-c", code, cwd="/").split() == [
        "UnsupportedMLX",
        OTHER_MLX,
        f"['{_built.MLX_VERSION}']",
    ]

    def command(*arguments):
        done = [env.python, "-m", "mlx_norms", *arguments]
        return subprocess.run(done, capture_output=True, text=True, cwd="/")

    info = command("info")
    assert info.returncode == 1 and info.stderr == ""
    assert info.stdout.rstrip().endswith(message)
    facts = dict(re.split("  +", line, maxsplit=1) for line in info.stdout.splitlines()[:-2])
    assert facts["mlx"] == facts["mlx-cpu"] == OTHER_MLX
    assert facts[f"for mlx {_built.MLX_VERSION}"].endswith(f"/{FOLDER} (for this Python)")
    demo = command("demo")
    assert (demo.returncode, demo.stdout, demo.stderr.strip()) == (1, "", message)
    # Then one that there is an extension for, and back.
    env.pip("install", f"mlx[cpu]=={_built.MLX_VERSION}")
    assert env.use() == "[1.0, 1.0]"


@pytest.mark.slow
def test_with_another_backend_version(tmp_path):
    """As where mlx was upgraded, and mlx-cpu was not."""
    env = Environment(tmp_path / "venv", f"mlx=={_built.MLX_VERSION}", f"mlx-cpu=={OTHER_MLX}")
    message = env.import_error()
    assert is_one_sentence(message)
    assert f"mlx {_built.MLX_VERSION} and mlx-cpu {OTHER_MLX} are installed" in message
    _, command = message.split("pip ")
    env.pip(*command.rstrip(".").replace("'", "").split())
    assert env.use() == "[1.0, 1.0]"


@pytest.mark.build
def test_with_another_nanobind(tmp_path):
    env = Environment(
        tmp_path / "venv",
        f"mlx[cpu]=={_built.MLX_VERSION}",
        f"nanobind=={OTHER_NANOBIND}",
        "cmake",
        "ninja",
        "scikit-build-core",
    )
    quickly = (
        f"--config-settings=build-dir={tmp_path / 'first'}",
        "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0",
        "--config-settings=cmake.define.MLX_NORMS_CPU_LEVELS=baseline",
    )
    env.pip("install", "--no-build-isolation", "--no-deps", *quickly, ROOT)
    built_here = env.import_error()
    assert is_one_sentence(built_here)
    assert f"built with nanobind {OTHER_NANOBIND}" in built_here
    assert built_here.count("ABI") == 2
    # What pip leaves out where it installs a wheel of an index.
    (record,) = env.package.parent.glob("mlx_norms-*.dist-info/direct_url.json")
    record.unlink()
    from_wheel = env.import_error()
    assert is_one_sentence(from_wheel)
    assert f"pip install --force-reinstall 'mlx[cpu]=={_built.MLX_VERSION}'" in from_wheel
    assert str(ROOT) not in from_wheel and "checkout" not in from_wheel

    before, command = built_here.split("pip ")
    assert before.endswith(f"MLX_NORMS_MLX={_built.MLX_VERSION} ")  # else it is for the newest
    assert command == f"install --force-reinstall --no-deps {shlex.quote(str(ROOT))}."
    # What this checkout has built is not compiled again.
    known = known_objects.environment(ROOT, ROOT, tmp_path / "objects")
    elsewhere = f"--config-settings=build-dir={tmp_path / 'second'}"
    env.pip(*shlex.split(command.rstrip(".")), elsewhere, env=os.environ | known)
    assert env.use() == "[1.0, 1.0]"
