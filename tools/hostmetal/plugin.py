"""A pytest plugin that fails a test in which the device refused or found something.

    pytest -p hostmetal.plugin

The simulator's check level and schedule are those of `hostmetal.start`.
"""

import pytest

from . import start

_counts = {"launches": 0, "threads": 0, "faults": 0}


@pytest.fixture(autouse=True)
def simulator():
    """The device's simulator, with the launches and faults of this test.

    A test that plants a fault must remove it from `simulator.faults`.
    """
    simulator = start()
    simulator.clear()
    yield simulator
    simulator.wait()
    _counts["launches"] += len(simulator.launches)
    _counts["threads"] += sum(launch.result.threads for launch in simulator.launches)
    faults = list(simulator.faults)
    simulator.clear()
    _counts["faults"] += len(faults)
    if faults:
        shown = "\n".join(dict.fromkeys(faults[:20]))
        pytest.fail(f"{len(faults)} faults:\n{shown}", pytrace=False)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["hostmetal"] = _counts


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Adds up the counts of pytest-xdist's workers."""
    for name, count in getattr(node, "workeroutput", {}).get("hostmetal", {}).items():
        _counts[name] += count


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(
        "hostmetal: {launches} launches, {threads} threads, {faults} faults".format(**_counts)
    )
