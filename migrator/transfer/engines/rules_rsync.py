"""rsync: its capabilities, the meaning of its messages, and the outcome of a run."""

import errno
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.paths import join, show
from migrator.fs.model import Side, syncfs_reaches_disks
from migrator.transfer import model
from migrator.transfer.rules import stop_reason

# rsync's version and capabilities, from its own output.


MINIMUM_VERSION = (3, 2, 3)
"""Has nanosecond comparison, filters for attributes, `--stderr`, xxh128, and roles in messages."""

FSYNC_VERSION = (3, 2, 4)
"""The first version that can sync each file (`--fsync`)."""

NEEDED_ABILITIES = ("hardlinks", "symlinks", "symtimes", "ACLs", "xattrs", "64-bit files")

_VERSION = re.compile(rb"rsync +version v?([0-9]+)\.([0-9]+)(?:\.([0-9]+))?")
_ABILITIES = re.compile(rb"^Capabilities:\n((?:[ \t]+.*\n?)+)", re.MULTILINE)
_OPTION = re.compile(rb"^ *(--[a-z0-9-]+)", re.MULTILINE)


class RsyncFeatures(Struct, frozen=True, kw_only=True):
    """`lacks` names abilities that were left out of this build; `fsync`: it has `--fsync` (3.2.4)."""

    version: tuple[int, int, int]
    fsync: bool = False
    lacks: tuple[str, ...] = ()

    @property
    def version_text(self) -> str:
        """In rsync's own notation."""
        return dotted(self.version)

    def problem(self) -> str | None:
        """Why this rsync cannot be used; None if it can."""
        if self.version < MINIMUM_VERSION:
            return f"rsync {self.version_text} is too old: {dotted(MINIMUM_VERSION)} is needed"
        if self.lacks:
            return f"rsync {self.version_text} was built without {', '.join(self.lacks)}"
        return None

    def syncing_problem(self, target_filesystem: str) -> str | None:
        """Why copies to a target of this type may not reach the disks; None if rsync syncs them, or a final `syncfs`
        does.
        """
        if self.version >= FSYNC_VERSION or syncfs_reaches_disks(target_filesystem):
            return None
        return (
            f"rsync {self.version_text} cannot sync each file, as the target needs ({dotted(FSYNC_VERSION)} can): what it copied in "
            "the last half minute may be lost in a power cut of a storage server, and fpsync and parsyncfp2 fail"
        )


def parse_features(version_output: bytes, help_output: bytes = b"") -> RsyncFeatures | None:
    """Parse `rsync --version` and `rsync --help`; None if the former is not rsync's output."""
    match = _VERSION.search(version_output)
    if match is None:
        return None
    listed = _ABILITIES.search(version_output)
    abilities = {b" ".join(words.split()) for words in listed[1].split(b",")} if listed else set()
    options = _OPTION.findall(help_output)
    return RsyncFeatures(
        version=(int(match[1]), int(match[2]), int(match[3] or 0)),
        fsync=b"--fsync" in options,
        lacks=tuple(ability for ability in NEEDED_ABILITIES if ability.encode("ascii") not in abilities),
    )


def dotted(version: tuple[int, ...]) -> str:
    """A version in the usual notation: `3.2.3`."""
    return ".".join(str(number) for number in version)


# rsync's lines on standard error: the side, the error, and the files.
#
# The lines are more reliable than the names in them. rsync escapes every control character of a message (`\#012`), so a
# line is one message. A message about a system call ends with the error's text and number (`rsyserr` in its log.c), and
# begins with `rsync: [role] ` (3.1.3 and later, checked with 3.2.7 and 3.5.0). Between them may be a user's name, in
# quotes that rsync does not escape. So the number is read from the end, the role from the beginning, and a name counts
# only if it is one of the names that the stream was given. If a message can be split in several ways, every listed name
# of any split counts: the right one is among them.
#
# The exit code is less reliable than the lines: rsync ends with 0 after some warnings that a path did not get all of
# its attributes. In the confinement, 3.5.0 prints `do_chmod: no symlink-safe chmod for "NAME"; mode not set` for each
# device and socket (the C library of Debian 12 needs /proc for it), with only the last component of the path. So lines
# of an unknown form count too: for every path that they may name, or else for all.


_ESCAPED = re.compile(rb"\\#([0-3][0-7]{2})")
_SYSTEM_ERROR = re.compile(rb"rsync: \[([A-Za-z]+)\] (.*): ([^:]*) \((\d+)\)")
_ACL_CALL = re.compile(rb"\w+: (?:\w+\((.*), ?ACL_TYPE_[A-Z]+\)|sys_acl_delete_def_file\((.*)\))(?: failed)?")
_VANISHED = re.compile(rb"(?:file|directory) has vanished: (\".*\")")
_VERIFICATION = re.compile(rb"(WARNING|ERROR): (.*) failed verification -- update [a-z ]+?( \(will try again\))?\.")
_NAMED = re.compile(
    rb"(could not make way for [a-z ]+|cannot delete non-empty directory|skipping overly long name"
    rb"|temporary filename too long|skipping symlink with 0-length value): (.*)"
)
_QUOTED = re.compile(rb"(skipping file with bogus \(zero\) st_mode|skipped diminished file): (.*)")
_LAST_WORDS = re.compile(rb": (?=(.*))")
_JAIL = re.compile(rb"migrator-jail: ([a-z-]+): (\d+): (.*)")
_NOISE = re.compile(
    rb"rsync (?:error|warning): .*"
    rb"|\*\*\* Skipping any contents from this failed directory \*\*\*"
    rb"|refusing to follow a symlink owned by an untrusted user; .*"  # a message about the file follows (3.5.0)
    rb"|(?:rsync: )?(?:\[\w+\] )?IO error encountered -- skipping file deletion"
)
_ATTRIBUTE_CALLS = (b"setxattr", b"set_acl", b"removexattr")
_TEMPORARY = re.compile(rb"\.?(.*)\.[A-Za-z0-9]{6}", re.DOTALL)
_LONG_NAME_BYTES = 230
"""rsync cuts longer names for its temporary files: to 246 bytes, or as far back as there are bytes above 127 before."""


class MessageKind(StrEnum):
    """The kind of a line."""

    SYSTEM_ERROR = "system-error"
    VANISHED = "vanished"
    UNVERIFIED = "unverified"
    REFUSED = "refused"
    NOISE = "noise"
    JAIL = "jail"
    UNKNOWN = "unknown"


class Message(Struct, frozen=True, kw_only=True):
    """One line. `names` are all candidates for the name in it, absolute or relative to the tree. `step` is the
    confinement's. `error` is the system's own error text, which `text` omits.
    """

    kind: MessageKind
    text: bytes
    side: Side = Side.SOURCE
    errno: int | None = None
    names: tuple[bytes, ...] = ()
    step: str = ""
    error: bytes = b""


def unescape(name: bytes) -> bytes:
    r"""The bytes of a name as rsync printed it: `\#ooo` is one byte; a backslash stands for itself otherwise."""
    return _ESCAPED.sub(lambda match: bytes((int(match[1], 8),)), name)


def parse_messages(stderr: bytes) -> tuple[Message, ...]:
    """Every non-empty line. The last one counts even without its newline."""
    return tuple(_parse(line) for line in stderr.split(b"\n") if line)


def _parse(line: bytes) -> Message:
    if match := _JAIL.fullmatch(line):
        step = match[1].decode("ascii")
        side = Side.TARGET if step.startswith("target") else Side.SOURCE
        return Message(kind=MessageKind.JAIL, text=match[3], side=side, errno=int(match[2]), step=step)
    if _NOISE.fullmatch(line):
        return Message(kind=MessageKind.NOISE, text=line)
    if match := _VANISHED.fullmatch(line):
        return Message(kind=MessageKind.VANISHED, text=line, errno=errno.ENOENT, names=_quoted_names(match[1]))
    if match := _VERIFICATION.fullmatch(line):
        if match[3]:
            return Message(kind=MessageKind.NOISE, text=line)
        return Message(kind=MessageKind.UNVERIFIED, text=line, names=(unescape(match[2]),))
    if match := _NAMED.fullmatch(line):
        return Message(kind=MessageKind.REFUSED, text=line, side=Side.TARGET, names=(unescape(match[2]),))
    if match := _QUOTED.fullmatch(line):
        return Message(kind=MessageKind.REFUSED, text=line, names=_quoted_names(match[2]))
    if match := _SYSTEM_ERROR.fullmatch(line):
        side = Side.SOURCE if match[1].lower() == b"sender" else Side.TARGET
        return Message(
            kind=MessageKind.SYSTEM_ERROR,
            text=match[2],
            side=side,
            errno=int(match[4]),
            error=match[3],
            names=_names(match[2]),
        )
    names = (*_quoted_names(line), *(unescape(words) for words in _LAST_WORDS.findall(line)))
    return Message(kind=MessageKind.UNKNOWN, text=line, side=Side.TARGET, names=names)


def _names(text: bytes) -> tuple[bytes, ...]:
    if match := _ACL_CALL.fullmatch(text):
        return (unescape(match[1] or match[2]),)
    return _quoted_names(text)


def _quoted_names(text: bytes) -> tuple[bytes, ...]:
    """All text from the first quote, which is rsync's own, to each later quote, since any of them may end the name."""
    start = text.find(b'"') + 1
    if not start:
        return ()
    names: list[bytes] = []
    end = text.find(b'"', start)
    while end >= 0:
        names.append(unescape(text[start:end]))
        end = text.find(b'"', end + 1)
    return tuple(names)


class ListedNames:
    """The names that a stream was given, relative to the tree, and their forms in messages."""

    def __init__(self, names: Sequence[bytes], view: model.StreamView) -> None:
        self._names = dict.fromkeys(names)
        self._prefixes = tuple(tree.rstrip(b"/") + b"/" for tree in (view.source_tree, view.target_tree))
        self._by_directory: Mapping[bytes, Sequence[bytes]] | None = None
        self._by_last: Mapping[bytes, Sequence[bytes]] | None = None
        self._directories = _directories_above(self._names)

    def meant_by(self, message: Message) -> tuple[bytes, ...]:
        """The listed names that a message may be about; empty for none."""
        found: dict[bytes, None] = {}
        for name in message.names:
            found.update(dict.fromkeys(self._resolve(self._relative(name))))
            if message.kind is MessageKind.UNKNOWN:
                found.update(dict.fromkeys(self._with_last_component(name)))
        return tuple(found)

    def all(self) -> tuple[bytes, ...]:
        """Every listed name, once."""
        return tuple(self._names)

    def _relative(self, name: bytes) -> bytes:
        for prefix in self._prefixes:
            if name.startswith(prefix):
                return name[len(prefix) :].removeprefix(b"./")
        return name.removeprefix(b"./")

    def _resolve(self, name: bytes) -> Sequence[bytes]:
        if name in self._names:
            return (name,)
        directory, _, last = name.rpartition(b"/")
        stem = _stem(last)
        if stem is not None:
            meant = [listed for listed in self._in_directory(directory) if _is_cut_to(listed.rpartition(b"/")[2], stem)]
            if meant:
                return meant
        # If a directory above listed names cannot be created or entered, none of these names arrives.
        if name not in self._directories:
            return ()
        return [listed for listed in self._names if listed.startswith(name + b"/")]

    def _with_last_component(self, last: bytes) -> Sequence[bytes]:
        """The names in any directory that a message without the directory may mean."""
        if self._by_last is None:
            self._by_last = _grouped(self._names, lambda listed: listed.rpartition(b"/")[2])
        stem = _stem(last)
        cut = () if stem is None else [one for one in self._by_last if _is_cut_to(one, stem)]
        return [listed for one in (last, *cut) for listed in self._by_last.get(one, ())]

    def _in_directory(self, directory: bytes) -> Sequence[bytes]:
        if self._by_directory is None:
            self._by_directory = _grouped(self._names, lambda listed: listed.rpartition(b"/")[0])
        return self._by_directory.get(directory, ())


def _grouped(names: Iterable[bytes], key: Callable[[bytes], bytes]) -> Mapping[bytes, Sequence[bytes]]:
    groups: dict[bytes, list[bytes]] = {}
    for name in names:
        groups.setdefault(key(name), []).append(name)
    return groups


def _directories_above(names: Iterable[bytes]) -> frozenset[bytes]:
    found: set[bytes] = set()
    for name in names:
        directory = name.rpartition(b"/")[0]
        while directory and directory not in found:
            found.add(directory)
            directory = directory.rpartition(b"/")[0]
    return frozenset(found)


def _stem(name: bytes) -> bytes | None:
    """The stem of a temporary name (`.NAME.XXXXXX`, always with one dot in front); None for other names."""
    match = _TEMPORARY.fullmatch(name)
    return match[1] if match and name.startswith(b".") else None


def _is_cut_to(name: bytes, stem: bytes) -> bool:
    plain = name.removeprefix(b".")
    # Versions differ in whether a name with a leading dot gets another one.
    stems = (stem, stem.removeprefix(b"."))
    return plain in stems or (len(name) > _LONG_NAME_BYTES and plain.startswith(stems))


# The end of any stream.


class Ended(Struct, frozen=True, kw_only=True):
    """The end of a stream. `stderr` may be incomplete: it is the part that was kept."""

    exit_code: int
    stderr: bytes
    counters: model.StreamCounters
    timed_out: bool = False

    def outcome(
        self,
        verdict: model.AttemptVerdict,
        message: str = "",
        stop: model.StopReason | None = None,
        *,
        suspects: tuple[model.FileProblem, ...] = (),
    ) -> model.StreamOutcome:
        return model.StreamOutcome(
            verdict=verdict, counters=self.counters, suspects=suspects, stop=stop, message=message
        )

    def cut_short(
        self, description: str, *, by_signal: Container[int], unusable: Container[int]
    ) -> model.StreamOutcome | None:
        """The outcome if a time limit, a signal or an unusable program explains the end; None otherwise."""
        if self.timed_out:
            return self.outcome(model.AttemptVerdict.RETRY, "the stream ran into its time limit")
        if self.exit_code < 0 or self.exit_code in by_signal:
            return self.outcome(model.AttemptVerdict.INTERRUPTED, description)
        if self.exit_code in unusable:
            return self.outcome(model.AttemptVerdict.STOP, description, model.StopReason.TOOL_MISSING)
        return None


ENDED_BY_SIGNAL = (128 + 1, 128 + 2, 128 + 9, 128 + 15)
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""The path no longer exists on the source, perhaps because a directory above was replaced."""


# Failures to set up the confinement of a stream, for any program.


JAIL_FAILED = 125
"""The exit code of `migrator-native confine` if it cannot set up the confinement."""
_PASSING = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOBUFS)


def jail_message(stderr: bytes) -> Message | None:
    """The message of the confinement, if any."""
    return next((message for message in parse_messages(stderr) if message.kind is MessageKind.JAIL), None)


def judge_jail(message: Message, paths: Iterable[bytes], counters: model.StreamCounters) -> model.StreamOutcome:
    """`paths` are those that the stream was given, relative to the source root."""
    text = show(message.text)
    suspects: tuple[model.FileProblem, ...] = ()
    stop = stop_reason(message.errno) or (model.StopReason.DISCONNECTED if message.errno == errno.ESTALE else None)
    verdict = model.AttemptVerdict.STOP
    if stop is None and message.step == "source-tree":
        # The tree is gone or was replaced by something else: every path needs a look-up.
        verdict, kind = (
            model.AttemptVerdict.DONE,
            model.FileProblemKind.VANISHED if message.errno in GONE else model.FileProblemKind.BAD,
        )
        suspects = tuple(model.FileProblem(path=path, kind=kind, errno=message.errno, reason=text) for path in paths)
    elif stop is None and message.step in ("source-root", "target-root", "target-tree"):
        stop = model.StopReason.MOUNT_CHANGED
    elif stop is None and message.errno in _PASSING:
        verdict = model.AttemptVerdict.RETRY
    elif stop is None:
        stop = model.StopReason.TOOL_MISSING
    return model.StreamOutcome(verdict=verdict, counters=counters, suspects=suspects, stop=stop, message=text)


# The outcome of rsync, from its exit code and its standard error.


_SUCCESS = 0
_PER_FILE = (23, 24)
_UNUSABLE = (1, 126, 127)
"""Not 2 and 4: swapping a directory for a symlink at the right moment makes rsync 3.2.7 exit with 2."""
_SHOWN_LINES = 3


class EndedRsync(Ended, frozen=True, kw_only=True):
    """The end of an rsync. `names` are relative to the tree, `tree` to the source root. `stderr` is complete unless
    `stderr_cut` is set. `link_groups` has the names of hard-linked files.
    """

    tree: bytes
    names: Sequence[bytes]
    view: model.StreamView
    link_groups: Mapping[bytes, int] = {}
    stderr_cut: bool = False


def judge_rsync(ended: EndedRsync) -> model.StreamOutcome:
    """The verdict, and the files that did not arrive according to rsync.

    STOP for errors that no chunk is to blame for; DONE if every complaint is about listed files, or about unknown ones
    while the exit code is 0: then every listed file is a suspect; RETRY if something remains unexplained; INTERRUPTED if
    a signal from outside ended the process.
    """
    messages = parse_messages(ended.stderr)
    listed = ListedNames(ended.names, ended.view)
    if ended.exit_code == JAIL_FAILED and (jail := jail_message(ended.stderr)) is not None:
        return judge_jail(jail, [join(ended.tree, name) for name in listed.all()], ended.counters)
    if (stopped := _stop(ended, listed, messages)) is not None:
        return stopped
    description = _describe(ended, messages)
    if (cut := ended.cut_short(description, by_signal=(19, 20, *ENDED_BY_SIGNAL), unusable=_UNUSABLE)) is not None:
        return cut
    if ended.exit_code == _SUCCESS or ended.exit_code in _PER_FILE:
        return _judge_files(ended, listed, messages, description)
    return ended.outcome(model.AttemptVerdict.RETRY, description)


def _judge_files(
    ended: EndedRsync, listed: ListedNames, messages: Sequence[Message], description: str
) -> model.StreamOutcome:
    suspects: dict[bytes, model.FileProblem] = {}
    never_listed: set[bytes] = set()
    unexplained = "some of its messages were not kept" if ended.stderr_cut else ""
    for message in messages:
        if message.kind is MessageKind.NOISE:
            continue
        names = listed.meant_by(message)
        if not names:
            unexplained = unexplained or _shown(ended, message)
        for name in names:
            # The first complaint about a file is the cause of later ones. If rsync met it while it built its file list,
            # the list does not have the file.
            if name not in suspects and message.text.startswith(b"link_stat "):
                never_listed.add(name)
            suspects.setdefault(name, _problem(ended, name, message))
    if ended.exit_code != _SUCCESS and (unexplained or not suspects):
        return ended.outcome(model.AttemptVerdict.RETRY, description)
    for name in listed.all() if unexplained else ():
        path, kind = join(ended.tree, name), model.FileProblemKind.BAD
        suspects.setdefault(name, model.FileProblem(path=path, kind=kind, errno=None, reason=unexplained))
    return ended.outcome(model.AttemptVerdict.DONE, suspects=_with_other_names(ended, suspects, never_listed))


def _with_other_names(
    ended: EndedRsync, suspects: Mapping[bytes, model.FileProblem], never_listed: Container[bytes]
) -> tuple[model.FileProblem, ...]:
    """Rsync sends a hard-linked file under one of its names; if that fails, it does not report the others.

    If a name was gone when rsync built its list, rsync sent another one: the others arrive without it.
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


def _stop(ended: EndedRsync, listed: ListedNames, messages: Sequence[Message]) -> model.StreamOutcome | None:
    """The first error that concerns more than single files. An EIO for a listed source file costs only that file."""
    for message in messages:
        reason = _stop_reason(message)
        if reason is model.StopReason.IO_ERROR and message.side is Side.SOURCE and listed.meant_by(message):
            continue
        if reason is not None:
            return ended.outcome(model.AttemptVerdict.STOP, _shown(ended, message), reason)
    return None


def _stop_reason(message: Message) -> model.StopReason | None:
    if message.kind is not MessageKind.SYSTEM_ERROR:
        return None
    if message.errno == errno.ESTALE:
        # This concerns a source file: Gluster has just moved it to another brick, or a user has replaced it. The
        # look-up of the tree before the next try detects a stale mount.
        return None if message.side is Side.SOURCE else model.StopReason.DISCONNECTED
    reason = stop_reason(message.errno)
    if reason in (model.StopReason.TARGET_FULL, model.StopReason.TARGET_QUOTA, model.StopReason.TARGET_READ_ONLY):
        # A file system also reports ENOSPC for an attribute or an ACL that is too big for it. The source is never written
        # to.
        before_names = message.text.partition(b'"')[0]
        of_attribute = any(call in before_names for call in _ATTRIBUTE_CALLS)
        return None if message.side is Side.SOURCE or of_attribute else reason
    return reason


def _problem(ended: EndedRsync, name: bytes, message: Message) -> model.FileProblem:
    gone = message.side is Side.SOURCE and message.errno in GONE
    kind = model.FileProblemKind.VANISHED if gone else model.FileProblemKind.BAD
    return model.FileProblem(path=join(ended.tree, name), kind=kind, errno=message.errno, reason=_reason(message))


def _reason(message: Message) -> str:
    """The error of a file, without its name: the caller shows that."""
    if message.kind is MessageKind.UNVERIFIED:
        return "changed while it was copied"
    if message.kind is MessageKind.VANISHED:
        return "gone from the source"
    if message.kind is not MessageKind.SYSTEM_ERROR:
        return show(message.text)
    # The text before rsync's own first quote is the same for every file.
    call = message.text.partition(b'"')[0].partition(b"(")[0].strip()
    return f"rsync on the {message.side.value}: {show(call)}: {show(message.error)}"


def _shown(ended: EndedRsync, message: Message) -> str:
    """A message of rsync, with paths beneath the source root instead of those inside the confinement."""
    if message.kind is MessageKind.UNVERIFIED:
        return "changed while it was copied"
    text = message.text
    for seen in (ended.view.source_tree, ended.view.target_tree):
        # Messages have names in quotes, and those about ACLs in brackets.
        for opening in (b'"', b"("):
            text = text.replace(opening + seen.rstrip(b"/") + b"/", opening + join(ended.tree, b""))
    return f"{show(text)}: {show(message.error)}" if message.error else show(text)


def _describe(ended: EndedRsync, messages: Sequence[Message]) -> str:
    shown = [message for message in messages if message.kind is not MessageKind.NOISE][-_SHOWN_LINES:]
    return "; ".join([f"rsync ended with {ended.exit_code}", *(_shown(ended, message) for message in shown)])
