"""Watching what Gluster does by itself: its counters are kept and shown until it has come to an end."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from migrator.decide.drain_facts import own_task
from migrator.decide.drain_progress import last_counts, stalled
from migrator.decide.drain_standing import standing
from migrator.domain.drain import DrainRecord, DrainSample
from migrator.domain.drain_seen import DrainSeen
from migrator.domain.drain_standing import DrainStanding
from migrator.domain.errors import MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.progress import DrainProgress
from migrator.domain.volume_tasks import TaskProgress, TaskStatus
from migrator.stages.bricks.drain_context import DrainCall, samples_of
from migrator.stages.bricks.drain_seeing import DrainLooker
from migrator.stages.bricks.drain_throttle import Throttle

_MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)
_PATIENCE_S = 3600.0
"""How long glusterd may be silent, or a host be missing, before that is told as the end of the watch."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """One watch over one drain. Gluster goes on whether somebody watches or not."""

    call: DrainCall
    looker: DrainLooker
    throttle: Throttle
    _doubted: str = ""
    _samples: list[DrainSample] = field(default_factory=list)

    async def until_moved(self, record: DrainRecord) -> bool:
        """Return when Gluster has come to an end on every host that tells (True), or when what is seen needs another
        decision: the task is gone or another one, it stands still, or nothing could be seen for an hour.
        """
        call, began_s = self.call, self.call.world.clock.monotonic_s()
        self._samples = list(call.world.ledger.drains.samples(record.id))
        heard_s = call.now_s()
        while True:
            progress = await self._look(record)
            now_s = call.now_s()
            if progress is not None and progress.task_id != record.notes.task_id:
                return False
            if progress is not None and progress.counters:
                heard_s = now_s
                self._doubted = ""
                self._keep(record, samples_of(progress, now_s), now_s)
                self._show(record, call.world.clock.monotonic_s() - began_s)
                if all(one.status not in _MOVING for one in progress.counters):
                    return True
                limit_s = call.request.stall_s
                if stalled(self._samples, task_id=progress.task_id, now_s=now_s, limit_s=limit_s):
                    return False
                await self._follow_throttle(record)
            elif now_s - heard_s > _PATIENCE_S or self._doubted == "gone":
                return False
            await call.world.clock.sleep(call.request.poll_s)

    async def _look(self, record: DrainRecord) -> TaskProgress | None:
        found = await self.looker.volume()
        if found is None:
            self._doubt(record, "glusterd does not answer: Gluster may go on all the same, and is asked again")
            return None
        task = own_task(record, DrainSeen(state=found[0], tasks=found[1]))
        if task is None:
            if found[0].peers_down == ():
                self._doubted = "gone"
            else:
                self._doubt(record, "the drain is not listed while hosts are missing; it is looked for again")
            return None
        if task.id != record.notes.task_id:
            return TaskProgress(task_id=task.id, counters=())
        progress = await self.looker.progress(task)
        if progress is None or not progress.counters:
            self._doubt(record, "no host tells its counters: glusterd is down where the bricks are")
        return progress

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
