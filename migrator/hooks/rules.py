"""The order of hooks, their input, and the meaning of their exit codes. Pure."""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime

from migrator.core.entry import EntryType
from migrator.core.events import Finding, failure, ok
from migrator.core.paths import name, percent_escape, show
from migrator.core.units import format_duration, several
from migrator.hooks import model

_NAME = re.compile(rb"[0-9]{2}-.", re.DOTALL)
_EXECUTABLE = 0o100
_SHOWN_OUTPUT_BYTES = 500
MOST_REASON_CHARACTERS = 1000
"""Of the variable; the document has the whole reason."""


def in_order(found: Iterable[model.Hook], stage: model.HookStage) -> tuple[model.Hook, ...]:
    """The hooks of a stage in the order of their calls: by the bytes of their names, `post` hooks in reverse."""
    return tuple(
        sorted(
            (hook for hook in found if hook.stage == stage),
            key=lambda hook: hook.name,
            reverse=stage.event is model.HookEvent.POST,
        )
    )


def judge(event: model.HookEvent, result: model.HookResult) -> model.HookOutcome:
    """The meaning of an exit. `post` hooks cannot stop a step that is over: 62 is no failure there."""
    good = result.exit_code == 0 and not result.timed_out
    skip = result.exit_code == model.SKIP_EXIT_CODE and not result.timed_out
    match event:
        case model.HookEvent.PRE:
            return model.HookOutcome.GO_ON if good else model.HookOutcome.SKIP if skip else model.HookOutcome.REFUSE
        case model.HookEvent.POST:
            return model.HookOutcome.GO_ON if good or skip else model.HookOutcome.WARN


def end_of(result: model.HookResult, timeout_s: float) -> str:
    """How a hook ended, with the end of its output, for people."""
    if result.timed_out:
        ending = f"ended after its time limit of {format_duration(timeout_s)}"
    elif result.exit_code is None:
        return result.problem
    elif result.exit_code < 0:
        ending = f"ended by signal {-result.exit_code}"
    else:
        ending = f"exit code {result.exit_code}"
    output = result.output.rstrip(b"\n")
    lines = [show(line) for line in output[-_SHOWN_OUTPUT_BYTES:].split(b"\n") if line.strip()]
    shown = ("..." if len(output) > _SHOWN_OUTPUT_BYTES else "") + " | ".join(lines)
    return f"{ending}: {shown}" if lines else f"{ending}; no output"


def shown(hook: model.Hook) -> str:
    """A hook by its path below `hooks_dir`."""
    return f"{hook.stage.name}.d/{show(hook.name)}"


_RENAMED = {"run_id": "run", "pass_kind": "pass"}


def document(stage: model.HookStage, site: model.HookSite, facts: model.HookFacts) -> bytes:
    """The standard input of a hook: one JSON document in ASCII."""
    values: dict[str, object] = {
        "version": model.CONTRACT_VERSION,
        "stage": stage.name,
        "event": stage.event,
        "site": {"name": site.name, "id": site.site_id, "file": percent_escape(site.file)},
        "source": percent_escape(site.source_root),
        "target": percent_escape(site.target_root),
    }
    for field in model.HookFacts.__struct_fields__:
        value = getattr(facts, field)
        if field.endswith("_at_s"):
            values[field.removesuffix("_s")] = _time(value)
        else:
            key = _RENAMED.get(field, field)
            values[key] = percent_escape(value) if isinstance(value, bytes) else value
    values["trees"] = [{"path": percent_escape(tree.path), "user": tree.user} for tree in facts.trees]
    values["state"] = facts.state or None
    return json.dumps(values, indent=1).encode("ascii")


def environment(stage: model.HookStage, site: model.HookSite, facts: model.HookFacts) -> tuple[tuple[str, str], ...]:
    """The main facts as variables, empty if there is no value."""
    values: dict[str, object] = {
        "HOOK_VERSION": model.CONTRACT_VERSION,
        "STAGE": stage.name,
        "EVENT": stage.event,
        "SITE": site.file,
        "SITE_NAME": site.name,
        **{_RENAMED.get(name, name).upper(): getattr(facts, name) for name in _VARIABLES},
        "REASON": _one_line(facts.reason or ""),
    }
    return tuple((f"MIGRATOR_{variable}", _text(value)) for variable, value in values.items())


_VARIABLES = (
    *("run_id", "plan", "batch", "pass_kind", "pass_number", "brick", "side", "state", "failed", "reason"),
    *("user", "link", "old_path", "new_path", "manifest", "digest", "archives", "report", "notice", "notices"),
)
"""Facts that are variables as they are, but for the reason."""


def describe_problems(found: model.HooksFound) -> tuple[str, ...]:
    """Each problem with its fix, in one sentence."""
    return tuple(f"the hook {show(one.path)} {one.message}: {one.fix}" for one in found.problems)


def check_hooks(found: model.HooksFound, directory: bytes) -> list[Finding]:
    """For `doctor`: the hooks, or the problems that prevent any call."""
    if found.problems:
        return [failure("hooks", f"{show(one.path)} {one.message}", one.fix) for one in found.problems]
    if not found.hooks:
        return [ok("hooks", f"none in {show(directory)}")]
    names = ", ".join(shown(hook) for stage in model.all_stages() for hook in in_order(found.hooks, stage))
    return [ok("hooks", f"{several(len(found.hooks), 'hook')} in {show(directory)}: {names}")]


def would_be_called(hooks: Collection[model.Hook], steps: tuple[model.HookStep, ...]) -> tuple[str, ...]:
    """The hooks around nested steps, the outermost first, in the order of their calls."""
    before = [model.HookStage(step=step, event=model.HookEvent.PRE) for step in steps]
    after = [model.HookStage(step=step, event=model.HookEvent.POST) for step in reversed(steps)]
    return tuple(shown(hook) for stage in (*before, *after) for hook in in_order(hooks, stage))


def is_left_alone(entry: bytes) -> bool:
    """Files that editors and package managers leave, or that an administrator disabled."""
    return entry.startswith(b".") or entry.endswith(b"~")


def wrong_type(path: bytes, found: EntryType, wanted: EntryType) -> model.HookProblem:
    """Why something that is no directory, or no file, is refused."""
    if wanted is EntryType.DIRECTORY:
        return model.HookProblem(path, f"is a {found.value}, not a directory", "put a real directory in its place")
    fix = "put the file itself there: `cp` instead of `ln -s`" if found is EntryType.SYMLINK else "remove it"
    return model.HookProblem(path, f"is a {found.value}, not a regular file", fix)


def file_problems(path: bytes, mode: int) -> Iterator[model.HookProblem]:
    """Why a file in a directory of hooks is no hook."""
    if not _NAME.match(name(path)):
        yield model.HookProblem(
            path,
            "has no name of the form NN-name",
            "rename it, as in 10-name; names that begin with a dot or end in ~ are ignored",
        )
    if not mode & _EXECUTABLE:
        yield model.HookProblem(
            path,
            "is not executable",
            f"chmod 0755 {show(path)}, or rename it so that it begins with a dot: then it is ignored",
        )


def unknown_stage(path: bytes) -> model.HookProblem:
    """A directory that looks like one of hooks, and is named for no stage."""
    known, found = (
        [stage.directory.decode("ascii") for stage in model.all_stages()],
        name(path).decode("ascii", "replace"),
    )
    # Some steps have no `pre` side: suggest `post`.
    other = found.replace(f"{model.HookEvent.PRE}-", f"{model.HookEvent.POST}-", 1)
    near = [other] if other in known else difflib.get_close_matches(found, known, n=1)
    meant = f"rename it to {near[0]}" if near else "rename it to a stage of docs/hooks.md, or so that it ends otherwise"
    return model.HookProblem(path, "is named for no stage", meant)


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _one_line(text: str) -> str:
    line = " ".join(text.replace("\0", " ").split())
    return line if len(line) <= MOST_REASON_CHARACTERS else f"{line[: MOST_REASON_CHARACTERS - 3]}..."


def _time(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
