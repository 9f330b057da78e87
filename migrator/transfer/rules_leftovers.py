"""Distinguishing the temporary files of an ended stream from users' files. Pure.

rsync creates a file under `.NAME.XXXXXX` in the directory of NAME (receiver.c, get_tmpname). It drops one leading dot
of NAME, cuts a long NAME to 246 bytes (and drops whole multi-byte characters at the cut), and drops a dot at the end.
XXXXXX is mkstemp's for files; links, devices and symlinks have up to six digits there.

`migrator-native copy` creates a file under `.migrator-copy-HEX` and puts the ranges of a big one into
`.migrator-part-HEX`, both in the directory of NAME. HEX is the XXH3_128 digest of NAME with the seed of the site, so no
user has a file of such a name (`copy_places.c`).
`.migrator-marks-HEX` marks the ranges that have arrived. A part file and its marks are no leftovers while they may
still complete their file: the chunk of that file renames or removes them.
"""

import re
from collections.abc import Collection

import xxhash

from migrator.fs.rules import TEMPORARY_PREFIX

_STEM_LIMIT_BYTES = 246
_SUFFIX = re.compile(rb"\.([A-Za-z0-9]{6}|[0-9]{1,6})\Z")
_COPY_PREFIX = b".migrator-copy-"
_PART_PREFIX = b".migrator-part-"
_MARKS_PREFIX = b".migrator-marks-"
_LINK = re.compile(re.escape(TEMPORARY_PREFIX) + rb"[0-9a-f]{16}\Z")


def temporary_stem(name: bytes) -> bytes:
    """The part of the temporary name between the leading dot and the suffix."""
    kept = name[1:] if name.startswith(b".") else name
    stem = kept[:_STEM_LIMIT_BYTES]
    if len(kept) > _STEM_LIMIT_BYTES and kept[_STEM_LIMIT_BYTES] & 0x80:
        stem = stem.rstrip(bytes(range(0x80, 0x100)))
    return stem[:-1] if stem.endswith(b".") else stem


def copy_name(name: bytes, seed: int) -> bytes:
    """The temporary name of `migrator-native copy` for a file of this name."""
    return _COPY_PREFIX + _hash(name, seed)


def part_name(name: bytes, seed: int) -> bytes:
    """The name under which the ranges of a file of this name are assembled."""
    return _PART_PREFIX + _hash(name, seed)


def marks_name(name: bytes, seed: int) -> bytes:
    """The name of the file that marks the arrived ranges of a file of this name."""
    return _MARKS_PREFIX + _hash(name, seed)


def temporary_marks(name: bytes, seed: int) -> tuple[bytes, ...]:
    """The marks that identify the temporary files of a name, by any engine, for `is_leftover`."""
    return temporary_stem(name), copy_name(name, seed)


def is_leftover(candidate: bytes, marks: Collection[bytes]) -> bool:
    """Whether a name looks like the temporary file of one of the names that have these marks, or a link
    in the making. Only a look-up on the source proves that it is not a user's file.
    """
    return bool(_LINK.match(candidate)) or is_stream_leftover(candidate, marks)


def is_stream_leftover(candidate: bytes, marks: Collection[bytes]) -> bool:
    """As `is_leftover`, for streams only: links may be in the making in the same directory."""
    if candidate.startswith(_COPY_PREFIX) and candidate in marks:
        return True
    suffix = _SUFFIX.search(candidate)
    return candidate.startswith(b".") and suffix is not None and candidate[1 : suffix.start()] in marks


def _hash(name: bytes, seed: int) -> bytes:
    return xxhash.xxh3_128_hexdigest(name, seed=seed).encode("ascii")
