"""What follows from the states and the room of storage targets."""

from dataclasses import replace

import pytest

from migrator.beegfs import rules as beegfs_rules
from migrator.beegfs import version7, version8
from migrator.beegfs.model import CapacityPool, Consistency, StorageSeen, StripeSettings, TargetKind
from migrator.beegfs.tool import CallTimes
from migrator.beegfs.version8 import parse_targets
from migrator.core.errors import ToolFailed
from migrator.core.events import FindingStatus
from migrator.fs.model import Capacity
from migrator.hosts.process import GRACE_S
from migrator.transfer.context import LOOK_EVERY_S, QUIET_S
from migrator.transfer.model import RunRequest
from tests.support.beegfs_tool import VERSIONS, recorded, targets

GIB = 1 << 30
DF = Capacity(total_bytes=12 * GIB, free_bytes=11 * GIB, total_inodes=None, free_inodes=None)
OK, WARNING, FAILURE = FindingStatus.OK, FindingStatus.WARNING, FindingStatus.FAILURE


def seen(state: str = "", version: str = "8.2.2") -> StorageSeen:
    return StorageSeen(targets=parse_targets(targets(state, version)))


def with_one(number: int, **changes: object) -> StorageSeen:
    found = seen()
    return StorageSeen(
        targets=tuple(replace(one, **changes) if one.number == number else one for one in found.targets)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("state", "lost", "problems"),
    [
        ("", 0, 0),
        ("restarted", 0, 0),
        ("cap-low", 0, 0),
        ("cap-emergency", 0, 0),
        ("stopped-100s", 1, 1),
        ("stopped-offline", 1, 1),
    ],
)
def test_recorded_states_are_judged(version: str, state: str, lost: int, problems: int) -> None:
    found = seen(state, version)
    assert len(beegfs_rules.lost_targets(found)) == lost
    assert len(beegfs_rules.target_problems(found)) == problems
    assert all("target_storage_201" in words for words in beegfs_rules.lost_targets(found))


def test_a_server_that_nobody_knows_the_name_of_is_lost_too() -> None:
    unknown = replace(seen(), unanswered=(TargetKind.STORAGE,))
    for told in (beegfs_rules.lost_targets(unknown), beegfs_rules.target_problems(unknown)):
        (words,) = told
        assert words.startswith("a storage server: does not answer")
    (finding,) = beegfs_rules.check_storage_targets(unknown)
    assert finding.status is FAILURE


def test_a_server_that_is_off_is_told_within_a_minute() -> None:
    """By the worst sum of intervals and timeouts, with either version of the tool."""
    calls, tick_s = CallTimes(), RunRequest(plan="plan", batches=(), jobs=1, pid=1).progress_interval_s
    # What a stream does is compared twice; the tool reports whole seconds since the last contact.
    quiet_s = 2 * (QUIET_S + tick_s)
    silent_s = max(beegfs_rules.SILENT_AFTER_S + 1.0, quiet_s)
    # A look that was begun just before uses up its timeouts first.
    assert silent_s + max(LOOK_EVERY_S, calls.list_s + GRACE_S) + tick_s + calls.list_s < 60.0
    both_s = calls.room_s + calls.states_s + GRACE_S
    assert max(quiet_s, LOOK_EVERY_S, both_s + GRACE_S) + tick_s + both_s < 60.0


def test_an_answer_without_targets_is_none() -> None:
    assert len(beegfs_rules.target_problems(StorageSeen(targets=()))) == 2
    (problem,) = beegfs_rules.target_problems(
        StorageSeen(targets=tuple(one for one in seen().targets if one.kind is TargetKind.STORAGE))
    )
    assert "metadata" in problem


def test_only_targets_of_the_best_capacity_pool_and_of_the_storage_pool_of_trees_count() -> None:
    emergency = seen("cap-emergency")
    normal = [one.free_bytes for one in emergency.targets if one.number in (101, 102)]
    assert beegfs_rules.room_of(DF, emergency).free_bytes == 2 * min(one or 0 for one in normal)
    all_low = StorageSeen(targets=tuple(replace(one, pool=CapacityPool.LOW, free_bytes=GIB) for one in seen().targets))
    assert beegfs_rules.room_of(DF, all_low).free_bytes == 3 * GIB
    found = replace(with_one(201, storage_pool=2, free_bytes=4096), storage_pool=1)
    assert beegfs_rules.room_of(DF, found).free_bytes > 7 * GIB
    assert beegfs_rules.room_of(DF, replace(found, storage_pool=None)).free_bytes == 3 * 4096


def test_what_is_full_is_named_and_where_nothing_is_the_fullest() -> None:
    words = beegfs_rules.fullest_words(seen("cap-emergency").targets)
    assert "target_storage_201" in words
    assert "emergency" in words
    assert "101" not in words
    healthy = beegfs_rules.fullest_words(with_one(102, free_bytes=5).targets)
    assert "target_storage_102" in healthy
    assert "metadata target" in healthy
    assert beegfs_rules.fullest_words(()) == ""


@pytest.mark.parametrize(
    ("found", "status", "says"),
    [
        (seen(), OK, "3 storage targets and 2 metadata targets"),
        (seen("cap-low"), WARNING, "target_storage_201"),
        (seen("cap-emergency"), FAILURE, "target_storage_201"),
        (seen("stopped-offline"), FAILURE, "Offline"),
        (with_one(101, consistency=Consistency.BAD), FAILURE, "Bad"),
        (with_one(1, free_inodes=50_000), WARNING, "50,000 of 524,288 inodes"),
        (with_one(1, pool=None), WARNING, "not known"),
        (None, WARNING, "not known are then"),
    ],
)
def test_doctor_tells_each_with_its_fix(found: StorageSeen | None, status: FindingStatus, says: str) -> None:
    (finding,) = beegfs_rules.check_storage_targets(found, "the tool is missing")
    assert finding.status is status
    assert says in finding.message
    assert bool(finding.fix) == (status is not OK)


def test_stripes_and_quotas_are_checked_where_they_are_asked_for() -> None:
    two = StripeSettings(targets=2)
    assert beegfs_rules.check_stripe(None, None) == []
    assert [finding.status for finding in beegfs_rules.check_stripe(two, None)] == [FAILURE]
    assert [finding.status for finding in beegfs_rules.check_stripe(two, seen())] == [OK]
    assert beegfs_rules.check_quota(0, "no licence") == []
    assert [finding.status for finding in beegfs_rules.check_quota(2, None)] == [OK]
    (cannot,) = beegfs_rules.check_quota(2, "no licence")
    assert (cannot.status, "no licence" in cannot.message) == (WARNING, True)


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_are_told_by_their_hosts(version: str) -> None:
    rows = recorded("node-list-raw.ndjson.out", version).splitlines()
    clients = b"\n".join(row for row in rows if b'"type":1' in row)
    assert version8.parse_clients(clients) == ("beevm",)
    table = b"5FC-6B006D0C-node-01.cluster [ID: 7]\nlogin [ID: 8]\n"
    assert version7.parse_clients(table) == ("node-01.cluster", "login")
    for parse in (version7.parse_clients, version8.parse_clients):
        with pytest.raises(ToolFailed):
            parse(b"")
