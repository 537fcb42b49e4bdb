"""What the packages have beside the code, and what the README says of them."""

import email
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LICENSES = ("LICENSE", "csrc/vendor/BS_thread_pool.LICENSE.txt")


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
    assert text.startswith(b"MIT License\n\nCopyright ")
    name = f"{metadata['Name']}-{metadata['Version']}"
    assert sdist.extractfile(f"{name}/{license}").read() == text
    assert wheel.read(f"{name}.dist-info/licenses/{license}") == text
    assert metadata["License-Expression"] == "MIT"
    assert license in metadata.get_all("License-File")


def test_readme_says_which_versions(metadata):
    text = (ROOT / "README.md").read_text()
    mlx = metadata.get_all("Requires-Dist")[0].removeprefix("mlx==")
    assert f"| MLX | {mlx} exactly" in text
    assert f"| Python | {metadata['Requires-Python'].removeprefix('>=')} or newer" in text
