"""The field's suites as plans of steps: what is prepared, what is measured, and how much room that needs.

At scale 1 counts and sizes are those that were published (docs/benchmarks.md says where they came from, and where a choice
had to be made). Counts and sizes shrink together with the scale, durations too.
"""

from collections.abc import Callable

from migrator.domain.benchmark import Lane, Program, Step, Suite, SuiteName, Unit, Work, WorkKind
from migrator.domain.units import GIB, KIB, MIB, format_count, format_duration, format_size

MB, GB = 1_000_000, 1_000_000_000

PARALLEL_WRITERS = 10
FILES_PER_HOST = 2
READ_THREADS = 17
RANDOM_JOBS = 4
RANDOM_BLOCK_BYTES = 4 * KIB
_BLOCK_BYTES = MIB
_ENTRY_BYTES = 4 * KIB
"""What an entry takes at most beside its content: an inode with its name, and the last block of a file."""


def suite(name: SuiteName, scale: float) -> Suite:
    """A suite at a scale. Raises ValueError for a scale that is not above 0."""
    if not scale > 0:
        raise ValueError("a scale is above 0")
    return _SUITES[name](scale)


def suite_title(name: SuiteName) -> str:
    """What a suite is, in one line."""
    return _TITLES[name]


def scaled(amount: float, scale: float, least: int = 1) -> int:
    """An amount at a scale, but not less than `least`."""
    return max(least, round(amount * scale))


def _streaming(scale: float) -> Suite:
    file_bytes = _blocks(2 * GB, scale)
    count = file_bytes // _BLOCK_BYTES

    def writes(prefix: str, lanes: int) -> tuple[Lane, ...]:
        return tuple(_dd(b"if=/dev/zero", b"of=%s-%d" % (prefix.encode(), lane), count) for lane in range(lanes))

    def reads(prefix: str, lanes: int) -> tuple[Lane, ...]:
        return tuple(
            Program(argv=(b"dd", b"if=%s-%d" % (prefix.encode(), lane), b"of=/dev/null", b"bs=1M"))
            for lane in range(lanes)
        )

    many, few = PARALLEL_WRITERS * file_bytes, FILES_PER_HOST * file_bytes
    return Suite(
        name=SuiteName.STREAMING,
        title=_TITLES[SuiteName.STREAMING],
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
            _remove("many-*"),
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
            Step(
                name="ior",
                title="IOR, one process, POSIX: write",
                lanes=(
                    Program(
                        argv=(
                            b"ior",
                            b"-a",
                            b"POSIX",
                            b"-w",
                            b"-r",
                            b"-e",
                            b"-t",
                            b"1m",
                            b"-b",
                            b"%dm" % count,
                            b"-o",
                            b"ior",
                        ),
                        report="ior",
                    ),
                ),
                unit=Unit.BYTES_PER_S,
                size_bytes=file_bytes,
                programs=("ior",),
            ),
        ),
        need_bytes=many + few + 2 * file_bytes,
        need_inodes=2 * PARALLEL_WRITERS,
    )


def _dd(source: bytes, target: bytes, count: int) -> Program:
    return Program(argv=(b"dd", source, target, b"bs=1M", b"count=%d" % count, b"conv=fsync"))


def _untar(scale: float) -> Suite:
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
            directories=_directories(count),
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
            _remove("tree", "*.tgz", "*.tar"),
        ]
    return Suite(
        name=SuiteName.UNTAR,
        title=_TITLES[SuiteName.UNTAR],
        scale=scale,
        sizes=f"{format_count(small)} files of {format_size(small_bytes)} on average; {format_count(larger)} of "
        f"{format_size(larger_bytes)}",
        steps=tuple(steps),
        need_bytes=max(2 * small * small_bytes, 2 * larger * larger_bytes) + _entries(max(small, larger)),
        need_inodes=2 * max(small, larger),
    )


def _small_writes(scale: float) -> Suite:
    size_bytes = scaled(20 * GB, scale, 100 * KIB)
    few_bytes = scaled(size_bytes, 0.01, 100)
    return Suite(
        name=SuiteName.SMALL_WRITES,
        title=_TITLES[SuiteName.SMALL_WRITES],
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


def _recursive(scale: float) -> Suite:
    files, directories = scaled(28_619, scale, 20), scaled(1_814, scale, 2)
    mean_bytes = round(5.6 * GB / 28_619)
    tree = Work(kind=WorkKind.TREE, path=b"tree", count=files, size_bytes=mean_bytes, directories=directories)
    return Suite(
        name=SuiteName.RECURSIVE,
        title=_TITLES[SuiteName.RECURSIVE],
        scale=scale,
        sizes=f"{format_count(directories)} directories, {format_count(files)} files, {format_size(files * mean_bytes)}",
        steps=(
            Step(name="tree", title="the tree is made", lanes=(tree,)),
            *(
                Step(name=name, title=title, lanes=(Program(argv=argv),), unit=Unit.SECONDS, programs=(name,))
                for name, title, argv in (
                    ("ls", "ls -lR", (b"ls", b"-lR", b"tree")),
                    ("du", "du -sh", (b"du", b"-sh", b"tree")),
                    ("grep", "grep -ri", (b"grep", b"-ri", b"zyzzyva", b"tree")),
                )
            ),
        ),
        need_bytes=files * mean_bytes + _entries(files + directories),
        need_inodes=files + directories,
    )


def _catalog(scale: float) -> Suite:
    count, most_bytes = scaled(10_000, scale, 10), 100 * KIB
    steps = [
        Step(name=name, title=title, lanes=(lane,), unit=Unit.SECONDS, programs=programs, size_bytes=size_bytes)
        for name, title, lane, programs, size_bytes in (
            ("make-directories", "make subdirectories", _many(WorkKind.MAKE_DIRECTORIES, b"d", count), (), 0),
            ("list-directories", "list subdirectories, ls -al", Program(argv=(b"ls", b"-al", b"d")), ("ls",), 0),
            ("remove-directories", "delete subdirectories", _many(WorkKind.REMOVE_DIRECTORIES, b"d", count), (), 0),
            ("make-files", "make empty files, one process", _many(WorkKind.MAKE_FILES, b"f", count), (), 0),
            ("list-files", "list empty files, ls -al", Program(argv=(b"ls", b"-al", b"f")), ("ls",), 0),
            ("open-files", "open empty files without reading", _many(WorkKind.OPEN_FILES, b"f", count), (), 0),
            ("remove-files", "delete empty files", _many(WorkKind.REMOVE_FILES, b"f", count), (), 0),
            (
                "make-sized-files",
                f"make files of random size up to {format_size(most_bytes)}",
                _many(WorkKind.MAKE_FILES, b"s", count, most_bytes),
                (),
                0,
            ),
            ("remove-sized-files", "delete files of random size", _many(WorkKind.REMOVE_FILES, b"s", count), (), 0),
        )
    ]
    argv = (b"mdtest", b"-n", b"%d" % count, b"-i", b"1", b"-d", b"mdtest")
    mdtest = Step(
        name="mdtest",
        title="mdtest, one process: files made per second",
        lanes=(Program(argv=argv, report="mdtest"),),
        unit=Unit.OPERATIONS_PER_S,
        programs=("mdtest",),
    )
    return Suite(
        name=SuiteName.CATALOG,
        title=_TITLES[SuiteName.CATALOG],
        scale=scale,
        sizes=f"{format_count(count)} subdirectories, {format_count(count)} files",
        steps=(*steps, mdtest),
        need_bytes=count * most_bytes + _entries(count),
        need_inodes=count + 4,
    )


def _many(kind: WorkKind, path: bytes, count: int, size_bytes: int = 0) -> Work:
    return Work(kind=kind, path=path, count=count, size_bytes=size_bytes)


def _build(scale: float) -> Suite:
    count = scaled(2_000, scale, 8)
    sources = Work(kind=WorkKind.SOURCES, path=b"sources", count=count)
    clean = Step(name="clean", title="what was built is removed", lanes=(_make(b"clean"),), programs=("make",))
    return Suite(
        name=SuiteName.BUILD,
        title=_TITLES[SuiteName.BUILD],
        scale=scale,
        sizes=f"{format_count(count)} C sources",
        steps=(
            Step(name="sources", title="the sources are made", lanes=(sources,)),
            *(
                step
                for jobs in (8, 32)
                for step in (
                    Step(
                        name=f"make-{jobs}",
                        title=f"make -j{jobs}",
                        lanes=(_make(b"-j%d" % jobs),),
                        unit=Unit.SECONDS,
                        programs=("make", "cc"),
                    ),
                    clean,
                )
            ),
        ),
        need_bytes=count * 64 * KIB,
        need_inodes=3 * count + 20,
    )


def _make(argument: bytes) -> Program:
    return Program(argv=(b"make", b"-s", b"-C", b"sources", argument))


def _latency(scale: float) -> Suite:
    duration_s = max(0.2, 11 * scale)
    sizes = (429, 93_347)
    return Suite(
        name=SuiteName.LATENCY,
        title=_TITLES[SuiteName.LATENCY],
        scale=scale,
        sizes=f"{READ_THREADS} readers of one file for {format_duration(duration_s)}",
        steps=tuple(
            step
            for size_bytes in sizes
            for step in (
                Step(
                    name=f"file-{size_bytes}",
                    title="the file is made",
                    lanes=(Work(kind=WorkKind.ONE_WRITE, path=b"file-%d" % size_bytes, size_bytes=size_bytes),),
                ),
                Step(
                    name=f"read-{size_bytes}",
                    title=f"{READ_THREADS} readers of one file of {format_count(size_bytes)} bytes, mean",
                    lanes=(
                        Work(
                            kind=WorkKind.READ_AGAIN,
                            path=b"file-%d" % size_bytes,
                            threads=READ_THREADS,
                            duration_s=duration_s,
                        ),
                    ),
                    unit=Unit.MILLISECONDS,
                ),
            )
        ),
        need_bytes=sum(sizes) + _entries(2),
        need_inodes=2,
    )


def _transfer(scale: float) -> Suite:
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
        steps.append(_remove(name))
    return Suite(
        name=SuiteName.TRANSFER,
        title=_TITLES[SuiteName.TRANSFER],
        scale=scale,
        sizes=", ".join(shown),
        steps=tuple(steps),
        need_bytes=need_bytes,
        need_inodes=100,
    )


def _random(scale: float) -> Suite:
    size_bytes = max(MIB, _blocks(GIB, scale))
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
            b"time_based": b"1",
            b"group_reporting": b"1",
            b"randrepeat": b"1",
            b"output-format": b"json",
        }
        if direction == b"randwrite":
            options[b"fsync"] = b"32"
        return Program(argv=(b"fio", *(b"--%s=%s" % pair for pair in options.items())), report="fio")

    return Suite(
        name=SuiteName.RANDOM,
        title=_TITLES[SuiteName.RANDOM],
        scale=scale,
        sizes=f"{RANDOM_JOBS} files of {format_size(size_bytes)}, blocks of {format_size(RANDOM_BLOCK_BYTES)}, {seconds} s",
        steps=(
            Step(
                name="files",
                title="the files are made",
                lanes=tuple(
                    _dd(b"if=/dev/urandom", b"of=random.%d" % job, size_bytes // MIB) for job in range(RANDOM_JOBS)
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


def _remove(*patterns: str) -> Step:
    """What is not needed any more makes room. Names are the suite's own; `rm` gets them through a pattern of the program."""
    lanes = tuple(Work(kind=WorkKind.REMOVE, path=pattern.encode()) for pattern in patterns)
    return Step(name="remove", title="what was measured is removed", lanes=lanes, cold=False)


def _blocks(full_bytes: float, scale: float) -> int:
    return scaled(full_bytes / _BLOCK_BYTES, scale) * _BLOCK_BYTES


def _directories(files: int) -> int:
    return max(1, files // 16)


def _entries(count: int) -> int:
    return count * _ENTRY_BYTES


_TITLES = {
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

_SUITES: dict[SuiteName, Callable[[float], Suite]] = {
    SuiteName.STREAMING: _streaming,
    SuiteName.UNTAR: _untar,
    SuiteName.SMALL_WRITES: _small_writes,
    SuiteName.RECURSIVE: _recursive,
    SuiteName.CATALOG: _catalog,
    SuiteName.BUILD: _build,
    SuiteName.LATENCY: _latency,
    SuiteName.TRANSFER: _transfer,
    SuiteName.RANDOM: _random,
}
