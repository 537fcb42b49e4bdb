"""Wheels for one release of MLX each, merged into one."""

import zipfile

import pytest
from packaging.version import Version

from merge_wheels import merge, requirement
from support.stub_wheel import wheel

REQUIREMENTS = {
    ("0.32.4",): "mlx==0.32.4",
    ("0.31.2", "0.32.0", "0.32.1"): "mlx>=0.31.2,<=0.32.1",
    ("0.31.2", "0.32.0", "0.32.3"): "mlx>=0.31.2,<=0.32.3,!=0.32.1,!=0.32.2",
}


@pytest.mark.parametrize("releases, text", REQUIREMENTS.items())
def test_requirement(releases, text):
    assert requirement([*map(Version, releases)]) == text


def test_merged(tmp_path):
    wheels = [wheel(tmp_path, mlx) for mlx in ("0.32.10", "0.31.2", "0.32.9")]
    merged = merge(wheels, tmp_path / "dist")
    assert merged.name == wheels[0].name
    with zipfile.ZipFile(merged) as archive:
        names = {name for name in archive.namelist() if "/_mlx_" in name}
        folders = ("_mlx_0_31_2", "_mlx_0_32_9", "_mlx_0_32_10")
        assert names == {f"mlx_norms/{folder}/_ext.so" for folder in folders}
        assert archive.read("mlx_norms/_mlx_0_32_9/_ext.so") == b"0.32.9"
        assert archive.read("mlx_norms/libmlx_norms_cpu.so") == b"kernels"
        metadata = archive.read("mlx_norms-0.1.0.dist-info/METADATA").decode()
        record = archive.read("mlx_norms-0.1.0.dist-info/RECORD").decode()
    assert "\nRequires-Dist: mlx>=0.31.2,<=0.32.10\nRequires-Dist: rich" in metadata
    assert all(f"mlx_norms/{folder}/_ext.so,sha256=" in record for folder in folders)


def test_what_cannot_be_merged(tmp_path):
    first, again = wheel(tmp_path / "a", "0.32.4"), wheel(tmp_path / "b", "0.32.4")
    with pytest.raises(ValueError, match="two are for one MLX: 0.32.4, 0.32.4"):
        merge([first, again], tmp_path)
    other = wheel(tmp_path / "c", "0.32.3", "cp312-cp312-linux_x86_64")
    with pytest.raises(ValueError, match="not of one version, Python and system"):
        merge([first, other], tmp_path)
    other = wheel(tmp_path / "e", "0.32.3", kernels="others")
    with pytest.raises(ValueError, match="libmlx_norms_cpu.so is not the same in all"):
        merge([first, other], tmp_path)
    both = merge([first, wheel(tmp_path / "d", "0.32.3")], tmp_path / "dist")
    with pytest.raises(ValueError, match="is not for one release of MLX"):
        merge([both], tmp_path)
