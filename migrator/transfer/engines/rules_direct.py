"""The outcome of one run of `migrator-native copy`, from its exit code and its events for paths.

Its lines contain no names: an event has the position of its path in the list, so no name can imitate a message.
`copy_events.c` describes them, `copy.h` has the exit codes.
"""

import errno
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.core.paths import show
from migrator.transfer.engines import rules_rsync as rules
from migrator.transfer.engines.rules_rsync import Ended
from migrator.transfer.model import FileProblem, FileProblemKind, Outcome, StopReason, Verdict
from migrator.transfer.rules import stop_reason

_LIST_DONE = 0
_UNUSABLE = (1, 2, 64, 126, 127)
_OF_TARGETS = (StopReason.TARGET_FULL, StopReason.TARGET_QUOTA, StopReason.TARGET_READ_ONLY)
_SHOWN_STDERR_BYTES = 300

_EVENT = re.compile(rb"F ([0-9]{1,18}) (vanished|moved|changed|bad) (source|target) ([0-9]{1,9}) ([a-z -]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathEvent:
    """One path with an anomaly. `index` is its position in the list; `errno` is 0 if no call failed, `error` the
    system's text for it.
    """

    index: int
    kind: FileProblemKind
    on_target: bool
    errno: int
    error: str
    operation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedDirect(Ended):
    """The end of a stream. `paths` are the listed ones in order, relative to the source root. `stderr` has only the
    beginning. `garbled`: a line of output was no valid event.
    """

    events: Sequence[PathEvent]
    paths: Sequence[bytes]
    garbled: bool = False


def parse_event(line: bytes, words: Callable[[int], str]) -> PathEvent | None:
    """Parse a line about one path; None for every other line. `words` maps an errno to its text (`os.strerror`)."""
    match = _EVENT.fullmatch(line)
    if match is None:
        return None
    return PathEvent(
        index=int(match[1]),
        kind=FileProblemKind(match[2].decode("ascii")),
        on_target=match[3] == b"target",
        errno=int(match[4]),
        error=words(int(match[4])),
        operation=match[5].decode("ascii"),
    )


def judge_direct(ended: EndedDirect) -> Outcome:
    """The verdict, and the files that did not arrive, or not as listed.

    STOP for errors that no chunk is to blame for; DONE if the list was processed to its end; RETRY if something remains
    unexplained; INTERRUPTED if a signal from outside ended the process.
    """
    if ended.exit_code == rules.JAIL_FAILED and (jail := rules.jail_message(ended.stderr)) is not None:
        return rules.judge_jail(jail, ended.paths, ended.counters)
    if (stopped := _stop(ended)) is not None:
        return stopped
    description = _describe(ended)
    if (cut := ended.cut_short(description, by_signal=rules.ENDED_BY_SIGNAL, unusable=_UNUSABLE)) is not None:
        return cut
    if ended.exit_code != _LIST_DONE or ended.garbled:
        return ended.outcome(Verdict.RETRY, description)
    return ended.outcome(Verdict.DONE, suspects=_suspects(ended))


def _stop(ended: EndedDirect) -> Outcome | None:
    """The first error that concerns more than single files."""
    for event in ended.events:
        if (reason := _stop_reason(event)) is not None:
            return ended.outcome(Verdict.STOP, f"{show(ended.paths[event.index])}: {_reason(event)}", reason)
    return None


def _stop_reason(event: PathEvent) -> StopReason | None:
    if event.kind is not FileProblemKind.BAD:
        return None
    if event.errno == errno.ESTALE:
        # This concerns a source file: Gluster has just moved it to another brick, or it was replaced. The check before
        # the next try detects a stale mount.
        return StopReason.DISCONNECTED if event.on_target else None
    reason = stop_reason(event.errno)
    if reason is StopReason.IO_ERROR and not event.on_target:
        return None
    if reason in _OF_TARGETS:
        # A file system also reports ENOSPC for an attribute that is too big for it. The source is never written to.
        return reason if event.on_target and "xattr" not in event.operation else None
    return reason


def _suspects(ended: EndedDirect) -> tuple[FileProblem, ...]:
    return tuple(_problem(ended.paths[event.index], event) for event in ended.events)


def _problem(path: bytes, event: PathEvent) -> FileProblem:
    kind = event.kind
    if kind is FileProblemKind.BAD and not event.on_target and event.errno in rules.GONE:
        kind = FileProblemKind.VANISHED
    return FileProblem(path=path, kind=kind, errno=event.errno or None, reason=_reason(event))


def _reason(event: PathEvent) -> str:
    """The error of a file, without its name: the caller names the file."""
    match event.kind:
        case FileProblemKind.VANISHED:
            return "gone from the source"
        case FileProblemKind.MOVED:
            return "not (or not for long) on this brick"
        case FileProblemKind.CHANGED:
            return "changed while it was copied"
        case FileProblemKind.BAD:
            return f"{event.operation} failed on the {'target' if event.on_target else 'source'}: {event.error}"


def _describe(ended: EndedDirect) -> str:
    said = show(ended.stderr.strip()[-_SHOWN_STDERR_BYTES:])
    told = "; it told something that is no event" if ended.garbled else ""
    return f"migrator-native copy ended with {ended.exit_code}{told}" + (f"; {said}" if said else "")
