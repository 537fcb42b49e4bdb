"""What tools/compatibility says of a package, with tiny models of one that is installed here.

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


def test_tiny_models_agree(tool):
    pytest.importorskip("mlx_lm", reason="instrument missing: mlx-lm")
    done = subprocess.run([sys.executable, "-P", RUN, "mlx-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert all(run["fused"] > 0 for run in found.values())
    assert tool["verdict"](found)[0] == "llama, gemma2"


def run(**changed):
    usual = dict(calls=4, passed_on=0, difference=0.0, gradient=0.0, written={})
    return usual | changed


@pytest.mark.parametrize(
    "found",
    [
        run(calls=0),
        run(passed_on=4),
        run(difference=1e-2),
        run(difference=float("nan")),
        run(gradient=1e-2),
        run(gradient=float("inf")),
    ],
)
def test_what_does_not_agree(tool, found):
    with pytest.raises(tool["Failed"], match="calls are ours, "):
        tool["verdict"]({"one": found})


def test_written_norms_are_named(tool):
    one, two = run(written={"rms_norm": 3, "l2_norm": 1}), run(written={"rms_norm": 2})
    assert tool["verdict"](dict(one=one, two=two))[3:] == ["8 of 8", "5 rms_norm, 1 l2_norm"]
    assert tool["verdict"](dict(one=one | dict(calls=0)))[3:] == ["0 of 0", "3 rms_norm, 1 l2_norm"]


def test_each_package_has_a_model(tool):
    models = runpy.run_path(str(RUN))["MODELS"]
    assert {package.name for package in tool["PACKAGES"]} == {*models}


def test_all_packages_are_on_the_page(tool):
    begin, end = tool["MARKS"]
    table = tool["PAGE"].read_text().split(begin)[1].split(end)[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    found = [(row[0].rpartition(" ")[0], row[1]) for row in rows]
    assert found == [(p.name, p.mlx) for p in tool["PACKAGES"]]
