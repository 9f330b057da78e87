"""Blocks of rows as the walkers of bricks write them."""

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any


def padded(data: bytes) -> bytes:
    """Filled up with zeros to a multiple of 8 bytes."""
    return data + bytes(-len(data) % 8)


def _column(code: str, values: Sequence[int]) -> bytes:
    return padded(struct.pack(f"<{len(values)}{code}", *values))


def _bitmap(values: Sequence[bool]) -> bytes:
    """One bit a value, the first one lowest."""
    bits = sum(1 << index for index, value in enumerate(values) if value)
    return padded(bits.to_bytes((len(values) + 7) // 8, "little"))


def block(rows: Sequence[tuple[Any, ...]]) -> bytes:
    """Of rows of type, size, blocks, mtime, atime, ctime, rdev, ino; uid, gid, mode, nlink, largest xattr, kinds of xattrs, entries
    of ACLs, tree (-1: none); path, gfid, target of a symlink, digest of xattrs.
    """
    columns = list(zip(*rows, strict=True))
    types, wide, narrow, variable = columns[0], columns[1:8], columns[8:16], columns[16:20]
    tree, nlink, gfids, targets, digests = narrow[7], narrow[3], *variable[1:]
    pieces = [struct.pack("<5Q", len(types), *(sum(len(value) for value in values if value) for values in variable))]
    pieces += [_column("Q" if index >= 5 else "q", values) for index, values in enumerate(wide)]
    pieces += [_column("I" if index in {0, 1, 3} else "i", values) for index, values in enumerate(narrow)]
    pieces.append(padded(bytes(types)))
    pieces.append(_bitmap([number >= 0 for number in tree]))
    pieces.append(_bitmap([value is not None for value in gfids]))
    pieces.append(_bitmap([count > 1 and kind != 1 for count, kind in zip(nlink, types, strict=True)]))
    pieces += [_bitmap([value is not None for value in values]) for values in (targets, digests)]
    for values in variable:
        held = [value or b"" for value in values]
        pieces += [_column("i", [0, *accumulate(map(len, held))]), padded(b"".join(held))]
    return b"".join(pieces)
