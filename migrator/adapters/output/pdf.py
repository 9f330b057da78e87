"""A page as PDF, printed by Chromium where there is one."""

import os
import shutil
import tempfile
from pathlib import Path

from migrator.domain.errors import ToolFailed
from migrator.ports.processes import Command, Processes

BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome-stable", "google-chrome")

_TIMEOUT_S = 180.0


def find_browser() -> str:
    """The browser that prints. Raises ToolFailed where there is none."""
    for name in BROWSERS:
        if (found := shutil.which(name)) is not None:
            return found
    raise ToolFailed(
        "a PDF cannot be made: there is no Chromium on this machine",
        cause=f"none of {', '.join(BROWSERS)} is in PATH",
        hint="install the package chromium, or leave --pdf out: report.html prints well from any browser",
    )


async def print_pdf(processes: Processes, page: Path, pdf: Path) -> None:
    """Print an HTML file, by its absolute path, on A4, as its own style says. Replaces `pdf`. Raises ToolFailed.

    The browser gets a profile of its own that is removed afterwards. No script runs and nothing is fetched: the page itself forbids
    both. (With scripts switched off altogether Chromium 156 prints nothing, and ends with 0.)
    """
    browser = find_browser()
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
            # Chromium's sandbox refuses to start for root; the page is this program's own, and runs nothing.
            argv.append("--no-sandbox")
        command = Command(
            argv=tuple(map(os.fsencode, [*argv, page.as_uri()])),
            timeout_s=_TIMEOUT_S,
            environment={"HOME": profile},
        )
        done = await processes.run(command)
        if done.exit_code != 0 or done.timed_out or not made.exists():
            said = done.stderr.decode("utf-8", "backslashreplace").strip().splitlines()[-1:] or ["it said nothing"]
            raise ToolFailed(
                f"{browser} did not print the report: {said[0]}",
                cause="it took too long" if done.timed_out else f"it ended with exit code {done.exit_code}",
                hint="leave --pdf out, and print report.html from any browser",
            )
        shutil.move(made, pdf)
