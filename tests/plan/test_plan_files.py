"""Plan documents and chunk lists on disk: those of plans, of later passes, and of split chunks."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.catalog.model import ListedPath
from migrator.catalog.rules_packing import PackedChunk
from migrator.core.entry import UserTree
from migrator.core.errors import Refused, UsageError
from migrator.core.states import CHUNK_ORDER, ChunkKind
from migrator.fs.model import SurpriseKind
from migrator.plan.chunk_lists import ROW_GROUP_ROWS, ChunkListFiles, ListedPaths
from migrator.plan.document import FORMAT, PlanFiles, _checksum, read_document, write_document
from migrator.plan.model import Chunk, Plan, Surprise, WrittenList
from tests.support.making import made
from tests.support.plans import small_plan

HOSTILE = (b"-rf", b"new\nline", b"\xff\xfe", b"a" * 255, b"quo'te", b"/".join([b"d" * 250] * 30))
SITE_ID = small_plan().site_id
IN_RANGES = (ChunkKind.RANGES, ChunkKind.RANGED_FILES)


def chunk(
    number: int, names: list[bytes], *, kind: ChunkKind = ChunkKind.FILES, tree: bytes = b"home/a"
) -> PackedChunk:
    return PackedChunk(
        batch=1,
        number=number,
        kind=kind,
        tree=tree,
        paths=[tree + b"/" + name for name in names],
        sizes_bytes=[number * 10 + place for place in range(len(names))],
        link_groups=[2**64 - 1 - place if place % 2 else None for place in range(len(names))],
        links_to=[b"home/a/first\xff" if kind is ChunkKind.LINKS else None for _ in names],
        mtimes_ns=[None if place % 3 == 2 else place - 2**62 for place in range(len(names))],
        brick="server-1:/bricks/é" if number % 3 else None,
        range_offset_bytes=2**40 if kind is ChunkKind.RANGES else None,
        file_sizes_bytes=tuple(2**41 + place for place in range(len(names))) if kind in IN_RANGES else (),
    )


def listed(one: PackedChunk) -> list[ListedPath]:
    sizes = one.file_sizes_bytes or [None] * len(one.paths)
    columns = zip(one.paths, one.sizes_bytes, one.link_groups, one.links_to, one.mtimes_ns, strict=True)
    return [
        ListedPath(
            path=path,
            size_bytes=size_bytes,
            link_group=group,
            link_to=link_to,
            mtime_ns=mtime_ns,
            range_offset_bytes=one.range_offset_bytes,
            range_length_bytes=size_bytes if one.kind is ChunkKind.RANGES else None,
            file_size_bytes=file_size_bytes,
        )
        for (path, size_bytes, group, link_to, mtime_ns), file_size_bytes in zip(columns, sizes, strict=True)
    ]


@pytest.fixture
def lists(tmp_path: Path) -> ChunkListFiles:
    (tmp_path / "state").mkdir()
    state = tmp_path / "state"
    return ChunkListFiles(tmp_path / "plans", splits_dir=state / "splits", passes_dir=state / "passes")


@pytest.fixture
def documents(tmp_path: Path) -> PlanFiles:
    return PlanFiles(tmp_path / "plans", site_id=SITE_ID)


Writer = Callable[[Iterable[PackedChunk]], WrittenList]


@pytest.fixture(params=["plan", "pass"])
def write(lists: ChunkListFiles, request: pytest.FixtureRequest) -> Writer:
    """Writes the list of a batch, or of a pass after its seed."""
    if request.param == "plan":
        return lambda chunks: lists.write("spring", 3, chunks)
    return lambda chunks: lists.write_pass("spring", 3, 2, chunks)


def many(count: int) -> Iterator[PackedChunk]:
    for number in range(1, count + 1):
        yield chunk(number, [b"%d-%d" % (number, place) for place in range(1 + number * 7919 % 1500)])


def test_every_chunk_is_read_as_it_was_written(lists: ChunkListFiles, write: Writer, tmp_path: Path) -> None:
    written = [
        chunk(number, list(HOSTILE), kind=CHUNK_ORDER[number % len(CHUNK_ORDER)], tree=b"t\xff")
        for number in range(1, 13)
    ]
    found = write(written)
    assert [
        (one.number, one.kind, one.tree, one.files, one.size_bytes, one.brick) for one in lists.chunks(found.chunk_list)
    ] == [(one.number, one.kind, one.tree, one.files, one.size_bytes, one.brick) for one in written]
    for one in written:
        assert list(lists.paths(found.chunk_list, one.number)) == listed(one)
    assert lists.digest(found.chunk_list) == found.chunk_list_digest
    of_plan = found.chunk_list == "spring.chunks/batch-0003.parquet"
    assert (tmp_path / ("plans" if of_plan else "state") / found.chunk_list).is_file()


def test_a_chunk_is_found_among_many_row_groups(lists: ChunkListFiles, tmp_path: Path) -> None:
    found = lists.write("spring", 1, many(200))
    groups = pq.read_metadata(tmp_path / "plans" / found.chunk_list)
    assert groups.num_row_groups > 3
    assert all(groups.row_group(group).num_rows < ROW_GROUP_ROWS + 1500 for group in range(groups.num_row_groups))
    assert [one.number for one in lists.chunks(found.chunk_list)] == list(range(1, 201))
    for one in many(200):
        assert list(lists.paths(found.chunk_list, one.number)) == listed(one)


@pytest.mark.parametrize("number", [0, 4, 10**9])
def test_a_chunk_that_is_not_there_is_refused(lists: ChunkListFiles, number: int) -> None:
    found = lists.write("spring", 1, [chunk(1, [b"a"]), chunk(2, [b"b"]), chunk(5, [b"c"])])
    with pytest.raises(Refused, match=f"chunk {number} "):
        lists.paths(found.chunk_list, number)


def test_paths_of_a_stream_are_beneath_its_tree() -> None:
    alice = [ListedPath(path=path, size_bytes=1) for path in (b"home/alice/b", b"home/alice", b"home/alice/a/c")]
    assert list(ListedPaths.of(alice).within(b"home/alice")) == [alice[0], alice[2]]


@pytest.mark.parametrize("path", [b"", b"home", b"home/alicex/file", b"home/bob/file", b"/home/alice/file"])
def test_a_path_outside_its_tree_is_refused(path: bytes) -> None:
    paths = [ListedPath(path=path, size_bytes=1) for path in (b"home/alice/one", path)]
    with pytest.raises(ValueError, match="outside"):
        ListedPaths.of(paths).within(b"home/alice")


def test_a_list_that_is_replaced_is_read_anew(lists: ChunkListFiles, write: Writer) -> None:
    name = write([chunk(1, [b"a"]), chunk(2, [b"b"])]).chunk_list
    assert lists.paths(name, 2)[0].path == b"home/a/b"
    name = write([chunk(1, [b"a"]), chunk(2, [b"other"])]).chunk_list
    assert lists.paths(name, 2)[0].path == b"home/a/other"


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_list_with_a_flipped_bit_is_refused(lists: ChunkListFiles, tmp_path: Path, data: st.DataObject) -> None:
    whole = chunk(7, list(HOSTILE))
    half = Chunk(number=7, kind=ChunkKind.FILES, tree=b"home/a", files=3, size_bytes=1)
    by_pass = data.draw(st.booleans())
    of_pass = lists.write_pass("spring", 1, 1, [whole]).chunk_list
    name = of_pass if by_pass else lists.write_split(4, half, listed(whole))
    file = tmp_path / "state" / name
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)
    for ask in (lambda: lists.paths(name, 7), lambda: list(lists.chunks(name))):
        with pytest.raises(Refused, match="not as it was written"):
            ask()


@pytest.mark.parametrize("name", ["spring.chunks/batch-0001.parquet", "passes/none.parquet"])
def test_a_missing_or_torn_list_is_refused(lists: ChunkListFiles, tmp_path: Path, name: str) -> None:
    for ask in (lists.digest, lambda name: lists.paths(name, 1), lambda name: list(lists.chunks(name))):
        with pytest.raises(Refused, match="is missing"):
            ask(name)
    torn = lists.write("spring", 1, [chunk(1, [b"a"])]).chunk_list
    with (tmp_path / "plans" / torn).open("r+b") as file:
        file.seek(4)
        file.write(bytes(16))
    for read in (lambda: lists.paths(torn, 1), lambda: list(lists.chunks(torn))):
        with pytest.raises(Refused, match="cannot be read"):
            read()
    os.truncate(tmp_path / "plans" / torn, 30)
    with pytest.raises(Refused, match="cannot be read"):
        lists.paths(torn, 1)


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x.parquet", "splits/../../x.parquet", "a/../../b", "passes/../secret", "passes//etc/passwd"],
)
def test_lists_lie_below_their_directories(lists: ChunkListFiles, name: str) -> None:
    with pytest.raises(Refused, match="cannot be a chunk list"):
        lists.digest(name)


@pytest.mark.parametrize("kind", [ChunkKind.FILES, *IN_RANGES])
@pytest.mark.parametrize("brick", ["server-1:/brick", None])
def test_location_of_split_chunks(lists: ChunkListFiles, tmp_path: Path, kind: ChunkKind, brick: str | None) -> None:
    whole = chunk(9, list(HOSTILE), kind=kind)
    half = Chunk(number=31, kind=kind, tree=b"home/a", files=3, size_bytes=1, brick=brick)
    for _ in range(2):
        name = lists.write_split(4, half, listed(whole)[:3])
        assert list(lists.paths(name, 31)) == listed(whole)[:3]
        assert [(one.number, one.kind, one.brick) for one in lists.chunks(name)] == [(31, kind, brick)]
    assert not (tmp_path / "plans").exists()
    assert [file.name for file in (tmp_path / "state" / "splits").rglob("*.parquet")] == [name.rpartition("/")[2]]


def test_a_write_that_fails_leaves_what_was_there(lists: ChunkListFiles, tmp_path: Path) -> None:
    def breaking() -> Iterator[PackedChunk]:
        yield chunk(1, [b"other"])
        raise OSError(28, "No space left on device")

    before = lists.write("spring", 1, [chunk(1, [b"a"])])
    with pytest.raises(OSError, match="No space"):
        lists.write("spring", 1, breaking())
    assert lists.digest(before.chunk_list) == before.chunk_list_digest
    assert [file.name for file in (tmp_path / "plans" / "spring.chunks").iterdir()] == ["batch-0001.parquet"]


def test_a_plan_is_never_overwritten(documents: PlanFiles) -> None:
    documents.require_free("spring")
    _, checksum = documents.write(small_plan("spring"))
    with pytest.raises(UsageError, match="already"):
        documents.require_free("spring")
    with pytest.raises(UsageError, match="already"):
        documents.write(replace(small_plan("spring"), files=99))
    assert documents.read("spring")[1] == checksum


def test_a_plan_of_another_site_is_refused_except_to_look_at(documents: PlanFiles, tmp_path: Path) -> None:
    documents.write(replace(small_plan("spring"), site_id="another"))
    with pytest.raises(Refused, match="another site"):
        documents.read("spring")
    assert PlanFiles(tmp_path / "plans", site_id=None).read("spring")[0].site_id == "another"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/etc/x", "-n", ".hidden", "a\n", "a b", "ä", "a" * 101, "x.json", "x.chunks"]
)
def test_names_that_cannot_be_a_plans(documents: PlanFiles, lists: ChunkListFiles, name: str) -> None:
    writers = (lambda name: lists.write(name, 1, []), lambda name: lists.write_pass(name, 1, 1, []))
    for ask in (documents.require_free, documents.read, *writers):
        with pytest.raises(UsageError, match="cannot be the name"):
            ask(name)


ODD = b'home/\xff\n%41"\\\x1b'


def plan() -> Plan:
    batch = small_plan().batches[0]
    return replace(
        small_plan("spring"),
        created_at_s=1_800_000_000.25,
        size_bytes=2**60,
        batches=(replace(batch, trees=(UserTree(path=ODD, user="ali\N{LATIN SMALL LETTER C WITH CEDILLA}e"),)),),
        surprises=(made(Surprise, kind=SurpriseKind.QUOTA, size_bytes=5, examples=(ODD, b"")),),
        emptying=(),
    )


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    content = json.loads(write_document(plan())[0])
    change(content)
    return json.dumps(content)


def sealed(change: Callable[[dict[str, Any]], object]) -> str:
    """A document with another content and a checksum that is right."""
    content = json.loads(edited(change))
    del content["checksum"]
    return json.dumps({**content, "checksum": _checksum(content)})


def test_a_plan_is_read_as_it_was_written() -> None:
    text, checksum = write_document(plan())
    assert read_document(text, name="spring", site_id=plan().site_id) == (plan(), checksum)
    # The layout of the text is not its content.
    assert read_document(edited(lambda _: None), name="spring") == (plan(), checksum)
    # A key that a later version added with a default may be missing.
    read, _ = read_document(sealed(lambda content: content["target"].pop("read_only")), name="spring")
    assert read.target.read_only is False
    with pytest.raises(Refused, match="contains plan 'spring'"):
        read_document(text, name="autumn")


@given(st.binary(), st.text(), st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**70))
def test_any_path_name_and_number_survives(path: bytes, user: str, seconds: float, count: int) -> None:
    trees = (UserTree(path=path, user=user),)
    one = replace(plan(), batches=(replace(plan().batches[0], trees=trees, forecast_s=seconds),))
    one = replace(one, files=count, created_at_s=seconds)
    text, _ = write_document(one)
    assert read_document(text, name="spring")[0] == one
    assert text.isascii()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(files=13),
        lambda content: content["batches"][0].update(fits=False),
        lambda content: content["batches"][0].update(chunk_list_digest="cd" * 32),
        lambda content: content.update(checksum="0" * 64),
        lambda content: content.pop("checksum"),
        lambda content: content.update(note="by hand"),
        lambda content: content["batches"].clear(),
    ],
)
def test_a_plan_that_was_edited_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(Refused, match="checksum") as caught:
        read_document(edited(change), name="spring")
    assert "migrator plan" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        (write_document(plan())[0][:-20], "no JSON"),
        ("[]", "no object"),
        ("{}", "no format"),
        (edited(lambda content: content.update(format=FORMAT + 1)), f"reads up to {FORMAT}"),
        (sealed(lambda content: content.update(extra=1)), "unknown key 'extra'"),
        (sealed(lambda content: content.pop("batches")), "lacks 'batches'"),
        (sealed(lambda content: content.update(files="many")), "plan.files has type str"),
        (sealed(lambda content: content.update(order="sideways")), "sideways"),
        (sealed(lambda content: content.update(batches=5)), "no list"),
        (sealed(lambda content: content["batches"].append(5)), r"batches\[1\] is no object"),
        (sealed(lambda content: content["surprises"][0].update(examples=[5])), "no path"),
    ],
)
def test_plans_of_other_versions_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_document(text, name="spring")
    assert caught.value.hint
