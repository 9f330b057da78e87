"""What is in the files of a lab: derived from the seed and the file's path, so that every byte can be checked."""

import hashlib
import random
from collections.abc import Iterator

BLOCK_BYTES = 1024 * 1024


def seeded_random(seed: int, *scope: bytes) -> random.Random:
    """A generator of its own for every scope, so that what one part draws does not move the others."""
    key = hashlib.blake2b(b"\0".join((b"%d" % seed, *scope)), digest_size=16).digest()
    return random.Random(key)  # noqa: S311 (invented users, not secrets: repeatable is the point)


def content_blocks(seed: int, path: bytes, size_bytes: int) -> Iterator[bytes]:
    """The content of a file, in blocks of at most 1 MiB. A shorter size gives a prefix of a longer one."""
    for number in range((size_bytes + BLOCK_BYTES - 1) // BLOCK_BYTES):
        length = min(BLOCK_BYTES, size_bytes - number * BLOCK_BYTES)
        yield hashlib.shake_128(b"%d\0%d\0%s" % (seed, number, path)).digest(length)


def file_content(seed: int, path: bytes, size_bytes: int) -> bytes:
    """The whole content of a small file."""
    return b"".join(content_blocks(seed, path, size_bytes))
