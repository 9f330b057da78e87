"""Telling the temporary files of an ended stream from users' files.

rsync makes a file under `.NAME.XXXXXX` in the directory of NAME (receiver.c, get_tmpname): one leading dot of NAME is
dropped, a long NAME is cut to 246 bytes (whole characters of several bytes at the cut are dropped), a dot at the end
is dropped. XXXXXX is mkstemp's for files; links, devices and symlinks have up to six digits there.
"""

import re
from collections.abc import Collection

from migrator.decide.expectations import TEMPORARY_PREFIX

_STEM_LIMIT_BYTES = 246
_SUFFIX = re.compile(rb"\.([A-Za-z0-9]{6}|[0-9]{1,6})\Z")
_DESCRIPTOR_COPY = re.compile(re.escape(TEMPORARY_PREFIX) + rb"[0-9a-f]+\Z")


def temporary_stem(name: bytes) -> bytes:
    """What stands between the leading dot and the suffix in the temporary name of a file of this name."""
    kept = name[1:] if name.startswith(b".") else name
    stem = kept[:_STEM_LIMIT_BYTES]
    if len(kept) > _STEM_LIMIT_BYTES and kept[_STEM_LIMIT_BYTES] & 0x80:
        stem = stem.rstrip(bytes(range(0x80, 0x100)))
    return stem[:-1] if stem.endswith(b".") else stem


def is_leftover(candidate: bytes, stems: Collection[bytes]) -> bool:
    """Whether a name looks like the temporary file of one of the names that have these stems, or of a copy by
    descriptor. Only a look at the source tells whether it is a user's file all the same.
    """
    return bool(_DESCRIPTOR_COPY.match(candidate)) or is_stream_leftover(candidate, stems)


def is_stream_leftover(candidate: bytes, stems: Collection[bytes]) -> bool:
    """As `is_leftover`, of streams alone: copies by descriptor may be under way in the same directory."""
    suffix = _SUFFIX.search(candidate)
    return candidate.startswith(b".") and suffix is not None and candidate[1 : suffix.start()] in stems
