"""One HTML file that stands alone: no script, nothing fetched, readable on paper, light and dark."""

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from migrator.adapters.output.chart import bar_svg, svg
from migrator.adapters.output.document import Bar, BarChart, Block, Chart, Document, Facts, Paragraph, Table, cells
from migrator.adapters.output.wording import FILE_CHARACTERS

_environment = Environment(
    loader=PackageLoader("migrator.adapters.output"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A page that asks for itself anew every `interval_s` seconds. Its script runs by `nonce` alone."""

    nonce: str
    interval_s: float


def to_html(document: Document, *, language: str = "en", live: Live | None = None) -> str:
    """A document as one HTML page. Every text is escaped; the page allows its own style by its hash, and nothing else
    (Content-Security-Policy), so that even a mistake in here could not run anything. With `live` it also has one script.
    """
    return _environment.get_template("report.html.j2").render(
        document=document,
        language=language,
        style=Markup(_own("report.css")),  # noqa: S704 - the program's own style sheet
        policy=content_policy(live),
        live=live,
        script=Markup(_own("live.js")) if live else "",  # noqa: S704 - the program's own script
        kind=_kind,
        svg=_drawn,
        rows=_rows,
    )


def content_policy(live: Live | None = None) -> str:
    """What such a page may do in a browser, as its Content-Security-Policy."""
    digest = base64.b64encode(hashlib.sha256(_own("report.css").encode()).digest()).decode()
    scripts = f" script-src 'nonce-{live.nonce}'; connect-src 'self';" if live else ""
    return f"default-src 'none'; style-src 'sha256-{digest}';{scripts} base-uri 'none'; form-action 'none'"


def _own(name: str) -> str:
    source, _, _ = _environment.loader.get_source(_environment, name) if _environment.loader else ("", "", "")
    return source.strip()


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
