"""Copies of a ledger's file."""

import sqlite3
from pathlib import Path

from migrator.core.durable import sync
from migrator.ledger.database import BUSY_TIMEOUT_S, translated


def backup(ledger_file: Path, target: Path) -> None:
    """A consistent copy of a ledger, also while it is written to; on the disk when this returns.

    Written under another name first, so `target` is whole or not there. Replaces an older `target`.
    """
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    with translated(ledger_file):
        source = sqlite3.connect(f"{ledger_file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
        try:
            copy = sqlite3.connect(partial)
            try:
                source.backup(copy)
            finally:
                copy.close()
        finally:
            source.close()
    sync(partial)
    partial.replace(target)
    sync(target.parent)
