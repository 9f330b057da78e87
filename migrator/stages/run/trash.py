"""Removing what has lain in the target's trash for long enough, before delta passes add to it."""

from functools import partial

from migrator.domain.errors import Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.states import PassKind, PassState
from migrator.domain.trash import trash_place
from migrator.domain.units import format_duration, several
from migrator.ports.ledger import Ledger
from migrator.ports.site import SiteRecord
from migrator.stages.run.bases import has_open_moves
from migrator.stages.run.context import Invocation
from migrator.stages.run.delta import Deltas
from migrator.stages.run.guards import mount_findings

_SUBJECT = "the trash of the target"


async def expire_trash(invocation: Invocation, deltas: Deltas, site: SiteRecord) -> None:
    """Remove the places that are older than they are kept, except for those of passes that have not gone through.

    An event says what went. What stays is told as a warning and tried again by the next run: it is no reason not to copy.
    May be called again.
    """
    world = invocation.world
    timeout_s = invocation.request.stall_timeout_s
    if await mount_findings(world, world.target, site.target, timeout_s):
        return  # The guards of the first pass say so.
    expire = partial(
        deltas.moves.expire, world.clock.now_s() - deltas.trash_keep_s, keep=unfinished_places(world.ledger)
    )
    try:
        expired = await world.blocking(expire, timeout_s=timeout_s)
    except TimeoutError:
        _warn(invocation, "what is too old was not removed in time: the next run goes on with it")
        return
    except OSError as error:
        _warn(invocation, f"what is too old is not removed: {error.strerror or error}")
        return
    except Refused as refused:
        _warn(invocation, refused.message)
        return
    if expired.places:
        message = (
            f"removed {several(expired.places, 'place')} older than {format_duration(deltas.trash_keep_s)}, "
            f"with {several(expired.names, 'name')}"
        )
        invocation.say(EventKind.TRASH_EXPIRED, Severity.INFO, _SUBJECT, message)
    for problem in expired.problems:
        _warn(invocation, problem)


def unfinished_places(ledger: Ledger) -> frozenset[str]:
    """The places in the trash of all passes that have not gone through: what lies there may be needed yet. Of a final pass
    that was cut off nothing is, once its renames are made: it is never gone on with.
    """
    return frozenset(
        trash_place(record.started_at_s, record.batch, record.kind.value, record.number)
        for plan in ledger.plans.names()
        for record in ledger.passes.of_plan(plan)
        if record.move_list is not None
        and record.state is not PassState.DONE
        and (record.kind is not PassKind.FINAL or has_open_moves(record))
    )


def _warn(invocation: Invocation, message: str) -> None:
    invocation.say(EventKind.TRASH_EXPIRED, Severity.WARNING, _SUBJECT, message)
