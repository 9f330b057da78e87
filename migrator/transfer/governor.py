"""The governor of a run: it collects readings, and decides whether the next chunk may start.

It never ends or suspends a stream: a lowered limit takes effect as chunks end, a raised one at once.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.clock import Clock
from migrator.core.errors import MigratorError
from migrator.core.events import Severity
from migrator.core.tasks import cancel_and_wait
from migrator.core.windows import LocalTime, Window, opening, opens_at
from migrator.plan.model import TransferCost
from migrator.transfer import model as transfer
from migrator.transfer import rules_governor as rules
from migrator.transfer.model_governor import Bound, Controls, Gate, GovernorRecord, HostLoad, Limits, StreamsBy

if TYPE_CHECKING:
    from migrator.transfer.records import TransferLedger
    from migrator.transfer.routes import HostLane

LOG = logging.getLogger("migrator.governor")

LOOK_EVERY_S = 2.0
LOADS_EVERY_S = 30.0
COST_EVERY_S = 300.0
"""Interval for measuring the cost of streams, which bounds the size of chunks."""
_HALF = 0.5
_BYTES_OF_A_FILE = 1_000_000
"""The assumed cost of a file, in bytes, before the first measurement."""
_FELT = frozenset({Bound.LATENCY, Bound.LOAD})


class Governing(Struct, frozen=True, kw_only=True):
    """The ports, and the settings at the start. `ledger` has the operators' settings. `in_words` formats a time for display."""

    ledger: "TransferLedger"
    load_of: Callable[[str], Awaitable[float | None]]
    limits: Limits
    windows: Sequence[Window]
    local_time: LocalTime
    in_words: Callable[[float], str]
    by: StreamsBy = StreamsBy.MEASURED
    settle_s: float = 60.0


@dataclass(slots=True, kw_only=True)
class Grant:
    """The share of a stream; None: no limit. `change` gives the running stream another one; without it,
    the stream keeps its share (an rsync does). `moved` counts its bytes; None: it takes all that it gets.
    """

    host: str
    share_bytes_per_s: int | None
    change: Callable[[int | None], None] | None = None
    moved: Callable[[], int] | None = None
    need_bytes_per_s: int | None = None
    seen_bytes: int = 0
    seen_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Governor:
    """See `governed`. `hosts` has the streams of each host by site.toml and the command line. `report` reports to people.

    `decision` is the present allowance. `chunk_cost` is the measured cost of a stream, for predicting the duration of a
    chunk (None: unknown).
    """

    governing: Governing
    hosts: Mapping[str, int]
    run_id: int | None
    clock: Clock
    report: Callable[[Severity, str], None]
    frozen: bool
    ledger: "TransferLedger" = field(init=False)
    state: rules.GovernorState = field(init=False)
    decision: GovernorRecord = field(init=False)
    chunk_cost: TransferCost | None = field(init=False)
    _first_cost: TransferCost | None = field(init=False)
    _settings: rules.Settings = field(init=False)
    _controls: Controls = field(init=False)
    _kept: GovernorRecord | None = None
    _grants: dict[int, Grant] = field(default_factory=dict)
    _limited: bool = False
    _watchers: list[Callable[[], None]] = field(default_factory=list)
    _flowing: Mapping[str, int] = field(default_factory=dict)
    _probed: int = 0
    _cost_s: float = 0.0
    _loads_s: float | None = None

    def __post_init__(self) -> None:
        """Make the first decision."""
        self.ledger = self.governing.ledger
        self._controls = self.ledger.controls.now()
        self._settings = self._settings_now()
        # Without a run nothing records throughput, so there is nothing to measure.
        by = StreamsBy.FIXED if self.run_id is None else self.governing.by
        self.state = rules.first_state(self._settings, by)
        self._probed = self.ledger.probes.last()
        self.chunk_cost = self._first_cost = self.ledger.samples.measured_cost()
        self._cost_s = self.clock.monotonic_s()
        self._decide()

    @property
    def allowed(self) -> Mapping[str, int]:
        """The number of streams that each host may have now."""
        return dict(self.decision.hosts)

    @property
    def ceilings(self) -> Mapping[str, int]:
        """The maximum number of streams of each host by the present limits."""
        return self._settings.hosts

    async def watch(self) -> None:
        """React to all changes, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again_and_again(self._look))
            # This runs in a task of its own: an unresponsive host must not delay a pause, or the end of a window.
            group.create_task(self._again_and_again(self._read_loads))

    async def _again_and_again(self, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self.clock.sleep(LOOK_EVERY_S)
            try:
                await look()
            except MigratorError as error:
                # Another process holds the ledger's lock for long: the present decision stays in force.
                LOG.warning("the governor could not look: %s", error.message)

    async def _look(self) -> None:
        """Read controls and new probes, and decide again."""
        self._controls = self.ledger.controls.now()
        before, self._settings = self._settings, self._settings_now()
        if before != self._settings:
            self.state = rules.changed(self.state, before, self._settings)
        at_work = self._at_work()
        # The cursor is the probe's number: a clock that was set back must not hide new probes.
        for number, probe in self.ledger.probes.after(self._probed):
            self._probed = number
            if probe.latency_s is not None:
                self.state = rules.after_probe(self.state, probe.side, probe.latency_s, self._settings, at_work=at_work)
        # The cost is measured again at intervals: the first run starts without any, and the speed of a source varies.
        now_s = self.clock.monotonic_s()
        if now_s - self._cost_s >= COST_EVERY_S:
            self._cost_s = now_s
            self.chunk_cost = self.ledger.samples.measured_cost() or self.chunk_cost
        self._decide()
        self._share_out(measured=True)

    def flowed(self, moved: transfer.StreamCounters, interval_s: float) -> None:
        """Record the throughput of all streams. It counts only if every host with work had all its allowed streams
        throughout.
        """
        at_work, before = self._at_work(), self._flowing
        self._flowing = at_work
        allowed = self.allowed
        if at_work != before or any(count != allowed.get(host, 0) for host, count in at_work.items()) or not at_work:
            return
        cost = self._first_cost
        work = (
            float(moved.size_bytes + moved.files * _BYTES_OF_A_FILE)
            if cost is None
            else moved.files * cost.s_per_file + moved.size_bytes * cost.s_per_byte
        )
        flow = rules.Flow(interval_s=interval_s, work=work)
        self.state = rules.after_flow(self.state, flow, self._settings, settle_s=self.governing.settle_s)
        self._decide()

    def may_begin(self, host: str, *, hosts: Collection[str], chunks: int | None = None) -> bool:
        """Whether one more chunk may start on a host now; `hosts` are all hosts that can run streams at present. `chunks` is the
        number of those at work and waiting; None: many.
        """
        if self._at_work().get(host, 0) >= self.allowed.get(host, 0):
            return False
        limit = self.decision.bwlimit_bytes_per_s
        return limit is None or not self._grants or self._room(limit) >= _HALF * self._fair(limit, hosts, chunks)

    def begin(self, chunk_id: int, host: str, *, hosts: Collection[str], chunks: int | None = None) -> None:
        """Record that a chunk starts there: it gets its share of the limit, until `end`. Others give way."""
        limit = self.decision.bwlimit_bytes_per_s
        share = None if limit is None else max(min(self._fair(limit, hosts, chunks), self._room(limit)), 1)
        self._grants[chunk_id] = Grant(host=host, share_bytes_per_s=share)
        self._share_out()

    def follow(
        self, chunk_id: int, change: Callable[[int | None], None], moved: Callable[[], int] | None = None
    ) -> None:
        """From now on the share of this stream may change: see `Grant`."""
        if (grant := self._grants.get(chunk_id)) is not None:
            grant.change, grant.moved, grant.seen_s = change, moved, self.clock.monotonic_s()
            self._share_out()

    def end(self, chunk_id: int) -> None:
        """Record that the stream has ended, or that there was none. May be called again."""
        if self._grants.pop(chunk_id, None) is not None:
            self._share_out()

    def share_of(self, chunk_id: int) -> int | None:
        """Bytes per second for the stream of a started chunk; None: no limit."""
        return (
            self._grants[chunk_id].share_bytes_per_s if chunk_id in self._grants else self.decision.bwlimit_bytes_per_s
        )

    def on_change(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call this on every new decision. The returned function unsubscribes."""
        self._watchers.append(call)
        return lambda: self._watchers.remove(call)

    async def until_open(self) -> None:
        """Wait until chunks may start."""
        while self.decision.gate is not Gate.OPEN:
            await self.clock.sleep(LOOK_EVERY_S)

    def _at_work(self) -> dict[str, int]:
        return Counter(grant.host for grant in self._grants.values())

    def _fair(self, limit: int, hosts: Collection[str], chunks: int | None) -> int:
        streams = sum(count for host, count in self.allowed.items() if host in hosts)
        return max(limit // max(streams if chunks is None else min(streams, chunks), 1), 1)

    def _room(self, limit: int) -> int:
        """What a further stream gets at most, if those whose share can be changed give way."""
        needs = [grant.need_bytes_per_s for grant in self._grants.values() if grant.change is not None]
        return rules.shares(max(self._unfixed(limit), 0), [*needs, None])[-1]

    def _unfixed(self, limit: int) -> int:
        """The limit without the shares that stay. A stream that started without a limit counts with an equal share."""
        equal = limit // max(len(self._grants), 1)
        fixed = [grant.share_bytes_per_s for grant in self._grants.values() if grant.change is None]
        return limit - sum(equal if share is None else share for share in fixed)

    def _share_out(self, *, measured: bool = False) -> None:
        """Give the running streams their shares. `measured`: by what they have used since the last time, and also to those
        whose share stays the same: a message may get lost.
        """
        limit, now_s = self.decision.bwlimit_bytes_per_s, self.clock.monotonic_s()
        self._limited = self._limited or limit is not None
        grants = [grant for grant in self._grants.values() if grant.change is not None and self._limited]
        for grant in grants if measured else ():
            if grant.moved is not None and (interval_s := now_s - grant.seen_s) >= LOOK_EVERY_S / 2:
                moved = grant.moved()
                equal = (limit or 0) // len(self._grants)
                grant.need_bytes_per_s = rules.need(
                    moved - grant.seen_bytes, interval_s, share=grant.share_bytes_per_s, equal=equal
                )
                grant.seen_bytes, grant.seen_s = moved, now_s
        found: Sequence[int | None] = [None] * len(grants)
        if limit is not None:
            found = rules.shares(max(self._unfixed(limit), len(grants)), [grant.need_bytes_per_s for grant in grants])
        for grant, share in zip(grants, found, strict=True):
            if grant.change is not None and (measured or share != grant.share_bytes_per_s):
                grant.share_bytes_per_s = share
                grant.change(share)

    def _settings_now(self) -> rules.Settings:
        governing = self.governing
        now = opening(governing.windows, self.clock.now_s(), governing.local_time)
        settings = rules.settings_now(self.hosts, governing.limits, self._controls, now)
        return rules.settings_while_frozen(self.hosts, settings) if self.frozen else settings

    async def _read_loads(self) -> None:
        """Read the loads, even without a limit: `status` shows them to help people choose one."""
        now_s = self.clock.monotonic_s()
        if self._loads_s is not None and now_s - self._loads_s < LOADS_EVERY_S:
            return
        # Only hosts with running streams are read: the governor connects no host for this alone.
        hosts = sorted(self._at_work())
        if not hosts:
            return
        self._loads_s = now_s
        read = zip(hosts, await asyncio.gather(*map(self.governing.load_of, hosts)), strict=True)
        loads = {host: load for host, load in read if load is not None}
        at_work = self._at_work()
        for host, load in loads.items():
            self.state = rules.after_load(self.state, host, load, self._settings, at_work=at_work)
        self._decide()
        if self.run_id is not None:
            at_s = self.clock.now_s()
            kept = [HostLoad(host=host, at_s=at_s, load=load) for host, load in loads.items()]
            self.ledger.later(partial(self.ledger.governor.keep_loads, kept))

    def _decide(self) -> None:
        """Decide; record and report a changed decision, and wake the waiting workers."""
        now_s = self.clock.now_s()
        decided = rules.decide(self.state, self._settings, self._controls)
        outside = decided.gate is Gate.OUTSIDE_WINDOWS
        until_s = opens_at(self.governing.windows, now_s, self.governing.local_time) if outside else None
        self.decision = replace(decided, at_s=now_s, run_id=self.run_id or 0, until_s=until_s)
        before = self._kept
        if before is not None and before.same(self.decision):
            return
        self._kept = self.decision
        if self.run_id is not None:
            self.ledger.later(partial(self.ledger.governor.add, self.decision))
        self._report_change(before, self.decision)
        for call in tuple(self._watchers):
            call()

    def _report_change(self, before: GovernorRecord | None, now: GovernorRecord) -> None:
        if now.gate is not Gate.OPEN:
            if before is None or (before.gate, before.until_s) != (now.gate, now.until_s):
                until = "a window begins" if now.until_s is None else self.governing.in_words(now.until_s)
                until = "it is resumed" if now.gate is Gate.PAUSED else until
                severity = Severity.WARNING if now.gate is Gate.PAUSED else Severity.INFO
                self.report(severity, f"no chunk starts until {until}: {now.reason}")
        elif before is not None and before.gate is not Gate.OPEN:
            self.report(Severity.INFO, f"chunks start again: up to {now.streams} streams")
        elif before is not None and before.bound is not now.bound and _FELT & {before.bound, now.bound}:
            severity = Severity.WARNING if now.bound in _FELT else Severity.INFO
            self.report(severity, f"up to {now.streams} of {now.most} streams run now: {now.reason}")


@asynccontextmanager
async def governed(
    governing: Governing | None,
    lanes: "Iterable[HostLane]",
    *,
    run_id: int | None,
    clock: Clock,
    report: Callable[[Severity, str], None],
    frozen: bool = False,
) -> AsyncIterator[Governor | None]:
    """A governor that reacts to changes until the end of the block. Without `governing` there is none.

    Without `run_id` its decisions are not recorded, and all streams within the limits are used. `frozen`: a user waits for the
    end, so only the bandwidth is limited.
    """
    if governing is None:
        yield None
        return
    hosts = {lane.host: lane.jobs for lane in lanes}
    governor = Governor(governing=governing, hosts=hosts, run_id=run_id, clock=clock, report=report, frozen=frozen)
    task = asyncio.create_task(governor.watch())
    try:
        yield governor
    finally:
        await cancel_and_wait(task)
