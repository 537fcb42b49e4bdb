"""The two clocks say what they saw, and sides find their inputs where they are to."""

import ast
import contextlib
import itertools
import math

import mlx.core as mx
import numpy as np
import pytest

from harness import clocks, conditions, copy_speed, cupti, images, providers
from harness.configs import DTYPES, OPS, Config
from harness.suite import Case
from mlx_norms import _ext
from mlx_norms._measure import host_memory, machine, timing
from support.variant import ROOT

pytestmark = pytest.mark.usefixtures("small_machine")
CACHE = 1 << 16  # as small_machine has it
HARNESS = ROOT / "bench" / "harness"
MEASURE = ROOT / "mlx_norms" / "_measure"


def imported(path):
    """Modules that a file imports, with the dots of relative names."""
    for node in ast.walk(ast.parse(path.read_text())):
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
        for name in imported(path):
            if name.split(".")[0] in others or name.startswith(".."):
                wrong.append(f"{path.name} imports {name}")
    assert wrong == []


def sides(config, hot=False):
    return providers.sides_of(config, ["mx.fast"], hot)


class TestInputs:
    def addresses(self, config, hot, calls):
        """Those of the arrays of every call, in order."""
        ours = sides(config, hot)["ours"]
        seen = []
        ours._function = lambda *arrays: seen.append(arrays) or arrays[0] + 0
        for _ in range(2):  # what follows goes on where it stopped
            ours.finish(ours.prepare(calls))
        return [tuple(np.asarray(a).ctypes.data for a in arrays) for arrays in seen]

    def test_they_are_taken_in_turn(self):
        config = Config("layer", "float32", 4, 256)
        count = math.ceil(2 * CACHE / (4 * 256 * 4))
        assert providers.sets_needed(config.input_bytes) == count
        seen = self.addresses(config, False, count - 3)
        assert len(set(itertools.chain(*seen[:count]))) == 3 * count
        assert seen[count:] == seen[: count - 6]

    def test_hot_ones_stay(self):
        assert len(set(self.addresses(Config("layer", "float32", 4, 256), True, 5))) == 1

    def test_cotangents_are_taken_in_turn(self):
        config = Config("add_rms", "float32", 4, 256, backward=True)
        pairs = sides(config)["ours"]._turn
        found = [next(pairs) for _ in range(providers.sets_needed(config.input_bytes))]
        arrays = [a for inputs, cotangents in found for a in (*inputs, *cotangents)]
        assert len({np.asarray(a).ctypes.data for a in arrays}) == 5 * len(found)

    @pytest.mark.parametrize("op", OPS)
    @pytest.mark.parametrize("backward", [False, True])
    def test_bytes_are_those_of_the_arrays(self, op, backward):
        config = Config(op, "float16", 16, 32, backward)
        inputs = config.inputs()
        outputs = config.functions()[0](*inputs)
        outputs = [outputs] if isinstance(outputs, mx.array) else list(outputs)
        named = dict(zip(config.inputs_of(), inputs, strict=True))
        rows = {"x", "gate", "heads", "k", "samples", "channels", "residual", "residual_samples"}
        of_rows = [a for name, a in named.items() if name in rows]
        if not backward:
            assert config.moved == sum(a.nbytes for a in [*of_rows, *outputs])
            assert config.output_bytes == sum(a.nbytes for a in outputs)
            return
        assert [c.shape for c in config.cotangents()] == [o.shape for o in outputs]
        # The sum stands for what it was summed from, but for a factor's gradient or two norms.
        kept = of_rows if len(outputs) == 1 or op == "qk" else outputs[1:]
        kept += [of_rows[0]] * (op == "norm_add_norm" or "factor" in named)
        assert config.moved == sum(a.nbytes for a in [*kept, *config.cotangents(), *kept])

    @pytest.mark.parametrize("op", images.OPS)
    def test_images_agree(self, op):
        config = images.ImageConfig(op, "float32", (2, 4, 4, 32))
        ours, mlx = config.functions()
        of_ours, of_mlx = (f(*config.inputs()) for f in (ours, mlx))
        assert type(of_ours) is type(of_mlx) or len(of_ours) == len(of_mlx)


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
    """Sees a microsecond a call of ours and two of mx.fast's, nothing of cases it is blind to."""

    blind = ()

    def __enter__(self):
        self.names, self.activity = [], {}
        return self

    def __exit__(self, *error):
        for name in self.names:
            case, side, *_ = name.split("/")
            if case not in self.blind:
                seconds = {"ours": 1e-6, "mx.fast": 2e-6}[side] * 8
                self.activity[name] = cupti.Activity(seconds, 16)

    @staticmethod
    def available():
        return True

    def range(self, name):
        self.names.append(name)
        return contextlib.nullcontext()


class Counted:
    """Counts its calls."""

    output_bytes, context = 1, contextlib.nullcontext

    def __init__(self, name, log):
        self.name, self.log = name, log

    def prepare(self, count):
        return [None] * count

    def finish(self, pending, *, alone=False):
        self.log.append((self.name, len(pending), alone))


class TestOfAGpu:
    @pytest.fixture
    def measured(self, monkeypatch):
        """Two cases, of 8 calls of two sides; what was called, and their times."""
        monkeypatch.setattr(clocks, "Trace", FakeTrace)
        log = []
        both = {name: Counted(name, log) for name in ("ours", "mx.fast")}
        cases = [Case(dict(op=op), lambda: both, count=8) for op in "ab"]
        return log, lambda: [t for _, t in clocks.measure(cases, "kernels", rounds=3)]

    def test_sides_take_turns_in_a_trace(self, measured):
        log, times = measured
        _, of_b = times()
        ours, fast = of_b["ours"], of_b["mx.fast"]
        assert ours.samples.values == ours.alone.values == pytest.approx((1e-6,) * 3)
        assert fast.samples.over(ours.samples).median == pytest.approx(2)
        assert (ours.method, ours.kernels, ours.calls) == ("CUPTI", 2, 8)
        samples = [name for name, count, alone in log[4:16] if not alone]
        assert samples == ["ours", "mx.fast", "mx.fast", "ours", "ours", "mx.fast"]

    def test_what_cupti_misses_is_timed_by_the_slope(self, measured, monkeypatch):
        monkeypatch.setattr(FakeTrace, "blind", ("0",))
        of_a, of_b = measured[1]()
        assert (of_a["ours"].method, of_b["ours"].method) == ("slope", "CUPTI")
        assert of_a["ours"].alone is of_a["ours"].kernels is None
        assert len(of_a["ours"].samples.values) == 3


class TestOfTheHost:
    def clock(self, monkeypatch, how, config):
        """The order in which a sample of three calls builds, evaluates and looks at the clock."""
        log, evaluate, ours = [], mx.eval, sides(config)["ours"]
        build = ours._function
        ours._function = lambda *arrays: log.append("build") or build(*arrays)
        monkeypatch.setattr(mx, "eval", lambda *out: log.append("eval") or evaluate(*out))
        for name in ("perf_counter", "thread_time"):
            monkeypatch.setattr(timing.time, name, lambda name=name: log.append("clock") or 0.0)
        clocks.host(ours, how).seconds(3)
        return "".join(word[0] for word in log)

    @pytest.mark.parametrize(
        "how, log", [("evals", "bbbcec"), ("many", "cbbbec"), ("one", "cbebebec")]
    )
    def test_what_is_within(self, how, log, monkeypatch):
        assert self.clock(monkeypatch, how, Config("rms", "float32", 2, 8)) == log

    def test_a_threads_time_is_after_some(self, monkeypatch):
        log = self.clock(monkeypatch, "thread", Config("rms", "float32", 2, 8))
        assert log == "bbbecbbbec"

    def test_the_forward_is_not_the_backwards_time(self, monkeypatch):
        config = Config("rms", "float32", 2, 8, backward=True)
        assert self.clock(monkeypatch, "evals", config) == "bbbecec"

    def test_memory(self, monkeypatch):
        monkeypatch.setattr(clocks, "output_budget", lambda: 1000)
        ours = providers.Calls(mx.abs, [[mx.zeros(8)]], output_bytes=32)
        assert clocks.host(ours, "evals").most == 31

    def test_its_context(self):
        log = []

        @contextlib.contextmanager
        def context():
            log.append("enter")
            yield
            log.append("leave")

        runs = timing.Runs(
            lambda pending: log.append(pending), context, lambda count: f"{count} prepared"
        )
        runs.seconds(3)
        assert log == ["enter", "3 prepared", "leave"]


class TestCopies:
    @pytest.mark.parametrize("size, threads", [(1 << 12, 1), (2 << 16, 2), ((9 << 16) + 8, 3)])
    def test_each_is_one_by_threads(self, size, threads, monkeypatch):
        monkeypatch.setattr(_ext, "cpu_threads", lambda: 3)
        copies = copy_speed.side(size)
        assert copies._threads == threads and copies.output_bytes == size
        for i, array in enumerate(copies._inputs):
            array[:] = i + 1
        pending = copies.prepare(2)
        copies.finish(pending)
        for i, (to, source) in enumerate(pending):
            assert (to == source).all() and to[-1] == i % len(copies._inputs) + 1

    def test_a_rate_counts_what_is_read_and_written(self, monkeypatch):
        said = []
        seconds = timing.Samples((2e-3,) * 15)
        monkeypatch.setattr(timing, "measure", lambda calls, **_: {"copy": seconds})
        assert copy_speed.rate(1 << 20, said.append) == 2 * (1 << 20) / 2e-3
        assert said[0].startswith("A copy of 1 MiB: 1.049 GB/s")


def test_what_is_known_of_this_machine(monkeypatch):
    monkeypatch.undo()
    assert 1 << 15 <= conditions.cache_bytes() < 1 << 32
    assert machine.memory_bytes() > 1 << 28
    assert set(DTYPES) == {"float32", "float16", "bfloat16"}


class TestHostMemory:
    @pytest.fixture
    def host(self, monkeypatch, tmp_path):
        meminfo, groups, root = (tmp_path / name for name in ("meminfo", "cgroup", "fs"))
        for name, path in (("_MEMINFO", meminfo), ("_GROUPS", groups), ("_ROOT", root)):
            monkeypatch.setattr(host_memory, name, path)
        meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
        monkeypatch.setattr(host_memory.resource, "getrlimit", lambda limit: (-1, -1))

        def limit(group, file, value):
            (root / group).mkdir(parents=True, exist_ok=True)
            (root / group / file).write_text(f"{value}\n")

        return groups, limit

    def test_of_a_host(self, host):
        assert host_memory.available() == 8000 << 10

    def test_of_a_group(self, host):
        groups, limit = host
        groups.write_text("0::/a/b\n")
        limit("a/b", "memory.max", "max")
        assert host_memory.available() == 8000 << 10
        limit("a", "memory.max", 5 << 20)
        assert host_memory.available() == 5 << 20
        limit("a/b", "memory.max", 4 << 20)
        assert host_memory.available() == 4 << 20

    def test_of_a_group_of_the_first_version(self, host):
        groups, limit = host
        groups.write_text("5:cpu,cpuacct:/c\n4:memory:/a\n0::/\n")
        limit("memory", "memory.limit_in_bytes", 9223372036854771712)
        assert host_memory.available() == 8000 << 10
        limit("memory/a", "memory.limit_in_bytes", 3 << 20)
        assert host_memory.available() == 3 << 20

    def test_of_a_process(self, host, monkeypatch):
        monkeypatch.setattr(host_memory.resource, "getrlimit", lambda limit: (2 << 20, -1))
        assert host_memory.available() == 2 << 20
