"""What the suites of benchmarks are made of: amounts at a scale, and steps that several have."""

from migrator.domain.benchmark import Program, Step, SuiteName, Work, WorkKind
from migrator.domain.units import KIB, MIB

MB, GB = 1_000_000, 1_000_000_000
BLOCK_BYTES = MIB
ENTRY_BYTES = 4 * KIB
"""What an entry takes at most beside its content: an inode with its name, and the last block of a file."""


def scaled(amount: float, scale: float, least: int = 1) -> int:
    """An amount at a scale, but not less than `least`."""
    return max(least, round(amount * scale))


def blocks(full_bytes: float, scale: float) -> int:
    """Bytes at a scale, as whole blocks."""
    return scaled(full_bytes / BLOCK_BYTES, scale) * BLOCK_BYTES


def entries(count: int) -> int:
    """What so many entries take beside their content."""
    return count * ENTRY_BYTES


def directories_of(files: int) -> int:
    """How many directories so many files of an archive lie in."""
    return max(1, files // 16)


def dd(source: bytes, target: bytes, count: int) -> Program:
    """A dd of so many blocks, synced at its end."""
    return Program(argv=(b"dd", source, target, b"bs=1M", b"count=%d" % count, b"conv=fsync"))


def remove(*patterns: str) -> Step:
    """What is not needed any more makes room. Names are the suite's own; `rm` gets them through a pattern of the program."""
    lanes = tuple(Work(kind=WorkKind.REMOVE, path=pattern.encode()) for pattern in patterns)
    return Step(name="remove", title="what was measured is removed", lanes=lanes, cold=False)


TITLES = {
    SuiteName.STREAMING: "big files: parallel synced writes, one big file, parallel reads (A, B; dd)",
    SuiteName.UNTAR: "archives of many small and of fewer larger files are unpacked (A; tar)",
    SuiteName.SMALL_WRITES: "many writes of 100 bytes against one big write (A)",
    SuiteName.RECURSIVE: "ls -lR, du -sh and grep -ri over a tree (A)",
    SuiteName.CATALOG: "directories and files are made, listed, opened and deleted (B, C; mdtest where installed)",
    SuiteName.BUILD: "a parallel compile of a generated C tree (A; make)",
    SuiteName.LATENCY: "many readers of one small file, percentiles (D)",
    SuiteName.TRANSFER: "files up and down, digests checked (E)",
    SuiteName.RANDOM: "random reads and writes (C; fio)",
}
