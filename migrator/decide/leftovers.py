"""Telling the temporary files of an ended stream from users' files.

rsync makes a file under `.NAME.XXXXXX` in the directory of NAME (receiver.c, get_tmpname): one leading dot of NAME is
dropped, a long NAME is cut to 246 bytes (whole characters of several bytes at the cut are dropped), a dot at the end
is dropped. XXXXXX is mkstemp's for files; links, devices and symlinks have up to six digits there.

`migrator-native copy` makes a file under `.migrator-copy-HEX` and puts the ranges of a big one into `.migrator-part-HEX`,
both in the directory of NAME, HEX being the BLAKE2b digest of 16 bytes of NAME (`copy_places.c`), with marks of the
ranges that have arrived in `.migrator-marks-HEX`. A part file and its marks are no leftovers while their file may still
be finished from them: the chunk of files that it belongs to renames or removes them.
"""

import hashlib
import re
from collections.abc import Collection

from migrator.decide.expectations import TEMPORARY_PREFIX

_STEM_LIMIT_BYTES = 246
_SUFFIX = re.compile(rb"\.([A-Za-z0-9]{6}|[0-9]{1,6})\Z")
_COPY_PREFIX = b".migrator-copy-"
_PART_PREFIX = b".migrator-part-"
_MARKS_PREFIX = b".migrator-marks-"
_HASH_BYTES = 16
_DESCRIPTOR_COPY = re.compile(re.escape(TEMPORARY_PREFIX) + rb"[0-9a-f]+\Z")


def temporary_stem(name: bytes) -> bytes:
    """What stands between the leading dot and the suffix in the temporary name of a file of this name."""
    kept = name[1:] if name.startswith(b".") else name
    stem = kept[:_STEM_LIMIT_BYTES]
    if len(kept) > _STEM_LIMIT_BYTES and kept[_STEM_LIMIT_BYTES] & 0x80:
        stem = stem.rstrip(bytes(range(0x80, 0x100)))
    return stem[:-1] if stem.endswith(b".") else stem


def copy_name(name: bytes) -> bytes:
    """Under which name `migrator-native copy` makes a file of this name."""
    return _COPY_PREFIX + _hash(name)


def part_name(name: bytes) -> bytes:
    """Under which name the ranges of a file of this name come together."""
    return _PART_PREFIX + _hash(name)


def marks_name(name: bytes) -> bytes:
    """Under which name it is told which ranges of a file of this name have arrived."""
    return _MARKS_PREFIX + _hash(name)


def temporary_marks(name: bytes) -> tuple[bytes, ...]:
    """What `is_leftover` knows the temporary files of a name by, whichever engine made them."""
    return temporary_stem(name), copy_name(name)


def is_leftover(candidate: bytes, marks: Collection[bytes]) -> bool:
    """Whether a name looks like the temporary file of one of the names that have these marks, or of a copy by
    descriptor. Only a look at the source tells whether it is a user's file all the same.
    """
    return bool(_DESCRIPTOR_COPY.match(candidate)) or is_stream_leftover(candidate, marks)


def is_stream_leftover(candidate: bytes, marks: Collection[bytes]) -> bool:
    """As `is_leftover`, of streams alone: copies by descriptor may be under way in the same directory."""
    if candidate.startswith(_COPY_PREFIX) and candidate in marks:
        return True
    suffix = _SUFFIX.search(candidate)
    return candidate.startswith(b".") and suffix is not None and candidate[1 : suffix.start()] in marks


def _hash(name: bytes) -> bytes:
    return hashlib.blake2b(name, digest_size=_HASH_BYTES).hexdigest().encode("ascii")
