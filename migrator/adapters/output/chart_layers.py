"""What lies over and under the main line of a chart: further lines, an area, and the legend that names them all."""

from collections.abc import Iterator
from typing import Protocol

from markupsafe import Markup

from migrator.adapters.output.document import Chart

_LEGEND_X, _LEGEND_Y = 190, 10
_CHARACTER = 9.0
"""How wide a character is about, in the letters of the charts on a phone."""


class OnPage(Protocol):
    """From values to places on the page."""

    def x(self, at_s: float) -> float: ...

    def y(self, value: float) -> float: ...


def band_area(chart: Chart, plane: OnPage) -> Iterator[Markup]:
    """The area between low and high."""
    if not chart.band:
        return
    above = [f"{plane.x(at_s)} {plane.y(high)}" for at_s, _, high in chart.band]
    below = [f"{plane.x(at_s)} {plane.y(low)}" for at_s, low, _ in reversed(chart.band)]
    yield Markup('<path class="band" d="{d}"/>').format(d="M" + "L".join([*above, *below]) + "Z")


def further_lines(chart: Chart, plane: OnPage) -> Iterator[Markup]:
    """The other lines, which differ by their dashes as well as by their colour."""
    for number, series in enumerate(chart.series, 2):
        if series.points:
            places = [f"{plane.x(at_s)} {plane.y(value)}" for at_s, value in series.points]
            yield Markup('<path class="line line-{number}" d="{d}"/>').format(number=number, d="M" + "L".join(places))


def legend(chart: Chart) -> Iterator[Markup]:
    """What every colour and dash means, above the chart."""
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
