"""How long `report` takes over the ledger of a large migration: `python -m bench report [--chunks N]`."""

import argparse
import tempfile
import time
from pathlib import Path

from bench.timing import say
from migrator.app.ledger import MigrationLedger
from migrator.render.html import to_html
from migrator.render.text import to_json, to_markdown
from migrator.report.report import read_report
from migrator.report.view import report_document, to_csv
from tests.support.report_world import OnePlan, Weeks

NAME = "report"
CHUNKS = 1_000_000
USERS = 400
WANTED_S = 10.0
SAMPLE_EVERY_S = 5.0


def main(argv: list[str]) -> int:
    """Make a ledger and report on it; the exit code is 1 where that takes longer than wanted."""
    parser = argparse.ArgumentParser(prog="python -m bench report", description=__doc__)
    parser.add_argument("--chunks", type=int, default=CHUNKS, help="chunks of the migration")
    parser.add_argument("--days", type=float, default=30.0, help="days of samples, one every five seconds")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="migrator-bench-report-") as directory:
        file = Path(directory) / "ledger.db"
        weeks = Weeks(users=USERS, chunks=options.chunks, days=options.days)
        began_s = time.monotonic()
        weeks.fill(file, samples_every_s=SAMPLE_EVERY_S)
        say(f"a ledger of {options.chunks:,} chunks: {file.stat().st_size >> 20} MiB in {_since(began_s):.0f} s")
        began_s = time.monotonic()
        with MigrationLedger.open(file, read_only=True) as ledger:
            facts = read_report(ledger, OnePlan(plan=weeks.plan), now_s=weeks.now_s)
        read_s = _since(began_s)
        document = report_document(facts)
        forms = (to_html(document), to_markdown(document), to_json(facts), to_csv(facts))
        took_s = _since(began_s)
    sizes = ", ".join(f"{len(form) >> 10} KiB" for form in forms)
    say(f"report: {took_s:.1f} s, {read_s:.1f} s of them to read; HTML, Markdown, JSON, CSV: {sizes}")
    if took_s > WANTED_S:
        say(f"report: {WANTED_S:g} s wanted")
    return int(took_s > WANTED_S)


def _since(began_s: float) -> float:
    return time.monotonic() - began_s
