"""The page for people, of nothing but what the JSON has."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .items import FAILED, NOT_RUN, PASSED, TIMED_OUT
from .running import WEDGED

_LONGEST = 700  # characters of a reason
_WEDGED = (
    'Some kernels failed with "code=2". That is known of virtual machines, whose compiler then '
    "serves no process any more: on such a machine it says nothing of the kernel."
)
_BARS = (
    "Times are medians of five rounds, in µs; in parentheses the least and the greatest of the "
    "five, which are no interval: they say how far rounds were apart, not where the truth is."
)


def summary(found: dict) -> Iterator[str]:
    """The table of steps, as lines of text."""
    yield ""
    for step in found["steps"]:
        seconds = f"{step['seconds']:6.1f} of {step['limit']:3} s"
        yield f"{step['step']:12} {seconds}  {step['status']:9}  {_counts(step)}"


def page(found: dict) -> str:
    return "\n".join(_lines(found)) + "\n"


def _lines(found: dict) -> Iterator[str]:
    yield "# A first Mac"
    yield ""
    if found["simulated"]:
        times = f", {found['stretch']} times the limits" * (found["stretch"] > 1)
        yield f"**On the simulated Metal device, tiny shapes{times}: these are no times of a Mac.**"
        yield ""
    yield (
        f"Send `first_mac.json`, which has all of this and more, whatever failed: {found['send']}, "
        "and drop the file into it. It has no file of yours, and no name: your home folder is `~`."
    )
    if not found["finished"]:
        yield ""
        yield "**The run was interrupted, or is not over: steps are missing.** Send it anyway."
    yield ""
    yield "| step | seconds | of at most | status | what |"
    yield "| --- | --- | --- | --- | --- |"
    for step in found["steps"]:
        yield (
            f"| {step['step']} | {step['seconds']} | {step['limit']} | {_bold(step['status'])} | "
            f"{_counts(step)} |"
        )
    yield ""
    yield f"Started {found['started']}; all limits together are {found['limit']} s."
    if any(WEDGED in str(item.get("reason")) for _, _, item in _items(found)):
        yield ""
        yield _WEDGED
    for section in (_what_failed, _not_run, _facts, _compiled, _choices, _occupancy, _bench):
        yield from section(found)
    yield from _models(found)


def _items(found: dict, *names: str) -> Iterator[tuple[dict, dict, dict]]:
    for step in found["steps"]:
        if not names or step["step"] in names:
            for part in step["parts"]:
                for item in part["items"]:
                    yield step, part, item


def _counts(step: dict) -> str:
    statuses = [item["status"] for part in step["parts"] for item in part["items"]]
    statuses += [part["status"] for part in step["parts"] if not part["items"]]
    counted = [(status, statuses.count(status)) for status in (PASSED, FAILED, TIMED_OUT, NOT_RUN)]
    missing = sum(len(part.get("not_reached", ())) for part in step["parts"])
    said = [f"{count} {status}" for status, count in counted if count]
    return ", ".join(said + [f"{missing} not reached"] * bool(missing))


def _bold(status: str) -> str:
    return f"**{status}**" if status in (FAILED, TIMED_OUT) else status


def _cell(text: object) -> str:
    text = " ".join(str(text).split())
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    return text.replace("|", "\\|").replace("<", "&lt;")


def _what_failed(found: dict) -> Iterator[str]:
    rows = []
    for step in found["steps"]:
        if step.get("reason"):
            rows.append((step["step"], "", step["status"], step["reason"]))
        for part in step["parts"]:
            bad = [item for item in part["items"] if item["status"] in (FAILED, TIMED_OUT)]
            where = (
                f"{step['step']}, {part['part']}" * (part["part"] != step["step"]) or step["step"]
            )
            rows += [(where, item["item"], item["status"], item.get("reason", "")) for item in bad]
            if part["status"] in (FAILED, TIMED_OUT) and part.get("reason"):
                missing = ", ".join(part.get("not_reached", ()))
                reason = f"{part['reason']}{'; not reached: ' * bool(missing)}{missing}"
                said = "" if bad else f" It said: {part.get('said', '')[-400:]}"
                rows.append((where, "", part["status"], reason + said))
    if rows:
        yield from (
            "",
            "## What failed",
            "",
            "| where | what | status | why |",
            "| --- | --- | --- | --- |",
        )
        for row in rows:
            yield "| " + " | ".join(map(_cell, row)) + " |"


def _not_run(found: dict) -> Iterator[str]:
    """By reason, which many items share."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for step in found["steps"]:
        for part in step["parts"]:
            whole = [part | {"item": part["part"]}] if not part["items"] else []
            for item in part["items"] + whole:
                if item["status"] == NOT_RUN:
                    key = (item.get("reason") or "", item.get("help") or "")
                    reasons.setdefault(key, []).append(f"{step['step']}: {item['item']}")
    if reasons:
        yield from (
            "",
            "## What was not run",
            "",
            "| what | why | what helps |",
            "| --- | --- | --- |",
        )
        for (reason, help), names in reasons.items():
            listed = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
            yield f"| {_cell(listed)} | {_cell(reason)} | {f'`{_cell(help)}`' if help else ''} |"


def _facts(found: dict) -> Iterator[str]:
    rows = [item for _, _, item in _items(found, "facts") if "value" in item]
    rows += [item for _, _, item in _items(found, "texts") if "value" in item]
    if rows:
        yield from ("", "## The machine", "", "| what | it is |", "| --- | --- |")
        for item in rows:
            value = item["value"]
            if isinstance(value, dict):
                value = ", ".join(f"{key} {of}" for key, of in value.items())
            if isinstance(value, list):
                value = ", ".join(map(str, value))
            yield f"| {item['item']} | {_cell(value)} |"


def _compiled(found: dict) -> Iterator[str]:
    """Libraries down, versions and ways across, with seconds."""
    cells: dict[str, dict[str, str]] = {}
    for step, part, item in _items(found, "texts", "metallibs"):
        for library in item.get("libraries", ()):
            good = f"{library['seconds']:.2f} s, {library['form']}"
            cell = good if library["usable"] else f"**{FAILED}**"
            cells.setdefault(library["name"], {})[part["part"]] = cell
        if "libraries" not in item and "value" not in item and ", " in item["item"]:
            name, version = item["item"].rsplit(", ", 1)
            column = f"Xcode, {version}" if step["step"] == "metallibs" else f"run time, {version}"
            good = f"{item.get('seconds', 0):.2f} s"
            cell = good if item["status"] == PASSED else _bold(item["status"])
            cells.setdefault(name, {})[column] = cell
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    if columns:
        yield from ("", "## Texts by the compilers", "")
        yield f"| library | {' | '.join(columns)} |"
        yield "| --- " * (1 + len(columns)) + "|"
        for name, row in cells.items():
            yield f"| {name} | {' | '.join(row.get(column, '') for column in columns)} |"


def _bar(values: list[float]) -> str:
    least, median, greatest = (1e6 * value for value in values)
    if math.isnan(median):
        return "no time"
    if least == greatest:
        return f"{median:.4g}"
    return f"{median:.4g} ({least:.4g} to {greatest:.4g})"


def _choices(found: dict) -> Iterator[str]:
    """Both sides of each row, those of several processes together."""
    rows: dict[tuple[str, str], dict] = {}
    others = []
    for _, _, item in _items(found, "choices"):
        if "choice" not in item:
            others.append(item)
            continue
        for how in ("many", "one", "first"):
            if how in item:
                row = rows.setdefault((item.get("row", item["item"]), how), {"sides": {}} | item)
                row["sides"] |= item[how]
                row["fell_back"] = row.get("fell_back") or item.get("fell_back", "")
    if not rows and not others:
        return
    yield from ("", "## What it decides", "")
    yield "The choices of `csrc/gpu/choices.h`, and what has no switch, with their other sides."
    yield _BARS + ' "many" is a call among many in an evaluation, "one" alone in it.'
    yield ""
    yield "| choice | call | how | sides | today | the least, beside today's | MLX's for ours |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for (name, how), row in rows.items():
        sides = row["sides"]
        today = row.get("today") or next((side for side in sides if "today" in side), "")
        text = "; ".join(f"{side}: {_bar(times)}" for side, times in sides.items())
        least = _least(sides, today) if len(sides) > 1 else "one side alone"
        yield (
            f"| {row['choice']} | {_cell(name)} | {how} | {_cell(text)} | {_cell(today)} | "
            f"{_cell(least)} | {_cell(row.get('fell_back', ''))} |"
        )
    for item in others:
        reason = item.get("reason", "")
        yield f"| {_cell(item['item'])} | | | {_bold(item['status'])}: {_cell(reason)} | | | |"


def _least(sides: dict[str, list[float]], today: str) -> str:
    """The side of the least median, and whether its bar ends where today's has not begun."""
    least = min(sides, key=lambda side: sides[side][1])
    if least == today or today not in sides:
        return least
    apart = sides[least][2] < sides[today][0]
    return f"{least}, {'apart' if apart else 'but the bars overlap'}"


def _occupancy(found: dict) -> Iterator[str]:
    """The limits of pipelines, by kernel, beside the threadgroups of their launches."""
    kernels: dict[str, list[dict]] = {}
    for _, _, item in _items(found, "selftest"):
        for pipeline in item.get("pipelines", ()):
            kernels.setdefault(pipeline["kernel"], []).append(pipeline)
    if not kernels:
        return
    yield from ("", "## Pipelines: their limits against their launches", "")
    yield (
        "Threads of a threadgroup. A limit below 1024 says that registers are short; one below the "
        "launch's is refused, and MLX's kernels run."
    )
    yield ""
    yield "| kernel | pipelines | limit | launch | threadgroup memory, B | |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, of in sorted(kernels.items()):
        spans = [_span(pipeline[key] for pipeline in of) for key in ("most", "group", "memory")]
        low = [pipeline for pipeline in of if pipeline["most"] < pipeline["group"]]
        note = f"**{len(low)} below their launch**" if low else ""
        yield f"| {name} | {len(of)} | {' | '.join(spans)} | {note} |"


def _span(values) -> str:
    values = sorted(set(values))
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _bench(found: dict) -> Iterator[str]:
    rows = [item for _, _, item in _items(found, "bench")]
    if not rows:
        return
    yield from ("", "## Ours beside MLX's", "", _BARS, "")
    yield "| call | how | ours | MLX's | MLX's over ours | MLX computed of ours |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for item in rows:
        if item["status"] != PASSED:
            yield f"| {_cell(item['item'])} | | {_bold(item['status'])} | | | |"
        for how in ("many", "one"):
            if how in item:
                ours, stock = item[how]["ours"], item[how]["stock"]
                ratio = f"{stock[1] / ours[1]:.2f}" if ours[1] else ""
                back = _cell(item.get("fell_back", ""))
                cells = (_cell(item["item"]), how, _bar(ours), _bar(stock), ratio, back)
                yield f"| {' | '.join(cells)} |"
        for how in ("first", "checked"):
            if how in item:
                both = [f"{item[how][side]:.3f} s" for side in ("ours", "stock")]
                yield f"| {_cell(item['item'])} | {how} call | {' | '.join(both)} | | |"


def _models(found: dict) -> Iterator[str]:
    rows = [item for _, _, item in _items(found, "models") if "verdict" in item]
    if rows:
        yield from ("", "## Models", "")
        for item in rows:
            for line in item["verdict"]:
                yield f"- {item.get('model', item['item'])}: {line}"
