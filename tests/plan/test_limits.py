"""Limits of the source's directories as limits of owners on BeeGFS: which can be set, when they are, and what differs."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.beegfs.model import LimitState, OwnerLimit, TreeOwner
from migrator.beegfs.rules_limits import owner_limits
from migrator.beegfs.tool import BeegfsTargets
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode, Refused
from migrator.core.events import Severity
from migrator.cutover.model import act_of
from migrator.fs.model import SurpriseKind
from migrator.hosts.process import LocalProcesses
from migrator.plan.limits import LimitReadings, limit_problems, recreate_limits, set_confirmed
from migrator.plan.model import Plan, Surprise
from tests.support.beegfs_tool import FakeTool, fake_tool
from tests.support.making import made
from tests.support.operations import MOVED, TOPS, plan_cutover
from tests.support.plans import small_plan

GIB = 1 << 30
A, B = b"home/alice", b"home/bob"


def own(tree: bytes, uid: int, size_bytes: int = GIB) -> TreeOwner:
    return TreeOwner(tree=tree, uid=uid, size_bytes=size_bytes, files=1)


def limit(uid: int, size_bytes: int, *trees: bytes) -> OwnerLimit:
    return OwnerLimit(uid=uid, size_bytes=size_bytes, trees=trees)


@pytest.mark.parametrize(
    ("quotas", "owners", "limits", "lost"),
    [
        ({A: 5, B: 7}, [own(A, 1), own(B, 2)], [limit(1, 5, A), limit(2, 7, B)], {}),
        ({A: 5, B: 7}, [own(A, 1), own(B, 1)], [limit(1, 12, A, B)], {}),
        ({A: 5}, [own(A, 1, 96), own(A, 2, 4)], [limit(1, 5, A)], {}),
        ({A: 5}, [own(A, 1, 94), own(A, 2, 6)], [], {A: "several owners: uid 1 has 94% of its bytes"}),
        ({A: 5}, [own(A, 1), own(B, 1, GIB // 2)], [], {A: "the limit would also count 512.0 MiB of uid 1"}),
        # It would be used up, or stop the copy of the other tree.
        (
            {A: 100},
            [own(A, 1, 96), own(B, 1, 4)],
            [],
            {A: "with 4 B of uid 1 in other trees nothing of it would be left"},
        ),
        ({A: 101}, [own(A, 1, 96), own(B, 1, 4)], [limit(1, 101, A)], {}),
        ({A: 5}, [own(A, 0)], [], {A: "its files are root's"}),
        ({A: 5}, [own(B, 1)], [], {A: "no file in it has content"}),
        ({b"home": 5, b"": 6}, [own(A, 1)], [], {b"home": "it holds 2 user trees", b"": "it holds 2 user trees"}),
        ({A + b"/deep": 5, b"\xff": 1}, [own(A, 1)], [], dict.fromkeys((A + b"/deep", b"\xff"), "it is no user tree")),
    ],
)
def test_source_limits_that_an_owner_limit_replaces(
    quotas: Mapping[bytes, int], owners: Sequence[TreeOwner], limits: Sequence[OwnerLimit], lost: Mapping[bytes, str]
) -> None:
    found, left = owner_limits(quotas.items(), owners, frozenset((A, B)))
    assert list(found) == limits
    assert {one.directory for one in left} == set(lost)
    assert all(lost[one.directory] in one.reason for one in left)


_TREES = st.sampled_from([b"a", b"b", b"c", b"b/d"])


@given(
    st.dictionaries(_TREES, st.integers(1, 9)),
    st.dictionaries(st.tuples(_TREES, st.integers(0, 3)), st.integers(1, 50)),
)
def test_no_limit_is_dropped_or_counted_twice(
    quotas: Mapping[bytes, int], owned: Mapping[tuple[bytes, int], int]
) -> None:
    owners = [own(tree, uid, size_bytes) for (tree, uid), size_bytes in owned.items()]
    found, left = owner_limits(quotas.items(), owners, frozenset((b"a", b"b", b"c")))
    assert sorted([*(tree for one in found for tree in one.trees), *(one.directory for one in left)]) == sorted(quotas)
    assert sum(one.size_bytes for one in found) + sum(one.size_bytes for one in left) == sum(quotas.values())
    for one in found:
        assert all(max(owners, key=lambda its: (its.tree == tree, its.size_bytes)).uid == one.uid for tree in one.trees)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    ledger: MigrationLedger
    tool: FakeTool
    storage: BeegfsTargets

    def recreate(self, *plans: Plan, confirm: bool = False) -> LimitReadings:
        return asyncio.run(recreate_limits(self.ledger, plans, self.storage, confirm=confirm))

    def states(self, *plans: Plan, confirm: bool = False) -> list[tuple[int, LimitState]]:
        return [(one.limit.uid, one.state) for one in self.recreate(*plans, confirm=confirm).limits]

    def cut_over(self, tree: bytes) -> Sequence[tuple[Severity, str]]:
        record = plan_cutover(self.ledger, tree=UserTree(path=tree, user=tree.decode()))
        for step in map(act_of, MOVED):
            begun = self.ledger.cutovers.intend(record.id, step, at_s=2.0, notes=TOPS)
            self.ledger.cutovers.finish(begun, step.result, at_s=3.0)
        return asyncio.run(set_confirmed(self.ledger, self.storage, tree))

    def problems(self) -> Sequence[str]:
        return asyncio.run(limit_problems(self.ledger, self.storage))

    @property
    def set(self) -> list[Sequence[str]]:
        return [call[2:7] for call in self.tool.asked if call[1] == "set-limits"]


def planned(*limits: tuple[bytes, int], owners: Sequence[TreeOwner] = (own(A, 1003), own(B, 1004))) -> Plan:
    surprises = [
        made(Surprise, kind=SurpriseKind.QUOTA, size_bytes=size_bytes, examples=(directory,))
        for directory, size_bytes in limits
    ]
    return replace(small_plan(), owners=tuple(owners), surprises=tuple(surprises))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    tool = fake_tool(tmp_path / "bin")
    tool.count_quotas(default="\u221e")
    storage = BeegfsTargets(
        processes=LocalProcesses(), mount=b"/mnt/beegfs", root=b"/mnt/beegfs", path=f"{tool.directory}:/usr/bin:/bin"
    )
    with MigrationLedger.open(tmp_path / "ledger.db", create=True) as ledger:
        yield World(ledger=ledger, tool=tool, storage=storage)


PLAN = planned((A, 2 * GIB), (B, 3 * GIB), (b"home", 9 * GIB))


def test_limits_are_set_at_the_cutover_if_they_were_confirmed(world: World) -> None:
    # The target has carol's limit. Bob's limit is not set, because his tree is still being copied.
    assert world.states(PLAN) == [(1003, LimitState.SET), (1004, LimitState.LATER)]
    assert world.cut_over(B) == ()  # nothing was confirmed
    assert world.states(PLAN) == [(1003, LimitState.SET), (1004, LimitState.DUE)]
    assert (world.set, world.problems()) == ([], ())
    seen = world.recreate(PLAN, confirm=True)
    assert [one.directory for one in seen.lost] == [b"home"]
    assert [(one.state, one.confirmed) for one in seen.limits] == [(LimitState.SET, True)] * 2
    assert world.set == [["s:1", "--uid", "1004", "--space", str(3 * GIB)]]
    assert world.states(PLAN, confirm=True) == [(1003, LimitState.SET), (1004, LimitState.SET)]
    assert len(world.set) == 1
    assert world.problems() == []


def test_a_limit_of_several_trees_waits_for_the_last_of_them(world: World) -> None:
    plan = planned((A, GIB), (B, GIB), owners=[own(A, 1004), own(B, 1004)])
    assert world.states(plan, confirm=True) == [(1004, LimitState.LATER)]
    ((severity, words),) = world.cut_over(A)
    assert (severity, world.set) == (Severity.INFO, [])
    assert "all these trees" in words
    # The plan that is active now leaves alice's tree out.
    later = replace(planned((A, GIB), (B, GIB), owners=[own(B, 1004)]), ranking=plan.ranking[1:])
    assert world.states(plan, later) == [(1004, LimitState.LATER)]
    ((severity, words),) = world.cut_over(B)
    assert (severity, len(world.set)) == (Severity.INFO, 1)
    assert words.endswith("2.0 GiB is set on the target")


@pytest.mark.parametrize(
    ("uid", "size_bytes", "state", "says"),
    [
        (1001, GIB, LimitState.DIFFERS, "the target has one of 10.0 GiB"),
        (1002, GIB, LimitState.USED_UP, "1.0 GiB are used"),
        (1005, GIB, LimitState.DIFFERS, "exempted from limits"),
    ],
)
def test_a_limit_that_is_there_or_used_up_is_left_and_reported(
    world: World, uid: int, size_bytes: int, state: LimitState, says: str
) -> None:
    plan = planned((A, size_bytes), owners=[own(A, uid)])
    world.recreate(plan, confirm=True)
    ((severity, words),) = world.cut_over(A)
    assert severity is Severity.WARNING
    assert says in words
    assert world.states(plan, confirm=True) == [(uid, state)]
    assert world.recreate(plan).exit_code is ExitCode.ATTENTION
    assert world.set == []
    assert world.problems() == [words]
    # A limit that somebody took away is reported too; one that the source has no more is forgotten before the cutover.
    (world.tool.directory / "quota-usage").write_text("")
    (world.tool.directory / "quota-limits").write_text("")
    assert "`migrator plan --quotas --confirm` sets it" in world.problems()[0]


def test_no_limit_is_set_while_the_usage_is_not_known(world: World) -> None:
    """It may be used up."""
    plan = planned((A, 2 * GIB), owners=[own(A, 1004)])
    row = '{"id":1004,"inode":"?/\u221e","name":"bob","pool":"storage_pool_default","space":"?/\u221e","type":"user"}\n'
    with (world.tool.directory / "quota-usage").open("a") as usage:
        usage.write(row)
    world.recreate(plan, confirm=True)
    ((severity, words),) = world.cut_over(A)
    assert (severity, world.set) == (Severity.WARNING, [])
    assert "does not count this user's files" in words
    assert world.states(plan, confirm=True) == [(1004, LimitState.UNKNOWN)]


def test_without_quotas_they_are_shown_and_refused_and_a_cutover_only_warns(world: World) -> None:
    world.recreate(PLAN, confirm=True)
    for name in ("usage", "limits", "defaults"):
        (world.tool.directory / f"quota-{name}").unlink()
    with pytest.raises(Refused, match="Feature Quota unavailable") as caught:
        world.recreate(PLAN, confirm=True)
    assert "licence" in caught.value.cause
    seen = world.recreate(PLAN)
    assert {one.state for one in seen.limits} == {LimitState.UNKNOWN}
    assert "Feature Quota unavailable" in seen.problem
    ((severity, _),) = world.cut_over(B)
    assert severity is Severity.WARNING
    assert len(world.problems()) == 1
    # A limit that the source no longer has is forgotten, unless the user was moved.
    world.tool.count_quotas(default="\u221e")
    world.recreate(planned(), confirm=True)
    assert [one.uid for one in world.ledger.limits.all()] == [1004]
