"""Bars in groups as SVG that stands alone, prints, and is told in words too."""

from collections.abc import Sequence

from markupsafe import Markup

from migrator.adapters.output.document import BarChart, BarLine

_WIDTH = 860
_LEFT, _RIGHT = 170, 190
_BAR, _GAP, _HEAD = 16, 4, 24
_SHADES = (1.0, 0.55, 0.3, 0.15)
"""The first side is darkest: on paper and for whoever sees no colours they differ too."""


def bar_svg(chart: BarChart, name: str) -> Markup:
    """The chart as an SVG element: an axis at 0 for each group, and every bar with its label, figure and unit. `name` makes its
    ids unique in the page. Colours come from the page's style.
    """
    parts, y = [], 8
    highest = _highest([line for _, lines in chart.groups for line in lines])
    if chart.common and chart.marked is not None:
        highest = max(highest, chart.marked[1])
    for label, lines in chart.groups:
        parts.append(Markup('<text class="axis" x="8" y="{y}">{label}</text>').format(y=y + 14, label=label))
        y += _HEAD
        top = highest if chart.common else _highest(lines)
        parts.append(
            Markup('<path class="tick" fill="none" d="M{x} {y}V{end}"/>').format(
                x=_LEFT, y=y - _GAP / 2, end=y + len(lines) * (_BAR + _GAP) - _GAP / 2
            )
        )
        for number, line in enumerate(lines):
            parts.append(_bar(line, y, top, _SHADES[min(number, len(_SHADES) - 1)]))
            y += _BAR + _GAP
        y += _GAP
    if chart.common and chart.marked is not None:
        words, value = chart.marked
        parts.append(_mark(words, _LEFT + round(value / highest * (_WIDTH - _LEFT - _RIGHT), 1), y))
        y += _HEAD
    head = Markup(
        '<svg viewBox="0 0 {w} {h}" role="img" aria-labelledby="{name}-title {name}-summary" class="chart">'
        '<title id="{name}-title">{title}</title><desc id="{name}-summary">{summary}</desc>'
    ).format(w=_WIDTH, h=y + 4, name=name, title=chart.title, summary=chart.summary)
    return Markup("").join([head, *parts, Markup("</svg>")])


def _highest(lines: Sequence[BarLine]) -> float:
    return max((line.span[1] if line.span else line.value for line in lines), default=0.0) or 1.0


def _mark(words: str, x: float, y: int) -> Markup:
    return Markup(
        '<line class="limit" x1="{x}" x2="{x}" y1="8" y2="{y}"/><text class="limit-label" x="{tx}" y="{ty}">{words}</text>'
    ).format(x=x, y=y, tx=round(x + 4, 1), ty=y + 10, words=words)


def _bar(line: BarLine, y: int, top: float, shade: float) -> Markup:
    span = _WIDTH - _LEFT - _RIGHT
    width = max(round(line.value / top * span, 1), 0.5)
    middle = y + _BAR / 2
    bar = Markup(
        '<text x="{tx}" y="{ty}" text-anchor="end">{label}</text>'
        '<rect class="bars" x="{x}" y="{y}" width="{w}" height="{h}" fill-opacity="{shade}"/>'
    ).format(tx=_LEFT - 8, ty=y + 12, label=line.label, x=_LEFT, y=y, w=width, h=_BAR, shade=shade)
    end = _LEFT + width
    if line.span:
        low, high = (_LEFT + round(value / top * span, 1) for value in line.span)
        bar += Markup('<path class="tick" fill="none" d="M{low} {m}H{high}M{low} {a}V{b}M{high} {a}V{b}"/>').format(
            low=low, high=high, m=middle, a=middle - 4, b=middle + 4
        )
        end = max(end, high)
    return bar + Markup('<text x="{x}" y="{y}">{text}</text>').format(x=round(end + 8, 1), y=y + 12, text=line.text)
