"""Changes of rows: that there is one, and that states change as they may, checked against the tables of `migrator.domain.states`."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, select

from migrator.domain.errors import LedgerCorrupt

State = TypeVar("State", bound=StrEnum)


def check(table: Mapping[State, frozenset[State]], old: State, new: State, what: str) -> bool:
    """Whether there is anything to change: False where the state is the new one already.

    Raises LedgerCorrupt where the table does not allow the change.
    """
    if old is new:
        return False
    if new not in table[old]:
        raise LedgerCorrupt(
            f"{what} is {old.value} in the ledger and cannot become {new.value}",
            cause="two programs worked on the same thing, or the ledger was restored from a backup meanwhile",
            hint="see `migrator status`, make sure that no other run is at work, and run the same command again",
        )
    return True


def state_of(connection: Connection, table: Table, row_id: int, kind: type[State], what: str) -> State:
    """The state in a row. Raises LedgerCorrupt where there is no such row."""
    found: Any = connection.execute(select(table.c.state).where(table.c.id == row_id)).scalar_one_or_none()
    if found is None:
        raise missing(what)
    return kind(found)


def missing(what: str) -> LedgerCorrupt:
    """The error for a row that the program knows of and the ledger does not."""
    return LedgerCorrupt(
        f"the ledger has no {what}",
        cause="the ledger was exchanged or restored from a backup while the program worked",
        hint="run the same command again",
    )


def expect_one(count: int, what: str) -> None:
    """Raise LedgerCorrupt where an update met no row, or several."""
    if count != 1:
        raise missing(what)
