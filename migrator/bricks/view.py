"""The document of `brick list`."""

from collections.abc import Iterator

from migrator.bricks.model import BrickFacts, BrickListing, BrickState
from migrator.bricks.view_cells import count_text, size_text
from migrator.catalog.model import BrickUse
from migrator.core.units import format_count, format_size, several
from migrator.gluster.model import VolumeTask
from migrator.render import document
from migrator.render.document import figure, text, wide

_USES_SHOWN = 60
_OUTSIDE = "(outside every user tree)"


def brick_document(listing: BrickListing) -> document.Document:
    """Show every brick, its users, running tasks, and the known faults that apply to the volume."""
    versions = sorted(
        {version for version in (listing.gluster_version, *listing.versions.values()) if version is not None}
    )
    version = f"GlusterFS {' and '.join(versions)}" if versions else "GlusterFS of unknown version"
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
    (figure("size"), lambda brick: size_text(brick.room.total_bytes)),
    (figure("free"), lambda brick: size_text(brick.room.free_bytes)),
    (figure("free, %"), _free_percent),
    (figure("free inodes"), lambda brick: count_text(brick.room.free_inodes)),
    (figure("files"), lambda brick: count_text(brick.files)),
    (figure("bytes"), lambda brick: size_text(brick.size_bytes)),
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
        (figure("files"), lambda found: count_text(found[1].files)),
        (figure("bytes"), lambda found: size_text(found[1].size_bytes)),
        (figure("on disk"), lambda found: size_text(found[1].allocated_bytes)),
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
