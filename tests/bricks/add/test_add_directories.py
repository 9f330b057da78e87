"""Directories that lose owner and mode while bricks are added: over a simulated volume, and the judgement of each."""

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.bricks.add.call import DirectoryPorts
from migrator.bricks.add.directories import (
    forget_directories,
    own_name,
    record_directories,
    restore_all_directories,
    restore_directories,
    restoring_directories,
    still_shut_directories,
)
from migrator.bricks.add.model import AdditionNotes, AdditionSide, AdditionState
from migrator.bricks.add.rules_directories import DirectoryVerdict, judge, listed, untouched_since
from migrator.bricks.directory_owners import same_owner
from migrator.bricks.known_directories import DirectoryFiles
from migrator.core.errors import ToolFailed
from migrator.gluster.model import Brick, BrickDirectory
from tests.support.entries import acl
from tests.support.fakes import VirtualClock, inline
from tests.support.volumes import brick

OLD, NEW, ARBITER = "gl1:/b", "gl9:/b", "gl3:/b"


def directory(path: bytes, *, mode: int = 0o755, uid: int = 1001) -> BrickDirectory:
    above = path.rpartition(b"/")[0]
    return BrickDirectory(
        path=path,
        gfid=path.ljust(16, b"."),
        above=above.ljust(16, b".") if above else b"",
        mode=mode,
        uid=uid,
        gid=uid,
        changed_ns=1,
        modified_ns=1,
    )


def shut(one: BrickDirectory) -> BrickDirectory:
    return replace(one, mode=0, uid=0, gid=0)


HOME, ONE, TWO = directory(b"home"), directory(b"home/one", mode=0o2750), directory(b"home/two", uid=1002)


@dataclass
class Volume:
    """Its directories; where they differ, `copies` on the new brick, and what the mount has `shown`."""

    directories: dict[bytes, BrickDirectory]
    copies: dict[bytes, BrickDirectory] = field(default_factory=dict)
    shown: dict[bytes, BrickDirectory] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    walked: list[str] = field(default_factory=list)
    refuses: OSError | None = None
    options: tuple[tuple[str, str], ...] = ()
    between: Callable[[], None] = lambda: None
    bricks: tuple[Brick, ...] = (brick(ARBITER, arbiter=True), brick(OLD), brick(NEW))

    def set(self, *found: BrickDirectory) -> None:
        self.directories |= {one.gfid: one for one in found}

    async def state_and_tasks(self) -> tuple[Any, tuple[()]]:
        return SimpleNamespace(
            bricks=self.bricks, volume_id="v", replica_count=1, stripe_count=1, disperse_count=0, options=self.options
        ), ()

    async def walk(
        self,
        brick: Brick,
        *,
        volume_id: str,
        take: Callable[[Sequence[BrickDirectory]], None],
        only: Sequence[bytes] | None = None,
    ) -> int:
        assert volume_id == "v"
        found = sorted(self.directories.values(), key=lambda one: one.path)
        if brick.name == NEW:
            found = [self.copies.get(one.gfid, one) for one in found]
        if only is not None:
            take([one for one in found if one.path in only])
            return 0
        self.walked.append(brick.name)
        take(found[:2])
        if brick.name in self.broken:
            raise ToolFailed("torn")
        take(found[2:])
        self.between()
        return 0

    def look(self, path: bytes, gfid: bytes) -> BrickDirectory | None:
        one = self.shown.get(gfid) or self.directories.get(gfid)
        return one if one is not None and one.path == path else None

    def put_back(self, seen: BrickDirectory, wanted: BrickDirectory) -> BrickDirectory | None:
        if self.refuses is not None:
            raise self.refuses
        mended = replace(wanted, path=seen.path, changed_ns=99, modified_ns=seen.modified_ns)
        self.set(mended)
        self.copies.pop(seen.gfid, None)
        self.shown.pop(seen.gfid, None)
        return mended


@dataclass
class Site:
    volume: Volume
    memory: DirectoryFiles
    words: list[str] = field(default_factory=list)
    clock: VirtualClock = field(default_factory=VirtualClock)
    record: Any = field(
        default_factory=lambda: SimpleNamespace(
            id=7,
            times={AdditionState.PLANNED: 1.5},
            side=AdditionSide.SOURCE,
            instead_of=None,
            bricks=(NEW,),
            subject=lambda: NEW,
            notes=AdditionNotes(),
        )
    )

    @property
    def call(self) -> Any:
        volume: Any = self.volume
        return SimpleNamespace(
            ports=SimpleNamespace(
                volume=volume,
                directories=DirectoryPorts(walks=volume, memory=self.memory, mender=volume, mount=b"/mnt/gl"),
                blocking=inline,
                clock=self.clock,
                ledger=SimpleNamespace(additions=SimpleNamespace(read=lambda _: self.record, note=self.note)),
            ),
            emit=lambda _kind, _severity, _subject, message: self.words.append(message),
        )

    def note(self, _: int, notes: AdditionNotes) -> Any:
        self.record.notes = notes
        return self.record

    @property
    def listed(self) -> list[bytes]:
        return [one.path for one in self.record.notes.directories or ()]

    def knows(self) -> None:
        asyncio.run(record_directories(self.call, self.record))

    def known(self, gfid: bytes) -> BrickDirectory | None:
        with self.memory.opened(own_name(self.record)) as known:
            return known.of([gfid]).get(gfid)

    def puts_right(self) -> bool:
        return asyncio.run(restore_directories(self.call, self.record))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(Volume({}), DirectoryFiles(tmp_path / "additions"))
    made.volume.set(HOME, ONE, TWO)
    made.knows()
    return made


def test_damaged_directories_are_restored_also_after_a_rename(site: Site) -> None:
    renamed = replace(shut(TWO), path=b"home/three", changed_ns=5)
    site.volume.set(shut(HOME), shut(ONE), renamed)
    assert site.puts_right()
    got = site.volume.directories
    assert [(got[one.gfid].mode, got[one.gfid].uid) for one in (HOME, ONE, TWO)] == [
        (one.mode, one.uid) for one in (HOME, ONE, TWO)
    ]
    told, changed = site.words
    assert told.startswith("3 directories had lost owner or mode")
    assert "home/three" in told
    # A rename sets the same time as a chmod.
    assert changed.startswith("home/three: ")
    assert site.listed == []
    assert not site.puts_right()
    assert len(site.words) == 2


@pytest.mark.parametrize("is_told_by_a_copy", [False, True])
def test_a_loss_of_attributes_set_after_the_last_walk_is_reported(site: Site, is_told_by_a_copy: bool) -> None:
    site.volume.set(replace(shut(ONE), changed_ns=5))
    if is_told_by_a_copy:
        # A file was made beside the other copy.
        site.volume.copies[ONE.gfid] = shut(ONE)
    assert site.puts_right()
    assert site.volume.directories[ONE.gfid].mode == ONE.mode
    told = [words for words in site.words if "in those seconds" in words]
    assert [words.partition(":")[0] for words in told] == ([] if is_told_by_a_copy else ["home/one"])


def test_a_restored_directory_that_is_damaged_again_is_restored_again(site: Site) -> None:
    site.volume.set(shut(ONE))
    assert site.puts_right()
    given = site.volume.directories[ONE.gfid]
    assert given.changed_ns != ONE.changed_ns
    # Giving it back has set its time as a user would have.
    site.volume.set(replace(given, mode=0o750))
    assert site.puts_right()
    assert site.volume.directories[ONE.gfid].mode == 0o2750
    assert site.listed == []


def test_directories_are_restored_although_a_new_brick_is_unreadable(site: Site) -> None:
    site.volume.broken = {NEW}
    site.volume.set(shut(ONE))
    asyncio.run(restore_all_directories(site.call, site.record))
    assert site.volume.directories[ONE.gfid].mode == 0o2750
    assert any("not every copy" in words for words in site.words)


def test_changes_by_users_count_from_the_next_walk_on(site: Site) -> None:
    for since in (replace(ONE, mode=0o700, changed_ns=5), directory(b"home/new", uid=1003)):
        site.volume.set(since)
        assert not site.puts_right()
        site.volume.set(shut(since))
        assert site.puts_right()
        now = site.volume.directories[since.gfid]
        assert (now.mode, now.uid) == (since.mode, since.uid)


def test_a_directory_without_a_record_waits_until_it_is_fixed_or_gone(site: Site) -> None:
    first, second = shut(directory(b"home/new")), shut(directory(b"home/newer"))
    site.volume.set(first, second)
    assert not site.puts_right()
    assert site.listed == [b"home/new", b"home/newer"]
    assert (
        site.record.notes.directories[0].command
        == "chown --reference=/mnt/gl/home /mnt/gl/home/new && chmod 0700 /mnt/gl/home/new"
    )
    assert "home/new, home/newer" in site.words[-1]
    said = len(site.words)
    forget_directories(site.call, site.record)
    assert site.known(HOME.gfid)
    site.volume.set(replace(first, mode=0o700, uid=1))
    site.volume.directories.pop(second.gfid)
    site.puts_right()
    assert site.listed == []
    assert len(site.words) == said
    forget_directories(site.call, site.record)
    assert not site.known(HOME.gfid)


def test_a_doubtful_directory_is_listed_unless_another_copy_decides(site: Site) -> None:
    # Nobody would have made it so, whatever its times are.
    site.volume.set(replace(ONE, mode=0o700))
    assert not site.puts_right()
    assert site.listed == [b"home/one"]
    doubtful = replace(ONE, mode=0o750, changed_ns=5, modified_ns=5)
    site.volume.set(doubtful)
    assert not site.puts_right()
    assert site.volume.directories[ONE.gfid] == doubtful
    (listed,) = site.record.notes.directories
    assert listed.command == "chown 1001:1001 /mnt/gl/home/one && chmod 2750 /mnt/gl/home/one"
    # Of no user, by the time of another copy.
    site.volume.copies[ONE.gfid] = replace(ONE, mode=0o750)
    assert site.puts_right()
    assert site.volume.directories[ONE.gfid].mode == 0o2750
    assert site.listed == []


def test_times_without_ctime_option_prove_nothing(site: Site) -> None:
    site.volume.options = (("features.ctime", "off"),)
    site.puts_right()
    site.volume.set(replace(ONE, mode=0o700), replace(TWO, gid=1001))
    assert not site.puts_right()
    assert site.listed == [b"home/two"]
    site.volume.set(replace(TWO, mode=0o711), shut(ONE))
    assert site.puts_right()
    assert site.volume.directories[ONE.gfid].mode == 0o700


def test_a_directory_that_cannot_be_restored_is_listed_with_the_reason(site: Site) -> None:
    site.volume.refuses = OSError(30, "Read-only file system")
    site.volume.set(shut(ONE))
    assert not site.puts_right()
    (listed,) = site.record.notes.directories
    assert "(Read-only file system)" in listed.reason
    site.volume.refuses = None
    assert site.puts_right()
    assert site.listed == []


def test_a_change_between_walk_and_restore_is_left_to_the_next_walk(site: Site) -> None:
    site.volume.set(shut(ONE))
    site.volume.between = lambda: site.volume.set(replace(ONE, mode=0o711, changed_ns=7))
    assert not site.puts_right()
    assert site.volume.directories[ONE.gfid].mode == 0o711
    assert site.listed == []


@pytest.mark.parametrize("is_shown", [False, True])
def test_copies_on_new_bricks_are_rewritten_after_the_layout(site: Site, is_shown: bool) -> None:
    copy = replace(TWO, default=b"inherited")
    site.volume.copies[TWO.gfid] = copy
    if is_shown:
        site.volume.shown[TWO.gfid] = copy
    assert not site.puts_right()
    assert site.volume.copies
    asyncio.run(restore_all_directories(site.call, site.record))
    assert not site.volume.copies
    # Looked at again, as something was done.
    assert site.volume.walked[-4:] == [OLD, NEW, OLD, NEW]


def test_a_change_by_a_user_between_two_walks_is_no_damaged_copy(site: Site) -> None:
    closed = replace(TWO, mode=0o700, changed_ns=5)

    def closes() -> None:
        if site.volume.walked[-1] == OLD:
            site.volume.copies[TWO.gfid] = closed
        else:
            site.volume.set(closed)

    site.volume.between = closes
    asyncio.run(restore_all_directories(site.call, site.record))
    assert site.volume.walked[-2:] == [OLD, NEW]
    assert site.volume.directories[TWO.gfid] == closed


def test_arbiters_and_new_bricks_are_no_reference_for_directories(site: Site) -> None:
    assert site.volume.walked == [OLD]
    site.volume.broken = {OLD}
    with pytest.raises(ToolFailed):
        site.knows()
    site.volume.set(shut(ONE), replace(HOME, mode=0o711, changed_ns=5))
    assert not site.puts_right()
    # A walk that broke off leaves what was known.
    assert site.known(HOME.gfid) == HOME


def test_another_brick_shows_owners_but_no_times(site: Site) -> None:
    site.volume.bricks += (brick("gl2:/b"),)
    site.volume.broken = {OLD}
    # By the first brick, which breaks off before it, this was a user: what he did last was no file.
    site.volume.set(replace(TWO, gid=1001, changed_ns=5))
    assert not site.puts_right()
    assert site.listed == [b"home/two"]


@pytest.mark.parametrize(("state", "pause_s"), [(AdditionState.LAYOUT, 1.0), (AdditionState.BALANCING, 30.0)])
def test_while_gluster_works_it_is_looked_again_and_again(site: Site, state: AdditionState, pause_s: float) -> None:
    async def work() -> None:
        async with restoring_directories(site.call, site.record):
            await asyncio.wait_for(seen.wait(), timeout=60.0)

    seen = asyncio.Event()
    site.record.state = state
    site.volume.between = lambda: seen.set() if len(site.volume.walked) == 4 else None
    began_s = site.clock.monotonic_s()
    asyncio.run(work())
    assert 2 * pause_s <= site.clock.monotonic_s() - began_s < 4 * pause_s


def test_of_an_addition_that_is_over_what_is_shut_stays_listed(site: Site) -> None:
    still, opened = shut(directory(b"home/new")), shut(directory(b"home/newer"))
    site.volume.set(still, opened)
    site.puts_right()
    site.volume.set(replace(opened, mode=0o700))
    record = asyncio.run(still_shut_directories(site.call, site.record))
    assert [one.path for one in record.notes.directories or ()] == [b"home/new"]


V = DirectoryVerdict
MADE = BrickDirectory(
    path=b"home/a/d", gfid=b"g" * 16, above=b"a" * 16, mode=0o755, uid=1001, gid=1001, changed_ns=100, modified_ns=90
)
ABOVE = replace(MADE, path=b"home/a", gfid=b"a" * 16, above=b"")
PROJECT = replace(ABOVE, mode=0o2775, gid=3000)
SHUT = replace(MADE, mode=0, uid=0, gid=0)


CLOSING = replace(ABOVE, default=acl(user=7, named=7, group=7, mask=7, other=0))


def later(one: BrickDirectory, *, changed_ns: int = 200, modified_ns: int = 200) -> BrickDirectory:
    """As where a file was made in it since."""
    return replace(one, changed_ns=changed_ns, modified_ns=modified_ns)


def after_chmod(one: BrickDirectory) -> BrickDirectory:
    return later(one, modified_ns=90)


ROOTS = replace(MADE, uid=0, gid=0)


@pytest.mark.parametrize(
    ("known", "seen", "verdict"),
    [
        *((MADE, seen, V.RIGHT) for seen in (MADE, later(MADE), after_chmod(MADE), replace(MADE, path=b"home/b"))),
        # Nobody but root can shut what belongs to root.
        (ROOTS, after_chmod(SHUT), V.DOUBTFUL),
        (MADE, after_chmod(SHUT), V.OUTDATED),
        # What was always shut is right, and may be opened.
        (SHUT, later(SHUT), V.RIGHT),
        (SHUT, MADE, V.CHANGED),
        (None, MADE, V.RIGHT),
        (None, SHUT, V.UNKNOWN),
        # What is given to root without a time of change was given by nobody; otherwise it is never given back without a word.
        (MADE, replace(MADE, uid=0, mode=0o711), V.TAKEN),
        (MADE, later(replace(MADE, uid=0, gid=0, mode=0o711)), V.DOUBTFUL),
        (MADE, after_chmod(replace(MADE, uid=0, gid=0, mode=0o711)), V.DOUBTFUL),
    ],
)
def test_the_verdict_on_a_directory(known: BrickDirectory | None, seen: BrickDirectory, verdict: V) -> None:
    assert judge(known, seen, ABOVE) is verdict


@pytest.mark.parametrize("known", [MADE, replace(MADE, mode=0), replace(MADE, gid=0), ROOTS])
@pytest.mark.parametrize("above", [ABOVE, PROJECT, CLOSING, None])
def test_a_shut_directory_was_shut_by_gluster(known: BrickDirectory, above: BrickDirectory | None) -> None:
    renamed = replace(later(SHUT, modified_ns=90), path=b"home/b")
    assert judge(known, SHUT, above) is V.TAKEN
    for seen in (later(SHUT), renamed):
        assert judge(known, seen, above) is V.OUTDATED
        # Where there are no times, nothing is known.
        assert judge(replace(known, changed_ns=None), seen, above) is V.TAKEN


MADE_ANEW = [
    # The bit and the group of the directory above.
    (MADE, {"mode": 0o2755, "gid": 3000}, PROJECT),
    (MADE, {"gid": 3000}, PROJECT),
    (replace(MADE, mode=0o2770), {"mode": 0o770}, ABOVE),
    # What its default ACL leaves.
    (replace(MADE, mode=0o775), {"mode": 0o770}, CLOSING),
    (replace(MADE, mode=0o775), {"mode": 0o770, "access": CLOSING.default, "default": CLOSING.default}, CLOSING),
]


@pytest.mark.parametrize(("known", "changes", "above"), MADE_ANEW)
def test_attributes_of_a_new_directory_are_doubtful(
    known: BrickDirectory, changes: dict[str, int], above: BrickDirectory
) -> None:
    seen = replace(known, **changes)
    assert judge(known, seen, above) is V.TAKEN
    # A file was made in it since, so its times tell nothing.
    assert judge(known, later(seen), above) is V.DOUBTFUL
    # A rename sets the same time as a chmod.
    assert judge(known, replace(after_chmod(seen), path=b"home/a/e"), above) is V.DOUBTFUL
    assert judge(known, after_chmod(seen), above) is V.DOUBTFUL
    # Where there are no times, nothing is known.
    assert judge(replace(known, changed_ns=None), seen, above) is V.DOUBTFUL


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": 0o700},
        {"mode": 0o2755},
        {"gid": 5},
        {"uid": 5},
        {"access": acl(user=7, named=7, group=7, mask=7, other=0)},
    ],
)
def test_attributes_that_gluster_never_sets_are_changes_by_users(changes: dict[str, int]) -> None:
    seen = replace(MADE, **changes)
    assert judge(MADE, later(seen), ABOVE) is judge(MADE, after_chmod(seen), ABOVE) is V.CHANGED
    # The clock of somebody's client is behind, or this is not known yet of Gluster.
    assert judge(MADE, seen, ABOVE) is V.DOUBTFUL


def test_a_group_that_is_inherited_may_be_of_gluster_whatever_the_mode_is_by_now() -> None:
    seen = after_chmod(replace(MADE, mode=0o711, gid=3000))
    assert judge(MADE, seen, PROJECT) is V.DOUBTFUL
    assert judge(MADE, seen, replace(PROJECT, mode=0o775)) is V.CHANGED


def test_a_copy_whose_time_is_no_later_was_touched_by_no_user() -> None:
    assert untouched_since(MADE, MADE)
    assert untouched_since(later(MADE), replace(MADE, mode=0))
    assert not untouched_since(MADE, later(MADE))
    assert not untouched_since(MADE, replace(MADE, gfid=b"o" * 16))
    assert not untouched_since(MADE, replace(MADE, changed_ns=None))
    assert not untouched_since(replace(MADE, changed_ns=None), MADE)


def test_acls_that_the_mount_omits_are_no_difference() -> None:
    told = replace(MADE, access=acl(user=7, named=7, group=7, mask=7, other=0))
    assert same_owner(told, replace(told, access=None))
    assert not same_owner(told, MADE)
    assert not same_owner(MADE, replace(MADE, default=told.access))
    assert not same_owner(MADE, replace(MADE, gid=5))

    # An ACL that says no more than a mode is none.
    minimal = replace(MADE, access=acl(user=7, group=5, other=5))
    assert same_owner(MADE, minimal)
    assert judge(MADE, minimal, ABOVE) is judge(minimal, MADE, ABOVE) is V.RIGHT
    assert not same_owner(MADE, replace(MADE, access=acl(user=7, group=5, mask=5, other=5)))
    # What is made below gets the other one.
    assert not same_owner(MADE, replace(MADE, default=minimal.access))


@pytest.mark.parametrize("name", [b"plain", b"o'clock $HOME", "äö".encode(), b"not\xfftext\n'\\"])
def test_the_command_puts_it_right(tmp_path: Path, name: bytes) -> None:
    path = bytes(tmp_path) + b"/" + name
    Path(path.decode("utf-8", "surrogateescape")).mkdir(mode=0o700)
    me = Path(tmp_path).stat()
    known = replace(MADE, path=name, uid=me.st_uid, gid=me.st_gid, mode=0o751)
    told = listed(V.TAKEN, known, replace(SHUT, path=name), root=bytes(tmp_path), failure="no room")
    assert "only root can enter it" in told.reason
    assert told.reason.endswith("(no room)")
    subprocess.run(["bash", "-c", told.command], check=True)
    assert Path(path.decode("utf-8", "surrogateescape")).stat().st_mode & 0o7777 == 0o751


def test_the_command_has_the_acl_where_a_mode_does_not_bring_it_back() -> None:
    known = replace(MADE, access=acl(user=7, named=5, group=5, mask=5, other=0))
    told = listed(V.DOUBTFUL, known, MADE, root=b"/mnt/gl")
    assert "setfacl --set u::rwx,u:1234:r-x,g::r-x,m::r-x,o::--- /mnt/gl/home/a/d" in told.command
    assert "GlusterFS or a user may have changed it" in told.reason
    assert "setfacl" not in listed(V.DOUBTFUL, known, replace(known, mode=0), root=b"/mnt/gl").command


def test_an_addition_of_another_ledger_has_a_file_of_its_own(site: Site) -> None:
    """An older ledger gives the same number to another addition, which must not restore what this one recorded."""
    again: Any = SimpleNamespace(id=7, times={AdditionState.PLANNED: 61.5})
    assert own_name(again) != own_name(site.record)
    with site.memory.opened(own_name(again)) as known:
        assert known.of([ONE.gfid, TWO.gfid]) == {}
        known.remove()
