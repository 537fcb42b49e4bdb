"""Tables of what the bench measured, for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from rich.markup import escape
from rich.table import Table

from mlx_norms._measure import timing
from mlx_norms._measure.tables import table

from .measuring import BASELINES
from .results import Line


def red_if(missed: bool, text: str) -> str:
    """The text, in red if it misses a target."""
    return f"[red]{text}[/red]" if missed else text


def spread(samples: timing.Samples, factor: float = 1.0) -> str:
    """The quartiles."""
    return "-".join(number(quartile * factor) for quartile in samples.interval)


def number(value: float) -> str:
    """A number with three digits, or with all digits before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def tables(lines: Iterable[Line], title: str) -> Iterator[Table]:
    """A table of times and rates per op and dtype: bytes per second, or operations for a matmul.

    The last columns say how many times as fast as the baseline a provider is, and a rung of a
    ladder as the rung before it. What each rung fixes is in a table of its own.
    """
    fixes: dict[str, str] = {}
    for (op, dtype), group in itertools.groupby(lines, key=lambda line: (line.op, line.dtype)):
        group = list(group)
        yield _table(group, f"{title}: {op}, {dtype}")
        fixes |= {f"{op}, {line.provider}": line.fixes for line in group if line.fixes}
    if fixes:
        found = table("What each rung fixes", ("", ""), lines=False)
        for name, text in fixes.items():
            found.add_row(escape(name), escape(text))
        found.show_header = False
        yield found


def over_ours(lines: Iterable[Line]) -> Iterator[tuple[Line, timing.Ratio]]:
    """The line of each peer, and the ratio of its time to ours."""
    for _, group in itertools.groupby(lines, key=lambda line: (line.op, line.dtype, *_shape(line))):
        by_name = {line.provider: line for line in group}
        if ours := by_name.pop("ours", None):
            for line in by_name.values():
                yield line, line.seconds.over(ours.seconds)


def summary(lines: Iterable[Line], title: str) -> Table:
    """A row per op and shape of the times of peers over ours, by dtype."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for line, ratio in over_ours(lines):
        column = f"{line.provider} / ours,\n{line.dtype}"
        row = cells.setdefault((line.op, "x".join(map(str, _shape(line)))), {})
        row[column] = ratio.text(2, interval=True)
    columns = dict.fromkeys(column for row in cells.values() for column in row)
    found = table(f"{title}: times of peers over ours", ("op", "shape"), columns, lines=False)
    for about, row in cells.items():
        found.add_row(*about, *(row.get(column, "") for column in columns))
    return found


def summary_figures(lines: Iterable[Line]) -> list[dict[str, object]]:
    """The same figures for ``--json``."""
    names = ("op", "dtype", "rows", "length")
    return [
        {name: getattr(line, name) for name in names} | {"peer": line.provider, "over_ours": ratio}
        for line, ratio in over_ours(lines)
    ]


def _table(lines: list[Line], title: str) -> Table:
    multiplies, ladder = lines[0].multiplies, any(line.fixes for line in lines)
    headings = ["µs", "quartiles"]
    headings += ["GFLOP/s", "of\npeak"] if multiplies else ["GB/s", "of\ncopy"]
    headings += ["B/\nelement", "x\nMLX" if multiplies else "x\nmx.fast"]
    headings += ["x\nbefore"] * ladder
    found = table(title, ("shape", "provider"), headings, lines=False)
    for _, group in itertools.groupby(_with_before(lines), key=lambda pair: _shape(pair[0])):
        for line, faster in group:
            texts = _texts(line)
            if ladder:
                texts.append(faster.text(2) if faster else "")
            found.add_row(*map(escape, texts))
        found.add_section()
    return found


def figures(lines: Iterable[Line]) -> list[dict[str, object]]:
    """The same figures for ``--json``."""
    return [line.figures() | {"over_before": faster} for line, faster in _with_before(lines)]


def _with_before(lines: Iterable[Line]) -> Iterator[tuple[Line, timing.Ratio | None]]:
    """Each line and, for a rung, the ratio of the previous rung's time to its own."""
    for _, group in itertools.groupby(lines, key=lambda line: (line.op, line.dtype, *_shape(line))):
        rung = None
        for line in group:
            yield line, rung.seconds.over(line.seconds) if rung and line.fixes else None
            rung = line if line.fixes else rung


def _shape(line: Line) -> tuple[int, int]:
    return line.rows, line.length


def _texts(line: Line) -> list[str]:
    if line.multiplies:
        rate = [number(line.flop_rate / 1e9)]
        rate += [f"{line.flop_rate / line.peak:.1%}" if line.peak else ""]
    else:
        rate = [number(line.rate / 1e9)]
        rate += ["-" if line.of_copy is None else f"{line.of_copy:.1%}"]
    return [
        "x".join(map(str, _shape(line))),
        line.provider,
        number(line.seconds.median * 1e6),
        spread(line.seconds, 1e6),
        *rate,
        f"{line.bytes_an_element:.3g}",
        line.baseline.text(2) if line.baseline and line.provider not in BASELINES else "",
    ]
