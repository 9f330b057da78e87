"""What an audit of drained bricks counts: blocks of names as a walk hands them out."""

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.bricks.drain.audit import LeftListFile, audit_bricks
from migrator.bricks.drain.model import DrainState
from migrator.bricks.drain.model_audit import DrainAudit
from migrator.bricks.drain.rules_audit import MOST_EXAMPLES, bricks_to_audit
from migrator.catalog.walk_rows import BrickEntry
from migrator.core.entry import EntryType
from migrator.core.errors import ToolFailed
from migrator.core.paths import percent_unescape
from migrator.gluster.model import Brick, PlaceSeen
from migrator.gluster.walks import BrickHello, BrickListener, BrickTotals
from tests.support.fakes import VirtualClock

VOLUME_ID = "v"
BRICK = Brick(name="gl3:/b", host="gl3", path=b"/b", online=True)


class Walks:
    """Bricks with these names. The `BrickWalks` port. `wiped` are bricks no more."""

    wiped: Collection[str] = ()
    volume_id = VOLUME_ID
    hosts: Collection[str] = ("gl3",)

    def __init__(self, *names: bytes) -> None:
        self._names = names

    async def reach(self, host: str) -> None: ...

    async def walk(self, brick: Brick, *, listener: BrickListener, own: bool = False, **_: Any) -> BrickTotals:
        if brick.name in self.wiped:
            raise ToolFailed(f"{brick.name} is no root of a brick")
        await listener.hello(BrickHello(volume_id=self.volume_id, root_gfid=bytes(15) + b"\1", device=7))
        names = [name for name in self._names if own or not name.startswith(b".migrator-")]
        if names:
            await listener.rows(memoryview(b"\0".join(names)))
        return BrickTotals(rows=len(names), directories=1, problems=0)


def block(payload: memoryview) -> Sequence[BrickEntry]:
    return [BrickEntry(path, EntryType.FILE, 5, bytes(16), 1) for path in bytes(payload).split(b"\0")]


def audited(names: Sequence[bytes], left: LeftListFile | None = None) -> DrainAudit:
    return asyncio.run(
        audit_bricks(
            (BRICK,),
            volume_id=VOLUME_ID,
            walks=Walks(*names),  # type: ignore[arg-type]
            read_block=block,
            clock=VirtualClock(),
            left=left,
        )
    )


@pytest.mark.guarantee("drain-commit")
def test_an_empty_directory_in_the_place_of_a_brick_proves_nothing() -> None:
    walks = Walks()
    walks.volume_id = "another"
    audit = asyncio.run(
        audit_bricks((BRICK,), volume_id=VOLUME_ID, walks=walks, read_block=block, clock=VirtualClock())  # type: ignore[arg-type]
    )
    assert (audit.left, audit.whole, len(audit.reasons)) == (0, False, 1)


def test_kept_paths_of_a_purge_are_leftovers() -> None:
    kept = b".migrator-purge/cutover-000001/tree/thesis"
    audit = audited((kept, b".migrator-bench/0123/file", b".migrator-sentinel"))
    assert (audit.left, audit.clean) == (3, False)
    assert kept in audit.examples


def test_probes_are_not_left_whatever_else_lies_with_them_is() -> None:
    probes = [b".migrator-probe/%s-%02d" % (kind, number) for kind in (b"entry", b"probe") for number in range(16)]
    assert audited((*probes, b".migrator-probe/complete")).clean
    many = [b"home/%d" % number for number in range(2 * MOST_EXAMPLES)]
    assert audited((*probes, *many)).left == len(many)
    audit = audited((*probes, b".migrator-probe/thesis"))
    assert (audit.left, audit.examples) == (1, (b".migrator-probe/thesis",))


def test_all_that_is_left_is_written_down_and_only_the_first_are_shown(tmp_path: Path) -> None:
    assert audited((), LeftListFile(str(tmp_path))).list_file is None
    assert list(tmp_path.iterdir()) == []
    names = [b"home/\xff %d\n" % number for number in range(5 * MOST_EXAMPLES)]
    audit = audited((*names, b".migrator-probe/entry-00"), LeftListFile(str(tmp_path)))
    assert len(audit.examples) == MOST_EXAMPLES
    assert audit.list_file == str(tmp_path / "left.tsv")
    lines = [line.split("\t") for line in (tmp_path / "left.tsv").read_text().splitlines()]
    assert {(brick, kind, *facts) for brick, kind, _, *facts in lines} == {("gl3:/b", "file", "5", "0" * 32)}
    assert [percent_unescape(path) for _, _, path, *_ in lines] == names
    # A later audit of the same run says what is left now.
    assert audited((b"one",), LeftListFile(str(tmp_path))).left == 1
    assert len((tmp_path / "left.tsv").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("state", "other", "clean"),
    [
        (DrainState.WIPING, PlaceSeen.EMPTY, True),
        (DrainState.WIPING, PlaceSeen.UNMOUNTED, True),
        (DrainState.WIPING, PlaceSeen.UNKNOWN, False),
        (DrainState.WIPING, PlaceSeen.BRICK, False),
        (DrainState.COMMITTED, PlaceSeen.EMPTY, False),
    ],
)
def test_a_wipe_resumes_after_a_kill_between_two_bricks(state: DrainState, other: PlaceSeen, clean: bool) -> None:
    names = ("gl3:/b", "gl4:/b")
    bricks = tuple(replace(BRICK, name=name) for name in names)
    walks = Walks()
    walks.wiped = names[1:]
    places = dict(zip(names, (PlaceSeen.BRICK, other), strict=True))
    left = bricks_to_audit(state, bricks, places)
    audit = asyncio.run(
        audit_bricks(left, volume_id=VOLUME_ID, walks=walks, read_block=block, clock=VirtualClock())  # type: ignore[arg-type]
    )
    assert audit.clean is clean
