"""What benchmarks write: words, sources and blocks, the same for the same seed. Runs on hosts, standard library only."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any

BLOCK_BYTES = 1 << 20
_POOL_BYTES = 1 << 18
_RARE = b"zyzzyva\n"
"""What is searched for: one file has it."""


def words(seed: int) -> bytes:
    """Some text of lines, from which the files of trees are cut."""
    source = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    vocabulary = ["".join(source.choices(letters, range(26, 0, -1), k=source.randint(2, 9))) for _ in range(2000)]
    pieces, size = [], 0
    while size < _POOL_BYTES:
        line = " ".join(source.choices(vocabulary, k=9)) + "\n"
        pieces.append(line)
        size += len(line)
    return "".join(pieces).encode("ascii")


def tree(work: dict[str, Any], seed: int) -> Iterator[tuple[str, bytes]]:
    """The files of a tree: pairs of a path relative to it and of its content."""
    source, pool = random.Random(f"tree {seed}"), words(seed)
    for number in range(work["count"]):
        size = source.randrange(2 * work["size_bytes"] + 1)
        begin = source.randrange(len(pool))
        content = (pool[begin:] + pool * (size // len(pool) + 1))[:size]
        directory = directory_of(number % work["directories"])
        yield f"{directory}/f{number:06d}.txt", (_RARE + content if number == 0 else content)


def directory_of(number: int) -> str:
    """Directories lie in one another, eight in each, as in a tree of sources."""
    names = []
    while True:
        names.append(f"d{number}")
        if number == 0:
            return "/".join(reversed(names))
        number = (number - 1) // 8


def make_tree(work: dict[str, Any], seed: int) -> None:
    """The tree on the file system."""
    made = set()
    for path, content in tree(work, seed):
        full = os.path.join(os.fsdecode(work["path"]), path)
        parent = os.path.dirname(full)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        with open(full, "wb") as file:
            file.write(content)


def make_archive(work: dict[str, Any], seed: int) -> None:
    """The tree as a tar, packed where its name says so."""
    with open(work["path"], "wb") as file:
        packed = work["path"].endswith(b".tgz")
        stream = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0) if packed else file
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for path, content in tree(work, seed):
                entry = tarfile.TarInfo("tree/" + path)
                entry.size, entry.mode = len(content), 0o644
                archive.addfile(entry, io.BytesIO(content))
        if packed:
            stream.close()


def make_sources(work: dict[str, Any], seed: int) -> None:
    """C sources that include common headers, and a Makefile."""
    source = random.Random(f"sources {seed}")
    place = os.fsdecode(work["path"])
    os.makedirs(place, exist_ok=True)
    for number in range(8):
        lines = [f"struct s{number}_{field} {{ long a; struct s{number}_{field} *next; }};" for field in range(60)]
        _write(f"{place}/common{number}.h", [f"#ifndef H{number}", f"#define H{number}", *lines, "#endif"])
    objects = []
    for number in range(work["count"]):
        lines = [f'#include "common{header}.h"' for header in range(8)]
        for function in range(6):
            header, field = source.randrange(8), source.randrange(60)
            kind = f"struct s{header}_{field}"
            lines += [
                f"long f{number}_{function}({kind} *p, long n) {{",
                f"  long t = {source.randrange(1000)};",
                "  for (; p; p = p->next) { t = t * 31 + p->a; if (t > n) t -= n; }",
                "  return t;",
                "}",
            ]
        _write(f"{place}/u{number:06d}.c", lines)
        objects.append(f"u{number:06d}.o")
    _write(
        f"{place}/Makefile",
        [
            "OBJECTS = " + " ".join(objects),
            "all: library.a",
            "library.a: $(OBJECTS)",
            "\t@rm -f $@ && ar qcS $@ $(OBJECTS)",
            "%.o: %.c",
            "\t@cc -O1 -c -o $@ $<",
            "clean:",
            "\t@rm -f library.a $(OBJECTS)",
        ],
    )


def _write(path: str, lines: Iterable[str]) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


def blocks(seed: int, name: bytes, number: int, size: int) -> Iterator[memoryview]:
    """The content of one file of a transfer, block by block: no two blocks are the same. Each is good until the next one is
    asked for: it costs next to no time, which is measured together with what is done with it.
    """
    length = min(BLOCK_BYTES, max(size, 8))
    drawn = random.Random(f"{seed} {name!r} {number}").getrandbits(8 * length)
    block = bytearray(drawn.to_bytes(length, "big"))
    done = 0
    while done < size:
        block[:8] = done.to_bytes(8, "big")
        piece = min(length, size - done)
        yield memoryview(block)[:piece]
        done += piece
