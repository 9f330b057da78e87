"""Finding and calling the hooks of a site. Every call is in the ledger before its hook starts."""

import errno
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from migrator.core.clock import Clock
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError, Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.tasks import Blocking
from migrator.cutover.model import CutoverRecord
from migrator.hooks.model import (
    OUTPUT_LIMIT_BYTES,
    FileLook,
    Hook,
    HookCall,
    HookEvent,
    HookFacts,
    HookOutcome,
    HookResult,
    HooksFound,
    HookSite,
    HooksLook,
    HookStage,
    HookState,
    HookStep,
    StageLook,
)
from migrator.hooks.rules import (
    counterparts,
    document,
    end_of,
    environment,
    examine_hooks,
    in_order,
    judge,
    problem_words,
    shown,
)
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Processes
from migrator.ledger.model import HookStepRecord, SiteRecord

if TYPE_CHECKING:
    from migrator.ledger.calls import HookRecords


class Hooks(Protocol):
    """The hooks of a site."""

    @property
    def directory(self) -> bytes:
        """The directory of hooks."""

    @property
    def site_file(self) -> bytes:
        """The absolute path of site.toml, with which a hook can run this program."""

    @property
    def timeout_s(self) -> float:
        """The time limit of a call."""

    def find(self) -> HooksFound:
        """All hooks now, with their problems. Blocking; starts nothing."""

    async def call(self, call: HookCall) -> HookResult:
        """Call one hook, and end everything that it started at its time limit or on cancellation. A hook that cannot
        be started is a value.
        """

    async def end(self, token: str) -> bool:
        """End the rest of a call; False if a process of it cannot be ended (in D state)."""


# Reading `hooks_dir`


_SUFFIX = b".d"


def look_at_hooks(directory: bytes) -> HooksLook:
    """Read the directory and its stages, each path once. Symlinks are resolved in its parent path only; the directory
    itself and everything below are read without following any. Blocking.
    """
    parent, own = os.path.split(directory.rstrip(b"/"))
    real = os.path.realpath(parent)
    above: list[FileLook] = []
    place = b"/"
    try:
        for part in (b"", *(part for part in real.split(b"/") if part), own):
            place = os.path.join(place, part)
            above.append(_look(place))
    except (FileNotFoundError, NotADirectoryError):
        return HooksLook()
    except OSError as error:
        return HooksLook(above=tuple(above), unread=f"{error.strerror}")
    if above[-1].type is not EntryType.DIRECTORY:
        return HooksLook(above=tuple(above))
    try:
        names = sorted(os.listdir(place))
    except OSError as error:
        return HooksLook(above=tuple(above), unread=f"{error.strerror}")
    looks = (_stage(os.path.join(place, entry)) for entry in names if entry.endswith(_SUFFIX) and entry[:1] != b".")
    return HooksLook(above=tuple(above), stages=tuple(looks))


def _stage(path: bytes) -> StageLook:
    look = _look(path)
    if look.type is not EntryType.DIRECTORY:
        return StageLook(directory=look)
    try:
        entries = tuple(_look(os.path.join(path, entry)) for entry in sorted(os.listdir(path)))
    except OSError as error:
        return StageLook(directory=look, unread=error.strerror or str(error))
    return StageLook(directory=look, entries=entries)


def _look(path: bytes) -> FileLook:
    found = os.lstat(path)
    return FileLook(
        path=path, type=EntryType.of_mode(found.st_mode), uid=found.st_uid, mode=stat.S_IMODE(found.st_mode)
    )


# Running hooks


_GRACE_S = 5.0


class HookPrograms:
    """The `Hooks` port. Hooks are executed directly, without a shell."""

    def __init__(self, processes: Processes, *, directory: bytes, site_file: bytes, timeout_s: float) -> None:
        self._processes = processes
        self._directory = directory
        self._site_file = site_file
        self._timeout_s = timeout_s

    @property
    def directory(self) -> bytes:
        return self._directory

    @property
    def site_file(self) -> bytes:
        return self._site_file

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def find(self) -> HooksFound:
        try:
            look = look_at_hooks(self._directory)
        except FileNotFoundError:  # something was removed between two looks
            look = look_at_hooks(self._directory)
        return examine_hooks(look, os.geteuid())

    async def call(self, call: HookCall) -> HookResult:
        output = _End(OUTPUT_LIMIT_BYTES)
        command = Command(
            argv=(call.hook.path,),
            stdin=call.document,
            environment=dict(call.environment),
            timeout_s=self._timeout_s,
            token=call.token,
        )
        try:
            completed = await self._processes.stream(
                command, on_start=_ignore_pid, on_stdout=output.take, on_stderr=output.take
            )
        except ToolFailed as error:
            return HookResult(exit_code=None, output=output.content, problem=_why_not_started(error))
        return HookResult(exit_code=completed.exit_code, timed_out=completed.timed_out, output=output.content)

    async def end(self, token: str) -> bool:
        return await self._processes.end(token, grace_s=_GRACE_S)


class _End:
    """The last bytes of a program's output."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.content = b""

    def take(self, piece: bytes) -> None:
        self.content = (self.content + piece)[-self._limit_bytes :]


def _why_not_started(error: ToolFailed) -> str:
    cause = error.__cause__
    match cause.errno if isinstance(cause, OSError) else None:
        case errno.ENOENT:
            return "it could not be started: the program that its first line names is missing"
        case errno.ENOEXEC:
            return "it could not be started: its first line names no program (as #!/bin/sh does)"
        case errno.EACCES:
            return "it could not be started: permission denied (is its file system mounted noexec?)"
        case _:
            return error.message


def _ignore_pid(_: ProcessIdentity) -> None:
    """The token identifies the processes of a hook; the pid is not needed."""


# Ports of the calls, hooked steps, and their refusals


class HookSkipped(Refused):
    """A `pre` hook skips its step for now; the steps around it may continue."""


class HookRefused(Refused):
    """A `pre` hook refused its step by its exit code; by contract it changed nothing."""


class Say(Protocol):
    """Emits and records an event."""

    def __call__(self, kind: EventKind, severity: Severity, subject: str, message: str, /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HookWorld:
    """The ports for the calls of one run of one verb. `tokens` returns a new random token for each call."""

    hooks: Hooks
    records: "HookRecords"
    site: HookSite
    run_id: int
    clock: Clock
    blocking: Blocking
    tokens: Callable[[], str]
    say: Say


class LedgerOfHooks(Protocol):
    """The part of the ledger that calls need."""

    @property
    def hooks(self) -> "HookRecords": ...


class HookPorts(Protocol):
    """The part of a verb's ports that calls need."""

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
    """The ports for one run of a verb."""
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
    """A step with hooks. `key` is its name in the ledger, `subject` that of its events; `words` name it for people,
    as `the seed pass over batch 1`.
    """

    step: HookStep
    key: str
    subject: str
    words: str

    def stage(self, event: HookEvent) -> HookStage:
        return HookStage(step=self.step, event=event)


# Hooks on disk, and hooks in the ledger


_LOOK_TIMEOUT_S = 30.0


async def find_hooks(hooks: Hooks, blocking: Blocking) -> HooksFound:
    """The hooks now, with their problems. Raises Refused if they cannot be read."""
    try:
        return await blocking(hooks.find, timeout_s=_LOOK_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise Refused(
            f"the hooks in {show(hooks.directory)} cannot be looked at: {why}",
            cause="the file system that holds [site] hooks_dir does not answer, or has an error",
            hint="repair it, or name another directory in site.toml; then run the same command again",
        ) from error


def refuse_hooks(found: HooksFound) -> None:
    """Raise Refused with every problem, if there is any."""
    if found.problems:
        raise Refused(
            "; ".join(problem_words(found)),
            cause="a hook runs with the rights of this program, so no other user may be able to change it",
            hint="fix each as described (`migrator doctor` lists them too), then run the same command again",
        )


def called_hooks(records: "HookRecords", stage: HookStage, step: HookStepRecord) -> frozenset[bytes]:
    """The hooks of one side of a step that have ended."""
    return frozenset(
        call.name
        for call in records.of_step(step.id)
        if call.stage == stage.name and call.outcome not in (None, HookOutcome.INTERRUPTED)
    )


# Hooks around steps


_LOG = logging.getLogger("migrator.hooks")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A step in progress."""

    step: HookedStep
    record: HookStepRecord
    facts: HookFacts

    def ended(self, state: HookState) -> "_Open":
        return replace(self, facts=replace(self.facts, state=state))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHooks:
    """Calls the hooks of one run of one verb."""

    world: HookWorld

    async def begin(self, steps: Collection[HookStep]) -> None:
        """Check all hooks before anything is started, and end what killed runs left of calls around these steps.
        Calls around other steps are left to their own verbs.

        Raises Refused if there is a problem with a hook, or if a process of an earlier call cannot be ended.
        """
        found = await self._find()
        for problem in problem_words(found):
            self.world.say(EventKind.GUARD_REFUSED, Severity.ERROR, "hooks", problem)
        refuse_hooks(found)
        records = self.world.records
        for call in records.unfinished(steps):
            named = f"{call.stage}.d/{show(call.name)}"
            if not await self.world.hooks.end(call.token):
                raise Refused(
                    f"the hook {named} of an earlier run cannot be ended",
                    cause="it hangs in the kernel (D state), on a file system or device that does not answer",
                    hint=f"when its processes (MIGRATOR_TOKEN={call.token}) are gone, run the same command again",
                )
            records.finish(
                call.id,
                at_s=self.world.clock.now_s(),
                exit_code=None,
                outcome=HookOutcome.INTERRUPTED,
                output=call.output,
            )
            message = f"the hook {named} of an earlier run was interrupted"
            self.world.say(EventKind.HOOK_INTERRUPTED, Severity.INFO, "hooks", message)

    async def around(
        self,
        step: HookedStep,
        work: Callable[[], Awaitable[T]],
        *,
        facts: HookFacts,
        after: Callable[[HookFacts, T], Awaitable[HookFacts]],
        stoppable: bool = True,
    ) -> T:
        """Do the work between the `pre` and `post` hooks of its step. `facts` are those before it; `after` returns
        those after it, and must not raise.

        Raises HookSkipped if a `pre` hook skips the step, Refused if one refuses it or if there is a problem with a
        hook; nothing was done then. With `stoppable` False the work is done in any case, and problems are warnings.
        Errors of the work are raised after the `post` hooks, except a cancellation: the step then stays open.
        """
        found = await self._found(step, stoppable=stoppable)
        before = in_order(found.hooks, step.stage(HookEvent.PRE)) if found else ()
        if found and not before and not in_order(found.hooks, step.stage(HookEvent.POST)):
            return await work()
        opened = self._open(step, facts)
        await self._call_before(opened, before, stoppable=stoppable)
        try:
            result = await work()
        except MigratorError as error:
            await self._finish(opened.ended(HookState.REFUSED if isinstance(error, Refused) else HookState.FAILED))
            raise
        facts = await after(opened.facts, result)
        await self._finish(replace(opened, facts=replace(facts, started_at_s=opened.facts.started_at_s)))
        return result

    async def tell(self, step: HookedStep, facts: HookFacts) -> bool:
        """A step that consists of its hooks: the `pre` ones may stop it, the `post` ones do it. Returns whether all
        `post` hooks succeeded; those that a killed run has called are not called again. Raises as `around`.
        """
        found = await self._found(step, stoppable=True)
        before = in_order(found.hooks, step.stage(HookEvent.PRE)) if found else ()
        records = self.world.records
        left = records.open_since(step.step, step.key)
        called = called_hooks(records, step.stage(HookEvent.POST), left) if left else frozenset()
        opened = self._open(step, facts)
        await self._call_before(opened, before, stoppable=True)
        done = replace(opened, facts=replace(opened.facts, state=HookState.DONE))
        return await self._finish(done, but=called, otherwise=HookState.FAILED)

    async def before(self, step: HookedStep, facts: HookFacts) -> None:
        """The `pre` hooks of a step that outlasts this run: it stays open, and `catch_up` calls its `post` hooks when
        it is over. Raises as `around`.
        """
        found = await self._found(step, stoppable=True)
        hooks = in_order(found.hooks, step.stage(HookEvent.PRE)) if found else ()
        await self._call_before(self._open(step, facts), hooks, stoppable=True)

    async def catch_up(self, step: HookedStep, facts: HookFacts) -> None:
        """Call pending `post` hooks: the step was done, and the run was killed before all of them had ended. `facts`
        are those after the step. May be called again; without pending hooks it does nothing.
        """
        record = self.world.records.open_since(step.step, step.key)
        if record is not None:
            facts = replace(facts, started_at_s=record.opened_at_s, state=facts.state or HookState.DONE)
            called = called_hooks(self.world.records, step.stage(HookEvent.POST), record)
            await self._finish(_Open(step=step, record=record, facts=facts), but=called)

    async def once(self, step: HookedStep, facts: HookFacts) -> None:
        """The `post` hooks of an event, once for its key; those that a killed run has called are not called again.
        May be called again.
        """
        known = self.world.records.latest(step.step, step.key)
        if known is None:
            self._open(step, facts)
        await self.catch_up(step, facts)

    async def _find(self) -> HooksFound:
        return await find_hooks(self.world.hooks, self.world.blocking)

    async def _found(self, step: HookedStep, *, stoppable: bool) -> HooksFound | None:
        """The hooks now; None if there is a problem with them and the step must not be stopped."""
        try:
            found = await self._find()
            refuse_hooks(found)
        except Refused as error:
            if stoppable:
                raise
            self._warn(step, f"before {step.words} no hook was called: {error.message}")
            return None
        return found

    def _open(self, step: HookedStep, facts: HookFacts) -> _Open:
        record = self.world.records.open_step(
            run_id=self.world.run_id, step=step.step, subject=step.key, at_s=self.world.clock.now_s()
        )
        return _Open(step=step, record=record, facts=replace(facts, started_at_s=record.opened_at_s))

    async def _call_before(self, opened: _Open, hooks: Sequence[Hook], *, stoppable: bool) -> None:
        went_on: list[bytes] = []
        for hook in hooks:
            result, outcome = await self._call(opened, hook)
            if outcome is HookOutcome.GO_ON:
                went_on.append(hook.name)
            elif stoppable:
                await self._stop(opened, went_on, hook, result, skips=outcome is HookOutcome.SKIP)
            else:
                self._warn_of_end(opened.step, hook, HookEvent.PRE, result)

    async def _stop(
        self, opened: _Open, went_on: Collection[bytes], hook: Hook, result: HookResult, *, skips: bool
    ) -> None:
        """A `pre` hook stops its step. The `post` counterparts of those that had succeeded are called."""
        step, end = opened.step, end_of(result, self.world.hooks.timeout_s)
        message = f"{step.words} is {'skipped' if skips else 'not begun'}: the hook {shown(hook)} "
        message += f"said so ({end})" if skips else f"refused it ({end})"
        kind, severity = (
            (EventKind.HOOK_SKIPPED, Severity.WARNING) if skips else (EventKind.HOOK_REFUSED, Severity.ERROR)
        )
        self.world.say(kind, severity, step.subject, message)
        state = HookState.SKIPPED if skips else HookState.REFUSED
        await self._finish(opened.ended(state), only=frozenset(went_on))
        if skips:
            raise HookSkipped(message, hint="run the same command again later")
        by_itself = not result.timed_out and (result.exit_code is None or result.exit_code >= 0)
        raise (HookRefused if by_itself else Refused)(
            message,
            cause="a pre hook refuses its step by any exit code other than 0 and 62",
            hint="fix what it reports, or disable the hook by a name that begins with a dot; then run the same command again",
        )

    async def _finish(
        self,
        opened: _Open,
        *,
        only: Collection[bytes] | None = None,
        but: Collection[bytes] = (),
        otherwise: HookState | None = None,
    ) -> bool:
        """Call the `post` hooks of a step and close it; returns whether all succeeded. If there is a problem with the
        hooks, the step stays open, and the next run calls them. `otherwise` is the state to record if a hook failed.
        """
        step = opened.step
        opened = replace(opened, facts=replace(opened.facts, finished_at_s=self.world.clock.now_s()))
        try:
            found = await self._find()
            refuse_hooks(found)
        except Refused as error:
            self._warn(step, f"after {step.words} no hook was called: {error.message}")
            return False
        failed = False
        after = in_order(found.hooks, step.stage(HookEvent.POST))
        for hook in after if only is None else counterparts(after, only):
            if hook.name in but:
                continue
            result, outcome = await self._call(opened, hook)
            if outcome is HookOutcome.WARN:
                failed = True
                self._warn_of_end(step, hook, HookEvent.POST, result)
        state = otherwise if failed and otherwise is not None else opened.facts.state
        self.world.records.close_step(opened.record.id, state=state, at_s=self.world.clock.now_s())
        return not failed

    async def _call(self, opened: _Open, hook: Hook) -> tuple[HookResult, HookOutcome]:
        world, facts = self.world, opened.facts
        call = HookCall(
            hook=hook,
            document=document(hook.stage, world.site, facts),
            environment=environment(hook.stage, world.site, facts),
            token=world.tokens(),
        )
        world.say(EventKind.HOOK_CALLED, Severity.INFO, opened.step.subject, f"calling the hook {shown(hook)}")
        call_id = world.records.intend(step_id=opened.record.id, hook=hook, token=call.token, at_s=world.clock.now_s())
        exit_code, outcome, output = None, HookOutcome.INTERRUPTED, b""
        try:
            result = await world.hooks.call(call)
            exit_code, outcome, output = result.exit_code, judge(hook.stage.event, result), _kept(result)
        finally:
            world.records.finish(call_id, at_s=world.clock.now_s(), exit_code=exit_code, outcome=outcome, output=output)
        end = end_of(result, world.hooks.timeout_s)
        _LOG.info("hook ended: %s", end, extra={"hook": shown(hook), "output": show(result.output)})
        return result, outcome

    def _warn_of_end(self, step: HookedStep, hook: Hook, event: HookEvent, result: HookResult) -> None:
        where = "after" if event is HookEvent.POST else "before"
        on = "" if event is HookEvent.POST else "; nothing is stopped by it"
        end = end_of(result, self.world.hooks.timeout_s)
        self._warn(step, f"the hook {shown(hook)} {where} {step.words} failed ({end}){on}")

    def _warn(self, step: HookedStep, message: str) -> None:
        self.world.say(EventKind.HOOK_FAILED, Severity.WARNING, step.subject, message)


def _kept(result: HookResult) -> bytes:
    return result.output or result.problem.encode("utf-8", "backslashreplace")


# Steps of a cutover


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverPlace:
    """One step (freeze, switch, thaw or purge) of one cutover attempt; `back`: of its rollback."""

    step: HookStep
    record: CutoverRecord
    back: bool = False

    @property
    def hooked(self) -> HookedStep:
        """The step for its hooks. A repeated rollback has the steps of the one before."""
        user, number = self.record.tree.user, self.record.id
        return HookedStep(
            step=self.step,
            key=f"cutover {number}: {'rollback ' if self.back else ''}{self.step.value}",
            subject=f"{user}: {'rollback' if self.back else 'cutover'}",
            words=f"the {self.step.value} of {user}{' for the rollback' if self.back else ''}",
        )
