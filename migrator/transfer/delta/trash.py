"""Expiry of the target's trash, before delta passes add to it."""

from functools import partial
from typing import TYPE_CHECKING

from migrator.core.errors import Refused
from migrator.core.events import EventKind, Severity
from migrator.core.states import PassKind, PassState
from migrator.core.units import format_duration, several
from migrator.fs.model import trash_place
from migrator.ledger.model import SiteRecord
from migrator.transfer import bases
from migrator.transfer.context import RunInvocation
from migrator.transfer.delta.delta import Deltas
from migrator.transfer.guards import mount_findings

if TYPE_CHECKING:
    from migrator.transfer.records import TransferLedger

_SUBJECT = "the trash of the target"


async def expire_trash(invocation: RunInvocation, deltas: Deltas, site: SiteRecord) -> None:
    """Remove places older than the retention time, except those of unfinished passes. May be called again.

    An event reports the removed places. A failure is only a warning: the run continues, and the next run tries again.
    """
    world = invocation.world
    timeout_s = invocation.request.stall_timeout_s
    if await mount_findings(world, world.target, site.target, timeout_s):
        return  # The guards of the first pass report it.
    expire = partial(
        deltas.moves.expire, world.clock.now_s() - deltas.trash_keep_s, keep=unfinished_places(world.ledger)
    )
    try:
        expired = await world.blocking(expire, timeout_s=timeout_s)
    except TimeoutError:
        _warn(invocation, "expired places were not removed in time: the next run continues")
        return
    except (OSError, Refused) as error:
        why = error.message if isinstance(error, Refused) else error.strerror or error
        _warn(invocation, f"expired places are not removed: {why}")
        return
    if expired.places:
        message = (
            f"removed {several(expired.places, 'place')} older than {format_duration(deltas.trash_keep_s)}, "
            f"with {several(expired.names, 'name')}"
        )
        invocation.report(EventKind.TRASH_EXPIRED, Severity.INFO, _SUBJECT, message)
    for problem in expired.problems:
        _warn(invocation, problem)


def unfinished_places(ledger: "TransferLedger") -> frozenset[str]:
    """The trash places of all unfinished passes, which may still need them. An interrupted final pass needs its place
    only until its renames are complete, because it is never resumed.
    """
    return frozenset(
        trash_place(record.started_at_s, record.batch, record.kind.value, record.number)
        for plan in ledger.plans.names()
        for record in ledger.passes.of_plan(plan)
        if record.move_list is not None
        and record.state is not PassState.DONE
        and (record.kind is not PassKind.FINAL or bases.has_open_moves(record))
    )


def _warn(invocation: RunInvocation, message: str) -> None:
    invocation.report(EventKind.TRASH_EXPIRED, Severity.WARNING, _SUBJECT, message)
