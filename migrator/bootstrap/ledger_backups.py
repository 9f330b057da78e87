"""Copies of the ledger that verbs make before they do what cannot be undone."""

from collections.abc import Callable
from pathlib import Path

from migrator.adapters.ledger.sqlite import SqliteLedger


def backing_up(ledger: SqliteLedger, state_dir: Path) -> Callable[[str], None]:
    """Make the copy of a name, in `backups` in the state directory. Raises OSError, and what the ledger raises."""
    directory = state_dir / "backups"

    def back_up(name: str) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        ledger.backup(directory / f"ledger-{name}.db")

    return back_up
