"""Watching what Gluster does by itself: its counters are kept and shown until it has come to an end."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from migrator.decide.drain_facts import ended_badly, hosts_of, own_task
from migrator.decide.drain_progress import last_counts, samples_of, stalled
from migrator.decide.drain_silence import way_out, why_silent
from migrator.decide.drain_standing import standing
from migrator.decide.lost_movers import lost_after_s, lost_movers
from migrator.domain.drain import DrainRecord, DrainSample
from migrator.domain.drain_seen import DrainSeen
from migrator.domain.drain_standing import DrainStanding
from migrator.domain.errors import MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.progress import DrainProgress
from migrator.domain.volume_tasks import TaskStatus
from migrator.stages.bricks.drain_context import DrainCall
from migrator.stages.bricks.drain_seeing import DrainLooker
from migrator.stages.bricks.drain_throttle import Throttle

_MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)
_PATIENCE_S = 3600.0
"""How long glusterd may be silent, or a host be missing, before that is told as the end of the watch."""

_HELP_S = 20.0
"""So long a host that is up may tell nothing before people are told what helps: after a reboot glusterd needs some 10 s
to meet the others, and to begin what moves files (GlusterFS 10.3).
"""


@dataclass(slots=True, kw_only=True)
class Watch:
    """One watch over one drain. Gluster goes on whether somebody watches or not."""

    call: DrainCall
    looker: DrainLooker
    throttle: Throttle
    _doubted: str = ""
    _heard_s: float = 0.0
    _samples: list[DrainSample] = field(default_factory=list)

    async def until_moved(self, record: DrainRecord) -> bool:
        """Return when Gluster has come to an end on every host (True; also where it has failed on all that tell), or when what is
        seen needs another decision: the task is gone or another one, it stands still, a host that is up is silent for as
        long as a drain may stand still, or nothing could be seen for an hour.
        """
        call, began_s = self.call, self.call.world.clock.monotonic_s()
        self._samples = list(call.world.ledger.drains.samples(record.id))
        self._heard_s = call.now_s()
        while True:
            seen = await self._look(record)
            ended = self._unseen() if seen is None else self._ended(record, seen)
            if seen is not None and seen.progress is not None and seen.progress.counters:
                self._show(record, call.world.clock.monotonic_s() - began_s)
                if ended is None:
                    await self._follow_throttle(record)
            if ended is not None:
                return ended
            await call.world.clock.sleep(call.request.poll_s)

    def _unseen(self) -> bool | None:
        """What ends the watch where nothing could be seen; None where it goes on."""
        return False if self._doubted == "gone" or self._is_over() else None

    def _ended(self, record: DrainRecord, seen: DrainSeen) -> bool | None:
        """What ends the watch, by a look at a drain that is listed; None where it goes on."""
        task, progress, now_s = own_task(record, seen), seen.progress, self.call.now_s()
        if task is None or task.id != record.notes.task_id:
            return False
        counters = () if progress is None else progress.counters
        if progress is not None:
            self._keep(record, samples_of(progress, now_s), now_s)
        hosts, silent_s = self.looker.silence(record, seen)
        if len(counters) < len(hosts_of(record, seen.state)):
            return self._untold(record, seen, hosts, silent_s)
        self._heard_s, self._doubted = now_s, ""
        if all(one.status not in _MOVING for one in counters):
            return True
        request = self.call.request
        lost = lost_movers(
            self._samples,
            task_id=task.id,
            since_s=self.looker.not_whole_s,
            now_s=now_s,
            limit_s=lost_after_s(request.poll_s),
            names={},
        )
        still = stalled(self._samples, task_id=task.id, now_s=now_s, limit_s=request.stall_s, names={})
        return False if lost or still else None

    def _untold(self, record: DrainRecord, seen: DrainSeen, hosts: tuple[str, ...], silent_s: float) -> bool | None:
        """Not every host tells its counters: `hosts` although they are up, otherwise because something is missing."""
        if hosts:
            help_words = way_out(record, hosts) if silent_s > _HELP_S else "that is waited for"
            self._doubt(record, f"{why_silent(hosts)}; {help_words}")
            waits = silent_s <= self.call.request.stall_s
        else:
            self._doubt(record, "not every host tells its counters: glusterd or a brick is down")
            waits = not self._is_over()
        if ended_badly(seen):
            # Whoever is silent: what could not be moved stays so.
            return True
        return None if waits else False

    def _is_over(self) -> bool:
        return self.call.now_s() - self._heard_s > _PATIENCE_S

    async def _look(self, record: DrainRecord) -> DrainSeen | None:
        found = await self.looker.volume()
        if found is None:
            self._doubt(record, "glusterd does not answer: Gluster may go on all the same, and is asked again")
            return None
        seen = DrainSeen(state=found[0], tasks=found[1])
        task = own_task(record, seen)
        if task is None:
            if found[0].peers_down == ():
                self._doubted = "gone"
            else:
                self._doubt(record, "the drain is not listed while hosts are missing; it is looked for again")
            return None
        if task.id == record.notes.task_id:
            seen = replace(seen, progress=await self.looker.progress(task))
        return seen

    def _doubt(self, record: DrainRecord, words: str) -> None:
        """Told once, until it has cleared."""
        if self._doubted != words:
            self._doubted = words
            self.call.say(EventKind.DRAIN_DOUBTED, Severity.WARNING, f"drain of {record.shown_bricks}", words)

    def _keep(self, record: DrainRecord, samples: Sequence[DrainSample], now_s: float) -> None:
        self.call.world.ledger.drains.add_samples(record.id, samples)
        # The last counters of earlier tasks add up with those of this one; of this one the past counts as far as the limits.
        kept_s = now_s - 2.0 * max(self.call.request.stall_s, 3600.0)
        counted = {id(one) for one in last_counts(self._samples)}
        old = [one for one in self._samples if one.at_s >= kept_s or id(one) in counted]
        self._samples = [*old, *samples]

    async def _follow_throttle(self, record: DrainRecord) -> None:
        try:
            await self.throttle.follow(record)
        except MigratorError as error:
            self._doubt(record, f"the throttle could not be changed: {error.message}")

    def _show(self, record: DrainRecord, elapsed_s: float) -> None:
        found = standing(record, self._samples)
        self.call.world.progress.show(progress_of(found, "draining", elapsed_s))


def progress_of(found: DrainStanding, step: str, elapsed_s: float) -> DrainProgress:
    """A standing as it is shown while somebody waits."""
    return DrainProgress(
        bricks=found.bricks,
        step=step,
        elapsed_s=elapsed_s,
        files=found.moved_files,
        size_bytes=found.moved_bytes,
        total_files=found.files,
        total_bytes=found.size_bytes,
        failures=found.failures,
        skipped=found.skipped,
        files_per_s=found.files_per_s,
        bytes_per_s=found.bytes_per_s,
        left_s=found.left_s,
    )
