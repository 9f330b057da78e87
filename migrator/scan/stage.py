"""`scan`: guards, the choice of the way, then a closed catalog."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import Catalogs
from migrator.core.clock import Clock
from migrator.core.entry import UserTree
from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.progress import Progress
from migrator.fs.ports import SourceFileSystem
from migrator.gluster.model import SourceHealth, VolumeState
from migrator.gluster.walks import BrickVolume, BrickWalks
from migrator.scan import bricks as brick_way
from migrator.scan import mount as mount_way
from migrator.scan.bricks import BrickTeam, BrickWay
from migrator.scan.mount import MountWay
from migrator.scan.rules import choose_way
from migrator.scan.session import ScanRequest, Session

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger

# --- Choice between bricks and mount


@dataclass(frozen=True, slots=True, kw_only=True)
class Bricks:
    """What a scan of bricks needs: the volume that they make up, and walks on their hosts."""

    volume: BrickVolume
    walks: BrickWalks


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeted:
    """Bricks that are ready to be walked. The team has to be stopped in the end."""

    volume: BrickVolume
    state: VolumeState
    team: BrickTeam


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """`greeted` None: the mount, and `reasons` say why not the bricks, where that was a question."""

    greeted: Greeted | None = None
    reasons: tuple[str, ...] = ()


async def choose(session: Session, bricks: Bricks | None, *, trees: Sequence[UserTree], before: SourceHealth) -> Way:
    """Decide, and say so. Raises Refused where the bricks were asked for by name and something speaks against them."""
    via = session.request.via
    if via == "mount" or (via == "auto" and bricks is None):
        return Way()
    if bricks is None:
        way = Way(reasons=("the source is no Gluster volume, so it has no bricks",))
    else:
        way = await _ask(session, bricks, trees, before)
    if way.greeted is None and via == "bricks":
        message = "the bricks are not to be read: " + "; ".join(way.reasons)
        session.event(EventKind.GUARD_REFUSED, Severity.ERROR, "scan", message)
        raise Refused(
            message,
            cause="what a brick holds is what the mount shows only while the whole volume is up, healed and quiet",
            hint="see to that, or run `migrator scan --via mount`, which is always right and slower",
        )
    if way.greeted is None:
        session.event(
            EventKind.BRICKS_UNFIT,
            Severity.INFO,
            "scan",
            "the mount is read, and not the bricks: " + "; ".join(way.reasons),
        )
    return way


async def _ask(session: Session, bricks: Bricks, trees: Sequence[UserTree], before: SourceHealth) -> Way:
    if not bricks.walks.hosts:
        return Way(
            reasons=("site.toml has no [source.hosts] sections: nothing says how the bricks' hosts are reached",)
        )
    if before.state is None:
        return Way(reasons=before.problems or ("the volume's state is not known",))
    try:
        state = await bricks.volume.state_for_bricks(before.state)
    except MigratorError as error:
        return Way(reasons=(f"the volume's state is not known: {error.message}",))
    wanted = sorted({brick.host for brick in state.bricks if not brick.arbiter} & set(bricks.walks.hosts))
    answers = await asyncio.gather(*(_reach(bricks.walks, host) for host in wanted))
    unreachable = {host: answer for host, answer in zip(wanted, answers, strict=True) if answer is not None}
    chosen = choose_way(state, reachable=[host for host in wanted if host not in unreachable], unreachable=unreachable)
    if chosen.reasons:
        return Way(reasons=chosen.reasons)
    team = BrickTeam(bricks.walks, chosen.bricks, state, times_from_mdata=chosen.times_from_mdata, clock=session.clock)
    try:
        reasons = await team.greet([tree.path for tree in trees], only_trees=bool(session.request.only))
    except BaseException:
        await team.stop()
        raise
    if reasons:
        await team.stop()
        return Way(reasons=reasons)
    return Way(greeted=Greeted(volume=bricks.volume, state=state, team=team))


async def _reach(walks: BrickWalks, host: str) -> str | None:
    """Why a host is not reached; None where it is."""
    try:
        await walks.reach(host)
    except MigratorError as error:
        return error.message
    return None


# --- The stage


_WAYS = ("auto", "bricks", "mount")


async def scan(
    request: ScanRequest,
    *,
    source: SourceFileSystem,
    ledger: "Ledger",
    catalogs: Catalogs,
    progress: Progress,
    clock: Clock,
    bricks: Bricks | None = None,
) -> CatalogRecord:
    """Read the source, or the trees `request.only` of it, into a catalog, and return its closing record: `whole`, or not
    with the reasons.

    `bricks` is None where the source has none. The caller holds the lock `scan`. On cancellation Interrupted is raised;
    what a scan of everything read through the mount is kept. Raises Refused where the source is not the recorded mount or is lost on the
    way, or where its bricks were asked for and cannot be trusted; UsageError for globs that cannot be.
    """
    if request.via not in _WAYS:
        raise UsageError(f"there is no way {request.via!r} to scan", hint=f"use one of {', '.join(_WAYS)}")
    site = ledger.site.read()
    if site is None:
        raise UsageError("the ledger knows no site yet", hint="run `migrator init` first")
    session = Session(
        request, site=site, source=source, ledger=ledger, catalogs=catalogs, progress=progress, clock=clock
    )
    await session.require_recorded_mount()
    await asyncio.to_thread(_clear_away_of_trees, session)
    closed = await asyncio.to_thread(_finish_closed, session)
    if closed is not None:
        return closed
    # One after the other: a glob that names nothing is told before glusterd is asked.
    trees = await asyncio.to_thread(session.find_trees)
    before = await source.health()
    way = await choose(session, bricks, trees=trees, before=before)
    await asyncio.to_thread(_say_what_starts_over, session, way)
    if way.greeted is None:
        return await MountWay(session, trees=trees, before=before, way_reasons=way.reasons).run()
    greeted = way.greeted
    try:
        return await BrickWay(
            session, greeted.volume, greeted.team, trees=trees, before=before, state=greeted.state
        ).run()
    finally:
        await greeted.team.stop()


def _clear_away_of_trees(session: Session) -> None:
    """Scans of some trees alone that were killed: nothing goes on with them. One that was closed is told the ledger."""
    for left in session.ledger.scans.unfinished_of_trees():
        try:
            closed = session.catalogs.closing_record(left.name)
        except Refused:
            # Damaged since: `verify`, which reads every catalog, says so. It stands in nobody else's way.
            continue
        if closed is None:
            session.catalogs.discard(left.name)
        else:
            session.ledger.scans.finish(closed)


def _finish_closed(session: Session) -> CatalogRecord | None:
    """A scan that was killed between its closing record and the ledger is over: only the ledger has to be told."""
    unfinished = None if session.request.begins_anew else session.ledger.scans.unfinished()
    closed = None if unfinished is None else session.catalogs.closing_record(unfinished.name)
    if closed is not None:
        session.finish(closed)
    return closed


def _say_what_starts_over(session: Session, way: Way) -> None:
    """Only a scan of the mount can be gone on with, and only through the mount."""
    unfinished = None if session.request.begins_anew else session.ledger.scans.unfinished()
    if unfinished is None:
        return
    if unfinished.via == brick_way.VIA:
        session.catalogs.discard(unfinished.name)
        said = "a scan of the bricks was stopped before its end: it starts over"
    elif unfinished.via == mount_way.VIA and way.greeted is not None:
        said = "a scan through the mount was stopped before its end: a new one reads the bricks instead"
    else:
        return
    session.event(EventKind.SCAN_STARTED, Severity.INFO, unfinished.name, said)
