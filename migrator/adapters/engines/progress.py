"""Reads rsync's standard output as it comes: `--out-format=%i --info=progress2,stats2 --no-human-readable`.

No name is ever on it. Lines end with a newline, progress with a carriage return:

    >f+++++++++
            6000000  49%  284.54MB/s    0:00:00 (xfr#2, to-chk=4/7)
    Number of regular files transferred: 2
    Total transferred file size: 6,000,000 bytes
"""

import re

from migrator.domain.transfer import StreamCounters

_ITEM = re.compile(rb"[<>ch.][fdLDS][^ ]{9,}")
_PROGRESS = re.compile(rb" *([0-9]+) +[0-9]+% +[^ ]+ +[0-9:?]+(?: +\(xfr#([0-9]+), (?:to|ir)-chk=[0-9]+/[0-9]+\))?")
_TRANSFERRED_FILES = re.compile(rb"Number of regular files transferred: ([0-9,.]+)")
_TRANSFERRED_BYTES = re.compile(rb"Total transferred file size: ([0-9,.]+) bytes")
_ENDS = re.compile(rb"[\r\n]")
_LONGEST_LINE_BYTES = 4096


class ProgressParser:
    """Takes pieces cut anywhere; `counters` never goes back.

    Files are regular files whose content was sent, and other paths that were made or changed, directories aside: as
    everywhere, what is counted as a file is every path but those. Bytes are those of the files' content, as far as
    they were sent.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._others = 0
        self._transferred = 0
        self._size_bytes = 0

    @property
    def counters(self) -> StreamCounters:
        """What has arrived so far."""
        return StreamCounters(files=self._transferred + self._others, size_bytes=self._size_bytes)

    def take(self, piece: bytes) -> None:
        """The next piece."""
        *lines, self._rest = _ENDS.split(self._rest + piece)
        for line in lines:
            self._line(line)
        if len(self._rest) > _LONGEST_LINE_BYTES:
            # Nothing that is read here is that long: drop it, so that memory stays flat whatever is said.
            self._rest = self._rest[-_LONGEST_LINE_BYTES:]

    def _line(self, line: bytes) -> None:
        if match := _PROGRESS.match(line):
            self._size_bytes = max(self._size_bytes, int(match[1]))
            if match[2]:
                self._transferred = max(self._transferred, int(match[2]))
        elif _ITEM.fullmatch(line):
            if line[:1] not in (b"<", b">") and line[1:2] != b"d":
                self._others += 1
        elif match := _TRANSFERRED_FILES.match(line):
            self._transferred = max(self._transferred, _number(match[1]))
        elif match := _TRANSFERRED_BYTES.match(line):
            self._size_bytes = max(self._size_bytes, _number(match[1]))


def _number(text: bytes) -> int:
    return int(text.replace(b",", b"").replace(b".", b""))
