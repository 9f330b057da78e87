"""What people are told of benchmarks."""

import io
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from migrator.bench.model import BenchmarkResult, BenchmarkState, BenchmarkSummary, Place, Unit
from migrator.bench.rules import compare
from migrator.bench.view import comparison_document, figure_words, summary_document, value_words
from migrator.core.paths import show
from migrator.core.statistics import series
from migrator.core.units import GIB, MIB
from migrator.render.charts import bar_svg
from migrator.render.document import BarChart, Document
from migrator.render.html import to_html
from migrator.render.terminal import print_document
from migrator.render.text import to_markdown
from tests.bench.test_benchmark_comparison import FAST, RECORD, SLOW, A, B, measured

HOSTILE = "/<script>alert(1)</script>\u202e\x1b[31m"


def of(*places: Place) -> Document:
    values = [SLOW, FAST]
    measurements = [one for place, each in zip(places, values, strict=True) for one in measured(place, each)]
    result = BenchmarkResult(record=replace(RECORD, places=places), measurements=tuple(measurements))
    return comparison_document(compare([result]), charts=True)


def charts(document: Document) -> list[BarChart]:
    return [block for section in document.sections for block in section.blocks if isinstance(block, BarChart)]


def printed(document: Document) -> str:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    print_document(console, document)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_medians_with_ranges_noise_load_and_published_figures_are_all_there() -> None:
    for text in (printed(of(A, B)), to_markdown(of(A, B)).replace("\\", "")):
        assert "scale 0.01 (1 % of the published sizes)" in text
        assert "20 s (5 to 40)" in text
        assert "4.1 s (1.1 to 8)" in text
        assert "beyond the noise" in text
        assert "2 (2 to 2)" in text
        assert "Mangalam" in text


def test_bars_are_as_long_as_their_values_and_told_in_words() -> None:
    (chart,) = charts(of(A, B))
    root = ET.fromstring(str(bar_svg(chart, "c")))
    bars = [float(bar.get("width", "0")) for bar in root.iter("rect")]
    assert bars[0] / bars[1] == pytest.approx(20 / 4.1, rel=0.02)
    words = [node.text for node in root.iter("text")]
    assert "20 s (5 to 40)" in words
    assert "ls -lR, shorter is better" in words
    assert root.find("title") is not None
    told = root.find("desc")
    assert told is not None
    assert "Beyond the noise, target is faster than source in 1 of 1 test (ls -lR)." in (told.text or "")


def test_a_path_is_text_in_every_output() -> None:
    hostile = Place(label=show(HOSTILE.encode()), root=HOSTILE.encode())
    document = of(A, hostile)
    page = to_html(document)
    assert "<script" not in page.lower()
    for text in (page, printed(document), to_markdown(document)):
        assert not re.search("[\u202e\x1b]", text)


@pytest.mark.parametrize(
    ("values", "unit", "words"),
    [
        ([81.0, 82.42], Unit.SECONDS, "81.7 s (81 to 82.4)"),
        ([0.002, 0.004], Unit.SECONDS, "3 ms (2 to 4)"),
        ([1048576.0], Unit.BYTES_PER_S, "1 MiB/s"),
        ([1.9 * GIB, 0.3 * GIB], Unit.BYTES_PER_S, "1.1 GiB/s (0.3 to 1.9)"),
        ([500.0 * MIB, 100.0 * MIB], Unit.BYTES_PER_S, "300 MiB/s (100 to 500)"),
        ([0.0145, 0.0165], Unit.MILLISECONDS, "15.5 µs (14.5 to 16.5)"),
        ([12000.0, 14000.0], Unit.OPERATIONS_PER_S, "13,000 ops/s (12,000 to 14,000)"),
        ([3.643], Unit.MILLISECONDS, "3.64 ms"),
    ],
)
def test_figures_are_told_with_their_unit(values: list[float], unit: Unit, words: str) -> None:
    assert figure_words(series(values), unit) == words
    assert value_words(values[0], unit).split()[-1] == words.split()[1]


def test_a_suite_that_failed_and_what_was_taken_away_are_told() -> None:
    record = replace(RECORD, state=BenchmarkState.FAILED)
    summary = BenchmarkSummary(
        scale=0.01,
        dry_run=False,
        room=(),
        results=(BenchmarkResult(record=record, measurements=tuple(measured(A, [1.0]))),),
        removed=("/mnt/.migrator-bench/0123-000001",),
        failures=("recursive: grep ended with 2",),
    )
    text = printed(summary_document(summary))
    assert "Recursive: grep ended with 2." in text
    assert "/mnt/.migrator-bench/0123-000001" in text
    assert "not every run is there" in text
