"""A catalog beside the manifests that prove it."""

from dataclasses import replace
from pathlib import Path

import pytest

from migrator.bricks.retire.model import CatalogedPath, Cover, UncoveredKind
from migrator.bricks.retire.rules import judge_path
from migrator.bricks.retire.stage import cover_paths
from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.ports import Scratch, VerifiedPath
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import Refused, UsageError
from migrator.purge.model import Proof
from migrator.reap.model import ArchivedMember
from tests.support.catalogs import closed_catalogs, directory, invented, symlink, write_catalog

ALICE, BOB = b"home/alice", b"home/b'ob\n\xff"
DIGEST = b"d" * 16

Pairs = dict[bytes, tuple[CatalogedPath, Proof | None]]


class World:
    def __init__(self, path: Path) -> None:
        self.catalogs = path / "cata'logs"
        self.manifests = ManifestDirectories(
            path / "mani'fests", catalogs=closed_catalogs(self.catalogs), scratch=Scratch(path / "tmp"), part_rows=2
        )
        self.scratch = Scratch(path / "tmp")

    def manifest(self, name: str, *entries: Entry) -> str:
        draft = self.manifests.create(name, algorithm="xxh128")
        draft.add(
            verified=[
                VerifiedPath(source=entry, target=entry, digest=DIGEST if entry.type is EntryType.FILE else None)
                for entry in entries
            ]
        )
        return draft.close().file

    def pairs(self, *moved: tuple[bytes, str]) -> Pairs:
        blocks = cover_paths(closed_catalogs(self.catalogs), "catalog-1", dict(moved), scratch=self.scratch)
        found = [pair for block in blocks for pair in block]
        assert len({path.path for path, _ in found}) == len(found)
        return {path.path: (path, proof) for path, proof in found}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


HERE = (
    directory(ALICE),
    invented(ALICE + b"/file", size_bytes=7, mtime_ns=5, ino=2**64 - 3, xattrs={b"user.a": b"b"}),
    symlink(ALICE + b"/link", b"\xff\n"),
    invented(ALICE + b"/device", EntryType.CHARACTER, rdev=2**33 + 1),
    invented(ALICE + b"0", size_bytes=1),
    directory(BOB),
    invented(BOB + b"/file", size_bytes=3),
    invented(b"notice", size_bytes=9),
)


def test_every_path_that_is_no_directory_stands_beside_its_row_fact_by_fact(world: World) -> None:
    write_catalog(world.catalogs, HERE, [ALICE, BOB])
    moved = (
        (ALICE, world.manifest("one", *HERE[:4])),
        (BOB, world.manifest("two", HERE[6])),
    )
    pairs = world.pairs(*moved)
    assert sorted(pairs) == sorted(entry.path for entry in HERE if entry.type is not EntryType.DIRECTORY)
    judged = {path: judge_path(found, proof, moved={ALICE, BOB}, unproven=()) for path, (found, proof) in pairs.items()}
    proven = {path for path, verdict in judged.items() if verdict is Cover.PROVEN}
    assert proven == {entry.path for entry in (*HERE[1:4], HERE[6])}
    found, proof = pairs[ALICE + b"/file"]
    assert (found.ino, found.tree, proof and proof.digest) == (2**64 - 3, ALICE, DIGEST)


def test_a_manifest_tells_of_its_own_tree_alone(world: World) -> None:
    """One of a verification of a whole batch has rows of others, who were moved by newer ones, or never."""
    write_catalog(world.catalogs, HERE, [ALICE, BOB])
    whole = world.manifest("whole", *HERE)
    pairs = world.pairs((ALICE, whole))
    with_proof = {path for path, (_, proof) in pairs.items() if proof is not None}
    assert with_proof == {entry.path for entry in HERE[1:4]}
    newer = world.manifest("newer", replace(HERE[6], mtime_ns=8))
    pairs = world.pairs((ALICE, whole), (BOB, newer))
    proof = pairs[HERE[6].path][1]
    assert proof is not None
    assert proof.mtime_ns == 8


def test_what_lies_in_an_archive_is_told(world: World) -> None:
    write_catalog(world.catalogs, HERE, [ALICE, BOB])
    draft = world.manifests.create("archived", algorithm="xxh128")
    member = ArchivedMember(entry=HERE[1], archive=3, offset_bytes=0, digest=DIGEST, algorithm="xxh128")
    draft.add(verified=[VerifiedPath(source=HERE[1], target=None, archived=member)])
    found, proof = world.pairs((ALICE, draft.close().file))[HERE[1].path]
    verdict = judge_path(found, proof, moved={ALICE}, unproven=())
    assert not isinstance(verdict, Cover)
    assert verdict.kind is UncoveredKind.CONTENT


def test_a_manifest_or_catalog_that_is_not_there_is_no_proof(world: World, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        world.pairs()
    write_catalog(world.catalogs, HERE, [ALICE, BOB])
    # Without moved users nothing has a proof.
    assert {proof for _, proof in world.pairs().values()} == {None}
    with pytest.raises(Refused, match="cannot be compared"):
        world.pairs((ALICE, str(tmp_path / "gone.parquet")))
