"""The bench command: what it measures, and what it writes."""

import dataclasses
import io
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest
from rich.console import Console

import mlx_norms
import pages
from command import WHAT, bench, capture, cli, grid, tracing
from command.cli import main
from command.model import Line as ModelLine
from command.model import table as model_table
from harness import clocks, conditions, device_copy, measuring, providers, tables
from harness.configs import OPS, Config
from harness.results import Line
from mlx_norms import ladders
from mlx_norms._measure import host_memory, machine, timing
from support.bench_case import CACHE, GRID, PNG, rows_of, run
from support.terminal import Terminal
from support.variant import ROOT, environment

pytestmark = pytest.mark.usefixtures("small_machine")


class TestTimes:
    @pytest.mark.parametrize(
        "what, sizes",
        [
            ("norm", {"rms": 8, "layer": 8, "add_rms": 16, "add_layer": 16, "head": 8, "qk": 8}),
            ("backward", {"rms": 12, "layer": 12, "add_rms": 16, "add_layer": 16, "head": 12}),
        ],
    )
    def test_every_op(self, what, sizes, tmp_path, capsys):
        file = tmp_path / "figures.csv"
        output = run(capsys, what, *GRID, "--ops", ",".join(sizes), "--csv", str(file))
        rows = rows_of(file)
        assert [(r["op"], r["provider"]) for r in rows] == list(
            itertools.product(sizes, ("ours", "mx.fast"))
        )
        for row in rows:
            assert row["section"] == what
            assert row["op"] in output
            assert float(row["bytes_an_element"]) == sizes[row["op"]]
            moved = sizes[row["op"]] * 3 * 40
            if row["op"] == "qk":
                moved += sizes["qk"] * 40  # a row of keys
            us, gbps = float(row["us"]), float(row["gbps"])
            assert gbps == pytest.approx(moved / us / 1e3, rel=1e-3)
            assert float(row["of_copy"]) == pytest.approx(gbps / float(row["copy_gbps"]), rel=1e-3)
            assert float(row["us_lower"]) <= us <= float(row["us_upper"])
            assert (row["rounds"], row["method"], row["gflops"]) == ("2", "evals", "")
            assert row["mlx_norms"] == mlx_norms.__version__
            assert row["device"].startswith("cpu, ")

    def test_a_grid(self, tmp_path, capsys):
        file = tmp_path / "figures.csv"
        grid = ["--rows", "1,4", "--lengths", "8,16", "--dtypes", "float16,bfloat16"]
        run(capsys, "norm", "--ops", "rms", *grid, "--csv", str(file))
        found = [(r["dtype"], r["length"], r["rows"]) for r in rows_of(file)[::2]]
        assert found == list(itertools.product(("float16", "bfloat16"), ("8", "16"), ("1", "4")))

    def test_a_batch_of_one_row(self, tmp_path, capsys):
        file = tmp_path / "figures.csv"
        shape = ["--lengths", "8", "--dtypes", "float32", "--ops", "batch_training"]
        run(capsys, "norm", *shape, "--rows", "1,2", "--csv", str(file))
        assert {row["rows"] for row in rows_of(file)} == {"2"}
        assert main(["norm", *shape, "--rows", "1"]) == 2
        assert "batch_training takes at least 2" in capsys.readouterr().err

    def test_units_of_a_known_provider(self, monkeypatch, tmp_path, capsys):
        """A call of 2 ms that moves 1 MiB, where copies read 256 MiB/s and write as many."""

        class Known:
            method, sample_seconds, most, calls, overlap = "known", 1e-3, 10, 7, False

            def __init__(self, provider):
                pass

            def seconds(self, count):
                return 2e-3 * count

        monkeypatch.setattr(clocks, "clock", Known)
        file = tmp_path / "figures.csv"
        shape = ["--rows", "256", "--lengths", "512", "--dtypes", "float32", "--ops", "layer"]
        output = run(capsys, "norm", *shape, "--csv", str(file))
        assert 2 * 4 * 256 * 512 == 1 << 20
        (ours, fast) = rows_of(file)
        assert float(ours["us"]) == 2000
        assert float(ours["gbps"]) == pytest.approx(0.52429)
        assert float(ours["of_copy"]) == pytest.approx(500 / 512, rel=1e-4)
        assert (ours["method"], ours["calls"], ours["over_baseline"]) == ("known", "7", "1")
        (line,) = re.findall("^.* ours .*2000-.*$", output, re.M)
        assert line.split() == "256x512 ours 2000 2000-2000 0.524 97.7% 8 noise".split()

    def test_plot(self, tmp_path, capsys):
        file = tmp_path / "figure.png"
        grid = ["--rows", "1,8", "--lengths", "16", "--dtypes", "float32"]
        output = run(capsys, "norm", "--ops", "rms,add_layer", *grid, "--plot", str(file))
        assert file.read_bytes().startswith(PNG)
        assert "NumPy's matmul of 64x64 float32:" in output

    @pytest.mark.parametrize("how", [[], ["--trace"]], ids=str)
    @pytest.mark.parametrize("asked", ["torch", "mx.fast,torch", "torch,liger"])
    def test_a_peer_that_is_missing(self, asked, how, capsys, monkeypatch):
        """It is named, in one line, before anything is measured."""
        for name in ("torch", "liger_kernel"):
            monkeypatch.setitem(sys.modules, name, None)
        for name, function in cli.peers.FUNCTIONS.items():
            monkeypatch.setitem(cli.peers.FUNCTIONS, name, function.__wrapped__)
        monkeypatch.setattr(bench.Bench, "_providers", None)
        assert main(["norm", *GRID, "--ops", "rms", "--peers", asked, *how]) == 2
        output = capsys.readouterr()
        assert (output.out, output.err.count("\n")) == ("", 1)
        assert f"--peers {asked}: no torch here: " in output.err
        assert ("no liger here" in output.err) == ("liger" in asked)

    def test_a_peer_whose_error_has_many_lines(self, capsys, monkeypatch):
        def fail():
            raise RuntimeError("not\n" * 1000)

        monkeypatch.setitem(cli.peers.FUNCTIONS, "torch", fail)
        assert main(["norm", *GRID, "--ops", "rms", "--peers", "torch"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("--peers torch: no torch here: not not") and len(error) < 500

    def test_other_peers_are_not_asked_for(self, capsys, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch", None)
        output = run(capsys, "norm", *GRID, "--ops", "rms", "--peers", "mx.fast")
        assert re.search("^ *3x40 +mx.fast ", output, re.M)

    def test_a_peer_that_does_not_do_it(self, capsys, monkeypatch):
        class Refuses(providers.TorchCalls):
            output_bytes = 1

            def __init__(self, *arguments):
                pass

            def prepare(self, count):
                raise NotImplementedError("not of three rows")

        monkeypatch.setattr(cli.peers, "_PACKAGES", {})
        monkeypatch.setitem(cli.peers.FUNCTIONS, "torch", lambda: {"rms": None.__class__})
        monkeypatch.setattr(providers, "torch_calls", Refuses)
        output = run(capsys, "norm", *GRID, "--ops", "rms,layer", "--peers", "mx.fast,torch")
        assert len(re.findall("torch does not do .*not of three rows", output)) == 1
        assert "layer" in output

    @pytest.mark.cuda
    def test_device_clock(self, backend, tmp_path, capsys):
        file = tmp_path / "figures.csv"
        grid = ["--rows", "4096", "--lengths", "4096", "--ops", "rms,add_layer"]
        for what in ("norm", "backward"):
            run(capsys, what, *grid, "--dtypes", "float32", "--csv", str(file))
            assert {row["method"] for row in rows_of(file)} == {"device"}
        ours = providers.providers(Config("rms", "float32", 4096, 4096))["ours"]
        clocked = {"host": clocks.HostClock(ours), "device": clocks.DeviceClock(ours)}
        times = timing.measure(clocked, rounds=5, sample_seconds=0.01)
        # Its part of the host's time, however busy the host is.
        assert 0 < times["device"].over(times["host"]).median < 1.2


class Simulated:
    """A provider of calls that take a time each, and a clock that knows how long all took."""

    method, sample_seconds, most, calls, overlap = "known", 0.02, 1 << 62, 1, False
    took = 0.0

    def __init__(self, provider, seconds=1e-4):
        self._seconds = seconds

    def seconds(self, count):
        type(self).took += count * self._seconds
        return count * self._seconds


class TestPlan:
    """How long a run takes, which is told at its start, and how far it is."""

    def args(self, *arguments):
        return cli.parser().parse_args(arguments)

    def seconds(self, *arguments):
        """By the estimate, of the default or full configs of a subcommand."""
        args = self.args(*arguments)
        configs = grid.configs(args, "full" if args.full else "times")
        found = measuring.Measuring(args.rounds, args.hot, print)
        return sum(found.estimate(config, 1) for config in configs)

    @pytest.mark.parametrize("cache", [1 << 20, 32 << 20, 64 << 20])
    def test_the_default_ends_within_two_minutes(self, cache, monkeypatch):
        monkeypatch.undo()
        monkeypatch.setattr(conditions, "cache_bytes", lambda: cache)
        assert 30 < self.seconds("norm") < 120
        assert self.seconds("norm", "--full") > 120

    def test_the_default_has_all_ops_and_enough_rounds(self):
        for what in ("norm", "backward"):
            args = self.args(what)
            assert args.rounds == timing.LEAST_ROUNDS
            some, every = (grid.configs(args, purpose) for purpose in ("times", "full"))
            assert {config.op for config in some} == {config.op for config in every} == {*OPS}
            assert {config.dtype for config in some} == {config.dtype for config in every}
            assert len(some) < len(every) / 2

    @pytest.mark.parametrize("full, rows", [([], "1 512"), (["--full"], "1 32 512 4096")])
    def test_full(self, full, rows, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(providers, "MOST_SETS", 1)
        file = tmp_path / "figures.csv"
        options = ["--ops", "head", "--dtypes", "float32", "--csv", str(file), *full]
        run(capsys, "norm", *options)
        assert [row["rows"] for row in rows_of(file)[::2]] == rows.split()

    @pytest.mark.parametrize("rounds", [1, 5, 20])
    def test_the_estimate_is_of_the_samples(self, rounds, monkeypatch):
        """With copies, as on any CPU, and no less than they take."""
        monkeypatch.undo()
        monkeypatch.setattr(conditions, "cache_bytes", lambda: CACHE)
        monkeypatch.setattr(clocks, "clock", Simulated)
        monkeypatch.setattr(Simulated, "took", 0.0)
        monkeypatch.setattr(providers, "able", lambda config, of_config, say: of_config)
        found = measuring.Measuring(rounds, False, print)
        config = Config("rms", "float32", 512, 128)
        found.lines("norm", config, {"ours": None, "mx.fast": None})
        assert 0.5 * found.estimate(config, 1) < Simulated.took < found.estimate(config, 1)

    def test_a_gradient_takes_its_forward_besides(self, monkeypatch):
        monkeypatch.setattr(clocks.HostClock, "sample_seconds", 1.0)
        found = measuring.Measuring(5, False, print)
        forward, backward = (Config("rms", "float32", 1, 64, way) for way in (False, True))
        assert found.estimate(backward, 1) > 1.5 * found.estimate(forward, 1)

    def test_it_is_told_in_time(self, monkeypatch):
        """And a line of each configuration before it is measured."""
        log = []
        monkeypatch.setattr(bench, "_tell", log.append)
        monkeypatch.setattr(measuring.Measuring, "estimate", lambda *arguments: 21.0)
        monkeypatch.setattr(measuring.Measuring, "lines", lambda *a, **o: log.append("lines") or [])
        grid = ["--rows", "3,4", "--lengths", "40", "--dtypes", "float32", "--ops", "rms"]
        assert main(["norm", *grid]) == 0
        about, *lines = log
        assert about == "configurations: 2, rounds of each: 5, about 42 s in all."
        assert lines == ["1 of 2: rms 3x40 float32", "lines", "2 of 2: rms 4x40 float32", "lines"]

    @pytest.mark.parametrize("how", [[], ["--json"]], ids=str)
    def test_it_is_told_where_errors_are(self, how, capsys):
        assert main(["norm", *GRID, "--ops", "rms", "--rounds", "1", *how]) == 0
        output = capsys.readouterr()
        assert re.fullmatch(
            r"configurations: 1, rounds of each: 1, about \d+ s in all\.\n"
            r"1 of 1: rms 3x40 float32\n",
            output.err,
        )
        assert "1 of 1" not in output.out

    def test_no_lines_on_a_terminal(self, monkeypatch):
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(["norm", *GRID, "--ops", "rms", "--rounds", "1"]) == 0
        assert "about" in terminal.getvalue() and "1 of 1: " not in terminal.getvalue()

    def test_no_standard_error(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "stderr", None)
        assert main(["norm", *GRID, "--ops", "rms", "--rounds", "1"]) == 0
        assert "1 of 1" not in capsys.readouterr().out


class TestSummary:
    """One table of ratios, before anything else."""

    def test_it_is_first(self, capsys):
        grid = ["--rows", "3,4", "--lengths", "40", "--dtypes", "float32,bfloat16"]
        output = run(capsys, "norm", *grid, "--ops", "rms,layer")
        assert output.startswith("norm: times of peers over ours")
        summary, details = output.split("device cpu, ")
        rows = re.findall(r"^ *(\w+) +(\d+x\d+) +noise \(.*\) +noise \(.*\) *$", summary, re.M)
        assert rows == list(itertools.product(("rms", "layer"), ("3x40", "4x40")))
        assert output.count("times of peers over ours") == 1
        assert "norm: rms, float32" in details

    def test_ratios_are_peers_over_ours(self):
        def line(dtype, name, seconds):
            about = ("norm", "rms", dtype, 1, 8, name, "evals", "memory", 1)
            return Line(*about, timing.Samples(seconds), 1, 1, 1, 1.0, True, None, 1)

        times = {"ours": (2.0,) * 5, "mx.fast": (3.0,) * 5, "torch": (1.0, 1.0, 2.0, 3.0, 3.0)}
        lines = [line("float32", *each) for each in times.items()]
        lines += [line("float16", name, times[name]) for name in ("ours", "mx.fast")]
        console = Console(width=120, file=io.StringIO())
        console.print(tables.summary(lines, "norm"))
        heading, dtypes, _, row = filter(str.strip, console.file.getvalue().splitlines()[1:])
        assert re.findall(r"\S+ / ours", heading) == ["mx.fast / ours", "torch / ours"] + [
            "mx.fast / ours"
        ]
        assert dtypes.split()[2:] == ["float32", "float32", "float16"]
        clear = "1.50 (1.50 to 1.50)"
        assert " ".join(row.split()) == f"rms 1x8 {clear} noise (0.50 to 1.50) {clear}"

    def test_json(self, capsys):
        found = json.loads(run(capsys, "norm", *GRID, "--ops", "rms,layer", "--json"))
        for op, each in zip(("rms", "layer"), found["summary"], strict=True):
            about = [each[name] for name in ("op", "dtype", "rows", "length", "peer")]
            assert about == [op, "float32", 3, 40, "mx.fast"]
            (ours,) = (x for x in found["lines"] if (x["op"], x["provider"]) == (op, "ours"))
            assert each["over_ours"] == ours["over_baseline"]
            assert each["over_ours"]["noise"] is True  # of two rounds

    def test_ladders_have_none(self, rungs_anywhere, capsys):
        output = run(capsys, "ladder", "--rows", "2", "--lengths", "48", "--sizes", "8")
        assert output.startswith("device ") and "peers over ours" not in output


class Plugged:
    """Its products take a device a second each, and the launch of its calls ``launching``."""

    output_bytes = 1

    def __init__(self, launching):
        self.launching, self.now = launching, 0.0
        self.plugs, self.before = [], 0

    def prepare(self, count):
        self.before = 0
        return [None] * count

    def plug(self):
        self.before += 1

    def mark(self):
        return self.before

    def seconds_between(self, start, stop):
        return float(stop - start) or 0.25

    def launch(self, pending):
        self.now += self.launching
        self.plugs.append(self.before)
        return pending

    def wait(self):
        pass


class TestInputs:
    def addresses(self, config, hot, calls):
        """Those of the arrays of every call, in order."""
        ours = providers.providers(config, hot=hot)["ours"]
        seen = []
        ours._function = lambda *arrays: seen.append(arrays) or arrays[0] + 0
        for _ in range(2):  # what follows goes on where it stopped
            ours.finish(ours.prepare(calls))
        return [tuple(np.asarray(a).ctypes.data for a in arrays) for arrays in seen]

    def test_they_are_taken_in_turn(self):
        config = Config("layer", "float32", 4, 256)
        count = math.ceil(2 * CACHE / (3 * 4 * 256 * 4 - 6 * 256 * 4))
        assert providers.sets_needed(config.input_bytes) == count
        seen = self.addresses(config, False, count - 3)
        assert len(set(itertools.chain(*seen[:count]))) == 3 * count
        assert seen[count:] == seen[: count - 6]

    def test_hot_ones_stay(self):
        seen = self.addresses(Config("layer", "float32", 4, 256), True, 5)
        assert len(set(seen)) == 1

    def test_cotangents_are_taken_in_turn(self):
        config = Config("add_rms", "float32", 4, 256, backward=True)
        pairs = providers.providers(config)["ours"]._turn
        found = [next(pairs) for _ in range(providers.sets_needed(config.input_bytes))]
        arrays = [a for inputs, cotangents in found for a in (*inputs, *cotangents)]
        assert len({np.asarray(a).ctypes.data for a in arrays}) == 5 * len(found)
        for inputs, _ in found:
            assert mx.array_equal(inputs[0], found[0][0][0])

    @pytest.mark.parametrize(
        "size, hot, where", [(100, False, "memory"), (1, False, "cache"), (100, True, "cache")]
    )
    def test_where_they_are(self, size, hot, where):
        """One byte cannot be past the cache with as many sets as there are."""
        assert providers.regime(size, hot) == where
        assert providers.regime(2 * CACHE, hot) == "memory"

    @pytest.mark.parametrize("hot, sets", [([], "8"), (["--hot"], "1")])
    def test_it_is_said(self, hot, sets, tmp_path, capsys):
        file = tmp_path / "figures.csv"
        shape = ["--rows", "4", "--lengths", "512", "--dtypes", "float32", "--ops", "head"]
        output = run(capsys, "norm", *shape, *hot, "--csv", str(file))
        assert {row["sets"] for row in rows_of(file)} == {sets}
        assert {row["inputs"] for row in rows_of(file)} == {"cache" if hot else "memory"}
        assert ("The inputs are kept in the cache." in output) == bool(hot)

    @pytest.mark.parametrize("op", OPS)
    @pytest.mark.parametrize("backward", [False, True])
    def test_bytes_are_those_of_the_arrays(self, op, backward):
        config = Config(op, "float16", 16, 32, backward)
        inputs = config.inputs()
        outputs = OPS[op].ours(*inputs)
        outputs = [outputs] if isinstance(outputs, mx.array) else list(outputs)
        named = dict(zip(OPS[op].inputs, inputs, strict=True))
        others = ("bias", "scale", "shift", "factor")
        parameters = [a for name, a in named.items() if "weight" in name or name in others]
        assert config.parameter_bytes == sum(a.nbytes for a in parameters)
        if backward:
            cotangents = config.cotangents()
            assert [c.shape for c in cotangents] == [o.shape for o in outputs]
            read = (
                outputs[1:]
                if config.adds
                else [
                    named[name]
                    for name in named.keys() & {"x", "gate", "heads", "k", "samples", "channels"}
                ]
            )
            if op == "norm_add_norm" or "factor" in named:
                read += [named["x" if "x" in named else "samples"]]
            assert config.moved == sum(a.nbytes for a in [*read, *cotangents, *read])
            weights = [named[name] for name in named if "weight" in name or name == "scale"]
            extra = sum(a.nbytes for a in [*weights, *parameters])
            assert config.compulsory == config.moved + extra
        else:
            assert config.compulsory == sum(a.nbytes for a in [*inputs, *outputs])
            assert config.input_bytes == sum(a.nbytes for a in inputs)
            assert config.output_bytes == sum(a.nbytes for a in outputs)


class SlowBytes:
    """A microsecond a call, and ten nanoseconds a byte; a copy on one thread as fast as half."""

    method, sample_seconds, most, calls, overlap = "known", 1e-3, 10, 7, False
    log = []

    def __init__(self, provider):
        self._size = provider.output_bytes

    def seconds(self, count):
        self.log.append(self._size)
        return count * (1e-6 + 1e-8 * self._size)


class TestCopies:
    @pytest.fixture(autouse=True)
    def real(self, small_machine, monkeypatch):
        monkeypatch.undo()
        monkeypatch.setattr(conditions, "cache_bytes", lambda: CACHE)
        monkeypatch.setattr(mlx_norms._ext, "cpu_threads", lambda: 3)

    @pytest.mark.parametrize("size", [4, 1 << 12, 3 << 16, (3 << 16) + 8])
    def test_each_is_one(self, size):
        for name, calls in device_copy.passes(size).items():
            pending = calls.prepare(1)
            inputs, _ = next(calls._turn)  # of another set, with the same values
            calls.finish(list(pending))
            outputs = pending[0] if isinstance(pending[0], list) else pending
            assert len(outputs) == (3 if "by 3" in name else 1)
            assert sum(output.nbytes for output in outputs) == size == calls.output_bytes
            assert mx.array_equal(mx.concatenate(outputs), mx.abs(mx.concatenate(inputs)))

    def test_threads_share_large_ones(self):
        assert list(device_copy.passes(1 << 12)) == ["copy"]
        assert list(device_copy.passes(2 << 16)) == ["copy", "copy by 2"]
        assert list(device_copy.passes(9 << 16)) == ["copy", "copy by 3"]

    def test_they_take_turns_with_the_providers(self, monkeypatch, tmp_path, capsys):
        """And where bytes are not what takes their time, there is no share."""
        monkeypatch.setattr(clocks, "clock", SlowBytes)
        SlowBytes.log.clear()
        file = tmp_path / "figures.csv"
        shape = ["--rows", "1,64", "--lengths", "8", "--dtypes", "float32", "--ops", "rms"]
        output = run(capsys, "norm", *shape, "--csv", str(file))
        assert SlowBytes.log[-4:] == [4, 2048, 2048, 2048]  # in reversed order, the second round
        ours, fast, *large = rows_of(file)
        assert ours["of_copy"] == fast["of_copy"] == ""
        assert [float(row["of_copy"]) for row in large] == [1, 1]
        assert re.search(r"^ *1x8 +ours +1\.32 .* +- +8 ", output, re.M)
        assert re.search(r"^ *64x8 +ours +21\.5 .* 100\.0% ", output, re.M)
        assert "however few its bytes: rms 1x8." in output
        assert "Faster than the copy" not in output

    def test_more_than_a_copy_is_explained(self, monkeypatch, capsys):
        class Faster(SlowBytes):
            def __init__(self, provider):
                super().__init__(provider)
                self._factor = 0.25 if provider._function is OPS["rms"].ours else 1

            def seconds(self, count):
                return self._factor * super().seconds(count)

        monkeypatch.setattr(clocks, "clock", Faster)
        shape = ["--rows", "64", "--lengths", "8", "--dtypes", "float32", "--ops", "rms,layer"]
        output = run(capsys, "norm", *shape)
        assert " 400.0% " in output
        assert re.search("Faster than the copy, since .*: rms 64x8\\.", output)

    def test_the_fastest_counts(self):
        copied = {
            "copy": timing.Samples((3.0,)),
            "copy by 2": timing.Samples((2.0,)),
            measuring._CALL: timing.Samples((0.9,)),
        }
        assert measuring._pace(dict(copied), 8) == (4, True)
        copied[measuring._CALL] = timing.Samples((1.1,))
        assert measuring._pace(copied, 8) == (4, False)


class TestNoise:
    def printed(self, table):
        console = Console(width=200, file=io.StringIO())
        console.print(table)
        return console.file.getvalue()

    NOISY = timing.Samples((1.0, 1.0, 1.0, 5.0, 5.0)), timing.Samples((0.9, 2.0, 2.0, 2.0, 2.0))
    CLEAR = timing.Samples((3.0,) * 5), timing.Samples((1.0,) * 5)
    FEW = timing.Samples((3.0,) * 4), timing.Samples((1.0,) * 4)

    @pytest.mark.parametrize("pair, said", [(NOISY, "noise"), (CLEAR, "3.00"), (FEW, "noise")])
    def test_norms(self, pair, said):
        ratio = pair[0].over(pair[1])
        about = ("norm", "rms", "float32", 1, 8, "ours", "evals", "memory", 1)
        line = Line(*about, pair[1], 1, 1, 1, 1.0, True, None, 1, baseline=ratio)
        (table,) = tables.tables([line], "norm")
        assert said in self.printed(table)

    @pytest.mark.parametrize("pair, said", [(NOISY, "noise"), (CLEAR, "3.00"), (FEW, "noise")])
    def test_rungs(self, pair, said):
        about = ("ladder", "layer", "float32", 1, 8)
        lines = [
            Line(*about, name, "evals", "memory", 1, s, 1, 1, 1, 1.0, True, None, 1, fixes="x")
            for name, s in zip(("naive", "simd"), pair, strict=True)
        ]
        table, _ = tables.tables(lines, "ladder")
        assert said in self.printed(table)

    @pytest.mark.parametrize("pair, said", [(NOISY, "noise"), (CLEAR, "3.000"), (FEW, "noise")])
    def test_models(self, pair, said):
        report = mlx_norms.report()
        line = ModelLine(8, "decode", "patched", pair[1], 1, 1.0, pair[0].over(pair[1]), report)
        assert said in self.printed(model_table([line], "a model"))

    def test_what_is_paired_is_said(self, capsys):
        output = run(capsys, "norm", *GRID, "--ops", "rms")
        assert timing.PAIRING in " ".join(output.split())


class TestMemory:
    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    @pytest.mark.parametrize("backward", [False, True])
    @pytest.mark.parametrize("op", OPS)
    def test_what_is_needed_is_the_peak(self, op, backward, dtype, monkeypatch):
        monkeypatch.undo()
        monkeypatch.setattr(conditions, "cache_bytes", lambda: CACHE)
        monkeypatch.setattr(clocks.HostClock, "sample_seconds", 1e-9)  # one call a sample
        config = Config(op, dtype, 256, 1024, backward)
        mx.synchronize()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        of_config = providers.providers(config, ["mx.fast"])
        measuring.Measuring(1, False, print).lines("norm", config, of_config)
        peak = mx.get_peak_memory() - before
        # An array or two is let go of sooner or later, as MLX's threads like.
        assert 0.8 < providers.memory_needed(config, ["mx.fast"], False) / peak < 2

    @pytest.mark.parametrize(
        "arguments, text",
        [
            (["norm", *GRID, "--ops", "rms"], "rms 3x40 in float32 takes about"),
            (["backward", *GRID, "--ops", "layer", "--hot"], "layer 3x40 in float32 takes about"),
            (["ladder", "--backend", "metal-sim", "--sizes", "64", "--ops", "sgemm"], "--sizes."),
            (["model", "tiny:llama", "--prompts", "64"], "--prompts 64 and --tokens 64 take at"),
        ],
    )
    def test_it_is_refused_first(self, arguments, text, monkeypatch, capsys):
        monkeypatch.setattr(machine, "memory_bytes", lambda: 2000)
        for owner, name in ((bench, "Measuring"), (bench.metal_sim, "count")):
            monkeypatch.setattr(owner, name, None)
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert text in error and "there are 1.863e-06 GiB" in error and error.count("\n") == 1

    def test_a_size_that_no_machine_has(self, capsys):
        grid = ["--rows", "2147483647", "--lengths", "2147483647", "--ops", "rms"]
        assert main(["norm", *grid]) == 2
        assert "smaller --rows or --lengths" in capsys.readouterr().err

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


class TestClocks:
    def test_samples_are_no_longer_than_they_may_be(self):
        class Timed:
            most, overlap = 5, False
            log = []

            def seconds(self, count):
                self.log.append(count)
                return 1e-6 * count

        timing.measure({"a": Timed()}, rounds=2, sample_seconds=1)
        assert Timed.log[0] == 1 and Timed.log[-2:] == [5, 5]

    def test_the_forward_is_not_the_backwards_time(self, monkeypatch):
        log = []
        evaluate = mx.eval
        monkeypatch.setattr(mx, "eval", lambda *out: log.append("eval") or evaluate(*out))
        monkeypatch.setattr(clocks.time, "perf_counter", lambda: log.append("clock") or 0.0)
        config = Config("rms", "float32", 2, 8, backward=True)
        ours = providers.providers(config)["ours"]
        log.clear()
        clocks.HostClock(ours).seconds(3)
        assert log == ["clock", "eval", "clock", "eval", "clock"]

    @pytest.mark.parametrize(
        "launching, plugs",
        [(0.5, [1]), (1.0, [1, 2]), (3.0, [1, 2, 4]), (64.0, [1, 2, 4, 8, 16, 32])],
    )
    def test_a_sample_is_taken_again_if_the_device_waited(self, launching, plugs, monkeypatch):
        provider = Plugged(launching)
        monkeypatch.setattr(clocks.time, "perf_counter", lambda: provider.now)
        clock = clocks.DeviceClock(provider)
        assert clock.seconds(3) == 0.25
        assert provider.plugs == [*plugs, plugs[-1]]  # of the first run of a graph, and then
        assert clock.method == ("device" if launching < plugs[-1] else "device, host")

    def test_memory(self, monkeypatch):
        monkeypatch.setattr(clocks, "output_budget", lambda: 1000)
        ours = providers.Calls(mx.abs, [[mx.zeros(8)]], output_bytes=32)
        assert clocks.HostClock(ours).most == 31

    def test_what_is_known_of_this_machine(self, monkeypatch):
        monkeypatch.undo()
        assert 1 << 15 <= conditions.cache_bytes() < 1 << 32
        assert device_copy.size() >= 2 * conditions.cache_bytes() or machine.backend() == "cuda"
        assert machine.memory_bytes() > 1 << 28


class TestTrace:
    def test_three_states(self):
        seconds = [9e-3, 8e-5, *[5e-6] * 20, 4e-3, *[5e-6, 7e-6, 2e-3] * 10]
        trace = tracing.Trace(tuple(seconds))
        assert trace.pressed_from == 23
        assert trace.steady == 5e-6
        assert trace.pressed == pytest.approx((4e-3 + 10 * (2e-3 + 12e-6)) / 31)
        text = "\n".join(trace.lines("ours"))
        assert "first call, with what it compiles: 9000.0 µs" in text
        assert "steady state: 5.0 µs" in text
        assert "back-pressure: from call 23, " in text

    def test_a_slow_call_or_two_are_no_pressure(self):
        trace = tracing.Trace((9e-3, *[5e-6] * 50, 1e-3, 1e-3, *[5e-6] * 47))
        assert trace.pressed_from is None and trace.pressed is None
        assert "back-pressure: none in these calls" in list(trace.lines("ours"))[-1]

    @pytest.mark.parametrize("what", ["norm", "backward"])
    def test_of_each_provider(self, what, tmp_path, capsys):
        file = tmp_path / "trace.csv"
        output = run(capsys, what, "--trace", *GRID, "--ops", "add_rms", "--csv", str(file))
        rows = rows_of(file)
        calls = [str(i) for i in range(1, 101)]
        for name in ("ours", "mx.fast"):
            mine = [row for row in rows if row["provider"] == name]
            assert [row["call"] for row in mine] == calls
            assert all(float(row["host_us"]) > 0 for row in mine)
            assert f"{name}, add_rms float32 3x40: µs of the host for each of" in output
        assert output.count("first call, with") == output.count("steady state: ") == 2
        assert len(re.findall(r"^ +\d+1:( +\d+\.\d){10}$", output, re.M)) == 18


class TestCapture:
    @pytest.fixture
    def metal(self, monkeypatch):
        """A Mac that captures, with the CPU in place of its GPU."""
        log = []
        monkeypatch.setenv("MTL_CAPTURE_ENABLED", "1")
        monkeypatch.setattr(machine, "backend", lambda: "metal")
        monkeypatch.setattr(mx.metal, "start_capture", lambda path: log.append(path))
        monkeypatch.setattr(mx.metal, "stop_capture", lambda: log.append("stop"))
        return log

    def test_no_metal(self, capsys):
        assert main(["norm", "--capture", "x.gputrace"]) == 2
        assert capsys.readouterr().err == (
            "--capture x.gputrace: a capture is Metal's, and there is no Metal device here: it "
            "needs a Mac's GPU.\n"
        )

    def test_what_it_needs(self, metal, monkeypatch, tmp_path):
        path = tmp_path / "x.gputrace"
        assert capture.obstacle(str(path)) is None
        assert "must end in .gputrace" in capture.obstacle(str(tmp_path / "x.trace"))
        assert "there is no folder" in capture.obstacle(str(tmp_path / "none" / "x.gputrace"))
        path.touch()
        assert "exists already" in capture.obstacle(str(path))
        monkeypatch.delenv("MTL_CAPTURE_ENABLED")
        assert "MTL_CAPTURE_ENABLED=1" in capture.obstacle(str(path))

    def test_it_wraps_calls(self, metal, monkeypatch, tmp_path, capsys):
        finish = providers.Calls.finish
        monkeypatch.setattr(
            providers.Calls,
            "finish",
            lambda self, pending, **o: metal.append(len(pending)) or finish(self, pending, **o),
        )
        path = str(tmp_path / "x.gputrace")
        output = run(capsys, "norm", "--capture", path, *GRID, "--ops", "rms")
        assert metal == [1, 1, path, 3, 3, "stop"]
        assert f"The capture is in {path}" in output

    def test_it_stops_whatever_happens(self, metal):
        with pytest.raises(KeyError), capture.captured("x.gputrace"):
            raise KeyError
        assert metal == ["x.gputrace", "stop"]

    def test_metal_refuses(self, metal, monkeypatch, capsys):
        def refuse(path):
            raise RuntimeError("[metal::start_capture] Failed to start: no.")

        monkeypatch.setattr(mx.metal, "start_capture", refuse)
        assert main(["norm", "--capture", "x.gputrace", *GRID, "--ops", "rms"]) == 2
        assert "--capture x.gputrace: [metal::start_capture] Failed" in capsys.readouterr().err


class TestArguments:
    @pytest.mark.parametrize(
        "arguments, message",
        [
            (
                ["norm", "--rows", "0"],
                "numbers from 1 to 2147483647, such as 32,1024: got '0'.",
            ),
            (["norm", "--rows", ""], "--rows takes numbers"),
            (["norm", "--rows", "2147483648"], "--rows takes numbers from 1 to 2147483647"),
            (["norm", "--lengths", "99999999999"], "--lengths takes numbers from 1 to 2147483647"),
            (["norm", "--lengths", "9" * 5000], "--lengths takes numbers from 1 to 2147483647"),
            (["norm", "--rows", "²"], "--rows takes numbers"),
            (["model", "tiny:llama", "--prompts", "2147483648"], "--prompts takes numbers from 1"),
            (["backward", "--lengths", "8,x"], "--lengths takes numbers from 1"),
            (["norm", "--ops", "rms,norm"], "--ops: 'norm' is none of rms, layer, add_rms, "),
            (["ladder", "--backend", "metal-sim", "--sizes", "-4"], "--sizes takes numbers"),
            (["ladder", "--backend", "metal-sim", "--ops", "rms"], "--ops: 'rms' is none of"),
            (["norm", "--dtypes", "int8"], "--dtypes: 'int8' is none of float32, float16, "),
            (["norm", "--peers", "jax"], "--peers: 'jax' is none of mx.fast, torch, "),
            (["norm", "--backend", "tpu"], "--backend 'tpu' is none of auto, cpu, "),
            (["model", "tiny:llama", "--backend", "metal-sim"], "--backend 'metal-sim' is none"),
            (["model", "tiny:llama", "--prompts", "a"], "--prompts takes numbers"),
            (["model", "tiny:llama", "--tokens", "1"], "--tokens must be at least 2, got 1."),
            (["norm", "--rounds", "0"], "--rounds must be at least 1, got 0."),
            (["norm", "--csv", "/no/such/x.csv"], "--csv /no/such/x.csv: there is no folder"),
            (["norm", "--plot", "/no/such/x.png"], "--plot /no/such/x.png: there is no folder"),
            (["norm", "--trace", "--plot", "x.png"], "--plot draws times, and --trace takes none"),
            (["norm", "--trace", "--capture", "x"], "--trace and --capture exclude each other"),
            (["norm", "--hot", "--backend", "metal-sim"], "--hot is about time"),
            (["norm", "--full", "--backend", "metal-sim"], "--full is about times"),
            (["backward", "--full", "--trace"], "--full is about times, and --trace takes none"),
            (["norm", "--capture", "x", "--csv", "x"], "--csv has nothing to write"),
        ],
    )
    def test_what_is_wrong_is_named(self, arguments, message, capsys):
        assert main(arguments) == 2
        output = capsys.readouterr()
        assert message in output.err and output.out == ""

    def test_a_file_is_looked_at_once(self, monkeypatch, tmp_path, capsys):
        seen = []
        monkeypatch.setattr(cli._output, "check_file", lambda *option: seen.append(option))
        files = ["--csv", str(tmp_path / "x.csv"), "--plot", str(tmp_path / "x.png")]
        run(capsys, "norm", *GRID, "--ops", "rms", *files)
        assert seen == [tuple(files[:2]), tuple(files[2:])]

    @pytest.mark.applies(not (mx.metal.is_available() or mx.cuda.is_available()))
    def test_no_gpu(self, capsys):
        assert main(["norm", "--backend", "gpu"]) == 2
        assert "--backend gpu: MLX has no GPU here." in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["figure.nothing", "figure", ".png", "folder.png"])
    @pytest.mark.parametrize("what", [["norm", *GRID], ["model", "tiny:llama"]])
    def test_a_file_that_cannot_be_an_image(self, what, name, monkeypatch, tmp_path, capsys):
        (tmp_path / "folder.png").mkdir()
        monkeypatch.setattr(bench, "Bench", None)  # before anything is measured
        file = str(tmp_path / name)
        assert main([*what, "--plot", file]) == 2
        output = capsys.readouterr()
        assert (output.out, output.err.count("\n")) == ("", 1)
        reason = "it is a folder" if name == "folder.png" else "its name must end in one of .eps"
        assert f"--plot {file}" in output.err and reason in output.err

    def test_a_file_that_fails_at_the_end(self, monkeypatch, tmp_path, capsys):
        def fail(path, lines, title):
            raise OSError("the disk is full")

        monkeypatch.setattr(bench.plots, "draw", fail)
        file = str(tmp_path / "figure.png")
        assert main(["norm", *GRID, "--ops", "rms", "--plot", file]) == 2
        output = capsys.readouterr()
        assert output.err.endswith(f"\n--plot {file} cannot be written: the disk is full\n")
        assert " 3x40 " in output.out  # what was measured is not lost

    @pytest.mark.parametrize(
        "missing, arguments, message",
        [
            ("rich", ["norm"], "bench needs a package: type  pip install rich"),
            ("matplotlib", ["norm", "--plot", "x.png"], "type  pip install matplotlib"),
            ("mlx_lm", ["model", "tiny:llama"], "type  pip install mlx-lm"),
        ],
    )
    def test_a_package_is_missing(self, missing, arguments, message, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, missing, None)
        assert main(arguments) == 2
        assert message in capsys.readouterr().err

    def test_nothing_else_needs_them(self):
        """Such as the help, which imports what declares the arguments."""
        script = (
            "import sys; sys.modules.update(dict.fromkeys(['rich', 'matplotlib', 'torch']))\n"
            "from command.cli import main; main(['ladder', '--help'])"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment()
        )
        assert done.returncode == 0, done.stderr
        for option in ("--hot", "--trace", "--capture", "--peers", "--sizes", "metal-sim"):
            assert option in done.stdout

    def test_the_device_is_put_back(self, capsys):
        before = mx.default_device()
        run(capsys, "norm", *GRID, "--ops", "rms", "--backend", "cpu")
        assert mx.default_device() == before


SMALL = ["norm", "--rows", "1", "--lengths", "64", "--ops", "rms", "--rounds", "1"]
SMALL_MODEL = ["model", "tiny:llama", "--prompts", "4", "--tokens", "2", "--rounds", "1"]
PROGRESS = r"configurations: 2, .* in all\.\n1 of 2: rms 1x64 .*\n2 of 2: rms 1x64 .*\n"


class TestProcess:
    """``python bench``, whose streams and status are as those of the package's commands."""

    def run(self, *arguments, flags=(), **variables):
        command = [sys.executable, *flags, ROOT / "bench", *arguments]
        return subprocess.run(command, capture_output=True, env=os.environ | variables)

    @pytest.mark.parametrize("what", WHAT)
    def test_help(self, what):
        """Python's -OO removes docstrings."""
        shown = [self.run(what, "--help", flags=flags) for flags in ([], ["-OO"])]
        assert shown[1].returncode == 0, shown[1].stderr
        assert shown[0].stdout == shown[1].stdout
        assert b"--json" in shown[0].stdout

    @pytest.mark.parametrize("arguments, status", [([], 0), (["--help"], 0), (["no-such"], 2)])
    def test_all_are_listed(self, arguments, status):
        done = self.run(*arguments)
        assert done.returncode == status
        names = {line.split()[0] for line in done.stdout.decode().splitlines()}
        assert {*WHAT, "builds", "gpu_speed"} <= names

    def test_a_script_by_its_name(self):
        done = self.run("builds", "--help")
        assert done.returncode == 0 and b"OLD" in done.stdout

    @pytest.mark.parametrize("variable", ["MLX_NORMS_CPU_ISA", "MLX_NORMS_CPU_THREADS"])
    def test_a_bad_environment_is_one_sentence(self, variable):
        done = self.run("norm", **{variable: "abc"})
        assert (done.returncode, done.stdout) == (2, b"")
        said = rf"\[mlx_norms\] {variable} must be .* but is abc\.\n"
        assert re.fullmatch(said, done.stderr.decode())

    @pytest.mark.parametrize(
        "arguments, said",
        [
            (SMALL_MODEL, ["measuring a copy", "compiling"]),
            ([*SMALL, "--trace"], ["tracing"]),
        ],
    )
    def test_it_says_on_a_terminal_what_it_does(self, arguments, said, monkeypatch, capsys):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(
            timing, "measure", lambda calls, **_: dict.fromkeys(calls, timing.Samples((1.0,)))
        )
        assert main([*arguments, "--json"]) == 0
        assert [text for text in said if text not in terminal.getvalue()] == []
        assert json.loads(capsys.readouterr().out)["command"] == "bench"

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
    def test_figures_are_printed_in_any_encoding(self, encoding):
        result = self.run(*SMALL, PYTHONIOENCODING=encoding)
        assert result.returncode == 0
        assert re.fullmatch(PROGRESS, result.stderr.decode("ascii"))
        unit = "us" if encoding == "ascii" else "µs"
        assert re.search(rf"provider[ |]+{unit}[ |]+quartiles", result.stdout.decode(encoding))
        assert re.search(r"1x64[ |]+ours[ |]+[\d.]+ ", result.stdout.decode(encoding))

    def test_who_writes_for_nobody_ends_as_others_do(self):
        process = subprocess.Popen(
            [sys.executable, ROOT / "bench", *SMALL],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
        process.stdout.close()
        assert re.fullmatch(PROGRESS, process.stderr.read())
        assert process.wait() == -signal.SIGPIPE


class TestScripts:
    def test_each_has_what_python_bench_calls(self):
        names = [path.stem for path in (ROOT / "bench").glob("[!_]*.py")]
        code = "import importlib, sys; [importlib.import_module(n).main for n in sys.argv[1:]]"
        command = [sys.executable, "-P", "-c", code, *names, "pages"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment())
        assert len(names) > 20 and done.returncode == 0, done.stderr

    def test_what_was_measured_is_readable(self):
        """The columns of the GPU scripts are those of the files that are kept."""
        kept = rows_of(ROOT / "bench" / "results" / "h200_speed.csv")[0]
        command = [sys.executable, ROOT / "bench", "gpu_speed", "--device", "cpu", "kernels"]
        done = subprocess.run([*command, "--csv", "/dev/stdout"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (heading,) = (line for line in done.stdout.splitlines() if line.startswith("section,"))
        assert heading.split(",") == list(kept)
        assert re.search("^kernels,rms,bf16,16,96,ours,", done.stdout, re.M)

    def test_ladder_tables(self, rungs_anywhere, tmp_path, capsys):
        (part,) = pages.parts()["ladders"]
        measured = tmp_path / "h200_ladder.csv"
        grid = ["--rows", "2,4,8", "--lengths", "48", "--sizes", "8,16"]
        run(capsys, "ladder", *grid, "--csv", str(measured))
        part = dataclasses.replace(part, results=(measured.with_suffix(""),))
        lines = part.made().splitlines()
        for rung in (*ladders.LAYER_NORM, *ladders.SGEMM):
            found = [line for line in lines if line.startswith(f"| {rung.name} |")]
            assert any(rung.fixes in line for line in found)
        by_key = {(r["op"], r["provider"], r["rows"]): r for r in rows_of(measured)}
        first, second = (rung.name for rung in ladders.SGEMM[:2])
        (row,) = (line for line in lines if f"| {second} |" in line)
        configs = [config.strip() for config in row.strip("|").split("|")]
        times = [float(by_key["sgemm", name, "16"]["us"]) for name in (first, second)]
        of_second = by_key["sgemm", second, "16"]
        assert configs[-3:-1] == [f"{times[0] / times[1]:.2f}", of_second["calls"]]
        assert configs[-5] == f"{float(of_second['gflops']):.4g}"
        names = [rung.name for rung in ladders.SGEMM]
        all_times = {name: float(by_key["sgemm", name, "16"]["us"]) for name in names}
        slower = [b for a, b in itertools.pairwise(all_times) if all_times[b] > 1.02 * all_times[a]]
        said = f"Slower than the rung before on this GPU: {', '.join(slower)}."
        assert [line for line in lines[lines.index(row) :] if "Slower" in line] == [said] * any(
            slower
        )
