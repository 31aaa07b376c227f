"""The rates as a picture: a panel a workload, bars on a logarithmic axis. Plain SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bars import ASKED, ASKED_OF_BOUND
from contenders import Contender, Kind
from rates import ratio
from report import ORDER
from results import Results
from workloads import WORKLOADS, Workload

COLUMNS = 3
PANEL_W, LABEL_W, PLOT_W = 430, 150, 232
BAR_H, TITLE_H, AXIS_H, GAP = 15, 42, 34, 18
HEAD_H, FOOT_H = 74, 56
NUMBER_W = 34
MARGIN = 24
INK, FAINT, GRID = "#1f2933", "#66707a", "#e4e7eb"
ASKED_COLOUR = "#d6336c"
COLOURS: dict[Kind, tuple[str, str]] = {
    "own": ("#0c8599", "antifreeze"),
    "base": ("#495057", "torch"),
    "torch": ("#495057", "torch"),
    "inline": ("#adb5bd", "no workers"),
    "process": ("#e8903f", "peers with processes"),
    "thread": ("#8d6be0", "peers with threads"),
    "bound": ("#ced4da", "bound: fetch and collate, hand over nothing"),
}


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic axis of ratios, the same for all panels."""

    least: float
    most: float

    def at(self, value: float) -> float:
        """Return how many pixels to the right of the axis' beginning a ratio is."""
        value = min(max(value, self.least), self.most)
        return PLOT_W * math.log(value / self.least) / math.log(self.most / self.least)

    @property
    def ticks(self) -> list[float]:
        """Return the powers of ten on the axis."""
        powers = range(math.ceil(math.log10(self.least)), math.floor(math.log10(self.most)) + 1)
        return [10.0**power for power in powers]


def draw(results: Results) -> str:
    """Draw all workloads of a run."""
    shown = [each for each in WORKLOADS if each.name in results.rates]
    found = {each.name: _ratios(results, each.name) for each in shown}
    values = [value for rows in found.values() for _, value in rows]
    # Room for a number on either side of the longest bars.
    axis = Axis(0.4 * min([*values, 0.5]), 1.25 * max([*values, 2.0]))
    most = max((len(rows) for rows in found.values()), default=0)
    panel_h = TITLE_H + most * BAR_H + AXIS_H
    columns = min(COLUMNS, max(len(shown), 1))
    width = 2 * MARGIN + columns * PANEL_W + (columns - 1) * GAP
    rows = math.ceil(len(shown) / columns)
    height = HEAD_H + rows * (panel_h + GAP) + FOOT_H
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(MARGIN, 36, "Samples a second, as a ratio to torch's loader", 20, weight="600"),
        _text(MARGIN, 58, _subtitle(results), 12.5, FAINT),
    ]
    for number, workload in enumerate(shown):
        x = MARGIN + number % columns * (PANEL_W + GAP)
        y = HEAD_H + number // columns * (panel_h + GAP)
        parts.append(f'<g transform="translate({x},{y})">')
        parts += _panel(workload, found[workload.name], axis, most)
        parts.append("</g>")
    parts += _legend(MARGIN, height - FOOT_H + 18)
    return "\n".join([*parts, "</svg>", ""])


def _subtitle(results: Results) -> str:
    facts = results.machine
    return (
        "2 workers or threads each; base: torch with persistent workers; second epoch and later. "
        f"{facts.get('cpu', '')}, torch {facts.get('torch', '').partition(',')[0]}"
    )


def _ratios(results: Results, workload: str) -> list[tuple[Contender, float]]:
    base = results.figures(workload, "torch")
    each_ratio = [(each, ratio(results.figures(workload, each.key), base)) for each in ORDER]
    return [(each, value) for each, value in each_ratio if value]


def _panel(
    workload: Workload, rows: list[tuple[Contender, float]], axis: Axis, most: int
) -> list[str]:
    bottom = TITLE_H + most * BAR_H
    parts = [
        _text(0, 15, workload.name, 14, weight="600"),
        _text(0, 31, workload.what, 11, FAINT),
    ]
    for tick in axis.ticks:
        x = LABEL_W + axis.at(tick)
        heavy = tick == 1
        colour, width = (INK, 1.2) if heavy else (GRID, 1)
        parts.append(_line(x, TITLE_H - 4, x, bottom + 3, colour, width))
        parts.append(_text(x, bottom + 17, f"{tick:g}x", 10, FAINT, "middle"))
    asked = ASKED.get(workload.name)
    bound = {each.key: value for each, value in rows}.get("bound")
    if asked is None and bound:
        asked = ASKED_OF_BOUND[workload.name] * bound
    mark = LABEL_W + axis.at(asked) if asked else None
    for number, (contender, value) in enumerate(rows):
        ours = contender.key == "antifreeze"
        parts += _bar(TITLE_H + number * BAR_H, contender, value, axis, mark if ours else None)
    if mark:
        parts.append(_line(mark, TITLE_H - 3, mark, TITLE_H + BAR_H, ASKED_COLOUR, 2))
    return parts


def _bar(y: float, contender: Contender, value: float, axis: Axis, mark: float | None) -> list[str]:
    one, end = LABEL_W + axis.at(1), LABEL_W + axis.at(value)
    left, width = min(one, end), max(abs(end - one), 1.0)
    colour = COLOURS[contender.kind][0]
    ours = contender.key == "antifreeze"
    weight = "600" if ours else "400"
    # The number stands beyond the bar's end, on the side to which the bar points.
    outside, anchor = (end + 4, "start") if value >= 1 else (end - 4, "end")
    if mark and value >= 1 and end <= mark < end + NUMBER_W:
        outside = mark + 4
    middle = y + BAR_H - 4
    return [
        _text(LABEL_W - 8, middle, contender.name, 10.5, INK, "end", weight),
        f'<rect x="{left:.1f}" y="{y + 2}" width="{width:.1f}" height="{BAR_H - 4}" rx="1.5" '
        f'fill="{colour}"/>',
        _text(
            outside,
            middle,
            f"{value:.3g}" if value < 100 else f"{value:.0f}",
            10,
            INK,
            anchor,
            weight,
        ),
    ]


def _legend(x: float, y: float) -> list[str]:
    parts = []
    for colour, label in dict.fromkeys(COLOURS.values()):
        parts.append(f'<rect x="{x:.0f}" y="{y - 9}" width="11" height="11" fill="{colour}"/>')
        parts.append(_text(x + 16, y, label, 12))
        x += 40 + 6.4 * len(label)
    parts.append(_line(x + 5, y - 10, x + 5, y + 3, ASKED_COLOUR, 2))
    parts.append(_text(x + 14, y, "asked of antifreeze, persistent", 12))
    return parts


def _text(
    x: float,
    y: float,
    words: str,
    size: float,
    colour: str = INK,
    anchor: str = "start",
    weight: str = "400",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{width}"/>'
    )
