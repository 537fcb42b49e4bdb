"""The runner: suites of cases, whose sides take turns, and the table and file of their times."""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import mlx.core as mx
from rich.progress import track

from mlx_norms._measure import machine, timing
from mlx_norms._measure.tables import table
from mlx_norms.commands import CommandError, _json, _output, check_environment

from . import clocks, conditions, copy_speed, peers
from .driver import DriverError
from .results import COLUMNS, CsvFile, Line

_WIDTH = 160  # when the output is not a terminal
_TINY = 2  # calls in a sample, where a suite is only tried
COPIED = 4 << 20  # bytes in and out, from which a copy says something

_OF_HOW = {
    "kernels": "a GPU's time of independent calls",
    "evals": "the host's time to evaluate many calls together",
    "many": "the host's time to build and evaluate many calls together",
    "one": "the host's time of calls that are built and evaluated one by one",
    "thread": "the calling thread's time to build and evaluate many calls",
    "wall": "the host's time",
}


@dataclass(frozen=True)
class Case:
    """What takes turns.

    Attributes:
        labels: What tells it from others, by the names in ``Suite.labels``.
        sides: Makes them, by name: of providers.py, or what times itself.
        moved: Bytes that a call must read and write, of which a copy is timed, too; or, of a
            product, its ``operations``.
        least: The least ratio to each peer, and as "share" of a copy's speed; less is red.
        count: Calls in a sample, if that is not the clock's to find.
        extras: What else there is to say of a side, once it was timed.
        alive: Bytes that are taken at once.
        base: Instead of the suite's, MLX's own, whose time is divided by the others'.
        hows: Of the suite's, if not all.
    """

    labels: Mapping[str, object]
    sides: Callable[[], dict]
    moved: int = 0
    operations: bool = False
    least: Mapping[str, float] = field(default_factory=dict)
    count: int | None = None
    extras: Callable[[str], Mapping[str, object]] = lambda side: {}
    alive: int = 0
    base: str | None = None
    hows: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(str(value) for value in self.labels.values() if value != "")


@dataclass(frozen=True)
class Suite:
    """Cases, and how they are timed.

    Attributes:
        about: The text of ``--help``.
        labels: The names of the cases' labels.
        cases: Makes the cases, given the arguments; ``args.tiny`` asks for a few that only try it.
        hows: What is timed of each, of ``_OF_HOW``.
        base: The side that others' times are divided by, or if it is "stock", whose time is
            divided by theirs.
        device: "gpu", where ``--device cpu`` tries the suite; "cpu", with a malloc that keeps freed
            memory; or MLX's "default" one.
        limit: Bytes a second (or operations) that shares are of; by default what a copy of the
            same size moves.
        options: Declares more arguments; with one ``--details`` the table is only printed with it.
        extras: The names of what the cases say besides.
        after: Called with all lines; returns the exit status.
    """

    about: str
    labels: tuple[str, ...]
    cases: Callable[[argparse.Namespace], Iterable[Case]]
    hows: tuple[str, ...] | Callable[[], tuple[str, ...]] = ("kernels",)
    base: str = "ours"
    device: str = "gpu"
    limit: Callable[[Case, Callable[[str], None]], float] | None = None
    options: Callable[[argparse.ArgumentParser], object] = lambda parser: None
    extras: tuple[str, ...] = ()
    rounds: int = timing.ROUNDS
    sample_seconds: float = clocks.HOST_SECONDS
    after: Callable[[Run, list[Line]], int | None] = lambda run, lines: None

    def main(self) -> int:
        """Run it with the arguments of ``python bench NAME``, and return the exit status."""
        parser = argparse.ArgumentParser(
            prog=" ".join(["python bench", *sys.argv[1:2]]),
            description=self.about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add = parser.add_argument
        add("--csv", metavar="FILE", help="write all figures, with device and versions")
        add("--plot", metavar="FILE", help="draw a bar an op: how many times as fast, sorted")
        add("--only", metavar="TEXT", default="", help="cases whose labels have this")
        add(
            "--rounds",
            metavar="N",
            type=int,
            default=self.rounds,
            help="samples of each (%(default)s)",
        )
        add(
            "--peers",
            metavar="NAMES",
            default="mx.fast",
            help=f"beside ours, where a case knows them, of {','.join(peers.NAMES)} (%(default)s)",
        )
        add("--device", choices=("gpu", "cpu"), help="cpu tries a GPU's suites with tiny shapes")
        if self.device == "cpu":
            add("--default-malloc", action="store_true", help="leave malloc as it is")
        self.options(parser)
        _json.add_option(parser)
        args = parser.parse_args(sys.argv[2:])
        args.command, args.figures, args.run = "bench", {}, lambda args: Run(self, args).run()
        try:
            return _json.run(args)
        except (CommandError, DriverError) as error:
            print(error, file=sys.stderr)
            return 2


class Run:
    """One run of a suite.

    Attributes:
        facts: What the figures depend on, in each line of the file.
        console: Where tables are printed.
    """

    def __init__(self, suite: Suite, args: argparse.Namespace) -> None:
        self.suite, self.args = suite, args
        _check(args)
        check_environment()
        if suite.device == "cpu" and not args.default_malloc:
            conditions.restart_keeping_memory()
        device = args.device or {"default": None}.get(suite.device, suite.device)
        if device == "gpu" and not (mx.metal.is_available() or mx.cuda.is_available()):
            raise CommandError("MLX has no GPU here: --device cpu tries it with tiny shapes.")
        args.tiny = suite.device == "gpu" and device == "cpu"
        self._before = mx.default_device()
        if device:
            mx.set_default_device(getattr(mx, device))
        mx.random.seed(0)
        self.console = _output.console()
        if not self.console.is_terminal:
            self.console = _output.console(width=_WIDTH)
        self.facts = conditions.facts()
        if suite.device == "gpu":
            self.facts["driver"] = conditions.driver_version()
        missing: list[str] = []
        args.peers = peers.available(args.peers.split(","), missing.append)
        if missing:
            raise CommandError(f"--peers: {_output.short('; '.join(missing))}")
        self.facts |= peers.versions(args.peers)
        self._limits: dict[object, float] = {}

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False)

    def run(self) -> int:
        try:
            cases = [c for c in self.suite.cases(self.args) if self.args.only in str(c)]
            for case in cases:
                _check_memory(case)
            self.say(", ".join(f"{key} {value}" for key, value in self.facts.items()))
            lines: list[Line] = []
            hows = self.suite.hows
            for how in hows() if callable(hows) else hows:
                lines += self._measured(cases, how)
            status = self.suite.after(self, lines)
            self.say(timing.PAIRING)
            figures = [line.figures() for line in lines]
            self.args.figures |= {"facts": self.facts, "lines": figures}
            if self.args.plot:
                plot(self.args.plot, lines, self.facts["device"])
            return status or 0
        finally:
            mx.set_default_device(self._before)

    def _measured(self, cases: list[Case], how: str) -> list[Line]:
        suite, args = self.suite, self.args
        cases = [case for case in cases if not case.hows or how in case.hows]
        options = dict(rounds=args.rounds, say=self.say, sample_seconds=suite.sample_seconds)
        if args.tiny:
            cases = [dataclasses.replace(case, count=case.count or _TINY) for case in cases]
        measured = clocks.measure(self._tracked(cases), how, **options)
        lines = []
        for case, times in measured:
            found = list(self._lines(case, how, times))
            for line in found:
                self._write(line.values())
            lines += found
        if lines and getattr(args, "details", True):
            self.console.print(result_table(suite, lines, _OF_HOW.get(how, how)))
            self.say_missed(cases, lines)
        return lines

    def _lines(self, case: Case, how: str, times: Mapping[str, clocks.Time]) -> Iterator[Line]:
        name = case.base or self.suite.base
        base, over_side = times[name], bool(case.base) or name == "stock"
        limit = self._limit(case, how)
        if copied := times.get("copy"):
            limit = case.moved / copied.samples.median if case.moved else math.nan
        for side, time in times.items():
            over = alone = None
            if side != name:
                pair = (base, time) if over_side else (time, base)
                over = pair[0].samples.over(pair[1].samples)
                alone = pair[0].alone.over(pair[1].alone) if time.alone else None
            about = (case.moved, limit, case.extras(side))
            yield Line(case.labels, how, side, time, over, alone, *about)

    def _limit(self, case: Case, how: str) -> float:
        """What shares are of; a copy is not timed for what the cache holds."""
        if self.suite.limit:
            return self.suite.limit(case, self.say)
        if how != "kernels" or case.operations or case.moved < COPIED:
            return math.nan
        size = case.moved // 2
        if size not in self._limits:
            self._limits[size] = copy_speed.rate(size, self.say)
        return self._limits[size]

    def _tracked(self, cases: list[Case]) -> Iterator[Case]:
        """The cases, with a progress bar on a terminal, or else a line of each before it."""
        progress = _output.console(stderr=True)
        hidden = not progress.is_terminal
        tracked = track(cases, "measuring", console=progress, disable=hidden)
        for i, case in enumerate(tracked, start=1):
            if hidden and sys.stderr:
                print(f"{i} of {len(cases)}: {case}", file=sys.stderr, flush=True)
            yield case

    def _write(self, values: Mapping[str, object]) -> None:
        """Write a line to the file, if any, as it is measured."""
        if not self.args.csv:
            return
        if not hasattr(self, "_file"):
            columns = [*self.suite.labels, *COLUMNS, *self.suite.extras]
            file = open(self.args.csv, "w", newline="")  # stays open until the process ends
            self._file = CsvFile(file, columns, self.facts)
        self._file.write(values)

    def say_missed(self, cases: list[Case], lines: list[Line]) -> int:
        """How many cases miss a least ratio, if they have any."""
        if not any(case.least for case in cases):
            return 0
        missed = [case for case in cases if any(_misses(case, line) for line in lines)]
        self.say(f"{len(missed)} of {len(cases)} miss their least.")
        return len(missed)


def _misses(case: Case, line: Line) -> bool:
    if line.labels is not case.labels:
        return False
    if line.over is None:
        return line.share < case.least.get("share", 0)
    return line.over.median < case.least.get(line.side, 0)


def _check(args: argparse.Namespace) -> None:
    """Raise if the arguments are invalid, before anything takes time."""
    if args.rounds < timing.ROUNDS:
        raise CommandError(f"--rounds must be at least {timing.ROUNDS}, got {args.rounds}.")
    for name in args.peers.split(","):
        if name not in peers.NAMES:
            raise CommandError(f"--peers: {name!r} is none of {', '.join(peers.NAMES)}.")
    _output.check_file("--csv", args.csv)
    if args.plot:
        try:
            _output.check_image("--plot", args.plot)
        except ImportError:
            raise CommandError("--plot needs a package: type  pip install matplotlib") from None


def _check_memory(case: Case) -> None:
    """Refuse what does not fit into memory, since MLX would crash."""
    if case.alive > (there := machine.memory_bytes()):
        raise CommandError(
            f"{case} takes about {machine.gib(case.alive)} at once, and there are "
            f"{machine.gib(there)}: ask for less."
        )


def result_table(suite: Suite, lines: list[Line], title: str):
    """A row a case: its labels, the time of the base, and the ratio of each other side."""
    base, others = suite.base, list(dict.fromkeys(line.side for line in lines if line.over))
    over = [f"stock / {side}" if base == "stock" else f"{side} / {base}" for side in others]
    alone = any(line.alone for line in lines)
    shares = any(not math.isnan(line.share) for line in lines)
    headings = [f"{base}, µs", *["of the limit"] * shares, *over]
    headings += [f"alone: {each}" for each in over] * alone
    found = table(f"{title}: median (interval)", suite.labels, headings, lines=False)
    for labels, of in by_case(lines):
        first = next(line for line in of.values() if line.over is None)
        cells = [f"{first.time.samples.spread('.4g', 1e6)}"]
        cells += ["" if math.isnan(first.share) else f"{first.share:.1%}"] * shares
        for ratio in ("over", "alone")[: 1 + alone]:
            ratios = [getattr(of[side], ratio, None) if side in of else None for side in others]
            cells += [each.text(3, interval=True) if each else "" for each in ratios]
        found.add_row(*map(str, labels.values()), *cells)
    return found


def by_case(lines: Iterable[Line]) -> Iterator[tuple[Mapping[str, object], dict[str, Line]]]:
    """The lines of each case, by side."""
    found: dict[int, tuple] = {}
    for line in lines:
        found.setdefault(id(line.labels), (line.labels, {}))[1][line.side] = line
    yield from found.values()


def of_ops(lines: Iterable[Line]) -> dict[str, timing.Ratio]:
    """How many times as fast each op is: of each round the geometric mean over its cases."""
    by_op: dict[str, list[timing.Ratio]] = {}
    for line in lines:
        if line.over and line.side != "copy":
            name = f"{next(iter(line.labels.values()))}, {line.side}"
            by_op.setdefault(name, []).append(line.over)
    return {
        name: timing.Ratio(
            tuple(map(statistics.geometric_mean, zip(*(of.values for of in ratios), strict=True))),
            statistics.geometric_mean(of.of_medians for of in ratios),
        )
        for name, ratios in by_op.items()
    }


def plot(path: str, lines: list[Line], title: str) -> None:
    """Draw :func:`of_ops`, sorted, with intervals.

    Raises:
        CommandError: If the file cannot be written.
    """
    from matplotlib.figure import Figure

    bars = sorted(of_ops(lines).items(), key=lambda each: each[1].median)
    figure = Figure(figsize=(9, 1.2 + 0.28 * len(bars)), dpi=128, layout="constrained")
    axes = figure.subplots()
    figures = [ratio.figures() for _, ratio in bars]
    errors = [[m - lower for m, lower, _ in figures], [upper - m for m, _, upper in figures]]
    colors = ["tab:blue" if ratio.differs else "0.7" for _, ratio in bars]
    names, medians = [name for name, _ in bars], [m for m, *_ in figures]
    # From 1 on, as ratios have no zero.
    axes.barh(names, [m - 1 for m in medians], left=1, xerr=errors, color=colors, capsize=3)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(title=title, xlabel=f"times as fast (gray: {timing.SAME})", xscale="log")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise CommandError(f"--plot {path} cannot be written: {_output.line(error)}") from None
