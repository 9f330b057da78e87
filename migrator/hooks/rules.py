"""Which hooks are called in which order, their input, and the meaning of their exit codes. Pure."""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from datetime import UTC, datetime

from migrator.core.entry import EntryType
from migrator.core.events import Finding, failure, ok
from migrator.core.paths import name, percent_escape, show
from migrator.core.units import format_duration, several
from migrator.hooks.model import (
    CONTRACT_VERSION,
    SKIP_EXIT_CODE,
    FileLook,
    Hook,
    HookEvent,
    HookFacts,
    HookOutcome,
    HookProblem,
    HookResult,
    HooksFound,
    HookSite,
    HooksLook,
    HookStage,
    HookStep,
    all_stages,
)

_NAME = re.compile(rb"[0-9]{2}-.", re.DOTALL)
_WRITABLE_BY_OTHERS = 0o022
_STICKY = 0o1000
_EXECUTABLE = 0o100
_SHOWN_OUTPUT_BYTES = 500
MOST_REASON_CHARACTERS = 1000
"""Of the variable; the document has the whole reason."""


def in_order(found: Iterable[Hook], stage: HookStage) -> tuple[Hook, ...]:
    """The hooks of a stage in the order of their calls: by the bytes of their names, `post` hooks in reverse."""
    return tuple(
        sorted(
            (hook for hook in found if hook.stage == stage),
            key=lambda hook: hook.name,
            reverse=stage.event is HookEvent.POST,
        )
    )


def judge(event: HookEvent, result: HookResult) -> HookOutcome:
    """The meaning of an exit. `post` hooks cannot stop a step that is over: 62 is no failure there."""
    good = result.exit_code == 0 and not result.timed_out
    skip = result.exit_code == SKIP_EXIT_CODE and not result.timed_out
    match event:
        case HookEvent.PRE:
            return HookOutcome.GO_ON if good else HookOutcome.SKIP if skip else HookOutcome.REFUSE
        case HookEvent.POST:
            return HookOutcome.GO_ON if good or skip else HookOutcome.WARN


def end_of(result: HookResult, timeout_s: float) -> str:
    """How a hook ended, with the end of its output, for people."""
    if result.timed_out:
        words = f"ended after its time limit of {format_duration(timeout_s)}"
    elif result.exit_code is None:
        return result.problem
    elif result.exit_code < 0:
        words = f"ended by signal {-result.exit_code}"
    else:
        words = f"exit code {result.exit_code}"
    said = result.output.rstrip(b"\n")
    lines = [show(line) for line in said[-_SHOWN_OUTPUT_BYTES:].split(b"\n") if line.strip()]
    shown = ("..." if len(said) > _SHOWN_OUTPUT_BYTES else "") + " | ".join(lines)
    return f"{words}: {shown}" if lines else f"{words}; no output"


def shown(hook: Hook) -> str:
    """A hook by its path below `hooks_dir`."""
    return f"{hook.stage.name}.d/{show(hook.name)}"


_RENAMED = {"run_id": "run", "pass_kind": "pass"}


def document(stage: HookStage, site: HookSite, facts: HookFacts) -> bytes:
    """The standard input of a hook: one JSON document in ASCII."""
    told: dict[str, object] = {
        "version": CONTRACT_VERSION,
        "stage": stage.name,
        "event": stage.event,
        "site": {"name": site.name, "id": site.site_id, "file": percent_escape(site.file)},
        "source": percent_escape(site.source_root),
        "target": percent_escape(site.target_root),
    }
    for field in fields(HookFacts):
        value = getattr(facts, field.name)
        if field.name.endswith("_at_s"):
            told[field.name.removesuffix("_s")] = _time(value)
        else:
            key = _RENAMED.get(field.name, field.name)
            told[key] = percent_escape(value) if isinstance(value, bytes) else value
    told["trees"] = [{"path": percent_escape(tree.path), "user": tree.user} for tree in facts.trees]
    told["state"] = facts.state or None
    return json.dumps(told, indent=1).encode("ascii")


def environment(stage: HookStage, site: HookSite, facts: HookFacts) -> tuple[tuple[str, str], ...]:
    """The main facts as variables, empty if there is no value."""
    values: dict[str, object] = {
        "MIGRATOR_HOOK_VERSION": CONTRACT_VERSION,
        "MIGRATOR_STAGE": stage.name,
        "MIGRATOR_EVENT": stage.event,
        "MIGRATOR_SITE": site.file,
        "MIGRATOR_SITE_NAME": site.name,
        "MIGRATOR_RUN": facts.run_id,
        "MIGRATOR_PLAN": facts.plan,
        "MIGRATOR_BATCH": facts.batch,
        "MIGRATOR_PASS": facts.pass_kind,
        "MIGRATOR_PASS_NUMBER": facts.pass_number,
        "MIGRATOR_BRICK": facts.brick,
        "MIGRATOR_SIDE": facts.side,
        "MIGRATOR_STATE": facts.state,
        "MIGRATOR_FAILED": facts.failed,
        "MIGRATOR_REASON": _one_line(facts.reason or ""),
        "MIGRATOR_USER": facts.user,
        "MIGRATOR_LINK": facts.link,
        "MIGRATOR_OLD_PATH": facts.old_path,
        "MIGRATOR_NEW_PATH": facts.new_path,
        "MIGRATOR_REPORT": facts.report,
    }
    return tuple((variable, _text(value)) for variable, value in values.items())


def examine_hooks(look: HooksLook, euid: int) -> HooksFound:
    """Which executables are hooks, and the problems. A user who can change a hook, or put another in its place, has
    the rights of the user that runs this program: only root and that user may.
    """
    if look.unread:
        path = look.above[-1].path if look.above else b""
        return HooksFound(problems=(HookProblem(path, f"cannot be read: {look.unread}", "fix what prevents it"),))
    if not look.above:
        return HooksFound()
    owners = frozenset({0, euid})
    directories = {stage.directory: stage for stage in all_stages()}
    hooks: list[Hook] = []
    problems: list[HookProblem] = []
    for found in look.stages:
        directory = found.directory
        stage = directories.get(name(directory.path))
        if stage is None:
            problems.append(_unknown(directory.path, directories))
            continue
        problems += _of_directory(directory, owners, sticky=False)
        if found.unread:
            problems.append(HookProblem(directory.path, f"cannot be read: {found.unread}", "fix what prevents it"))
        for entry in found.entries:
            if _is_left_alone(name(entry.path)):
                continue
            hooks.append(Hook(stage=stage, name=name(entry.path), path=entry.path))
            problems += _of_file(entry, owners)
    *above, own = look.above
    if hooks or problems or own.type is not EntryType.DIRECTORY:
        problems[:0] = [
            *(problem for place in above for problem in _of_directory(place, owners, sticky=True)),
            *_of_directory(own, owners, sticky=False),
        ]
    return HooksFound(hooks=tuple(hooks), problems=tuple(problems))


def problem_words(found: HooksFound) -> tuple[str, ...]:
    """Each problem with its fix, in one sentence."""
    return tuple(f"the hook {show(one.path)} {one.message}: {one.fix}" for one in found.problems)


def check_hooks(found: HooksFound, directory: bytes) -> list[Finding]:
    """For `doctor`: the hooks, or the problems that prevent any call."""
    if found.problems:
        return [failure("hooks", f"{show(one.path)} {one.message}", one.fix) for one in found.problems]
    if not found.hooks:
        return [ok("hooks", f"none in {show(directory)}")]
    names = ", ".join(shown(hook) for stage in all_stages() for hook in in_order(found.hooks, stage))
    return [ok("hooks", f"{several(len(found.hooks), 'hook')} in {show(directory)}: {names}")]


def would_be_called(hooks: Collection[Hook], steps: tuple[HookStep, ...]) -> tuple[str, ...]:
    """The hooks around nested steps, the outermost first, in the order of their calls."""
    before = [HookStage(step=step, event=HookEvent.PRE) for step in steps]
    after = [HookStage(step=step, event=HookEvent.POST) for step in reversed(steps)]
    return tuple(shown(hook) for stage in (*before, *after) for hook in in_order(hooks, stage))


def _is_left_alone(entry: bytes) -> bool:
    """Files that editors and package managers leave, or that an administrator disabled."""
    return entry.startswith(b".") or entry.endswith(b"~")


def _of_directory(look: FileLook, owners: frozenset[int], *, sticky: bool) -> Iterator[HookProblem]:
    """`sticky`: others may create entries in it if they cannot replace existing ones (as in /tmp). They may not in
    directories of hooks.
    """
    if look.type is not EntryType.DIRECTORY:
        yield HookProblem(look.path, f"is a {look.type.value}, not a directory", "put a real directory in its place")
        return
    yield from _owned(look, owners)
    if look.mode & _WRITABLE_BY_OTHERS and not (sticky and look.mode & _STICKY):
        yield _writable(look)


def _of_file(look: FileLook, owners: frozenset[int]) -> Iterator[HookProblem]:
    if look.type is not EntryType.FILE:
        fix = "put the file itself there: `cp` instead of `ln -s`" if look.type is EntryType.SYMLINK else "remove it"
        yield HookProblem(look.path, f"is a {look.type.value}, not a regular file", fix)
        return
    if not _NAME.match(name(look.path)):
        yield HookProblem(
            look.path,
            "has no name of the form NN-name",
            "rename it, as in 10-name; names that begin with a dot or end in ~ are ignored",
        )
    yield from _owned(look, owners)
    if look.mode & _WRITABLE_BY_OTHERS:
        yield _writable(look)
    if not look.mode & _EXECUTABLE:
        yield HookProblem(
            look.path,
            "is not executable",
            f"chmod 0755 {_quoted(look.path)}, or rename it so that it begins with a dot: then it is ignored",
        )


def _owned(look: FileLook, owners: frozenset[int]) -> Iterator[HookProblem]:
    if look.uid not in owners:
        yield HookProblem(look.path, f"belongs to uid {look.uid}", f"chown root: {_quoted(look.path)}")


def _writable(look: FileLook) -> HookProblem:
    return HookProblem(
        look.path, f"can be written by others (mode {look.mode:04o})", f"chmod go-w {_quoted(look.path)}"
    )


def _unknown(path: bytes, directories: Iterable[bytes]) -> HookProblem:
    known, found = [directory.decode("ascii") for directory in directories], name(path).decode("ascii", "replace")
    # Some steps have no `pre` side: suggest `post`.
    other = found.replace(f"{HookEvent.PRE}-", f"{HookEvent.POST}-", 1)
    near = [other] if other in known else difflib.get_close_matches(found, known, n=1)
    meant = f"rename it to {near[0]}" if near else "rename it to a stage of docs/hooks.md, or so that it ends otherwise"
    return HookProblem(path, "is named for no stage", meant)


def _quoted(path: bytes) -> str:
    """For pasting into a shell, if possible."""
    text = show(path)
    return text if re.fullmatch(r"[\w@%+=:,./-]+", text) else f"'{text}'"


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _one_line(text: str) -> str:
    line = " ".join(text.replace("\0", " ").split())
    return line if len(line) <= MOST_REASON_CHARACTERS else f"{line[: MOST_REASON_CHARACTERS - 3]}..."


def _time(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
