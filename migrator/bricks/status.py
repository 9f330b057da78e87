"""All drains and additions, for `brick status`, `status` and `report`, from the ledger alone."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from migrator.bricks.add import rules as addition_standing
from migrator.bricks.add.model import AdditionStanding, AdditionState
from migrator.bricks.add.rules import again
from migrator.bricks.drain import rules_progress as drain_standing
from migrator.bricks.drain.model import DRAIN_ENDED_STATES, OUT_STATES, UNTOUCHED_STATES, DrainStanding
from migrator.bricks.progress import RATE_WINDOW_S, TaskSample, newest_of_bricks
from migrator.bricks.shields import shielded_files
from migrator.core.blocker import Blocker

if TYPE_CHECKING:
    from migrator.bricks.records import BrickLedger

T = TypeVar("T")


class BrickStandings(Struct, frozen=True, kw_only=True):
    """All drains and additions: the newest attempt for each set of bricks, oldest first."""

    drains: tuple[DrainStanding, ...]
    """The newest attempt for each set of bricks, oldest first."""
    additions: tuple[AdditionStanding, ...]
    """The newest attempt for each set of bricks, oldest first."""


def read_bricks(ledger: "BrickLedger") -> BrickStandings:
    """Read the newest attempts at each set of bricks from the ledger alone, oldest first."""

    def standings(records: Any, standing: Callable[[Any, Sequence[TaskSample]], T]) -> tuple[T, ...]:  # noqa: ANN401
        newest = newest_of_bricks(records.all())
        few_s = RATE_WINDOW_S
        return tuple(standing(one, records.telling_samples(one.id, recent_s=few_s)) for one in newest)

    return BrickStandings(
        drains=standings(ledger.drains, drain_standing.standing),
        additions=standings(ledger.additions, addition_standing.standing),
    )


def shield_blockers(
    directory: Path, drains: Sequence[DrainStanding], additions: Sequence[AdditionStanding]
) -> Iterator[Blocker]:
    """Shields that are left on files although no drain or rebalance is in progress. Raises OSError."""
    files = shielded_files(directory)
    moving = [one for one in drains if one.state not in DRAIN_ENDED_STATES | OUT_STATES | UNTOUCHED_STATES]
    if files is None or moving or any(one.state is AdditionState.BALANCING for one in additions):
        return
    commands = [f"migrator brick stop {' '.join(one.bricks)}" for one in drains[-1:]]
    yield Blocker(
        subject="shields",
        on=f"files still have shields, and no scan is whole until they are removed: {'; '.join(files)}, ...",
        hint=" or ".join([*commands, *map(again, additions[-1:])]),
    )
