"""What the sanitizers report fails the run, and only what is about our kernels does on CUDA."""

from types import SimpleNamespace

import pytest

from sanitizers import address, cuda
from support.cuda_text import KERNELS

LOG = """
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at void norm<(int)4, (int)1>(Parameters)+0x120
=========     Host Frame: norm_of_something_else
========= Invalid __global__ read of size 2 bytes
=========     at void mlx::core::cu::copy<float>(float*)+0x40
=========     Host Frame: norm<4>
========= ERROR SUMMARY: 2 errors
"""


def test_reports_of_our_kernels():
    found = cuda.reports(LOG)
    outcome = cuda.Outcome("memcheck", [cuda.Process(0, 1.0, LOG), cuda.Process(0, 1.0, "")])
    assert len(found) == 2
    assert [report.splitlines()[0] for report in outcome.ours] == [
        "Invalid __global__ read of size 4 bytes"
    ]
    assert cuda.counts(outcome.others) == {"mlx::core::cu::copy": 1}


def test_all_kernels_are_ours():
    functions = {kernel.expression.partition("<")[0] for _, kernel in KERNELS.values()}
    assert set(cuda.KERNELS) == functions
    for name in functions:
        assert cuda.names_our_kernel(f"at {name}<(int)1, (int)2>(Parameters)+0x120")
        assert cuda.names_our_kernel(f"in _Z{len(name)}{name}ILi1ELi2EEv10Parameters")
        assert not cuda.names_our_kernel(f"at void mlx::core::cu::{name}<float>(float*)+0x40")


@pytest.mark.parametrize("report, status", [("", 0), ("heap-buffer-overflow", 1)])
def test_a_report_fails_a_suite_that_passes(report, status, monkeypatch, capsys):
    """Reports go to files, as pytest would swallow them."""

    class Variant:
        def __init__(self, directory, options):
            assert options == ("-DMLX_NORMS_SANITIZE=ON",)

        def compile(self):
            pass

        def pytest(self, *arguments, variables):
            path = variables["ASAN_OPTIONS"].partition("log_path=")[2]
            if report:
                open(f"{path}.1", "w").write(report)
            return SimpleNamespace(returncode=0)

    monkeypatch.setattr(address, "Variant", Variant)
    monkeypatch.setattr(address, "runtime", lambda: "")
    monkeypatch.setattr(address.sys, "argv", ["address"])
    assert address.main() == status
    assert report in capsys.readouterr().out
