"""Charts as a line of block characters, and as self-contained SVG with a text version."""

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from markupsafe import Markup

from migrator.core.units import DAY_S, GIB, HOUR_S, KIB, MIB, MINUTE_S, PIB, TIB, format_time, local_datetime
from migrator.render.document import Chart, Lane, Span, SpanStyle, Timeline, cut

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

_HOURS = (1, 3, 6, 12, 24, 48, 7 * 24, 14 * 24, 28 * 24, 91 * 24, 365 * 24)
_TIME_STEPS_S = (1, 5, 15, 60, 300, 900, *(hours * HOUR_S for hours in _HOURS))


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


# --- Elements


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> Markup:
    return Markup('<text{kind} x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>').format(
        kind=_class(kind), x=round(x, 1), y=round(y, 1), anchor=anchor, words=words
    )


def _rule(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line{kind} x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>').format(
        kind=_class(kind), x1=x1, y1=y1, x2=x2, y2=y2
    )


def _path(kind: str, d: str) -> Markup:
    return Markup('<path{kind} d="{d}"/>').format(kind=_class(kind), d=d)


def _class(kind: str) -> Markup:
    return Markup(' class="{kind}"').format(kind=kind) if kind else Markup("")


def _drawing(chart: Chart | Timeline, name: str, parts: Iterable[Markup], height: float = _HEIGHT) -> Markup:
    head = Markup(
        '<svg viewBox="0 0 {w} {h}" role="img" aria-labelledby="{name}-title {name}-summary" class="chart">'
        '<title id="{name}-title">{title}</title><desc id="{name}-summary">{summary}</desc>'
    ).format(w=_WIDTH, h=round(height), name=name, title=chart.title, summary=chart.summary)
    return Markup("").join([head, *parts, Markup("</svg>")])


# --- Values over time


def svg(chart: Chart, name: str) -> Markup:
    """The chart as an SVG element; `name` makes its ids unique in the page. Colours come from the page's style."""
    lines = [chart.points, *(series.points for series in chart.series)]
    times = [at_s for points in lines for at_s, _ in points] + [at_s for at_s, _, _ in chart.band]
    from_s, to_s = min(times) - (chart.span_s or 0.0), max(times)
    values = [value for points in lines for _, value in points] + [high for _, _, high in chart.band]
    highest = max(values + ([chart.limit[1]] if chart.limit else []))
    top, step = _count_axis(highest) if chart.counted else _axis(highest)
    plane = _Plane(from_s, max(to_s, from_s + 1.0), top)
    return _drawing(chart, name, [*_grid(chart, plane, step), *_curves(chart, plane), *_legend(chart)])


class _Plane:
    """Converts values to coordinates, rounded to a tenth of a unit."""

    def __init__(self, from_s: float, to_s: float, top: float) -> None:
        self.from_s, self.to_s, self.top = from_s, to_s, top

    def x(self, at_s: float) -> float:
        return round(_LEFT + (at_s - self.from_s) / (self.to_s - self.from_s) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        return round(_HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _TOP - _BOTTOM), 1)

    def line(self, points: Iterable[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self.x(at_s)} {self.y(value)}" for at_s, value in points)


def _axis(highest: float) -> tuple[float, float]:
    """The end of the axis and the step of its lines: 1, 2 or 5 times a power of 10 of B, KiB, MiB, ..."""
    if highest <= 0:
        return 4.0, 1.0
    unit = next((float(step) for step in (PIB, TIB, GIB, MIB, KIB) if highest >= step), 1.0)
    rough = highest / unit / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = unit * power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return math.ceil(highest / step - 1e-9) * step, step


def _count_axis(highest: float) -> tuple[float, float]:
    """The same for counts: the step is a whole number."""
    power = 10.0 ** math.floor(math.log10(max(highest / 5, 1.0)))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= highest / 5)
    return max(math.ceil(highest / step - 1e-9), 1) * step, step


def _grid(chart: Chart, plane: _Plane, step: float) -> Iterator[Markup]:
    for index in range(round(plane.top / step) + 1):
        y = plane.y(index * step)
        yield _rule("grid", _LEFT, y, _WIDTH - _RIGHT, y)
        yield _text(_LEFT - 8, y + 4, chart.shown(index * step), "end")
    foot = _HEIGHT - _BOTTOM
    for at_s, words in _ticks(plane.from_s, plane.to_s):
        x = plane.x(at_s)
        yield _rule("tick", x, foot, x, foot + 5)
        yield _text(x, foot + 19, words, "middle")
    yield _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, _axis_title(plane.from_s, plane.to_s), "middle", "axis")
    yield _text(8, 14, chart.counted or "bytes", kind="axis")


def _ticks(from_s: float, to_s: float) -> Iterator[tuple[float, str]]:
    """Round times of this machine's zone, each with its label. From a day on, they are beginnings of days."""
    begin, end, span_s = local_datetime(from_s), local_datetime(to_s), to_s - from_s
    if begin is None or end is None:
        return
    step_s = next((step_s for step_s in _TIME_STEPS_S if span_s / step_s <= _TICKS), span_s / _TICKS)
    if step_s < DAY_S:
        form = "%H:%M:%S" if step_s < MINUTE_S else "%m-%d %H:%M"
        offset_s = (begin.utcoffset() or timedelta()).total_seconds()
        for index in range(math.ceil((from_s + offset_s) / step_s), math.floor((to_s + offset_s) / step_s) + 1):
            at_s = index * step_s - offset_s
            yield at_s, format_time(at_s, form)
        return
    days = math.ceil(step_s / DAY_S)
    for day in range(math.ceil(begin.toordinal() / days) * days, end.toordinal() + 1, days):
        at_s = datetime.fromordinal(day).astimezone().timestamp()
        if at_s >= from_s:
            yield at_s, format_time(at_s, "%Y-%m-%d")


def _axis_title(from_s: float, to_s: float) -> str:
    zones = dict.fromkeys(format_time(at_s, "%Z") for at_s in (from_s, to_s))
    return f"time ({', '.join(zones)})"


def _curves(chart: Chart, plane: _Plane) -> Iterator[Markup]:
    """The area between low and high, the limit, the points as bars or as a line, and further lines."""
    if chart.band:
        above = plane.line((at_s, high) for at_s, _, high in chart.band)
        below = plane.line((at_s, low) for at_s, low, _ in reversed(chart.band))
        yield _path("band", f"{above}L{below[1:]}Z")
    if chart.limit is not None:
        label, value = chart.limit
        y = plane.y(value)
        yield _rule("limit", _LEFT, y, _WIDTH - _RIGHT, y)
        words = f"{label}: {chart.shown(value)}"
        yield _text(_WIDTH - _RIGHT, y + (13 if y < _TOP + 12 else -5), words, "end", "limit-label")
    if chart.span_s is None:
        x, y = (turn(value) for turn, value in zip((plane.x, plane.y), chart.points[-1], strict=True))
        yield _path("line", plane.line(chart.points))
        yield Markup('<circle class="dot" cx="{x}" cy="{y}" r="3.5"/>').format(x=x, y=y)
    else:
        bars = []
        for at_s, value in chart.points:
            x1, x2, y = plane.x(at_s - chart.span_s), plane.x(at_s), plane.y(value)
            x2 -= min((x2 - x1) / 10, 2.0)
            bars.append(f"M{x1} {plane.y(0)}V{y}H{max(x2, x1 + 0.5):.1f}V{plane.y(0)}Z")
        yield _path("bars", "".join(bars))
    for number, series in enumerate(chart.series, 2):
        if series.points:
            yield _path(f"line line-{number}", plane.line(series.points))


def _legend(chart: Chart) -> Iterator[Markup]:
    """The meaning of colours and dashes, above the chart."""
    entries = [("line" if chart.span_s is None else "bars", chart.label)]
    entries += [(f"line line-{number}", series.label) for number, series in enumerate(chart.series, 2)]
    entries += [("band", chart.band_label)] if chart.band else []
    x, y = float(_LEGEND_X), _LEGEND_Y
    for swatch, label in entries:
        if label:
            end = x + 24
            is_line = swatch.startswith("line")
            yield _path(swatch, f"M{x} {y}H{end}" if is_line else f"M{x} {y - 5}H{end}V{y + 5}H{x}Z")
            yield _text(x + 30, y + 4, label, kind="legend")
            x += 40 + len(label) * _CHARACTER


# --- Timelines


_LANE_LEFT, _LANE_TOP, _LANE_HEIGHT = 212, 16, 20
_LABEL_CHARACTERS = 22
_HEIGHTS = {SpanStyle.PLAN: 15, SpanStyle.RANGE: 12}
_BAR_HEIGHT = 8

_TEXT_CELLS = 48
_TEXT_MARKS = {
    SpanStyle.PLAN: "·",
    SpanStyle.EXPECTED: "░",
    SpanStyle.DONE: "▬",
    SpanStyle.PALE: "▒",
    SpanStyle.FIRST: "█",
    SpanStyle.SECOND: "▓",
    SpanStyle.THIRD: "▚",
    SpanStyle.RANGE: "─",
}
"""In the order in which later ones cover earlier ones, except that a range covers only empty cells and plans."""


def timeline_svg(timeline: Timeline, name: str) -> Markup:
    """The timeline as an SVG element; see `svg`."""
    legend, rows = _rows_of_legend(timeline)
    top = _LANE_TOP + rows * _LANE_HEIGHT + _LANE_HEIGHT
    foot = top + (len(timeline.groups) + len(timeline.lanes)) * _LANE_HEIGHT + 6
    from_s, to_s = _extent(timeline)
    scale = (_WIDTH - _LANE_LEFT - _RIGHT) / (to_s - from_s)

    def x(at_s: float) -> float:
        return round(_LANE_LEFT + (min(max(at_s, from_s), to_s) - from_s) * scale, 1)

    parts = list(legend)
    for at_s, words in _ticks(from_s, to_s):
        parts += [_rule("grid", x(at_s), top, x(at_s), foot), _text(x(at_s), foot + 16, words, "middle")]
    parts.append(_text(_LANE_LEFT, foot + 34, _axis_title(from_s, to_s), kind="axis"))
    y = float(top)
    for group in timeline.groups:
        y += _LANE_HEIGHT
        parts.append(_text(8, y - 5, group.title, kind="group"))
        for lane in group.lanes:
            y += _LANE_HEIGHT
            parts.append(_text(16, y - 5, cut(lane.label, _LABEL_CHARACTERS)))
            parts += [_span(span, x(span.from_s), x(span.to_s), y - _LANE_HEIGHT / 2) for span in _in_order(lane)]
    parts.append(_rule("now", x(timeline.now_s), top, x(timeline.now_s), foot))
    words = f"now, {format_time(timeline.now_s, '%Y-%m-%d')}"
    parts.append(_text(x(timeline.now_s), top - 6, words, "end" if x(timeline.now_s) > _WIDTH / 2 else "start", "now"))
    return _drawing(timeline, name, parts, foot + 42)


def _extent(timeline: Timeline) -> tuple[float, float]:
    spans = [span for lane in timeline.lanes for span in lane.spans]
    from_s = min([timeline.now_s, *(span.from_s for span in spans)])
    return from_s, max(timeline.now_s, timeline.until_s, from_s + 1.0)


def _in_order(lane: Lane) -> list[Span]:
    """The spans of a lane, those that lie behind others first."""
    styles = list(SpanStyle)
    return sorted(lane.spans, key=lambda span: styles.index(span.style))


def _span(span: Span, x1: float, x2: float, y: float) -> Markup:
    half = _HEIGHTS.get(span.style, _BAR_HEIGHT) / 2
    if span.style is SpanStyle.RANGE:
        shape = f"M{x1} {y}H{x2}M{x1} {y - half}V{y + half}M{x2} {y - half}V{y + half}"
    else:
        shape = f"M{x1} {y - half}H{max(x2, x1 + 2):.1f}V{y + half}H{x1}Z"
    return _path(f"span-{span.style.value}", shape)


def _rows_of_legend(timeline: Timeline) -> tuple[list[Markup], int]:
    """The meaning of the styles, and the number of rows that it takes."""
    parts, x, row = list[Markup](), 8.0, 0
    for style, label in timeline.styles.items():
        width = 46 + len(label) * _CHARACTER
        if x + width > _WIDTH and x > 8:
            x, row = 8.0, row + 1
        y = _LANE_TOP + row * _LANE_HEIGHT
        parts += [
            _span(Span(style=style, label=label, from_s=0.0, to_s=0.0), x, x + 24, y),
            _text(x + 30, y + 4, label, kind="legend"),
        ]
        x += width
    return parts, row + 1


def timeline_lines(timeline: Timeline) -> list[str]:
    """The timeline in characters, for terminals and text; its legend is the last line."""
    from_s, to_s = _extent(timeline)
    lines = []

    def cell(at_s: float) -> int:
        return round((min(max(at_s, from_s), to_s) - from_s) / (to_s - from_s) * (_TEXT_CELLS - 1))

    for group in timeline.groups:
        lines.append(group.title)
        for lane in group.lanes:
            cells = [" "] * _TEXT_CELLS
            for style, mark in _TEXT_MARKS.items():
                for span in lane.spans:
                    if span.style is style:
                        for place in range(cell(span.from_s), cell(span.to_s) + 1):
                            if style is not SpanStyle.RANGE or cells[place] in (" ", _TEXT_MARKS[SpanStyle.PLAN]):
                                cells[place] = mark
            cells[cell(timeline.now_s)] = "│"
            lines.append(f"  {cut(lane.label, _LABEL_CHARACTERS):{_LABEL_CHARACTERS}} {''.join(cells).rstrip()}")
    ends = " to ".join(format_time(at_s, "%Y-%m-%d") for at_s in (from_s, to_s))
    return [*lines, f"{ends}: │ now", *(f"{_TEXT_MARKS[style]} {label}" for style, label in timeline.styles.items())]
