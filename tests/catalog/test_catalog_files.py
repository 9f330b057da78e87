"""Catalogs and manifests on disk: parts, what a crash leaves of them, what is refused, and hard links that agree."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.catalog.files import CLOSING_RECORD, ROW_SCHEMA, RecordUnreadable, numbered, open_closed
from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import LinkedPath, LinkFindingKind, OpenCatalog, Scratch, VerifiedPath
from migrator.catalog.writer import CatalogDirectories
from migrator.core.entry import ACL_ACCESS, Entry, EntryType, UserTree, XattrKinds, xattr_digest
from migrator.core.errors import Refused, UsageError
from migrator.scan.mount import MountRows
from tests.support.catalogs import closed_catalogs, invented, whole_catalog
from tests.support.entries import entry as plain_entry
from tests.support.scan_site import ScanSite

RECORD = whole_catalog(
    name="catalog-1",
    trees=(UserTree(path=b"home/\xff\n%", user="\\xff"),),
    finished_at_s=None,
    whole=False,
    health_fingerprint="f",
)


def entry(path: bytes, **changes: Any) -> Entry:
    extreme = {"size_bytes": 2**40, "uid": 2**32 - 3, "mode": 0o7777, "mtime_ns": -1_500_000_000, "dev": 2**40}
    return replace(invented(path, ino=2**64 - 1), **(extreme | changes))


def store(directory: Path, max_part_rows: int = 4) -> CatalogDirectories:
    return CatalogDirectories(directory / "catalogs", scratch=Scratch(directory / "temp"), max_part_rows=max_part_rows)


def closed_rows(catalogs: CatalogDirectories, name: str = "catalog-1") -> list[dict[str, Any]]:
    return [row for file in catalogs.closed(name).part_files for row in pq.read_table(file).to_pylist()]


def finish(opened: OpenCatalog) -> CatalogRecord:
    return opened.writer.close(replace(opened.record, finished_at_s=9.0, whole=True, rows=opened.totals.rows))


def test_rows_hold_what_the_entries_held(tmp_path: Path) -> None:
    xattrs = {b"user.a": b"1" * 50, ACL_ACCESS: b"\x02\x00\x00\x00" + bytes(8 * 5)}
    entries = [
        entry(b"home/\xff\n%/new\nline", nlink=3, xattrs=xattrs),
        entry(b"home/\xff\n%/" + b"n" * 255, type=EntryType.SYMLINK, symlink_target=b"\x80"),
    ]
    catalogs = store(tmp_path)
    opened = catalogs.create(RECORD)
    opened.writer.add(b"home/\xff\n%", entries)
    opened.writer.add(None, [entry(b"x", type=EntryType.DIRECTORY, nlink=9, gfid=b"g" * 16, brick="h:/b")])
    finish(opened)
    first, second, third = closed_rows(catalogs)
    assert first["path"] == b"home/\xff\n%/new\nline"
    assert (first["tree"], first["ino"], first["link_group"]) == (b"home/\xff\n%", 2**64 - 1, 2**64 - 1)
    assert (first["mtime_ns"], first["uid"], first["dev"]) == (-1_500_000_000, 2**32 - 3, 2**40)
    assert first["xattr_digest"] == xattr_digest(xattrs)
    assert (first["xattr_largest_bytes"], first["acl_entries"]) == (50, 5)
    assert first["xattr_kinds"] == int(XattrKinds.USER | XattrKinds.ACL_ACCESS)
    assert (second["symlink_target"], second["xattr_digest"], second["link_group"]) == (b"\x80", None, None)
    assert (third["tree"], third["link_group"], third["gfid"], third["brick"]) == (None, None, b"g" * 16, "h:/b")
    for file in catalogs.closed("catalog-1").part_files:
        assert pq.read_schema(file).equals(ROW_SCHEMA)


def test_a_missing_catalog_a_half_written_and_a_closed_one_are_told_apart(tmp_path: Path) -> None:
    catalogs = store(tmp_path)
    with pytest.raises(UsageError, match="no catalog"):
        catalogs.closed("catalog-1")
    assert catalogs.resume("catalog-1") is None
    opened = catalogs.create(RECORD)
    with pytest.raises(FileExistsError):
        catalogs.create(RECORD)
    with pytest.raises(Refused, match="half written") as caught:
        catalogs.closed("catalog-1")
    assert "scan" in caught.value.hint
    assert catalogs.closing_record("catalog-1") is None
    finish(opened)
    with pytest.raises(Refused, match="is closed"):
        catalogs.resume("catalog-1")


@pytest.mark.guarantee("damaged-catalogs")
@settings(deadline=None)
@given(part=st.booleans(), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flipped_bit_is_believed(part: bool, place: float, bit: int) -> None:
    with TemporaryDirectory() as directory:
        catalogs = store(Path(directory))
        opened = catalogs.create(RECORD)
        opened.writer.add(None, [entry(b"x"), entry(b"y")])
        finish(opened)
        closed = catalogs.closed("catalog-1")
        file = closed.part_files[0] if part else closed.directory / CLOSING_RECORD
        content = bytearray(file.read_bytes())
        content[int(place * len(content))] ^= 1 << bit
        file.write_bytes(content)
        found, hint = None, ""
        try:
            found = open_closed(closed.directory)
        except (Refused, RecordUnreadable) as error:
            hint = error.hint
        # A blank of the record may be another one.
        assert "scan --restart" in hint or (found == closed and not part)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"format": "migrator-catalog/99"}'])
def test_a_record_that_is_none_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CLOSING_RECORD).write_bytes(content)
    with pytest.raises(RecordUnreadable) as caught:
        open_closed(tmp_path)
    assert ("the version that wrote it" in caught.value.hint) == (b"catalog" in content or content == b"{}")


@pytest.mark.parametrize(("kind", "harm"), [("part", "gone"), ("part", "torn"), ("done", "torn")])
def test_a_committed_file_that_is_damaged_is_not_gone_on_with(tmp_path: Path, kind: str, harm: str) -> None:
    catalogs = store(tmp_path)
    opened = catalogs.create(RECORD)
    opened.writer.add(None, [entry(b"x")])
    opened.writer.directories_done([b""])
    opened.writer.abandon()
    (done,) = numbered(tmp_path / "catalogs" / "catalog-1", "done").values()
    assert pq.read_table(done).to_pylist() == [{"path": b"", "complete": True}]
    assert (pq.read_schema(done).metadata or {})[b"migrator.rows"] == b"1"
    (file,) = numbered(tmp_path / "catalogs" / "catalog-1", kind).values()
    if harm == "gone":
        file.unlink()
    else:
        os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(Refused, match="damaged"):
        catalogs.resume("catalog-1")


def _walk(opened: OpenCatalog, site: ScanSite) -> CatalogRecord:
    rows = MountRows(site.source, opened)
    asyncio.run(rows.walk(workers=2, block_rows=6))
    return opened.writer.close(replace(opened.record, rows=rows.totals.rows, problems=rows.totals.problems))


def _states(directory: Path) -> Sequence[Sequence[str]]:
    """The files of a catalog after every rename that its writer did, in order."""
    files: list[str] = []
    states: list[list[str]] = [[]]
    for number in numbered(directory, "done"):
        for prefix in ("part", "problems", "done"):
            name = f"{prefix}-{number:06d}.parquet"
            if (directory / name).exists():
                files.append(name)
                states.append([*files])
    return states


def test_from_the_state_after_every_single_rename_the_same_rows_come(tmp_path: Path) -> None:
    with closing(ScanSite(tmp_path)) as site:
        site.grow(["alice", "bob"], directories=3, files=11)
        catalogs = store(tmp_path, max_part_rows=6)
        record = replace(RECORD, trees=(UserTree(path=b"home/alice", user="a"), UserTree(path=b"home/bob", user="b")))
        whole = _walk(catalogs.create(record), site)
        expected = sorted(bytes(row["path"]) for row in closed_rows(catalogs))
        original = tmp_path / "catalogs" / "catalog-1"
        states = _states(original)
        assert len(states) > 15
        for number, files in enumerate(states):
            name = f"catalog-{number}-again"
            copy = tmp_path / "catalogs" / name
            copy.mkdir()
            for file in ("opening.json", *files):
                shutil.copy(original / file, copy / file)
            (copy / "part-000099.parquet.tmp").write_bytes(b"torn")
            opened = catalogs.resume(name)
            assert opened is not None
            again = _walk(opened, site)
            assert sorted(bytes(row["path"]) for row in closed_rows(catalogs, name)) == expected
            assert again.rows == whole.rows
            assert not list(copy.glob("*.tmp"))


@pytest.fixture
def manifests(tmp_path: Path) -> ManifestDirectories:
    return ManifestDirectories(
        tmp_path / "manifests",
        catalogs=closed_catalogs(tmp_path / "catalogs"),
        scratch=Scratch(tmp_path / "temporary"),
        part_rows=10,
    )


def verified(path: bytes, digest: bytes | None = b"d" * 16) -> VerifiedPath:
    return VerifiedPath(source=plain_entry(path), target=plain_entry(path), digest=digest)


def test_the_same_findings_give_the_same_digest_and_a_change_another(manifests: ManifestDirectories) -> None:
    digests = []
    for name in ("one", "two"):
        draft = manifests.create(name, algorithm="xxh3_128")
        for path in (b"b", b"a", b"c") if name == "one" else (b"c", b"b", b"a"):
            draft.add(verified=[verified(path)])
        closed = draft.close()
        assert manifests.digest(closed.file) == closed.digest
        digests.append(closed.digest)
    assert digests[0] == digests[1]
    with Path(closed.file).open("ab") as file:
        file.write(b"x")
    assert manifests.digest(closed.file) != closed.digest


@pytest.mark.parametrize("of_a_part", [1, 2, 7, 25])
def test_a_manifest_is_in_order_of_path_in_however_many_parts_it_was_sorted(
    manifests: ManifestDirectories, of_a_part: int
) -> None:
    paths = sorted(b"home/\xff/%d" % number for number in range(25))
    draft = manifests.create("one", algorithm="xxh3_128")
    draft.add(verified=[verified(path) for path in paths[::-1]])
    assert pq.read_table(draft.close(paths[of_a_part::of_a_part]).file).column("path").to_pylist() == paths


def test_a_missing_or_changed_manifest_is_refused_with_a_remedy(manifests: ManifestDirectories) -> None:
    closed = manifests.create("one", algorithm="xxh3_128").close()
    differences = Path(closed.file).with_name("differences.parquet")
    assert list(manifests.differing(closed.file, digest=closed.differences_digest)) == []
    with differences.open("ab") as file:
        file.write(b"x")
    with pytest.raises(Refused, match=r"differences\.parquet"):
        next(manifests.differing(closed.file, digest=closed.differences_digest))
    differences.unlink()
    with pytest.raises(Refused, match=r"differences\.parquet") as raised:
        manifests.examples(closed.file)
    assert raised.value.hint
    Path(closed.file).unlink()
    with pytest.raises(Refused, match=r"manifest\.parquet"):
        manifests.digest(closed.file)


def test_leftovers_of_a_killed_verification_are_removed(manifests: ManifestDirectories, tmp_path: Path) -> None:
    killed = tmp_path / "manifests" / "killed" / "draft"
    killed.mkdir(parents=True)
    (killed / "verified-000001.parquet").touch()
    earlier = Path(manifests.create("earlier", algorithm="xxh3_128").close().file)
    at_work = manifests.create("at work", algorithm="xxh3_128")
    draft = manifests.create("one", algorithm="xxh3_128")
    assert (killed.parent.exists(), earlier.exists()) == (False, True)
    at_work.add(verified=[verified(b"%d" % number) for number in range(20)])
    assert at_work.close().rows == 20
    closed = draft.close()
    draft.abandon()
    assert closed.rows == 0
    assert pq.read_table(closed.file).column_names[0] == "path"
    assert manifests.examples(closed.file).differences == ()
    left = sorted(path.name for path in (tmp_path / "manifests" / "one").iterdir())
    assert left == [f"{name}.parquet" for name in ("differences", "expected", "manifest")]


def test_an_abandoned_draft_leaves_nothing_and_takes_nothing(manifests: ManifestDirectories, tmp_path: Path) -> None:
    draft = manifests.create("one", algorithm="xxh3_128")
    draft.add(verified=[verified(b"a")])
    for _ in range(2):
        draft.abandon()
        draft.add(verified=[verified(b"%d" % number) for number in range(20)])
    assert list((tmp_path / "manifests").iterdir()) == []


GROUPS = st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(0, 4)), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def shared_manifests(tmp_path_factory: pytest.TempPathFactory) -> ManifestDirectories:
    directory = tmp_path_factory.mktemp("links")
    catalogs = closed_catalogs(directory / "c")
    return ManifestDirectories(directory / "m", catalogs=catalogs, scratch=Scratch(directory / "t"))


@given(GROUPS)
def test_hard_links_agree_exactly_where_the_inodes_are_one_to_one(
    shared_manifests: ManifestDirectories, pairs: list[tuple[int, int | None]]
) -> None:
    high = 2**63
    names = [target for _, target in pairs if target is not None]
    draft = shared_manifests.create("links", algorithm="xxh3_128")
    draft.add(
        links=[
            LinkedPath(
                path=b"%02d" % number,
                source_ino=high + source,
                source_nlink=sum(other == source for other, _ in pairs),
                target_ino=None if target is None else high + target,
                target_nlink=0 if target is None else names.count(target),
            )
            for number, (source, target) in enumerate(pairs)
        ]
    )
    found = list(draft.link_findings())
    draft.abandon()
    arrived = {(source, target) for source, target in pairs if target is not None}
    one_to_one = len({source for source, _ in arrived}) == len(arrived) == len({target for _, target in arrived})
    assert (found == []) is one_to_one
    assert {finding.kind for finding in found} <= {LinkFindingKind.SPLIT, LinkFindingKind.MERGED}
