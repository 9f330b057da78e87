"""Rendering of bricks, drains, additions and retirements."""

from collections.abc import Iterator, Sequence
from operator import itemgetter

from migrator.bricks.add.model import AdditionSide, AdditionStanding, AdditionSummary
from migrator.bricks.drain.model import DrainCheck, DrainStanding, DrainSummary
from migrator.bricks.drain.rules_preflight import describe_retained
from migrator.bricks.model import BrickFacts, BrickListing, BrickState, CallEnding
from migrator.bricks.retire import model as retire
from migrator.bricks.status import BrickStandings
from migrator.catalog.model import BrickUse
from migrator.core.paths import show
from migrator.core.units import format_count, format_duration, format_rate, format_size, several
from migrator.gluster.model import BrickRoom, ListedDirectory, NewPlace, VolumeTask
from migrator.render import document
from migrator.render.document import figure, paths, text, wide

# ---
# The bricks of a volume.


_USES_SHOWN = 60
_OUTSIDE = "(outside every user tree)"
_UNKNOWN = "unknown"


def brick_document(listing: BrickListing) -> document.Document:
    """Show every brick, its users, running tasks, and the known faults that apply to the volume."""
    told = sorted({version for version in (listing.gluster_version, *listing.versions.values()) if version is not None})
    version = f"GlusterFS {' and '.join(told)}" if told else "GlusterFS of unknown version"
    return document.page(
        f"Volume {listing.volume}",
        ("Bricks", _bricks(listing)),
        ("Use by users", [_uses(listing)]),
        ("Tasks", _tasks(listing)),
        ("Known faults that apply to this volume", _faults(listing)),
        subtitle=f"{listing.volume_type}, {version}",
    )


def _free_percent(brick: BrickFacts) -> str:
    free, total = brick.room.free_bytes, brick.room.total_bytes
    return document.percent(100.0 * free / total if free is not None and total else None).removesuffix(" %")


_BRICK: document.Cells[BrickFacts] = (
    (wide("brick"), lambda brick: brick.name + (" (arbiter)" if brick.arbiter else "")),
    (figure("set"), lambda brick: str(brick.subvolume)),
    (text("state"), lambda brick: brick.state.value + (", draining" if brick.draining else "")),
    (text("device"), lambda brick: brick.room.device or document.NONE),
    (text("fs"), lambda brick: brick.room.filesystem or document.NONE),
    (figure("size"), lambda brick: _size(brick.room.total_bytes)),
    (figure("free"), lambda brick: _size(brick.room.free_bytes)),
    (figure("free, %"), _free_percent),
    (figure("free inodes"), lambda brick: _count(brick.room.free_inodes)),
    (figure("files"), lambda brick: _count(brick.files)),
    (figure("bytes"), lambda brick: _size(brick.size_bytes)),
)


def _bricks(listing: BrickListing) -> Iterator[document.Block]:
    yield document.records("", _BRICK, listing.bricks)
    down = [brick.name for brick in listing.bricks if brick.state is not BrickState.UP]
    if down and listing.started:
        yield document.paragraph(
            f"Not seen to be up: {', '.join(down)}. The mount shows fewer files then, and no error.", alert=True
        )
    if listing.peers_down:
        yield document.paragraph(f"Hosts that are not connected: {', '.join(listing.peers_down)}.", alert=True)
    pairs = [] if listing.user is None else [("only user", listing.user)]
    if listing.catalog is not None:
        pairs.append(("files and bytes", f"of catalog {listing.catalog}, {document.when(listing.catalog_at_s)}"))
    if pairs:
        yield document.facts(pairs)
    yield from (document.paragraph(f"{note[:1].upper()}{note[1:]}.") for note in listing.notes)


def _uses(listing: BrickListing) -> document.Block:
    cells: document.Cells[tuple[str, BrickUse]] = (
        (wide("brick"), lambda found: found[0]),
        (wide("user"), lambda found: found[1].user or _OUTSIDE),
        (figure("files"), lambda found: _count(found[1].files)),
        (figure("bytes"), lambda found: _size(found[1].size_bytes)),
        (figure("on disk"), lambda found: _size(found[1].allocated_bytes)),
    )
    uses = ((brick.name, use) for brick in listing.bricks for use in brick.uses or ())
    return document.records("", cells, uses, limit=_USES_SHOWN, note="A hard-linked file's bytes count once.")


def _tasks(listing: BrickListing) -> Iterator[document.Block]:
    if not listing.tasks:
        yield document.paragraph("No task runs, and none waits for a commit." if listing.started else "Unknown.")
        return
    columns = [text("task"), wide("bricks"), text("state")]
    columns += [*map(figure, ("moved", "bytes", "failures", "skipped")), wide("id")]
    yield document.table("", columns, [_task(task) for task in listing.tasks])


def _task(task: VolumeTask) -> tuple[str, ...]:
    sums = (document.NONE,) * 4
    if task.counters:
        counted = [(one.files, one.size_bytes, one.failures, one.skipped) for one in task.counters]
        files, size_bytes, failures, skipped = map(sum, zip(*counted, strict=True))
        sums = (format_count(files), format_size(size_bytes), format_count(failures), format_count(skipped))
    return (task.name, ", ".join(task.bricks) or document.NONE, task.status.value, *sums, task.id)


def _faults(listing: BrickListing) -> Iterator[document.Block]:
    stopping = sum(fault.stops_drain for fault in listing.faults)
    if stopping:
        yield document.paragraph(f"{several(stopping, 'fault')} of this version stop every drain.", alert=True)
    columns = [wide("fault"), wide("advice"), text("versions"), wide("reported as")]
    rows = [(fault.fault, fault.advice, fault.versions, fault.reference or document.NONE) for fault in listing.faults]
    yield document.table("", columns, rows)


def _size(size_bytes: int | None, unknown: str = document.NONE) -> str:
    return unknown if size_bytes is None else format_size(size_bytes)


def _count(count: int | None, unknown: str = document.NONE) -> str:
    return unknown if count is None else format_count(count)


def _pace(looked_at: str) -> document.Cells[AdditionStanding | DrainStanding]:
    """The columns that end a table of additions or drains."""
    return (
        (figure("failures"), lambda one: format_count(one.failures)),
        (figure("skipped"), lambda one: format_count(one.skipped)),
        (figure("rate"), lambda one: document.known(one.bytes_per_s, format_rate)),
        (figure("time left"), lambda one: document.known(one.left_s, format_duration)),
        (text(looked_at), lambda one: document.when(one.looked_at_s)),
    )


# ---
# Results of additions of bricks.


_DIRECTORIES = 50


def addition_document(summary: AdditionSummary) -> document.Document:
    """Show the full result of an addition."""
    return document.page("Adding bricks, dry run" if summary.dry_run else "Adding bricks", ("", _blocks(summary)))


def _place(instead_of: str, bricks: Sequence[str]) -> str:
    """Say which brick the new one replaces."""
    return "its own place" if instead_of in bricks else f"the place of {instead_of}"


def _new_bricks(one: AdditionStanding) -> str:
    instead = "" if one.instead_of is None else f" in {_place(one.instead_of, one.bricks)}"
    return ", ".join(one.bricks) + instead


def _looked_at(one: AdditionStanding) -> str:
    return format_count(one.lookups) + ("" if one.files is None else f" of {format_count(one.files)}")


_ADDITION: document.Cells[AdditionStanding] = (
    (wide("bricks"), _new_bricks),
    (text("to"), lambda one: f"the {one.side.value}"),
    (text("state"), lambda one: one.state.value),
    (text("since"), lambda one: document.when(one.since_s)),
    (figure("size"), lambda one: _size(one.size_bytes)),
    (figure("looked at"), _looked_at),
    (figure("moved"), lambda one: format_count(one.moved_files)),
    (figure("bytes"), lambda one: format_size(one.moved_bytes)),
    *_pace("last look"),
)


def addition_table(additions: Sequence[AdditionStanding]) -> document.Block:
    """Show the progress of each addition."""
    return document.records("", _ADDITION, additions)


def directory_tables(directories: Sequence[ListedDirectory]) -> Iterator[document.Block]:
    """Show directories that lost owner or mode on new bricks and wait for an admin, if any."""
    if directories:
        columns = [wide("directory"), wide("reason"), wide("command")]
        rows = [(show(one.path), one.reason, one.command) for one in directories]
        yield document.table("Directories that wait for an admin", columns, rows, limit=_DIRECTORIES)


def _blocks(summary: AdditionSummary) -> Iterator[document.Block]:
    bad = summary.ending in (CallEnding.HALTED, CallEnding.STUCK, CallEnding.DOUBTED)
    yield document.paragraph(summary.words, alert=bad)
    for reason in summary.reasons:
        yield document.paragraph(reason, alert=True)
    if summary.hint:
        yield document.paragraph(summary.hint)
    pairs = [("bricks", ", ".join(summary.bricks)), ("to", f"the {summary.side.value}"), ("state", summary.state.value)]
    if summary.instead_of is not None:
        pairs.append(("in", _place(summary.instead_of, summary.bricks)))
    if summary.size_bytes is not None:
        pairs.append(("size", format_size(summary.size_bytes)))
    if summary.moved_files or summary.failures or summary.skipped:
        pairs.append(("moved", f"{several(summary.moved_files, 'file')}, {format_size(summary.moved_bytes)}"))
        pairs.append(("failures", format_count(summary.failures)))
        pairs.append(("skipped", format_count(summary.skipped)))
    yield document.facts(pairs)
    yield from directory_tables(summary.directories)
    # By then the target's new bricks are mounted elsewhere.
    given = summary.side is AdditionSide.TARGET and summary.ending is CallEnding.DONE
    if summary.places and not given:
        columns = [wide("brick"), *map(text, ("mounted at", "device", "file system")), figure("size"), wide("holds")]
        yield document.table("", columns, [_addition_document_row(place) for place in summary.places])


def _addition_document_row(place: NewPlace) -> tuple[str, ...]:
    if place.unread:
        return (place.name, *(document.NONE,) * 4, f"unknown: {place.unread}")
    holds = ", ".join(place.entries) or ("marks of a brick" if place.stale else "nothing")
    return (
        place.name,
        place.mount if place.own else f"{place.mount} (not its own)",
        place.device or document.NONE,
        place.filesystem or document.NONE,
        _size(place.total_bytes),
        holds,
    )


# ---
# Drains of bricks.


_GOOD = (CallEnding.DONE, CallEnding.TAKEN_BACK, CallEnding.PLANNED)


def drain_document(summary: DrainSummary) -> document.Document:
    """Show the result of a call, or of a dry run."""
    title = "Stopped drain" if summary.back else "Drain"
    standing = summary.standing if summary.standing is not None and summary.standing.id else None
    return document.page(
        f"{title}, a dry run: nothing was changed" if summary.dry_run else title,
        ("Result", _result(summary)),
        ("Preflight checks", () if summary.check is None else _check(summary.check)),
        ("Progress", [drain_table(() if standing is None else (standing,))]),
        subtitle=f"{', '.join(summary.bricks)} of volume {summary.volume}",
    )


def brick_standings_document(bricks: BrickStandings) -> document.Document:
    """Show all drains and additions in the ledger."""
    drains: list[document.Block] = (
        [drain_table(bricks.drains)] if bricks.drains else [document.paragraph("No brick was ever drained.")]
    )
    added: list[document.Block] = (
        [addition_table(bricks.additions)] if bricks.additions else [document.paragraph("No brick was added.")]
    )
    for blocks, every in ((drains, bricks.drains), (added, bricks.additions)):
        blocks += [
            document.paragraph(f"{', '.join(one.bricks)}: {one.failure}", alert=True) for one in every if one.failure
        ]
    for one in bricks.additions:
        added += directory_tables(one.directories)
    return document.page(
        "Drains and additions of bricks", ("Drains", drains), ("Additions", added), subtitle="by the ledger"
    )


_DRAIN: document.Cells[DrainStanding] = (
    (wide("bricks"), lambda one: ", ".join(one.bricks)),
    (text("state"), lambda one: one.state.value),
    (text("since"), lambda one: document.when(one.since_s)),
    (figure("moved"), lambda one: format_count(one.moved_files)),
    (figure("bytes"), lambda one: format_size(one.moved_bytes)),
    (figure("files left"), lambda one: _count(one.left_files)),
    (figure("bytes left"), lambda one: _size(one.left_bytes)),
    *_pace("looked at"),
)


def drain_table(drains: Sequence[DrainStanding]) -> document.Block:
    """Show the progress of each drain."""
    return document.records("", _DRAIN, drains)


def _result(summary: DrainSummary) -> Iterator[document.Block]:
    yield document.paragraph(summary.words, alert=summary.ending not in _GOOD)
    for reason in summary.reasons:
        yield document.paragraph(reason, alert=True)
    if summary.left_behind:
        yield document.table("Left on the bricks", [paths("path")], [(show(path),) for path in summary.left_behind])
        if summary.left_file is not None:
            yield document.paragraph(f"All of them, brick by brick: {summary.left_file}")
        if summary.commands_file is not None:
            yield document.paragraph(f"The evidence and the commands for each: {summary.commands_file}")
        yield document.paragraph(
            "Gluster's rebalance log on the host has the reason for each file. Fix it, and run the same command again: it drains the "
            "rest. Or stop the drain with `migrator brick stop`. Never commit with force."
        )
    if summary.hint:
        yield document.paragraph(f"Next: {summary.hint}.")
    if summary.confirm is not None and summary.dry_run:
        yield document.paragraph(f"The confirmation word for the pre-wipe hooks: {summary.confirm}.")
    for problem in summary.wipe_problems:
        yield document.paragraph(f"Hooks may not wipe it: {problem}.", alert=True)


def _check(check: DrainCheck) -> Iterator[document.Block]:
    told = [f"{host}: {version or _UNKNOWN}" for host, version in sorted(check.versions.items())]
    links, retained = check.linked_symlinks, check.retained
    yield document.facts(
        [
            ("on the disks", _size(check.used_bytes, _UNKNOWN)),
            ("inodes in use", _count(check.used_inodes, _UNKNOWN)),
            ("files", _count(check.files, _UNKNOWN)),
            ("bytes", _size(check.size_bytes, _UNKNOWN)),
            ("largest file", _size(check.largest_bytes, _UNKNOWN)),
            (
                "by catalog",
                document.NONE if check.catalog is None else f"{check.catalog}, {document.when(check.catalog_at_s)}",
            ),
            ("cluster.min-free-disk", check.min_free_disk or _UNKNOWN),
            ("GlusterFS", ", ".join(told) or _UNKNOWN),
            ("open files", _count(check.open_files, _UNKNOWN)),
            ("symlinks with several names", format_count(len(links))),
            (
                "sources of users on the target",
                f"{describe_retained(retained)}: they are moved for nothing" if retained else "none",
            ),
        ]
    )
    if links:
        yield document.table(
            "Symlinks that cannot be moved", [paths("path")], [(show(path),) for path in links], limit=40
        )
        yield document.paragraph(
            "Give each of these names a symlink of its own: `cp -P NAME NAME.new`, then `mv -T NAME.new NAME`."
        )
    if check.rooms:
        cells: document.Cells[tuple[str, BrickRoom]] = (
            (wide("brick that stays"), lambda found: found[0]),
            (figure("size"), lambda found: _size(found[1].total_bytes, _UNKNOWN)),
            (figure("free"), lambda found: _size(found[1].free_bytes, _UNKNOWN)),
            (figure("free inodes"), lambda found: _count(found[1].free_inodes, _UNKNOWN)),
        )
        yield document.records("", cells, sorted(check.rooms.items(), key=itemgetter(0)))


# ---
# Results of retirements of the source volume.


_KINDS = {
    retire.UncoveredKind.OUTSIDE: "in no user tree",
    retire.UncoveredKind.NOT_MOVED: "of users who were not cut over",
    retire.UncoveredKind.UNPROVEN: "in trees whose manifest does not count",
    retire.UncoveredKind.NEW: "not in the manifest of their tree",
    retire.UncoveredKind.CHANGED: "changed since the verification",
    retire.UncoveredKind.CONTENT: "without a proof of their content",
}
_STATES = {
    retire.RetirementState.RETIRING: "it was about to be stopped: the same command resumes",
    retire.RetirementState.STOPPING: "it was just about to be stopped: the same command resumes",
    retire.RetirementState.RETIRED: "retired: stopped for good",
    retire.RetirementState.GIVEN_UP: "not retired: the attempt was given up",
}


def retirement_document(summary: retire.RetirementSummary) -> document.Document:
    """Show the full result of a retirement."""
    title = "Retiring the volume, dry run" if summary.dry_run else "Retiring the volume"
    return document.page(title, ("", _retirement_document_blocks(summary)), subtitle=summary.volume)


def retirement_facts(record: retire.Retirement) -> document.NamedValues:
    """Return the state of an attempt, for reports."""
    pairs = [
        ("volume", record.volume),
        ("state", _STATES[record.state]),
        ("begun", document.when(record.times[retire.RetirementState.RETIRING])),
        ("ended", document.when(None if record.state in retire.UNDER_WAY else record.since_s)),
        ("proven on the target", f"{format_count(record.files)} paths, {format_size(record.size_bytes)}"),
    ]
    if record.failure:
        pairs.append(("why", record.failure))
    return document.facts(pairs)


def _retirement_document_blocks(summary: retire.RetirementSummary) -> Iterator[document.Block]:
    yield document.paragraph(summary.words, alert=summary.ending is CallEnding.HALTED)
    for reason in summary.reasons:
        yield document.paragraph(reason, alert=True)
    if summary.cover is not None:
        yield from _cover(summary.cover)
    if summary.hint:
        yield document.paragraph(
            f"Next: {summary.hint}." if summary.ending is CallEnding.HALTED else f"Note: {summary.hint}."
        )


def _cover(cover: retire.CoverFound) -> Iterator[document.Block]:
    yield document.facts(
        [
            ("catalog", f"{cover.catalog}, begun {document.when(cover.catalog_at_s)}"),
            ("proven", _sum(cover.proven)),
            ("of these read again", _sum(cover.read)),
            ("this program's own", _sum(cover.own)),
        ]
    )
    if not cover.uncovered:
        return
    rows = [
        (_KINDS[kind], format_count(one.paths), format_size(one.size_bytes)) for kind, one in cover.uncovered.items()
    ]
    yield document.table(
        "Not proven to be on the target",
        [text("which"), figure("paths"), figure("bytes")],
        rows,
    )
    listed = [(show(one.path), one.words) for one in cover.examples]
    note = "" if cover.list_file is None else f"All of them, percent-escaped: {cover.list_file}"
    yield document.table("The first of each kind", [paths("path"), paths("why")], listed, note=note)


def _sum(found: retire.PathSum) -> str:
    return f"{format_count(found.paths)} paths, {format_size(found.size_bytes)}"
