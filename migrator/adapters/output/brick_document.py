"""The bricks of a volume, for people."""

from collections.abc import Iterator

from migrator.adapters.output.document import (
    Block,
    Document,
    Section,
    clean,
    facts,
    figure,
    paragraph,
    table,
    text,
    wide,
)
from migrator.adapters.output.wording import NONE, percent, when
from migrator.domain.brick_list import BrickFacts, BrickListing, BrickState, TaskFacts
from migrator.domain.units import format_count, format_size, several

_USES_SHOWN = 60
_OUTSIDE = "(outside every user tree)"


def brick_document(listing: BrickListing) -> Document:
    """Every brick; then who uses them, what moves files now, and the known faults of this version of GlusterFS."""
    sections = [Section(title="Bricks", blocks=tuple(_bricks(listing)))]
    if any(brick.uses for brick in listing.bricks):
        sections.append(Section(title="Who uses them", blocks=tuple(_uses(listing))))
    sections.append(Section(title="Tasks", blocks=tuple(_tasks(listing))))
    sections.append(Section(title="Known faults of this version", blocks=tuple(_faults(listing))))
    told = sorted({version for version in (listing.gluster_version, *listing.versions.values()) if version is not None})
    version = f"GlusterFS {' and '.join(told)}" if told else "GlusterFS of unknown version"
    return Document(
        title=clean(f"Volume {listing.volume}"),
        subtitle=clean(f"{listing.volume_type}, {version}"),
        sections=tuple(sections),
    )


def _bricks(listing: BrickListing) -> Iterator[Block]:
    columns = [
        wide("brick"),
        figure("set"),
        text("state"),
        text("device"),
        text("fs"),
        figure("size"),
        figure("free"),
        figure("free, %"),
        figure("free inodes"),
        figure("files"),
        figure("bytes"),
    ]
    yield table("", columns, [_brick(brick) for brick in listing.bricks])
    down = [brick.name for brick in listing.bricks if brick.state is not BrickState.UP]
    if down and listing.started:
        yield paragraph(
            f"Not seen to be up: {', '.join(down)}. The mount shows fewer files then, and no error.", alert=True
        )
    if listing.peers_down:
        yield paragraph(f"Hosts that are not connected: {', '.join(listing.peers_down)}.", alert=True)
    pairs = [] if listing.user is None else [("only user", listing.user)]
    if listing.catalog is not None:
        pairs.append(("files and bytes", f"of catalog {listing.catalog}, {when(listing.catalog_at_s)}"))
    if pairs:
        yield facts(pairs)
    yield from (paragraph(f"{note[:1].upper()}{note[1:]}.") for note in listing.notes)


def _brick(brick: BrickFacts) -> tuple[str, ...]:
    room = brick.room
    share = None
    if room.free_bytes is not None and room.total_bytes:
        share = 100.0 * room.free_bytes / room.total_bytes
    return (
        brick.name + (" (arbiter)" if brick.arbiter else ""),
        str(brick.subvolume),
        brick.state.value + (", draining" if brick.draining else ""),
        room.device or NONE,
        room.filesystem or NONE,
        _size(room.total_bytes),
        _size(room.free_bytes),
        percent(share).removesuffix(" %"),
        _count(room.free_inodes),
        _count(brick.files),
        _size(brick.size_bytes),
    )


def _uses(listing: BrickListing) -> Iterator[Block]:
    rows = [
        (
            brick.name,
            use.user if use.user is not None else _OUTSIDE,
            _count(use.files),
            _size(use.size_bytes),
            _size(use.allocated_bytes),
        )
        for brick in listing.bricks
        for use in brick.uses or ()
    ]
    columns = [wide("brick"), wide("user"), figure("files"), figure("bytes"), figure("on disk")]
    yield table("", columns, rows, limit=_USES_SHOWN, note="A hard-linked file's bytes count once.")


def _tasks(listing: BrickListing) -> Iterator[Block]:
    if not listing.tasks:
        yield paragraph("Nothing moves files, and nothing waits for a commit." if listing.started else "Not known.")
        return
    columns = [
        text("task"),
        wide("bricks"),
        text("state"),
        figure("moved"),
        figure("bytes"),
        figure("failures"),
        figure("skipped"),
        wide("id"),
    ]
    yield table("", columns, [_task(task) for task in listing.tasks])


def _task(task: TaskFacts) -> tuple[str, ...]:
    counters = task.counters
    if counters:
        sums = (
            _count(sum(one.files for one in counters)),
            _size(sum(one.size_bytes for one in counters)),
            _count(sum(one.failures for one in counters)),
            _count(sum(one.skipped for one in counters)),
        )
    else:
        sums = (NONE,) * 4
    return (task.name, ", ".join(task.bricks) or NONE, task.status.value, *sums, task.id)


def _faults(listing: BrickListing) -> Iterator[Block]:
    stopping = sum(fault.stops_drain for fault in listing.faults)
    if stopping:
        yield paragraph(f"{several(stopping, 'fault')} of this version stop every drain.", alert=True)
    columns = [wide("what happens"), wide("what to do"), text("versions"), wide("reported as")]
    rows = [(fault.fault, fault.advice, fault.versions, fault.reference or NONE) for fault in listing.faults]
    yield table("", columns, rows)


def _size(size_bytes: int | None) -> str:
    return NONE if size_bytes is None else format_size(size_bytes)


def _count(count: int | None) -> str:
    return NONE if count is None else format_count(count)
