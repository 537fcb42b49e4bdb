"""A pytest plugin: so many tests of those that were collected, each said as it begins and ends.

    pytest -p first_mac.suite

They are spread evenly over what was collected, so that each run has the same.
"""

from __future__ import annotations

import os
import time

import pytest

from . import items

TESTS = "FIRST_MAC_TESTS"  # how many
_begun: dict[str, float] = {}
_reports: dict[str, list] = {}


def spread(of: list, count: int) -> list:
    return [of[i * len(of) // count] for i in range(count)] if len(of) > count else of


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    chosen = spread(items, int(os.environ.get(TESTS, "50")))
    _write_plan(chosen)
    left = _left(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = left


def _write_plan(chosen) -> None:
    items.write(planned=[item.nodeid for item in chosen])


def _left(chosen) -> list:
    done = items.skipped()
    return [item for item in chosen if item.nodeid not in done]


def pytest_runtest_logstart(nodeid):
    _begun[nodeid] = time.perf_counter()
    items.write(begin=nodeid)


def pytest_runtest_logreport(report):
    _reports.setdefault(report.nodeid, []).append(report)


def pytest_runtest_logfinish(nodeid):
    reports = _reports.pop(nodeid, [])
    found: dict[str, object] = {"status": items.PASSED}
    for report in reports:
        if report.failed:
            text = items.private(report.longreprtext)[-1500:]
            found = {"status": items.FAILED, "reason": text}
            break
        if report.skipped:
            found = {"status": items.NOT_RUN, "reason": items.private(str(report.longrepr))[-300:]}
    seconds = time.perf_counter() - _begun.pop(nodeid, time.perf_counter())
    items.write(end=nodeid, seconds=round(seconds, 3), **found)
