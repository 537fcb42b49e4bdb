"""``python -m mlx_norms``, its info command, and the timing core."""

import importlib.metadata
import itertools
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys

import mlx.core as mx
import pytest

import join
import mlx_norms
from metalsim import Library
from mlx_norms import _built, _ext, commands
from mlx_norms.__main__ import main
from mlx_norms._measure import timing
from mlx_norms.commands import _output, info
from support.terminal import Terminal, for_nobody
from support.variant import ROOT
from to_cuda import translate


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "mlx_norms", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def facts(output):
    """What info printed, by label."""
    return {line[:17].rstrip(): line[17:].strip() for line in output.splitlines()}


class TestCommandLine:
    def test_commands_have_what_they_need(self):
        modules = commands.load()
        assert {"info", "demo"} <= modules.keys()
        for module in modules.values():
            assert module.SUMMARY.endswith(".")
            assert callable(module.add_arguments)
            assert callable(module.run)

    def test_help_lists_the_commands(self, capsys):
        with pytest.raises(SystemExit) as exit:
            main(["--help"])
        assert exit.value.code == 0
        output = capsys.readouterr().out
        for name, module in commands.load().items():
            assert name in output
            assert module.SUMMARY.split()[0] in output

    @pytest.mark.parametrize("arguments", [[], *([name] for name in commands.load())], ids=" ".join)
    def test_help_without_docstrings(self, arguments):
        """Python's -OO removes them."""
        shown = [
            subprocess.run(
                [sys.executable, *flags, "-m", "mlx_norms", *arguments, "--help"],
                capture_output=True,
                text=True,
            )
            for flags in ([], ["-OO"])
        ]
        assert shown[1].returncode == 0, shown[1].stderr
        assert shown[0].stdout == shown[1].stdout

    @pytest.mark.parametrize(
        "arguments, of",
        [([], ""), (["no-such"], ""), (["info", "--bogus"], " info"), (["run", "--bogus"], " run")],
    )
    def test_bad_usage(self, arguments, of):
        """The usage is that of the command."""
        result = run(*arguments)
        assert result.returncode == 2
        assert result.stderr.startswith(f"usage: python -m mlx_norms{of} [-h] ")
        assert result.stdout == ""

    def test_a_command_that_cannot_run(self, monkeypatch, capsys):
        def fail(args):
            raise commands.CommandError("Type this.")

        monkeypatch.setattr(commands.load()["info"], "run", fail)
        assert main(["info"]) == 2
        assert capsys.readouterr() == ("", "Type this.\n")

    @pytest.mark.parametrize("variable", ["MLX_NORMS_CPU_ISA", "MLX_NORMS_CPU_THREADS"])
    @pytest.mark.parametrize("arguments", [["compare", "tiny:llama"], ["demo"], ["selftest"]])
    def test_a_bad_environment_is_one_sentence(self, arguments, variable):
        result = run(*arguments, **{variable: "abc"})
        assert result.returncode == 2
        assert result.stdout == ""
        assert re.fullmatch(rf"\[mlx_norms\] {variable} must be .* but is abc\.\n", result.stderr)

    def test_alone_it_prints_its_help(self):
        result = run()
        assert result.returncode == 2
        assert result.stdout == ""
        assert result.stderr == run("--help").stdout


SMALL_RUN = ["--prompt", "4", "--tokens", "2", "--null"]


class TestVersion:
    def test_ours_and_that_of_mlx(self):
        result = run("--version")
        versions = (importlib.metadata.version(name) for name in ("mlx_norms", "mlx"))
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout == "mlx_norms {}, mlx {}\n".format(*versions)


def leaves(value):
    """All values in a document, without its lists and objects."""
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    else:
        yield value


class TestJson:
    def test_every_command_has_the_option(self, capsys):
        """But run, whose standard output is the program's."""
        for name in commands.load().keys() - {"run"}:
            with pytest.raises(SystemExit):
                main([name, "--help"])
            assert "--json" in capsys.readouterr().out, name

    def test_facts(self):
        result = run("info", "--json", "--kernels")
        assert (result.returncode, result.stderr) == (0, "")
        document = json.loads(result.stdout)
        assert document["command"] == "info"
        assert document["facts"]["mlx"] == importlib.metadata.version("mlx")
        assert document["facts"]["cpu_streams"] == "native kernels"
        assert document["facts"]["cpu_threads"] == _ext.cpu_threads()
        texts = [text for text in leaves(document) if isinstance(text, str)]
        typed = r"[-+]?\d*\.?\d+|true|false|yes|no|none|null"
        assert [text for text in texts if re.fullmatch(typed, text, re.IGNORECASE)] == []
        (one,) = (each for each in document["kernels"] if each["name"].startswith("norm_4_1_"))
        assert isinstance(one["function_constants"]["simds_per_row"], int)

    def test_nothing_else_is_on_the_standard_output(self, monkeypatch, capsys):
        def command(args):
            print("a line \udcff")
            args.figures["samples"] = timing.Samples((1.0, 2.0, 4.0))
            args.figures["ratio"] = timing.Ratio((1.5, math.inf), 1.5)
            args.figures["list"] = [math.nan, None, "text", (1,)]
            return 1

        monkeypatch.setattr(commands.load()["info"], "run", command)
        assert main(["info", "--json"]) == 1
        output = capsys.readouterr()
        assert output.err == ""
        document = json.loads(output.out, parse_constant=pytest.fail)
        samples = {"median": 2.0, "lower": 1.0, "upper": 4.0, "rounds": 3}
        assert document["samples"] == samples
        assert document["ratio"].keys() == samples.keys() | {"of_medians", "differs"}
        assert document["ratio"]["median"] is None
        assert document["list"] == [None, None, "text", [1]]

    def test_a_failure_is_no_document(self, monkeypatch, capsys):
        def fail(args):
            print("a line")
            raise commands.CommandError("Type this.")

        monkeypatch.setattr(commands.load()["info"], "run", fail)
        assert main(["info", "--json"]) == 2
        assert capsys.readouterr() == ("", "Type this.\n")


def quick(calls, **options):
    """Samples of no measurement."""
    return {name: timing.Samples((1.0,)) for name in calls}


class TestWorking:
    """What takes its time is said on a terminal."""

    @pytest.fixture(autouse=True)
    def color(self, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)

    def test_on_a_terminal(self, monkeypatch):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        with _output.working("loading it"):
            pass
        assert "loading it" in terminal.getvalue()

    def test_elsewhere(self, capsys):
        with _output.working("loading it"):
            pass
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize(
        "arguments, said",
        [
            (["demo"], ["embedding"]),
            (["compare", "tiny:llama", *SMALL_RUN], ["stock: tokens", "stock again: tokens"]),
        ],
        ids=lambda arguments: arguments[0],
    )
    def test_commands_say_what_they_do(self, arguments, said, monkeypatch, capsys):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(timing, "measure", quick)
        assert main([*arguments, "--json"]) == 0
        assert [text for text in said if text not in terminal.getvalue()] == []
        assert json.loads(capsys.readouterr().out)["command"] == arguments[0]


class TestStreams:
    def test_what_has_no_other_spelling_is_escaped(self, capsys):
        _output.run_as_process(lambda: 0)
        text = "3 µs ≥ 2×3·4… \udcff ж"
        assert text.encode("ascii", _output._ERRORS) == b"3 us >= 2x3*4... \\udcff \\u0436"

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--help"],
            ["info", "--kernels"],
            ["compare", "tiny:llama", "--prompt", "4", "--tokens", "2"],
            pytest.param(["demo"], marks=pytest.mark.slow),
            ["selftest"],
        ],
        ids=lambda arguments: arguments[0],
    )
    def test_who_writes_for_nobody_ends_as_others_do(self, arguments):
        command = [sys.executable, "-m", "mlx_norms", *arguments]
        assert for_nobody(command) == ("", -signal.SIGPIPE)


class TestInfo:
    def test_facts(self):
        result = run("info")
        assert result.returncode == 0
        assert result.stderr == ""
        shown = facts(result.stdout)
        assert shown["mlx_norms"] == importlib.metadata.version("mlx_norms")
        assert shown["mlx"] == importlib.metadata.version("mlx")
        assert shown["built against"] == (
            f"mlx {_built.MLX_VERSION}, nanobind {_built.NANOBIND_VERSION}"
        )
        assert shown["extension"] == _ext.__file__
        assert shown["python"] == f"{platform.python_version()} ({sys.executable})"
        assert shown["platform"] == platform.platform()
        assert shown["default device"] in ("cpu", "gpu")
        assert shown["CPU streams"] == "native kernels"
        assert shown["CPU instructions"].split()[0] == _ext.cpu_isa()
        assert all(level in shown["CPU instructions"] for level in _ext.cpu_isas())
        assert shown["kernels built"] == ", ".join(_built.BACKENDS)
        assert all(level in shown["this machine has"] for level in _ext.cpu_isas())
        assert shown["CPU threads"] == str(_ext.cpu_threads())

    def test_what_the_machine_could_run(self, monkeypatch, tmp_path):
        """Whatever was built."""
        cpu, driver = tmp_path / "cpuinfo", tmp_path / "version"
        monkeypatch.setattr(info, "_CPU", cpu)
        monkeypatch.setattr(info, "_NVIDIA", driver)
        monkeypatch.setattr(sys, "platform", "linux")
        assert info._machine() == "a CPU with baseline"
        cpu.write_text("model name\t: A\nflags\t\t: fma f16c avx2 avx512f\nbugs\t\t:\n")
        assert info._machine() == "a CPU with avx2, baseline"
        driver.touch()
        cpu.write_text("flags\t: fma f16c avx2 avx512f avx512bw avx512dq avx512vl avx512_bf16\n")
        said = "a CPU with avx512bf16, avx512, avx2, baseline, an NVIDIA GPU"
        assert info._machine() == said

    def test_gpu_streams(self):
        native = {"metal", "cuda"} & set(_built.BACKENDS)
        expected = "native kernels" if native else "composed of MLX's operations"
        gpu = facts(run("info").stdout)["GPU streams"]
        if mx.metal.is_available() or mx.cuda.is_available():
            assert gpu == expected
        else:
            assert gpu == "none (MLX has no GPU here)"

    @pytest.mark.applies(sys.platform == "linux")  # where MLX's backends are wheels
    def test_backend_wheel(self):
        name, version = facts(run("info").stdout)["backend wheel"].split()
        assert importlib.metadata.version(name) == version

    def test_every_level(self):
        for level in _ext.cpu_isas():
            result = run("info", MLX_NORMS_CPU_ISA=level)
            assert result.returncode == 0
            assert facts(result.stdout)["CPU instructions"].split()[0] == level

    def test_an_unknown_level_is_shown(self):
        result = run("info", MLX_NORMS_CPU_ISA="mmx")
        assert result.returncode == 0
        assert "mmx" in facts(result.stdout)["CPU instructions"]

    def test_threads(self):
        assert facts(run("info", MLX_NORMS_CPU_THREADS="3").stdout)["CPU threads"] == "3"
        for wrong in ("abc", "0", "1025", "2x"):
            result = run("info", MLX_NORMS_CPU_THREADS=wrong)
            assert result.returncode == 0
            said = facts(result.stdout)["CPU threads"]
            assert "MLX_NORMS_CPU_THREADS must be" in said and f"but is {wrong}." in said

    def test_needs_nothing_but_mlx(self):
        script = (
            "import sys; sys.modules.update(dict.fromkeys(['rich', 'tokenizers', 'numpy']));"
            "from mlx_norms.__main__ import main; sys.exit(main(['info']))"
        )
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert result.returncode == 0
        assert facts(result.stdout)["mlx"] == importlib.metadata.version("mlx")


def sources():
    """The kernels' host names, as their texts have them for the backends that were built."""
    if "cuda" in _built.BACKENDS:
        for path in sorted(ROOT.glob("kernels/**/*.metal")):
            for kernel in translate(path, ROOT, os.environ.get("CXX", "c++")).kernels:
                yield kernel.name
    else:
        for text in join.texts(cuda="metal-sim" in _built.BACKENDS).values():
            yield from Library.from_source(text).kernels()


class TestKernels:
    """`info --kernels` asks the built library itself."""

    def test_all_are_listed_with_their_constants(self, backend, capsys):
        assert main(["info", "--kernels"]) == 0
        facts, count, listed = re.split(r"\n\n(\d+) GPU kernels: .*\n\n", capsys.readouterr().out)
        assert "mlx_norms" in facts
        listed, *libraries = listed.split("\n\nlibrary ", 1)
        assert bool(libraries) == bool({"metal", "metal-sim"} & set(_built.BACKENDS))
        names = re.findall(r"^\w+", listed, re.M)
        assert sorted(names) == sorted(sources())
        assert int(count) == len(names)
        group = next(g for g in listed.split("\n\n") if re.search("^norm_4_1_", g))
        numbers = join.constants(join.libraries(cuda=True)["norm"])
        listed = {f"{name}({numbers[name]})" for name in ("simds_per_row", "sum_flags")}
        assert listed <= set(re.findall(r"\w+\(\d+\)", group))
        assert "want_input" not in group

    def test_whose_they_are(self, backend, capsys):
        main(["info", "--kernels"])
        shown = capsys.readouterr().out
        of_metal = {"metal", "metal-sim"} & set(_built.BACKENDS)
        of = "the functions of the Metal libraries" if of_metal else "the CUDA texts"
        assert f"GPU kernels: {of}" in shown
        assert ("no GPU here to run them" in shown) == (not of_metal and not mx.cuda.is_available())

    @pytest.mark.applies(sys.platform != "darwin")  # where Metal keeps its pipelines itself
    def test_what_is_on_disk_is_counted(self, tmp_path):
        for i in range(2):
            (tmp_path / f"norm_4_1_1024_{i:016x}").touch()
        for name in ("norm_4_2_1024_0", "norm_4_2_1024_00000000000000zz", "0123456789abcdef"):
            (tmp_path / name).touch()
        shown = run("info", "--kernels", MLX_NORMS_CACHE=str(tmp_path)).stdout
        assert re.findall(r"^(\w+) +(\d+) on disk", shown, re.M) == [("norm_4_1_1024", "2")]

    def test_not_asked_for(self):
        assert "norm_4_1_" not in run("info").stdout

    def test_libraries_of_metal(self, monkeypatch, capsys):
        log = "text: program_source:7: error: no such type\n1 error generated."
        form = {"form": "text", "seconds": 1.5}
        libraries = [
            {"name": "norm", **form, "usable": True, "failure": ""},
            {"name": "linear", **form, "usable": False, "failure": log},
        ]
        monkeypatch.setattr(_ext, "built_libraries", lambda: libraries)
        assert main(["info", "--kernels"]) == 0
        shown = capsys.readouterr().out
        assert "library norm: text, 1.50 s\n" in shown
        assert "library linear: is not usable\n    text: program_source:7: error: no such" in shown


class TestPackage:
    def test_dir_is_what_is_public(self):
        shown = {name for name in dir(mlx_norms) if not name.startswith("__")}
        assert shown == set(mlx_norms.__all__)
        assert {"__version__", "__doc__", "__all__"} <= set(dir(mlx_norms))


class Clock:
    """A clock that stands still but for the calls that are timed."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.log = []
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def call(self, name, seconds, size=1):
        def advance():
            self.now += seconds
            self.log.append(name)
            return [mx.zeros(size)]

        return advance

    def turns(self):
        """Who was called, runs of the same name taken together."""
        return [
            name
            for name, previous in zip(self.log, [None, *self.log], strict=False)
            if name != previous
        ]


class TestTiming:
    def test_seconds_of_a_call(self, monkeypatch):
        clock = Clock(monkeypatch)
        calls = {"a": clock.call("a", 1e-3), "b": clock.call("b", 4e-3)}
        result = timing.measure(calls, rounds=3, sample_seconds=0.02)
        assert list(result) == ["a", "b"]
        assert result["a"].values == pytest.approx([1e-3] * 3)
        assert result["b"].values == pytest.approx([4e-3] * 3)

    def test_providers_take_turns(self, monkeypatch):
        clock = Clock(monkeypatch)
        calls = {"a": clock.call("a", 1.0), "b": clock.call("b", 1.0)}
        timing.measure(calls, rounds=4, sample_seconds=0.5)
        # One call each to see the size of the outputs, three each to find the number of calls, and
        # one each at that number.
        assert clock.log[:10] == ["a", "b", *"aaa", *"bbb", "a", "b"]
        assert clock.log[10:] == ["a", "b", "b", "a", "a", "b", "b", "a"]

    def test_sides_about_as_fast_make_as_many_calls(self, monkeypatch):
        """Or else they would not be measured alike; a much slower one makes fewer."""
        clock = Clock(monkeypatch)
        seconds = {"a": 1e-3, "b": 3e-3, "c": 1e-1}
        timed = {name: timing.evals(clock.call(name, each)) for name, each in seconds.items()}
        counts = timing._counts(timed, 0.02, None)
        assert counts["a"] == counts["b"] >= 20 and counts["c"] == 1

    def test_a_first_call_that_compiles_does_not_size_samples(self, monkeypatch):
        clock = Clock(monkeypatch)
        slow, fast = clock.call("compiles", 1.0), clock.call("runs", 1e-3)
        calls = itertools.chain([slow], itertools.repeat(fast))
        runs = timing.Runs(lambda count: [next(calls)() for _ in range(count)])
        timing.measure({"a": runs}, rounds=1, sample_seconds=0.02)
        assert clock.log.count("compiles") == 1 and clock.log.count("runs") >= 40

    def test_a_sample_is_long_enough(self, monkeypatch):
        clock = Clock(monkeypatch)
        timing.measure({"a": clock.call("a", 1e-4)}, rounds=1, sample_seconds=0.02)
        before = len(clock.log)
        timing.measure({"a": clock.call("a", 1e-4)}, rounds=11, sample_seconds=0.02)
        calls_of_ten_samples = len(clock.log) - 2 * before
        assert calls_of_ten_samples / 10 * 1e-4 >= 0.02

    def test_large_outputs_are_evaluated_a_few_at_a_time(self, monkeypatch):
        batches = []
        evaluate = mx.eval
        monkeypatch.setattr(mx, "eval", lambda out: (batches.append(len(out)), evaluate(out)))
        clock = Clock(monkeypatch)
        floats = timing._BATCH_BYTES // 4 // 3
        calls = {"a": clock.call("a", 1e-3, floats)}
        timing.measure(calls, rounds=2, sample_seconds=0.02)
        assert max(batches) == 3

    def test_a_longer_computation_takes_longer(self):
        x = mx.random.normal((1024, 1024))
        y = mx.random.normal((8, 8))
        mx.eval(x, y)
        calls = {"large": lambda: x @ x, "small": lambda: {"nested": (y @ y,)}}
        result = timing.measure(calls, rounds=3, sample_seconds=0.002)
        assert result["large"].over(result["small"]).median > 3

    def test_rounds_are_checked(self):
        with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
            timing.measure({"a": lambda: mx.zeros(1)}, rounds=0)

    def test_samples(self):
        samples = timing.Samples((5.0, 1.0, 3.0, 2.0, 4.0))
        assert samples.median == 3
        assert samples.interval == (1, 5)
        assert timing.Samples((7.0,)).interval == (7, 7)

    def test_ratios_are_taken_round_by_round(self):
        a, b = timing.Samples((1.0, 20.0, 300.0)), timing.Samples((2.0, 10.0, 100.0))
        assert a.over(b).values == (0.5, 2.0, 3.0)
        with pytest.raises(ValueError):
            a.over(timing.Samples((1.0,)))

    def test_the_ratio_of_the_medians_is_kept(self):
        a, b = timing.Samples((1.0, 20.0, 30.0)), timing.Samples((2.0, 10.0, 100.0))
        assert (a.over(b).median, a.over(b).of_medians) == (0.5, 2.0)
