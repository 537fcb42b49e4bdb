"""`run`: a program is what Python makes of it, but patched, and the report follows it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.saved_models import save

RUN = ["-m", "mlx_norms", "run"]
REPORT = re.compile(r"^mlx_norms: (\d+) calls: \d+ by mlx_norms.*?^(\d+) fused .*", re.M | re.S)
ONE_NORM = "import mlx.core as mx\nmx.fast.rms_norm(mx.ones((2, 8)), None, 1e-5)\n"
ONE_CALL = "mlx_norms: 1 call: 1 by mlx_norms, 0 left to MLX"


def python(*arguments, **options):
    """A finished process of Python in the working directory."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.run([sys.executable, *arguments], text=True, **{**pipes, **options})


def both(*program, options=(), **others):
    """What a program ends with, by Python itself and by `run`."""
    return python(*program, **others), python(*RUN, *options, *program, **others)


def same(*program, **options):
    """Check that a program ends the same in both ways; what follows on the standard error."""
    stock, ran = both(*program, **options)
    assert (ran.stdout, ran.returncode) == (stock.stdout, stock.returncode)
    assert ran.stderr.startswith(stock.stderr)
    return ran.stderr.removeprefix(stock.stderr)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, from which nothing but the installed package is found."""
    import mlx_norms

    roots = [str(Path(path).parent) for path in mlx_norms.__path__]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(roots))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(folder):
    """Writes a script, and returns its name."""

    def write(text, name="script.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        return name

    return write


class TestModels:
    @pytest.fixture
    def model(self, folder):
        (folder / "model").mkdir()
        save("qwen3", folder / "model")
        return "model"

    def test_generate(self, model):
        arguments = ["--model", model, "--prompt", "w3 w4 w5", "--max-tokens", "8"]
        texts, reports = [], []
        for ran in both("-m", "mlx_lm", "generate", *arguments):
            assert ran.returncode == 0, ran.stderr
            texts.append(ran.stdout.split("==========")[1].split())
            reports.append(REPORT.search(ran.stderr))
        assert len(texts[0]) == 8 and len(set(texts[0])) > 1
        assert texts[1] == texts[0]
        assert reports[0] is None
        calls, fused = map(int, reports[1].groups())
        assert calls > fused > 0

    @pytest.mark.slow
    def test_train(self, model, folder):
        (folder / "data").mkdir()
        lines = [" ".join(f"w{7 * i + j}" for j in range(16)) for i in range(2)]
        for name in ("train", "valid"):
            text = "\n".join(json.dumps({"text": line}) for line in lines)
            (folder / "data" / f"{name}.jsonl").write_text(text)
        sizes = ["--iters", "2", "--batch-size", "1", "--num-layers", "1", "--val-batches", "1"]
        ran = python(
            *RUN, "-m", "mlx_lm", "lora", "--train", *sizes, "--model", model, "--data", "data"
        )
        assert ran.returncode == 0, ran.stderr
        assert (folder / "adapters" / "adapters.safetensors").exists()
        calls, fused = map(int, REPORT.search(ran.stderr).groups())
        assert calls > fused > 0


# What a program sees of how it was started.
SURROUNDINGS = """
import json, sys
module = sys.modules["__main__"]
print(json.dumps([
    __name__, __file__, __package__ or None, __spec__ and __spec__.name, sys.argv, sys.path[:3],
    vars(module) is globals(), sys.stdout.errors, sys.stderr.errors, sys.stdin.read(),
]))
"""


class TestSurroundings:
    @pytest.fixture
    def programs(self, script, folder):
        for name in ("script.py", "pkg/module.py", "pkg/__main__.py"):
            script(SURROUNDINGS, name)
        (folder / "link.py").symlink_to("pkg/module.py")
        archive = ["-m", "zipfile", "-c", "archive.zip", "pkg/__main__.py"]
        assert python(*archive).returncode == 0

    @pytest.mark.parametrize(
        "program",
        [
            ["script.py", "--json", "-m", "--projections", "--", "--help", "a b", ""],
            ["pkg/../script.py"],
            ["link.py"],
            ["pkg", "--projections"],
            ["archive.zip"],
            ["-m", "pkg.module", "--help", "-h", "--"],
            ["-m", "pkg", "-m", "x"],
        ],
        ids=" ".join,
    )
    def test_are_those_of_python(self, programs, program):
        assert same(*program, options=["--no-report"], input="a line\n") == ""

    @pytest.mark.parametrize("program", ["script.py", "pkg"])
    def test_without_an_unsafe_path(self, programs, program, monkeypatch):
        monkeypatch.setenv("PYTHONSAFEPATH", "1")
        assert same(program, options=["--no-report"], input="") == ""

    def test_without_a_program(self):
        for arguments in ([], ["--projections"], ["-m"], ["--"]):
            ran = python(*RUN, *arguments)
            assert (ran.returncode, ran.stdout) == (2, "")
            assert ran.stderr == (
                "run needs a program: -m and a module's name, or the path of a script.\n"
            )

    @pytest.mark.parametrize(
        "program, reason",
        [
            (["none.py"], "'none.py': No such file or directory"),
            (["empty"], "'empty': can't find '__main__' module in '.*empty'"),
            (["-m", "none"], "'none': No module named none"),
            (["-m", "none.module"], "'none.module': .*No module named 'none'.*"),
            (["-m", "empty"], "'empty': No module named empty.__main__; .*"),
            (["--", "-m"], "'-m': No such file or directory"),
        ],
        ids=str,
    )
    def test_no_such_program(self, program, reason, folder):
        (folder / "empty").mkdir()
        (folder / "empty" / "__init__.py").touch()
        ran = python(*RUN, *program)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert re.fullmatch(rf"run cannot start {reason}\.\n", ran.stderr)

    def test_unknown_option(self, script):
        ran = python(*RUN, "--unknown", script("print(1)"))
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "--unknown" in ran.stderr

    def test_two_dashes_end_the_options(self, script):
        name = script("import sys; print(sys.argv)", "-script.py")
        ran = python(*RUN, "--no-report", "--", name, "--", "--trace")
        assert (ran.stdout, ran.stderr) == ("['-script.py', '--', '--trace']\n", "")


class TestEnds:
    def test_of_a_program(self, script):
        assert same(script(ONE_NORM)).startswith(ONE_CALL)

    @pytest.mark.parametrize(
        "end",
        [
            "import sys; sys.exit(3)",
            "import sys; sys.exit('a text')",
            "raise SystemExit",
            "def f():\n    raise ValueError('a value')\nf()",
            "import no_such_module",
            "open('no such file')",
            "raise BrokenPipeError",
            "import os, signal; os.kill(os.getpid(), signal.SIGINT); input()",
            "import sys; sys.excepthook = lambda *e: print(e[0], e[2].tb_lineno)\n1 / 0",
        ],
    )
    def test_of_a_program_that(self, end, script):
        """The report follows the traceback."""
        assert same(script(ONE_NORM + end)).startswith(ONE_CALL)

    def test_syntax_errors(self, script):
        assert same(script("x = (")).startswith("mlx_norms: 0 calls")

    def test_death_by_an_interrupt(self, script):
        name = script(ONE_NORM + "print('ready', flush=True)\nimport time; time.sleep(60)")
        process = subprocess.Popen(
            [sys.executable, *RUN, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # What runs in the background of a shell ignores it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert process.returncode == -signal.SIGINT
        assert said.startswith(
            f'Traceback (most recent call last):\n  File "{Path(name).resolve()}'
        )
        assert f"KeyboardInterrupt\n{ONE_CALL}" in said

    def test_exceptions_of_a_module(self, script):
        """The traceback is the program's alone."""
        script("def f():\n    1 / 0\nf()", "module.py")
        ran = python(*RUN, "-m", "module")
        assert ran.returncode == 1
        assert re.findall(r'File ".*/(\w+\.py)", line (\d)', ran.stderr) == [
            ("module.py", "3"),
            ("module.py", "2"),
        ]
        assert "runpy" not in ran.stderr

    def test_a_package_that_fails(self, script):
        """It is there, and what it imports is not."""
        script("import no_such_module", "pkg/__init__.py")
        script("", "pkg/module.py")
        ran = python(*RUN, "-m", "pkg.module")
        assert ran.returncode == 1
        assert "ModuleNotFoundError: No module named 'no_such_module'\nmlx_norms:" in ran.stderr

    def test_characters_and_pipes_are_python_s(self, script):
        name = script("print('\\u0436')")
        environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
        stock, ran = both(name, options=["--no-report"], env=environment)
        assert "UnicodeEncodeError" in stock.stderr
        assert (ran.stdout, ran.stderr, ran.returncode) == ("", stock.stderr, 1)

    def test_threads_and_what_is_called_at_exit(self, script):
        """They find what they need after the last line, and come before the report."""
        name = script(
            "import atexit, pickle, sys, threading\n" + ONE_NORM + "def f():\n"
            "    mx.fast.rms_norm(mx.ones((2, 8)), None, 1e-5)\n"
            "    print(pickle.loads(pickle.dumps(f)) is f, sys.argv, file=sys.stderr)\n"
            "def late():\n"
            "    threading.main_thread().join()\n"
            "    f()\n"
            "atexit.register(f)\n"
            "threading.Thread(target=late).start()\n"
            "sys.exit(5)\n"
        )
        stock, ran = both(name)
        assert stock.stderr == "True ['script.py']\n" * 2
        assert ran.returncode == 5
        assert ran.stderr.startswith(f"{stock.stderr}mlx_norms: 3 calls")


class TestOptions:
    def test_no_report(self, script):
        assert same(script(ONE_NORM), options=["--no-report"]) == ""

    def test_written_norms(self, script):
        """Of a class of the program itself."""
        name = script(
            "import mlx.core as mx, mlx.nn as nn\n"
            "class Norm(nn.Module):\n"
            "    def __call__(self, x):\n"
            "        return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)\n"
            "y = Norm()(mx.ones((1, 4)))\n"
            "mx.eval(y)\n"
            "print(y)"
        )
        said = same(name)
        assert "\n       1  written in operations, as rms_norm" in said

    def test_projections(self, script):
        name = script("from mlx_norms.patching.scope import current\nprint(current().projections)")
        for options in ([], ["--projections"]):
            assert python(*RUN, *options, name).stdout == f"{bool(options)}\n"

    def test_the_report_follows_the_output(self, script):
        ran = python(*RUN, script(ONE_NORM + "print('output')"), stderr=subprocess.STDOUT)
        assert ran.stdout.startswith(f"output\n{ONE_CALL}")


class TestVariable:
    """MLX_NORMS_PATCH"""

    SHOW = (
        "import mlx_norms; from mlx_norms.patching.scope import current;"
        "print(mlx_norms.is_patched(), current().projections)"
    )

    @pytest.mark.parametrize(
        "value, shown",
        [("", "False False"), ("1", "True False"), ("projections", "True True")],
    )
    def test_values(self, value, shown, monkeypatch):
        monkeypatch.setenv("MLX_NORMS_PATCH", value)
        ran = python("-c", self.SHOW)
        assert (ran.stdout, ran.stderr) == (f"{shown}\n", "")

    @pytest.mark.parametrize("value", ["0", "true", "Projections", "1,projections"])
    def test_other_values(self, value, monkeypatch):
        monkeypatch.setenv("MLX_NORMS_PATCH", value)
        sentence = f"[mlx_norms] MLX_NORMS_PATCH must be 1 or projections but is {value}.\n"
        ran = python("-c", self.SHOW)
        assert ran.returncode == 1
        assert ran.stderr.endswith(f"ValueError: {sentence}")
        ran = python("-m", "mlx_norms", "demo")
        assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", sentence)

    def test_options_of_run_decide(self, script, monkeypatch):
        monkeypatch.setenv("MLX_NORMS_PATCH", "projections")
        assert python(*RUN, script(self.SHOW)).stdout == "True False\n"

    def test_commands_that_compare_take_it_back(self, monkeypatch):
        """Else they would compare a patched process with itself."""
        monkeypatch.setenv("MLX_NORMS_PATCH", "1")
        show = (
            "import os, mlx_norms; from mlx_norms.commands import check_environment;"
            "before = mlx_norms.is_patched(); check_environment();"
            "print(before, mlx_norms.is_patched(), 'MLX_NORMS_PATCH' in os.environ)"
        )
        assert python("-c", show).stdout == "True False False\n"
