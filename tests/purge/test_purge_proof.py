"""Which paths of the source may go: all facts as they were verified, and what the target says of them."""

from dataclasses import replace
from typing import Any

import pytest

from migrator.core.entry import Entry, EntryType, xattr_digest
from migrator.fs.model import TargetCapabilities
from migrator.purge.model import Archive, Judgement, Proof
from migrator.purge.rules import CLOCK_SLACK_NS, judge_archive, judge_source, judge_target
from tests.support.entries import entry

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
PROOF = Proof(
    path=ENTRY.path,
    type=EntryType.FILE,
    size_bytes=10,
    mtime_ns=1_500_000_000,
    ctime_ns=1_600_000_000,
    uid=1,
    gid=2,
    mode=0o640,
    symlink_target=None,
    rdev=0,
    xattr_digest=xattr_digest(XATTRS),
    digest=b"d",
    algorithm="xxh3_128",
    ino=99,
)
LET_IN_NS = 10_000_000_000_000


def directory(**changes: Any) -> tuple[Entry, Proof]:
    return replace(ENTRY, type=EntryType.DIRECTORY, **changes), replace(
        PROOF, type=EntryType.DIRECTORY, digest=None, algorithm=None
    )


def test_what_is_as_it_was_verified_is_covered() -> None:
    assert judge_source(ENTRY, PROOF).judgement is Judgement.COVERED
    assert judge_source(replace(ENTRY, atime_ns=7, blocks=16), PROOF).judgement is Judgement.COVERED
    assert judge_source(ENTRY, replace(PROOF, ino=None)).judgement is Judgement.COVERED


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
    verdict = judge_source(replace(ENTRY, **changes), PROOF)
    assert (verdict.judgement, bool(verdict.words)) == (Judgement.OPEN, True)


def test_without_a_row_or_a_digest_it_stays() -> None:
    for proof in (None, replace(PROOF, digest=None), replace(PROOF, algorithm=None)):
        assert judge_source(ENTRY, proof).judgement is Judgement.OPEN


@pytest.mark.parametrize("changes", [{"ctime_ns": 1_600_000_001}, {"ino": 98}])
def test_another_ctime_or_inode_takes_reading(changes: dict[str, Any]) -> None:
    assert judge_source(replace(ENTRY, **changes), PROOF).judgement is Judgement.READ


def test_a_directory_that_a_purge_has_closed_is_its_own() -> None:
    found, proof = directory(uid=0, gid=2, mode=0o700)
    assert judge_source(found, proof, closed_uid=0).judgement is Judgement.COVERED
    assert judge_source(found, proof).judgement is Judgement.OPEN
    assert judge_source(replace(found, mode=0o755), proof, closed_uid=0).judgement is Judgement.OPEN
    assert judge_source(replace(ENTRY, uid=0, mode=0o700), PROOF, closed_uid=0).judgement is Judgement.OPEN


def stand(
    target: Entry | None, proof: Proof = PROOF, *, above_ns: int | None = None, granularity_ns: int = 1
) -> Judgement:
    capabilities = TargetCapabilities(time_granularity_ns=granularity_ns)
    verdict = judge_target(proof, target, above_ctime_ns=above_ns, let_in_ns=LET_IN_NS, capabilities=capabilities)
    assert bool(verdict.words) == (verdict.judgement is Judgement.OPEN)
    return verdict.judgement


def test_what_is_the_same_on_the_target_is_there() -> None:
    assert stand(ENTRY) is Judgement.COVERED
    assert stand(replace(ENTRY, mtime_ns=1_000_000_000), granularity_ns=1_000_000_000) is Judgement.COVERED
    assert stand(replace(ENTRY, mtime_ns=1_000_000_000)) is Judgement.OPEN


def test_what_the_user_changed_has_a_later_ctime() -> None:
    changed = replace(ENTRY, size_bytes=3)
    for ctime_ns, expected in (
        (LET_IN_NS, Judgement.CHANGED),
        (LET_IN_NS - CLOCK_SLACK_NS, Judgement.CHANGED),
        (LET_IN_NS - CLOCK_SLACK_NS - 1, Judgement.OPEN),
    ):
        assert stand(replace(changed, ctime_ns=ctime_ns)) is expected
        assert stand(replace(ENTRY, type=EntryType.DIRECTORY, ctime_ns=ctime_ns)) is expected


def test_what_is_gone_was_removed_from_a_directory_that_changed_since() -> None:
    assert stand(None, above_ns=LET_IN_NS) is Judgement.GONE
    assert stand(None, above_ns=LET_IN_NS - CLOCK_SLACK_NS - 1) is Judgement.OPEN
    assert stand(None, above_ns=None) is Judgement.OPEN


def test_what_was_packed_needs_its_archive() -> None:
    packed = replace(PROOF, archive=Archive(path=b"archive", size_bytes=10))
    assert judge_archive(packed, ENTRY).judgement is Judgement.COVERED
    for archive in (None, replace(ENTRY, size_bytes=9), replace(ENTRY, type=EntryType.SYMLINK)):
        assert judge_archive(packed, archive).judgement is Judgement.OPEN
