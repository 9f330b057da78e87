"""What calling hooks works with: its ports, the steps that hooks are called around, and how a `pre` hook stops one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.errors import Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import HookEvent, HookSite, HookStage, HookStep
from migrator.ports.blocking import Blocking
from migrator.ports.clock import Clock
from migrator.ports.hooks import HookRecords, Hooks
from migrator.ports.site import SiteRecord


class HookSkipped(Refused):
    """A `pre` hook wants its step left out for now: what is around it may go on."""


class HookRefused(Refused):
    """A `pre` hook has said itself that its step cannot be: by its contract it has left all as it was."""


class Say(Protocol):
    """Tells an event to whom it may concern, and keeps it."""

    def __call__(self, kind: EventKind, severity: Severity, subject: str, message: str, /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HookWorld:
    """What hooks are called with, by one run of one verb. `tokens` gives a random token for every call."""

    hooks: Hooks
    records: HookRecords
    site: HookSite
    run_id: int
    clock: Clock
    blocking: Blocking
    tokens: Callable[[], str]
    say: Say


class LedgerOfHooks(Protocol):
    """What of the ledger a call of hooks takes."""

    @property
    def hooks(self) -> HookRecords: ...


class HookPorts(Protocol):
    """The ports of a verb that it takes."""

    @property
    def ledger(self) -> LedgerOfHooks: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def blocking(self) -> Blocking: ...
    @property
    def tokens(self) -> Callable[[], str]: ...


def hook_world(
    ports: HookPorts, hooks: Hooks, site: SiteRecord, *, source_root: bytes, target_root: bytes, run_id: int, say: Say
) -> HookWorld:
    """What one run of a verb calls hooks with."""
    return HookWorld(
        hooks=hooks,
        records=ports.ledger.hooks,
        site=HookSite(
            site_id=site.site_id,
            name=site.name,
            file=hooks.site_file,
            source_root=source_root,
            target_root=target_root,
        ),
        run_id=run_id,
        clock=ports.clock,
        blocking=ports.blocking,
        tokens=ports.tokens,
        say=say,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedStep:
    """A step that hooks are called around. `key` is its name in the ledger, `subject` that of its events; `words` are for
    people, as `the seed pass over batch 1`.
    """

    step: HookStep
    key: str
    subject: str
    words: str

    def stage(self, event: HookEvent) -> HookStage:
        """One side of it."""
        return HookStage(step=self.step, event=event)
