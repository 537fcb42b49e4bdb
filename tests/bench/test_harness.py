"""bench/harness knows no benchmark and needs no extra, and its clocks say what they saw."""

import ast
import contextlib
import subprocess
import sys

import mlx.core as mx
import pytest

from harness import builds, cupti, kernels, providers, script
from mlx_norms._measure import timing
from support.variant import ROOT, environment

HARNESS = ROOT / "bench" / "harness"
MEASURE = ROOT / "mlx_norms" / "_measure"
EXTRAS = {"rich", "matplotlib", "torch", "mlx_lm", "numpy", "liger_kernel"}
# What prints, which only those import who print.
PRINTS = {"tables.py": {"rich"}, "script.py": {"rich"}}


def imported(nodes):
    """Modules that statements import, with the dots of relative names."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module.rstrip('.')}.{alias.name}" for alias in node.names)


def test_what_is_shared_imports_nothing_that_shares_it():
    above = {path.stem for path in (ROOT / "bench").iterdir()} - {"harness"}
    wrong = []
    for path in (*HARNESS.rglob("*.py"), *MEASURE.rglob("*.py")):
        others = above | {"harness", "commands"} if MEASURE in path.parents else above
        for name in imported(ast.walk(ast.parse(path.read_text()))):
            if name.split(".")[0] in others or name.startswith(".."):
                wrong.append(f"{path.name} imports {name}")
    assert wrong == []


def test_what_is_shared_needs_no_extra():
    wrong = []
    for path in (*HARNESS.rglob("*.py"), *MEASURE.rglob("*.py")):
        found = {name.split(".")[0] for name in imported(ast.parse(path.read_text()).body)}
        wrong += [(path.name, name) for name in found & EXTRAS - PRINTS.get(path.name, set())]
    assert wrong == []


@pytest.mark.parametrize(
    "module, arguments",
    [
        ("mlx_norms.__main__", ["info"]),
        ("mlx_norms.__main__", ["selftest", "--help"]),
        ("command.cli", ["norm", "--help"]),
    ],
)
def test_commands_that_need_no_extra(module, arguments):
    line = (
        f"import sys; sys.modules.update(dict.fromkeys({sorted(EXTRAS)}))\n"
        f"from {module} import main; sys.exit(main({arguments}))"
    )
    command = [sys.executable, "-c", line]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr


def event(category, start, duration, name=""):
    return {"ph": "X", "cat": category, "ts": start, "dur": duration, "name": name}


def test_activity_is_that_of_a_range():
    """Time in which two kernels run counts once; a kernel is the range's in which it starts."""
    events = [
        event("user_annotation", 0, 100, "a"),
        event("user_annotation", 100, 50, "b"),
        event("user_annotation", 200, 50, "nothing"),
        event("kernel", 10, 20),
        event("kernel", 20, 20),
        event("gpu_memset", 90, 20),
        event("kernel", 120, 5),
        event("cpu_op", 0, 100),
    ]
    found = cupti.activity(events)
    assert {name: of.kernels for name, of in found.items()} == {"a": 3, "b": 1}
    assert [of.seconds for of in found.values()] == pytest.approx([50e-6, 5e-6])


class FakeTrace:
    """Sees a microsecond a call of ours and two of mx.fast's, nothing of configs it is blind to."""

    blind = ()

    def __enter__(self):
        self.names, self.activity = [], {}
        return self

    def __exit__(self, *error):
        for name in self.names:
            config, provider, *_ = name.split("/")
            if config not in self.blind:
                seconds = {"ours": 1e-6, "mx.fast": 2e-6}[provider] * 8
                self.activity[name] = cupti.Activity(seconds, 16)

    @staticmethod
    def available():
        return True

    def range(self, name):
        self.names.append(name)
        return contextlib.nullcontext()


class Counted:
    """Counts its calls."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def prepare(self, count):
        return [None] * count

    def finish(self, pending, *, alone=False):
        self.log.append((self.name, len(pending), alone))


def test_kernels_take_turns_in_a_trace(monkeypatch):
    monkeypatch.setattr(kernels, "Trace", FakeTrace)
    log = []
    of_config = {name: Counted(name, log) for name in ("ours", "mx.fast")}
    times = kernels.measure(["a", "b"], lambda config: of_config, lambda config: 8, rounds=3)
    assert list(times) == ["a", "b"]
    ours, fast = times["b"]["ours"], times["b"]["mx.fast"]
    assert ours.together.values == ours.alone.values == pytest.approx((1e-6,) * 3)
    assert fast.together.over(ours.together).median == pytest.approx(2)
    assert (ours.method, ours.kernels) == ("CUPTI", 2)
    samples = [name for name, count, alone in log[4:16] if not alone]
    assert samples == ["ours", "mx.fast", "mx.fast", "ours", "ours", "mx.fast"]


def test_what_cupti_misses_is_timed_by_evals(monkeypatch):
    monkeypatch.setattr(FakeTrace, "blind", ("0",))
    monkeypatch.setattr(kernels, "Trace", FakeTrace)
    log = []
    of_config = {"ours": Counted("ours", log)}
    times = kernels.measure(["a", "b"], lambda config: of_config, lambda config: 8, rounds=3)
    assert [(config, of["ours"].method) for config, of in times.items()] == [
        ("a", "evals"),
        ("b", "CUPTI"),
    ]
    assert times["a"]["ours"].alone is times["a"]["ours"].kernels is None
    assert len(times["a"]["ours"].together.values) == 3


def test_a_number_of_calls_may_be_given():
    class Timed:
        most, overlap, log = 1 << 62, False, []

        def seconds(self, count):
            self.log.append(count)
            return 1e-3 * len(self.log) * count

    found = timing.measure({"a": Timed()}, rounds=2, count=5)
    assert Timed.log == [5, 5, 5]
    assert found["a"].values == pytest.approx((2e-3, 3e-3))  # the first one warms up


def test_runs_are_timed_within_their_context(monkeypatch):
    log = []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: log.append("clock") or 0.0)

    @contextlib.contextmanager
    def context():
        log.append("enter")
        yield
        log.append("leave")

    run = timing.Runs(lambda count: log.append(count), context, lambda: log.append("begin"))
    run.seconds(3)
    assert log == ["enter", "begin", "clock", 3, "clock", "leave"]


def test_a_file_has_facts_beside_figures(monkeypatch, tmp_path, capsys):
    before, file = mx.default_device(), tmp_path / "figures.csv"
    monkeypatch.setattr(sys, "argv", ["bench", "script", "--device", "cpu", "--csv", str(file)])
    found = script.Script("What it is.", ["op", "us"])
    try:
        found.begin()
    finally:
        mx.set_default_device(before)
    assert found.tiny and not file.exists()
    found.write("rms", 2.5)
    found.write(us=3.0)
    heading, *lines = file.read_text().splitlines()
    assert heading.startswith("op,us,device,") and heading.endswith(",driver")
    assert [line.split(",")[:2] for line in lines] == [["rms", "2.5"], ["", "3"]]
    assert "driver" in capsys.readouterr().out


def test_a_build_answers_by_lines(monkeypatch, capsys):
    """Its numbers of calls and seconds, and at the end what was traced."""
    lines = iter(['["abs", 3]\n', "0\n", "1\n", "\n", "never\n"])
    monkeypatch.setattr(sys, "stdin", lines)
    before = mx.default_device()
    mx.set_default_device(mx.cpu)
    try:
        known = {"abs": lambda: providers.Calls(mx.abs, [[mx.zeros(8)]])}
        builds.work(known, traces=False)
    finally:
        mx.set_default_device(before)
    count, first, second, traced = capsys.readouterr().out.splitlines()
    assert (count, traced) == ("3", "{}")
    assert float(first) > 0 and float(second) > 0
