"""hostmetal's pytest plugin: faults fail the test in which they came, and only that one."""

import re
import subprocess
import sys

import pytest

from hostmetal.build import for_tests
from support import variant

pytestmark = [pytest.mark.instrument, pytest.mark.build]

TEST = """
import hostmetal
import mlx.core as mx
import pytest

import _toy

TEXT = '''
kernel void twice(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = 2 * x[i];
}
'''


def twice(threads, index=1):
    with mx.stream(mx.cpu):
        script = _toy.Script(1, [([8], mx.float32)])
        script.allocate(1)
        script.library("twice", TEXT)
        script.kernel("twice")
        script.set_input(0, 0)
        script.set_output(1, index)
        script.dispatch_threads((threads, 1, 1), (threads, 1, 1))
        return script([mx.arange(8, dtype=mx.float32)])


def test_good():
    assert twice(8)[0].tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


def test_out_of_bounds():
    mx.eval(twice(9))


def test_out_of_bounds_and_not_waited_for():
    mx.async_eval(twice(9))


def test_refused_and_caught():
    with pytest.raises(RuntimeError):
        mx.eval(twice(8, index=2))


def test_good_again():
    mx.eval(twice(8))


def test_planted(simulator):
    mx.eval(twice(9))
    simulator.wait()
    assert len(simulator.faults) == 2
    simulator.faults.clear()


def test_schedule(simulator):
    assert (simulator.check, simulator.order) == (1, 2)


if __name__ == "__main__":
    hostmetal.start()
    mx.eval(twice(9))
"""


@pytest.fixture(scope="module")
def environment():
    build = for_tests("_toy")
    return variant.environment(build.site, METALSIM_CHECK="1", METALSIM_ORDER="2")


@pytest.mark.parametrize("processes", [0, 2])
def test_plugin(environment, tmp_path, processes):
    (tmp_path / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-p", "hostmetal.plugin", "-n", str(processes)]
    command += ["-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    faulty = {"out_of_bounds", "out_of_bounds_and_not_waited_for", "refused_and_caught"}
    assert set(re.findall(r"^ERROR test_it.py::test_(\w+)", done.stdout, re.M)) == faulty
    assert "7 passed, 3 errors" in done.stdout
    assert "hostmetal: 5 launches, 43 threads, 5 faults" in done.stdout
    assert "out-of-bounds device in 'twice'" in done.stdout
    assert "twice: buffer 2 is bound, which the kernel does not have" in done.stdout


def test_a_process_ends_with_its_faults(environment, tmp_path):
    """Also one that runs no pytest, as those that tests start."""
    (tmp_path / "it.py").write_text(TEST)
    command = [sys.executable, "it.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "out-of-bounds device in 'twice'" in done.stderr
