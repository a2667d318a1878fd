"""Results as a page (docs/benchmarks.md) and its chart (docs/images/benchmarks.png).

    write_docs(results, cache)

Rules: a page says the machine, all versions and the date, and what is missing and why; a figure stands
with its spread, a comparison with its aim. The chart has the lines that have a peer. It is drawn in an
environment of its own (``chart.py``), since nothing else needs a drawing library; without one the page has
no new picture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from bench.environments import NotMeasuredError, python_with, run_script
from bench.plan import PARTS, SECTIONS, Section
from bench.results import OURS, Line, Measurement, Results
from bench.tables import Table, figure

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "benchmarks.md"
CHART: Final = ROOT / "docs" / "images" / "benchmarks.png"

_DRAWING: Final = ("matplotlib==3.11.2",)
_COLUMNS: Final = ("what", "contender", "median", "±", "Penstock is", "aim", "verdict")
_HEAD: Final = """\
# Benchmarks

`make bench WRITE=1` writes this page: others and Penstock in the same run, on the same machine, in
interleaved rounds, every peer in an environment of its own. [Performance](performance.md) says where the time
goes.
"""
_HOW_TO_READ: Final = """\
*Median* is that of the rounds, *±* half the distance between the least and the most of them. *Penstock is* so
many times as good as the contender of that row: as fast, or as small. An aim without × is a figure that
Penstock shall reach by itself. A limit is what is not expected to be passed, such as a loop that does nothing
else.
"""
_PICTURE: Final = """\
![Bars: how many times as good as the best peer Penstock is, line by line](images/benchmarks.png)

The bars stand for the lines below that have a peer: Penstock beside the best of them, on a scale by powers.
"""


def write_docs(results: Results, cache: Path) -> None:
    """Both of them."""
    try:
        draw(results, CHART, cache)
    except NotMeasuredError as error:
        print(f"The chart is not drawn: {error}", file=sys.stderr)
    PAGE.write_text(page(results, has_chart=CHART.exists()))
    print(f"Written: {PAGE.relative_to(ROOT)}, {CHART.relative_to(ROOT)}", file=sys.stderr)


# -------------------------------------------------------------------------- page


def page(results: Results, *, has_chart: bool = True) -> str:
    pieces = [_HEAD, _circumstances(results), _judgement(results)]
    if has_chart:
        pieces.append(_PICTURE)
    pieces.append(_HOW_TO_READ)
    known = {section.key: section for section in SECTIONS}
    present = [known[key] for key in known if key in results.sections()]
    for part, heading in PARTS.items():
        mine = [section for section in present if section.part == part]
        if mine:
            pieces.append(f"## {heading}\n")
            pieces.extend(_section(results, section) for section in mine)
    return "\n\n".join(piece.strip() for piece in pieces) + "\n"


def _circumstances(results: Results) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in results.versions.items())
    took = sum(results.took_s.values()) / 60
    words = f"*{results.machine}. Measured on {results.began[:10]}, in {took:.0f} minutes. {versions}.*\n"
    if results.scale != 1:
        words += f"\n**Shortened to {results.scale:g} of its size: a trial, whose figures say little.**\n"
    return words


def _judgement(results: Results) -> str:
    judged = [(line, one, line.is_met(one)) for line in _all_lines(results) for one in line.measurements]
    met = sum(is_met is True for *_, is_met in judged)
    missed = [(line, one) for line, one, is_met in judged if is_met is False]
    words = f"Aims met: {met} of {met + len(missed)}."
    if missed:
        words += " Missed:\n\n" + "\n".join(f"- {_shortfall(line, one)}" for line, one in missed)
    return words + "\n"


def _shortfall(line: Line, one: Measurement) -> str:
    if one.role == "ours":
        who = line.name if one.contender == OURS else f"{line.name}, {one.contender}"
        return f"{one.section}, {who}: {figure(one.median)} {line.unit}, the aim is {_aim(one)}"
    return f"{one.section}, {line.name}: {_times(line, one)} {one.contender}, the aim is {_aim(one)}"


def _all_lines(results: Results) -> Iterator[Line]:
    for section in results.sections():
        yield from results.lines(section)


def _section(results: Results, section: Section) -> str:
    words = f"### {section.about}\n\n"
    text = section_table(results, section.key)
    words += f"{text}\n\n" if text else ""
    notes = [one.text for one in results.notes if one.section == section.key]
    return words + "".join(f"{note}\n\n" for note in dict.fromkeys(notes))


def section_table(results: Results, section: str) -> str:
    """Empty if there are no figures; columns that nobody fills are left out."""
    lines = results.lines(section)
    rows = [_row(line, place, one) for line in lines for place, one in enumerate(line.measurements)]
    if not rows:
        return ""
    filled = [place for place in range(len(_COLUMNS)) if any(row[place] for row in rows)]
    table = Table("", tuple(_COLUMNS[place] for place in filled))
    for row in rows:
        table.row(*(row[place] for place in filled))
    return table.text(names=2)


def _row(line: Line, place: int, one: Measurement) -> tuple[str, ...]:
    return (
        f"{line.name} ({line.unit})" if place == 0 else "",
        f"{one.contender} (limit)" if one.role == "limit" else one.contender,
        figure(one.median),
        f"{one.spread:.0%}" if len(one.rounds) > 1 else "",
        _times(line, one),
        _aim(one),
        _verdict(line.is_met(one)),
    )


def _times(line: Line, one: Measurement) -> str:
    times = line.times(one)
    return "" if times is None else f"{figure(times)}×"


def _aim(one: Measurement) -> str:
    if one.aim is None:
        return ""
    if one.role == "ours":
        aim = f"{one.aim:,.0f}" if one.aim == int(one.aim) else figure(one.aim)
        return f"{'≥' if one.better == 'higher' else '≤'} {aim}"
    return f"≥ {one.aim:g}×"


def _verdict(is_met: bool | None) -> str:
    return "" if is_met is None else "met" if is_met else "missed"


# ------------------------------------------------------------------------- chart


class Bar(msgspec.Struct, frozen=True):
    """What ``chart.py`` is told of one line."""

    part: str
    label: str
    peer: str
    times: float
    aim: float | None


def bars(results: Results) -> list[Bar]:
    found = []
    for section in SECTIONS:
        for line in results.lines(section.key):
            peer = line.best_peer()
            if peer is not None and (times := line.times(peer)):
                found.append(Bar(section.part, line.name, peer.contender, times, peer.aim))
    return found


def draw(results: Results, path: Path, cache: Path) -> None:
    found = bars(results)
    if not found:
        raise NotMeasuredError("no line has a peer")
    python = python_with("chart", _DRAWING, cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    run_script(python, "bench.chart", str(path), told=msgspec.json.encode(found).decode())
