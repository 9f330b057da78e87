"""What one run of rsync came to, from its exit code and its standard error."""

import errno
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from migrator.decide.jail_outcome import JAIL_FAILED, judge_jail
from migrator.decide.rsync_messages import ListedNames, Message, MessageKind, Side, parse_messages
from migrator.decide.stopping import stop_reason
from migrator.domain.paths import join, show
from migrator.domain.transfer import FileProblem, FileProblemKind, Outcome, StopReason, StreamCounters, Verdict

EXIT_MEANINGS = {
    1: "syntax or usage error",
    2: "protocol incompatibility",
    3: "errors selecting input or output files",
    4: "requested action not supported",
    5: "error starting client-server protocol",
    10: "error in socket input or output",
    11: "error in file input or output",
    12: "error in rsync protocol data stream",
    13: "errors with program diagnostics",
    14: "error in inter-process communication",
    19: "received SIGUSR1",
    20: "received SIGINT, SIGTERM or SIGHUP",
    21: "error returned by waitpid",
    22: "error allocating memory",
    23: "partial transfer due to error",
    24: "partial transfer due to vanished source files",
    25: "deletions stopped by --max-delete",
    30: "timeout in data send or receive",
    35: "timeout waiting for the daemon",
    125: "the confinement could not be set up",
    126: "the program cannot be executed",
    127: "the program was not found",
}
"""As in rsync(1), and those of the jail and of shells."""

_SUCCESS = 0
_PER_FILE = (23, 24)
_ENDED_BY_SIGNAL = (19, 20, 128 + 1, 128 + 2, 128 + 9, 128 + 15)
_UNUSABLE = (1, 126, 127)
"""Not 2 and 4: who swaps a directory for a symlink at the right moment makes rsync 3.2.7 end with 2."""
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""There is no such path on the source any more, perhaps since something else took the place of a directory above."""
_SHOWN_LINES = 3

_CALLS = (
    (b"send_files failed to open", "cannot be opened for reading"),
    (b"read errors mapping", "cannot be read"),
    (b"link_stat", "cannot be looked at"),
    (b"readlink_stat", "cannot be looked at"),
    (b"opendir", "cannot be listed"),
    (b"readdir", "cannot be listed"),
    (b"change_dir", "cannot be entered"),
    (b"mkstemp", "cannot be made on the target"),
    (b"recv_generator: mkdir", "cannot be made on the target"),
    (b"mkdir", "cannot be made on the target"),
    (b"symlink", "cannot be made on the target"),
    (b"mknod", "cannot be made on the target"),
    (b"link ", "cannot be linked on the target"),
    (b"rename", "cannot be put in its place on the target"),
    (b"write failed on", "cannot be written on the target"),
    (b"close failed on", "cannot be written on the target"),
    (b"failed to set times", "its times cannot be set on the target"),
    (b"failed to set permissions", "its mode cannot be set on the target"),
    (b"chown", "its owner cannot be set on the target"),
    (b"chgrp", "its group cannot be set on the target"),
    (b"set_acl", "its ACL cannot be set on the target"),
    (b"rsync_xal_set", "its extended attributes cannot be set on the target"),
    (b"rsync_xal_get", "its extended attributes cannot be read"),
    (b"get_acl", "its ACL cannot be read"),
)
"""How rsync's messages begin (3.2.7 and 3.5.0), and what that means for the file that they are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRsync:
    """How a stream ended. `names` are relative to the tree, `tree` to the source root; `stderr` is all of it, and
    `stderr_cut` says that there was more than could be kept. `link_groups` has the names of hard-linked files.
    """

    exit_code: int
    stderr: bytes
    tree: bytes
    names: Sequence[bytes]
    source_tree: bytes
    target_tree: bytes
    counters: StreamCounters
    link_groups: Mapping[bytes, int] = field(default_factory=dict)
    stderr_cut: bool = False
    timed_out: bool = False


def judge_rsync(ended: EndedRsync) -> Outcome:
    """The verdict, and the files that did not arrive by rsync's word.

    STOP for errors that no chunk is to blame for; DONE where every complaint is about listed files; RETRY where
    something is left unexplained; INTERRUPTED where a signal from outside ended it.
    """
    messages = parse_messages(ended.stderr)
    listed = ListedNames(ended.names, source_tree=ended.source_tree, target_tree=ended.target_tree)
    if ended.exit_code == JAIL_FAILED and (jail := _first(messages, MessageKind.JAIL)) is not None:
        return judge_jail(jail, [join(ended.tree, name) for name in listed.all()], ended.counters)
    if (stopped := _stop(ended, listed, messages)) is not None:
        return stopped
    if ended.timed_out:
        return _outcome(ended, Verdict.RETRY, message="the stream ran into its time limit")
    if ended.exit_code < 0 or ended.exit_code in _ENDED_BY_SIGNAL:
        return _outcome(ended, Verdict.INTERRUPTED, message=_describe(ended, messages))
    if ended.exit_code in _UNUSABLE:
        message = _describe(ended, messages)
        return _outcome(ended, Verdict.STOP, stop=StopReason.TOOL_MISSING, message=message)
    if ended.exit_code == _SUCCESS or ended.exit_code in _PER_FILE:
        return _judge_files(ended, listed, messages)
    return _outcome(ended, Verdict.RETRY, message=_describe(ended, messages))


def _judge_files(ended: EndedRsync, listed: ListedNames, messages: Sequence[Message]) -> Outcome:
    suspects: dict[bytes, FileProblem] = {}
    never_listed: set[bytes] = set()
    unexplained = ended.stderr_cut
    for message in messages:
        if message.kind is MessageKind.NOISE:
            continue
        names = listed.meant_by(message)
        if not names:
            unexplained = True
        for name in names:
            # The first complaint about a file is the cause of those that follow.
            if name not in suspects and message.is_from_listing:
                never_listed.add(name)
            suspects.setdefault(name, _problem(ended, name, message))
    if ended.exit_code != _SUCCESS and (unexplained or not suspects):
        return _outcome(ended, Verdict.RETRY, message=_describe(ended, messages))
    return _outcome(ended, Verdict.DONE, suspects=_with_other_names(ended, suspects, never_listed))


def _with_other_names(
    ended: EndedRsync, suspects: Mapping[bytes, FileProblem], never_listed: Container[bytes]
) -> tuple[FileProblem, ...]:
    """Rsync sends a hard-linked file under one of its names; where that fails, it says nothing of the others.

    A name that was gone when rsync made its list is not the one that it sent: the others arrive without it.
    """
    causes = {
        ended.link_groups[name]: suspects[name]
        for name in reversed(tuple(suspects))
        if name in ended.link_groups and name not in never_listed
    }
    others = (
        replace(causes[group], path=join(ended.tree, name))
        for name, group in ended.link_groups.items()
        if group in causes and name not in suspects
    )
    return (*suspects.values(), *others)


def _stop(ended: EndedRsync, listed: ListedNames, messages: Sequence[Message]) -> Outcome | None:
    """The first error that concerns more than files. Source files that cannot be read for EIO are named with it."""
    found: tuple[StopReason, Message] | None = None
    failing: dict[bytes, FileProblem] = {}
    only_files = True
    for message in messages:
        reason = _stop_reason(message)
        if reason is None:
            continue
        found = found or (reason, message)
        names = listed.meant_by(message) if reason is StopReason.IO_ERROR and message.side is Side.SOURCE else ()
        only_files = only_files and bool(names)
        failing.update((name, _problem(ended, name, message)) for name in names)
    if found is None:
        return None
    # Whoever takes known bad files out of the reckoning must not take out another error with them.
    suspects = tuple(failing.values()) if only_files else ()
    return _outcome(ended, Verdict.STOP, suspects=suspects, stop=found[0], message=_shown(ended, found[1]))


def _stop_reason(message: Message) -> StopReason | None:
    if message.kind is not MessageKind.SYSTEM_ERROR:
        return None
    if message.errno == errno.ESTALE:
        # Of a source file: Gluster has just moved it to another brick, or a user has replaced it. A mount that is stale
        # itself is seen by the look at the tree before the next try.
        return None if message.side is Side.SOURCE else StopReason.DISCONNECTED
    reason = stop_reason(message.errno)
    if reason in (StopReason.TARGET_FULL, StopReason.TARGET_QUOTA, StopReason.TARGET_READ_ONLY):
        # A file system says ENOSPC also of an attribute that is too big for it; and the source is never written to.
        return None if message.side is Side.SOURCE or message.sets_attributes else reason
    return reason


def _problem(ended: EndedRsync, name: bytes, message: Message) -> FileProblem:
    gone = message.side is Side.SOURCE and message.errno in _GONE
    kind = FileProblemKind.VANISHED if gone else FileProblemKind.BAD
    return FileProblem(path=join(ended.tree, name), kind=kind, errno=message.errno, reason=_reason(message))


def _reason(message: Message) -> str:
    """What is wrong with a file, without its name: whoever shows it names the file."""
    if message.kind is MessageKind.UNVERIFIED:
        return "changed while it was copied"
    if message.kind is MessageKind.VANISHED:
        return "gone from the source"
    if message.kind is not MessageKind.SYSTEM_ERROR:
        return show(message.text)
    # What stands before rsync's own first quote is the same for every file.
    call = message.text.partition(b'"')[0].strip(b" (")
    words = next((words for begin, words in _CALLS if call.startswith(begin)), None)
    if words is None:
        where = "source" if message.side is Side.SOURCE else "target"
        words = f"rsync failed on the {where} ({show(call)})"
    return f"{words}: {show(message.error)}"


def _shown(ended: EndedRsync, message: Message) -> str:
    """A message of rsync with the paths beneath the source root, instead of where a stream sees them."""
    if message.kind is MessageKind.UNVERIFIED:
        return "changed while it was copied"
    text = message.text
    for seen in (ended.source_tree, ended.target_tree):
        # Names stand in quotes, those of ACLs in brackets.
        for opening in (b'"', b"("):
            text = text.replace(opening + seen.rstrip(b"/") + b"/", opening + join(ended.tree, b""))
    return f"{show(text)}: {show(message.error)}" if message.error else show(text)


def _describe(ended: EndedRsync, messages: Sequence[Message]) -> str:
    meaning = EXIT_MEANINGS.get(ended.exit_code, "signal" if ended.exit_code < 0 else "unknown")
    said = [_shown(ended, message) for message in messages if message.kind is not MessageKind.NOISE]
    return "; ".join([f"rsync ended with {ended.exit_code} ({meaning})", *said[-_SHOWN_LINES:]])


def _first(messages: Sequence[Message], kind: MessageKind) -> Message | None:
    return next((message for message in messages if message.kind is kind), None)


def _outcome(
    ended: EndedRsync,
    verdict: Verdict,
    *,
    suspects: tuple[FileProblem, ...] = (),
    stop: StopReason | None = None,
    message: str = "",
) -> Outcome:
    return Outcome(verdict=verdict, counters=ended.counters, suspects=suspects, stop=stop, message=message)
