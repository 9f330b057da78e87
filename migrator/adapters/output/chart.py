"""Charts: as a line of block characters, and as SVG that stands alone, prints, and is told in words too."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from markupsafe import Markup

from migrator.adapters.output.chart_layers import band_area, further_lines, legend
from migrator.adapters.output.document import Chart
from migrator.domain.units import (
    DAY_S,
    GIB,
    HOUR_S,
    KIB,
    MIB,
    MINUTE_S,
    PIB,
    TIB,
    format_count,
    format_rate,
    format_size,
)

_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 60

_WIDTH, _HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 118, 50, 30, 46
"""Beside the plane there is room for the longest label of the axis, and for half of the longest time, in the larger letters that
phones get.
"""

_TICKS = 6
"""As many spans between times as have room for these."""

_MILLION = 1_000_000
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
    """Values as block characters from 0 to the highest one; several share a character where there are many."""
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
    top, step = _axis(max(values + ([chart.limit[1]] if chart.limit else [])), counts=bool(chart.counts))
    plane = Plane(from_s, to_s, top)
    parts = [
        Markup(
            '<svg viewBox="0 0 {w} {h}" role="img" aria-labelledby="{name}-title {name}-summary" class="chart">'
            '<title id="{name}-title">{title}</title><desc id="{name}-summary">{summary}</desc>'
        ).format(w=_WIDTH, h=_HEIGHT, name=name, title=chart.title, summary=chart.summary)
    ]
    parts.extend(_grid(plane, step, chart))
    parts.extend(band_area(chart, plane))
    if chart.limit is not None:
        label, value = chart.limit
        shown = format_count(round(value)) if chart.counts else format_size(value)
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
                size=shown,
            )
        )
    parts.append(_steps(chart, plane) if chart.span_s is not None else _line(chart, plane))
    parts.extend(further_lines(chart, plane))
    parts.extend(legend(chart))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


class Plane:
    """From values to places on the page, rounded to a tenth of a unit."""

    def __init__(self, from_s: float, to_s: float, top: float) -> None:
        self.from_s, self.to_s, self.top = from_s, to_s, top

    def x(self, at_s: float) -> float:
        return round(_LEFT + (at_s - self.from_s) / (self.to_s - self.from_s) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        return round(_HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _TOP - _BOTTOM), 1)


def _grid(plane: Plane, step: float, chart: Chart) -> list[Markup]:
    parts = []
    show = _counted(step) if chart.counts else format_rate if chart.is_rate else format_size
    for index in range(round(plane.top / step) + 1):
        y = plane.y(index * step)
        parts.append(
            Markup(
                '<line class="grid" x1="{x1}" x2="{x2}" y1="{y}" y2="{y}"/>'
                '<text x="{tx}" y="{ty}" text-anchor="end">{label}</text>'
            ).format(x1=_LEFT, x2=_WIDTH - _RIGHT, y=y, tx=_LEFT - 8, ty=round(y + 4, 1), label=show(index * step))
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
            '<text class="axis" x="{left}" y="14" text-anchor="start">{unit}</text>'
        ).format(
            x=(_LEFT + _WIDTH - _RIGHT) / 2,
            y=_HEIGHT - 6,
            left=8,
            unit=chart.counts or ("bytes per second" if chart.is_rate else "bytes"),
        )
    )
    return parts


def _steps(chart: Chart, plane: Plane) -> Markup:
    bars = []
    for at_s, value in chart.points:
        x1, x2, y = plane.x(at_s - (chart.span_s or 0.0)), plane.x(at_s), plane.y(value)
        bars.append(f"M{x1} {plane.y(0)}V{y}H{max(x2, x1 + 0.5):.1f}V{plane.y(0)}Z")
    return Markup('<path class="bars" d="{d}"/>').format(d="".join(bars))


def _line(chart: Chart, plane: Plane) -> Markup:
    places = [f"{plane.x(at_s)} {plane.y(value)}" for at_s, value in chart.points]
    last = chart.points[-1]
    return Markup('<path class="line" d="{d}"/><circle class="dot" cx="{x}" cy="{y}" r="3.5"/>').format(
        d="M" + "L".join(places), x=plane.x(last[0]), y=plane.y(last[1])
    )


def _counted(step: float) -> Callable[[float], str]:
    if step < _MILLION:
        return lambda value: format_count(round(value))
    return lambda value: f"{format_count(round(value / _MILLION))} million" if value else "0"


def _axis(highest: float, *, counts: bool) -> tuple[float, float]:
    """The end of the axis and the step of its lines: 1, 2 or 5 times a power of 10 of a unit, which goes by powers of 2 for
    bytes and not at all for counts.
    """
    if highest <= 0:
        return 4.0, 1.0
    units = () if counts else (PIB, TIB, GIB, MIB, KIB)
    unit = next((float(step) for step in units if highest >= step), 1.0)
    rough = highest / unit / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = unit * power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return math.ceil(highest / step - 1e-9) * step, step
