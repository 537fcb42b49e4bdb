"""What tools/compatibility says of a package, with a tiny model of those that are installed here.

The tool itself needs a wheel and is run by hand.
"""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "compatibility"
RUN = TOOL / "tiny_run.py"


@pytest.fixture(scope="module")
def tool():
    return runpy.run_path(str(TOOL / "__main__.py"))


@pytest.mark.parametrize("package", ["mlx-lm", "mflux"])
def test_a_tiny_model_agrees(tool, package):
    pytest.importorskip(package.replace("-", "_"), reason=f"instrument missing: {package}")
    done = subprocess.run([sys.executable, "-P", RUN, package], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["fused"] > 0
    assert f"{found['calls']} norms ours" in tool["verdict"](found)


@pytest.mark.parametrize(
    "found",
    [
        dict(calls=0, passed_on=0, difference=0.0),
        dict(calls=4, passed_on=4, difference=0.0),
        dict(calls=4, passed_on=0, difference=1e-2),
        dict(calls=4, passed_on=0, difference=float("nan")),
    ],
)
def test_what_does_not_agree(tool, found):
    with pytest.raises(tool["Failed"], match="calls are ours, outputs differ"):
        tool["verdict"](found)


def test_each_package_has_a_model(tool):
    models = runpy.run_path(str(RUN))["MODELS"]
    assert {package.name for package in tool["PACKAGES"]} == {*models}


def test_all_packages_are_on_the_page(tool):
    begin, end = tool["MARKS"]
    table = tool["PAGE"].read_text().split(begin)[1].split(end)[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert [(row[0], row[2]) for row in rows] == [(p.name, p.mlx) for p in tool["PACKAGES"]]
