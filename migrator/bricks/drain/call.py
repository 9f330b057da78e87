"""One call of `brick drain` or `brick stop`: its ports, and its steps with hooks."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from migrator.bricks.drain import model
from migrator.bricks.drain.audit import LeftListFile, ReadBlock
from migrator.bricks.drain.directory_times import DirectoryTimes
from migrator.bricks.drain.leftovers import VolumeNames
from migrator.bricks.records import BrickLedger
from migrator.bricks.shields import Shields
from migrator.bricks.strange_files import StrangeLook
from migrator.bricks.throttle import NO_THROTTLE, ThrottleRules
from migrator.catalog.queries import CatalogReads
from migrator.fs.ports import SourceFileSystem
from migrator.fs.probing import ProbePorts
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.model import Brick, BrickMarks, DiskFacts, PlaceSeen
from migrator.gluster.walks import HostBrickWalks
from migrator.hooks.calls import HookedStep
from migrator.hooks.model import HookStep
from migrator.operations.call import Call
from migrator.operations.run_files import CallPorts

LOG = logging.getLogger("migrator.drain")


class DrainPorts(CallPorts, frozen=True, kw_only=True):
    """The ports. None of those that read facts raises."""

    ledger: BrickLedger
    volume: GlusterVolumeCommands
    back_up: Callable[[str], None]
    """Copies the ledger under a name (blocking)."""
    throttle: ThrottleRules = NO_THROTTLE
    shields: Shields | None = None
    source: SourceFileSystem
    walks: HostBrickWalks
    read_block: ReadBlock
    contents: Callable[[], CatalogReads]
    """Called in a thread."""
    versions: Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]]
    """The GlusterFS version by host."""
    open_files: Callable[[Sequence[Brick], Sequence[bytes]], Awaitable[int | None]]
    """The number of files open on bricks below trees; None: unknown."""
    places: Callable[[Sequence[Brick], str], Awaitable[Mapping[str, PlaceSeen]]]
    """Inspects the paths of bricks, given the id of the volume."""
    disks: Callable[[Sequence[str]], Awaitable[Mapping[str, DiskFacts]]]
    probing: ProbePorts | None = None
    """Without it no probes run while Gluster moves files."""
    retain_s: float
    """How long sources are kept."""
    names: VolumeNames | None = None
    """Looks up leftovers through the mount."""
    marks: Callable[[Sequence[Brick], str], Awaitable[tuple[BrickMarks, ...] | None]]
    """Hard-linked files with the mark of an earlier drain, on bricks of the volume with this id; None: unknown."""
    strange: StrangeLook | None = None
    left_list: Callable[[str], LeftListFile] | None = None
    """Receives all findings of audits, in the directory of a run."""
    times: DirectoryTimes | None = None
    """Without it directories may have earlier mtimes after the commit."""


DrainCall: TypeAlias = Call[DrainPorts, model.DrainRequest]

HOOK_STEPS = (
    HookStep.DRAIN,
    HookStep.AUDIT,
    HookStep.COMMIT,
    HookStep.WIPE,
    HookStep.HAND_OVER,
    HookStep.STOP,
    HookStep.FAIL,
)


def hooked(record: model.DrainRecord, step: HookStep, brick: str | None = None) -> HookedStep:
    """Describe a step of a drain to its hooks, or that of a single brick."""
    shown, key = brick or record.shown_bricks, f"drain {record.id}"
    if step is not HookStep.DRAIN:
        key = f"{key}: {step.value}"
    return HookedStep(
        step=step,
        key=key if brick is None else f"{key} {brick}",
        subject=f"drain of {shown}",
        words=f"the {'stop of the drain' if step is HookStep.STOP else step.value} of {shown}",
    )


def bricks_of(record: model.DrainRecord, known: Sequence[Brick]) -> tuple[Brick, ...]:
    """Return the bricks of a drain, even if the volume no longer lists them."""
    by_name = {brick.name: brick for brick in known}
    parts = {name: name.partition(":/") for name in record.bricks}
    return tuple(
        by_name.get(name)
        or Brick(name=name, host=host, path=b"/" + path.encode("utf-8", "surrogateescape"), online=None)
        for name, (host, _, path) in parts.items()
    )
