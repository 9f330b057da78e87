"""Which way a scan takes: the bricks, where everything speaks for them, or the mount."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.decide.scan_way import choose_way
from migrator.domain.brick import SourceHealth, VolumeState
from migrator.domain.errors import MigratorError, Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.tree import UserTree
from migrator.ports.bricks import BrickVolume, BrickWalks
from migrator.stages.scan.brick_team import BrickTeam
from migrator.stages.scan.session import Session


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
