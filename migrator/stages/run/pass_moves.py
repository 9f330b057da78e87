"""The renames and deletions of one pass after the seed: carried out once, and told."""

from migrator.domain.entry import EntryType
from migrator.domain.events import EventKind, Severity
from migrator.domain.site import TargetCapabilities
from migrator.domain.transfer import FileProblem, FileProblemKind, StopReason
from migrator.domain.trash import trash_place
from migrator.domain.units import several
from migrator.ports.chunks import ProblemRecords
from migrator.ports.move_lists import MoveLists
from migrator.ports.passes import PassRecord
from migrator.ports.target_moves import TargetMoves
from migrator.stages.run.context import PassUnderWay
from migrator.stages.run.moving import Moved, MovingWorld, apply_moves

_NOT_RENAMED = "renamed on the source, and not found as it was on the target: the next pass sends it"


async def carry_out_moves(
    under_way: PassUnderWay,
    record: PassRecord,
    capabilities: TargetCapabilities,
    *,
    title: str,
    moves: TargetMoves,
    lists: MoveLists,
) -> None:
    """Carry the move list of a pass out, unless that was done before; a stop is in `under_way`. To be called again after
    any crash. What could not be renamed is noted with the pass, so that the next one sends it. Raises Refused.
    """
    world, batch = under_way.world, under_way.batch.number
    if record.moved_at_s is not None or record.move_list is None:
        return
    moved = await apply_moves(
        MovingWorld(
            source=world.source,
            moves=moves,
            lists=lists,
            capabilities=capabilities,
            blocking=world.blocking,
            sync=under_way.sync.begun_after_now,
            health=under_way.health.begun_after_now,
            timeout_s=under_way.request.stall_timeout_s,
        ),
        move_list=record.move_list,
        digest=record.move_list_digest or "",
        place=trash_place(record.started_at_s, batch, record.kind.value, record.number),
    )
    _say_moved(under_way, title, moved)
    if moved.stop is not None:
        reason, detail = moved.stop
        words = await under_way.storage.full_words() if reason is StopReason.TARGET_FULL and under_way.storage else ""
        under_way.stop(reason, f"{detail}; {words}" if words else detail)
        return
    world.ledger.passes.note(record.id, _not_renamed(moved), world.clock.now_s())
    world.ledger.passes.moves_done(record.id, world.clock.now_s())


def only_not_renamed(passes: ProblemRecords, pass_id: int) -> bool:
    """Whether nothing but paths that could not be renamed on the target count as changed in a pass. They changed before it
    began, and the next one sends them.
    """
    changed = passes.attention(pass_id, FileProblemKind.CHANGED)
    return bool(changed) and all(problem.reason == _NOT_RENAMED for problem in changed)


def _say_moved(under_way: PassUnderWay, title: str, moved: Moved) -> None:
    said = [
        f"{several(count, 'path', 'paths')} {what}"
        for count, what in (
            (moved.renamed, "renamed"),
            (moved.trashed, "moved to the trash"),
            (moved.displaced, "in the way of others, moved to the trash"),
            (moved.reappeared, "on the source again, left alone"),
            (moved.doubtful, "not known to be gone, left alone"),
            (len(moved.to_send), "to be sent with the next pass instead of being renamed"),
        )
        if count
    ]
    if said:
        batch = under_way.batch.number
        severity = Severity.WARNING if moved.doubtful or moved.to_send else Severity.INFO
        message = f"{title} over batch {batch}, on the target: {'; '.join(said)}"
        under_way.invocation.say(EventKind.PASS_MOVED, severity, f"batch {batch}", message)


def _not_renamed(moved: Moved) -> list[FileProblem]:
    """Of a directory everything in it has to be sent: its whole tree is, since that is rare."""
    paths = {one.tree if one.type is EntryType.DIRECTORY else one.new for one in moved.to_send}
    return [
        FileProblem(path=path, kind=FileProblemKind.CHANGED, errno=None, reason=_NOT_RENAMED) for path in sorted(paths)
    ]
