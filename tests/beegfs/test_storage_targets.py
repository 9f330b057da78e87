"""The contract of `StorageTargets`, by recorded answers of `beegfs` 8 and tables in the form of `beegfs-ctl` 7: whichever
tool is there, the same questions have the same answers.
"""

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.beegfs import model as beegfs
from migrator.beegfs import rules as beegfs_rules
from migrator.beegfs import version7, version8
from migrator.beegfs import version7 as quotas7
from migrator.beegfs.model import UserQuota
from migrator.beegfs.rules import lost_targets, metadata_problems
from migrator.beegfs.rules_layout import check_layout
from migrator.beegfs.tool import BeegfsTargets, CallTimes
from migrator.beegfs.version8 import parse_targets
from migrator.core.entry import UserTree
from migrator.core.errors import ToolFailed
from migrator.core.events import FindingStatus
from migrator.fs.model import Capacity, Need
from migrator.fs.rules_owners import owner_map
from migrator.hosts.ports import Command, Completed
from migrator.hosts.process import GRACE_S, LocalProcesses
from migrator.plan.model import TreeUsage
from migrator.plan.rules_needs import metadata_forecast
from migrator.transfer.model_runs import RunRequest
from migrator.transfer.storage_watch import LOOK_EVERY_S, QUIET_S
from tests.support.beegfs_tool import FIXTURES, QUOTAS, VERSIONS, FakeTool, fake_tool, recorded, targets
from tests.support.fakes import VirtualClock
from tests.support.making import made

MIB = 1 << 20
MOUNT = b"/mnt/beegfs"
TREE = b"/mnt/beegfs/home/alice"
DEADLINE_S = 600.0
_CTL = """#!/bin/sh
cd {directory} || exit 9
echo "$*" >>asked
case "$*" in
--mount*|*--mount=/mnt/beegfs*) ;;
*) exit 9 ;;
esac
case "$1 $2" in
"--listtargets --nodetype=meta") name=meta ;;
"--listtargets --nodetype=storage") name=storage ;;
--listnodes*) [ -e deaf ] && exec sleep 600; cat reached; exit 0 ;;
--getentryinfo*) cat getentryinfo; exit 0 ;;
--setpattern*)
    chunk=${{2#--chunksize=}}
    sed -e "s/Chunksize: .*/Chunksize: $((chunk / 1024))K/" -e "s/desired: .*/desired: ${{3#--numtargets=}}/" \\
        getentryinfo >new && mv new getentryinfo; exit 0 ;;
--setquota*) # as the sources have it: both limits have to be named
    [ "$2 $3 $4" = "--uid --list 1004" ] && [ "$6" = --inodelimit=500 ] || exit 9
    sed "s/^dave,1004,0,.*/dave,1004,0,${{5#--sizelimit=}},0,500/" quotas >new && mv new quotas; exit 0 ;;
--getquota*) [ "$3" = --list ] && [ -e quotas ] && {{ cat quotas; exit 0; }}; echo "quota is not enabled" >&2; exit 1 ;;
*) exit 9 ;;
esac
case "$*" in
*--spaceinfo*) [ -e slow ] && exec sleep 600; cat $name; exit 0 ;;
*) cat $name-states ;;
esac
"""


class Asked:
    """A port over a fake tool of one version."""

    def __init__(self, directory: Path, version: str) -> None:
        self.directory = directory / "bin"
        self.version = version
        if version == "7":
            self.directory.mkdir()
            program = self.directory / "beegfs-ctl"
            program.write_text(_CTL.format(directory=self.directory))
            program.chmod(0o755)
            shutil.copy(FIXTURES / "7" / "getentryinfo.out", self.directory / "getentryinfo")
            (self.directory / "reached").write_text("")
            for kind in ("meta", "storage"):
                for states in ("", "-states"):
                    shutil.copy(FIXTURES / "7" / f"listtargets-{kind}{states}.out", self.directory / f"{kind}{states}")
        else:
            self.tool = fake_tool(self.directory, version)
        self.port = BeegfsTargets(
            processes=LocalProcesses(), mount=MOUNT, root=MOUNT, path=f"{self.directory}:/usr/bin:/bin"
        )

    def count_quotas(self) -> None:
        """The target has quotas."""
        if self.version == "7":
            shutil.copy(QUOTAS / "7.out", self.directory / "quotas")
        else:
            self.tool.count_quotas()

    def look(self) -> dict[int, beegfs.StorageTarget]:
        """By number the storage targets; those of metadata by the negative number."""
        found = asyncio.run(self.port.state()).targets
        return {one.number if one.kind is beegfs.TargetKind.STORAGE else -one.number: one for one in found}


@pytest.fixture(params=["7", *VERSIONS])
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Asked:
    return Asked(tmp_path, request.param)


def test_every_target_is_told_with_its_states_and_its_room(asked: Asked) -> None:
    found = asked.look()
    assert {-1, -2, 101, 201} <= set(found)
    assert asyncio.run(asked.port.problems()) == ()
    for one in found.values():
        assert one.pool is beegfs.CapacityPool.NORMAL
        assert one.answers is not False
        assert one.free_inodes is not None
        assert 0 < (one.free_bytes or 0) < (one.total_bytes or 0)
        assert (one.storage_pool == 1) == (one.kind is beegfs.TargetKind.STORAGE)


def test_stripe_settings_are_given_and_looked_at(asked: Asked) -> None:
    before = asyncio.run(asked.port.directory(TREE))
    asyncio.run(asked.port.set_stripe([TREE], beegfs.StripeSettings(targets=2, chunk_bytes=MIB)))
    after = asyncio.run(asked.port.directory(TREE))
    asyncio.run(asked.port.set_stripe([TREE], beegfs.StripeSettings(targets=3)))
    last = asyncio.run(asked.port.directory(TREE))
    # The mount is named to the tool.
    calls = (asked.directory / "asked").read_text().splitlines()
    assert all(MOUNT.decode() in call and "mount" in call for call in calls)
    assert (before.stripe.targets, before.stripe.chunk_bytes, before.storage_pool) == (4, MIB // 2, 1)
    assert after.stripe == beegfs.StripeSettings(targets=2, chunk_bytes=MIB)
    assert last.stripe == beegfs.StripeSettings(targets=3, chunk_bytes=MIB)
    # Many directories share commands of version 8.
    trees = [TREE + b"/\xff%d" % number for number in range(101 if asked.version == "8.2.2" else 2)]
    asyncio.run(asked.port.set_stripe(trees, beegfs.StripeSettings(targets=5, pool="1")))
    assert asyncio.run(asked.port.directory(trees[-1])).stripe.targets == 5
    with pytest.raises(ToolFailed, match="no storage pool fast"):
        asyncio.run(asked.port.set_stripe([TREE], beegfs.StripeSettings(pool="fast")))
    if asked.version == "8.2.2":
        assert asyncio.run(asked.port.pools()) == {"1": 1, "storage_pool_default": 1}
        assert len([call for call in asked.tool.asked if "--pool" in call]) == 2


def test_a_setting_that_the_tool_did_not_apply_is_a_failure(tool: FakeTool) -> None:
    program = tool.program.read_text()
    tool.program.write_text(
        program.replace('if words[1] == "set":\n        stripes', 'if words[1] == "never":\n        stripes')
    )
    with pytest.raises(ToolFailed, match="other stripe settings"):
        asyncio.run(port_of(tool).set_stripe([TREE], beegfs.StripeSettings(targets=2)))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_licence_is_asked_for(tmp_path: Path, version: str) -> None:
    asked = Asked(tmp_path, version)
    assert asyncio.run(asked.port.licence_problem())
    asked.tool.license()
    assert asyncio.run(asked.port.licence_problem()) is None


def test_usage_and_limits_of_users_are_read(asked: Asked) -> None:
    assert "uota" in (asyncio.run(asked.port.quota_problem()) or "")
    asked.count_quotas()
    found = asyncio.run(asked.port.quotas([1001, 1002, 1003, 1004, 1005]))
    gib = 1 << 30
    assert found == {
        1001: UserQuota(
            uid=1001, used_bytes=8 * gib, used_chunk_files=900, limit_bytes=10 * gib, limit_chunk_files=1000
        ),
        1002: UserQuota(uid=1002, used_bytes=gib, used_chunk_files=None, limit_bytes=5 * gib, limit_chunk_files=500),
        1003: UserQuota(uid=1003, used_bytes=0, used_chunk_files=0, limit_bytes=2 * gib, limit_chunk_files=500),
        1004: UserQuota(uid=1004, used_bytes=0, used_chunk_files=0, limit_bytes=5 * gib, limit_chunk_files=500),
        1005: UserQuota(uid=1005, used_bytes=5, used_chunk_files=5, exempt=asked.version != "7"),
    }


def test_limits_are_set_and_looked_at(asked: Asked) -> None:
    asked.count_quotas()
    before = asyncio.run(asked.port.quotas([1001, 1004]))
    asyncio.run(asked.port.set_limits({1004: 77 * MIB}))
    after = asyncio.run(asked.port.quotas([1001, 1004]))
    assert after == dict(before) | {1004: replace(before[1004], limit_bytes=77 * MIB)}
    if asked.version != "7":
        # Users with the same limit share a command; of what the tool does otherwise nothing is believed.
        asyncio.run(asked.port.set_limits({1003: MIB, 1004: MIB}))
        assert [call[4] for call in asked.tool.asked if call[1] == "set-limits"] == ["1004", "1003,1004"]
        usage = asked.directory / "quota-usage"
        usage.write_text(usage.read_text() + (asked.directory / "quota-limits").read_text().splitlines()[0] + "\n")
        with pytest.raises(ToolFailed, match=r"1001"):
            asyncio.run(asked.port.set_limits({1001: MIB}))


def test_users_with_other_numbers_on_the_target(asked: Asked) -> None:
    asked.count_quotas()
    port = replace(asked.port, owners=owner_map([(61001, 1001), (61004, 1004)], ()))
    before, theirs = asyncio.run(port.quotas([61001, 61004])), asyncio.run(asked.port.quotas([1001, 1004]))
    assert before == {60_000 + uid: replace(one, uid=60_000 + uid) for uid, one in theirs.items()}
    asyncio.run(port.set_limits({61004: 7 << 30}))
    assert asyncio.run(asked.port.quotas([1004]))[1004].limit_bytes == 7 << 30


@pytest.mark.parametrize("version", VERSIONS)
def test_without_quotas_nobody_has_one(tmp_path: Path, version: str) -> None:
    asked = Asked(tmp_path, version)
    (asked.directory / "quota.err").write_bytes(recorded("quota-list-usage-unlicensed.json.err", version))
    assert asyncio.run(asked.port.quotas([1001])) == {}


_SPOILED_QUOTAS = {
    "7": [("files", "inodes"), ("900", "some"), (",1000", ""), ("1001", "")],
    "8.2.2": [('"pool"', '"where"'), ("900/", "9.0k/"), ('"id":1001', '"id":null')],
}


@pytest.mark.parametrize(
    ("version", "spoil"), [(version, spoil) for version, spoils in _SPOILED_QUOTAS.items() for spoil in spoils]
)
def test_quotas_of_another_form_are_refused(tmp_path: Path, version: str, spoil: tuple[str, str]) -> None:
    asked = Asked(tmp_path, version)
    asked.count_quotas()
    file = asked.directory / ("quotas" if version == "7" else "quota-usage")
    file.write_text(file.read_text().replace(*spoil))
    with pytest.raises(ToolFailed):
        asyncio.run(asked.port.quotas([1001]))


def test_version_7_is_asked_for_the_users_and_the_pool_by_name(tmp_path: Path) -> None:
    asked = Asked(tmp_path, "7")
    asked.count_quotas()
    found = asyncio.run(asked.port.quotas(range(1001, 1002 + quotas7.AT_ONCE)))
    calls = [call for call in (asked.directory / "asked").read_text().splitlines() if "--getquota" in call]
    assert len(calls) == 2
    assert calls[0].startswith("--getquota --uid --list 1001,1002,")
    assert "--storagepoolid" not in calls[0]
    assert set(found) == {1001, 1002, 1003, 1004, 1005}


def test_a_missing_tool_says_what_is_not_known(tmp_path: Path) -> None:
    port = BeegfsTargets(processes=LocalProcesses(), mount=MOUNT, root=MOUNT, path=str(tmp_path))
    (problem,) = asyncio.run(port.problems())
    assert "unknown" in problem
    assert "missing" in problem
    with pytest.raises(ToolFailed, match="missing"):
        asyncio.run(port.state())


def port_of(tool: FakeTool) -> BeegfsTargets:
    return BeegfsTargets(processes=LocalProcesses(), mount=MOUNT, root=MOUNT, path=str(tool.directory))


@pytest.fixture
def tool(tmp_path: Path) -> FakeTool:
    return fake_tool(tmp_path / "bin")


Spoil = Callable[[bytes], bytes]
_SPOILED: dict[str, Spoil] = {
    "empty": lambda _: b"",
    "cut off": lambda whole: whole[:-40],
    "a table": lambda _: b"ID  TYPE\nm:1 meta\n",
    "a list": lambda whole: b"[" + b",".join(whole.split(b"\n")[:-1]) + b"]\n",
    "rounded": lambda whole: whole.replace(b'"4227858432"', b'"3.9GiB"', 1),
    "another type": lambda whole: whole.replace(b'"node_type":3', b'"node_type":9', 1),
    "without a state": lambda whole: whole.replace(b'"reachability"', b'"reached"', 1),
}


@pytest.mark.parametrize("how", _SPOILED)
def test_an_answer_that_is_not_whole_is_none(tool: FakeTool, how: str) -> None:
    tool.tell(_SPOILED[how](targets("")))
    with pytest.raises(ToolFailed):
        asyncio.run(port_of(tool).state())


def test_text_without_digits_is_unknown(tool: FakeTool) -> None:
    nothing = {"space": "(n/a)", "space_free": "(n/a)", "inodes": "-", "inodes_free": "-", "cap_pool": "(n/a)"}
    tool.tell(targets("", changes={"target_storage_101": nothing | {"reachability": "Unheard-of"}}))
    found = {one.number: one for one in asyncio.run(port_of(tool).state()).targets}[101]
    assert (found.total_bytes, found.free_bytes, found.free_inodes, found.pool, found.reachability) == (None,) * 5


class Patient(LocalProcesses):
    """Only what is made to wait here runs into its time limit, and nothing else on a slow machine."""

    def __init__(self, directory: Path) -> None:
        super().__init__(grace_s=1.0)
        self.directory = directory

    async def run(self, command: Command) -> Completed:
        is_deaf = (self.directory / "deaf").exists() and b"--listnodes" in command.argv
        is_slow = b"--nodetype=storage" in command.argv and b"--spaceinfo" in command.argv
        return await super().run(command if is_deaf or is_slow else replace(command, timeout_s=DEADLINE_S))


@dataclass
class Slow(LocalProcesses):
    """The answers to these words come `late` times after the timeout."""

    words: bytes
    late: int
    timeouts_s: list[float] = field(default_factory=list)
    restarting: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    async def run(self, command: Command) -> Completed:
        if self.words in command.argv:
            self.timeouts_s.append(command.timeout_s or 0.0)
            if len(self.timeouts_s) <= self.late:
                stderr = UNREACHED_8 if self.restarting else b""
                return Completed(
                    exit_code=1 if self.restarting else -9, stdout=b"", stderr=stderr, timed_out=not stderr
                )
        return await super().run(replace(command, timeout_s=DEADLINE_S))


UNREACHED_8 = recorded("err-mgmtd-unreachable.err")


def slow_port(tool: FakeTool, slow: Slow) -> BeegfsTargets:
    return BeegfsTargets(processes=slow, mount=MOUNT, root=MOUNT, path=str(tool.directory), clock=VirtualClock())


@pytest.mark.parametrize("restarting", [False, True])
def test_a_guard_waits_for_a_late_answer_and_a_poll_does_not(tool: FakeTool, restarting: bool) -> None:
    slow = Slow(words=b"target", late=3, restarting=restarting)
    found = asyncio.run(slow_port(tool, slow).state(patient=True))
    assert len(found.targets) == 5
    assert slow.timeouts_s == [6.0, 12.0, 24.0, 48.0]
    for patient, attempts in ((False, 1), (True, 4)):
        silent = Slow(words=b"target", late=99, restarting=restarting)
        with pytest.raises(ToolFailed):
            asyncio.run(slow_port(tool, silent).state(patient=patient))
        assert len(silent.timeouts_s) == attempts


def test_a_late_answer_about_a_layout_is_waited_for(tool: FakeTool) -> None:
    slow = Slow(words=b"info", late=1)
    asyncio.run(slow_port(tool, slow).set_stripe([TREE], beegfs.StripeSettings(targets=2)))
    assert slow.timeouts_s == [25.0, 50.0]


def test_a_command_that_ran_into_its_timeout_may_have_set_the_layout(tool: FakeTool) -> None:
    slow = Slow(words=b"set", late=1)
    (tool.directory / "stripes").write_text(json.dumps({TREE.decode(): [2, 1 << 19]}))
    asyncio.run(slow_port(tool, slow).set_stripe([TREE], beegfs.StripeSettings(targets=2)))
    with pytest.raises(ToolFailed):
        asyncio.run(slow_port(tool, Slow(words=b"set", late=1)).set_stripe([TREE], beegfs.StripeSettings(targets=3)))


class SilentServer:
    """Version 7, with a storage server that makes the tool wait; `states` are what the management service says meanwhile."""

    def __init__(self, directory: Path, *, states: str, reached: str) -> None:
        asked = Asked(directory, "7")
        # The servers of metadata answer: only the tool that is asked for storage waits.
        program = asked.directory / "beegfs-ctl"
        program.write_text(program.read_text().replace("[ -e slow ] &&", '[ -e "slow-$name" ] &&'))
        (asked.directory / "slow-storage").touch()
        (asked.directory / "storage-states").write_text(states)
        (asked.directory / "reached").write_text(reached)
        self.directory = asked.directory
        self.port = BeegfsTargets(
            processes=Patient(asked.directory),
            mount=MOUNT,
            root=MOUNT,
            path=asked.port.path,
            times=CallTimes(room_s=0.5, states_s=2.0, patience_s=1.0),
        )

    def lost(self) -> tuple[str, ...]:
        return lost_targets(asyncio.run(self.port.state()))


STATES_7 = (FIXTURES / "7" / "listtargets-storage-states.out").read_text()
ALL_ONLINE_7 = STATES_7.replace("Probably-offline", "          Online")
REACHED_7 = (FIXTURES / "7" / "listnodes-storage-reachable.out").read_text()


def test_version_7_names_the_server_that_makes_it_wait_while_all_count_as_online(tmp_path: Path) -> None:
    server = SilentServer(tmp_path, states=ALL_ONLINE_7, reached=REACHED_7)
    (lost,) = server.lost()
    assert lost.startswith("storage target 201 (201, on 2): ")
    assert "does not answer" in lost
    (problem,) = asyncio.run(server.port.problems())
    assert problem == lost
    # What is offline is named, and no other.
    (server.directory / "storage-states").write_text(STATES_7)
    (server.directory / "reached").write_text("")
    (lost,) = server.lost()
    assert "201" in lost


def test_lost_targets_are_reported_without_the_pool_of_the_root(tool: FakeTool) -> None:
    apart = {"target_storage_201": {"storage_pool": "s:2", "last_contact": "61s ago"}}
    tool.tell(targets("", changes=apart))
    (tool.directory / "entry").write_text("a metadata server does not answer")
    assert len(lost_targets(asyncio.run(port_of(tool).state()))) == 1


@pytest.mark.parametrize("spoil", [("Cap. Pool", "Pool"), ("GiB", "TiB"), ("201", "two"), ("NodeID", "Node")])
def test_a_table_of_version_7_with_another_form_is_refused(tmp_path: Path, spoil: tuple[str, str]) -> None:
    asked = Asked(tmp_path, "7")
    file = asked.directory / "storage"
    file.write_text(file.read_text().replace(*spoil))
    with pytest.raises(ToolFailed):
        asked.look()


def test_only_the_pool_of_the_root_counts(tool: FakeTool) -> None:
    tool.tell(targets("", changes={"target_storage_201": {"storage_pool": "s:2"}}))
    assert asyncio.run(port_of(tool).state()).storage_pool == 1
    assert json.dumps(tool.asked[-1]).count("entry") == 1


GIB = 1 << 30
DF = Capacity(total_bytes=12 * GIB, free_bytes=11 * GIB, total_inodes=None, free_inodes=None)
OK, WARNING, FAILURE = FindingStatus.OK, FindingStatus.WARNING, FindingStatus.FAILURE


def seen(state: str = "", version: str = "8.2.2") -> beegfs.StorageState:
    return beegfs.StorageState(targets=parse_targets(targets(state, version)))


def with_one(number: int, **changes: object) -> beegfs.StorageState:
    found = seen()
    return beegfs.StorageState(
        targets=tuple(replace(one, **changes) if one.number == number else one for one in found.targets)
    )


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        (seen(), 0),
        (seen(version="8.3.1"), 0),
        (seen("cap-low"), 0),
        (seen("cap-emergency"), 0),
        (seen("stopped-100s"), 1),
        (seen("stopped-offline"), 1),
    ],
)
def test_recorded_states_are_judged(found: beegfs.StorageState, lost: int) -> None:
    """Version 8.3.1 said the same of each state as 8.2.2."""
    assert len(beegfs_rules.lost_targets(found)) == lost
    assert len(beegfs_rules.target_problems(found)) == lost
    assert all("target_storage_201" in words for words in beegfs_rules.lost_targets(found))


def test_a_server_that_nobody_knows_the_name_of_is_lost_too() -> None:
    unknown = replace(seen(), unanswered=(beegfs.TargetKind.STORAGE,))
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
    assert len(beegfs_rules.target_problems(beegfs.StorageState(targets=()))) == 2
    (problem,) = beegfs_rules.target_problems(
        beegfs.StorageState(targets=tuple(one for one in seen().targets if one.kind is beegfs.TargetKind.STORAGE))
    )
    assert "metadata" in problem


def test_only_targets_of_the_best_capacity_pool_and_of_the_storage_pool_of_trees_count() -> None:
    emergency = seen("cap-emergency")
    normal = [one.free_bytes for one in emergency.targets if one.number in (101, 102)]
    assert beegfs_rules.room_of(DF, emergency).free_bytes == 2 * min(one or 0 for one in normal)
    all_low = beegfs.StorageState(
        targets=tuple(replace(one, pool=beegfs.CapacityPool.LOW, free_bytes=GIB) for one in seen().targets)
    )
    assert beegfs_rules.room_of(DF, all_low).free_bytes == 3 * GIB
    found = replace(with_one(201, storage_pool=2, free_bytes=4096), storage_pool=1)
    assert beegfs_rules.room_of(DF, found).free_bytes > 7 * GIB
    assert beegfs_rules.room_of(DF, replace(found, storage_pool=None)).free_bytes == 3 * 4096


def test_full_targets_are_named_otherwise_the_fullest() -> None:
    words = beegfs_rules.describe_fullest(seen("cap-emergency").targets)
    assert "target_storage_201" in words
    assert "emergency" in words
    assert "101" not in words
    healthy = beegfs_rules.describe_fullest(with_one(102, free_bytes=5).targets)
    assert "target_storage_102" in healthy
    assert "metadata target" in healthy
    assert beegfs_rules.describe_fullest(()) == ""


def test_inodes_are_forecast_for_each_metadata_target() -> None:
    usages = [made(TreeUsage, tree=UserTree(path=name, user="u"), files=600, directories=100) for name in (b"a", b"b")]
    targets = with_one(1, free_inodes=600).targets
    forecast = metadata_forecast(targets, usages, {b"a": Need(inodes=350)})
    # 1,000 inodes of each tree, half of one is there already, on two targets.
    assert [(one.free_inodes > 600, one.expected_inodes) for one in forecast] == [(False, 750), (True, 750)]
    short, large = metadata_problems(forecast, (b"a/\xff", 601))
    assert "will need about 750 inodes, and 600 are free" in short
    assert large.startswith(
        "a/\\xff has 601 entries, which lie on one metadata target, and one has only 600 inodes free"
    )
    assert list(metadata_problems(metadata_forecast(seen().targets, usages, {}), (b"a", 601))) == []
    # Without a number of one, nothing is said.
    for unknown in (with_one(1, free_inodes=None).targets, ()):
        assert metadata_forecast(unknown, usages, {}) == ()
        assert list(metadata_problems((), (b"a", 601))) == []


@pytest.mark.parametrize(
    ("found", "status", "says"),
    [
        (seen(), OK, "3 storage targets and 2 metadata targets"),
        (seen("cap-low"), WARNING, "target_storage_201"),
        (seen("cap-emergency"), FAILURE, "target_storage_201"),
        (seen("stopped-offline"), FAILURE, "Offline"),
        (with_one(101, consistency=beegfs.Consistency.BAD), FAILURE, "Bad"),
        (with_one(1, free_inodes=50_000), WARNING, "50,000 of 524,288 inodes"),
        (with_one(1, pool=None), WARNING, "unknown"),
        (None, WARNING, "are then unknown"),
    ],
)
def test_doctor_tells_each_with_its_fix(found: beegfs.StorageState | None, status: FindingStatus, says: str) -> None:
    (finding,) = beegfs_rules.check_storage_targets(found, "the tool is missing")
    assert finding.status is status
    assert says in finding.message
    assert bool(finding.fix) == (status is not OK)


def test_stripes_and_quotas_are_checked_where_they_are_asked_for() -> None:
    rule = beegfs.LayoutRule(stripe=beegfs.StripeSettings(targets=2, pool="fast"))
    assert check_layout([], None) == []
    for pools, status in ((None, FAILURE), ({"slow": 1}, FAILURE), ({"slow": 1, "fast": 2}, OK)):
        assert [finding.status for finding in check_layout([rule], pools)] == [status]
    # Other pools than the default one need a licence.
    for pools, status in (({"fast": 1}, OK), ({"fast": 2}, WARNING), ({"slow": 1}, FAILURE)):
        (finding,) = check_layout([rule], pools, "no library")
        assert (finding.status, "no library" in finding.message) == (status, status is not OK)
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
