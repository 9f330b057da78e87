"""What a plan says about the owners of files, by what this host knows of them."""

import grp
import pwd
import subprocess
import sys
import threading
from typing import Any

import pytest

from migrator.fs.kinds.table import KINDS
from migrator.fs.model import SurpriseKind
from migrator.plan.accounts import closed_accounts, read_accounts
from migrator.plan.model import Account, Accounts, NotedOwners
from migrator.plan.rules_surprises import describe_owners, group_limits, note_owners, unknown_accounts

NOBODYS = 4294967294
FAILURE = OSError(5, "no answer")


def account(name: str, groups: int = 1, shell: str = "/bin/bash", closed: str = "") -> Account:
    return Account(name=name, groups=groups, shell=shell, closed=closed)


PEOPLE = {1001: account("alice", 16), 1002: account("bob", 17), 1003: account("carol", 94)}
SERVICES = {0: account("root"), 33: account("www-data", shell="/usr/sbin/nologin"), 65534: account("nobody")}
LEFT = {1004: account("dave", shell="/sbin/nologin"), 1005: account("erin", closed="expired")}


def noted(limits: dict[str, int], **known: Any) -> dict[SurpriseKind, list[str]]:
    found = note_owners(Accounts(**known), limits)
    return {kind: sorted(owners.names.values()) for kind, owners in found.items()}


@pytest.mark.parametrize(
    ("source", "options", "target", "expected"),
    [
        ("gluster", {}, "beegfs", [93]),
        ("gluster", {"server.manage-gids": "on"}, "beegfs", []),
        ("gluster", {"server.manage-gids": "?"}, "nfs", [93, 16]),
        ("nfs", {"server.manage-gids": "on"}, "gluster", [16, 93]),
        ("xfs", {}, "lustre", []),
    ],
)
def test_the_limits_of_both_sides_count(source: str, options: dict[str, str], target: str, expected: list[int]) -> None:
    assert list(group_limits(KINDS[source], options, KINDS[target]).values()) == expected


def test_owners_are_noted_by_the_lowest_limit_and_by_closed_accounts() -> None:
    left = ["dave (/sbin/nologin)", "erin (expired)"]
    users = {**SERVICES, **PEOPLE, **LEFT}
    assert noted({}, users=users) == {SurpriseKind.LEFT: left}
    many = ["bob (17 groups)", "carol (94 groups)"]
    assert noted({"s": 93, "t": 16}, users=users) == {SurpriseKind.MANY_GROUPS: many, SurpriseKind.LEFT: left}
    assert noted({"s": 93}, users=PEOPLE) == {SurpriseKind.MANY_GROUPS: ["carol (94 groups)"]}


def test_properties_of_all_owners_belong_to_the_host() -> None:
    assert noted({}, users={**SERVICES, **LEFT}) == {SurpriseKind.LEFT: ["dave (/sbin/nologin)", "erin (expired)"]}
    assert noted({}, users={**SERVICES, 1004: LEFT[1004]}) == {}
    strangers: dict[str, Any] = {"no_user": frozenset({7, 8}), "no_group": frozenset({9})}
    assert noted({}, users=PEOPLE, **strangers) == {
        SurpriseKind.NO_USER: ["uid 7", "uid 8"],
        SurpriseKind.NO_GROUP: ["gid 9"],
    }
    assert noted({}, users=SERVICES, **strangers) == {}
    (said,) = unknown_accounts(Accounts(users=SERVICES, **strangers))
    assert "knows none of 2 owners" in said.detail
    assert not list(unknown_accounts(Accounts(users=PEOPLE, **strangers)))


def test_five_owners_are_named() -> None:
    names = {uid: f"uid {uid}" for uid in range(9)}
    said = describe_owners(NotedOwners(words="no account", names=names), range(7))
    assert said == "no account: uid 0, uid 1, uid 2, uid 3, uid 4, and 2 more"


def test_failed_lookups_are_unknown_never_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()

    def user(uid: int) -> Account | None:
        if uid == 3:
            raise FAILURE
        if uid == 4:
            held.wait()
        return PEOPLE.get(uid)

    try:
        known = read_accounts([3, 4, 1001], [0], now_s=0.0, user=user, patience_s=0.0)
    finally:
        held.set()
    assert {"uid 4", "uid 1001", "gid 0"} <= set(known.unknown)
    assert (known.users, known.no_user, known.no_group) == ({}, frozenset(), frozenset())
    (said,) = unknown_accounts(known)
    assert "uid 4, uid 1001, gid 0" in said.detail

    known = read_accounts([3, 1001, 1009], [], now_s=0.0, user=user)
    assert known == Accounts(users={1001: PEOPLE[1001]}, no_user=frozenset({1009}), unknown=("uid 3",))

    def fails(number: int) -> None:
        raise KeyError(number)  # as Python does when the directory service fails

    absent = frozenset({NOBODYS})
    root = read_accounts([0, NOBODYS], [0, NOBODYS], now_s=0.0)
    assert root.users[0].name == "root"
    assert root == Accounts(users=root.users, no_user=absent, no_group=absent)
    monkeypatch.setattr(pwd, "getpwuid", fails)
    monkeypatch.setattr(grp, "getgrgid", fails)
    known = read_accounts([0, NOBODYS], [0, NOBODYS], now_s=0.0)
    assert known == Accounts(no_user=absent, no_group=absent, unknown=("uid 0", "gid 0"))


def test_a_look_up_that_hangs_does_not_hold_the_end_of_the_program() -> None:
    script = (
        "import os; from migrator.plan.accounts import read_accounts; "
        "print(read_accounts([1], [], now_s=0.0, user=lambda uid: os.read(os.pipe()[0], 1), patience_s=0.0).unknown)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "('uid 1',)\n"


def test_closed_accounts_are_read_from_shadow() -> None:
    shadow = (
        b"root:$y$j9T$x:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\nsshd:!:19000::::::\nkeys:!!:19000:0:99999:7:::\n"
        b"dbus:!*:19000::::::\nlocked:!$6$x$y:19000:0:99999:7:::\nrhel:!!$6$x$y:19000:0:99999:7:::\n"
        b"past:$6$x$y:19000:0:99999:7::20000:\ntoday:!:19000:0:99999:7::20001:\nlater:$6$x$y:19000:0:99999:7::20002:\n"
        b"\xff:!$6$x:1:::::0:\nbroken:!$6$x\n\n"
    )
    assert closed_accounts(shadow, 20001) == {
        b"locked": "locked",
        b"rhel": "locked",
        b"past": "expired",
        b"today": "expired",
        b"\xff": "locked",
    }
