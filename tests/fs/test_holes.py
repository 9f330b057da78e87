"""Digests of files with holes: those of the whole content, and the holes are not read."""

import hashlib
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from migrator.core.units import KIB, MIB
from migrator.fs.reading import DIGEST_ALGORITHMS, digest_of
from tests.support.native_builds import SANITIZED, built
from tests.transfer.native_copy import listed

SIZE_BYTES = 256 * MIB
PIECES = {0: b"first", 3 * MIB + 7: b"\xff" * (200 * KIB), 4 * MIB: b"last" * KIB}
Read = Callable[[Path], tuple[str, int]]
"""Returns the digest and the number of bytes that were read."""


def make(path: Path, size_bytes: int = SIZE_BYTES, *, dense: bool = False) -> Path:
    with path.open("wb") as file:
        for _ in range(size_bytes // MIB if dense else 0):
            file.write(bytes(MIB))
        for at, piece in PIECES.items():
            file.seek(at)
            file.write(piece)
        file.truncate(size_bytes)
        os.fsync(file.fileno())
    assert (path.stat().st_blocks * 512 < size_bytes // 2) is not dense
    return path


def by_program(path: Path) -> tuple[str, int]:
    argv = [str(built(*SANITIZED)), "digest", "--tree", str(path.parent)]
    output = subprocess.run(argv, input=listed(os.fsencode(path.name)), capture_output=True, check=True).stdout.decode()
    return output.split("D 0 ")[1].split()[4], int(re.findall(r"P \d+ (\d+)", output)[-1])


def by_reader(path: Path) -> tuple[str, int]:
    def read_bytes() -> int:
        return int(Path("/proc/thread-self/io").read_text().split()[1])

    fd = os.open(path, os.O_RDONLY)
    try:
        before = read_bytes()
        digest = digest_of(fd, "xxh3_128", b"path")
        read = read_bytes() - before
    finally:
        os.close(fd)
    assert (digest.changed, digest.size_bytes) == (False, path.stat().st_size)
    return digest.value.hex(), read


@pytest.mark.parametrize("read", [by_program, by_reader])
def test_holes_are_not_read_and_the_digest_is_that_of_the_content(tmp_path: Path, read: Read) -> None:
    sparse, dense = make(tmp_path / "sparse"), make(tmp_path / "dense", dense=True)
    expected = xxhash.xxh3_128(dense.read_bytes()).hexdigest()
    of_sparse, read_bytes = read(sparse)
    assert (of_sparse, read(dense)[0]) == (expected, expected)
    assert read_bytes < 2 * MIB


@pytest.mark.parametrize("read", [by_program, by_reader])
@pytest.mark.parametrize("size_bytes", [0, 1, 5 * MIB, 5 * MIB + 1])
def test_a_file_that_is_all_hole_has_the_digest_of_zeros(tmp_path: Path, read: Read, size_bytes: int) -> None:
    path = tmp_path / "hole"
    path.touch()
    os.truncate(path, size_bytes)
    assert read(path)[0] == xxhash.xxh3_128(bytes(size_bytes)).hexdigest()


@pytest.mark.parametrize("read", [by_program, by_reader])
def test_blocks_that_the_reported_data_does_not_explain_are_read(tmp_path: Path, read: Read) -> None:
    path = make(tmp_path / "unwritten")
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 8 * MIB, 64 * MIB)
    expected = xxhash.xxh3_128(path.read_bytes()).hexdigest()
    digest, read_bytes = read(path)
    assert digest == expected
    assert read_bytes >= SIZE_BYTES


@pytest.mark.parametrize("algorithm", DIGEST_ALGORITHMS)
def test_every_algorithm_hashes_holes_as_zeros(tmp_path: Path, algorithm: str) -> None:
    path = make(tmp_path / "sparse", 8 * MIB + 300 * KIB)
    fd = os.open(path, os.O_RDONLY)
    try:
        found = digest_of(fd, algorithm, b"path").value
    finally:
        os.close(fd)
    hasher = hashlib.new(algorithm) if algorithm != "xxh3_128" else xxhash.xxh3_128()
    hasher.update(path.read_bytes())
    assert found == hasher.digest()
