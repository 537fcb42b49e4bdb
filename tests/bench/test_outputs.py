"""The bench command: ladders, models, JSON, plots and counts."""

import dataclasses
import importlib.util
import itertools
import json
import math
import re

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from command import bench, metal_sim, tracing
from command.cli import main
from harness import ladder, measuring, plots
from harness.configs import OPS, Config
from harness.results import Line
from mlx_norms import ladders
from mlx_norms._measure import timing
from support.bench_case import GRID, PNG, rows_of, run
from support.variant import ROOT

pytestmark = pytest.mark.usefixtures("small_machine")


class TestLadder:
    def test_rungs_are_gpu_kernels(self, capsys):
        assert main(["ladder", "--backend", "cpu"]) == 2
        assert "rungs of the ladders are GPU kernels" in capsys.readouterr().err

    def test_both(self, rungs_anywhere, tmp_path, capsys):
        file, plot = tmp_path / "ladder.csv", tmp_path / "ladder.png"
        grid = ["--rows", "2,8", "--lengths", "48", "--sizes", "8,16"]
        output = run(capsys, "ladder", *grid, "--csv", str(file), "--plot", str(plot))
        assert plot.read_bytes().startswith(PNG)
        rows = rows_of(file)
        norms = [rung.name for rung in ladders.LAYER_NORM] + ["mx.fast"]
        products = [rung.name for rung in ladders.SGEMM] + ["mlx"]
        expected = [("layer", r, "48", name) for r in ("2", "8") for name in norms]
        expected += [("sgemm", n, n, name) for n in ("8", "16") for name in products]
        keys = ("op", "rows", "length", "provider")
        assert [tuple(row[key] for key in keys) for row in rows] == expected
        for row in rows:
            if row["op"] == "sgemm":
                flops = 2 * int(row["rows"]) ** 3
                gflops = float(row["gflops"])
                assert gflops == pytest.approx(flops / float(row["us"]) / 1e3, rel=1e-3)
                share = gflops / float(row["peak_gflops"])
                assert float(row["of_peak"]) == pytest.approx(share, rel=1e-3)
            else:
                assert row["gflops"] == row["of_peak"] == ""
        assert "before" in output and "GFLOP/s" in output
        assert ladders.SGEMM[-1].fixes.split()[0] in output

    def test_dtypes_that_a_rung_does_not_take(self, rungs_anywhere, tmp_path, capsys):
        file = tmp_path / "ladder.csv"
        grid = ["--ops", "layer_norm", "--rows", "2", "--dtypes", "float16"]
        run(capsys, "ladder", *grid, "--csv", str(file))
        taken = [rung.name for rung in ladders.LAYER_NORM if mx.float16 in rung.dtypes]
        assert [row["provider"] for row in rows_of(file)] == [*taken, "mx.fast"]
        assert "naive" not in taken

    @pytest.mark.cuda
    def test_on_a_gpu(self, backend, tmp_path, capsys):
        file = tmp_path / "ladder.csv"
        run(capsys, "ladder", "--rows", "64", "--sizes", "64", "--csv", str(file))
        found = {row["provider"] for row in rows_of(file)}
        assert found >= {rung.name for rung in (*ladders.LAYER_NORM, *ladders.SGEMM)}


class TestModel:
    @pytest.fixture(autouse=True)
    def mlx_lm(self):
        pytest.importorskip("mlx_lm", reason="instrument missing: mlx_lm")

    def test_times(self, tmp_path, capsys):
        file, plot = tmp_path / "model.csv", tmp_path / "model.png"
        options = ["--prompts", "3,6", "--tokens", "3", "--csv", str(file), "--plot", str(plot)]
        output = run(capsys, "model", "tiny:llama", *options)
        assert plot.read_bytes().startswith(PNG)
        rows = rows_of(file)
        assert [(r["prompt"], r["phase"], r["side"]) for r in rows] == list(
            itertools.product(("3", "6"), ("prefill", "decode"), ("stock", "patched"))
        )
        for row in rows:
            tokens = int(row["prompt"]) if row["phase"] == "prefill" else 1
            rate = 1e3 * tokens / float(row["ms"])
            assert float(row["tokens_a_second"]) == pytest.approx(rate, rel=1e-3)
            assert bool(row["gbps"]) == (row["phase"] == "decode")
            norms = ("8", "9") if row["side"] == "patched" else ("", "")
            assert (row["fused"], row["calls"]) == norms
        assert "decode 6, patched: 8 of 9 norms fused." in output

    def test_the_verdict_is_first(self, capsys):
        first, second, third, *_ = run(
            capsys, "model", "tiny:llama", "--prompts", "3,6", "--tokens", "3"
        ).splitlines()
        assert re.fullmatch(r"patched against stock: decode .*\(prompt of 3 tokens\)\.", first)
        assert re.fullmatch(r"patched against stock: decode .*\(prompt of 6 tokens\)\.", second)
        assert third.startswith("device cpu, ")
        (only, *_) = run(
            capsys, "model", "tiny:llama", "--prompts", "3", "--tokens", "3"
        ).splitlines()
        assert re.fullmatch(r"patched against stock: decode .*, prefill [^)]*\)?\.", only)

    def test_projections(self, tmp_path, capsys):
        """The file has their ratio and count besides, and no other column is another's."""
        file, plot = tmp_path / "model.csv", tmp_path / "model.png"
        options = ["--prompts", "3", "--tokens", "3", "--csv", str(file), "--plot", str(plot)]
        output = run(capsys, "model", "tiny:llama", "--projections", *options)
        assert "projections against stock" not in output
        assert plot.read_bytes().startswith(PNG)
        rows = {(row["phase"], row["side"]): row for row in rows_of(file)}
        assert [side for _, side in rows] == ["stock", "patched", "projections"] * 2
        for (_, side), row in rows.items():
            own = side == "projections"
            assert bool(row["stock_over_projections"]) == own
            assert bool(row["stock_over_patched"]) == (not own)
            assert row["projections"] == ("0" if own else "")
        assert "Projections do nothing on the CPU: " in output
        assert "0 computed with the products that take them." in output
        run(capsys, "model", "tiny:llama", *options)
        assert not any("projections" in name for name in rows_of(file)[0])

    def test_json(self, capsys):
        options = ["--prompts", "3", "--tokens", "3", "--projections", "--json"]
        found = json.loads(run(capsys, "model", "tiny:llama", *options))
        assert (found["what"], found["model"], found["tokens"]) == ("model", "tiny:llama", 3)
        (verdict,) = found["verdict"]["text"]
        assert verdict.startswith("patched against stock")
        assert len(found["lines"]) == 6
        for line in found["lines"]:
            stock = line["side"] == "stock"
            assert (line["times_as_fast_as_stock"] is None) == stock == (line["norms"] is None)
            assert line["milliseconds"]["rounds"] == 2
            assert (line["gbps"] is None) == (line["phase"] == "prefill")

    def test_trace(self, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(tracing.trace, "__defaults__", (12,))
        file = tmp_path / "trace.csv"
        output = run(capsys, "model", "tiny:llama", "--prompts", "4", "--trace", "--csv", str(file))
        assert "tiny:llama, patched, decode steps: µs of the host" in output
        assert [row["provider"] for row in rows_of(file)] == ["stock"] * 12 + ["patched"] * 12

    def test_unknown(self, capsys):
        assert main(["model", "tiny:lama"]) == 2
        assert "MODEL 'tiny:lama'" in capsys.readouterr().err


class TestJson:
    """What the tables have, with samples and ratios whole; stdout has nothing else."""

    def test_norms(self, tmp_path, capsys):
        file = tmp_path / "figures.csv"
        options = [*GRID, "--ops", "rms,add_rms", "--json", "--csv", str(file)]
        found = json.loads(run(capsys, "norm", *options))
        assert found["facts"]["mlx_norms"] == mlx_norms.__version__
        assert timing.PAIRING in found["notes"]
        for line, row in zip(found["lines"], rows_of(file), strict=True):
            assert (line["op"], line["provider"]) == (row["op"], row["provider"])
            for name in ("us", "us_lower", "us_upper"):
                key = {"us": "median"}.get(name, name.removeprefix("us_"))
                assert 1e6 * line["seconds"][key] == pytest.approx(float(row[name]), rel=1e-3)
            assert line["over_baseline"]["median"] == pytest.approx(
                float(row["over_baseline"]), rel=1e-3
            )
            assert line["gflops"] is line["over_before"] is None

    def test_rungs(self, rungs_anywhere, capsys):
        options = ["--rows", "2", "--lengths", "48", "--sizes", "8", "--json"]
        lines = json.loads(run(capsys, "ladder", *options))["lines"]
        rungs = [line for line in lines if line["fixes"]]
        assert len(rungs) == len(ladders.LAYER_NORM) + len(ladders.SGEMM)
        first = {ladders.LAYER_NORM[0].name, ladders.SGEMM[0].name}
        for line in rungs:
            assert (line["over_before"] is None) == (line["provider"] in first)

    def test_traces(self, capsys):
        options = ["--trace", *GRID, "--ops", "rms", "--json"]
        traces = json.loads(run(capsys, "norm", *options))["traces"]
        assert [trace["provider"] for trace in traces] == ["ours", "mx.fast"]
        for trace in traces:
            assert len(trace["host_seconds"]) == tracing.CALLS
            assert trace["first"] == trace["host_seconds"][0] and trace["steady"] > 0

    def test_counts(self, monkeypatch, capsys):
        config = Config("rms", "float32", 4, 8)
        counts = metal_sim.Counts(config, "ours", {"x": (8, 0)}, config.moved + 1, 3, 2, 1, 0)
        monkeypatch.setattr(metal_sim, "count", lambda jobs: [counts])
        (found,) = json.loads(run(capsys, "norm", "--backend", "metal-sim", "--json"))["counts"]
        assert (found["array"], found["bytes_read"], found["barriers"]) == ("x", 8, 3)
        assert found["least_us_M4"] is None

    def test_figures_outlive_a_plot_that_fails(self, monkeypatch, tmp_path, capsys):
        def fail(path, lines, title):
            raise OSError("the disk is full")

        monkeypatch.setattr(bench.plots, "draw", fail)
        file = str(tmp_path / "figure.png")
        assert main(["norm", *GRID, "--ops", "rms", "--plot", file, "--json"]) == 2
        output = capsys.readouterr()
        assert len(json.loads(output.out)["lines"]) == 2
        assert output.err.endswith(f"\n--plot {file} cannot be written: the disk is full\n")


class TestPlots:
    """What is drawn, by matplotlib's own objects."""

    def line(self, config, provider="ours", seconds=1e-6, is_bytes=True):
        about = (
            config.op,
            config.dtype,
            config.rows,
            config.length,
            provider,
            "evals",
            "memory",
            1,
        )
        samples = timing.Samples((seconds,))
        of_config = (config.moved, config.flops, config.elements, 1e12, is_bytes, 1e13, 1)
        return Line("norm", *about, samples, *of_config)

    def lines(self, ops, dtypes, rows, lengths):
        grid = itertools.product(ops, dtypes, rows, lengths)
        configs = [Config(*of_config) for of_config in grid]
        return [self.line(config, name) for config in configs for name in ("ours", "mx.fast")]

    def panels(self, lines):
        self.figure = plots.figure(lines, "a title")
        self.figure.draw_without_rendering()
        return self.figure.axes

    def test_rates_over_lengths(self):
        lengths = (512, 768, 4096)
        panel, roofline = self.panels(self.lines(["rms"], ["float32"], [8], lengths))
        drawn = {line.get_label(): line for line in panel.lines}
        assert sorted(drawn) == ["copy", "mx.fast", "ours"]
        x, y = drawn["ours"].get_data()
        assert list(x) == list(lengths)
        assert list(y) == pytest.approx([2 * 4 * 8 * n / 1e-6 / 1e9 for n in lengths])
        assert list(drawn["copy"].get_ydata()) == [1000] * 3
        assert panel.get_title() == "rms, 8 rows"
        assert (panel.get_xlabel(), panel.get_ylabel()) == ("length of rows", "GB/s")
        assert [text.get_text() for text in panel.get_xticklabels()] == ["512", "768", "4k"]

    def test_rates_over_rows_where_there_is_one_length(self):
        panel, _ = self.panels(self.lines(["rms"], ["float32"], [1, 64], [768]))
        assert panel.get_title() == "rms, rows of 768"
        assert panel.get_xlabel() == "number of rows"
        assert list(panel.lines[0].get_xdata()) == [1, 64]

    def test_no_copy_where_it_is_not_one_of_bytes(self):
        configs = [Config("rms", "float32", 1, n) for n in (8, 4096)]
        lines = [self.line(config, is_bytes=config.length > 8) for config in configs]
        panel, _ = self.panels(lines)
        (copy,) = (line for line in panel.lines if line.get_label() == "copy")
        assert math.isnan(copy.get_ydata()[0]) and copy.get_ydata()[1] == 1000

    def test_products_are_operations(self):
        products = [ladder.Product(n) for n in (64, 128)]
        panel, _ = self.panels([self.line(product) for product in products])
        assert panel.get_ylabel() == "GFLOP/s"
        ours, peak = panel.lines
        assert list(ours.get_data()[0]) == [64, 128]
        assert ours.get_ydata()[1] == pytest.approx(2 * 128**3 / 1e-6 / 1e9)
        assert list(peak.get_ydata()) == [1e4, 1e4]

    def test_every_kind_has_its_own_marker(self):
        lines = self.lines(OPS, ["float32", "float16", "bfloat16"], [1, 8], [64, 128])
        *panels, roofline = self.panels(lines)
        assert len(panels) == len(OPS)
        kinds = [line for line in roofline.lines if line.get_label().startswith("ours")]
        styles = {(line.get_marker(), line.get_fillstyle()) for line in kinds}
        assert len(styles) == len(kinds) == 3 * len(OPS)
        for panel in panels:  # dtypes by fillings, rows by dashes
            own = [line for line in panel.lines if line.get_label() == "ours"]
            assert len({(line.get_fillstyle(), line.get_linestyle()) for line in own}) == 6

    def test_everything_drawn_is_seen(self):
        """The roofline's limits hold its markers."""
        config = Config("rms", "float32", 1, 4096)
        slow = self.line(config, "mx.fast", seconds=1.0)
        *_, roofline = self.panels([self.line(config), slow])
        assert roofline.get_ylim()[0] < slow.flop_rate / 1e9 < roofline.get_ylim()[1]

    @pytest.mark.parametrize("copy, peak", [(1e12, 1e13), (1e8, 1e13), (1e12, 1e8), (1e8, 1e8)])
    def test_no_point_is_above_the_roof(self, copy, peak):
        """Whatever the copy and the matmul are, and the legend says what the roof is of."""
        configs = [Config(op, "float32", 8, n) for op in ("rms", "layer") for n in (64, 4096)]
        lines = [
            dataclasses.replace(self.line(config), copy=copy, peak=peak, peak_of="NumPy's matmul")
            for config in configs
        ]
        *_, roofline = self.panels(lines)
        roof, *points = roofline.lines
        assert len(points) == 2
        for point in points:
            ((x,), (y,)) = point.get_data()
            logs = np.interp(np.log(x), *map(np.log, roof.get_data()))
            assert y <= np.exp(logs) * (1 + 1e-9)
        bytes_, operations = (
            text.get_text()
            for text in self.figure.legends[0].get_texts()
            if text.get_text().startswith("roof of")
        )
        ours = {"bytes": "262 GB/s", "operations": "229 GFLOP/s"}
        of_bytes = "a copy, 1000 GB/s" if copy == 1e12 else f"ours, rms 8x4096, {ours['bytes']}"
        assert bytes_ in (
            f"roof of bytes: {of_bytes}",
            f"roof of bytes: {of_bytes.replace('rms', 'layer')}",
        )
        of_operations = f"ours, layer 8x4096, {ours['operations']}"
        if peak == 1e13:
            of_operations = "NumPy's matmul, 10000 GFLOP/s"
        assert operations == f"roof of operations: {of_operations}"

    def test_what_the_roofs_are_on_the_cpu(self, monkeypatch):
        """NumPy's matmul, as MLX's is below some norms."""
        used = []
        monkeypatch.setattr(measuring.timing.Runs, "seconds", lambda run, n: used.append(n) or n)
        found = measuring.Measuring(3, False, print)
        assert found.peak_of == "NumPy's matmul"
        assert found.peak == 2 * 64**3 and used

    @pytest.mark.parametrize("ops", [["rms"], list(OPS)])
    def test_size_and_legend(self, ops, tmp_path):
        """At least 1200 pixels, and the one legend lies on no axes."""
        panels = self.panels(self.lines(ops, ["float32", "bfloat16"], [1, 8], [64, 128]))
        assert self.figure.get_figwidth() * self.figure.dpi >= 1200
        (legend,) = self.figure.legends
        assert all(panel.get_legend() is None for panel in panels)
        box = legend.get_window_extent()
        assert not any(box.overlaps(panel.get_tightbbox()) for panel in panels)
        said = [text.get_text() for text in legend.get_texts()]
        assert {"ours", "mx.fast", "a copy", "float32", "bfloat16", "8 rows", "1 row"} <= {*said}


class TestCounts:
    @pytest.mark.parametrize("name", ["metalsim", "pytest"])
    def test_what_is_missing_and_how_to_install_it(self, name, monkeypatch, capsys):
        found = importlib.util.find_spec
        missing = lambda module: None if module == name else found(module)  # noqa: E731
        monkeypatch.setattr(metal_sim.importlib.util, "find_spec", missing)
        assert main(["norm", "--backend", "metal-sim"]) == 2
        package = "./tools/metalsim" if name == "metalsim" else "'.[cpu,test]'"
        assert f"needs {name}: type  pip install {package}  in {ROOT}" in capsys.readouterr().err

    def test_the_bound_is_of_one_read(self):
        config = Config("rms", "float32", 1000, 1000)
        counts = metal_sim.Counts(config, "ours", {"x": (4, 0)}, config.moved, 0, 0, 1, 0)
        assert counts.least_seconds("M4") == (8e6 + 4e3) / 120e9
        twice = metal_sim.Counts(config, "ours", {"x": (8, 0)}, config.moved + 1, 0, 0, 1, 0)
        assert math.isnan(twice.least_seconds("M4"))
