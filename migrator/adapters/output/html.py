"""One HTML file that stands alone: no script, nothing fetched, readable on paper, light and dark."""

import base64
import hashlib
from collections.abc import Iterator

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from migrator.adapters.output.bar_chart import bar_svg
from migrator.adapters.output.chart import svg
from migrator.adapters.output.document import Bar, BarChart, Block, Chart, Document, Facts, Paragraph, Table, cells
from migrator.adapters.output.wording import FILE_CHARACTERS

_environment = Environment(
    loader=PackageLoader("migrator.adapters.output"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def to_html(document: Document, *, language: str = "en") -> str:
    """A document as one HTML page. Every text is escaped; the page allows its own style by its hash, and nothing else
    (Content-Security-Policy), so that even a mistake in here could not run anything.
    """
    source, _, _ = _environment.loader.get_source(_environment, "report.css") if _environment.loader else ("", "", "")
    style = source.strip()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return _environment.get_template("report.html.j2").render(
        document=document,
        language=language,
        style=Markup(style),  # noqa: S704 - the program's own style sheet
        style_digest=digest,
        kind=_kind,
        svg=_drawn,
        rows=_rows,
    )


def _drawn(block: Chart | BarChart, name: str) -> Markup:
    return svg(block, name) if isinstance(block, Chart) else bar_svg(block, name)


def _rows(block: Table) -> Iterator[tuple[str, ...]]:
    return cells(block, FILE_CHARACTERS)


def _kind(block: Block) -> str:
    match block:
        case Paragraph():
            return "paragraph"
        case Facts():
            return "facts"
        case Bar():
            return "bar"
        case Table():
            return "table"
        case Chart() | BarChart():
            return "chart"
