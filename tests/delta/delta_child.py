"""A run that stands still in a phase of its delta pass, to be killed there:
`python -m tests.delta.delta_child PHASE TARGET --site SITE_FILE WORD...`.
"""

import contextlib
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from migrator.cli.main import main
from migrator.fs.moving import MovingTarget
from migrator.fs.reading import PosixSource
from migrator.ledger.ledger import PassRecords
from tests.support.run_site import RealSite
from tests.support.standing_still import stand_still_when
from tests.support.xfs import XfsMount


def deltas(site: RealSite) -> list[tuple[str, float | None]]:
    """State of every delta pass, and when its renames and deletions were done."""
    with closing(sqlite3.connect(f"file:{site.ledger}?mode=ro", uri=True, timeout=600)) as ledger:
        return ledger.execute("SELECT state, moved_at_s FROM passes WHERE kind = 'delta' ORDER BY number").fetchall()


def attempts_of_delta(site: RealSite, state: str) -> int:
    with closing(sqlite3.connect(f"file:{site.ledger}?mode=ro", uri=True, timeout=600)) as ledger:
        query = (
            "SELECT count(*) FROM attempts JOIN chunks ON chunks.id = chunk_id JOIN passes ON passes.id = pass_id "
            "WHERE passes.kind = 'delta' AND attempts.state = ?"
        )
        return int(ledger.execute(query, (state,)).fetchone()[0])


def staged(site: RealSite) -> int:
    """Renamed paths that are taken out and wait for their new names."""
    return sum(1 for _ in site.target.path.glob(".migrator-trash/*/.migrator-staged/0*/*"))


def under_new_names(site: RealSite) -> int:
    with contextlib.suppress(FileNotFoundError):
        return len(os.listdir(site.target.path / "home" / "ann" / "new names"))
    return 0


def scanning(site: RealSite) -> bool:
    return any(not (path / "catalog.json").exists() for path in (site.directory / "state" / "catalogs").iterdir())


def lists_written(site: RealSite) -> bool:
    return any((site.directory / "state").rglob("*-delta-0001.parquet"))


PHASES: dict[str, Callable[[RealSite], object]] = {
    "scan": scanning,
    "lists": lists_written,
    "pass-recorded": deltas,
    "taking-out": lambda site: staged(site) > 100,
    "putting-in": lambda site: under_new_names(site) > 100,
    "moves-done": lambda site: any(moved for _, moved in deltas(site)),
    "sending": lambda site: attempts_of_delta(site, "running"),
    "half-sent": lambda site: attempts_of_delta(site, "succeeded") > 3,
}
_REACHED_BY: dict[str, tuple[type, str]] = {
    "scan": (PosixSource, "read_directory"),
    "lists": (PassRecords, "start"),
    "pass-recorded": (PassRecords, "start"),
    "taking-out": (MovingTarget, "move"),
    "putting-in": (MovingTarget, "move"),
    "moves-done": (PassRecords, "moves_done"),
    "sending": (PassRecords, "started"),
    "half-sent": (PassRecords, "finish"),
}
"""What the program calls in a phase."""


if __name__ == "__main__":
    phase, target, *words = sys.argv[1:]
    not_used = XfsMount(Path("/nowhere"), "")
    seen = RealSite(Path(words[words.index("--site") + 1]).parent, not_used, XfsMount(Path(target), ""))
    stand_still_when(lambda: PHASES[phase](seen), [_REACHED_BY[phase]])
    main(args=words, prog_name="migrator")
