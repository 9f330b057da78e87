"""The join of two listings decides as the comparison of single paths does, and leaves what that has to look at."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, astuple, replace

from migrator.catalog.brick_parts import write_part
from migrator.catalog.files import ClosedCatalogs, rows_of
from migrator.catalog.manifest import READINGS_SCHEMA, ManifestDirectories
from migrator.catalog.model import ContentReading, ReadContent
from migrator.catalog.ports import Scratch
from migrator.core.entry import ACL_ACCESS, Entry, EntryType
from migrator.core.units import NS_PER_S
from migrator.fs.model import DigestPolicy, ScanProblem, SurpriseKind, TargetCapabilities
from migrator.fs.rules import compare, is_sampled
from migrator.fs.rules_equality import FileState
from migrator.verify.joined import Joined, Left, SideListing
from migrator.verify.model import CTIME_MARGIN_NS, is_carried_over
from tests.support.beegfs_like import BEEGFS_CAPABILITIES
from tests.support.entries import acl, entry

TREE = b"home/o'al\\x41\xffe"
CLOCK_NS = 2_000_000_000 * NS_PER_S
CAPABILITIES = st.sampled_from([TargetCapabilities(), BEEGFS_CAPABILITIES])
TIMES_NS = st.sampled_from([0, 7, -1_500_000_000, -2_000_000_000, 1_500_000_000, NS_PER_S, -(2**63), 2**63 - 1])
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(EntryType),
        "size_bytes": st.sampled_from([0, 8192, 8193, 10 * 2**20]),
        "blocks": st.sampled_from([0, 16, 5000]),
        "uid": st.just(7),
        "gid": st.just(7),
        "mode": st.sampled_from([0o644, 0o755, 0o777, 0o2644]),
        "mtime_ns": TIMES_NS,
        "ctime_ns": st.sampled_from([2, CLOCK_NS - CTIME_MARGIN_NS, CLOCK_NS - CTIME_MARGIN_NS + 1]),
        "ino": st.sampled_from([4, 5, 2**64 - 1]),
        "nlink": st.sampled_from([1, 2]),
        "rdev": st.sampled_from([0, 259]),
        "symlink_target": st.sampled_from([b"a", b"b\xff"]),
        "xattrs": st.sampled_from([{}, {b"user.a": b"1"}, {b"user.a": b"2"}, {ACL_ACCESS: acl(6, 6, 4, 6, 4)}]),
    },
)
CLOCKS_NS = st.sampled_from([(CLOCK_NS, CLOCK_NS), (CLOCK_NS, CLOCK_NS + 1), (None, CLOCK_NS), (CLOCK_NS, None)])
READ_BEFORE: list[dict[str, Any]] = [{}, {}, {"ino": 9}, {"ctime_ns": 9}, {"mtime_ns": 9}]


def columns_of(path: bytes, read: ReadContent) -> pa.RecordBatch:
    ino, _size_bytes, *times_ns = astuple(read.target)
    row = (path, *astuple(read.source), ino, *times_ns, read.digest, *astuple(read.reading))
    return pa.RecordBatch.from_pylist([dict(zip(READINGS_SCHEMA.names, row, strict=True))], schema=READINGS_SCHEMA)


def listing(directory: Path, entries: Sequence[Entry], *, of: bytes = TREE) -> SideListing:
    file = directory / f"{len(list(directory.iterdir()))}.parquet"
    write_part(file, pa.Table.from_batches([rows_of(of, entries)]))
    return SideListing(files=(str(file),))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Entry, Entry | None, ReadContent | None]:
    """A path of the source, of the target, and a reading of an earlier state or of this one."""
    source = entry(**({"symlink_target": b"a"} | draw(st.just({}) | CHANGES)))
    target = draw(st.none() | st.builds(lambda changes: replace(source, **changes), st.just({}) | CHANGES))
    if target is None or draw(st.integers(0, 3)) == 0:
        return source, target, None
    side, changes = draw(st.integers(0, 1)), draw(st.sampled_from(READ_BEFORE))
    read = [replace(one, **(changes if number == side else {})) for number, one in enumerate((source, target))]
    source_clock_ns, target_clock_ns = draw(CLOCKS_NS)
    number = draw(st.sampled_from([1, 2]))
    clocks = ContentReading(verification=number, source_clock_ns=source_clock_ns, target_clock_ns=target_clock_ns)
    return (
        source,
        target,
        ReadContent(source=FileState.of(read[0]), target=FileState.of(read[1]), digest=b"d", reading=clocks),
    )


@given(
    drawn=st.lists(pairs(), min_size=1, max_size=30),
    twice=st.sets(st.integers(0, 29), max_size=2),
    doubted=st.sets(st.integers(0, 29), max_size=2),
    marked=st.sets(st.integers(0, 29), max_size=2),
    from_bricks=st.booleans(),
    capabilities=CAPABILITIES,
    policy=st.builds(DigestPolicy, algorithm=st.just("xxh3_128"), share=st.sampled_from([1.0, 0.5]), seed=st.just(7)),
)
def test_paths_are_equal_or_left_as_the_comparison_of_each_says(
    *,
    drawn: list[tuple[Entry, Entry | None, ReadContent | None]],
    twice: set[int],
    doubted: set[int],
    marked: set[int],
    from_bricks: bool,
    capabilities: TargetCapabilities,
    policy: DigestPolicy,
) -> None:
    named = [TREE + b"/d%d/\xff" % number for number in range(len(drawn))]
    sources = [
        replace(source, path=path, brick=None if number in marked else "h1:/b")
        for number, (path, (source, _, _)) in enumerate(zip(named, drawn, strict=True))
    ]
    targets = [
        None if target is None else replace(target, path=path)
        for path, (_, target, _) in zip(named, drawn, strict=True)
    ]
    expected: dict[bytes, ReadContent | None] = {}
    times = set[bytes]()
    for number, (source, target, (_, _, reading)) in enumerate(zip(sources, targets, drawn, strict=True)):
        if target is None or number in twice | doubted:
            continue
        found = compare(source, target, capabilities)
        wanted = source.type is EntryType.FILE and is_sampled(source.path, policy)
        # The reading of a marked file may be that of a brick, where the mount shows another content.
        counts = wanted and number not in marked and reading is not None and is_carried_over(reading, source, target)
        carried = reading if counts else None
        kinds = {loss.kind for loss in found.losses}
        if not found.differences and kinds <= {SurpriseKind.LOSS_TIME} and (carried is not None or not wanted):
            expected[source.path] = carried
            times |= {source.path} if SurpriseKind.LOSS_TIME in kinds else set()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "lists").mkdir()
        manifests = ManifestDirectories(
            directory / "manifests",
            catalogs=ClosedCatalogs(directory, lambda _: None),
            scratch=Scratch(directory / "t"),
        )
        draft = manifests.create("one", algorithm="xxh3_128")
        again = [source for number, source in enumerate(sources) if number in twice]
        doubtful, by_mount = (
            tuple(path for number, path in enumerate(named) if number in some) for some in (doubted, marked)
        )
        problems = tuple(ScanProblem(path=path, operation="list", errno=5, reason="") for path in (b"home", *doubtful))
        readings = [manifests.readings("now"), manifests.readings("before")]
        for source, (_, _, reading) in zip(sources, drawn, strict=True):
            if reading is not None:
                for kept in (readings[0], readings[reading.reading.verification - 1]):
                    kept.add(source.path.hex(), columns_of(source.path, reading))
        gone, elsewhere = TREE + b"/gone", TREE + b"-of-others"
        seen_earlier = [entry(path=path) for path in (*named, gone, elsewhere, TREE)]
        with mock.patch("migrator.verify.joined._JOINED_ROWS", 5 if len(drawn) % 2 else 10_000):
            joined = Joined(
                replace(
                    listing(directory / "lists", [*sources, *again]),
                    problems=problems,
                    from_bricks=from_bricks,
                    marked=() if from_bricks else by_mount,
                ),
                listing(directory / "lists", [target for target in targets if target is not None]),
                trees=[TREE],
                now=readings[0].files(),
                before=readings[1].files(),
                earlier=listing(directory / "lists", seen_earlier, of=elsewhere).files,
                accounted=[],
                verification=1,
                policy=policy,
                capabilities=capabilities,
                scratch=manifests.scratch,
            )
        every = sum((Counter(asdict(some)) for some in joined.equal(draft)), Counter[str]())
        left = {one.path: one for block in joined.left() for one in block}
        joined.add([*named, *named, TREE + b"/late"])
        late = [[one.path for block in joined.late(draft) for one in block] for _ in range(2)]
        joined.close()
        manifest = draft.close(joined.cuts)
        rows = {row["path"]: row for row in pq.read_table(manifest.file).to_pylist()}
        losses = pq.read_table(Path(manifest.file).with_name("expected.parquet")).to_pylist()
    assert {path: row["digest"] for path, row in rows.items()} == {
        path: reading and reading.digest for path, reading in expected.items()
    }
    assert {(row["path"], row["kind"]) for row in losses} == {(path, SurpriseKind.LOSS_TIME) for path in times}
    assert [every[of] for of in ("paths", "floored_times")] == [len(expected), len(times)]
    assert every["digested_files"] + every["carried_files"] == sum(one is not None for one in expected.values())
    assert left.pop(gone) == Left(gone, now=False)
    assert set(left) == set(named) - set(expected)
    assert late == [sorted({*left, TREE + b"/late"}), []]
    for source, target in zip(sources, targets, strict=True):
        if source.path in left:
            sides = [one is not None and one.type is EntryType.DIRECTORY for one in (source, target)]
            seen = Left(source.path, on_source=sides[0] and source.path not in doubtful, on_target=sides[1])
            assert replace(left[source.path], readings=()) == seen
