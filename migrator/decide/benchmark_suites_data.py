"""Suites that move bytes: streaming, untar, small writes, transfers, random access."""

from migrator.decide.benchmark_steps import (
    BLOCK_BYTES,
    GB,
    MB,
    TITLES,
    blocks,
    dd,
    directories_of,
    entries,
    remove,
    scaled,
)
from migrator.domain.benchmark import Lane, Program, Step, Suite, SuiteName, Unit, Work, WorkKind
from migrator.domain.units import GIB, KIB, MIB, format_count, format_size

PARALLEL_WRITERS = 10
FILES_PER_HOST = 2
RANDOM_JOBS = 4
RANDOM_BLOCK_BYTES = 4 * KIB


def streaming(scale: float) -> Suite:
    """Parallel synced writes, one big file, parallel reads."""
    file_bytes = blocks(2 * GB, scale)
    count = file_bytes // BLOCK_BYTES

    def writes(prefix: str, lanes: int) -> tuple[Lane, ...]:
        return tuple(dd(b"if=/dev/zero", b"of=%s-%d" % (prefix.encode(), lane), count) for lane in range(lanes))

    def reads(prefix: str, lanes: int) -> tuple[Lane, ...]:
        return tuple(
            Program(argv=(b"dd", b"if=%s-%d" % (prefix.encode(), lane), b"of=/dev/null", b"bs=1M"))
            for lane in range(lanes)
        )

    many, few = PARALLEL_WRITERS * file_bytes, FILES_PER_HOST * file_bytes
    return Suite(
        name=SuiteName.STREAMING,
        title=TITLES[SuiteName.STREAMING],
        scale=scale,
        sizes=f"files of {format_size(file_bytes)}; {PARALLEL_WRITERS} at once on each host, then {FILES_PER_HOST}, then one",
        steps=(
            Step(
                name="parallel-write",
                title=f"{PARALLEL_WRITERS} dd write at once, synced",
                lanes=writes("many", PARALLEL_WRITERS),
                unit=Unit.SECONDS,
                size_bytes=many,
                programs=("dd",),
            ),
            remove("many-*"),
            Step(
                name="files-write",
                title=f"{FILES_PER_HOST} files for each host are written at once, synced",
                lanes=writes("few", FILES_PER_HOST),
                unit=Unit.BYTES_PER_S,
                size_bytes=few,
                programs=("dd",),
            ),
            Step(
                name="files-read",
                title=f"the same {FILES_PER_HOST} files are read at once",
                lanes=reads("few", FILES_PER_HOST),
                unit=Unit.BYTES_PER_S,
                size_bytes=few,
                programs=("dd",),
            ),
            Step(
                name="one-write",
                title="one stream writes one big file, synced",
                lanes=writes("one", 1),
                unit=Unit.BYTES_PER_S,
                size_bytes=file_bytes,
                programs=("dd",),
            ),
            Step(
                name="one-read",
                title="one stream reads it",
                lanes=reads("one", 1),
                unit=Unit.BYTES_PER_S,
                size_bytes=file_bytes,
                programs=("dd",),
            ),
            # Not in one call, which would read out of memory what it has written.
            *(
                Step(
                    name=name,
                    title=f"IOR, one process, POSIX: {what}",
                    lanes=(_ior(flags, count),),
                    unit=Unit.BYTES_PER_S,
                    size_bytes=file_bytes,
                    programs=("ior",),
                )
                for name, what, flags in (
                    ("ior", "write", (b"-w", b"-e", b"-k")),
                    ("ior-read", "read of that file", (b"-r", b"-E")),
                )
            ),
        ),
        need_bytes=many + few + 2 * file_bytes,
        need_inodes=2 * PARALLEL_WRITERS,
    )


def _ior(flags: tuple[bytes, ...], count: int) -> Lane:
    return Program(
        argv=(b"ior", b"-a", b"POSIX", *flags, b"-t", b"1m", b"-b", b"%dm" % count, b"-o", b"ior"), report="ior"
    )


def untar(scale: float) -> Suite:
    """Many small files out of an archive, and fewer larger ones."""
    small, larger = scaled(46_000, scale, 10), scaled(30_000, scale, 10)
    small_bytes, larger_bytes = 11 * KIB, round(2 * GB / 30_000)
    steps = []
    for name, title, count, mean_bytes, archive, flags in (
        ("many-small", "many small files, tar xzf", small, small_bytes, b"small.tgz", b"-xzf"),
        ("fewer-larger", "fewer larger files, tar xf", larger, larger_bytes, b"larger.tar", b"-xf"),
    ):
        tree = Work(
            kind=WorkKind.ARCHIVE,
            path=archive,
            count=count,
            size_bytes=mean_bytes,
            directories=directories_of(count),
        )
        steps += [
            Step(name=f"{name}-archive", title="the archive is made", lanes=(tree,)),
            Step(
                name=name,
                title=title,
                lanes=(Program(argv=(b"tar", flags, archive)),),
                unit=Unit.SECONDS,
                size_bytes=count * mean_bytes,
                synced=True,
                programs=("tar", "gzip"),
            ),
            remove("tree", "*.tgz", "*.tar"),
        ]
    return Suite(
        name=SuiteName.UNTAR,
        title=TITLES[SuiteName.UNTAR],
        scale=scale,
        sizes=f"{format_count(small)} files of {format_size(small_bytes)} on average; {format_count(larger)} of "
        f"{format_size(larger_bytes)}",
        steps=tuple(steps),
        need_bytes=max(2 * small * small_bytes, 2 * larger * larger_bytes) + entries(max(small, larger)),
        need_inodes=2 * max(small, larger),
    )


def small_writes(scale: float) -> Suite:
    """Prints of 100 bytes against large writes."""
    size_bytes = scaled(20 * GB, scale, 100 * KIB)
    few_bytes = scaled(size_bytes, 0.01, 100)
    return Suite(
        name=SuiteName.SMALL_WRITES,
        title=TITLES[SuiteName.SMALL_WRITES],
        scale=scale,
        sizes=f"{format_size(size_bytes)}; unbuffered {format_size(few_bytes)}, which is a hundredth",
        steps=(
            Step(
                name="prints",
                title="prints of 100 bytes through a buffer, synced",
                lanes=(Work(kind=WorkKind.PRINTS, path=b"prints", size_bytes=size_bytes),),
                unit=Unit.SECONDS,
                size_bytes=size_bytes,
            ),
            Step(
                name="one-write",
                title="the same in large writes, synced",
                lanes=(Work(kind=WorkKind.ONE_WRITE, path=b"one", size_bytes=size_bytes),),
                unit=Unit.SECONDS,
                size_bytes=size_bytes,
            ),
            Step(
                name="unbuffered",
                title="100-byte writes without a buffer, a hundredth of the bytes, synced",
                lanes=(
                    Program(
                        argv=(
                            b"dd",
                            b"if=/dev/zero",
                            b"of=unbuffered",
                            b"bs=100",
                            b"count=%d" % (few_bytes // 100),
                            b"conv=fsync",
                        ),
                    ),
                ),
                unit=Unit.SECONDS,
                size_bytes=few_bytes,
                programs=("dd",),
            ),
        ),
        need_bytes=2 * size_bytes + few_bytes,
        need_inodes=3,
    )


def transfer(scale: float) -> Suite:
    """Files up and down, in three sizes."""
    sets = (("small", 100, 1 * MB), ("medium", 10, 100 * MB), ("large", 2, 2_000 * MB))
    steps: list[Step] = []
    need_bytes, shown = 0, []
    for name, count, full_bytes in sets:
        size_bytes = scaled(full_bytes, scale, 1_000)
        need_bytes = max(need_bytes, count * size_bytes)
        shown.append(f"{count} x {format_size(size_bytes)}")
        for direction, kind in (("upload", WorkKind.UPLOAD), ("download", WorkKind.DOWNLOAD)):
            steps.append(
                Step(
                    name=f"{direction}-{name}",
                    title=f"{direction} {count} files of {format_size(size_bytes)}",
                    lanes=(Work(kind=kind, path=name.encode(), count=count, size_bytes=size_bytes),),
                    unit=Unit.BYTES_PER_S,
                    size_bytes=count * size_bytes,
                )
            )
        steps.append(remove(name))
    return Suite(
        name=SuiteName.TRANSFER,
        title=TITLES[SuiteName.TRANSFER],
        scale=scale,
        sizes=", ".join(shown),
        steps=tuple(steps),
        need_bytes=need_bytes,
        need_inodes=100,
    )


def random_access(scale: float) -> Suite:
    """Random reads and writes, by fio."""
    size_bytes = max(MIB, blocks(GIB, scale))
    seconds = max(1, round(30 * scale))

    def fio(direction: bytes) -> Lane:
        options = {
            b"name": b"random",
            b"directory": b".",
            b"filename_format": b"random.$jobnum",
            b"rw": direction,
            b"bs": b"%d" % RANDOM_BLOCK_BYTES,
            b"size": b"%d" % size_bytes,
            b"numjobs": b"%d" % RANDOM_JOBS,
            b"ioengine": b"psync",
            b"runtime": b"%d" % seconds,
            b"group_reporting": b"1",
            # Processes of its own would outlive it when it is killed.
            b"thread": b"1",
            b"randrepeat": b"1",
            b"output-format": b"json",
        }
        if direction == b"randwrite":
            options[b"fsync"] = b"32"
        return Program(argv=(b"fio", *(b"--%s=%s" % pair for pair in options.items())), report="fio")

    return Suite(
        name=SuiteName.RANDOM,
        title=TITLES[SuiteName.RANDOM],
        scale=scale,
        sizes=f"{RANDOM_JOBS} files of {format_size(size_bytes)}, blocks of {format_size(RANDOM_BLOCK_BYTES)}, at most {seconds} s",
        steps=(
            Step(
                name="files",
                title="the files are made",
                lanes=tuple(
                    dd(b"if=/dev/urandom", b"of=random.%d" % job, size_bytes // MIB) for job in range(RANDOM_JOBS)
                ),
                programs=("dd",),
            ),
            *(
                Step(name=name, title=title, lanes=(fio(rw),), unit=Unit.OPERATIONS_PER_S, programs=("fio",))
                for name, title, rw in (
                    ("random-read", "fio, random reads", b"randread"),
                    ("random-write", "fio, random writes, a sync after each 32", b"randwrite"),
                )
            ),
        ),
        need_bytes=RANDOM_JOBS * size_bytes,
        need_inodes=RANDOM_JOBS + 2,
    )
