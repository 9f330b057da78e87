"""Charts as a line of block characters, and as self-contained SVG with a text version."""

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from markupsafe import Markup

from migrator.core.units import DAY_S, GIB, HOUR_S, KIB, MIB, MINUTE_S, PIB, TIB, format_size
from migrator.render.document import BarChart, BarLine, Chart

_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 60

_WIDTH, _HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 118, 50, 30, 46
"""Margins: they fit the longest label of the axis, and half of the longest time, in the larger font for phones."""

_TICKS = 6
"""The most intervals on the time axis whose labels fit."""

_LEGEND_X, _LEGEND_Y = 190, 10
_CHARACTER = 9.0
"""The approximate width of a character in the font for phones."""

_BARS_LEFT, _BARS_RIGHT = 170, 190
_BAR, _GAP, _HEAD = 16, 4, 24
_SHADES = (1.0, 0.55, 0.3, 0.15)
"""Shades of the bars of a group, so that they also differ on paper and for colour-blind readers."""

_TIME_STEPS_S = (
    1,
    5,
    15,
    MINUTE_S,
    5 * MINUTE_S,
    15 * MINUTE_S,
    HOUR_S,
    3 * HOUR_S,
    6 * HOUR_S,
    12 * HOUR_S,
    DAY_S,
    2 * DAY_S,
    7 * DAY_S,
    14 * DAY_S,
    28 * DAY_S,
    91 * DAY_S,
    365 * DAY_S,
)


def sparkline(values: Sequence[float], width: int = _SPARK_WIDTH) -> str:
    """Values as block characters, scaled from 0 to the highest one. Values share a character if there are more than `width`."""
    if not values:
        return ""
    count = min(len(values), width)
    edges = [len(values) * index // count for index in range(count + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in pairwise(edges)]
    top = max(means)
    if top <= 0:
        return _BLOCKS[0] * count
    return "".join(_BLOCKS[round(max(mean, 0.0) / top * (len(_BLOCKS) - 1))] for mean in means)


def svg(chart: Chart, name: str) -> Markup:
    """The chart as an SVG element; `name` makes its ids unique in the page. Colours come from the page's style."""
    lines = [chart.points, *(series.points for series in chart.series)]
    times = [at_s for points in lines for at_s, _ in points] + [at_s for at_s, _, _ in chart.band]
    from_s, to_s = min(times) - (chart.span_s or 0.0), max(times)
    if to_s <= from_s:
        to_s = from_s + 1.0
    values = [value for points in lines for _, value in points] + [high for _, _, high in chart.band]
    top, step = _axis(max(values + ([chart.limit[1]] if chart.limit else [])))
    plane = _Plane(from_s, to_s, top)
    parts = _grid(plane, step)
    parts.extend(_band_area(chart, plane))
    if chart.limit is not None:
        label, value = chart.limit
        parts.append(
            Markup(
                '<line class="limit" x1="{x1}" x2="{x2}" y1="{y}" y2="{y}"/><text class="limit-label" x="{x2}"'
                ' y="{ty}" text-anchor="end">{label}: {size}</text>'
            ).format(
                x1=_LEFT,
                x2=_WIDTH - _RIGHT,
                y=plane.y(value),
                ty=round(plane.y(value) + (13 if plane.y(value) < _TOP + 12 else -5), 1),
                label=label,
                size=format_size(value),
            )
        )
    parts.append(_steps(chart, plane) if chart.span_s is not None else _line(chart, plane))
    parts.extend(_further_lines(chart, plane))
    parts.extend(_legend(chart))
    return _drawing(chart, name, _HEIGHT, parts)


def _drawing(chart: Chart | BarChart, name: str, height: int, parts: Iterable[Markup]) -> Markup:
    head = Markup(
        '<svg viewBox="0 0 {w} {h}" role="img" aria-labelledby="{name}-title {name}-summary" class="chart">'
        '<title id="{name}-title">{title}</title><desc id="{name}-summary">{summary}</desc>'
    ).format(w=_WIDTH, h=height, name=name, title=chart.title, summary=chart.summary)
    return Markup("").join([head, *parts, Markup("</svg>")])


class _Plane:
    """Converts values to coordinates, rounded to a tenth of a unit."""

    def __init__(self, from_s: float, to_s: float, top: float) -> None:
        self.from_s, self.to_s, self.top = from_s, to_s, top

    def x(self, at_s: float) -> float:
        return round(_LEFT + (at_s - self.from_s) / (self.to_s - self.from_s) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        return round(_HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _TOP - _BOTTOM), 1)


def _grid(plane: _Plane, step: float) -> list[Markup]:
    parts = []
    for index in range(round(plane.top / step) + 1):
        y = plane.y(index * step)
        parts.append(
            Markup(
                '<line class="grid" x1="{x1}" x2="{x2}" y1="{y}" y2="{y}"/>'
                '<text x="{tx}" y="{ty}" text-anchor="end">{label}</text>'
            ).format(
                x1=_LEFT, x2=_WIDTH - _RIGHT, y=y, tx=_LEFT - 8, ty=round(y + 4, 1), label=format_size(index * step)
            )
        )
    span_s = plane.to_s - plane.from_s
    tick_s = next((step_s for step_s in _TIME_STEPS_S if span_s / step_s <= _TICKS), math.ceil(span_s / _TICKS))
    form = "%H:%M:%S" if tick_s < MINUTE_S else "%m-%d %H:%M" if tick_s < DAY_S else "%Y-%m-%d"
    for index in range(math.ceil(plane.from_s / tick_s), math.floor(plane.to_s / tick_s) + 1):
        x = plane.x(index * tick_s)
        parts.append(
            Markup(
                '<line class="tick" x1="{x}" x2="{x}" y1="{y1}" y2="{y2}"/>'
                '<text x="{x}" y="{ty}" text-anchor="middle">{label}</text>'
            ).format(
                x=x,
                y1=_HEIGHT - _BOTTOM,
                y2=_HEIGHT - _BOTTOM + 5,
                ty=_HEIGHT - _BOTTOM + 19,
                label=datetime.fromtimestamp(index * tick_s, UTC).strftime(form),
            )
        )
    parts.append(
        Markup(
            '<text class="axis" x="{x}" y="{y}" text-anchor="middle">time (UTC)</text>'
            '<text class="axis" x="{left}" y="14" text-anchor="start">bytes</text>'
        ).format(
            x=(_LEFT + _WIDTH - _RIGHT) / 2,
            y=_HEIGHT - 6,
            left=8,
        )
    )
    return parts


def _steps(chart: Chart, plane: _Plane) -> Markup:
    bars = []
    for at_s, value in chart.points:
        x1, x2, y = plane.x(at_s - (chart.span_s or 0.0)), plane.x(at_s), plane.y(value)
        bars.append(f"M{x1} {plane.y(0)}V{y}H{max(x2, x1 + 0.5):.1f}V{plane.y(0)}Z")
    return Markup('<path class="bars" d="{d}"/>').format(d="".join(bars))


def _line(chart: Chart, plane: _Plane) -> Markup:
    places = [f"{plane.x(at_s)} {plane.y(value)}" for at_s, value in chart.points]
    last = chart.points[-1]
    return Markup('<path class="line" d="{d}"/><circle class="dot" cx="{x}" cy="{y}" r="3.5"/>').format(
        d="M" + "L".join(places), x=plane.x(last[0]), y=plane.y(last[1])
    )


def _axis(highest: float) -> tuple[float, float]:
    """The end of the axis and the step of its lines: 1, 2 or 5 times a power of 10 of B, KiB, MiB, ..."""
    if highest <= 0:
        return 4.0, 1.0
    unit = next((float(step) for step in (PIB, TIB, GIB, MIB, KIB) if highest >= step), 1.0)
    rough = highest / unit / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = unit * power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return math.ceil(highest / step - 1e-9) * step, step


def _band_area(chart: Chart, plane: _Plane) -> Iterator[Markup]:
    """The area between low and high."""
    if not chart.band:
        return
    above = [f"{plane.x(at_s)} {plane.y(high)}" for at_s, _, high in chart.band]
    below = [f"{plane.x(at_s)} {plane.y(low)}" for at_s, low, _ in reversed(chart.band)]
    yield Markup('<path class="band" d="{d}"/>').format(d="M" + "L".join([*above, *below]) + "Z")


def _further_lines(chart: Chart, plane: _Plane) -> Iterator[Markup]:
    """The other lines, with different dashes and colours."""
    for number, series in enumerate(chart.series, 2):
        if series.points:
            places = [f"{plane.x(at_s)} {plane.y(value)}" for at_s, value in series.points]
            yield Markup('<path class="line line-{number}" d="{d}"/>').format(number=number, d="M" + "L".join(places))


def _legend(chart: Chart) -> Iterator[Markup]:
    """The meaning of colours and dashes, above the chart."""
    x = float(_LEGEND_X)
    if chart.label:
        swatch = "bars" if chart.span_s is not None else "line"
        yield _entry(x, swatch, chart.label)
        x += 40 + len(chart.label) * _CHARACTER
    for number, series in enumerate(chart.series, 2):
        yield _entry(x, f"line line-{number}", series.label)
        x += 40 + len(series.label) * _CHARACTER
    if chart.band:
        yield _entry(x, "band", chart.band_label)


def _entry(x: float, swatch: str, label: str) -> Markup:
    y = _LEGEND_Y
    drawn = (
        f"M{x:.1f} {y}H{x + 24:.1f}" if swatch.startswith("line") else f"M{x:.1f} {y - 5}H{x + 24:.1f}V{y + 5}H{x:.1f}Z"
    )
    return Markup('<path class="{swatch}" d="{d}"/><text class="legend" x="{x}" y="{y}">{label}</text>').format(
        swatch=swatch, d=drawn, x=round(x + 30, 1), y=y + 4, label=label
    )


def bar_svg(chart: BarChart, name: str) -> Markup:
    """The chart as an SVG element: an axis at 0 for each group, and each bar with its label and text. `name` makes its ids unique
    in the page. Colours come from the page's style.
    """
    parts: list[Markup] = []
    y = 8
    highest = _highest([line for _, lines in chart.groups for line in lines])
    if chart.common and chart.marked is not None:
        highest = max(highest, chart.marked[1])
    for label, lines in chart.groups:
        parts.append(Markup('<text class="axis" x="8" y="{y}">{label}</text>').format(y=y + 14, label=label))
        y += _HEAD
        top = highest if chart.common else _highest(lines)
        parts.append(
            Markup('<path class="tick" fill="none" d="M{x} {y}V{end}"/>').format(
                x=_BARS_LEFT, y=y - _GAP / 2, end=y + len(lines) * (_BAR + _GAP) - _GAP / 2
            )
        )
        for number, line in enumerate(lines):
            parts.append(_bar(line, y, top, _SHADES[min(number, len(_SHADES) - 1)]))
            y += _BAR + _GAP
        y += _GAP
    if chart.common and chart.marked is not None:
        words, value = chart.marked
        parts.append(_mark(words, _BARS_LEFT + round(value / highest * (_WIDTH - _BARS_LEFT - _BARS_RIGHT), 1), y))
        y += _HEAD
    return _drawing(chart, name, y + 4, parts)


def _highest(lines: Sequence[BarLine]) -> float:
    return max((line.span[1] if line.span else line.value for line in lines), default=0.0) or 1.0


def _mark(words: str, x: float, y: int) -> Markup:
    return Markup(
        '<line class="limit" x1="{x}" x2="{x}" y1="8" y2="{y}"/><text class="limit-label" x="{tx}" y="{ty}">{words}</text>'
    ).format(x=x, y=y, tx=round(x + 4, 1), ty=y + 10, words=words)


def _bar(line: BarLine, y: int, top: float, shade: float) -> Markup:
    span = _WIDTH - _BARS_LEFT - _BARS_RIGHT
    width = max(round(line.value / top * span, 1), 0.5)
    middle = y + _BAR / 2
    bar = Markup(
        '<text x="{tx}" y="{ty}" text-anchor="end">{label}</text>'
        '<rect class="bars" x="{x}" y="{y}" width="{w}" height="{h}" fill-opacity="{shade}"/>'
    ).format(tx=_BARS_LEFT - 8, ty=y + 12, label=line.label, x=_BARS_LEFT, y=y, w=width, h=_BAR, shade=shade)
    end = _BARS_LEFT + width
    if line.span:
        low, high = (_BARS_LEFT + round(value / top * span, 1) for value in line.span)
        bar += Markup('<path class="tick" fill="none" d="M{low} {m}H{high}M{low} {a}V{b}M{high} {a}V{b}"/>').format(
            low=low, high=high, m=middle, a=middle - 4, b=middle + 4
        )
        end = max(end, high)
    return bar + Markup('<text x="{x}" y="{y}">{text}</text>').format(x=round(end + 8, 1), y=y + 12, text=line.text)
