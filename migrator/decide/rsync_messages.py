r"""What rsync's lines on standard error say: which side, which error, which files.

The lines can be trusted further than the names in them. rsync escapes every control character of a message (`\#012`),
so a line is a message; a message about a system call ends with the error's text and number (`rsyserr` in its log.c),
and begins with `rsync: [role] ` (3.1.3 and later, checked with 3.2.7 and 3.5.0). What lies between may hold a user's
name, in quotes that rsync does not escape: so the number is read from the end, the role from the beginning, and a
name counts only where it is one of those that the stream was given. Where a message can be cut in several ways, every
listed name that a cut gives is meant: the right one is among them.
"""

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

_ESCAPED = re.compile(rb"\\#([0-3][0-7]{2})")
_SYSTEM_ERROR = re.compile(rb"rsync: \[([A-Za-z]+)\] (.*): ([^:]*) \((\d+)\)")
_ACL_CALL = re.compile(rb"\w+: \w+\((.*), ?ACL_TYPE_[A-Z]+\)(?: failed)?")
_VANISHED = re.compile(rb"(?:file|directory) has vanished: (\".*\")")
_VERIFICATION = re.compile(rb"(WARNING|ERROR): (.*) failed verification -- update [a-z ]+?( \(will try again\))?\.")
_NAMED = re.compile(
    rb"(could not make way for [a-z ]+|cannot delete non-empty directory|skipping overly long name"
    rb"|temporary filename too long|skipping symlink with 0-length value): (.*)"
)
_QUOTED = re.compile(rb"(skipping file with bogus \(zero\) st_mode|skipped diminished file): (.*)")
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


class Side(StrEnum):
    """Which of the two file systems a message is about."""

    SOURCE = "source"
    TARGET = "target"


class MessageKind(StrEnum):
    """What a line is."""

    SYSTEM_ERROR = "system-error"
    VANISHED = "vanished"
    UNVERIFIED = "unverified"
    REFUSED = "refused"
    NOISE = "noise"
    JAIL = "jail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One line. `names` are all that may be the name in it, absolute or relative to the tree; `step` is the jail's;
    `error` is what the text of a system error leaves out: the error's own words.
    """

    kind: MessageKind
    text: bytes
    side: Side = Side.SOURCE
    errno: int | None = None
    names: tuple[bytes, ...] = ()
    step: str = ""
    error: bytes = b""

    @property
    def sets_attributes(self) -> bool:
        """Whether an extended attribute or an ACL was to be set: their errors say nothing of the file system."""
        before_names = self.text.partition(b'"')[0]
        return any(call in before_names for call in _ATTRIBUTE_CALLS)

    @property
    def is_from_listing(self) -> bool:
        """Whether rsync met it while it made its list: the file is not in the list then, and nothing waits for it."""
        return self.text.startswith(b"link_stat ")


def unescape(name: bytes) -> bytes:
    r"""The bytes of a name as rsync printed it: `\#ooo` is one byte; a backslash stands for itself otherwise."""
    return _ESCAPED.sub(lambda match: bytes((int(match[1], 8),)), name)


def parse_messages(stderr: bytes) -> tuple[Message, ...]:
    """Every line that is not empty. The last one counts also without its newline."""
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
    return Message(kind=MessageKind.UNKNOWN, text=line)


def _names(text: bytes) -> tuple[bytes, ...]:
    if match := _ACL_CALL.fullmatch(text):
        return (unescape(match[1]),)
    return _quoted_names(text)


def _quoted_names(text: bytes) -> tuple[bytes, ...]:
    """From the first quote, which is rsync's own, to every later one, any of which may end the name."""
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
    """The names that a stream was given, relative to the tree, and how messages show them."""

    def __init__(self, names: Sequence[bytes], *, source_tree: bytes, target_tree: bytes) -> None:
        self._names = dict.fromkeys(names)
        self._prefixes = tuple(tree.rstrip(b"/") + b"/" for tree in (source_tree, target_tree))
        self._by_directory: Mapping[bytes, Sequence[bytes]] | None = None
        self._directories = _directories_above(self._names)

    def meant_by(self, message: Message) -> tuple[bytes, ...]:
        """The listed names that a message is about; several where it cannot be told which; empty for none."""
        found: dict[bytes, None] = {}
        for name in message.names:
            found.update(dict.fromkeys(self._resolve(self._relative(name))))
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
        # A directory above listed names that cannot be made or entered keeps all of them from arriving.
        if name not in self._directories:
            return ()
        return [listed for listed in self._names if listed.startswith(name + b"/")]

    def _in_directory(self, directory: bytes) -> Sequence[bytes]:
        if self._by_directory is None:
            by_directory: dict[bytes, list[bytes]] = {}
            for listed in self._names:
                by_directory.setdefault(listed.rpartition(b"/")[0], []).append(listed)
            self._by_directory = by_directory
        return self._by_directory.get(directory, ())


def _directories_above(names: Iterable[bytes]) -> frozenset[bytes]:
    found: set[bytes] = set()
    for name in names:
        directory = name.rpartition(b"/")[0]
        while directory and directory not in found:
            found.add(directory)
            directory = directory.rpartition(b"/")[0]
    return frozenset(found)


def _stem(name: bytes) -> bytes | None:
    """What a temporary name (`.NAME.XXXXXX`, with one dot in front in any case) was made of; None for other names."""
    match = _TEMPORARY.fullmatch(name)
    return match[1] if match and name.startswith(b".") else None


def _is_cut_to(name: bytes, stem: bytes) -> bool:
    plain = name.removeprefix(b".")
    # Versions differ in whether a name that has a dot in front gets another one.
    stems = (stem, stem.removeprefix(b"."))
    return plain in stems or (len(name) > _LONG_NAME_BYTES and plain.startswith(stems))
