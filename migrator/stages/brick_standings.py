"""How far all drains and additions of bricks are: read by `status`, `report` and `brick status`."""

from migrator.decide import addition_standing, drain_standing
from migrator.domain.addition_standing import BrickStandings
from migrator.ports.ledger import Ledger


def read_bricks(ledger: Ledger) -> BrickStandings:
    """By the ledger alone: the newest attempt at each, oldest first."""
    return BrickStandings(
        drains=tuple(
            drain_standing.standing(
                record, ledger.drains.telling_samples(record.id, recent_s=drain_standing.RATE_WINDOW_S)
            )
            for record in drain_standing.newest_attempts(ledger.drains.all())
        ),
        additions=tuple(
            addition_standing.standing(
                record, ledger.additions.telling_samples(record.id, recent_s=drain_standing.RATE_WINDOW_S)
            )
            for record in addition_standing.newest_attempts(ledger.additions.all())
        ),
    )
