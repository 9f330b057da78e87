"""One call of a verb that drives tracked operations: its ports and request, its events and hooks, its entry in the ledger."""

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from migrator.core.errors import ExitCode
from migrator.core.events import EventKind, Severity
from migrator.hooks.calls import StepHooks
from migrator.hooks.model import HookFacts, HookStep
from migrator.ledger.event_log import emit_event
from migrator.ledger.model import SiteRecord
from migrator.operations.run_files import CallPorts


class CallRequest(Protocol):
    """The request of a call."""

    @property
    def pid(self) -> int: ...


class CallResult(Protocol):
    """The summary of a call."""

    @property
    def exit_code(self) -> ExitCode: ...


Ports = TypeVar("Ports", bound=CallPorts)
Request = TypeVar("Request", bound=CallRequest)
Result = TypeVar("Result", bound=CallResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Ports, Request]):
    """One call. `run_id` and `directory` are None until it is recorded, and in a dry run, which writes nothing and calls no
    hook.
    """

    ports: Ports
    request: Request
    site: SiteRecord
    log: logging.Logger
    run_id: int | None = None
    directory: str | None = None

    def now_s(self) -> float:
        return self.ports.clock.now_s()

    def emit(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """Emit an event: on the screen, in the log and, except in a dry run, in the ledger."""
        emit_event(self.ports, kind, severity, subject, message, run_id=self.run_id, log=self.log)

    @property
    def hooks(self) -> StepHooks:
        """The caller of the hooks. A dry run must not call them."""
        if self.run_id is None:
            raise AssertionError("a dry run calls no hook")
        return StepHooks(ports=self.ports, hooks=self.ports.hooks, run_id=self.run_id, report=self.emit)

    def hook_facts(self, known: Mapping[str, Any], **more: Any) -> HookFacts:  # noqa: ANN401 - fields of the facts
        """The facts for a hook: those that are `known` of the operation, `more`, and those of the call."""
        return HookFacts(run_id=self.run_id or 0, started_at_s=self.now_s(), **{**known, **more})

    async def recorded(
        self,
        verb: str,
        work: Callable[["Call[Ports, Request]"], Awaitable[Result]],
        *,
        hook_steps: Collection[HookStep],
    ) -> Result:
        """Work with a run directory, an entry in the ledger and a heartbeat, after a check of the hooks of these steps."""
        ports = self.ports
        async with ports.files.recorded(
            ports.ledger, ports.clock, verb=verb, pid=self.request.pid, log=self.log
        ) as run:
            call = dataclasses.replace(self, run_id=run.id, directory=run.directory.path)
            await call.hooks.begin(hook_steps)
            result = await work(call)
            run.exit_code = result.exit_code
            return result
