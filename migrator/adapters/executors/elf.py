"""Which files a program is made of: itself, the loader it names, and the libraries that the loader finds."""

import struct

_ELF_MAGIC = b"\x7fELF"
_CLASS_64 = 2
_LITTLE_ENDIAN = 1
_PT_INTERP = 3


def interpreter(head: bytes) -> bytes | None:
    """The loader that an ELF program names (PT_INTERP); None for one that is linked statically.

    `head` is the beginning of the file, long enough for its program headers (64 KiB are plenty). Raises ValueError
    where it is no ELF file.
    """
    if head[:4] != _ELF_MAGIC or len(head) < 64:
        raise ValueError("not an ELF program")
    order = "<" if head[5] == _LITTLE_ENDIAN else ">"
    if head[4] == _CLASS_64:
        table, size, count = (*struct.unpack_from(order + "Q", head, 32), *struct.unpack_from(order + "HH", head, 54))
        fields, offset_field, length_field = order + "IIQQQQ", 2, 5
    else:
        table, size, count = (*struct.unpack_from(order + "I", head, 28), *struct.unpack_from(order + "HH", head, 42))
        fields, offset_field, length_field = order + "IIIII", 1, 4
    for number in range(count):
        try:
            header = struct.unpack_from(fields, head, table + number * size)
        except (struct.error, OverflowError) as error:
            raise ValueError("program headers beyond the beginning of the file") from error
        if header[0] == _PT_INTERP:
            offset, length = header[offset_field], header[length_field]
            return head[offset : offset + length].rstrip(b"\0")
    return None


def libraries(listing: bytes) -> tuple[bytes, ...]:
    """The paths in the output of `LOADER --list PROGRAM` (`name => /path (0x...)`, or `/path (0x...)` for the loader).

    Raises ValueError where a library was not found.
    """
    paths: list[bytes] = []
    for line in listing.split(b"\n"):
        name, arrow, found = line.strip().partition(b" => ")
        place = (found if arrow else name).rpartition(b" (0x")[0]
        if arrow and not place.startswith(b"/"):
            raise ValueError(f"a library was not found: {name.decode('ascii', 'backslashreplace')}")
        if place.startswith(b"/"):
            paths.append(place)
    return tuple(dict.fromkeys(paths))
