"""csrc is layers of folders, each of which includes the ones below it alone."""

import re
from pathlib import Path

CSRC = Path(__file__).parents[2] / "csrc"
# What each includes besides itself.
BELOW = {
    "vendor": set(),
    "common": {"vendor"},
    "cpu": {"common", "vendor"},
    "gpu": {"common"},
    "op": {"common", "cpu", "gpu"},
    "norm": {"common", "cpu", "gpu", "op"},
    "matmul": {"common", "gpu", "op"},
    "rope": {"common", "cpu", "gpu", "op", "norm"},
    "linear": {"common", "gpu", "op", "norm"},
    "ladders": {"common", "gpu", "op", "norm", "matmul"},
    "patching": {"common", "norm", "linear", "rope"},
    "python": {
        "common",
        "cpu",
        "gpu",
        "op",
        "norm",
        "matmul",
        "linear",
        "ladders",
        "patching",
        "rope",
    },
}
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# Of MLX, what the build generates, and the kernels' lists of instances.
OTHERS = ("mlx/", "kernels/interface.h", "kernels/common/row_instances.h")


def sources():
    return [path for path in CSRC.rglob("*") if path.suffix in (".h", ".cpp")]


def test_each_folder_includes_those_below_it():
    folders = {path.relative_to(CSRC).parts[0] for path in sources()}
    assert folders | {"vendor"} == BELOW.keys()
    wrong = []
    for path in sources():
        room = path.relative_to(CSRC).parts[0]
        for included in INCLUDE.findall(path.read_text()):
            if included.startswith("csrc/"):
                other = included.split("/")[1]
                if other != room and other not in BELOW[room]:
                    wrong.append(f"{path.relative_to(CSRC)} includes {included}")
            elif not included.startswith(OTHERS):
                wrong.append(f"{path.relative_to(CSRC)} includes {included}, which names no folder")
    assert wrong == []


def test_few_files_in_the_root():
    assert len([path for path in CSRC.iterdir() if path.is_file()]) <= 3


def test_one_file_asks_for_mlxs_version():
    asking = [path.name for path in sources() if "MLX_VERSION" in path.read_text()]
    assert asking == ["mlx_version.h"]
