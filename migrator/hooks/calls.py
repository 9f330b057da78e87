"""Finding and calling the hooks of a site. Every call is in the ledger before its hook starts."""

import errno
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.clock import Clock
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError, Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.tasks import Blocking
from migrator.fs.beneath import why_not_trusted
from migrator.hooks import model, rules
from migrator.hooks.model import HookStepRecord
from migrator.hosts.ports import Command, Processes
from migrator.ledger.locks import Locks, of_call

if TYPE_CHECKING:
    from migrator.hooks.records import HookLedger, HookRecords


# Reading `hooks_dir`


_SUFFIX = b".d"


def find_below(directory: bytes) -> model.HooksFound:
    """The hooks in the stages below a directory, and the problems that forbid to call any. Only root and this user may own or change what
    is on the way to a hook; the directory and everything below it are no symlinks. Blocking.
    """
    hooks: list[model.Hook] = []
    problems: list[model.HookProblem] = []
    stages = {stage.directory: stage for stage in model.all_stages()}
    parent, own = os.path.split(directory.rstrip(b"/"))
    directory = os.path.join(os.path.realpath(parent), own)
    if not os.path.lexists(directory):
        return model.HooksFound()

    def is_a(wanted: EntryType, path: bytes) -> bool:
        found = EntryType.of_mode(os.lstat(path).st_mode)
        if found is not wanted:
            problems.append(rules.wrong_type(path, found, wanted))
        elif untrusted := why_not_trusted(path):
            problems.append(model.HookProblem(*untrusted))
        return found is wanted

    try:
        is_directory = EntryType.of_mode(os.lstat(directory).st_mode) is EntryType.DIRECTORY
        listed = sorted(os.listdir(directory)) if is_directory else []
        names = [name for name in listed if name.endswith(_SUFFIX) and not name.startswith(b".")]
        if names or not is_directory:
            is_a(EntryType.DIRECTORY, directory)
        for name in names:
            path = os.path.join(directory, name)
            if name not in stages:
                problems.append(rules.unknown_stage(path))
            elif is_a(EntryType.DIRECTORY, path):
                for entry in sorted(os.listdir(path)):
                    file = os.path.join(path, entry)
                    if rules.is_left_alone(entry):
                        continue
                    hooks.append(model.Hook(stage=stages[name], name=entry, path=file))
                    if is_a(EntryType.FILE, file):
                        problems += rules.file_problems(file, os.lstat(file).st_mode)
    except FileNotFoundError:
        raise
    except OSError as error:
        path = error.filename or directory
        problems.append(model.HookProblem(path, f"cannot be read: {error.strerror or error}", "fix what prevents it"))
    # Several hooks share parent directories, so the same problem can occur more than once.
    return model.HooksFound(hooks=tuple(hooks), problems=tuple(dict.fromkeys(problems)))


# Running hooks


_GRACE_S = 5.0


@dataclass(slots=True, kw_only=True)
class Hooks:
    """The hooks of a site. `site_file` is the absolute path of site.toml, with which a hook can run this program; trees
    lie below the two roots. `timeout_s` limits each call. Hooks are executed directly, without a shell.
    """

    processes: Processes
    directory: bytes
    site_file: bytes
    source_root: bytes
    target_root: bytes
    timeout_s: float

    def find(self) -> model.HooksFound:
        """All hooks now, with their problems. Blocking; starts nothing."""
        try:
            return find_below(self.directory)
        except FileNotFoundError:  # something was removed between two looks
            return find_below(self.directory)

    async def call(self, call: model.HookCall) -> model.HookResult:
        """Call one hook, and end everything that it started at its time limit or on cancellation. A hook that cannot
        be started is a value.
        """
        output = bytearray()

        def take(piece: bytes) -> None:
            output.extend(piece)
            del output[: -model.OUTPUT_LIMIT_BYTES]

        command = Command(
            argv=(call.hook.path,),
            stdin=call.document,
            environment=dict(call.environment),
            timeout_s=self.timeout_s,
            token=call.token,
        )
        try:
            # The token identifies the processes of a hook; the pid is not needed.
            completed = await self.processes.stream(command, on_start=lambda _: None, on_stdout=take, on_stderr=take)
        except ToolFailed as error:
            number = getattr(error.__cause__, "errno", None)
            problem = f"it could not be started: {_NOT_STARTED[number]}" if number in _NOT_STARTED else error.message
            return model.HookResult(exit_code=None, output=bytes(output), problem=problem)
        return model.HookResult(exit_code=completed.exit_code, timed_out=completed.timed_out, output=bytes(output))

    async def end(self, token: str) -> bool:
        """End the rest of a call; False if a process of it cannot be ended (in D state)."""
        return await self.processes.end(token, grace_s=_GRACE_S)


_NOT_STARTED = {
    errno.ENOENT: "the program that its first line names is missing",
    errno.ENOEXEC: "its first line names no program (as #!/bin/sh does)",
    errno.EACCES: "permission denied (is its file system mounted noexec?)",
}


# Ports of the calls, hooked steps, and their refusals


class HookSkipped(Refused):
    """A `pre` hook skips its step for now; the steps around it may continue."""


class HookRefused(Refused):
    """A `pre` hook refused its step by its exit code; by contract it changed nothing."""


class ReportEvent(Protocol):
    """Emits and records an event."""

    def __call__(self, kind: EventKind, severity: Severity, subject: str, message: str, /) -> None: ...


class HookPorts(Protocol):
    """The part of a verb's ports that calls need. `tokens` returns a new random token for each call."""

    @property
    def ledger(self) -> "HookLedger": ...
    @property
    def locks(self) -> Locks: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def blocking(self) -> Blocking: ...
    @property
    def tokens(self) -> Callable[[], str]: ...


class HookedStep(Struct, frozen=True, kw_only=True):
    """A step with hooks. `key` is its name in the ledger, `subject` that of its events; `words` name it for people,
    as `the seed pass over batch 1`.
    """

    step: model.HookStep
    key: str
    subject: str
    words: str

    def stage(self, event: model.HookEvent) -> model.HookStage:
        return model.HookStage(step=self.step, event=event)


# Hooks on disk, and hooks in the ledger


_LOOK_TIMEOUT_S = 30.0


async def find_hooks(hooks: Hooks, blocking: Blocking) -> model.HooksFound:
    """The hooks now, with their problems. Raises Refused if they cannot be read."""
    try:
        return await blocking(hooks.find, timeout_s=_LOOK_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise Refused(
            f"the hooks in {show(hooks.directory)} cannot be read: {why}",
            cause="the file system that holds [site] hooks_dir does not answer, or has an error",
            hint="repair it, or name another directory in site.toml; then run the same command again",
        ) from error


def refuse_hooks(found: model.HooksFound) -> None:
    """Raise Refused with every problem, if there is any."""
    if found.problems:
        raise Refused(
            "; ".join(rules.describe_problems(found)),
            cause="a hook runs with the rights of this program: its name, mode, owner and directory must be as docs/hooks.md describes",
            hint="fix each as described (`migrator doctor` lists them too), then run the same command again",
        )


def called_hooks(records: "HookRecords", stage: model.HookStage, step: HookStepRecord) -> frozenset[bytes]:
    """The hooks of one side of a step that have ended."""
    return frozenset(
        call.name
        for call in records.of_step(step.id)
        if call.stage == stage.name and call.outcome not in (None, model.HookOutcome.INTERRUPTED)
    )


# Hooks around steps


_LOG = logging.getLogger("migrator.hooks")

T = TypeVar("T")

Check = Callable[[], Awaitable[None]]


class _Open(Struct, frozen=True, kw_only=True):
    """A step in progress."""

    step: HookedStep
    record: HookStepRecord
    facts: model.HookFacts

    def ended(self, state: model.HookState) -> "_Open":
        return replace(self, facts=replace(self.facts, state=state))


class StepHooks(Struct, frozen=True, kw_only=True):
    """Calls the hooks of one run of one verb, with that verb's ports."""

    ports: HookPorts
    hooks: Hooks
    run_id: int
    report: ReportEvent

    @property
    def records(self) -> "HookRecords":
        """The calls in the ledger."""
        return self.ports.ledger.hooks

    async def until_worked(self, step: HookedStep, check: Check) -> None:
        """Make a check that the work of the `pre` hooks themselves would fail: only until one of them, in any run, may have
        worked. By contract, one that skipped or refused the step has not.
        """
        if not self.records.may_have_worked(step.step, step.key, step.stage(model.HookEvent.PRE)):
            await check()

    async def begin(self, steps: Collection[model.HookStep]) -> None:
        """Check all hooks before anything is started, and end the orphaned calls of killed runs around these steps.
        Calls around other steps are left to their own verbs.

        Raises Refused if there is a problem with a hook, or if a process of an earlier call cannot be ended.
        """
        found = await find_hooks(self.hooks, self.ports.blocking)
        for problem in rules.describe_problems(found):
            self.report(EventKind.GUARD_REFUSED, Severity.ERROR, "hooks", problem)
        refuse_hooks(found)
        unfinished = self.records.unfinished(steps)
        alive = {name for holder in self.ports.locks.holders() for name in holder.names}
        for call in (call for directory, call in unfinished if of_call(directory) not in alive):
            named = f"{call.stage}.d/{show(call.name)}"
            if not await self.hooks.end(call.token):
                raise Refused(
                    f"the hook {named} of an earlier run cannot be ended",
                    cause="it hangs in the kernel (D state), on a file system or device that does not answer",
                    hint=f"when its processes (MIGRATOR_TOKEN={call.token}) are gone, run the same command again",
                )
            self._record(call.id, None, model.HookOutcome.INTERRUPTED, call.output)
            message = f"the hook {named} of an earlier run was interrupted"
            self.report(EventKind.HOOK_INTERRUPTED, Severity.INFO, "hooks", message)

    async def around(
        self,
        step: HookedStep,
        work: Callable[[], Awaitable[T]],
        *,
        facts: model.HookFacts,
        after: Callable[[model.HookFacts, T], model.HookFacts],
        stoppable: bool = True,
        check: Check | None = None,
    ) -> T:
        """Do the work between the `pre` and `post` hooks of its step. `facts` are those before it; `after` returns
        those after it, and must not raise. `check` is made right before each `pre` hook: an earlier one may have waited
        for days. It raises Refused if the hook must not be called any more, which then refuses the step.

        Raises HookSkipped if a `pre` hook skips the step, Refused if one refuses it or if there is a problem with a
        hook; nothing was done then. With `stoppable` False the work is done in any case, and problems are warnings.
        Errors of the work are raised after the `post` hooks, except a cancellation: the step then stays open.
        """
        hooks = await self._hooks_of(step, stoppable=stoppable)
        if hooks == ((), ()):
            return await work()
        opened = self._open(step, facts)
        await self._call_before(opened, hooks[0] if hooks else (), stoppable=stoppable, check=check)
        try:
            result = await work()
        except MigratorError as error:
            await self._finish(
                opened.ended(model.HookState.REFUSED if isinstance(error, Refused) else model.HookState.FAILED)
            )
            raise
        facts = after(opened.facts, result)
        await self._finish(replace(opened, facts=replace(facts, started_at_s=opened.facts.started_at_s)))
        return result

    async def call_all(self, step: HookedStep, facts: model.HookFacts) -> bool:
        """A step that consists of its hooks: the `pre` ones may stop it, the `post` ones do it. Returns whether all
        `post` hooks succeeded; those that a killed run has called are not called again. Raises as `around`.
        """
        left = self.records.open_since(step.step, step.key)
        called = called_hooks(self.records, step.stage(model.HookEvent.POST), left) if left else frozenset()
        opened = await self.before(step, facts)
        return await self._finish(opened.ended(model.HookState.DONE), but=called, otherwise=model.HookState.FAILED)

    async def before(self, step: HookedStep, facts: model.HookFacts, *, check: Check | None = None) -> _Open:
        """The `pre` hooks of a step that outlasts this run: it stays open, and `catch_up` calls its `post` hooks when
        it is over. `check` is as for `around`. Raises as `around`.
        """
        hooks = await self._hooks_of(step, stoppable=True)
        opened = self._open(step, facts)
        await self._call_before(opened, hooks[0] if hooks else (), stoppable=True, check=check)
        return opened

    async def catch_up(self, step: HookedStep, facts: model.HookFacts) -> None:
        """Call pending `post` hooks: the step was done, and the run was killed before all of them had ended. `facts`
        are those after the step. May be called again; without pending hooks it does nothing.
        """
        record = self.records.open_since(step.step, step.key)
        if record is not None:
            facts = replace(facts, started_at_s=record.opened_at_s, state=facts.state or model.HookState.DONE)
            called = called_hooks(self.records, step.stage(model.HookEvent.POST), record)
            await self._finish(_Open(step=step, record=record, facts=facts), but=called)

    async def once(self, step: HookedStep, facts: model.HookFacts) -> None:
        """The `post` hooks of an event, once for its key; those that a killed run has called are not called again.
        May be called again.
        """
        if self.records.latest(step.step, step.key) is None:
            self._open(step, facts)
        await self.catch_up(step, facts)

    async def _hooks_of(
        self, step: HookedStep, *, stoppable: bool
    ) -> tuple[tuple[model.Hook, ...], tuple[model.Hook, ...]] | None:
        """The `pre` and `post` hooks of a step now; None if there is a problem with any hook and the step must continue."""
        try:
            found = await find_hooks(self.hooks, self.ports.blocking)
            refuse_hooks(found)
        except Refused as error:
            if stoppable:
                raise
            self._warn(step, f"no hook was called around {step.words}: {error.message}")
            return None
        return rules.in_order(found.hooks, step.stage(model.HookEvent.PRE)), rules.in_order(
            found.hooks, step.stage(model.HookEvent.POST)
        )

    def _open(self, step: HookedStep, facts: model.HookFacts) -> _Open:
        record = self.records.open_step(
            run_id=self.run_id, step=step.step, subject=step.key, at_s=self.ports.clock.now_s()
        )
        return _Open(step=step, record=record, facts=replace(facts, started_at_s=record.opened_at_s))

    async def _call_before(
        self, opened: _Open, hooks: Sequence[model.Hook], *, stoppable: bool, check: Check | None = None
    ) -> None:
        went_on: list[bytes] = []
        for hook in hooks:
            if check is not None:
                try:
                    await check()
                except Refused:
                    await self._finish(opened.ended(model.HookState.REFUSED), only=frozenset(went_on))
                    raise
            result, outcome = await self._call(opened, hook)
            if outcome is model.HookOutcome.GO_ON:
                went_on.append(hook.name)
            elif stoppable:
                await self._stop(opened, went_on, hook, result, skips=outcome is model.HookOutcome.SKIP)
            else:
                self._warn_of_end(opened.step, hook, result)

    async def _stop(
        self, opened: _Open, went_on: Collection[bytes], hook: model.Hook, result: model.HookResult, *, skips: bool
    ) -> None:
        """A `pre` hook stops its step. The `post` counterparts of those that had succeeded are called."""
        step, end = opened.step, rules.end_of(result, self.hooks.timeout_s)
        message = f"{step.words} is {'skipped' if skips else 'not begun'}: the hook {rules.shown(hook)} "
        message += f"said so ({end})" if skips else f"refused it ({end})"
        if skips:
            self.report(EventKind.HOOK_SKIPPED, Severity.WARNING, step.subject, message)
        else:
            self.report(EventKind.HOOK_REFUSED, Severity.ERROR, step.subject, message)
        await self._finish(
            opened.ended(model.HookState.SKIPPED if skips else model.HookState.REFUSED), only=frozenset(went_on)
        )
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
        otherwise: model.HookState | None = None,
    ) -> bool:
        """Call the `post` hooks of a step and close it; returns whether all succeeded. If there is a problem with the
        hooks, the step stays open, and the next run calls them. `otherwise` is the state to record if a hook failed. `only`: the hooks of these names, so that each undoes its `pre` counterpart.
        """
        step = opened.step
        opened = replace(opened, facts=replace(opened.facts, finished_at_s=self.ports.clock.now_s()))
        hooks = await self._hooks_of(step, stoppable=False)
        if hooks is None:
            return False
        failed, after = False, hooks[1]
        for hook in after:
            if hook.name in but or (only is not None and hook.name not in only):
                continue
            result, outcome = await self._call(opened, hook)
            if outcome is model.HookOutcome.WARN:
                failed = True
                self._warn_of_end(step, hook, result)
        state = otherwise if failed and otherwise is not None else opened.facts.state
        self.records.close_step(opened.record.id, state=state, at_s=self.ports.clock.now_s())
        return not failed

    async def _call(self, opened: _Open, hook: model.Hook) -> tuple[model.HookResult, model.HookOutcome]:
        known = self.ports.ledger.site.required()
        site = model.HookSite(
            site_id=known.site_id,
            name=known.name,
            file=self.hooks.site_file,
            source_root=self.hooks.source_root,
            target_root=self.hooks.target_root,
        )
        call = model.HookCall(
            hook=hook,
            document=rules.document(hook.stage, site, opened.facts),
            environment=rules.environment(hook.stage, site, opened.facts),
            token=self.ports.tokens(),
        )
        self.report(EventKind.HOOK_CALLED, Severity.INFO, opened.step.subject, f"calling the hook {rules.shown(hook)}")
        now_s = self.ports.clock.now_s()
        call_id = self.records.intend(step_id=opened.record.id, hook=hook, token=call.token, at_s=now_s)
        exit_code, outcome, output = None, model.HookOutcome.INTERRUPTED, b""
        try:
            result = await self.hooks.call(call)
            exit_code, outcome = result.exit_code, rules.judge(hook.stage.event, result)
            output = result.output or result.problem.encode("utf-8", "backslashreplace")
        finally:
            self._record(call_id, exit_code, outcome, output)
        end = rules.end_of(result, self.hooks.timeout_s)
        _LOG.info("hook ended: %s", end, extra={"hook": rules.shown(hook), "output": show(result.output)})
        return result, outcome

    def _record(self, call_id: int, exit_code: int | None, outcome: model.HookOutcome, output: bytes) -> None:
        now_s = self.ports.clock.now_s()
        self.records.finish(call_id, at_s=now_s, exit_code=exit_code, outcome=outcome, output=output)

    def _warn_of_end(self, step: HookedStep, hook: model.Hook, result: model.HookResult) -> None:
        post = hook.stage.event is model.HookEvent.POST
        end = rules.end_of(result, self.hooks.timeout_s)
        words = f"the hook {rules.shown(hook)} {'after' if post else 'before'} {step.words} failed ({end})"
        self._warn(step, words if post else f"{words}; nothing is stopped by it")

    def _warn(self, step: HookedStep, message: str) -> None:
        self.report(EventKind.HOOK_FAILED, Severity.WARNING, step.subject, message)


# Steps of a cutover
