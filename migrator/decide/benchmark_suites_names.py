"""Suites that work on names and small files: recursive, catalog, build, latency."""

from migrator.decide.benchmark_steps import GB, TITLES, entries, scaled
from migrator.domain.benchmark import Program, Step, Suite, SuiteName, Unit, Work, WorkKind
from migrator.domain.units import KIB, format_count, format_duration, format_size

READ_THREADS = 17


def recursive(scale: float) -> Suite:
    """Ls -lR, du -sh, grep -ri over a tree."""
    files, directories = scaled(28_619, scale, 20), scaled(1_814, scale, 2)
    mean_bytes = round(5.6 * GB / 28_619)
    tree = Work(kind=WorkKind.TREE, path=b"tree", count=files, size_bytes=mean_bytes, directories=directories)
    return Suite(
        name=SuiteName.RECURSIVE,
        title=TITLES[SuiteName.RECURSIVE],
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
        need_bytes=files * mean_bytes + entries(files + directories),
        need_inodes=files + directories,
    )


def catalog(scale: float) -> Suite:
    """Subdirectories and files, made, listed, opened and deleted."""
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
        title=TITLES[SuiteName.CATALOG],
        scale=scale,
        sizes=f"{format_count(count)} subdirectories, {format_count(count)} files",
        steps=(*steps, mdtest),
        need_bytes=count * most_bytes + entries(count),
        need_inodes=count + 4,
    )


def _many(kind: WorkKind, path: bytes, count: int, size_bytes: int = 0) -> Work:
    return Work(kind=kind, path=path, count=count, size_bytes=size_bytes)


def build(scale: float) -> Suite:
    """A parallel compile."""
    count = scaled(2_000, scale, 8)
    sources = Work(kind=WorkKind.SOURCES, path=b"sources", count=count)
    clean = Step(name="clean", title="what was built is removed", lanes=(_make(b"clean"),), programs=("make",))
    return Suite(
        name=SuiteName.BUILD,
        title=TITLES[SuiteName.BUILD],
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


def latency(scale: float) -> Suite:
    """Many readers of one file."""
    duration_s = max(0.2, 11 * scale)
    sizes = (429, 93_347)
    return Suite(
        name=SuiteName.LATENCY,
        title=TITLES[SuiteName.LATENCY],
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
        need_bytes=sum(sizes) + entries(2),
        need_inodes=2,
    )
