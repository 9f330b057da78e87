"""Whether the source volume may be retired, by its catalog and manifests: the reasons against it, and the next step."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.bricks.retire import model as retire
from migrator.bricks.retire import rules as retire_rules
from migrator.bricks.retire.cover import cover_paths
from migrator.bricks.retire.model import CatalogedPath, Cover, UncoveredKind
from migrator.bricks.retire.rules import judge_path
from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.model import ArchivedMember
from migrator.catalog.ports import Scratch, VerifiedPath
from migrator.core.entry import Entry, EntryType, UserTree
from migrator.core.errors import Refused, UsageError
from migrator.cutover.model import CutoverNotes, CutoverRecord, CutoverState
from migrator.cutover.rules_writers import OpenFile, OpenKind, Writers
from migrator.fs.model import SourceHealth
from migrator.gluster.model import BrickHeal, ClientSeen, TaskKind, TaskStatus, VolumeHealth
from migrator.purge.model import Archive, Proof
from tests.support.catalogs import closed_catalogs, directory, invented, symlink, write_catalog
from tests.support.making import made
from tests.support.records import verification
from tests.support.volumes import remove_brick, volume

ALICE = b"home/alice"
SAME = {"size_bytes": 7, "mtime_ns": 10, "ctime_ns": 11, "uid": 1000, "gid": 100, "mode": 0o644, "ino": 5}
FOUND = made(retire.CatalogedPath, path=ALICE + b"/file", tree=ALICE, type=EntryType.FILE, xattr_digest=b"x", **SAME)
PROOF = made(Proof, path=FOUND.path, type=FOUND.type, xattr_digest=b"x", digest=b"d", algorithm="xxh128", **SAME)
STATE = volume("gl1:/b", volume_id="v", heals=(), peers_down=())
FACTS = made(
    retire_rules.RetireFacts,
    health=VolumeHealth(problems=(), fingerprint="f", state=STATE),
    tasks=(),
    clients=(),
    purge_left=False,
    strange=(),
)


def judged(found: retire.CatalogedPath, proof: Proof | None) -> retire.Cover | retire.UncoveredKind:
    verdict = retire_rules.judge_path(found, proof, moved={ALICE}, unproven={b"home/bob"})
    return verdict.kind if isinstance(verdict, retire.Uncovered) else verdict


OTHERWISE = {"symlink_target": b"a", "xattr_digest": None, **dict.fromkeys((*SAME, "rdev"), 1)}


@given(
    st.sampled_from([EntryType.FILE, EntryType.SYMLINK, EntryType.FIFO]),
    st.sets(st.sampled_from(sorted([*OTHERWISE, "type", "digest", "archive"])), max_size=2),
)
def test_a_path_is_covered_only_with_every_verified_fact(kind: EntryType, changed: set[str]) -> None:
    found = replace(FOUND, type=kind)
    others = {
        **OTHERWISE,
        "type": EntryType.SOCKET,
        "digest": None,
        "archive": Archive(path=b"a", size_bytes=1),
    }
    proof = replace(PROOF, **{"type": kind, **{name: others[name] for name in changed}})
    ignored = {"digest", "archive", "ctime_ns", "ino"} | (set() if kind is EntryType.FILE else {"size_bytes"})
    if changed - ignored:
        expected: retire.Cover | retire.UncoveredKind = retire.UncoveredKind.CHANGED
    elif kind is not EntryType.FILE:
        expected = retire.Cover.PROVEN
    elif changed & {"digest", "archive"}:
        expected = retire.UncoveredKind.CONTENT
    else:
        expected = retire.Cover.READ if changed else retire.Cover.PROVEN
    assert judged(found, proof) is expected


@given(st.sampled_from([None, ALICE, b"home/bob", b"home/carol"]), st.binary(min_size=1, max_size=8))
def test_without_a_proof_nothing_is_covered_but_what_this_program_has_put_into_the_root(
    tree: bytes | None, name: bytes
) -> None:
    kinds = {
        None: retire.UncoveredKind.OUTSIDE,
        ALICE: retire.UncoveredKind.NEW,
        b"home/bob": retire.UncoveredKind.UNPROVEN,
        b"home/carol": retire.UncoveredKind.NOT_MOVED,
    }
    name = name.replace(b"/", b"_")
    for own in retire_rules.OWN_NAMES:
        assert judged(replace(FOUND, tree=None, path=own + b"/" + name), None) is retire.Cover.OWN
        assert judged(replace(FOUND, tree=tree, path=b"home/" + own + b"/" + name), None) is kinds[tree]
        assert judged(replace(FOUND, tree=tree, path=own + b"_" + name), None) is kinds[tree]


def test_kept_paths_of_a_purge_are_not_own_and_a_manifest_covers_a_former_tree() -> None:
    kept = replace(FOUND, tree=None, path=b".migrator-purge/cutover-000001/tree/x")
    assert judged(kept, None) is retire.UncoveredKind.OUTSIDE
    assert judged(replace(FOUND, tree=None), PROOF) is retire.Cover.PROVEN


def test_content_that_was_read_decides() -> None:
    assert retire_rules.judge_content(FOUND, PROOF, b"d", "") is retire.Cover.PROVEN
    for digest, problem, kind in (
        (b"e", "", retire.UncoveredKind.CHANGED),
        (b"d", "changed while it was read", retire.UncoveredKind.CONTENT),
        (None, "could not be read: Input/output error", retire.UncoveredKind.CONTENT),
        (None, "", retire.UncoveredKind.CONTENT),
    ):
        verdict = retire_rules.judge_content(FOUND, PROOF, digest, problem)
        assert isinstance(verdict, retire.Uncovered)
        assert (verdict.kind, verdict.size_bytes) == (kind, 7)


def cutover(state: CutoverState) -> CutoverRecord:
    tree = UserTree(path=ALICE, user="alice")
    return made(CutoverRecord, tree=tree, state=state, times={state: 1.0}, notes=CutoverNotes(verification_id=3))


def with_state(**changes: Any) -> retire_rules.RetireFacts:
    return replace(FACTS, health=replace(FACTS.health, state=replace(STATE, **changes)))


def waiting(entries: int | None) -> tuple[BrickHeal, ...]:
    return (BrickHeal(brick="b", status="Connected" if entries else "no", entries=entries),)


OPEN = OpenFile(host="gl1", path=b"home/alice/x\n", kind=OpenKind.FILE, writable=False)
TASK = remove_brick("gl1:/b")
CLIENT = ClientSeen(brick="gl1:/b", address="10.0.0.9:49151")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(FACTS, mounts=("the source has no sentinel",)), "sentinel"),
        (replace(FACTS, health=SourceHealth(problems=("brick gl1:/b is down",), fingerprint="")), "is down"),
        (replace(FACTS, health=SourceHealth(problems=(), fingerprint="")), "pool"),
        (with_state(peers_down=None), "pool"),
        (with_state(peers_down=("gl2",)), "gl2 is not connected"),
        (with_state(replica_count=3, heals=None), "pending heals"),
        (with_state(heals=waiting(2)), "2 entries"),
        (with_state(heals=waiting(None)), "unknown"),
        (replace(FACTS, tasks=None), "status VOLUME tasks"),
        (replace(FACTS, tasks=(TASK,)), "has not ended"),
        (replace(FACTS, drains=("gl1:/b",)), "a drain of gl1:/b"),
        (replace(FACTS, additions=("gl1:/b",)), "an addition of gl1:/b"),
        (replace(FACTS, cutovers=(cutover(CutoverState.FROZEN),)), "alice may be frozen"),
        (replace(FACTS, cutovers=(cutover(CutoverState.PURGING),)), "purge of alice"),
        (replace(FACTS, purge_left=None), "unknown"),
        (replace(FACTS, purge_left=True), "purge has left"),
        (replace(FACTS, clients=None), "volume status VOLUME clients"),
        (replace(FACTS, clients_unseen=("gl1: no answer",)), "gl1: no answer"),
        (replace(FACTS, clients=(CLIENT,)), "10.0.0.9 (1 connection)"),
        (replace(FACTS, opened=Writers(unseen=("brick gl1:/b",))), "brick gl1:/b"),
        (replace(FACTS, opened=Writers(open_files=(OPEN, OPEN))), "1 path is open: home/alice/x\\x0a"),
    ],
)
def test_each_failed_check_alone_refuses_it(facts: retire_rules.RetireFacts, words: str) -> None:
    assert any(words in problem for problem in retire_rules.retire_problems(facts))


def test_a_quiet_volume_whose_users_were_moved_can_be_retired() -> None:
    resting = tuple(cutover(state) for state in (CutoverState.RETAINED, CutoverState.PURGED, CutoverState.REVERTED))
    done = replace(TASK, kind=TaskKind.REBALANCE, name="Rebalance", status=TaskStatus.COMPLETED)
    assert retire_rules.retire_problems(replace(FACTS, cutovers=resting, tasks=(done,))) == ()


def test_only_the_manifest_that_the_cutover_rests_on_counts_as_it_was_written() -> None:
    proof = partial(verification, trees=(ALICE,))
    record = cutover(CutoverState.RETAINED)
    assert retire_rules.manifest_problem(record, proof(), "d") is None
    for other, digest in (
        (None, "d"),
        (proof(manifest=None), None),
        (proof(finished_at_s=None), "d"),
        (proof(whole=False), "d"),
        (proof(trees=(b"home/bob",)), "d"),
        (proof(), None),
        (proof(), "e"),
    ):
        assert retire_rules.manifest_problem(record, other, digest) is not None


ANN, BEN = b"home/alice", b"home/b'ob\n\xff"
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
        blocks = cover_paths(
            closed_catalogs(self.catalogs), "catalog-1", dict(moved), name_seed=7, scratch=self.scratch
        )
        found = [pair for block in blocks for pair in block]
        assert len({path.path for path, _ in found}) == len(found)
        return {path.path: (path, proof) for path, proof in found}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


HERE = (
    directory(ANN),
    invented(ANN + b"/file", size_bytes=7, mtime_ns=5, ino=2**64 - 3, xattrs={b"user.a": b"b"}),
    symlink(ANN + b"/link", b"\xff\n"),
    invented(ANN + b"/device", EntryType.CHARACTER, rdev=2**33 + 1),
    invented(ANN + b"0", size_bytes=1),
    directory(BEN),
    invented(BEN + b"/file", size_bytes=3),
    invented(b"notice", size_bytes=9),
)


def test_every_path_that_is_no_directory_stands_beside_its_row_fact_by_fact(world: World) -> None:
    write_catalog(world.catalogs, HERE, [ANN, BEN])
    moved = (
        (ANN, world.manifest("one", *HERE[:4])),
        (BEN, world.manifest("two", HERE[6])),
    )
    pairs = world.pairs(*moved)
    assert sorted(pairs) == sorted(entry.path for entry in HERE if entry.type is not EntryType.DIRECTORY)
    judged = {path: judge_path(found, proof, moved={ANN, BEN}, unproven=()) for path, (found, proof) in pairs.items()}
    proven = {path for path, verdict in judged.items() if verdict is Cover.PROVEN}
    assert proven == {entry.path for entry in (*HERE[1:4], HERE[6])}
    found, proof = pairs[ANN + b"/file"]
    assert (found.ino, found.tree, proof and proof.digest) == (2**64 - 3, ANN, DIGEST)


def test_a_manifest_counts_for_its_own_tree_alone(world: World) -> None:
    """One of a verification of a whole batch has rows of others, who were moved by newer ones, or never."""
    write_catalog(world.catalogs, HERE, [ANN, BEN])
    whole = world.manifest("whole", *HERE)
    pairs = world.pairs((ANN, whole))
    with_proof = {path for path, (_, proof) in pairs.items() if proof is not None}
    assert with_proof == {entry.path for entry in HERE[1:4]}
    newer = world.manifest("newer", replace(HERE[6], mtime_ns=8))
    pairs = world.pairs((ANN, whole), (BEN, newer))
    proof = pairs[HERE[6].path][1]
    assert proof is not None
    assert proof.mtime_ns == 8


def test_a_path_in_an_archive_is_uncovered(world: World) -> None:
    write_catalog(world.catalogs, HERE, [ANN, BEN])
    draft = world.manifests.create("archived", algorithm="xxh128")
    member = ArchivedMember(entry=HERE[1], archive=3, offset_bytes=0, digest=DIGEST, algorithm="xxh128")
    draft.add(verified=[VerifiedPath(source=HERE[1], target=None, archived=member)])
    found, proof = world.pairs((ANN, draft.close().file))[HERE[1].path]
    verdict = judge_path(found, proof, moved={ANN}, unproven=())
    assert not isinstance(verdict, Cover)
    assert verdict.kind is UncoveredKind.CONTENT


def test_a_manifest_or_catalog_that_is_not_there_is_no_proof(world: World, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        world.pairs()
    write_catalog(world.catalogs, HERE, [ANN, BEN])
    # Without moved users nothing has a proof.
    assert {proof for _, proof in world.pairs().values()} == {None}
    with pytest.raises(Refused, match="cannot be compared"):
        world.pairs((ANN, str(tmp_path / "gone.parquet")))
