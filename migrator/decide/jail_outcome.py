"""What it means that the confinement of a stream could not be set up, whatever was to run in it."""

import errno
from collections.abc import Iterable

from migrator.decide.rsync_messages import Message, MessageKind, parse_messages
from migrator.decide.stopping import stop_reason
from migrator.domain.paths import show
from migrator.domain.transfer import FileProblem, FileProblemKind, Outcome, StopReason, StreamCounters, Verdict

JAIL_FAILED = 125
"""The exit code of `migrator-native confine` for it."""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_PASSING = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOBUFS)


def jail_message(stderr: bytes) -> Message | None:
    """What the confinement says of itself; None where it says nothing."""
    return next((message for message in parse_messages(stderr) if message.kind is MessageKind.JAIL), None)


def judge_jail(message: Message, paths: Iterable[bytes], counters: StreamCounters) -> Outcome:
    """`paths` are those that the stream was given, relative to the source root."""
    text = show(message.text)
    reason = stop_reason(message.errno) or (StopReason.DISCONNECTED if message.errno == errno.ESTALE else None)
    if reason is not None:
        return Outcome(verdict=Verdict.STOP, counters=counters, stop=reason, message=text)
    if message.step == "source-tree":
        # The tree is gone, or something else is in its place: every path wants a look.
        kind = FileProblemKind.VANISHED if message.errno in _GONE else FileProblemKind.BAD
        suspects = tuple(FileProblem(path=path, kind=kind, errno=message.errno, reason=text) for path in paths)
        return Outcome(verdict=Verdict.DONE, counters=counters, suspects=suspects, message=text)
    if message.step in ("source-root", "target-root", "target-tree"):
        return Outcome(verdict=Verdict.STOP, counters=counters, stop=StopReason.MOUNT_CHANGED, message=text)
    if message.errno in _PASSING:
        return Outcome(verdict=Verdict.RETRY, counters=counters, message=text)
    return Outcome(verdict=Verdict.STOP, counters=counters, stop=StopReason.TOOL_MISSING, message=text)
