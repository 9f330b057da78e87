"""Digests of the content of files."""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from typing import Protocol

import xxhash

from migrator.ports.filesystem import Digest

_READ_BYTES = 4 * 1024 * 1024


class _Hash(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


DIGEST_ALGORITHMS: Mapping[str, Callable[[], _Hash]] = {
    "xxh3_128": xxhash.xxh3_128,
    "blake2b": hashlib.blake2b,
    "sha256": hashlib.sha256,
}
"""What `digest` can do. xxh3_128 finds every accident; the others withstand somebody who makes collisions too."""


def require_algorithm(algorithm: str) -> None:
    """Raises ValueError for an algorithm that is not known."""
    if algorithm not in DIGEST_ALGORITHMS:
        known = ", ".join(DIGEST_ALGORITHMS)
        raise ValueError(f"unknown digest algorithm {algorithm!r}; known: {known}")


def digest_of(fd: int, algorithm: str, path: bytes) -> Digest:
    """The digest of an open regular file, read from its begin; `path` is for errors. Its clean pages are dropped from the page
    cache before it is read. One that grows is read little further than it went at first, and told as changed.

    Raises OSError, also (EINVAL) where it is no regular file.
    """
    hasher = DIGEST_ALGORITHMS[algorithm]()
    before = os.fstat(fd)
    if not stat.S_ISREG(before.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    # One byte more than the file has, so that growth shows in the first read already.
    buffer = memoryview(bytearray(min(before.st_size + 1, _READ_BYTES)))
    size_bytes = 0
    # No further than that: whoever goes on writing to it must not keep the reader for ever.
    while size_bytes <= before.st_size and (count := os.readv(fd, [buffer])):
        hasher.update(buffer[:count])
        size_bytes += count
    changed = size_bytes != before.st_size or _content_facts(before) != _content_facts(os.fstat(fd))
    return Digest(value=hasher.digest(), size_bytes=size_bytes, changed=changed)


def _content_facts(facts: os.stat_result) -> tuple[int, int, int]:
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
