"""What every verb that changes bricks does in its call: it says what happens, and calls the site's hooks."""

import logging
from abc import ABC, abstractmethod
from typing import Protocol

from migrator.domain.events import EventKind, Severity
from migrator.ports.hooks import Hooks
from migrator.ports.ledger import Ledger
from migrator.ports.site import SiteRecord
from migrator.stages.hooking import HookPorts, StepHooks, hook_world
from migrator.stages.saying import EventWorld, say


class CallWorld(EventWorld, HookPorts, Protocol):
    """The ports that it takes."""

    @property
    def target_root(self) -> bytes: ...
    @property
    def hooks(self) -> Hooks | None: ...
    @property
    def ledger(self) -> Ledger: ...


class BrickCall(ABC):
    """The base of a verb's call; `run_id` is None where nothing is changed: then nothing is written, and no hook is called."""

    __slots__ = ()

    world: CallWorld
    site: SiteRecord
    run_id: int | None

    @property
    @abstractmethod
    def log(self) -> logging.Logger:
        """Where its events are logged."""

    @property
    @abstractmethod
    def source_root(self) -> bytes:
        """The source, as hooks are told."""

    def now_s(self) -> float:
        """The time."""
        return self.world.clock.now_s()

    def say(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """An event: onto the screen, into the log, and, unless nothing is changed, into the ledger."""
        say(self.world, kind, severity, subject, message, run_id=self.run_id, log=self.log)

    def hooking(self) -> StepHooks | None:
        """Calls the hooks; None where there are none to be called."""
        world = self.world
        if world.hooks is None or self.run_id is None:
            return None
        return StepHooks(
            world=hook_world(
                world,
                world.hooks,
                self.site,
                source_root=self.source_root,
                target_root=world.target_root,
                run_id=self.run_id,
                say=self.say,
            )
        )
