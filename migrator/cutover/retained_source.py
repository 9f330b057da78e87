"""The source that is kept after a cutover: its changes, and its directories, which are closed."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from migrator.core.durable import write_durably
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.units import first_of, several
from migrator.cutover import model
from migrator.cutover.call import ActiveSession, CutoverDone
from migrator.cutover.late import KnownDirectory, LateWrites, close_block, directories_of
from migrator.cutover.rollback import noted_paths
from migrator.cutover.source_changes import SourceChange, SourceChangeKind
from migrator.fs.model import trash_place
from migrator.operations.engine import Done, reason_of

_SHOWN = 10
_SCANS = 3
"""The most scans of a kept source for late writes."""
_CHANGED_DIRECTORIES = "changed-directories"
"""A file in the directory of a rollback: directories whose owner or mode was changed before they were closed."""


async def retained_source_problem(session: ActiveSession, record: model.CutoverRecord) -> str:
    """Why changes of the retained source since the final pass prevent a rollback, as a sentence; empty if nothing does.

    No user is frozen meanwhile. A source that cannot be compared prevents the rollback too. If the request overwrites
    the source, its changes are kept in its trash.
    """
    if record.state not in (model.CutoverState.THAWED, model.CutoverState.RETAINED):
        return ""
    name, rollbacks = f"{show(record.tree.path)} on the source", session.call.rollbacks
    overwrite = session.call.request.overwrite_source
    try:
        _, changes = await _source_changes(session, record, final_catalog(session, record))
    except (MigratorError, OSError) as error:
        if not overwrite or isinstance(error, OSError):
            return f"the changes of {name} since the cutover are unknown: {reason_of(error)}"
        message = f"the changes of {name} are unknown, and are overwritten: {error.message}"
        session.emit(EventKind.CUTOVER_STEP, Severity.WARNING, record.subject(), message)
        return ""
    if not changes:
        return ""
    were = "was" if len(changes) == 1 else "were"
    words = f"{several(len(changes), 'path')} of {name} {were} changed since the cutover"
    listed = _listed(changes)
    if not overwrite:
        return f"{words}: {listed}"
    try:
        kept = await asyncio.to_thread(rollbacks.give_up_source, record, changes)
    except OSError as error:
        return f"{words}, and cannot be moved to the trash of the source: {error.strerror or error}"
    message = f"{words}, and {several(kept, 'path')} of these went to the trash of the source: {listed}"
    session.emit(EventKind.CUTOVER_STEP, Severity.WARNING, record.subject(), message)
    return ""


async def retain_source(session: ActiveSession, record: model.CutoverRecord) -> CutoverDone:
    """Close the kept source, then search it for late writes since the freeze began, and carry them over."""
    manifest = record.notes.manifest
    if model.CutoverState.ROLLBACK_FREEZING in record.times or manifest is None:
        # What a rollback carried back was not verified, so the source has to stay comparable.
        return Done(message="the source is kept as it was when it was frozen")
    before, found = final_catalog(session, record), 0
    noted = session.call.rollbacks.sites.directory_of(record) / _CHANGED_DIRECTORIES
    place = trash_place(session.now_s(), record.batch, "late", record.id)
    left: list[SourceChange] = []
    # Directories that were made late are closed after they were carried over; then once more.
    for _ in range(_SCANS):
        await change_directories(session, record, before, partial(close_block, noted=noted))
        now, changes = await _source_changes(session, record, before)
        if not changes:
            break
        writes = LateWrites(
            source=session.ports.source,
            target=session.ports.target,
            capabilities=session.capabilities,
            lane=session.ports.lanes[0],
            token=session.ports.tokens(),
            tree=record.tree.path,
            place=place,
            manifest=manifest,
            scratch=session.call.migration.scratch,
        )
        left += await writes.carry(changes)
        before, found = now, found + len(changes)
    listed = {one.path for one in left}
    changed = [path for path in await asyncio.to_thread(noted_paths, noted) if path not in listed]
    left += [SourceChange(path=path, kind=SourceChangeKind.CHANGED, stands=EntryType.DIRECTORY) for path in changed]
    found += len(changed)
    if not found:
        return Done(message="the source is closed, and has no changes since the freeze began")
    late = model.LateSum(paths=found, left=len(left))
    if left:
        list_file = Path(session.invocation.directory.path) / f"late-writes-{record.id}"
        lines = "".join(f"{one.kind.value} {show(one.path)}\n" for one in left)
        await asyncio.to_thread(write_durably, list_file, lines.encode())
        late = replace(late, list_file=str(list_file))
    words = late.words + (f": {_listed(left)}" if left else "")
    session.emit(EventKind.CUTOVER_STEP, Severity.WARNING, record.subject(), words)
    return Done(notes=model.CutoverNotes(late=late), message="the source is closed")


def _listed(changes: Sequence[SourceChange]) -> str:
    return first_of([f"{show(one.path)} ({one.kind.value})" for one in changes], _SHOWN, mark=";")


async def change_directories(
    session: ActiveSession,
    record: model.CutoverRecord,
    catalog_name: str,
    change: Callable[[bytes, Sequence[KnownDirectory]], None],
) -> None:
    """Close or open the directories of the kept source that are in a catalog. Raises OSError, MigratorError."""
    catalog = await asyncio.to_thread(session.call.migration.catalogs.open, catalog_name)
    blocks = directories_of(catalog, record.tree.path, session.call.migration.scratch)
    while block := await asyncio.to_thread(next, blocks, None):
        await session.blocking(partial(change, session.ports.source.root, block))


def final_catalog(session: ActiveSession, record: model.CutoverRecord) -> str:
    """The name of the catalog of the source that the final pass copied. Raises MigratorError."""
    if record.notes.final_pass_id is None:
        raise MigratorError("its final pass is not in the ledger")
    return session.ledger.passes.read(record.notes.final_pass_id).catalog


async def _source_changes(
    session: ActiveSession, record: model.CutoverRecord, before: str
) -> tuple[str, Sequence[SourceChange]]:
    """The catalog of the kept source now, and what has changed there since the catalog `before`."""
    now = await session.call.migration.deltas.scan([record.tree.path])
    return now.name, await asyncio.to_thread(session.call.rollbacks.changed_source, record, before=before, now=now.name)
