"""``python bench NAME``: what a suite measures, prints and writes."""

import argparse
import csv
import importlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

import backward
import builds
import group_norm
import ladder
import mlx_norms
import norm
from harness import clocks, grid, peers, providers, suite
from harness.configs import OPS
from harness.suite import Case, Suite
from mlx_norms import ladders
from mlx_norms._measure import machine, timing
from support.terminal import for_nobody
from support.variant import ROOT, environment

GRID = ["--rows", "3", "--lengths", "40", "--dtypes", "float32"]
PNG = b"\x89PNG"


class TestNorms:
    @pytest.mark.parametrize("of, read", [(norm, 1), (backward, 2)], ids=["norm", "backward"])
    def test_every_op(self, of, read, run):
        status, said, rows = run(of.SUITE, *GRID)
        assert status == 0
        ops = [name.replace("_", "+") for name in OPS]
        assert [(r["op"], r["side"]) for r in rows] == [
            *itertools.product(ops, ("ours", "mx.fast"))
        ]
        for row in rows:
            assert (row["method"], row["how"], row["rounds"]) == ("evals", "evals", "15")
            assert int(row["moved"]) >= (1 + read) * 3 * 40 * 4
            assert float(row["us_lower"]) <= float(row["us"]) <= float(row["us_upper"])
            assert row["mlx_norms"] == mlx_norms.__version__
            assert bool(row["over"]) == (row["side"] == "mx.fast")

    def test_one_table_of_31_rows(self, run, monkeypatch):
        """Of the default configs, whose sides take no time here."""
        quick = {side: clocks.Time("evals", timing.Samples((s,) * 15)) for side, s in SIDES.items()}
        monkeypatch.setattr(
            clocks, "measure", lambda cases, *a, **o: [(case, quick) for case in cases]
        )
        _, said, rows = run(norm.SUITE)
        assert len(rows) == 2 * 2 * 31
        lines = re.findall(r"^ *\S+ +\d+x\d+ +2\.00 \(2\.00 to 2\.00\) +2\.00 ", said.out, re.M)
        assert len(lines) == 31 and said.out.count("times of peers over ours") == 1
        assert "ours, µs" not in said.out

    def test_details(self, run):
        _, said, _ = run(norm.SUITE, *GRID, "--ops", "rms", "--details")
        assert re.search(r"^ *rms +float32 +3 +40 +[\d.]+ \(", said.out, re.M)
        assert "ours, µs" in said.out and timing.PAIRING in " ".join(said.out.split())

    def test_a_grid(self, run):
        grid = ["--rows", "1,4", "--lengths", "8,16", "--dtypes", "float16,bfloat16"]
        _, _, rows = run(norm.SUITE, "--ops", "rms", *grid)
        found = [(r["dtype"], r["length"], r["rows"]) for r in rows[::2]]
        assert found == list(itertools.product(("float16", "bfloat16"), ("8", "16"), ("1", "4")))

    def test_a_batch_of_one_row(self, run):
        shape = ["--lengths", "8", "--dtypes", "float32", "--ops", "batch_training"]
        assert {row["rows"] for row in run(norm.SUITE, *shape, "--rows", "1,2")[2]} == {"2"}
        status, said, _ = run(norm.SUITE, *shape, "--rows", "1")
        assert status == 2 and "batch_training takes at least 2" in said.err

    @pytest.mark.parametrize("full", [False, True])
    def test_full(self, full):
        args = argparse.Namespace(rows=None, lengths=None, dtypes=None, ops="head", hot=False)
        args.full, args.peers = full, []
        rows = {case.labels["rows"] for case in grid.cases(args, False)}
        assert rows == ({1, 32, 512, 4096} if full else {1, 512})

    def test_shares_are_of_a_copy_in_turn(self, run):
        shape = ["--rows", "1024", "--lengths", "1024", "--dtypes", "float32", "--ops", "rms"]
        _, _, rows = run(norm.SUITE, *shape)
        sides = {row["side"]: row for row in rows}
        assert set(sides) == {"ours", "mx.fast", "copy"}
        share = float(sides["copy"]["us"]) / float(sides["ours"]["us"])
        assert float(sides["ours"]["share"]) == pytest.approx(share, rel=1e-3)
        assert float(sides["copy"]["share"]) == 1

    def test_json(self, run):
        status, said, rows = run(norm.SUITE, *GRID, "--ops", "rms,layer", "--json")
        found = json.loads(said.out)
        assert found["command"] == "bench" and found["facts"]["mlx_norms"] == mlx_norms.__version__
        for line, row in zip(found["lines"], rows, strict=True):
            assert (line["op"], line["side"]) == (row["op"], row["side"])
            assert 1e6 * line["seconds"]["median"] == pytest.approx(float(row["us"]), rel=1e-3)
            ours = line["side"] == "ours"
            assert (line["over"] is None) == ours and line["share"] is None
            assert ours or line["over"]["rounds"] == 15


SIDES = {"ours": 1.0, "mx.fast": 2.0}


class Known:
    """Takes a time for a call that is known, and says when."""

    most, overlap = 1, False
    log = []

    def __init__(self, name, seconds):
        self._name, self._seconds = name, seconds

    def seconds(self, count):
        self.log.append(self._name)
        return count * self._seconds


def known(labels, sides, **more):
    return Case(labels, lambda: {name: Known(name, s) for name, s in sides.items()}, **more)


def of(*cases, **changed):
    options = dict(hows=("wall",), device="default") | changed
    return Suite("What it is.", tuple(cases[0].labels), lambda args: cases, **options)


class TestRunner:
    def test_sides_take_turns_and_peers_are_over_ours(self, run):
        Known.log.clear()
        _, said, rows = run(of(known(dict(op="a"), {"ours": 1e-3, "slow": 3e-3, "fast": 5e-4})))
        assert [row["over"] for row in rows] == ["", "3", "0.5"]
        assert [row["us"] for row in rows] == ["1000", "3000", "500"]
        assert Known.log[-6:] == ["fast", "slow", "ours", "ours", "slow", "fast"]
        assert "3.000 (3.000 to 3.000)" in said.out

    @pytest.mark.parametrize("base", [dict(base="stock"), dict(case="mx.fast")], ids=str)
    def test_stock_is_over_a_side(self, base, run):
        name = base.get("base") or base["case"]
        case = known(dict(op="a"), {name: 1.0, "patched": 0.5}, base=base.get("case"))
        _, _, rows = run(of(case, base=base.get("base", "ours")))
        assert [row["over"] for row in rows] == ["", "2"]

    def test_a_case_may_be_of_one_way(self, run):
        cases = [known(dict(op=how), {"ours": 1.0}, hows=(how,)) for how in ("first", "wall")]
        _, _, rows = run(of(*cases, hows=("first", "wall")))
        assert [(row["op"], row["how"]) for row in rows] == [("first", "first"), ("wall", "wall")]

    def test_what_is_missed_is_counted(self, run):
        slow = known(dict(op="a"), {"ours": 1.0, "mx.fast": 0.9}, least={"mx.fast": 1.0})
        fast = known(dict(op="b"), {"ours": 1.0, "mx.fast": 1.1}, least={"mx.fast": 1.0})
        share = known(
            dict(op="c"), {"ours": 1.0, "copy": 0.5}, moved=1 << 23, least=dict(share=0.6)
        )
        _, said, rows = run(of(slow, fast, share))
        assert "2 of 3 miss their least." in said.out
        assert float(rows[-2]["share"]) == 0.5

    def test_only(self, run):
        cases = [known(dict(op=op, rows=n), {"ours": 1.0}) for op in "ab" for n in (1, 2)]
        _, said, rows = run(of(*cases), "--only", "b 2")
        assert [(row["op"], row["rows"]) for row in rows] == [("b", "2")]
        assert said.err == "1 of 1: b 2\n"

    def test_extras_are_asked_for_when_it_was_timed(self, run):
        Known.log.clear()
        case = known(dict(op="a"), {"ours": 1.0}, extras=lambda side: {"n": len(Known.log)})
        _, _, rows = run(of(case, extras=("n",)))
        assert int(rows[0]["n"]) == len(Known.log) > 15

    def test_a_peer_that_does_not_do_it(self, run):
        class Refuses(providers.TorchCalls):
            output_bytes = 1

            def __init__(self):
                pass

            def prepare(self, count):
                raise NotImplementedError("not of three rows")

        ours = providers.Calls(mx.abs, [[mx.zeros(8)]])
        case = Case(dict(op="a"), lambda: {"ours": ours, "torch": Refuses()})
        _, said, rows = run(of(case, hows=("evals",)))
        assert "torch does not do a: not of three rows" in said.out
        assert [row["side"] for row in rows] == ["ours"]

    def test_memory_is_asked_for_first(self, run, monkeypatch):
        monkeypatch.setattr(machine, "memory_bytes", lambda: 2000)
        status, said, rows = run(of(known(dict(op="a"), {"ours": 1.0}, alive=2001)))
        assert (status, rows) == (2, []) and "a takes about" in said.err
        assert run(norm.SUITE, *GRID, "--ops", "rms")[0] == 2

    def test_the_device_is_put_back(self, run):
        before = mx.default_device()
        run(norm.SUITE, *GRID, "--ops", "rms", "--device", "cpu")
        assert mx.default_device() == before


class TestPlot:
    def test_a_bar_an_op(self, run, tmp_path):
        """Of each round the geometric mean over its cases, sorted, with the interval."""
        file = tmp_path / "figure.png"
        cases = [
            known(dict(op="a", n=n), {"ours": 1.0, "mx.fast": s}) for n, s in enumerate((2, 8))
        ]
        cases.append(known(dict(op="b", n=0), {"ours": 1.0, "mx.fast": 0.5, "copy": 1.0}))
        status, _, _ = run(of(*cases), "--plot", str(file))
        assert status == 0 and file.read_bytes().startswith(PNG)

    def test_figures(self):
        def line(op, ratios):
            time = clocks.Time("evals", timing.Samples((1.0,) * len(ratios)))
            return suite.Line(dict(op=op), "wall", "mx.fast", time, timing.Ratio(ratios, 1.0))

        lines = [line("a", (2.0, 1.0, 4.0)), line("a", (8.0, 1.0, 1.0)), line("b", (0.5,) * 3)]
        found = suite.of_ops(lines)
        assert found["a, mx.fast"].values == pytest.approx((4.0, 1.0, 2.0))
        assert found["b, mx.fast"].median == 0.5

    @pytest.mark.parametrize("name", ["figure.nothing", "folder.png", "none/x.png"])
    def test_a_file_that_cannot_be_an_image(self, name, run, tmp_path):
        (tmp_path / "folder.png").mkdir()
        status, said, rows = run(norm.SUITE, *GRID, "--plot", str(tmp_path / name))
        assert (status, said.out, rows) == (2, "", []) and f"--plot {tmp_path / name}" in said.err


class TestArguments:
    @pytest.mark.parametrize(
        "arguments, message",
        [
            (["--rows", "0"], "numbers from 1 to 2147483647, such as 32,1024: got '0'."),
            (["--rows", ""], "--rows takes numbers"),
            (["--lengths", "9" * 5000], "--lengths takes numbers from 1 to 2147483647"),
            (["--rows", "²"], "--rows takes numbers"),
            (["--ops", "rms,norm"], "--ops: 'norm' is none of rms, layer, add_rms, "),
            (["--dtypes", "int8"], "--dtypes: 'int8' is none of float32, float16, "),
            (["--peers", "jax"], "--peers: 'jax' is none of mx.fast, torch, "),
            (["--rounds", "14"], "--rounds must be at least 15, got 14."),
        ],
    )
    def test_what_is_wrong_is_named(self, arguments, message, run):
        status, said, _ = run(norm.SUITE, *arguments)
        assert status == 2 and message in said.err and said.out == ""

    def test_a_file_that_cannot_be_written(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["bench", "norm", "--csv", "/no/such/x.csv"])
        assert norm.SUITE.main() == 2
        assert "--csv /no/such/x.csv: there is no folder" in capsys.readouterr().err

    @pytest.mark.parametrize("asked", ["torch", "mx.fast,torch", "torch,liger"])
    def test_a_peer_that_is_missing(self, asked, run, monkeypatch):
        """It is named, in one line, before anything is measured."""
        for name in ("torch", "liger_kernel"):
            monkeypatch.setitem(sys.modules, name, None)
        for name, function in peers.FUNCTIONS.items():
            monkeypatch.setitem(peers.FUNCTIONS, name, function.__wrapped__)
        status, said, rows = run(norm.SUITE, *GRID, "--peers", asked)
        assert (status, said.out, said.err.count("\n"), rows) == (2, "", 1, [])
        assert "no torch here: " in said.err and ("no liger" in said.err) == ("liger" in asked)

    @pytest.mark.applies(not (mx.metal.is_available() or mx.cuda.is_available()))
    def test_no_gpu(self, run):
        status, said, _ = run(group_norm.SUITE)
        assert status == 2 and said.err.startswith("MLX has no GPU here: --device cpu tries")
        status, said, _ = run(ladder.SUITE, "--device", "cpu")
        assert status == 2 and "rungs of the ladders are GPU kernels" in said.err


class TestLadder:
    def test_both(self, run, monkeypatch):
        """Its rungs run on the CPU: each is MLX's own."""

        def functions(op, dtype):
            own = lambda x, w, b: mx.fast.layer_norm(x, w, b, 1e-5)  # noqa: E731
            rungs = ladders.SGEMM if op == "sgemm" else ladders.LAYER_NORM
            names = [rung.name for rung in rungs if op == "sgemm" or dtype in rung.dtypes]
            names += ["mlx" if op == "sgemm" else "mx.fast"]
            return dict.fromkeys(names, mx.matmul if op == "sgemm" else own)

        monkeypatch.setattr(ladder, "functions", functions)
        ladder.peak.cache_clear(), ladder.copy.cache_clear()
        small = ["--rows", "2", "--lengths", "48", "--sizes", "8", "--device", "cpu"]
        _, said, rows = run(ladder.SUITE, *small)
        names = [rung.name for rung in ladders.LAYER_NORM] + ["mx.fast"]
        names += [rung.name for rung in ladders.SGEMM] + ["mlx"]
        assert [row["side"] for row in rows] == names
        for row in rows:
            if row["op"] == "sgemm":
                assert row["moved"] == str(2 * 8**3)
                rate = 2 * 8**3 / float(row["us"]) / 1e3
                assert float(row["share"]) == pytest.approx(rate / float(row["limit"]), rel=1e-3)
        assert ladders.SGEMM[-1].fixes.split()[0] in said.out


SMALL = ["norm", "--rows", "1", "--lengths", "64", "--ops", "rms", "--dtypes", "float32"]


class TestProcess:
    """``python bench``, whose streams and status are as those of the package's commands."""

    def run(self, *arguments, flags=(), **variables):
        command = [sys.executable, *flags, ROOT / "bench", *arguments]
        return subprocess.run(command, capture_output=True, env=os.environ | variables)

    @pytest.mark.parametrize("arguments, status", [([], 0), (["--help"], 0), (["no-such"], 2)])
    def test_all_are_listed(self, arguments, status):
        done = self.run(*arguments)
        assert done.returncode == status
        names = {line.split()[0] for line in done.stdout.decode().splitlines()}
        assert {"norm", "backward", "ladder", "model", "builds", "pages"} <= names

    def test_a_bad_environment_is_one_sentence(self):
        done = self.run("norm", MLX_NORMS_CPU_ISA="abc")
        assert (done.returncode, done.stdout) == (2, b"")
        said = r"\[mlx_norms\] MLX_NORMS_CPU_ISA must be .* but is abc\.\n"
        assert re.fullmatch(said, done.stderr.decode())

    def test_without_rich(self):
        code = (
            "import runpy, sys; sys.modules['rich'] = None; sys.argv = ['bench', 'norm'];"
            f"sys.path.insert(0, {str(ROOT / 'bench')!r});"
            f"runpy.run_path({str(ROOT / 'bench')!r}, run_name='__main__')"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 1 and "type  pip install rich" in done.stderr

    def test_figures_are_printed_in_any_encoding(self):
        result = self.run(*SMALL, "--details", PYTHONIOENCODING="ascii")
        assert result.returncode == 0
        assert result.stderr == b"1 of 1: rms float32 1 64\n"
        assert b"ours, us" in result.stdout

    def test_who_writes_for_nobody_ends_as_others_do(self):
        command = [sys.executable, ROOT / "bench", *SMALL]
        assert for_nobody(command) == ("", -signal.SIGPIPE)


NAMES = sorted(path.stem for path in (ROOT / "bench").glob("[!_]*.py"))
# Of packages that are not here, of CUDA, or in processes of their own.
LONG = {"around_norms", "host_calls", "model", "pass_overhead", "training_step"}
OTHERS = {"package_blocks", "image_blocks", "strided_copy", "tensor_parallel", "ladder", "mac"}


class TestEach:
    def test_each_has_what_python_bench_calls(self):
        code = "import importlib, sys; print(*(hasattr(importlib.import_module(n), 'SUITE') or"
        code += " importlib.import_module(n).main for n in sys.argv[1:]))"
        command = [sys.executable, "-P", "-c", code, *NAMES, "pages"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment())
        assert len(NAMES) > 20 and done.returncode == 0, done.stderr

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=[pytest.mark.slow] * (name in LONG))
            for name in NAMES
            if name not in OTHERS
        ],
    )
    def test_its_first_case_is_measured(self, name, run, monkeypatch):
        """On the CPU, as --device cpu tries it."""
        module = importlib.import_module(name)
        if not hasattr(module, "SUITE"):
            return
        monkeypatch.setattr(suite.conditions, "restart_keeping_memory", lambda: None)
        monkeypatch.setenv("MLX_NORMS_CPU_THREADS", "2")
        first = lambda args: itertools.islice(module.SUITE.cases(args), 1)  # noqa: E731
        arguments = ["tiny:llama", "--prompt", "3"] if name == "model" else []
        _, _, rows = run(module.SUITE, *arguments, "--device", "cpu", cases=first, rounds=15)
        hows = module.SUITE.hows() if callable(module.SUITE.hows) else module.SUITE.hows
        assert {row["how"] for row in rows} <= {*hows} and len(rows) > 1
        assert all(float(row["us"]) > 0 for row in rows)


class TestBuilds:
    def test_a_slower_build_is_named(self, monkeypatch, capsys):
        takes = {"old": {("rms",): 1.0, ("layer",): 1.0}, "new": {("rms",): 1.5, ("layer",): 0.5}}
        monkeypatch.setattr(builds, "times", lambda build, arguments: takes[build])
        monkeypatch.setattr(sys, "argv", ["bench", "builds", "old", "new", "norm", "--hot"])
        assert builds.main() == 1
        said = capsys.readouterr().out
        assert "1 of 2 cases are slower" in said and "0.667 (0.667 to 0.667)" in said

    def test_times_are_those_of_ours(self, monkeypatch):
        written = []

        def run(command, **options):
            done = subprocess_run(command, **options)
            written.extend(csv.DictReader(Path(command[-1]).read_text().splitlines()))
            return done

        subprocess_run = subprocess.run
        monkeypatch.setattr(builds.subprocess, "run", run)
        ((labels, seconds),) = builds.times("", SMALL).items()
        (ours,) = (float(row["us"]) for row in written if row["side"] == "ours")
        assert labels == ("rms", "float32", "1", "64", "evals") and seconds == ours * 1e-6 > 0
