"""What a freeze needs, and what the top of a tree is: as it was written down, on the target, and after a rollback."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.core.errors import LedgerCorrupt
from migrator.core.events import FindingStatus
from migrator.cutover import rules_tops, rules_writers
from migrator.cutover.model_snapshot import TopState
from migrator.cutover.rules_tops import FrozenTop
from migrator.cutover.rules_writers import OpenFile, OpenKind, Writers
from migrator.fs.model import TargetCapabilities
from migrator.gluster.model import ClientSeen
from tests.support.beegfs_like import BEEGFS_CAPABILITIES
from tests.support.entries import acl, entry
from tests.support.volumes import volume

ROOT = {"uid": 0, "gid": 0}
NO_ACLS = replace(BEEGFS_CAPABILITIES, keeps_acls=False)


NAMED, OTHERS, PLAIN = acl(7, 7, 5, 7, 0), acl(7, 6, 5, 5, 0), acl(7, None, 5, None, 0)
MASKED = acl(5, 7, 5, 0, 0)
TOP = FrozenTop(
    tree=b"home/al\xffice\n",
    ino=(1 << 64) - 3,
    gfid=bytes(range(16)),
    uid=1001,
    gid=1002,
    mode=0o2770,
    acl_access=NAMED,
    acl_default=OTHERS,
)
FROZEN = rules_tops.frozen_form(TOP)

tops = st.builds(
    FrozenTop,
    tree=st.binary(min_size=1),
    ino=st.integers(0, (1 << 64) - 1),
    gfid=st.none() | st.binary(min_size=16, max_size=16),
    uid=st.integers(0, (1 << 32) - 1),
    gid=st.integers(0, (1 << 32) - 1),
    mode=st.integers(0, 0o7777),
    acl_access=st.none() | st.binary(),
    acl_default=st.none() | st.binary(),
)


@given(tops)
def test_a_recorded_top_is_read_back_unchanged(kept: FrozenTop) -> None:
    text = rules_tops.write_top(kept)
    assert rules_tops.read_top(text) == kept
    for spoiled in ("", "{}", "[]", text.replace('"uid": ', '"uid": x')):
        with pytest.raises(LedgerCorrupt):
            rules_tops.read_top(spoiled)


# On the source, against what was written down.


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (replace(TOP, ino=5), "another directory has its name"),
        (replace(TOP, gfid=None), "another directory has its name"),
        (replace(TOP, gid=7), "its group is 7, and was 1002"),
        (replace(TOP, uid=7), "its owner is 7, and was 1001"),
        (replace(TOP, mode=0o2777), "its mode is 2777, and was 2770"),
        (replace(TOP, acl_access=acl(7, 0, 5, 7, 0)), "its ACL is u::---,u:1234:---"),
        (replace(TOP, acl_default=MASKED), "its default ACL is "),
        (replace(TOP, acl_default=b"odd"), "its default ACL is not readable, and was u::rwx"),
        (replace(FROZEN, mode=0o2700), "its mode is 2700"),
    ],
)
def test_foreign_changes_of_a_top_are_reported(now: FrozenTop, says: str) -> None:
    look = rules_tops.judge_top(TOP, now)
    assert look.state is TopState.OTHER
    assert says in "; ".join(look.differences)


# On the target, where a thaw opens it.


def top(**changes: Any) -> Entry:
    facts = {"mode": 0o2750, "ino": (1 << 64) - 5, "xattrs": {ACL_ACCESS: NAMED, b"user.a": b"b"}}
    return entry(TOP.tree, **{"type": EntryType.DIRECTORY, **facts, **changes})


CLOSED = top(uid=0, gid=0, mode=0o700, xattrs={b"user.a": b"b"})
OPENED = rules_tops.top_of(top())


@pytest.mark.parametrize(
    ("now", "wanted", "seen"),
    [
        (CLOSED, None, TopState.FROZEN),
        (top(), None, TopState.OTHER),
        (None, None, TopState.OTHER),
        (CLOSED, OPENED, TopState.FROZEN),
        (replace(CLOSED, xattrs={ACL_DEFAULT: NAMED}), None, TopState.OTHER),
        (top(), OPENED, TopState.OPEN),
        # As a thaw goes: bits of the owner alone, the owner, attributes, then the mode; as closing goes: the owner first.
        (replace(CLOSED, uid=1001, gid=1002), OPENED, TopState.PARTLY),
        (replace(CLOSED, uid=1001, gid=1002, xattrs={ACL_DEFAULT: NAMED}), OPENED, TopState.PARTLY),
        (top(uid=0, gid=0), OPENED, TopState.PARTLY),
        # Its user may make of it what they want, and nobody else.
        (top(mode=0o755, xattrs={}), OPENED, TopState.OPEN),
        (top(uid=77), OPENED, TopState.OTHER),
        # An ACL that the mode says as well counts as none.
        (top(xattrs={}), rules_tops.top_of(top(xattrs={ACL_ACCESS: PLAIN})), TopState.OPEN),
    ],
)
def test_the_state_of_the_top_on_the_target(now: Entry | None, wanted: FrozenTop | None, seen: TopState) -> None:
    assert rules_tops.target_top(now, wanted, **ROOT)[0] is seen


# After a rollback: what the user changed of it on the target, and nothing else.


def frozen(mode: int = 0o750, access: bytes | None = None, default: bytes | None = None, **more: int) -> FrozenTop:
    facts: dict[str, Any] = {"mode": mode, "acl_access": access, "acl_default": default, **more}
    return replace(TOP, **facts)


def carried(
    before: FrozenTop,
    after: FrozenTop,
    source: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    capabilities: TargetCapabilities = BEEGFS_CAPABILITIES,
) -> Entry:
    now = top(uid=0, mode=0o500, mtime_ns=5, xattrs={})
    return rules_tops.carried_top(
        replace(now, **(source or {})),
        replace(now, **(target or {})),
        source_before=before,
        target_before=after,
        capabilities=capabilities,
    )


BEFORE = frozen(access=NAMED, default=OTHERS, mode=0o770)


@pytest.mark.parametrize(
    ("before", "after", "capabilities", "expected"),
    [
        (BEFORE, BEFORE, BEEGFS_CAPABILITIES, BEFORE),
        (frozen(), frozen(mode=0o700), BEEGFS_CAPABILITIES, frozen(mode=0o700)),
        (frozen(), frozen(uid=60008, gid=60009), BEEGFS_CAPABILITIES, frozen(uid=60008, gid=60009)),
        # ACLs that the user gave and took away count.
        (frozen(), frozen(access=NAMED, mode=0o770), BEEGFS_CAPABILITIES, frozen(access=NAMED, mode=0o770)),
        (BEFORE, frozen(access=OTHERS), BEEGFS_CAPABILITIES, frozen(access=OTHERS)),
        (BEFORE, frozen(), BEEGFS_CAPABILITIES, frozen()),
        # One that the target could not keep stays, and with it the mode, unless the user gave another one.
        (BEFORE, frozen(mode=0o750), NO_ACLS, BEFORE),
        (BEFORE, frozen(mode=0o700), NO_ACLS, frozen(access=NAMED, default=OTHERS, mode=0o700)),
    ],
)
def test_a_rollback_keeps_the_users_changes_of_the_top(
    before: FrozenTop, after: FrozenTop, capabilities: TargetCapabilities, expected: FrozenTop
) -> None:
    made = carried(before, after, capabilities=capabilities)
    assert (made.uid, made.gid, made.mode) == (expected.uid, expected.gid, expected.mode)
    assert made.xattrs.get(ACL_ACCESS) == expected.acl_access
    assert made.xattrs.get(ACL_DEFAULT) == expected.acl_default


def test_a_rollback_restores_top_attributes_that_the_target_cannot_keep() -> None:
    long = b"x" * (BEEGFS_CAPABILITIES.max_xattr_value_bytes + 1)
    there = {b"user.kept": b"new", b"user.made": b"2"}
    lost = {b"user.long": long, b"security.label": b"s"}
    source = {"xattrs": {b"user.gone": b"1", b"user.kept": b"old", **lost}}
    assert carried(frozen(), frozen(), source, {"xattrs": there}).xattrs == {**lost, **there}
    whole, fraction, later = {"mtime_ns": 7_000_000_000}, {"mtime_ns": 7_300_000_000}, {"mtime_ns": 8_300_000_000}
    assert carried(frozen(), frozen(), fraction, whole).mtime_ns == 7_300_000_000
    assert carried(frozen(), frozen(), later, whole).mtime_ns == 7_000_000_000


FILE = OpenFile(host="gl1", path=b"home/ann/data", kind=OpenKind.FILE, writable=True, brick="gl1:/srv/b1")


@pytest.mark.parametrize("vouched", [False, True])
@pytest.mark.parametrize(
    ("changes", "writes"),
    [
        ({}, True),
        ({"kind": OpenKind.WORKING_DIRECTORY, "writable": False}, True),
        ({"kind": OpenKind.MAP}, True),
        ({"kind": OpenKind.LOOP_DEVICE}, True),
        ({"writable": False}, False),
        ({"kind": OpenKind.DIRECTORY, "writable": False}, False),
        ({"kind": OpenKind.MAP, "writable": False}, False),
        ({"unlinked": True}, False),
        ({"kind": OpenKind.WORKING_DIRECTORY, "writable": False, "unlinked": True}, False),
    ],
)
def test_only_writers_prevent_a_freeze_even_if_a_hook_vouches(
    changes: dict[str, Any], writes: bool, vouched: bool
) -> None:
    reasons = rules_writers.writing_problems(Writers(open_files=(replace(FILE, **changes),)), vouched=vouched)
    assert len(reasons) == writes
    assert all("home/ann/data: " in reason and "through brick gl1:/srv/b1" in reason for reason in reasons)


def test_gaps_of_a_search_prevent_a_freeze_unless_a_hook_vouches() -> None:
    writers = Writers(unseen=("gl2 cannot be reached",))
    # Before the freeze open files do not count yet: their users may still close them.
    for reasons, found in (
        (rules_writers.writing_problems, writers),
        (rules_writers.search_gaps, replace(writers, open_files=(FILE,))),
    ):
        (reason,) = reasons(found, vouched=False)
        assert "gl2 cannot be reached" in reason
        assert reasons(found, vouched=True) == ()


@pytest.mark.parametrize("filesystem", ["nfs4", "beegfs", "fuse.sshfs", "lustre", "something-new"])
def test_clients_elsewhere_are_a_gap_of_the_search(filesystem: str) -> None:
    (sentence,) = rules_writers.clients_unseen(filesystem, mount=b"/mnt/data")
    assert filesystem in sentence
    assert "/mnt/data" in sentence


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ((), False),
        ((("performance.open-behind", "on"),), False),
        ((("performance.open-behind", "off"), ("nfs.disable", "on")), True),
        ((("performance.open-behind", "Disable"),), True),
    ],
)
def test_open_behind_is_a_gap_that_doctor_reports(options: tuple[tuple[str, str], ...], seen: bool) -> None:
    unseen = rules_writers.unopened_unseen(volume(options=options))
    assert (unseen == ()) is seen
    assert seen or "gluster volume set vol1 performance.open-behind off" in unseen[0]
    (finding,) = rules_writers.check_open_files(volume(options=options), vouched=False)
    assert finding.status is (FindingStatus.OK if seen else FindingStatus.WARNING)
    assert rules_writers.check_open_files(volume(options=options), vouched=True) == []


@pytest.mark.parametrize(
    ("options", "server"),
    [
        ((), None),
        ((("nfs.disable", "on"), ("user.smb", "disable"), ("ganesha.enable", "off")), None),
        ((("nfs.disable", "off"),), "Gluster's NFS server"),
        ((("ganesha.enable", "on"),), "NFS-Ganesha"),
        ((("user.cifs", "enable"),), "Samba"),
    ],
)
def test_servers_that_export_the_volume_are_named(options: tuple[tuple[str, str], ...], server: str | None) -> None:
    shown = volume(options=(("performance.open-behind", "off"), *options))
    unseen = rules_writers.exports_unseen(shown)
    assert [sentence.split(" exports ")[0] for sentence in unseen] == ([server] if server else [])
    assert len(rules_writers.check_open_files(shown, vouched=False)) == 1 + len(unseen)


def test_other_clients_are_named_by_host() -> None:
    clients = [ClientSeen(brick="b", address=f"10.0.0.{number % 7}:4915{number}") for number in range(9)]
    assert rules_writers.others_unseen((), ()) == ()
    (sentence,) = rules_writers.others_unseen(clients, ())
    assert "10.0.0.0 (2 connections), 10.0.0.1 (2 connections)" in sentence
    assert "and 2 hosts more" in sentence
    assert len(rules_writers.others_unseen(None, ())) == 1
    assert rules_writers.others_unseen(None, ["gl1 does not answer"])[0].endswith("gl1 does not answer")
