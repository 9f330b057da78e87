"""What an addition works with: the ports, and the call that it is part of."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from migrator.decide.attempt_failures import Ended, addition_failure
from migrator.domain.addition import AdditionRecord, TargetRoom
from migrator.domain.addition_run import AdditionRequest
from migrator.domain.addition_seen import NewPlace
from migrator.domain.brick import VolumeState
from migrator.domain.hooks import HookFacts, HookState, HookStep
from migrator.domain.scan import CatalogRecord
from migrator.ports.additions import AdditionCommands
from migrator.ports.blocking import Blocking
from migrator.ports.clock import Clock
from migrator.ports.directories import DirectoryMemory, DirectoryMender, DirectoryWalks
from migrator.ports.hooks import Hooks
from migrator.ports.ledger import Ledger
from migrator.ports.locks import Locks
from migrator.ports.progress import Progress
from migrator.ports.run_files import RunFiles
from migrator.ports.site import SiteRecord
from migrator.stages.bricks.brick_call import BrickCall
from migrator.stages.bricks.strange import StrangeLook
from migrator.stages.bricks.throttling import ThrottleRules
from migrator.stages.hooking import HookedStep
from migrator.stages.probing import ProbeWorld

LOG = logging.getLogger("migrator.addition")

ADD_STEPS = (HookStep.ADD, HookStep.FAIL)
"""What this verb calls hooks around."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryWorld:
    """What directories are given back by, where they lose owner and mode. `mount` is where people see the volume."""

    walks: DirectoryWalks
    memory: DirectoryMemory
    mender: DirectoryMender
    mount: bytes


Scan = Callable[[], Awaitable[CatalogRecord]]
Blamed = Callable[[VolumeState, str], Awaitable[Mapping[str, int] | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionWorld:
    """The ports. `places` looks at what lies where bricks are to be, on their hosts; `versions` tells
    GlusterFS by host, `target_room` asks how large the target is. None of them raises. `back_up` keeps a copy of the ledger under a name (blocking).
    `throttle` None: Gluster moves files as hard as it is set to; `probing` None: nobody probes meanwhile. `directories` None:
    nobody gives directories back what they lose. `strange` tells which paths of a brick have no gfid still. `scan` reads all bricks
    into a new catalog; None: nobody audits a rebalance. `blamed` tells of the set of a brick how many entries the bricks that are up
    hold against each, so that they have to be healed there; None where one of them does not tell.
    """

    volume: AdditionCommands
    source_root: bytes
    target_root: bytes
    places: Callable[[Sequence[str]], Awaitable[Mapping[str, NewPlace]]]
    versions: Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]]
    target_room: Callable[[], Awaitable[TargetRoom]]
    back_up: Callable[[str], None]
    hooks: Hooks | None
    ledger: Ledger
    locks: Locks
    files: RunFiles
    progress: Progress
    clock: Clock
    blocking: Blocking
    tokens: Callable[[], str]
    throttle: ThrottleRules | None = None
    probing: ProbeWorld | None = None
    directories: DirectoryWorld | None = None
    strange: StrangeLook | None = None
    scan: Scan | None = None
    blamed: Blamed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionCall(BrickCall):
    """One call of the verb; `run_id` is None where nothing is changed."""

    world: AdditionWorld
    request: AdditionRequest
    site: SiteRecord
    run_id: int | None

    @property
    def log(self) -> logging.Logger:
        """Where its events are logged."""
        return LOG

    @property
    def source_root(self) -> bytes:
        """The source, as hooks are told."""
        return self.world.source_root

    def facts(
        self,
        record: AdditionRecord,
        *,
        state: str = "",
        failed: HookStep | None = None,
        reason: str | None = None,
    ) -> HookFacts:
        """What a hook is told."""
        return HookFacts(
            run_id=self.run_id or 0,
            brick=",".join(record.bricks),
            side=record.side.value,
            size_bytes=record.notes.size_bytes,
            state=state,
            failed=failed,
            reason=reason,
            started_at_s=self.now_s(),
        )

    async def tell_failure(self, record: AdditionRecord, ended: Ended | None) -> None:
        """The hooks that people are told by that they have to look, once for each failure; `ended` None: the call begins, or
        ended by an exception. May be called again.
        """
        hooking = self.hooking()
        if hooking is None:
            return
        steps, back = self.world.ledger.additions.steps(record.id), self.request.wish.take_back
        failure = addition_failure(record, steps, ended, back=back)
        if failure is None:
            return
        facts = self.facts(record, state=HookState.FAILED, failed=HookStep.ADD, reason=failure.reason)
        tell = hooking.once if failure.certain else hooking.catch_up
        await tell(_hooked_failure(record, failure.step_id), facts)


def hooked(record: AdditionRecord) -> HookedStep:
    """An addition, as hooks are called around it."""
    return HookedStep(
        step=HookStep.ADD,
        key=f"addition {record.id}",
        subject=subject_of(record),
        words=f"adding {record.shown_bricks} to the {record.side.value}",
    )


def _hooked_failure(record: AdditionRecord, step_id: int) -> HookedStep:
    """A failure of an addition, by the step of it that it is known by."""
    return HookedStep(
        step=HookStep.FAIL,
        key=f"addition {record.id}: failure at step {step_id}",
        subject=subject_of(record),
        words=f"the failure of the addition of {record.shown_bricks}",
    )


def subject_of(record: AdditionRecord) -> str:
    """That of its events."""
    return f"addition of {record.shown_bricks}"
