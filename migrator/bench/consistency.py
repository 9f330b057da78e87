"""The checks of the suite `consistency`: one host changes files, and when that is confirmed the others look.

Several hosts, or several mounts of one, are the views of a file system. The first one in the order of a run changes, the
others check; races, appends and small writers are at work on all.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from migrator.bench.far_consistency import STATES
from migrator.bench.hosts import ConsistencyResult, HostWorkloads, WorkDirectory
from migrator.core.tasks import task_group
from migrator.hosts.process import cancel_all

PATIENCE_MS = 70_000
"""Until then a view may be late: NFS keeps attributes of directories for up to 60 s."""
_EVIDENCE = 12
_APPENDERS = 4
"""On each host."""


class Checks(Struct, frozen=True, kw_only=True):
    """The checks of one run. `starts` returns an agreed time for all. Every check raises HostLost and ToolFailed, also if
    the host that changes the files fails to.
    """

    workloads: HostWorkloads
    views: Sequence[WorkDirectory]
    run: int
    token: str
    starts: Callable[[], Awaitable[float]]
    patience_ms: int = PATIENCE_MS

    async def check(self, words: Sequence[str]) -> ConsistencyResult:
        """The check of a step: its name, and its numbers."""
        name, numbers = words[1], [int(word) for word in words[2:]]
        if name in STATES:
            return await self._states(name, *numbers)
        checks: dict[str, Callable[..., Awaitable[ConsistencyResult]]] = {
            "replace-under-readers": self._replaced_under_readers,
            "append-together": self._appended_together,
            "lock": self._locked,
            "race": self._raced,
            "small-writers": self._small_writers,
        }
        return await checks[name](*numbers)

    @property
    def _writer(self) -> WorkDirectory:
        return self.views[0]

    async def _on(
        self, view: WorkDirectory, *argvs: Sequence[object], start_at_s: float | None = None
    ) -> ConsistencyResult:
        lanes = [tuple(map(str, argv)) for argv in argvs]
        return _together(view, await self.workloads.check(view, lanes, start_at_s=start_at_s, token=self.token))

    async def _on_others(self, *argv: object) -> ConsistencyResult:
        """A check by all views but the first, at once."""
        return _joined(await _at_once(self._on(view, argv) for view in self.views[1:]))

    async def _on_all(self, argvs: Callable[[int], Iterable[Sequence[object]]]) -> list[ConsistencyResult]:
        """What each view does, by its number, from an agreed time on."""
        start_at_s = await self.starts()
        return await _at_once(
            self._on(view, *argvs(number), start_at_s=start_at_s) for number, view in enumerate(self.views)
        )

    async def _states(self, name: str, count: int) -> ConsistencyResult:
        path, number = f"files-{self.run}", STATES.index(name)
        seen = []
        # First that the file is absent: some clients cache that answer.
        for state in (0, 1) if number == 1 else (number,):
            await self._on(self._writer, ("@change", path, state, count))
            seen.append(await self._on_others("@see", path, state, count, self.patience_ms))
            if seen[-1].wrong == seen[-1].checked:
                break
        return _joined(seen)

    async def _replaced_under_readers(self, count: int) -> ConsistencyResult:
        path = f"replaced-{self.run}"
        await self._on(self._writer, ("@replace", path, 0, 0))
        readies = [f"reading-{self.run}-{number}" for number in range(1, len(self.views))]
        async with task_group() as group:
            readers = [
                group.create_task(self._on(view, ("@keep-reading", path, ready, count, self.patience_ms)))
                for view, ready in zip(self.views[1:], readies, strict=True)
            ]
            for view, ready in zip(self.views[1:], readies, strict=True):
                await self._on(view, ("@wait-for", ready, PATIENCE_MS))
            await self._on(self._writer, ("@replace", path, 1, count))
        return _joined([reader.result() for reader in readers])

    async def _appended_together(self, count: int) -> ConsistencyResult:
        path = f"appended-{self.run}"
        await self._on_all(
            lambda number: [("@append", path, number * _APPENDERS + lane, count) for lane in range(_APPENDERS)]
        )
        lanes = len(self.views) * _APPENDERS
        argv = ("@see-records", path, lanes, count, self.patience_ms)
        return _joined(await _at_once(self._on(view, argv) for view in self.views))

    async def _locked(self, whole_file: int) -> ConsistencyResult:
        path, ready = f"lock-{whole_file}-{self.run}", f"held-{whole_file}-{self.run}"

        async def hold() -> None:
            await self._on(self._writer, ("@hold", path, ready, whole_file))

        holder = asyncio.ensure_future(hold())
        try:
            held = await self._on(self._writer, ("@wait-for", ready, PATIENCE_MS))
            if held.wrong:
                return held
            refused = await self._on_others("@lock", path, whole_file, 1, self.patience_ms)
        finally:
            # This ends its processes, and thus releases the lock, before it returns.
            await cancel_all([holder])
        # One after the other: each takes the lock.
        free = [await self._on(view, ("@lock", path, whole_file, 0, self.patience_ms)) for view in self.views[1:]]
        return _joined([refused, *free])

    async def _raced(self, directories: int, count: int) -> ConsistencyResult:
        path = f"race-{directories}-{self.run}"
        await self._on(self._writer, ("@change", path, 0, 0))
        await self._on_others("@see", path, 0, 1, self.patience_ms)
        found = await self._on_all(lambda _number: [("@race", path, directories, count)])
        hosts = [view.host for view in self.views]
        problems = []
        for name in found[0].outcomes:
            codes = {host: one.outcomes[name] for host, one in zip(hosts, found, strict=True)}
            made = [host for host, code in codes.items() if code == 0]
            failed = "".join(
                f", {host}: {_named(code)}" for host, code in codes.items() if code not in (0, errno.EEXIST)
            )
            if len(made) != 1 or failed:
                problems.append(f"{name}: made by {' and '.join(made) or 'none'}{failed}")
        return ConsistencyResult(checked=count, wrong=len(problems), evidence=tuple(problems))

    async def _small_writers(self, writers: int, each: int) -> ConsistencyResult:
        path = f"small-{self.run}"
        await self._on(self._writer, ("@change", path, 0, 0))
        await self._on_others("@see", path, 0, 1, self.patience_ms)
        written = await self._on_all(
            lambda number: [("@write-small", path, number * writers + lane, each) for lane in range(writers)]
        )
        failures = []
        for view, one in zip(self.views, written, strict=True):
            codes = Counter(code for code in one.outcomes.values() if code)
            failures += [f"{view.host}: {count} writes failed: {_named(code)}" for code, count in codes.items()]
        failed = sum(1 for one in written for code in one.outcomes.values() if code)
        total = len(self.views) * writers
        argv = ("@see-small", path, total, each, self.patience_ms)
        seen = await _at_once(self._on(view, argv) for view in self.views)
        return _joined([ConsistencyResult(wrong=failed, evidence=tuple(failures)), *seen])


async def _at_once(works: Iterable[Coroutine[Any, Any, ConsistencyResult]]) -> list[ConsistencyResult]:
    async with task_group() as group:
        tasks = [group.create_task(work) for work in works]
    return [task.result() for task in tasks]


def _named(code: int) -> str:
    return errno.errorcode.get(code, str(code))


def _together(view: WorkDirectory, lanes: Sequence[ConsistencyResult]) -> ConsistencyResult:
    """What the lanes of a view saw; the evidence names its host."""
    joined = _joined(lanes)
    outcomes = {name: code for one in lanes for name, code in one.outcomes.items()}
    return replace(joined, evidence=tuple(f"{view.host}: {words}" for words in joined.evidence), outcomes=outcomes)


def _joined(found: Sequence[ConsistencyResult]) -> ConsistencyResult:
    return ConsistencyResult(
        checked=sum(one.checked for one in found),
        late=sum(one.late for one in found),
        wrong=sum(one.wrong for one in found),
        seconds=max((one.seconds for one in found), default=0.0),
        evidence=tuple(words for one in found for words in one.evidence)[:_EVIDENCE],
    )
