"""What hosts read, as columns: as a plain loop over dictionaries has it."""

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from migrator.catalog.copy_digests import CopyDigests, no_digests, read_lines
from migrator.catalog.model import ContentReading, ListedPath
from migrator.fs.model import DigestPolicy
from migrator.fs.rules import is_sampled
from migrator.plan.chunk_lists import ListedPaths
from migrator.verify.digests import equal_readings, known_of, reported_of

TREE = b"home/anna"
READING = ContentReading(verification=7, source_clock_ns=None, target_clock_ns=3)
Content = tuple[int, int, int, int, str]
"""Inode, size, mtime, ctime and digest."""

paths = st.sampled_from([TREE, *(TREE + b"/" + name for name in (b"a", b"b", b"c", b"\xff\n", b"e"))])
rows = st.builds(
    lambda path, size_bytes, group, file_bytes: ListedPath(path, size_bytes, group, file_size_bytes=file_bytes),
    paths,
    st.sampled_from([0, 5]),
    st.none() | st.integers(1, 2),
    st.none() | st.sampled_from([0, 9]),
)
contents: st.SearchStrategy[Content] = st.tuples(
    st.integers(0, 2**64 - 1),
    st.sampled_from([0, 5]),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.just(4),
    st.sampled_from(["0f" * 16, "a0" * 16]),
)
told = st.dictionaries(st.integers(0, 9), contents)
chunks = st.lists(st.tuples(st.lists(rows, unique_by=lambda row: row.path), told), max_size=3)


def line(place: int, content: Content) -> bytes:
    return f"D {place} {' '.join(map(str, content))}\n".encode()


def output(content: dict[int, Content]) -> bytes:
    return b"P 1 2\n" + b"".join(line(place, of) for place, of in content.items()) + b"D 1 2"


@given(chunks, told, told, st.sampled_from([1.0, 0.5]))
@example([([ListedPath(TREE + b"/a", 0)], {})], {}, {}, 1.0)
def test_files_of_the_same_size_and_digest_on_both_sides_are_equal(
    listed: list[tuple[list[ListedPath], dict[int, Content]]],
    read: dict[int, Content],
    target: dict[int, Content],
    share: float,
) -> None:
    policy = DigestPolicy(algorithm="xxh3_128", share=share, seed=1)
    expected: dict[bytes, tuple[Content | None, int, ListedPath]] = {}
    for number, (some, lines) in enumerate(listed):
        given_names = [row for row in some if row.path != TREE]
        of_group: dict[int | None, Content | None] = {
            row.link_group: lines[at] for at, row in enumerate(given_names) if row.link_group and at in lines
        }
        for at, row in enumerate(given_names):
            if is_sampled(row.path, policy):
                expected[row.path] = (of_group.get(row.link_group, lines.get(at)), number, row)
    known = known_of(
        [
            reported_of(ListedPaths.of(some).columns, read_lines(output(lines)), tree=TREE, clock_ns=number)
            for number, (some, lines) in enumerate(listed)
        ],
        policy,
    )
    assert list(known.paths) == list(expected)
    unread = [(path, row) for path, (content, _, row) in expected.items() if content is None]
    with_content = any(row.size_bytes if row.file_size_bytes is None else row.file_size_bytes for _, row in unread)
    assert [known.paths[place] for place in known.unread] == ([path for path, _ in unread] if with_content else [])
    source = {path: (content, clock_ns) for path, (content, clock_ns, _) in expected.items() if content is not None}
    equal = equal_readings(known, read_lines(output(read)), read_lines(output(target)), READING)
    whole = {
        **source,
        **{
            known.paths[known.unread[place]]: (content, None)
            for place, content in read.items()
            if place < len(known.unread)
        },
    }
    assert equal.to_pylist() == [
        {
            "path": path,
            **dict(zip(("ino", "size", "mtime_ns", "ctime_ns"), of[:4], strict=True)),
            "target_ino": ino,
            "target_mtime_ns": mtime_ns,
            "target_ctime_ns": ctime_ns,
            "digest": bytes.fromhex(digest),
            "read_by": 7,
            "source_clock_ns": clock_ns,
            "target_clock_ns": 3,
        }
        for place, path in enumerate(known.paths)
        if path in whole and place in target
        for ino, size, mtime_ns, ctime_ns, digest in [target[place]]
        for of, clock_ns in [whole[path]]
        if (of[1], of[4]) == (size, digest)
    ]
    sizes = (row.size_bytes if row.file_size_bytes is None else row.file_size_bytes for _, _, row in expected.values())
    assert known.size_bytes == sum(sizes)


def test_a_line_is_taken_only_as_a_whole_and_if_a_file_can_be_so() -> None:
    content = (12, 5, -7, 8, "0f" * 16)
    one = line(1, content).rstrip()
    columns = read_lines(b"P 1 2\n" + one + b"\nX" + one)
    assert [tuple(row.values()) for row in columns.to_pylist()] == [(1, *content[:4], content[4].encode())]
    assert not any(len(read_lines(one[:end])) for end in range(len(one)))
    assert len(read_lines(line(1, (2**64, 5, 1, 1, "0f" * 16)))) == 0


def test_digests_of_a_copy_are_kept_by_the_token_of_its_attempt(tmp_path: Path) -> None:
    digests, printed = CopyDigests(tmp_path / "digests"), line(3, (7, 5, -1, 4, "0f" * 16))
    assert digests.read("ab12").num_rows == 0
    for _ in range(2):
        digests.keep("ab12", printed)
    assert digests.read("ab12").equals(read_lines(printed))
    assert digests.read("ab13").num_rows == 0
    (file,) = digests.directory.iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    # A damaged file proves nothing: the source is read.
    assert digests.read("ab12").equals(no_digests())
