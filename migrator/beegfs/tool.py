"""Storage targets and quotas of a BeeGFS target, by the installed tool of either version."""

import asyncio
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from migrator.beegfs import rules, version7, version8
from migrator.beegfs.model import DirectorySettings, StorageState, StorageTarget, StripeSettings, TargetKind, UserQuota
from migrator.beegfs.rules_layout import has_settings
from migrator.core.clock import Clock, SystemClock
from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.fs.model import Capacity
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap
from migrator.hosts.ports import Command, Completed, Processes
from migrator.hosts.process import BASE_ENVIRONMENT


class StorageTargets(Protocol):
    """Questions to the file system's tool. Every question has a timeout, and starts a program. A question whose answer
    guards something is repeated with a longer timeout if the answer is late, for up to two minutes.
    """

    async def state(self, *, patient: bool = False) -> StorageState:
        """Every target with its states and its room. Room lags by 40 to 80 s, states by more. Calls may overlap. If not
        `patient`, there is one attempt: the result is only shown, or polled. Raises ToolFailed without a tool, without an
        answer, or for a malformed one.
        """

    async def problems(self) -> tuple[str, ...]:
        """Sentences: why files on the target may be unreadable. A failed question is a problem."""

    async def directory(self, path: bytes) -> DirectorySettings:
        """The settings for new files in a directory, by its absolute path. Raises ToolFailed."""

    async def directories(self, paths: Sequence[bytes]) -> Sequence[DirectorySettings]:
        """The settings of up to `PATHS_AT_ONCE` directories, in any order: one command of version 8. Raises ToolFailed."""

    async def pools(self) -> Mapping[str, int]:
        """The numbers of the storage pools, by name (of version 8) and by number. Raises ToolFailed."""

    async def set_stripe(self, paths: Sequence[bytes], stripe: StripeSettings) -> None:
        """Set and verify the settings for new files in directories. May be called again. Raises ToolFailed."""

    async def licence_problem(self) -> str | None:
        """Why BeeGFS reports no valid licence, which storage pools and quotas of version 8 need; None if it reports one, and
        for version 7.
        """

    async def quota_problem(self) -> str | None:
        """Why BeeGFS cannot report the usage of users; None if it can."""

    async def quotas(self, uids: Collection[int]) -> Mapping[int, UserQuota]:
        """Usage and limits of these users on the target, without users that BeeGFS does not list; empty without quotas.
        Usage lags by minutes. Raises ToolFailed.
        """

    async def set_limits(self, size_bytes: Mapping[int, int]) -> None:
        """Set and verify limits of bytes by uid; limits of chunk files stay. May be called again. Raises ToolFailed."""


SEARCH_PATH = f"{BASE_ENVIRONMENT['PATH']}:/opt/beegfs/sbin"
"""The last one is the directory of BeeGFS's own packages."""
_NAMES = ("beegfs", "beegfs-ctl")
_VERSION_7 = "beegfs-ctl"
PATHS_AT_ONCE = 100
"""The most paths of one command: of the longest they take a fifth of what a command may have."""


class CallTimes(Struct, frozen=True, kw_only=True):
    """The timeouts of first attempts: `list_s` for the target list of version 8, `room_s` for that of version 7, which
    asks every server, `states_s` for the one after it has failed. Further attempts have twice the timeout of the attempt
    before, as long as all timeouts of a question are at most `patience_s`.
    """

    list_s: float = 6.0
    room_s: float = 12.0
    states_s: float = 7.0
    other_s: float = 25.0
    patience_s: float = 100.0


_FIRST_PAUSE_S = 1.0
"""Before the second attempt; twice as long before each further one."""


class BeegfsTargets(Struct, frozen=True, kw_only=True):
    """The `StorageTargets` port for the file system mounted at `mount`. `root` is the directory of the user trees below
    it. `command` is that of site.toml; None: the tool found on this machine. A name that begins with `beegfs-ctl`
    means version 7. `owners`: from the callers' numbers of users to BeeGFS's.

    The tool finds the management service itself, and refuses if file systems of several are mounted (`command` is then
    a script that names the right one).
    """

    processes: Processes
    mount: bytes
    root: bytes
    command: str | None = None
    path: str = SEARCH_PATH
    times: CallTimes = CallTimes()
    clock: Clock = SystemClock()
    owners: OwnerMap = SAME_OWNERS
    _pools: dict[bytes, int | None] = {}

    @property
    def tool(self) -> str:
        for name in (self.command,) if self.command is not None else _NAMES:
            if found := shutil.which(name, path=self.path):
                return found
        missing = " and ".join(_NAMES) if self.command is None else self.command
        raise ToolFailed(
            f"BeeGFS's command is missing on this machine ({missing})",
            cause="its package (beegfs-tools; beegfs-utils of BeeGFS 7) is not installed, or lies elsewhere",
            hint="install it, or name it in [target] beegfs",
        )

    async def state(self, *, patient: bool = False) -> StorageState:
        if self._is_7:
            metadata, storage = await asyncio.gather(
                self._look_7(TargetKind.METADATA, patient=patient), self._look_7(TargetKind.STORAGE, patient=patient)
            )
            found = StorageState(
                targets=(*metadata.targets, *storage.targets), unanswered=(*metadata.unanswered, *storage.unanswered)
            )
        else:
            listed = await self._output(*version8.LIST, timeout_s=self.times.list_s, patient=patient)
            found = StorageState(targets=version8.parse_targets(listed))
        return replace(found, storage_pool=await self._storage_pool(found, patient=patient))

    async def problems(self) -> tuple[str, ...]:
        try:
            return rules.target_problems(await self.state(patient=True))
        except ToolFailed as error:
            return (f"the states of the target's storage targets are unknown: {error.message}",)

    async def directory(self, path: bytes) -> DirectorySettings:
        return (await self.directories((path,)))[0]

    async def directories(self, paths: Sequence[bytes]) -> Sequence[DirectorySettings]:
        return await self._directories(paths, patient=True)

    async def _directories(self, paths: Sequence[bytes], *, patient: bool) -> Sequence[DirectorySettings]:
        ask = partial(self._output, patient=patient)
        if self._is_7:
            return [version7.parse_directory(await ask("--getentryinfo", paths=(path,))) for path in paths]
        found = version8.parse_directories(await ask("entry", "info", *version8.AS_LINES, paths=paths))
        if len(found) != len(paths):
            raise ToolFailed(f"`beegfs entry info` printed {len(found)} directories instead of {len(paths)}")
        return found

    async def pools(self) -> Mapping[str, int]:
        if not self._is_7:
            return version8.parse_pools(await self._output("pool", "list", *version8.AS_LINES))
        pools = {one.storage_pool for one in (await self.state(patient=True)).targets if one.storage_pool is not None}
        return {str(pool): pool for pool in pools}

    async def set_stripe(self, paths: Sequence[bytes], stripe: StripeSettings) -> None:
        pools = await self.pools() if stripe.pool else {}
        if stripe.pool and stripe.pool not in pools:
            raise ToolFailed(
                f"BeeGFS has no storage pool {stripe.pool}", hint=f"name one of {', '.join(sorted(pools))} in site.toml"
            )
        number = None if stripe.pool is None else pools[stripe.pool]
        for start in range(0, len(paths), PATHS_AT_ONCE):
            some = paths[start : start + PATHS_AT_ONCE]
            failures: list[str] = []
            if self._is_7:
                for path in some:
                    words = version7.stripe_arguments(stripe, (await self.directory(path)).stripe, number)
                    failures += await self._change(*words, paths=(path,))
            else:
                failures += await self._change(*version8.stripe_arguments(stripe, number), paths=some)
            for path, found in zip(some, await self.directories(some), strict=True):
                if not has_settings(found, stripe, pools):
                    other = f"{found.stripe.targets} targets, chunks of {found.stripe.chunk_bytes} bytes, pool {found.storage_pool}"
                    where = (
                        show(path) if len(some) == 1 else f"one of {len(some)} directories, the first {show(some[0])},"
                    )
                    raise ToolFailed(
                        "; ".join((f"{where} has other stripe settings than were requested: {other}", *failures[:1])),
                        hint="try the same command by hand, as root: `beegfs entry set`, or `beegfs-ctl --setpattern` "
                        "of BeeGFS 7",
                    )

    async def licence_problem(self) -> str | None:
        if self._is_7:
            return None
        try:
            await self._output(*version8.LICENCE)
        except ToolFailed as error:
            return error.message
        return None

    async def quota_problem(self) -> str | None:
        try:
            await self._output(*(version7.QUOTA if self._is_7 else version8.QUOTA))
        except ToolFailed as error:
            return error.message
        return None

    async def clients(self) -> tuple[str, ...]:
        """The host names of all clients. Raises ToolFailed."""
        if self._is_7:
            return version7.parse_clients(await self._output("--listnodes", "--nodetype=client"))
        return version8.parse_clients(await self._output(*version8.CLIENTS))

    async def quotas(self, uids: Collection[int]) -> Mapping[int, UserQuota]:
        """As the port. Raises ToolFailed."""
        asked = {self.owners.uid(uid): uid for uid in uids}
        found = await self._quotas(asked)
        return {asked[uid]: replace(one, uid=asked[uid]) for uid, one in found.items()}

    async def _quotas(self, uids: Collection[int]) -> Mapping[int, UserQuota]:
        pool = (await self.state(patient=True)).storage_pool
        if self._is_7:
            found: dict[int, UserQuota] = {}
            wanted = sorted(uids)
            for start in range(0, len(wanted), version7.AT_ONCE):
                some = wanted[start : start + version7.AT_ONCE]
                found |= version7.parse_quotas(await self._output(*version7.words(some, pool)), some)
            return found
        usage, limits, defaults = await asyncio.gather(
            *(self._ask(*words) for words in (version8.USAGE, version8.LIMITS, version8.DEFAULTS))
        )
        if any(words in usage.stderr for words in version8.ABSENT):
            return {}
        return version8.parse_quotas(self._whole(usage), self._whole(limits), self._whole(defaults), pool, uids)

    async def set_limits(self, size_bytes: Mapping[int, int]) -> None:
        """As the port. Users with the same limit share a command."""
        before, pool = await self.quotas(size_bytes), (await self.state(patient=True)).storage_pool
        alike: dict[tuple[int, int | None], list[int]] = {}
        for uid, limit_bytes in sorted(size_bytes.items()):
            # Version 7 sets both limits.
            chunk_files = before[uid].limit_chunk_files if self._is_7 and uid in before else None
            alike.setdefault((limit_bytes, chunk_files), []).append(uid)
        number = pool if self._is_7 else version8.pool_number(await self._output(*version8.DEFAULTS), pool)
        failures: list[str] = []
        for (limit_bytes, chunk_files), uids in alike.items():
            for start in range(0, len(uids), version7.AT_ONCE):
                some = [self.owners.uid(uid) for uid in uids[start : start + version7.AT_ONCE]]
                failures += await self._change(
                    *(
                        version7.limit_arguments(some, limit_bytes, chunk_files, number)
                        if self._is_7
                        else version8.limit_arguments(some, limit_bytes, number)
                    )
                )
        after = await self.quotas(size_bytes)
        if wrong := [uid for uid, limit in size_bytes.items() if uid not in after or after[uid].limit_bytes != limit]:
            words = f"users have other limits than `{PurePath(self.tool).name}` was to set: {wrong[:5]}"
            raise ToolFailed(
                "; ".join((words, *failures[:1])),
                hint="try the command by hand: `beegfs quota set-limits`, or `beegfs-ctl --setquota` of BeeGFS 7",
            )

    async def _storage_pool(self, seen: StorageState, *, patient: bool) -> int | None:
        """The storage pool of the root of the user trees, if there are several pools; queried once, since it rarely
        changes.
        """
        known = {one.storage_pool for one in seen.targets if one.kind is TargetKind.STORAGE}
        if len(known) < 2:
            return None
        if self.root not in self._pools:
            if rules.lost_targets(seen):
                # The query needs a metadata server, and would delay the report of the lost targets.
                return None
            (facts,) = await self._directories((self.root,), patient=patient)
            self._pools[self.root] = facts.storage_pool
        pool = self._pools[self.root]
        return pool if pool in known else None

    async def _look_7(self, kind: TargetKind, *, patient: bool) -> StorageState:
        """The targets with their room, if all servers answer in time. Otherwise only the states: unreachable servers
        count as not answering. If all are reachable, one of them still does not answer, so its kind is `unanswered`.
        """
        nodes = f"--nodetype={'meta' if kind is TargetKind.METADATA else 'storage'}"
        pools = (version7.STORAGE_POOLS,) if kind is TargetKind.STORAGE else ()
        words = ("--listtargets", nodes, "--state", *pools, *version7.ROOM)
        with_room = await self._ask(*words, timeout_s=self.times.room_s, may_time_out=True, patient=patient)
        if not with_room.timed_out:
            server_down = with_room.exit_code != 0 and version7.SERVER_DOWN in with_room.stderr
            output = with_room.stdout if server_down else self._whole(with_room)
            return StorageState(targets=version7.parse_targets(output, kind, with_room=True))
        timeout_s = self.times.states_s
        states, reached = await asyncio.gather(
            self._output("--listtargets", nodes, "--state", timeout_s=timeout_s, patient=patient),
            self._ask("--listnodes", nodes, version7.REACHABLE, timeout_s=timeout_s, may_time_out=True, patient=False),
        )
        silent = frozenset() if reached.timed_out else version7.unreached(reached.stdout)
        targets = tuple(
            replace(one, answers=False) if one.node in silent else one
            for one in version7.parse_targets(states, kind, with_room=False)
        )
        return StorageState(targets=targets, unanswered=() if any(map(rules.is_lost, targets)) else (kind,))

    @property
    def _is_7(self) -> bool:
        return PurePath(self.tool).name.startswith(_VERSION_7)

    async def _change(self, *words: str, paths: Sequence[bytes] = ()) -> Sequence[str]:
        """Run a command that changes a setting, and return why it failed, if it did. The setting that the caller reads
        back decides: without its licence library, 8.3.1 applies a setting and exits with 1 and an empty output.
        """
        answer = await self._ask(*words, paths=paths, may_time_out=True, patient=False)
        return (f"`{PurePath(self.tool).name} {' '.join(words)}`: {answer.failure}",) if answer.failure else ()

    async def _output(
        self, *words: str, paths: Sequence[bytes] = (), timeout_s: float | None = None, patient: bool = True
    ) -> bytes:
        return self._whole(await self._ask(*words, paths=paths, timeout_s=timeout_s, patient=patient))

    async def _ask(
        self,
        *words: str,
        paths: Sequence[bytes] = (),
        timeout_s: float | None = None,
        may_time_out: bool = False,
        patient: bool = True,
    ) -> Completed:
        """The answer. A management service that is late, or restarts, is asked again if `patient`."""
        timeout_s = timeout_s or self.times.other_s
        mount = (b"--mount=" + self.mount,) if self._is_7 else (b"--mount", self.mount)
        argv = (os.fsencode(self.tool), *map(os.fsencode, words), *mount, *paths)
        spent_s, pause_s = timeout_s, _FIRST_PAUSE_S
        while True:
            answer = await self.processes.run(Command(argv=argv, environment={"PATH": self.path}, timeout_s=timeout_s))
            late = answer.timed_out or (answer.exit_code != 0 and version8.UNAVAILABLE in answer.stderr)
            if not late or not patient or spent_s + 2 * timeout_s > self.times.patience_s:
                break
            await self.clock.sleep(pause_s)
            timeout_s, pause_s = 2 * timeout_s, 2 * pause_s
            spent_s += timeout_s
        if answer.timed_out and not may_time_out:
            raise ToolFailed(
                f"`{PurePath(self.tool).name} {' '.join(words)}` gave no answer within {timeout_s:.0f} s",
                cause="BeeGFS's management service is down or not reached",
                hint="see whether it runs, then try the same command by hand",
            )
        return answer

    def _whole(self, answer: Completed) -> bytes:
        """The output of a command that completed. Raises ToolFailed."""
        if not answer.failure or (answer.exit_code == 1 and answer.stdout and _is_licence(answer.stderr)):
            return answer.stdout
        raise ToolFailed(
            f"`{PurePath(self.tool).name}` failed: {answer.failure}",
            cause="BeeGFS's management service is down, or this machine may not ask it (authentication, certificate)",
            hint="run the same command by hand as root; `migrator doctor` prints its error",
        )


def _is_licence(stderr: bytes) -> bool:
    lines = [line for line in stderr.split(b"\n") if line.strip()]
    return len(lines) >= 1 and version8.UNLICENSED in lines[-1] and all(b"Error" not in line for line in lines[:-1])


# One snapshot of the storage targets, for guards and `doctor`: failures are part of the result, not raised.


class StorageReading(Struct, frozen=True, kw_only=True):
    """The snapshot, or why there is none (`failure`). `asked` False: the target has no storage targets."""

    seen: StorageState | None = None
    failure: str = ""
    hint: str = ""
    asked: bool = True

    def room(self, capacity: Capacity) -> Capacity:
        """The capacity by statfs, reduced to the room that new files really have."""
        return capacity if self.seen is None else rules.room_of(capacity, self.seen)

    @property
    def targets(self) -> tuple[StorageTarget, ...]:
        """The targets; none if unknown."""
        return () if self.seen is None else self.seen.targets

    @property
    def problems(self) -> tuple[str, ...]:
        """Why nothing should be written there now; none if unknown."""
        if self.seen is None:
            return ()
        return (*self.lost, *rules.emergency_problems(self.seen))

    @property
    def lost(self) -> tuple[str, ...]:
        """The targets that do not answer; none if unknown."""
        return () if self.seen is None else rules.lost_targets(self.seen)


async def words_for_full(storage: StorageTargets | None) -> str:
    """After a write that failed for lack of room: the full storage targets, or the fullest; empty if unknown."""
    targets = (await read_storage(storage)).targets
    return rules.describe_fullest(targets) if targets else ""


async def read_storage(storage: StorageTargets | None, *, patient: bool = False) -> StorageReading:
    """The snapshot; `storage` None: no query, and no program is started. `patient`: it guards something, so a late answer
    is waited for, for up to two minutes.
    """
    if storage is None:
        return StorageReading(asked=False)
    try:
        return StorageReading(seen=await storage.state(patient=patient))
    except ToolFailed as error:
        return StorageReading(failure=error.message, hint=error.hint)


# The users' limits on the target, for guards and `plan`: failures are part of the result, not raised.


class QuotaReading(Struct, frozen=True, kw_only=True):
    """The users with limits, by uid; `failure` is the reason if they are unknown. `spread` is the largest number of
    storage targets of a new file.
    """

    quotas: Mapping[int, UserQuota] = {}
    spread: int = 1
    failure: str = ""


async def read_quotas(storage: StorageTargets | None, root: bytes, uids: Collection[int]) -> QuotaReading:
    """Query these users once; `root` is the directory of their trees. `storage` None: no query."""
    if storage is None or not uids:
        return QuotaReading()
    try:
        quotas = {uid: one for uid, one in (await storage.quotas(uids)).items() if one.limited}
        spread = (await storage.directory(root)).stripe.targets or 1 if quotas else 1
    except ToolFailed as error:
        return QuotaReading(failure=error.message)
    return QuotaReading(quotas=quotas, spread=spread)
