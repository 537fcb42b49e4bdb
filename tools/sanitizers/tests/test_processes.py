"""compute-sanitizer's processes share the cases, and what goes wrong in one is told."""

import collections
import itertools
import stat
import subprocess
import sys

import pytest

from parts import Part
from sanitizers import cuda, parts
from support.variant import ROOT

# It runs the program and adds its own lines.
SANITIZER = """
import subprocess, sys
tool = sys.argv[sys.argv.index("--tool") + 1]
command = sys.argv[sys.argv.index(sys.executable):]
print("========= COMPUTE-SANITIZER", flush=True)
status = subprocess.run([*command, tool]).returncode
print("========= ERROR SUMMARY: 0 errors")
sys.exit(status)
"""
# Eleven cases, each of which leaves a line; the sixth does what is asked for.
CASES = """
import os, sys, time
from parts import part
from sanitizers import parts

tool = sys.argv.pop()

def ran(number):
    with open({record!r}, "a") as file:
        file.write(f"{{tool}} {{number}}\\n")
    if number == 5 and tool == "racecheck":
        {what}

def cases():
    for number in range(11):
        yield f"the case {{number}}", lambda: ran(number)

parts.run(cases, part(sys.argv[2]))
"""
REPORT = "print('========= Race reported\\n=========     at void norm<(int)4>(Parameters)+0x1')"


@pytest.fixture
def main(monkeypatch, tmp_path):
    """Runs the tool with a sanitizer that reports nothing; returns the status, and what ran."""

    def main(what, *arguments):
        program = tmp_path / "compute-sanitizer"
        program.write_text(f"#!{sys.executable}{SANITIZER}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        record, cases = tmp_path / "record", tmp_path / "cases.py"
        record.write_text("")
        cases.write_text(CASES.format(record=str(record), what=what))
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setenv("PYTHONPATH", str(cuda.KERNEL_TEXTS.parent / "tools"), prepend=":")
        monkeypatch.setattr(cuda, "CASES", cases)
        monkeypatch.setattr(sys, "argv", ["cuda", *arguments])
        status = cuda.main()
        return status, collections.Counter(record.read_text().splitlines())

    return main


def test_every_case_is_in_one_part():
    for total, count in itertools.product((0, 1, 7, 243), (1, 2, 4, 16)):
        sets = [parts.chosen(total, Part(k, count)) for k in range(1, count + 1)]
        assert sorted(itertools.chain(*sets)) == list(range(total))
        assert max(map(len, sets)) - min(map(len, sets)) <= 1


def test_slow_cases_that_follow_one_another_at_a_distance_are_spread():
    for distance in (2, 3, 4):
        slow = set(range(0, 240, distance))
        counts = [len(slow & parts.chosen(240, Part(k, 4))) for k in range(1, 5)]
        assert max(counts) < 1.4 * len(slow) / 4


@pytest.mark.parametrize("tools, processes", [(("racecheck", "memcheck"), 3), (cuda.TOOLS, 1)])
def test_every_case_runs_once_per_tool(main, capsys, tools, processes, tmp_path):
    options = [word for tool in tools for word in ("--tool", tool)]
    logs = tmp_path / "logs"
    options += ["--processes", str(processes), "--logs", str(logs)]
    status, ran = main("pass", *options)
    assert status == 0
    assert ran == {f"{tool} {number}": 1 for tool in tools for number in range(11)}
    assert "NOT" not in capsys.readouterr().out
    assert len(list(logs.iterdir())) == len(tools) * processes


def test_there_is_a_process_for_each_core(monkeypatch):
    taken = []
    monkeypatch.setattr(cuda.os, "cpu_count", lambda: 16)
    monkeypatch.setattr(cuda, "run_all", lambda tools, count: taken.append((tools, count)) or [])
    for arguments in ((), ("--tool", "memcheck"), ("--processes", "3")):
        monkeypatch.setattr(sys, "argv", ["cuda", *arguments])
        cuda.main()
    assert taken == [(list(cuda.TOOLS), 4), (["memcheck"], 8), (list(cuda.TOOLS), 3)]


@pytest.mark.parametrize("what", ["raise ValueError('wrong')", "os._exit(0)", "os._exit(3)"])
def test_a_process_that_does_not_get_to_the_end(main, capsys, what):
    status, ran = main(what, "--tool", "racecheck", "--tool", "memcheck", "--processes", "3")
    assert status == 1
    lines = capsys.readouterr().out.splitlines()
    (part,) = (part for part in range(3) if 5 in parts.chosen(11, Part(part + 1, 3)))
    (of_tool,) = (line for line in lines if line.startswith("racecheck: "))
    assert of_tool.endswith(f" s, process {part} of 3 did NOT get to the end")
    assert "NOT" not in next(line for line in lines if line.startswith("memcheck: "))
    assert "the case 5" in lines[lines.index(f"process {part} of racecheck:") :]
    named = "RuntimeError: the case 5" in lines
    assert named == ("wrong" in what)
    assert sum(ran.values()) < 22


def test_a_process_that_takes_too_long_is_ended(main, capsys, monkeypatch):
    """With what it started, whose other cases would run else."""
    monkeypatch.setattr(cuda, "SECONDS", 1)
    status, ran = main("time.sleep(20)", "--tool", "racecheck", "--processes", "1")
    assert status == 1 and sum(ran.values()) < 11
    out = capsys.readouterr().out
    assert "process 0 of 1 did NOT get to the end" in out and "stopped after 1 s" in out


def test_a_report_of_one_process(main, capsys):
    status, ran = main(REPORT, "--processes", "2")
    assert status == 1 and set(ran.values()) == {1}
    out = capsys.readouterr().out
    assert "racecheck: 1 of our kernels, 0 others" in out and "Race reported" in out
    assert "synccheck: 0 of our kernels, 0 others" in out


@pytest.mark.parametrize("second, wrong", [("1 3", [2]), ("1 2 3 0", [0]), ("1 2 3", [])])
def test_cases_that_did_not_run_once(second, wrong):
    logs = [f"=== SUMMARY:\n0 of 4 cases ran: {numbers}\n" for numbers in ("0", second)]
    outcome = cuda.Outcome("memcheck", [cuda.Process(0, 1.0, log) for log in logs])
    assert outcome.failures == ([f"cases {wrong} did not run exactly once"] if wrong else [])


def test_at_least_one_process(main, capsys):
    with pytest.raises(SystemExit):
        main("pass", "--processes", "0")
    assert "--processes must be at least 1, got 0" in capsys.readouterr().err


def test_the_cases_run_on_a_cpu():
    """A few of them: else nothing does where there is no GPU."""
    command = [sys.executable, ROOT / "tools", "sanitizers.cuda_cases", "--device", "cpu"]
    done = subprocess.run([*command, "--part", "1/150"], capture_output=True, text=True)
    assert done.returncode == 0 and parts.is_complete(done.stdout), done.stdout + done.stderr
