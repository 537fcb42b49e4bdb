"""The compare command: its checks, its measurements, and real runs on tiny models."""

import argparse
import importlib
import itertools
import json
import math
import subprocess
import sys

import mlx.core as mx
import mlx.nn
import pytest

import mlx_norms
from mlx_norms import _ext
from mlx_norms.__main__ import main
from mlx_norms._measure import timing
from mlx_norms.commands import _compare_tables, _sides, _tiny_models, compare
from support.saved_models import save

STOCK = mx.fast.rms_norm
SMALL = ["--prompt", "8", "--tokens", "4"]


def prompt_for(name, length=8):
    return mx.random.randint(0, _tiny_models.vocabulary(name), (length,), key=mx.random.key(1))


@pytest.fixture
def larger_eps(monkeypatch):
    """Patched calls have a wrong eps: a hundredth of the variance of what comes in."""

    def wrong(x, weight, eps, stream=None):
        return STOCK(x, weight, eps + 0.01 * mx.var(x).item(), stream=stream)

    monkeypatch.setattr(_ext, "patched_rms_norm", wrong)


class TestRelativeDifference:
    @pytest.mark.parametrize(
        "stock, other, expected",
        [
            ([1.0, -4.0], [1.5, -4.0], 0.125),
            ([1.0, -4.0], [1.0, -3.0], 0.25),
            ([0.0, 0.0], [0.0, 0.0], 0.0),
            ([2.0, -math.inf], [3.0, -math.inf], 0.5),
            ([2.0, -math.inf], [2.0, 0.0], math.nan),
            ([2.0, 0.0], [2.0, -math.inf], math.nan),
            ([2.0, 1.0], [2.0, math.nan], math.nan),
            ([2.0, math.nan], [2.0, math.nan], math.nan),
        ],
    )
    def test_values(self, stock, other, expected):
        result = _sides.relative_difference(mx.array(stock), mx.array(other))
        assert result == pytest.approx(expected, nan_ok=True)

    def test_differences_are_not_rounded_to_the_logits_dtype(self):
        stock, other = mx.array([256.0, 1.0], mx.bfloat16), mx.array([258.0, 1.0], mx.bfloat16)
        assert _sides.relative_difference(stock, other) == 2 / 256


class TestAgree:
    @pytest.mark.parametrize(
        "stock, patched, expected",
        [([1, 2, 3], [1, 2, 3], None), ([1, 2, 3], [0, 2, 3], 0), ([1, 2, 3], [1, 2, 4], 2)],
    )
    def test_first_parting(self, stock, patched, expected):
        assert compare.first_parting(stock, patched) == expected

    @pytest.mark.parametrize(
        "prefill, decode, explained",
        [
            (4e-6, 4e-6, True),
            (5e-6, 0.0, False),
            (0.0, 5e-6, False),
            (math.nan, 0.0, False),
            (0.0, math.nan, False),
        ],
    )
    def test_rounding_explains_a_few_times_an_ulp(self, prefill, decode, explained):
        drift = compare.Drift(prefill, decode, rounding=1.1e-6)
        assert drift.explained is explained

    def test_a_model_without_norms(self):
        assert compare.Drift(0.0, 0.0, rounding=0.0).explained
        assert not compare.Drift(1e-9, 0.0, rounding=0.0).explained


def keys():
    return map(mx.random.key, itertools.count())


class TestNormsAnUlpOff:
    @pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
    def test_every_element_moves_by_an_ulp(self, dtype):
        x = mx.random.normal((64, 64), key=mx.random.key(0)).astype(dtype)
        exact = STOCK(x, None, 1e-5)
        with compare._norms_an_ulp_off(keys()):
            moved = mx.fast.rms_norm(x, None, 1e-5)
        assert moved.dtype == dtype
        # The ulp of a magnitude between two powers of two is eps times the lower one, so eps times
        # the magnitude is between one and two ulps, which are then rounded.
        bits = mx.uint32 if dtype == mx.float32 else mx.uint16
        ulps = moved.view(bits).astype(mx.int64) - exact.view(bits).astype(mx.int64)
        assert set(mx.abs(ulps).flatten().tolist()) == {1, 2}
        assert 0.4 < mx.mean(ulps > 0).item() < 0.6

    def test_layer_norms_too_and_calls_differ(self):
        x = mx.random.normal((64, 64), key=mx.random.key(0))
        with compare._norms_an_ulp_off(keys()):
            first, second = (mx.fast.layer_norm(x, None, None, 1e-5) for _ in range(2))
        assert not mx.array_equal(first, second)

    def test_mx_fast_is_put_back(self):
        with pytest.raises(KeyError), compare._norms_an_ulp_off(keys()):
            assert mx.fast.rms_norm is not STOCK
            raise KeyError
        assert mx.fast.rms_norm is STOCK


class TestDrift:
    # Sandwich norms and 1 + w; layer norms; norms of queries and keys.
    @pytest.mark.parametrize(
        "name, dtype",
        [
            ("llama", mx.float32),
            ("llama", mx.bfloat16),
            ("gemma2", mx.float32),
            ("gpt2", mx.float32),
            ("gpt2", mx.float16),
            ("qwen3", mx.float32),
        ],
    )
    def test_rounding_explains_it(self, name, dtype):
        model = _tiny_models.build(name)
        model.set_dtype(dtype)
        drift, reports = compare.measure_drift(model, prompt_for(name), [3, 1])
        # An ulp at each of up to 17 norms, and a small factor for what follows them.
        assert 0 < drift.rounding < 64 * mx.finfo(dtype).eps
        assert drift.explained
        prefill, decode = reports
        assert prefill.calls == decode.calls > 0
        assert prefill.fused == decode.fused > 0

    def test_a_wrong_eps_is_no_rounding(self, larger_eps):
        drift, _ = compare.measure_drift(_tiny_models.build("llama"), prompt_for("llama"), [3, 1])
        assert not drift.explained

    def test_it_is_that_of_the_wrong_phase_only(self, monkeypatch):
        patched = _ext.patched_rms_norm

        def wrong_in_decode(x, weight, eps):
            weight = weight * 1.01 if x.shape[1] == 1 else weight
            return patched(x, weight, eps)

        monkeypatch.setattr(_ext, "patched_rms_norm", wrong_in_decode)
        drift, _ = compare.measure_drift(_tiny_models.build("llama"), prompt_for("llama"), [3, 1])
        bound = compare._ROUNDING_MARGIN * drift.rounding
        assert drift.prefill <= bound < drift.decode


class TestGeneration:
    def test_tokens_are_the_greedy_ones(self):
        model = _tiny_models.build("mamba2")  # whose tokens vary
        prompt = prompt_for("mamba2")
        tokens = prompt.tolist()
        for _ in range(6):
            tokens.append(mx.argmax(model(mx.array([tokens]))[0, -1]).item())
        generated = tokens[len(prompt) :]
        assert len(set(generated)) > 1
        # The second time as the first: each starts with a cache of its own.
        for _ in range(2):
            generation = compare.generate(model, prompt, 6)
            assert generation.tokens == generated
            assert generation.prefill > 0
            assert generation.decode > 0

    def test_speeds_are_tokens_over_seconds(self, monkeypatch):
        def steps(prompt, model, **kwargs):
            clock[0] += 2.0
            yield 7, None
            for _ in range(3):
                clock[0] += 0.5
                yield 8, None

        clock = [100.0]
        # mlx_lm.generate is a function, which hides the module.
        module = importlib.import_module("mlx_lm.generate")
        monkeypatch.setattr(module, "generate_step", steps)
        monkeypatch.setattr(compare.time, "perf_counter", lambda: clock[0])
        monkeypatch.setattr(compare, "new_cache", lambda model: None)
        generation = compare.generate(None, mx.zeros(10), 4)
        assert generation == compare.Generation([7, 8, 8, 8], prefill=5.0, decode=2.0)

    def test_sides_take_turns(self, monkeypatch):
        log = []

        def generate(model, prompt, count):
            side = "stock" if mx.fast.rms_norm is STOCK else "patched"
            log.append(side)
            return compare.Generation([], prefill=len(log), decode=10 * len(log))

        monkeypatch.setattr(compare, "generate", generate)
        rates = compare.measure_rates(None, None, 4, rounds=3)
        assert log == ["stock", "patched", "patched", "stock", "stock", "patched"]
        assert rates["prefill"]["stock"].values == (1, 4, 5)
        assert rates["prefill"]["patched"].values == (2, 3, 6)
        assert rates["decode"]["patched"].values == (20, 30, 60)


def counted(**counts):
    """A report of these counts and no others."""
    names = ("calls", "fused", "passed_on", "offsets", "projections", "products")
    counts = dict.fromkeys(names, 0) | counts
    return mlx_norms.Report(**counts, reasons={}, missed=(), is_patched=True)


class TestVerdict:
    def printed(self, capsys, monkeypatch, stock, patched):
        """The table of prefill and decode, of these tokens per second in each round."""
        rates = {"stock": timing.Samples(stock), "patched": timing.Samples(patched)}
        both = {"prefill": rates, "decode": rates}
        monkeypatch.setattr(compare, "measure_rates", lambda *arguments: both)
        assert main(["compare", "tiny:llama", *SMALL]) == 0
        self.verdict, *lines = capsys.readouterr().out.splitlines()
        return " ".join(" ".join(lines).replace("│", "").split())

    def test_a_ratio_that_tells_nothing(self, monkeypatch, capsys):
        """Its median is 1.5, and four of 15 are below 1."""
        patched = (50.0,) * 4 + (150.0,) * 7 + (200.0,) * 4
        output = self.printed(capsys, monkeypatch, (100.0,) * 15, patched)
        assert output.count("no difference seen (0.500 to 2.000)") == 2
        assert timing.PAIRING in output
        none = "no difference seen (0.500 to 2.000)"
        assert self.verdict == (
            f"patched against stock: decode {none}, prefill {none}; the logits agree."
        )

    def test_a_ratio_that_tells(self, monkeypatch, capsys):
        patched = (50.0,) * 3 + (150.0,) * 8 + (200.0,) * 4
        output = self.printed(capsys, monkeypatch, (100.0,) * 15, patched)
        assert f"{timing.SAME} (" not in output
        assert output.count("1.500 (1.500 to 2.000)") == 2
        fast = "1.500 times as fast (1.500 to 2.000)"
        assert self.verdict == (
            f"patched against stock: decode {fast}, prefill {fast}; the logits agree."
        )

    @pytest.mark.parametrize("calls", [[], ["mx.fast"]], ids=str)
    def test_sides_without_a_call_of_ours_are_the_same(self, calls, monkeypatch, capsys):
        """Whether there is no norm, or each was passed on, however far the times are apart."""

        def measured(model, prompt, tokens, side):
            report = counted(calls=len(calls), passed_on=len(calls))
            return compare.Drift(0.0, 0.0, 0.0), [report, report]

        monkeypatch.setattr(compare, "measure_drift", measured)
        output = self.printed(capsys, monkeypatch, (100.0,) * 15, (150.0,) * 15)
        none = "no difference seen (no norm was ours)"
        assert self.verdict == (
            f"patched against stock: decode {none}, prefill {none}; the logits agree."
        )
        assert output.count("no difference seen (1.500 to 1.500)") == 2

    def test_one_phase_may_be_the_same(self):
        reports = [counted(calls=3, passed_on=n) for n in (2, 3)]
        pair = {"stock": timing.Samples((2.0,) * 15), "patched": timing.Samples((1.0,) * 15)}
        rates = {"prefill": pair, "decode": pair}
        found = _compare_tables.over_stock(rates, "patched", reports)
        assert [found[phase].differs for phase in rates] == [True, False]

    @pytest.mark.parametrize("name", ["projections", "products"])
    def test_products_are_calls_of_ours(self, name):
        report = counted(calls=2, passed_on=2, **{name: 1})
        assert _sides.marked(timing.Ratio((2.0,) * 15, 2.0), report).differs


class TestProjections:
    """The third side. The simulated device computes them, the CPU does not."""

    @pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, 4])
    @pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
    def test_rounding_explains_it(self, name, dtype, backend):
        model = _tiny_models.build(name)
        if dtype == 4:
            mlx.nn.quantize(model, 32, 4)
        else:
            model.set_dtype(dtype)
        prompt = prompt_for(name, 4)  # of more rows dense products stay two steps on CUDA
        drift, reports = compare.measure_drift(model, prompt, [3, 1], "projections")
        assert drift.explained and drift.rounding > 0
        apart = backend.startswith("metal") and (name, dtype) == ("gpt2", 4)  # layer norms
        taken = backend != "cpu" and not apart
        assert all((report.projections > 0) == taken for report in reports)

    def test_products_of_norms_move(self):
        """Of few rows, and no other's."""
        x = mx.random.normal((1, 8, 64), key=mx.random.key(0))
        layer = mlx.nn.Linear(64, 32)
        many = mx.random.normal((1, 9, 64), key=mx.random.key(0))

        def products():
            normed = [mx.fast.rms_norm(a, None, 1e-5) for a in (x, many)]
            pairs = [(layer(a), a @ layer.weight.T + layer.bias) for a in normed]
            return [mx.array_equal(*pair).item() for pair in [*pairs, (layer(x), layer(x + 0))]]

        with compare._norms_an_ulp_off(keys()):
            assert products() == [True, True, True]
        with compare._norms_an_ulp_off(keys(), products=True):
            assert products() == [False, True, True]
        assert products() == [True, True, True]

    @pytest.mark.parametrize("enabled, ulp", [("1", 2.0**-10), ("0", 2.0**-23)])
    def test_tf32_is_coarser(self, enabled, ulp, monkeypatch):
        monkeypatch.setenv("MLX_ENABLE_TF32", enabled)
        monkeypatch.setattr(mx, "default_device", lambda: mx.gpu)
        eps = 2.0**-23
        assert compare._ulp_of_product(mx.zeros((1, 2, 8)), False) == ulp
        assert compare._ulp_of_product(mx.zeros((1, 2, 8)), True) == 4 * eps
        assert compare._ulp_of_product(mx.zeros((1, 1, 8)), False) == eps
        assert compare._ulp_of_product(mx.zeros((1, 2, 8), mx.float16), True) == 2.0**-10

    @pytest.fixture
    def gpu(self, monkeypatch):
        """The CPU, asked for as if it were a GPU."""
        monkeypatch.setattr(_sides, "chosen", lambda args: ("stock", "patched", "projections"))

    def test_a_wrong_norm_is_noticed(self, gpu, larger_eps, capsys):
        assert main(["compare", "tiny:llama", *SMALL, "--projections"]) == 1
        assert "the logits DISAGREE" in capsys.readouterr().out.splitlines()[0]

    def test_they_are_part_of_the_verdict(self, gpu, monkeypatch, capsys):
        """Where they alone differ from stock by more than rounding."""
        measure = compare.measure_drift

        def drift(model, prompt, tokens, side):
            found, reports = measure(model, prompt, tokens, side)
            wrong = compare.Drift(1.0, 1.0, found.rounding)
            return wrong if side == "projections" else found, reports

        monkeypatch.setattr(compare, "measure_drift", drift)
        assert main(["compare", "tiny:llama", *SMALL, "--projections"]) == 1
        first, second, *lines = capsys.readouterr().out.splitlines()
        assert first.startswith("patched against") and first.endswith("logits agree.")
        assert second.startswith("projections against") and second.endswith("logits DISAGREE.")

    @pytest.mark.parametrize("device", ["cpu", "gpu"])
    def test_where_they_are_measured(self, device, monkeypatch):
        monkeypatch.setattr(mx, "default_device", lambda: getattr(mx, device))
        args = argparse.Namespace(projections=True, null=False)
        third = ("projections",) if device == "gpu" else ()
        assert _sides.chosen(args) == ("stock", "patched", *third)
        assert _sides.note(args) == (None if third else _sides.NOTE)

    def test_on_the_cpu_they_are_a_sentence(self, capsys):
        assert main(["compare", "tiny:llama", *SMALL, "--projections"]) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert output.count("rojections") == 1 and _sides.NOTE in output

    def test_it_is_said_and_drawn(self, gpu, tmp_path, capsys):
        file = tmp_path / "speeds.png"
        assert main(["compare", "tiny:llama", *SMALL, "--projections", "--plot", str(file)]) == 0
        lines = capsys.readouterr().out.splitlines()
        output = " ".join(" ".join(lines).replace("│", "").split())
        assert "with the products that take them 0 0" in output
        assert "mx.fast's norms and the products that take them moved by an ulp" in output
        assert file.read_bytes().startswith(b"\x89PNG")

    def test_nothing_is_said_of_them_otherwise(self, capsys):
        assert main(["compare", "tiny:llama", *SMALL]) == 0
        assert "rojections" not in capsys.readouterr().out


class TestNull:
    def test_it_is_stock_twice(self, monkeypatch, capsys):
        sides = []
        context = _sides.context
        monkeypatch.setattr(_sides, "context", lambda side: sides.append(side) or context(side))
        assert main(["compare", "tiny:llama", *SMALL, "--null"]) == 0
        assert {*sides} == {"stock", "stock again"}
        output = " ".join(capsys.readouterr().out.split())
        assert output.startswith("stock again against stock: decode ")
        assert "with mx.fast's norms (stock), twice." in output
        assert "prefill 0.00e+00, decode 0.00e+00" in output
        assert "no norm was ours" not in output and "Calls of mx.fast" not in output

    def test_it_is_no_other_side(self, capsys):
        with pytest.raises(SystemExit):
            main(["compare", "tiny:llama", "--null", "--projections"])
        assert "not allowed with argument" in capsys.readouterr().err


class TestJson:
    def document(self, capsys, *arguments):
        """What is printed, and the status."""
        status = main(["compare", "tiny:qwen3", *SMALL, "--json", *arguments])
        output = capsys.readouterr()
        assert output.err == "" and output.out.count("\n") == 1
        return json.loads(output.out), status

    def test_it_has_all_figures(self, capsys):
        found, status = self.document(capsys)
        assert status == 0
        assert found["command"] == "compare" and found["model"] == "tiny:qwen3"
        assert found["verdict"]["agrees"] is True and len(found["verdict"]["text"]) == 1
        assert list(found["sides"]) == ["stock", "patched"]
        for of_side in found["sides"].values():
            for phase in ("prefill", "decode"):
                assert of_side["tokens_a_second"][phase]["median"] > 0
        patched = found["sides"]["patched"]
        assert patched["norms"]["decode"]["fused"] == 6
        assert patched["over_stock"]["decode"]["rounds"] == 15
        assert 0 < patched["largest_difference"]["prefill"] <= patched["explained_by_rounding"]
        assert patched["first_other_token"] is None

    def test_a_disagreement_is_a_document_too(self, larger_eps, capsys):
        found, status = self.document(capsys)
        assert status == 1 and found["verdict"]["agrees"] is False

    def test_a_nan_is_null(self, monkeypatch, capsys):
        def nan(x, weight, eps, stream=None):
            return STOCK(x, weight, eps, stream=stream) * mx.nan

        monkeypatch.setattr(_ext, "patched_rms_norm", nan)
        found, status = self.document(capsys)
        assert status == 1
        assert found["sides"]["patched"]["largest_difference"]["decode"] is None

    def test_an_error_leaves_nothing(self, capsys):
        assert main(["compare", "tiny:lama", "--json"]) == 2
        output = capsys.readouterr()
        assert output.out == "" and "MODEL 'tiny:lama'" in output.err


class TestRun:
    def test_on_a_tiny_model(self):
        result = subprocess.run(
            [sys.executable, "-m", "mlx_norms", "compare", "tiny:qwen3", *SMALL],
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        assert result.stderr == ""
        output = " ".join(result.stdout.split())
        for text in (
            "tiny:qwen3 on the cpu",
            "8 random tokens in, 4 out",
            "Its weights are random",
            "patched / stock",
            "left to MLX │ 0 │ 0",
            "fused │ 6 │ 6",
            "over the largest stock logit",
            "Tokens generated: all 4 the same",
            "Stock and patched agree.",
        ):
            assert text in output, text

    @pytest.mark.parametrize("name", ["tiny:llama", "tiny:qwen3"])
    def test_a_wrong_eps_is_noticed(self, name, larger_eps, capsys):
        assert main(["compare", name, *SMALL]) == 1
        output = capsys.readouterr().out
        assert "all 4 the same" in output  # which says nothing here
        assert "Stock and patched DISAGREE." in output

    def test_a_wrong_norm_is_noticed(self, monkeypatch, capsys):
        def without_weight(x, weight, eps, stream=None):
            return STOCK(x, None, eps, stream=stream)

        monkeypatch.setattr(_ext, "patched_rms_norm", without_weight)
        assert main(["compare", "tiny:qwen3", *SMALL]) == 1
        output = capsys.readouterr().out
        assert "they part at number" in output
        assert "Stock and patched DISAGREE." in output

    def test_tokens_that_part(self, monkeypatch, capsys):
        generate = compare.generate

        def parting(model, prompt, count):
            generation = generate(model, prompt, count)
            if mx.fast.rms_norm is not STOCK:
                generation.tokens[2] += 1
            return generation

        monkeypatch.setattr(compare, "generate", parting)
        assert main(["compare", "tiny:llama", *SMALL]) == 0  # as the logits agree
        assert "they part at number 3 of 4" in " ".join(capsys.readouterr().out.split())

    def test_a_saved_model(self, tmp_path, capsys):
        save("qwen3", tmp_path)
        assert main(["compare", str(tmp_path), *SMALL]) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert "weights are random" not in output
        assert "Stock and patched agree." in output

    def test_plot(self, tmp_path, capsys):
        file = tmp_path / "speeds.png"
        assert main(["compare", "tiny:llama", *SMALL, "--plot", str(file)]) == 0
        assert file.read_bytes().startswith(b"\x89PNG")


class TestErrors:
    def failure(self, capsys, *arguments):
        """What is printed when the command cannot run."""
        assert main(["compare", *arguments]) == 2
        output = capsys.readouterr()
        assert output.err.count("\n") == 1
        return output.err

    def test_an_unknown_tiny_model(self, capsys):
        message = self.failure(capsys, "tiny:lama")
        assert "MODEL 'tiny:lama'" in message
        assert "llama" in message

    def test_no_such_path(self, capsys, tmp_path):
        message = self.failure(capsys, str(tmp_path / "none"))
        assert f"MODEL {str(tmp_path / 'none')!r}" in message
        assert "there is no such path" in message

    def test_a_folder_without_a_model(self, capsys, tmp_path):
        message = self.failure(capsys, str(tmp_path))
        assert f"MODEL {str(tmp_path)!r}" in message
        assert "there is no such path" not in message
        assert "config.json" in message

    def test_a_model_that_does_not_run(self, monkeypatch, capsys):
        def fail(*arguments):
            raise RuntimeError("[GatherMM] Not\nhere.")

        monkeypatch.setattr(compare, "generate", fail)
        message = self.failure(capsys, "tiny:llama")
        assert message == (
            "MODEL 'tiny:llama' does not run here: RuntimeError: [GatherMM] Not here.\n"
        )

    @pytest.mark.parametrize("module", ["mlx_lm", "rich", "matplotlib"])
    def test_without_a_package(self, module, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, module, None)
        message = self.failure(capsys, "tiny:llama", "--plot", "speeds.png")
        assert f"pip install {module.replace('_', '-')}\n" in message
        assert ("--plot" in message) == (module == "matplotlib")

    def test_matplotlib_is_for_the_plot_only(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        compare._check_packages(None)

    @pytest.mark.parametrize("file", ["none/speeds.png", "speeds.nonsense", "speeds"])
    def test_a_plot_that_cannot_be_written(self, file, monkeypatch, capsys, tmp_path):
        monkeypatch.setattr(compare, "load", None)  # before anything is measured
        path = str(tmp_path / file)
        message = self.failure(capsys, "tiny:llama", *SMALL, "--plot", path)
        assert f"--plot {path}" in message

    @pytest.mark.parametrize(
        "sizes", [["--prompt", "99999999999"], ["--tokens", "99999999999"], ["--prompt", "1000000"]]
    )
    def test_more_tokens_than_memory_holds(self, sizes, monkeypatch, capsys):
        monkeypatch.setattr(compare, "generate", None)
        message = self.failure(capsys, "tiny:llama", *sizes)
        assert " ".join(sizes) in message and "take at least" in message

    def test_memory_is_that_of_logits_and_scores(self, monkeypatch, capsys):
        model = _tiny_models.build("llama")
        vocabulary, heads = _tiny_models.vocabulary("llama"), model.args.num_attention_heads
        needed = 3 * (50 + 7) * vocabulary * 4 + heads * 50 * 50 * 4
        arguments = (model, vocabulary, 50, 7, "--prompt")
        monkeypatch.setattr(compare.machine, "memory_bytes", lambda: needed)
        compare.check_memory(*arguments, sides=3)
        monkeypatch.setattr(compare.machine, "memory_bytes", lambda: needed - 1)
        with pytest.raises(compare.CommandError, match="--prompt 50 and --tokens 7"):
            compare.check_memory(*arguments, sides=3)
        compare.check_memory(*arguments, sides=2)

    @pytest.mark.parametrize("text", [None, "", "{", "[]", '{"llama": {}}', '{"llama": 1}'])
    def test_a_damaged_file_of_tiny_models(self, text, monkeypatch, capsys, tmp_path):
        file = tmp_path / "models.json"
        if text is not None:
            file.write_text(text)
        monkeypatch.setattr(_tiny_models, "_FILE", file)
        _tiny_models._configurations.cache_clear()
        try:
            message = self.failure(capsys, "tiny:llama")
        finally:
            _tiny_models._configurations.cache_clear()
        assert f"{file} is missing or damaged" in message

    @pytest.mark.parametrize(
        "arguments, text",
        [
            (["--prompt", "0"], "argument --prompt: must be at least 1, got 0"),
            (["--tokens", "1"], "argument --tokens: must be at least 2, got 1"),
            (["--rounds", "14"], "argument --rounds: must be at least 15, got 14"),
            (["--rounds", "many"], "argument --rounds: invalid int value: 'many'"),
        ],
    )
    def test_numbers(self, arguments, text, capsys):
        with pytest.raises(SystemExit) as exit:
            main(["compare", "tiny:llama", *arguments])
        assert exit.value.code == 2
        assert text in capsys.readouterr().err
