"""Manifests on disk: whole or not there, told from changed ones, and never in the way of the next verification."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.ports import LinkedPath, LinkFindingKind, Scratch, VerifiedPath
from migrator.core.errors import Refused
from tests.support.catalogs import closed_catalogs
from tests.support.entries import entry


@pytest.fixture
def manifests(tmp_path: Path) -> ManifestDirectories:
    return ManifestDirectories(
        tmp_path / "manifests",
        catalogs=closed_catalogs(tmp_path / "catalogs"),
        scratch=Scratch(tmp_path / "temporary"),
        part_rows=10,
    )


def verified(path: bytes, digest: bytes | None = b"d" * 16) -> VerifiedPath:
    return VerifiedPath(source=entry(path), target=entry(path), digest=digest)


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


def test_what_is_missing_or_changed_is_refused_with_a_way_out(manifests: ManifestDirectories) -> None:
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


def test_what_a_killed_verification_left_is_removed_and_an_empty_manifest_is_one(
    manifests: ManifestDirectories, tmp_path: Path
) -> None:
    killed = manifests.create("one", algorithm="xxh3_128")
    killed.add(verified=[verified(b"%d" % number) for number in range(20)])
    draft = manifests.create("one", algorithm="xxh3_128")
    closed = draft.close()
    draft.abandon()
    assert closed.rows == 0
    assert pq.read_table(closed.file).column_names[0] == "path"
    assert manifests.examples(closed.file).differences == ()
    assert sorted(path.name for path in (tmp_path / "manifests" / "one").iterdir()) == [
        "differences.parquet",
        "expected.parquet",
        "manifest.parquet",
    ]


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
    return ManifestDirectories(
        directory / "m", catalogs=closed_catalogs(directory / "c"), scratch=Scratch(directory / "t")
    )


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
