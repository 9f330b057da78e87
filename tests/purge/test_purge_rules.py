"""What may be purged: every guard of a tree, every fact of a path, how fast, and only through the closed directory."""

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.catalog.model import VerificationRecord
from migrator.core.entry import ACL_ACCESS, Entry, EntryType, UserTree, xattr_digest
from migrator.core.errors import Refused
from migrator.core.events import Severity
from migrator.core.probe import OVER_PROBES, UNDER_PROBES, Probe, ProbeSide, ProbeTimes
from migrator.core.units import GIB
from migrator.cutover.model import CutoverNotes, CutoverRecord, CutoverState
from migrator.cutover.model_snapshot import LinkState
from migrator.fs.model import PURGE_NAME, TargetCapabilities
from migrator.fs.reading import ReadingFileSystem
from migrator.purge.files import MountedPlaces
from migrator.purge.model import Archive, Judgement, ManifestSum, Position, Proof, PurgeItem
from migrator.purge.rate import RemovalRate
from migrator.purge.rules import (
    CLOCK_SLACK_NS,
    judge_archive,
    judge_source,
    judge_target,
    left_alone,
    plan_checksum,
    purge_problems,
    shrink_problem,
)
from migrator.transfer.model_governor import Limits
from tests.support.entries import entry
from tests.support.fakes import VirtualClock
from tests.support.making import made
from tests.support.records import verification

TREE = UserTree(path=b"home/alice", user="alice")
S = CutoverState
DAY_S = 86_400.0

RECORD = made(
    CutoverRecord,
    id=7,
    tree=TREE,
    state=S.RETAINED,
    times={S.THAWED: 1000.0, S.RETAINED: 1001.0},
    thawed_at_s=1000.0,
    notes=CutoverNotes(link=b"/home/alice", verification_id=3),
)
TOP = entry(TREE.path, type=EntryType.DIRECTORY, uid=0, gid=100, mode=0o2500)
PROOF = verification(
    id=3, started_at_s=900.0, finished_at_s=950.0, paths=10, size_bytes=10, digested_files=9, digested_bytes=10
)
TOTAL = ManifestSum(names=10, without_digest=0)
WELL: dict[str, Any] = {
    "position": Position.IN_PLACE,
    "top": TOP,
    "target_top": replace(TOP, uid=1, mode=0o755),
    "target_names": 1,
    "leads_to": LinkState.TARGET,
    "verification": PROOF,
    "manifest_digest": "d",
    "total": TOTAL,
    "scan_whole": True,
    "lacks_backup": False,
}


def problems(record: CutoverRecord = RECORD, **changes: Any) -> tuple[str, ...]:
    return purge_problems(record, **(WELL | changes))


@pytest.mark.parametrize("missing", [name for name in WELL if name not in ("lacks_backup", "verification")])
def test_an_unknown_fact_refuses_the_purge(missing: str) -> None:
    changes: dict[str, Any] = {missing: None}
    assert len(problems(**changes)) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"position": Position.BOTH}, "exists on the source again"),
        ({"position": Position.GONE}, "this program did not remove it"),
        ({"top": replace(TOP, uid=1000)}, "not as the freeze left it"),
        ({"top": replace(TOP, mode=0o750)}, "not as the freeze left it"),
        ({"top": replace(TOP, xattrs={ACL_ACCESS: b""})}, "not as the freeze left it"),
        ({"top": replace(TOP, type=EntryType.SYMLINK)}, "is a symlink now"),
        ({"target_top": replace(TOP, type=EntryType.FILE)}, "no directory"),
        ({"target_names": 0}, "is empty"),
        ({"leads_to": LinkState.SOURCE}, "leads to the source again"),
        ({"leads_to": LinkState.OTHER}, "does not lead to the target"),
        ({"verification": None}, "no proof of what is on the target"),
        ({"verification": replace(PROOF, finished_at_s=None)}, "no proof of what is on the target"),
        ({"verification": replace(PROOF, whole=False, reasons=("a brick was down",))}, "a brick was down"),
        ({"verification": replace(PROOF, differences={"size": 2})}, "2 differences"),
        ({"verification": replace(PROOF, manifest=None)}, "left no manifest"),
        ({"manifest_digest": "other"}, "not the one that the verification wrote"),
        ({"total": replace(TOTAL, without_digest=1)}, "1 file of the manifest has no digest"),
        ({"total": replace(TOTAL, names=0)}, "holds nothing of the tree"),
        ({"scan_whole": False}, "was not whole"),
        ({"lacks_backup": True}, "no backup of the target is recorded"),
    ],
)
def test_each_guard_is_one_sentence(changes: dict[str, Any], words: str) -> None:
    (sentence,) = problems(**changes)
    assert words in sentence


def test_a_tree_is_due_when_its_time_is_over_since_the_last_thaw() -> None:
    due_s = 1000.0 + 30 * DAY_S

    def due_at_s(record: CutoverRecord | None, now_s: float) -> float | None:
        later = left_alone(TREE, record, now_s=now_s, retain_s=30 * DAY_S)
        return 0 if later is None else later.due_at_s

    for state in set(S) - {S.RETAINED, S.PURGING, S.PURGED}:
        assert due_at_s(replace(RECORD, state=state, times={**RECORD.times, state: 2.0}), 1e12) is None
    assert due_at_s(None, 1e12) is None
    assert due_at_s(replace(RECORD, times={S.RETAINED: 1001.0}), 1e12) is None
    assert due_at_s(RECORD, due_s - 1) == due_s
    assert due_at_s(RECORD, due_s) == 0
    assert due_at_s(replace(RECORD, times={**RECORD.times, S.THAWED: 5000.0}), due_s) == due_s + 4000
    for state in (S.PURGING, S.PURGED):
        assert due_at_s(replace(RECORD, state=state), 0) == 0


def test_the_checksum_covers_trees_and_proofs_and_stays_during_the_purge() -> None:
    def checksum(*trees: tuple[CutoverRecord, VerificationRecord | None], site: str = "s") -> str:
        return plan_checksum(site, "/src", "/dst", [PurgeItem(record=record, proof=proof) for record, proof in trees])

    one = checksum((RECORD, PROOF))
    assert checksum((replace(RECORD, state=S.PURGING), PROOF)) == one
    others = [
        checksum(),
        checksum((RECORD, PROOF), site="t"),
        checksum((RECORD, None)),
        checksum((replace(RECORD, id=8), PROOF)),
        checksum((RECORD, replace(PROOF, manifest_digest="e"))),
        plan_checksum("s", "/src", "/dst", [PurgeItem(record=RECORD, proof=PROOF, carried=(PROOF,))]),
        checksum((replace(RECORD, tree=UserTree(path=b"home/\xff", user="\udcff")), PROOF)),
    ]
    assert len({one, *others}) == 1 + len(others)


@pytest.mark.parametrize(
    ("gone", "gone_bytes", "share", "too_much"),
    [
        (500, 5 * GIB, 0.5, False),
        (501, 0, 0.5, True),
        (1, 5 * GIB + 1, 0.5, True),
        (1, 0, 0.0, True),
        (1, 0, float("nan"), True),
        (0, 0, 0.0, False),
    ],
)
def test_a_share_of_a_tree_may_be_gone_on_the_target(gone: int, gone_bytes: int, share: float, too_much: bool) -> None:
    found = shrink_problem(TREE, gone=gone, names=1000, gone_bytes=gone_bytes, size_bytes=10 * GIB, max_shrink=share)
    assert (found is not None) is too_much


XATTRS = {b"user.a": b"1"}
ENTRY = entry(
    b"home/alice/f",
    size_bytes=10,
    uid=1,
    gid=2,
    mode=0o640,
    mtime_ns=1_500_000_000,
    ctime_ns=1_600_000_000,
    ino=99,
    xattrs=XATTRS,
)
_OF_ENTRY: dict[str, Any] = {name: getattr(ENTRY, name) for name in Proof.__struct_fields__ if hasattr(ENTRY, name)}
ROW = Proof(**_OF_ENTRY | {"xattr_digest": xattr_digest(XATTRS), "digest": b"d", "algorithm": "xxh3_128"})
LET_IN_NS = 10_000_000_000_000


def directory(**changes: Any) -> tuple[Entry, Proof]:
    return replace(ENTRY, type=EntryType.DIRECTORY, **changes), replace(
        ROW, type=EntryType.DIRECTORY, digest=None, algorithm=None
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"type": EntryType.FIFO},
        {"size_bytes": 11},
        {"mtime_ns": 1_500_000_001},
        {"uid": 3},
        {"gid": 3},
        {"mode": 0o644},
        {"xattrs": {}},
        {"symlink_target": b"x"},
        {"rdev": 5},
    ],
)
def test_any_other_fact_keeps_it(changes: dict[str, Any]) -> None:
    verdict = judge_source(replace(ENTRY, **changes), ROW, closed_uid=0)
    assert (verdict.judgement, bool(verdict.words)) == (Judgement.OPEN, True)


def test_without_a_row_or_a_digest_it_stays() -> None:
    for proof in (None, replace(ROW, digest=None), replace(ROW, algorithm=None)):
        assert judge_source(ENTRY, proof, closed_uid=0).judgement is Judgement.OPEN


def test_a_directory_that_a_purge_has_closed_is_its_own() -> None:
    found, proof = directory(uid=0, gid=2, mode=0o700)
    assert judge_source(found, proof, closed_uid=0).judgement is Judgement.COVERED
    assert judge_source(found, proof, closed_uid=1).judgement is Judgement.OPEN
    assert judge_source(replace(found, mode=0o755), proof, closed_uid=0).judgement is Judgement.OPEN
    assert judge_source(replace(ENTRY, uid=0, mode=0o700), ROW, closed_uid=0).judgement is Judgement.OPEN


def stand(target: Entry | None, *, above_ns: int | None = None, granularity_ns: int = 1) -> Judgement:
    capabilities = TargetCapabilities(time_granularity_ns=granularity_ns)
    verdict = judge_target(ROW, target, above_ctime_ns=above_ns, let_in_ns=LET_IN_NS, capabilities=capabilities)
    assert bool(verdict.words) == (verdict.judgement is Judgement.OPEN)
    return verdict.judgement


def test_an_equal_path_on_the_target_is_covered() -> None:
    assert stand(ENTRY) is Judgement.COVERED
    assert stand(replace(ENTRY, mtime_ns=1_000_000_000), granularity_ns=1_000_000_000) is Judgement.COVERED
    assert stand(replace(ENTRY, mtime_ns=1_000_000_000)) is Judgement.OPEN


def test_a_change_by_the_user_has_a_later_ctime() -> None:
    changed = replace(ENTRY, size_bytes=3)
    for ctime_ns, expected in (
        (LET_IN_NS, Judgement.CHANGED),
        (LET_IN_NS - CLOCK_SLACK_NS, Judgement.CHANGED),
        (LET_IN_NS - CLOCK_SLACK_NS - 1, Judgement.OPEN),
    ):
        assert stand(replace(changed, ctime_ns=ctime_ns)) is expected
        assert stand(replace(ENTRY, type=EntryType.DIRECTORY, ctime_ns=ctime_ns)) is expected


def test_a_missing_path_needs_a_directory_that_changed_since() -> None:
    assert stand(None, above_ns=LET_IN_NS) is Judgement.GONE
    assert stand(None, above_ns=LET_IN_NS - CLOCK_SLACK_NS - 1) is Judgement.OPEN
    assert stand(None, above_ns=None) is Judgement.OPEN


def test_a_packed_path_needs_its_archive() -> None:
    packed = replace(ROW, archive=Archive(path=b"archive", size_bytes=10))
    assert judge_archive(packed, ENTRY).judgement is Judgement.COVERED
    for archive in (None, replace(ENTRY, size_bytes=9), replace(ENTRY, type=EntryType.SYMLINK)):
        assert judge_archive(packed, archive).judgement is Judgement.OPEN


MOST = 1000
LIMIT_S = 0.05


@dataclass
class Purge:
    """A pace with a brake over a real ledger, and what was told."""

    ledger: MigrationLedger
    clock: VirtualClock = field(default_factory=VirtualClock)
    told: list[tuple[Severity, str]] = field(default_factory=list)
    max_latency_s: float | None = LIMIT_S

    def __post_init__(self) -> None:
        self.pace = RemovalRate(
            probes=self.ledger.probes,
            controls=self.ledger.controls,
            clock=self.clock,
            most=MOST,
            max_latency_s=self.max_latency_s,
            report=lambda severity, words: self.told.append((severity, words)),
        )

    def rate(self, names: int = 20_000) -> float:
        """How many names per second go, the pace alone counted."""

        async def take() -> float:
            await self.pace.take(64)
            began_s = self.clock.at_s
            for _ in range(names // 50):
                await self.pace.take(50)
            return names / (self.clock.at_s - began_s)

        return asyncio.run(take())

    def probe(self, latency_s: float, count: int) -> None:
        """So many probes, a minute apart, while names go as the pace lets them."""
        for _ in range(count):
            times = ProbeTimes(create_s=latency_s, write_s=9.0, sync_s=9.0, stat_s=0, unlink_s=0, readdir_s=0)
            self.ledger.probes.add(Probe(side=ProbeSide.SOURCE, at_s=self.clock.now_s(), times=times))
            asyncio.run(self._go_on(self.clock.at_s + 60.0))

    async def _go_on(self, until_s: float) -> None:
        while self.clock.at_s < until_s:
            await self.pace.take(500)


def test_it_slows_down_and_recovers_its_rate(ledger: MigrationLedger) -> None:
    purge = Purge(ledger)
    assert purge.rate() == pytest.approx(MOST, rel=0.05)
    purge.probe(2 * LIMIT_S, OVER_PROBES)
    slowed = purge.rate()
    assert slowed == pytest.approx(0.7 * MOST, rel=0.1)
    ((severity, words),) = purge.told
    assert severity is Severity.WARNING
    assert "per second" in words
    purge.probe(LIMIT_S / 10, 4 * UNDER_PROBES)
    assert purge.rate() == pytest.approx(MOST, rel=0.05)
    assert len(purge.told) > 1
    assert {severity for severity, _ in purge.told[1:]} == {Severity.INFO}


@pytest.mark.parametrize(
    ("before", "tuned", "after", "slows"),
    [(3 * OVER_PROBES, False, 0, False), (0, True, OVER_PROBES + 1, True), (4 * OVER_PROBES, True, 0, False)],
    ids=["no limit", "tuned", "tuned after the probes"],
)
def test_probes_count_from_the_time_that_there_is_a_limit(
    ledger: MigrationLedger, before: int, tuned: bool, after: int, slows: bool
) -> None:
    purge = Purge(ledger, max_latency_s=None)
    purge.probe(2 * LIMIT_S, before)
    if tuned:
        ledger.controls.tune(Limits(max_latency_s=LIMIT_S), by="somebody", at_s=purge.clock.at_s)
    purge.probe(2 * LIMIT_S, after)
    rate = purge.rate()
    assert rate < 0.8 * MOST if slows else rate == pytest.approx(MOST, rel=0.05)
    assert bool(purge.told) is slows


def test_it_never_stops(ledger: MigrationLedger) -> None:
    purge = Purge(ledger)
    purge.probe(2 * LIMIT_S, 40 * OVER_PROBES)
    assert 0 < purge.rate(100) <= 1


PLACE = PURGE_NAME + b"/cutover-000003-token"


@pytest.fixture
def places(tmp_path: Path) -> Iterator[MountedPlaces]:
    (tmp_path / "home/alice").mkdir(parents=True)
    (tmp_path / "home/alice/f").write_text("f")
    made = MountedPlaces(os.fsencode(tmp_path))
    yield made
    made.close()


def seen_at(root: Path, path: bytes) -> Entry:
    entry = ReadingFileSystem(os.fsencode(root)).look(path)
    assert entry is not None
    return entry


def test_another_directory_or_a_symlink_in_its_place_is_not_moved(places: MountedPlaces, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="another directory"):
        places.put(b"home/alice", PLACE, ino=1)
    (tmp_path / "home/alice").rename(tmp_path / "away")
    (tmp_path / "home/alice").symlink_to(tmp_path / "away")
    with pytest.raises(OSError, match="another directory"):
        places.put(b"home/alice", PLACE, ino=(tmp_path / "away").stat().st_ino)
    assert (tmp_path / "away/f").exists()


@pytest.mark.parametrize("made", ["file", "symlink", "open"])
def test_a_closed_directory_of_another_owner_is_refused(places: MountedPlaces, tmp_path: Path, made: str) -> None:
    theirs = tmp_path / ".migrator-purge"
    if made == "file":
        theirs.write_text("")
    elif made == "symlink":
        theirs.symlink_to(tmp_path / "home")
    else:
        theirs.mkdir()
        theirs.chmod(0o755)
    with pytest.raises(Refused):
        places.put(b"home/alice", PLACE, ino=(tmp_path / "home/alice").stat().st_ino)
    assert (tmp_path / "home/alice/f").exists()


def test_only_what_was_seen_is_removed(places: MountedPlaces, tmp_path: Path) -> None:
    path, file = b"home/alice/f", tmp_path / "home/alice/f"
    before = seen_at(tmp_path, path)
    file.write_text("g")
    assert not places.remove(path, before)
    now = seen_at(tmp_path, path)
    others = [
        replace(now, ino=now.ino + 1),
        replace(now, size_bytes=2),
        replace(now, mode=0o600 if now.mode != 0o600 else 0o644),
        replace(now, uid=now.uid + 1),
        replace(now, ctime_ns=now.ctime_ns - 1),
    ]
    assert not any(places.remove(path, other) for other in others)
    file.rename(tmp_path / "home/alice/other")
    file.symlink_to(tmp_path / "home/alice/other")
    assert not places.remove(path, now)
    assert (tmp_path / "home/alice/other").exists()
    # Where inode numbers are not trusted, the device number is made up (ReadingFileSystem).
    link = replace(seen_at(tmp_path, path), dev=1)
    assert places.remove(path, link)
    assert (tmp_path / "home/alice/other").exists()


def as_user(work: Callable[[], object]) -> int:
    """The exit code of a process of the user 60001: 0, or 13 if permission was denied."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(60001, 60001, 60001)
        os.setresuid(60001, 60001, 60001)
        try:
            work()
        except PermissionError:
            os._exit(13)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.needs_root
def test_a_directory_is_closed_to_processes_that_have_it_open(places: MountedPlaces, tmp_path: Path) -> None:
    top = tmp_path / "home/alice"
    os.chown(top, 60001, 60001)
    entry = seen_at(tmp_path, b"home/alice")
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    assert as_user(lambda: os.open("before", os.O_CREAT | os.O_WRONLY, dir_fd=fd)) == 0
    places.close_directory(b"home/alice", seen_at(tmp_path, b"home/alice"))
    assert as_user(lambda: os.open("after", os.O_CREAT | os.O_WRONLY, dir_fd=fd)) == 13
    assert as_user(lambda: os.unlink("f", dir_fd=fd)) == 13
    os.close(fd)
    places.close_directory(b"home/alice", entry)
    with pytest.raises(OSError, match="another directory"):
        places.close_directory(b"home/alice", replace(entry, ino=1))
