"""Reads what `migrator-native copy` tells on standard output as it comes (`copy_events.c` describes the lines)."""

import os
import re
from collections.abc import Mapping, Sequence

from migrator.decide.direct_outcome import PathEvent, parse_event
from migrator.domain.transfer import StreamCounters

_PROGRESS = re.compile(rb"P ([0-9]{1,18}) ([0-9]{1,18})")
_DIGEST = re.compile(rb"D ([0-9]{1,18}) ([0-9a-f]{128})")
_LONGEST_LINE_BYTES = 4096


class DirectProgress:
    """Takes pieces cut anywhere; `counters` never goes back. Memory is bounded by the number of listed paths."""

    def __init__(self, paths: int) -> None:
        self._paths = paths
        self._rest = b""
        self._counters = StreamCounters()
        self._events: dict[int, PathEvent] = {}
        self._digests: dict[int, bytes] = {}
        self._garbled = False

    @property
    def counters(self) -> StreamCounters:
        """What has arrived so far."""
        return self._counters

    @property
    def events(self) -> Sequence[PathEvent]:
        """What was told of paths, in the order of telling; the first word about a path counts."""
        return tuple(self._events.values())

    @property
    def digests(self) -> Mapping[int, bytes]:
        """By the path's place in the list."""
        return self._digests

    @property
    def garbled(self) -> bool:
        """Whether something was told that cannot be understood, or a line was cut off."""
        return self._garbled or bool(self._rest)

    def take(self, piece: bytes) -> None:
        """The next piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > _LONGEST_LINE_BYTES:
            # Nothing that is read here is that long: drop it, so that memory stays flat whatever is said.
            self._garbled, self._rest = True, self._rest[-_LONGEST_LINE_BYTES:]

    def _line(self, line: bytes) -> None:
        if match := _PROGRESS.fullmatch(line):
            files, size_bytes = int(match[1]), int(match[2])
            self._counters = StreamCounters(
                files=max(files, self._counters.files), size_bytes=max(size_bytes, self._counters.size_bytes)
            )
        elif (event := parse_event(line, os.strerror)) is not None and event.index < self._paths:
            self._events.setdefault(event.index, event)
        elif (match := _DIGEST.fullmatch(line)) and int(match[1]) < self._paths:
            self._digests[int(match[1])] = bytes.fromhex(match[2].decode("ascii"))
        else:
            self._garbled = True
