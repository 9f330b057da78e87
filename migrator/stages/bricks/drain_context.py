"""What a drain works with: the ports, and the call that it is part of."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from migrator.domain.brick import Brick
from migrator.domain.drain import DrainRecord
from migrator.domain.drain_preflight import BrickMarks
from migrator.domain.drain_run import DrainRequest
from migrator.domain.drain_seen import PlaceSeen
from migrator.domain.hooks import HookFacts, HookStep
from migrator.domain.windows import Window
from migrator.ports.blocking import Blocking
from migrator.ports.bricks import BrickWalks
from migrator.ports.clock import Clock
from migrator.ports.filesystem import SourceFileSystem
from migrator.ports.hooks import Hooks
from migrator.ports.ledger import Ledger
from migrator.ports.locks import Locks
from migrator.ports.plans import PlanDocuments
from migrator.ports.progress import Progress
from migrator.ports.recovery import LeftoverBricks, VolumeRecovery
from migrator.ports.run_files import RunFiles
from migrator.ports.site import SiteRecord
from migrator.ports.volume import BrickContents, DrainCommands
from migrator.stages.bricks.audit import LeftList, ReadBlock
from migrator.stages.bricks.brick_call import BrickCall
from migrator.stages.bricks.strange import StrangeLook
from migrator.stages.hooking import HookedStep
from migrator.stages.probing import ProbeWorld

LOG = logging.getLogger("migrator.drain")

DRAIN_STEPS = (
    HookStep.DRAIN,
    HookStep.AUDIT,
    HookStep.COMMIT,
    HookStep.WIPE,
    HookStep.HAND_OVER,
    HookStep.STOP,
    HookStep.FAIL,
)
"""What this verb calls hooks around."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainWorld:
    """The ports. `versions` tells GlusterFS by host, `open_files` how many files are open on bricks below trees (None:
    that cannot be seen), `places` what lies where bricks are, given the volume's id. `contents` is asked in a thread.
    `plans` are asked what is purged when, `retain_s` is how long sources are kept. `back_up` keeps a copy of the ledger under a name (blocking). `throttle` None: the option is left alone; with `windows`
    it holds in these alone, and lower steps of it while probes of the source pass `max_latency_s` (None: no limit). `probing`
    None: nobody probes while Gluster moves files. `local_time` gives weekday (0 is Monday) and minute of the day on this machine. `leftovers` and
    `recovery` bring back what a drain left on its bricks. `marks` tells of hard-linked files with the mark of an earlier drain,
    on bricks of the volume of an id (None: that cannot be seen), `strange` which paths of a brick have no gfid still. `left_list` is
    what audits write all into that they find, in the directory of a run.
    """

    volume: DrainCommands
    source: SourceFileSystem
    target_root: bytes
    walks: BrickWalks
    read_block: ReadBlock
    contents: Callable[[], BrickContents]
    versions: Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]]
    open_files: Callable[[Sequence[Brick], Sequence[bytes]], Awaitable[int | None]]
    places: Callable[[Sequence[Brick], str], Awaitable[Mapping[str, PlaceSeen]]]
    back_up: Callable[[str], None]
    throttle: str | None
    windows: tuple[Window, ...]
    local_time: Callable[[float], tuple[int, int]]
    max_latency_s: float | None = None
    probing: ProbeWorld | None = None
    hooks: Hooks | None
    ledger: Ledger
    locks: Locks
    files: RunFiles
    progress: Progress
    clock: Clock
    blocking: Blocking
    tokens: Callable[[], str]
    plans: PlanDocuments | None = None
    retain_s: float = 0.0
    leftovers: LeftoverBricks | None = None
    recovery: VolumeRecovery | None = None
    marks: Callable[[Sequence[Brick], str], Awaitable[tuple[BrickMarks, ...] | None]] | None = None
    strange: StrangeLook | None = None
    left_list: Callable[[str], LeftList] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCall(BrickCall):
    """One call of the verb; `run_id` and `directory` are None where nothing is changed."""

    world: DrainWorld
    request: DrainRequest
    site: SiteRecord
    run_id: int | None
    directory: str | None = None

    @property
    def log(self) -> logging.Logger:
        """Where its events are logged."""
        return LOG

    @property
    def source_root(self) -> bytes:
        """The source, as hooks are told."""
        return self.world.source.root

    def left_list(self) -> LeftList | None:
        """What the next audit writes all into that it finds."""
        make = self.world.left_list
        return None if make is None or self.directory is None else make(self.directory)

    def facts(
        self,
        record: DrainRecord,
        *,
        brick: str | None = None,
        state: str = "",
        failed: HookStep | None = None,
        reason: str | None = None,
    ) -> HookFacts:
        """What a hook is told."""
        return HookFacts(
            run_id=self.run_id or 0,
            brick=brick or ",".join(record.bricks),
            files=record.notes.files,
            size_bytes=record.notes.size_bytes,
            state=state,
            failed=failed,
            reason=reason,
            started_at_s=self.now_s(),
        )


def hooked(record: DrainRecord, step: HookStep, brick: str | None = None) -> HookedStep:
    """A step of a drain, as hooks are called around it; of one of its bricks where there are several."""
    shown = brick or record.shown_bricks
    key = f"drain {record.id}" if step is HookStep.DRAIN else f"drain {record.id}: {step.value}"
    words = {
        HookStep.DRAIN: "the drain of",
        HookStep.AUDIT: "the audit of",
        HookStep.COMMIT: "the commit of",
        HookStep.WIPE: "wiping",
        HookStep.HAND_OVER: "handing over",
        HookStep.STOP: "taking back the drain of",
    }[step]
    return HookedStep(
        step=step, key=key if brick is None else f"{key} {brick}", subject=f"drain of {shown}", words=f"{words} {shown}"
    )


def hooked_failure(record: DrainRecord, step_id: int) -> HookedStep:
    """A failure of a drain, by the step of it that it is known by."""
    shown = record.shown_bricks
    return HookedStep(
        step=HookStep.FAIL,
        key=f"drain {record.id}: failure at step {step_id}",
        subject=f"drain of {shown}",
        words=f"the failure of the drain of {shown}",
    )


def bricks_of(record: DrainRecord, known: Sequence[Brick]) -> tuple[Brick, ...]:
    """The bricks of a drain, also where the volume does not list them any more."""
    by_name = {brick.name: brick for brick in known}
    return tuple(by_name.get(name) or _from_name(name) for name in record.bricks)


def _from_name(name: str) -> Brick:
    host, _, path = name.partition(":/")
    return Brick(name=name, host=host, path=b"/" + path.encode("utf-8", "surrogateescape"), online=None)
