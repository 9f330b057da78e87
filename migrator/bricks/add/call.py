"""One call of `brick add`: its ports, and its steps with hooks."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from migrator.bricks.add import model
from migrator.bricks.known_directories import DirectoryFiles, MountedDirectories
from migrator.bricks.records import BrickLedger
from migrator.bricks.shields import Shields
from migrator.bricks.strange_files import StrangeLook
from migrator.bricks.throttle import NO_THROTTLE, ThrottleRules
from migrator.catalog.model import CatalogRecord
from migrator.fs.probing import ProbePorts
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.model import DiskFacts, NewPlace, VolumeState
from migrator.gluster.reports import HostDirectories
from migrator.hooks.calls import HookedStep
from migrator.hooks.model import HookStep
from migrator.operations.call import Call
from migrator.operations.run_files import CallPorts

LOG = logging.getLogger("migrator.addition")


class DirectoryPorts(Struct, frozen=True, kw_only=True):
    """The means to restore owner and mode of directories that lost them. `mount` is the path at which users see the
    volume.
    """

    walks: HostDirectories
    memory: DirectoryFiles
    mender: MountedDirectories
    mount: bytes


Scan = Callable[[], Awaitable[CatalogRecord]]


class AdditionPorts(CallPorts, frozen=True, kw_only=True):
    """The ports. None of those that read facts raises."""

    ledger: BrickLedger
    volume: GlusterVolumeCommands
    back_up: Callable[[str], None]
    """Copies the ledger under a name (blocking)."""
    throttle: ThrottleRules = NO_THROTTLE
    shields: Shields | None = None
    places: Callable[[Sequence[str]], Awaitable[Mapping[str, NewPlace]]]
    """Inspects the paths of new bricks on their hosts."""
    disks: Callable[[Sequence[str]], Awaitable[Mapping[str, DiskFacts]]]
    """Inspects the rest of the disks of new bricks."""
    versions: Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]]
    """The GlusterFS version by host."""
    target_room: Callable[[], Awaitable[model.TargetRoom]]
    """The capacity of the target."""
    probing: ProbePorts | None = None
    """Without it no probes run while Gluster moves files."""
    directories: DirectoryPorts | None = None
    """Without it no directory is restored."""
    strange: StrangeLook | None = None
    scan: Scan | None = None
    """Reads all bricks into a new catalog; without it a rebalance is not audited."""
    blamed: Callable[[VolumeState, str], Awaitable[Mapping[str, int] | None]] | None = None
    """For the set of a brick, the number of pending heals that the bricks that are up hold against each member; None if one
    of them does not report.
    """


AdditionCall: TypeAlias = Call[AdditionPorts, model.AdditionRequest]

HOOK_STEPS = (HookStep.ADD, HookStep.ATTACH, HookStep.FAIL)


def attached(record: model.AdditionRecord) -> HookedStep:
    """Describe to the hooks the step in which they give bricks to the target."""
    return HookedStep(
        step=HookStep.ATTACH,
        key=f"addition {record.id}: attach",
        subject=record.subject(),
        words=f"giving {record.shown_bricks} to the target",
    )


def hooked(record: model.AdditionRecord) -> HookedStep:
    """Describe an addition to the hooks that are called around it."""
    return HookedStep(
        step=HookStep.ADD,
        key=f"addition {record.id}",
        subject=record.subject(),
        words=f"adding {record.shown_bricks} to the {record.side.value}",
    )
