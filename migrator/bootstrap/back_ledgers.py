"""The ledgers of rollbacks, to be read: where they lie, and which of them have carried something."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from migrator.adapters.ledger.sqlite import open_ledger
from migrator.bootstrap import Wiring
from migrator.domain.cutover import CutoverRecord, CutoverState
from migrator.ports.ledger import Ledger
from migrator.stages.carry_back.back_site import newest_pass
from migrator.stages.run.left_alone import newest_cutovers


def back_directory(wiring: Wiring, record: CutoverRecord) -> Path:
    """Of the rollback of one cutover: no other one has the same, whatever ledger it is in."""
    return wiring.site.site.state_dir / "back" / record.own_name


@contextmanager
def back_ledger(wiring: Wiring, record: CutoverRecord) -> Iterator[Ledger | None]:
    """The ledger of a cutover's rollback, to be read; None where none was made, or its making was interrupted."""
    directory = back_directory(wiring, record)
    if not (directory / "made").exists():
        yield None
        return
    with open_ledger(directory / "ledger.db", read_only=True) as ledger:
        yield ledger


def carried_of(wiring: Wiring, ledger: Ledger, users: Sequence[str]) -> tuple[CutoverRecord, ...]:
    """The cutovers, of any plan, of users who work on the target, but to whose kept source a rollback has carried something
    before it was given up.
    """
    attempts = (one for name in ledger.plans.names() for one in ledger.cutovers.of_plan(name))
    newest = newest_cutovers(ledger.cutovers, sorted({one.tree.path for one in attempts if one.tree.user in users}))
    found: list[CutoverRecord] = []
    for record in newest.values():
        if record.state is not CutoverState.RETAINED:
            continue
        with back_ledger(wiring, record) as carried:
            if carried is not None and newest_pass(carried, record) is not None:
                found.append(record)
    return tuple(found)
