"""Draws the chart: how many times as good as its best peer Penstock is, a bar a line.

    python -m bench.chart FILE.png < bars.json

Bars are those of ``report.bars``. Runs in an environment that has matplotlib alone, so it imports nothing of
ours. The ground is opaque: the picture is read on white pages and on dark ones.
"""

from __future__ import annotations

import io
import json
import math
import sys
from typing import Any, Final

import matplotlib as mpl  # type: ignore[import-not-found]
from matplotlib.figure import Figure  # type: ignore[import-not-found]
from PIL import Image  # type: ignore[import-not-found]

_COLOURS: Final = {
    "server": "#2f6f9f",
    "client": "#3f8f6b",
    "streams": "#8a6fb0",
    "channels": "#b0803f",
    "transactions": "#b85c5c",
    "spark": "#6b7683",
}
_TITLE: Final = "Penstock beside the best peer of each line; right of 1× it is better; stroke: the aim"
_GROUND: Final = "#ffffff"
_INK: Final = "#20262d"
_FAINT: Final = "#c9d0d8"
_INCHES_A_BAR: Final = 0.235
_WIDTH_INCHES: Final = 9.0
_DOTS_AN_INCH: Final = 110
_SHADES: Final = 48


def main(bars: list[dict[str, Any]], path: str) -> None:
    mpl.rcParams.update({"font.size": 8.5, "text.color": _INK, "axes.labelcolor": _INK, "ytick.color": _INK})
    figure = Figure(figsize=(_WIDTH_INCHES, 1.3 + _INCHES_A_BAR * len(bars)), layout="constrained")
    axes = figure.subplots()
    places = range(len(bars))
    axes.barh(
        places,
        [bar["times"] - 1 for bar in bars],
        left=1,
        height=0.68,
        color=[_COLOURS[b["part"]] for b in bars],
    )
    for place, bar in zip(places, bars, strict=True):
        _label(axes, place, bar)
    _frame(axes, bars)
    figure.suptitle(_TITLE, fontsize=9.5, color=_INK, x=0.01, ha="left")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=_DOTS_AN_INCH, facecolor=_GROUND)
    # Few colours make a small file.
    Image.open(drawn).convert("RGB").quantize(_SHADES).save(path, optimize=True)


def _label(axes: Any, place: int, bar: dict[str, Any]) -> None:
    """The figure and the peer, at the outer end of the bar; the aim as a stroke."""
    times = bar["times"]
    words = f"{times:.2f}× {bar['peer']}" if times < 10 else f"{times:.0f}× {bar['peer']}"
    aim = bar["aim"] or 0
    end = max(times, 1, aim if aim < times * 2 else 0)
    axes.annotate(words, (end, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7.5)
    if aim:
        axes.plot([aim] * 2, [place - 0.45, place + 0.45], color=_INK, linewidth=1.4)


def _frame(axes: Any, bars: list[dict[str, Any]]) -> None:
    axes.set_facecolor(_GROUND)
    axes.set_xscale("log", base=2)
    values = [value for bar in bars for value in (bar["times"], bar["aim"]) if value]
    low, high = math.floor(math.log2(min([*values, 0.5]))), math.ceil(math.log2(max([*values, 2])))
    axes.set_xlim(2.0**low, 2.0 ** (high + 1.6))  # words stand to the right of the longest bar
    ticks = [2.0**power for power in range(low, high + 1)]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.set_yticks(range(len(bars)), [f"{bar['part']}: {bar['label']}" for bar in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.axvline(1, color=_INK, linewidth=0.8)
    axes.grid(axis="x", color=_FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


if __name__ == "__main__":
    main(json.load(sys.stdin), sys.argv[1])
