"""Documents as one self-contained HTML file (no script, nothing fetched), and as PDF if Chromium is installed."""

import base64
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from migrator.core.durable import write_durably
from migrator.core.errors import ToolFailed
from migrator.hosts.ports import Command, Processes
from migrator.render.charts import svg, timeline_svg
from migrator.render.document import FILE_CHARACTERS, Document, figures, shown_rows

_OPEN_ROWS = 50
"""A longer table is cut here; the other rows can be unfolded."""

_environment = Environment(
    loader=PackageLoader("migrator.render"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def to_html(document: Document, *, live_interval_s: float | None = None) -> str:
    """A document as one HTML page; with `live_interval_s` it refreshes itself at that interval. Every text is escaped.
    The Content-Security-Policy allows only the page's own style and script, by their hashes: injected markup cannot
    run code.
    """
    live = live_interval_s is not None
    return _environment.get_template("report.html.j2").render(
        document=document,
        contents=_contents(document),
        style=Markup(_own("report.css")),  # noqa: S704 - the program's own style sheet
        policy=content_policy(live=live),
        interval_s=live_interval_s,
        script=Markup(_own("live.js")) if live else "",  # noqa: S704 - the program's own script
        kind=lambda block: type(block).__name__.lower(),
        svg=svg,
        timeline_svg=timeline_svg,
        figures=figures,
        open_rows=_OPEN_ROWS,
        rows=lambda block: shown_rows(block, FILE_CHARACTERS),
    )


def _contents(document: Document) -> list[tuple[int, str]]:
    """The numbers and titles of the details, for a table of contents; empty without a first page."""
    numbered = list(enumerate(document.sections, 1))
    details = [(number, one.title) for number, one in numbered if not (one.first_page or one.overview)]
    return details if any(one.first_page for one in document.sections) else []


def content_policy(*, live: bool = False) -> str:
    """The Content-Security-Policy of a page."""
    scripts = f" script-src {_hash('live.js')}; connect-src 'self';" if live else ""
    return f"default-src 'none'; style-src {_hash('report.css')};{scripts} base-uri 'none'; form-action 'none'"


def _hash(name: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(_own(name).encode()).digest()).decode()}'"


def _own(name: str) -> str:
    source, _, _ = _environment.loader.get_source(_environment, name) if _environment.loader else ("", "", "")
    return source.strip()


# --- PDF, printed by Chromium


BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome-stable", "google-chrome")

_TIMEOUT_S = 180.0


async def print_pdf(processes: Processes, page: Path, pdf: Path) -> None:
    """Print an HTML file (absolute path) on A4, and replace `pdf`. Raises ToolFailed and OSError.

    The browser uses a temporary profile. The policy of the page forbids scripts and fetches. (With scripts disabled by
    an option, Chromium 156 prints nothing and exits with 0.)
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise ToolFailed(
            "a PDF cannot be made: there is no Chromium on this machine",
            cause=f"none of {', '.join(BROWSERS)} is in PATH",
            hint="install the package chromium, or leave --pdf out: report.html prints well from any browser",
        )
    with tempfile.TemporaryDirectory(prefix="migrator-pdf-", ignore_cleanup_errors=True) as profile:
        made = Path(profile) / "report.pdf"
        argv = [
            browser,
            "--headless",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-extensions",
            "--no-pdf-header-footer",
            f"--user-data-dir={profile}/profile",
            f"--print-to-pdf={made}",
        ]
        if os.geteuid() == 0:
            # Chromium's sandbox does not start for root. The page is trusted, and runs no script.
            argv.append("--no-sandbox")
        command = Command(
            argv=tuple(map(os.fsencode, [*argv, page.as_uri()])), timeout_s=_TIMEOUT_S, environment={"HOME": profile}
        )
        done = await processes.run(command)
        if done.failure or not made.exists():
            raise ToolFailed(
                f"{browser} did not print the report: {done.failure or 'it made no file'}",
                hint="leave --pdf out, and print report.html from any browser",
            )
        # Not moved: a new file gets the group of its directory, whose members may read the report.
        write_durably(pdf, made.read_bytes())
