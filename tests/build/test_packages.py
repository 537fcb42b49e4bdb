"""What the packages have beside the code, and what the README says of them."""

import email
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

import mlx_versions
from mlx_versions import NANOBIND, NEWEST
from support.variant import ROOT

VENDORED = ("nanobind", "robin_map")
LICENSES = ("LICENSE", *(f"csrc/vendor/{name}.LICENSE.txt" for name in VENDORED))


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Sdist and wheel by the build backend. What a wheel has of licenses needs no compiling."""
    directory = tmp_path_factory.mktemp("packages")
    code = "import sys; from scikit_build_core import build\n"
    code += "build.build_sdist(sys.argv[1])\n"
    code += "build.build_wheel(sys.argv[1], {'wheel.cmake': 'false'})"
    subprocess.run([sys.executable, "-c", code, directory], check=True, cwd=ROOT)
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    with tarfile.open(sdist) as sdist, zipfile.ZipFile(wheel) as wheel:
        yield sdist, wheel


@pytest.fixture(scope="module")
def metadata(packages):
    _, wheel = packages
    (file,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(file))


@pytest.mark.parametrize("license", LICENSES)
def test_licenses_are_in_the_packages(license, packages, metadata):
    sdist, wheel = packages
    text = (ROOT / license).read_bytes()
    assert re.match(rb"(MIT License\n\n)?Copyright ", text)
    name = f"{metadata['Name']}-{metadata['Version']}"
    assert sdist.extractfile(f"{name}/{license}").read() == text
    assert wheel.read(f"{name}.dist-info/licenses/{license}") == text
    assert metadata["License-Expression"] == "MIT"
    assert license in metadata.get_all("License-File")


# What builds, tests and people leave in a checkout.
STRAY = (
    ".carry/kernel.cpp",
    ".hypothesis/constants/1",
    ".pytest_cache/CACHEDIR.TAG",
    ".venv/pyvenv.cfg",
    "build/cp311/CMakeCache.txt",
    "csrc/__pycache__/x.cpython-311.pyc",
    "dist/mlx_norms-0.1.0.tar.gz",
    "kernels/to_cuda/__pycache__/loops.cpython-311.pyc",
    "mlx_norms/_ext.pyi",
    "mlx_norms/_mlx_0_32_4/_built.py",
    "mlx_norms/_mlx_0_32_4/_ext.cpython-311-x86_64-linux-gnu.so",
    "mlx_norms/_mlx_0_32_4/libmlx_norms_cpu.so",
    "notes.md",
    "scratch.py",
    "tests/new.py",
    "tools/metalsim/metalsim/library.py",
)


def test_sdist_has_what_the_build_reads_and_nothing_else(tmp_path):
    """Of a checkout with all that work leaves there."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    ignored = shutil.ignore_patterns("__pycache__", "_ext*", "_mlx_*")
    (copy / "tools").mkdir()
    for name in ("csrc", "kernels", "mlx_norms"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    shutil.copy(ROOT / "tools" / "mlx_versions.py", copy / "tools")
    wanted = {str(p.relative_to(copy)) for p in copy.rglob("*") if p.is_file()} | {"PKG-INFO"}
    for name in STRAY:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).touch()

    code = "from scikit_build_core import build; build.build_sdist('..')"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=copy)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert names == wanted


@pytest.mark.parametrize(
    "script", ["join.py cpp", "interface.py c++ interface.h", "-m to_cuda c++"]
)
def test_what_the_build_generates_needs_no_package(tmp_path, script):
    """Nor anything outside of kernels/."""
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    command = [sys.executable, "-S", "-E", *script.split(), tmp_path / "text.cpp"]
    subprocess.run(command, cwd=tmp_path / "kernels", check=True)
    assert (tmp_path / "text.cpp").stat().st_size > 1000


def test_readme_says_which_versions(metadata):
    text = (ROOT / "README.md").read_text()
    oldest, *_, newest = NANOBIND
    assert f"one MLX, {oldest} to {newest}; on CUDA only {newest} " in text
    assert f"Python {metadata['Requires-Python'].removeprefix('>=')} to 3." in text


def test_metadata_is_the_same_before_and_after_the_build(tmp_path, metadata):
    """And requires the MLX that the build found."""
    code = "import sys; from scikit_build_core import build\n"
    code += "build.prepare_metadata_for_build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, cwd=ROOT)
    (file,) = tmp_path.glob("*.dist-info/METADATA")
    required = [f"mlx=={importlib.metadata.version('mlx')}"]
    for read in (metadata, email.message_from_string(file.read_text())):
        assert [r for r in read.get_all("Requires-Dist") if "extra" not in r] == required


def test_addresses_are_those_of_where_it_is_built(monkeypatch):
    """A checkout does not say where it is hosted."""
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert mlx_versions.urls() == {}
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    assert mlx_versions.urls()["Issues"] == "https://github.com/a/b/issues"


def test_notices_name_what_is_vendored():
    text = (ROOT / "THIRD_PARTY.md").read_text()
    assert all(f"`{path}`" in text for path in LICENSES[1:])


def test_a_build_can_be_for_another_mlx(monkeypatch):
    assert f"mlx=={NEWEST}" in mlx_versions.get_requires_for_dynamic_metadata({})
    monkeypatch.setenv("MLX_NORMS_MLX", "0.32.2")
    needed = mlx_versions.get_requires_for_dynamic_metadata({})
    assert {"mlx==0.32.2", f"nanobind=={NANOBIND['0.32.2']}"} < {*needed}
    monkeypatch.setenv("MLX_NORMS_MLX", "0.33.0")  # of which nothing is known here
    needed = mlx_versions.get_requires_for_dynamic_metadata({})
    assert {"mlx==0.33.0", f"nanobind=={NANOBIND[NEWEST]}"} < {*needed}
