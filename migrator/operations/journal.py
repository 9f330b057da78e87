"""The journal of a site: a file on the target that lists what the site's commands have begun. Each entry has a random token
that is in the ledger too. So a ledger that was restored from a backup, or a second one, does not know all entries: its
facts are not those of the trees, and nothing may be done by it.
"""

import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as NoAnswerInTime
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from migrator.core.clock import Clock
from migrator.core.errors import Refused
from migrator.core.paths import join, show
from migrator.core.tasks import DaemonExecutor
from migrator.core.units import several
from migrator.fs.beneath import Root, held
from migrator.fs.model import JOURNAL_NAME
from migrator.ledger.ledger import Ledger

# The file: records of a fixed size, overwritten in turn. Its blocks are written when it is made, so it takes entries on a
# full file system too.

RECORD_BYTES = 256
RECORDS = 1024
_WHAT_CHARACTERS = 120
_SHOWN = 3
_ANSWER_TIMEOUT_S = 20.0
_MODE = 0o600


class JournalEntry(Struct, frozen=True):
    """One act of a command, noted before it began. `at` is the time, for people."""

    number: int
    token: str
    at: str
    what: str

    def __str__(self) -> str:
        return f"{self.at} {self.what}"


def encode_entry(entry: JournalEntry) -> bytes:
    """A record of the file. What does not fit is cut."""
    room = min(len(entry.what), _WHAT_CHARACTERS)
    while True:
        facts = [entry.number, entry.token, entry.at, entry.what[:room]]
        record = json.dumps(facts, ensure_ascii=True).encode("ascii")
        if len(record) < RECORD_BYTES:
            return record.ljust(RECORD_BYTES - 1) + b"\n"
        room -= 8


def decode_entries(content: bytes) -> Sequence[JournalEntry]:
    """The entries of the file, oldest first. A record that a crash has cut is none: its act did not begin."""
    found: list[JournalEntry] = []
    for start in range(0, len(content), RECORD_BYTES):
        try:
            number, token, at, what = json.loads(content[start : start + RECORD_BYTES])
        except (ValueError, TypeError):
            continue
        found.append(JournalEntry(int(number), str(token), str(at), str(what)))
    return sorted(found, key=lambda entry: entry.number)


def unknown_entries(entries: Sequence[JournalEntry], known: Mapping[int, str]) -> Sequence[JournalEntry]:
    """The entries that a ledger lacks, which knows these tokens by number."""
    return [entry for entry in entries if known.get(entry.number) != entry.token]


def older_ledger(ledger: Path, lacks: Sequence[JournalEntry]) -> Refused:
    """The refusal of a ledger that lacks entries."""
    shown = "; ".join(map(str, lacks[-_SHOWN:]))
    return Refused(
        f"{ledger} is not the newest ledger of this site: it lacks {several(len(lacks), 'act')} in the journal on the target, "
        f"the last of them: {shown}",
        cause="an older copy of the ledger was restored, or two state directories serve one site",
        hint="restore a newer copy (docs/cutover.md, Backups, has the way if there is none). Nothing was changed",
    )


class JournalUnread(Refused):
    """The journal cannot be read or written, so the ledger may be an older copy."""


class Journal:
    """The journal of one site. Blocking, but never longer than a timeout. `tokens` returns a new random token for each entry.

    The caller serializes `note` over all processes of the site.
    """

    def __init__(self, root: bytes, ledger: Path, clock: Clock, tokens: Callable[[], str]) -> None:
        self._root = root
        self._ledger = ledger
        self._clock = clock
        self._tokens = tokens

    @property
    def path(self) -> bytes:
        """Where the file is."""
        return join(self._root, JOURNAL_NAME)

    def make(self) -> bool:
        """Make the file if it is missing; returns whether it was. For `init`, which accepts a ledger by that. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with Root(self._root) as root:
            try:
                made = os.open(JOURNAL_NAME, flags, _MODE, dir_fd=root.fd)
            except FileExistsError:
                return False
            with held(made) as fd:
                os.fchmod(fd, _MODE)
                os.write(fd, (b" " * (RECORD_BYTES - 1) + b"\n") * RECORDS)
                os.fsync(fd)
            with root.directory(b"") as fd:
                os.fsync(fd)
        return True

    def require_newest(self) -> None:
        """Raise Refused if the ledger lacks an entry, JournalUnread if that is unknown. Changes nothing."""
        with Ledger.open(self._ledger, read_only=True) as ledger:
            self._answered(lambda: self._checked(ledger, os.O_RDONLY))

    def note(self, what: str) -> None:
        """Note an act that is about to begin, first in the ledger and then in the file. Raises as `require_newest`."""
        with Ledger.open(self._ledger) as ledger:
            if ledger.site.read() is not None:
                self._answered(lambda: self._checked(ledger, os.O_RDWR, what))

    def _checked(self, ledger: Ledger, flags: int, what: str = "") -> None:
        with self._opened(flags) as fd:
            entries = decode_entries(os.pread(fd, RECORDS * RECORD_BYTES, 0))
            known = ledger.journal.tokens(entries[0].number) if entries else {}
            if lacks := unknown_entries(entries, known):
                raise older_ledger(self._ledger, lacks)
            if what:
                token, at_s = self._tokens(), self._clock.now_s()
                number = ledger.journal.add(token=token, at_s=at_s, what=what)
                at = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
                os.pwrite(fd, encode_entry(JournalEntry(number, token, at, what)), number % RECORDS * RECORD_BYTES)
                os.fsync(fd)

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        with Root(self._root) as root, held(root.open(JOURNAL_NAME, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as fd:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
                raise self._unread("it is not a file of root's alone")
            fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)
            yield fd

    def _answered(self, work: Callable[[], None]) -> None:
        try:
            DaemonExecutor().submit(work).result(_ANSWER_TIMEOUT_S)
        except FileNotFoundError:
            raise self._unread("it is missing") from None
        except NoAnswerInTime:
            raise self._unread("the target does not answer") from None
        except OSError as error:
            raise self._unread(error.strerror or str(error)) from error

    def _unread(self, why: str) -> JournalUnread:
        return JournalUnread(
            f"the ledger may be an older copy: the journal {show(self.path)} cannot be used: {why}",
            cause="the target is not mounted or does not answer, or the file was removed",
            hint="check with `migrator doctor`; if the file was removed, and the ledger is the newest one, `migrator init` "
            "makes it again",
        )
