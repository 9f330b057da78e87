"""The walk of a mounted file system: every entry once, and in an order that can be resumed."""

import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from migrator.catalog.walk_rows import decode_listings, decode_rows
from migrator.gluster.walks import FrameKind, WalkFrames, decode_end, decode_problems
from tests.gluster.walks import Walk

TREES = (b"home/alice", b"home/bob")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "mounted"
    for user in ("alice", "bob"):
        for number in range(40):
            directory = root / "home" / user / f"d{number}"
            directory.mkdir(parents=True)
            for file in range(number % 7):
                (directory / f"f{file}").write_text("data")
    wide = root / "home" / "alice" / "wide"
    wide.mkdir()
    for number in range(1200):
        (wide / f"file-{number}").touch()
    for number in range(300):
        (wide / f"directory-{number}").mkdir()
    deep = root / "home" / "bob" / "deep"
    (deep / "/".join(f"{level:050}" for level in range(60))).mkdir(parents=True)
    return root


def truth(root: Path) -> set[bytes]:
    return {bytes(path.relative_to(root)) for path in root.rglob("*")}


def frames(
    program: Sequence[str], root: Path, *, begin: Sequence[bytes] = (), **options: object
) -> Iterator[tuple[FrameKind, list[bytes]]]:
    """The frames of a walk in order, each with its paths."""
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    words += ["--begin", str(len(begin))] if begin else []
    done = subprocess.run(
        [*program, "walk", "--mount", str(root), "--listings", *words],
        input=b"".join(path + b"\0" for path in (*TREES, *begin)),
        capture_output=True,
        check=True,
    )
    reader = WalkFrames()
    for kind, payload in reader.feed(done.stdout):
        match kind:
            case FrameKind.ROWS | FrameKind.DIRECTORIES:
                rows = decode_rows(payload, trees=TREES, brick=None, dev=1)
                yield kind, [path or b"" for path in rows.column("path").to_pylist()]
            case FrameKind.LISTINGS:
                yield kind, [path or b"" for path in decode_listings(payload, brick=None).column("path").to_pylist()]
            case FrameKind.PROBLEMS:
                yield kind, [problem.path for problem in decode_problems(payload).unreadable]
            case FrameKind.END:
                assert decode_end(payload).problems == 0
            case FrameKind.HELLO | FrameKind.FINDINGS:
                assert kind is FrameKind.HELLO
    reader.finish()


def above(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


@pytest.mark.parametrize(("workers", "block_rows"), [(1, 4096), (2, 5), (16, 64), (16, 4096), (64, 1)])
def test_a_directory_is_listed_after_its_rows_and_after_the_one_above(
    walker_argv: list[str], tree: Path, workers: int, block_rows: int
) -> None:
    rows, listed = Counter[bytes](), list[bytes]()
    rows_before: dict[bytes, int] = {}
    in_directory = Counter[bytes]()
    for kind, paths in frames(walker_argv, tree, workers=workers, block_rows=block_rows):
        if kind is not FrameKind.LISTINGS:
            rows.update(paths)
            in_directory.update(map(above, paths))
            continue
        for path in paths:
            assert not path or above(path) in rows_before, path
            rows_before[path] = in_directory[path]
            listed.append(path)
    expected = truth(tree)
    assert set(rows) == expected
    assert set(rows.values()) == {1}
    assert len(listed) == len(set(listed)) == 1 + sum((tree / path.decode()).is_dir() for path in expected)
    assert rows_before == {path: in_directory[path] for path in rows_before}


def test_directories_to_begin_with_are_read_and_have_their_trees(walker_argv: list[str], tree: Path) -> None:
    begin = (b"home/alice/d6", b"home/bob")
    read = [path for _, paths in frames(walker_argv, tree, begin=begin, workers=4) for path in paths]
    inside = {path for path in truth(tree) if path.startswith((b"home/alice/d6/", b"home/bob/"))}
    assert set(read) - set(begin) == inside


def test_hidden_paths_are_left_out_and_mount_points_are_reported(walk: Walk, tree: Path) -> None:
    hidden, mounted = b"home/alice/wide", b"home/bob/d3"
    walked = walk(
        tree,
        mount=True,
        trees=(*TREES, hidden, b"home/bob/d4/f1", mounted),
        more=["--hidden", "2", "--mounted", "1"],
    )
    assert [(one.path, one.operation) for one in walked.failed] == [(mounted, "open")]
    kept_out = (hidden, b"home/bob/d4/f1", mounted)
    assert set(walked.rows) == {
        path for path in truth(tree) if not any(path == one or path.startswith(one + b"/") for one in kept_out)
    }
    assert walked.rows[b"home/bob/d4/f0"]["tree"] == b"home/bob"
