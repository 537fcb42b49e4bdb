"""One run: what it measures, and where its results go."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator

import mlx.core as mx
from rich.progress import track

from harness import conditions, ladder, peers, plots, tables
from harness.measuring import Measuring
from harness.providers import Calls, make_room, providers
from harness.results import COLUMNS, CsvFile
from mlx_norms._measure import machine, timing
from mlx_norms.commands import CommandError, _output, _sides, compare

from . import capture, grid, metal_sim, model, tracing

_CAPTURED_CALLS = 3
_WIDTH = 200  # when the output is not a terminal


class Bench:
    """A run with these arguments; its files stay open until ``stack`` is closed."""

    def __init__(self, args: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self._args = args
        self._stack = stack
        self._console = _output.console()
        self._progress = self._console  # a single console keeps lines and the bar apart
        if not self._console.is_terminal:
            self._console = _output.console(width=_WIDTH)
            self._progress = _output.console(stderr=True)
        self._peers: list[str] = []
        self._notes: list[str] = []

    def run(self) -> None:
        """Do what the arguments ask for.

        Raises:
            CommandError: If it cannot be done here.
        """
        args = self._args
        if args.capture and (obstacle := capture.obstacle(args.capture)):
            raise CommandError(f"--capture {args.capture}: {obstacle}.")
        if args.what == "model":
            self._model()
        elif args.backend == "metal-sim":
            configs = grid.configs(args, "counts")
            grid.check_memory(configs, (), hot=True)
            self._counts(configs)
        else:
            measures = not (args.capture or args.trace)
            full = args.what != "ladder" and args.full
            purpose = ("full" if full else "times") if measures else "few"
            configs = grid.configs(args, purpose)
            asked = grid.names(args.peers, "--peers", peers.NAMES)
            grid.check_memory(configs, asked, args.hot)
            missing: list[str] = []
            self._peers = peers.available(asked, missing.append)
            if missing:
                raise CommandError(f"--peers {args.peers}: {_output.short('; '.join(missing))}")
            (self._times if measures else self._trace if args.trace else self._capture)(configs)

    def _say(self, line: str) -> None:
        self._notes.append(line)
        self._console.print(line, highlight=False, markup=False)

    def _figures(self, **figures) -> None:
        """The document for ``--json``, including all notes that were printed."""
        self._args.figures |= {"what": self._args.what, **figures, "notes": list(self._notes)}

    def _facts(self) -> dict[str, str]:
        """What the figures depend on."""
        facts = conditions.facts() | peers.versions(self._peers)
        if machine.backend() == "cuda":
            facts["driver"] = conditions.driver_version()
        facts["cache_mib"] = f"{conditions.cache_bytes() / 2**20:.4g}"
        return facts

    def _say_facts(self, facts: dict[str, str]) -> None:
        self._console.print(
            ", ".join(f"{key} {value}" for key, value in facts.items()),
            highlight=False,
            markup=False,
        )

    def _csv(self, columns: list[str], facts: dict[str, str]) -> Callable[[dict], None]:
        """A function that writes a line to the file of --csv, if there is one."""
        path = self._args.csv
        if not path:
            return lambda values: None
        try:
            file = self._stack.enter_context(open(path, "w", newline="", encoding="utf-8"))
        except OSError as error:
            raise CommandError(f"--csv {path} cannot be written: {error}") from None
        return CsvFile(file, columns, facts).write

    def _plot(self, draw: Callable[[str, list, str], None], lines: list, title: str) -> None:
        path = self._args.plot
        if not path:
            return
        try:
            draw(path, lines, title)
        except (OSError, ValueError) as error:
            raise CommandError(f"--plot {path} cannot be written: {error}") from None
        self._say(f"The plot is in {path}.")

    def _providers(self, config) -> dict:
        make_room()
        make = ladder.providers if self._args.what == "ladder" else providers
        return make(config, self._peers, hot=self._args.hot)

    def _tracked(self, configs: list, what: str) -> Iterator:
        """Iterate over the configs, with a progress bar on a terminal, or else a line of each."""
        hidden = not self._progress.is_terminal
        tracked = track(configs, what, console=self._progress, disable=hidden)
        for i, config in enumerate(tracked, start=1):
            if not (sys.stderr and sys.stderr.isatty()):
                shape = f"{config.rows}x{config.length}"
                _tell(f"{i} of {len(configs)}: {config.op} {shape} {config.dtype}")
            yield config

    def _tell_estimate(self, measuring: Measuring, configs: list) -> None:
        seconds = sum(measuring.estimate(config, len(self._peers)) for config in configs)
        compiling = ", and what kernels take to compile" * (machine.backend() != "cpu")
        _tell(
            f"configurations: {len(configs)}, rounds of each: {measuring.rounds}, about "
            f"{seconds:.0f} s in all{compiling}."
        )

    def _times(self, configs: list) -> None:
        what = self._args.what
        if machine.backend() == "cuda":
            # The peak is float32's, not TF32's, which MLX's matmul uses by default.
            os.environ.setdefault("MLX_ENABLE_TF32", "0")
        facts = self._facts()
        write = self._csv(COLUMNS, facts)
        later: list[str] = []  # printed after the summary
        measuring = Measuring(self._args.rounds, self._args.hot, later.append)
        if what != "ladder":  # whose rungs are as slow as they like
            self._tell_estimate(measuring, configs)
        lines = []
        for config in self._tracked(configs, "measuring"):
            found = measuring.lines(
                what,
                config,
                self._providers(config),
                peak=config.op == "sgemm" or bool(self._args.plot),
                fixes=ladder.fixes(config) if what == "ladder" else {},
            )
            for line in found:
                write(line.values())
            lines += found
        summary = tables.summary_figures(lines) if what != "ladder" else []
        if summary:
            self._console.print(tables.summary(lines, what))
        self._say_facts(facts)
        for text in later:
            self._say(text)
        for table in tables.tables(lines, what):
            self._console.print(table)
        if any(line.baseline or line.fixes for line in lines):
            self._say(timing.PAIRING)
        self._say_where(lines)
        self._say_shares(lines)
        self._figures(facts=facts, summary=summary, lines=tables.figures(lines))
        self._plot(plots.draw, lines, f"bench {what}, {facts['device']}")

    def _say_where(self, lines: list) -> None:
        """Say which inputs were in the cache or in memory unintendedly."""
        wanted = "cache" if self._args.hot else "memory"
        shapes = _shapes(line for line in lines if line.inputs != wanted)
        if self._args.hot:
            self._say(f"The inputs are kept in the cache{f', but for: {shapes}' * bool(shapes)}.")
        elif shapes:
            self._say(f"So small that many of them are in the cache all the same: {shapes}.")

    def _say_shares(self, lines: list) -> None:
        """Explain the share of a copy where it is not obvious."""
        lines = [line for line in lines if not line.multiplies]
        if machine.backend() != "cuda" and lines:
            self._say(
                "A copy is MLX's mx.abs of as much float32, by one thread or by several at once, "
                "whichever is faster."
            )
        if small := _shapes(line for line in lines if line.of_copy is None):
            self._say(
                "No share of a copy where most of the copy's time is that of any call, however few "
                f"its bytes: {small}."
            )
        if fast := _shapes(line for line in lines if (line.of_copy or 0) > 1):
            self._say(
                "Faster than the copy, since part of the bytes was in the cache or the copy is not "
                f"the fastest there can be: {fast}."
            )

    def _trace(self, configs: list) -> None:
        facts = self._facts()
        self._say_facts(facts)
        write = self._csv(tracing.COLUMNS, facts)
        traces = []
        for config in self._tracked(configs, "tracing"):
            about = (self._args.what, config.op, config.dtype, config.rows, config.length)
            for name, provider in self._providers(config).items():
                try:
                    trace = tracing.trace(provider.start, provider.wait)
                except Exception as error:  # torch and Triton may raise anything
                    if isinstance(provider, Calls):
                        raise
                    self._say(f"{name} does not do {config}: {error}")
                else:
                    title = f"{name}, {config.op} {config.dtype} {config.rows}x{config.length}"
                    traces.append(self._show_trace(write, trace, title, (*about, name)))
        self._figures(facts=facts, traces=traces)

    def _show_trace(
        self, write: Callable, trace: tracing.Trace, title: str, about: tuple
    ) -> dict[str, object]:
        """Print a trace, and return its figures."""
        for text in trace.lines(title):
            self._console.print(text, highlight=False, markup=False)
        for i, seconds in enumerate(trace.seconds):
            write(dict(zip(tracing.COLUMNS, (*about, i + 1, seconds * 1e6), strict=True)))
        return dict(zip(tracing.COLUMNS, about)) | trace.figures()

    def _capture(self, configs: list) -> None:
        self._say_facts(self._facts())
        all_of_them = [c for config in configs for c in self._providers(config).values()]
        for provider in all_of_them:
            provider.finish(provider.prepare(1))  # compiles
        with self._capturing():
            for provider in all_of_them:
                provider.finish(provider.prepare(_CAPTURED_CALLS), alone=True)

    @contextlib.contextmanager
    def _capturing(self) -> Iterator[None]:
        path = self._args.capture
        try:
            with capture.captured(path):
                yield
        except RuntimeError as error:
            raise CommandError(f"--capture {path}: {error}") from None
        self._say(f"The capture is in {path}: open it in Xcode.")
        self._figures(facts=self._facts(), capture=path)

    def _counts(self, configs: list) -> None:
        what = self._args.what
        ladders = what == "ladder"
        jobs = [(c, name) for c in configs for name in (ladder.fixes(c) if ladders else ["ours"])]
        try:
            with self._progress.status("building the simulated device, and counting"):
                found = metal_sim.count(jobs)
        except (RuntimeError, OSError) as error:
            raise CommandError(f"--backend metal-sim: {error}") from None
        write = self._csv(metal_sim.COLUMNS, {"device": "metal-sim", **conditions.versions()})
        rows = list(metal_sim.rows(what, found))
        for values in rows:
            write(values)
        for multiplies in (False, True):
            if part := [counts for counts in found if counts.multiplies == multiplies]:
                title = f"{what}: counts of the simulated Metal device"
                self._console.print(metal_sim.table(part, title))
        self._say("Bytes are what loads and stores ask for, from caches or memory. No times here.")
        if any(counts.one_read for counts in found):
            self._say(metal_sim.BOUND)
        self._figures(facts=conditions.versions(), counts=rows)

    def _model(self) -> None:
        args = self._args
        lengths = grid.numbers(args.prompts, "--prompts")
        sides = _sides.chosen(args)
        loaded, vocabulary = compare.load(args.model)
        for length in lengths:
            compare.check_memory(loaded, vocabulary, length, args.tokens, "--prompts")
        prompts = [
            mx.random.randint(0, vocabulary, (length,), key=mx.random.key(0)) for length in lengths
        ]
        mx.eval(prompts)
        if args.capture:
            self._say_facts(self._facts())
            model.steps(loaded, prompts[0], sides)  # compiles
            with self._capturing():
                model.steps(loaded, prompts[0], sides)
        elif args.trace:
            facts = self._facts()
            self._say_facts(facts)
            write = self._csv(tracing.COLUMNS, facts)
            traces = []
            for side, trace in model.traces(loaded, prompts[0], sides).items():
                about = ("model", args.model, "", lengths[0], "", side)
                title = f"{args.model}, {side}, decode steps"
                traces.append(self._show_trace(write, trace, title, about))
            self._figures(facts=facts, traces=traces)
        else:
            self._model_times(loaded, prompts, sides)

    def _model_times(self, loaded, prompts: list[mx.array], sides: tuple[str, ...]) -> None:
        args, facts = self._args, self._facts()
        write = self._csv(model.columns(sides), facts)
        later: list[str] = []  # printed after the verdict
        with _output.working("measuring a copy"):
            copy = Measuring(args.rounds, False, later.append).copy
        lines = []
        for prompt in prompts:
            found = list(model.lines(loaded, prompt, args.tokens, args.rounds, copy, sides))
            for line in found:
                write(line.values(args.model, args.tokens))
            lines += found
        verdicts = list(model.verdicts(lines))
        for verdict in verdicts:
            self._console.print(verdict, highlight=False, markup=False, soft_wrap=True)
        self._say_facts(facts)
        for text in (*later, _sides.note(sides)):
            if text:
                self._say(text)
        self._console.print(model.table(lines, f"{args.model}, {facts['device']}"))
        self._say(timing.PAIRING)
        for line in lines:
            if line.side != "stock":
                self._console.print(model.fused(line), highlight=False, markup=False)
        self._figures(
            verdict={"text": verdicts},
            facts=facts,
            model=args.model,
            tokens=args.tokens,
            lines=[line.figures() for line in lines],
        )
        self._plot(model.draw, lines, f"bench {args.model}, {facts['device']}")


def _tell(line: str) -> None:
    """Print a line on progress to the standard error, at once."""
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)


def _shapes(lines: Iterable) -> str:
    """The distinct ops and shapes of lines."""
    found = {(line.op, line.rows, line.length) for line in lines}
    return ", ".join(f"{op} {rows}x{length}" for op, rows, length in sorted(found))
