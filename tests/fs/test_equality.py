"""The SQL of comparisons and the compiled program answer "is it the same file?" as the definition in Python does."""

import os
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.catalog.files import rows_of
from migrator.catalog.model import SETTLED_BEFORE_SCAN_S
from migrator.core.entry import Entry, EntryType
from migrator.core.units import NS_PER_S
from migrator.fs.model import RewrittenLinks, TargetCapabilities
from migrator.fs.rules import compare, expected_link
from migrator.fs.rules_equality import (
    FileState,
    is_copy,
    same_attributes_sql,
    same_content_sql,
    same_inode_sql,
    shows_time_sql,
    unchanged_sql,
)
from tests.support.entries import entry
from tests.transfer.native_copy import listed, run_copy

CAPABILITIES = [TargetCapabilities(), TargetCapabilities(time_granularity_ns=NS_PER_S)]
TIMES_NS = [0, 7, 1_700_000_000, 2_000_000_000, -1, -1_300_000_000, -2_000_000_000]
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(EntryType),
        "size_bytes": st.sampled_from([0, 1, 2**62]),
        "uid": st.sampled_from([0, 2**32 - 2]),
        "gid": st.sampled_from([0, 2**32 - 2]),
        "mode": st.sampled_from([0o600, 0o7777]),
        "mtime_ns": st.sampled_from(TIMES_NS),
        "ctime_ns": st.sampled_from([3, 4]),
        "ino": st.sampled_from([4, 2**64 - 1]),
        "dev": st.sampled_from([3, 2**64 - 1]),
        "rdev": st.sampled_from([0, 259]),
        "symlink_target": st.sampled_from([b"a", b"\xff\n"]),
        "xattrs": st.sampled_from([{}, {b"user.a": b"1"}, {b"user.a": b"2"}]),
    },
)
ENTRIES = st.builds(lambda changes: entry(**{"symlink_target": b"a"} | changes), CHANGES)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def answers(database: duckdb.DuckDBPyConnection, one: Entry, other: Entry, *questions: str) -> tuple[Any, ...]:
    """The answer of each piece of SQL about the two rows `a.` and `b.` of a catalog."""
    sides = [rows_of(b"home", [replace(side, path=b"home/f")]) for side in (one, other)]
    for name, rows in zip(("a", "b"), sides, strict=True):
        database.register(name, rows)
    ((*found,),) = database.execute(f"SELECT {', '.join(questions)} FROM a, b").fetchall()
    return tuple(found)


@given(ENTRIES, CHANGES)
def test_sql_finds_a_file_unchanged_as_its_state_does(
    database: duckdb.DuckDBPyConnection, then: Entry, changes: dict[str, Any]
) -> None:
    now = replace(then, **changes)
    same, same_but_inode = answers(
        database, then, now, unchanged_sql("a.", "b."), unchanged_sql("a.", "b.", with_inode=False)
    )
    assert same == (FileState.of(then) == FileState.of(now))
    assert same_but_inode == (FileState.of(then) == FileState.of(replace(now, ino=then.ino)))


@given(ENTRIES, CHANGES, st.sampled_from(CAPABILITIES))
def test_sql_finds_a_copy_as_the_definition_and_the_comparison_of_one_path_do(
    database: duckdb.DuckDBPyConnection, source: Entry, changes: dict[str, Any], capabilities: TargetCapabilities
) -> None:
    target = replace(source, **changes)
    same_content, same_time = answers(
        database,
        source,
        target,
        same_content_sql("a.", "b."),
        shows_time_sql("b.mtime_ns", "a.mtime_ns", granularity=str(capabilities.time_granularity_ns)),
    )
    copied = is_copy(source, target, capabilities)
    assert copied == (same_content and (same_time or source.type is not EntryType.FILE))
    kinds = {difference.kind.value for difference in compare(source, target, capabilities).differences}
    assert copied == kinds.isdisjoint(
        {"type", "size", "symlink-target", "device"} | ({"mtime"} if source.type is EntryType.FILE else set())
    )


@given(ENTRIES, CHANGES)
def test_sql_finds_equal_attributes_as_the_comparison_of_one_path_does(
    database: duckdb.DuckDBPyConnection, source: Entry, changes: dict[str, Any]
) -> None:
    target = replace(source, **changes | {"type": source.type})
    (same,) = answers(database, source, target, same_attributes_sql("a.", "b."))
    kinds = {difference.kind.value for difference in compare(source, target, TargetCapabilities()).differences}
    assert same == kinds.isdisjoint({"owner", "mode", "acl", "xattr"})


G, H = b"g" * 16, b"h" * 16


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({}, {}, True),
        ({}, {"ino": 5}, False),
        ({}, {"dev": 9}, None),
        ({}, {"dev": 9, "ino": 5}, None),
        ({"gfid": G}, {"gfid": G, "dev": 9, "ino": 5}, True),
        ({"gfid": G}, {"gfid": H}, False),
        ({"gfid": G}, {"dev": 9}, True),
        ({}, {"gfid": G, "dev": 9, "ino": 5}, False),
    ],
)
def test_an_inode_is_known_by_its_gfid_or_by_its_number_on_one_device(
    database: duckdb.DuckDBPyConnection, one: dict[str, Any], other: dict[str, Any], *, same: bool | None
) -> None:
    assert answers(database, entry(**one), entry(**other), same_inode_sql("a.", "b.")) == (same,)


@pytest.mark.needs_root
@pytest.mark.parametrize("capabilities", CAPABILITIES)
def test_the_compiled_copy_keeps_an_existing_file_exactly_if_it_is_a_copy(
    tmp_path: Path, capabilities: TargetCapabilities
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    cases = {f"{number}": case for number, case in enumerate(product([b"here", b"longer"], TIMES_NS, TIMES_NS))}
    for name, (_, time_ns, _) in cases.items():
        (source / name).write_bytes(b"full")
        os.utime(source / name, ns=(0, time_ns))
    time.sleep(SETTLED_BEFORE_SCAN_S + 0.1)  # the ctime of a copy has to be later than the source's beyond doubt
    for name, (content, _, time_ns) in cases.items():
        (target / name).write_bytes(content)
        os.utime(target / name, ns=(0, time_ns))
    expected = {}
    for name, (content, *times_ns) in cases.items():
        here, there = (entry(size_bytes=4, mtime_ns=time_ns) for time_ns in times_ns)
        kept = is_copy(here, replace(there, size_bytes=len(content)), capabilities)
        expected[name] = content if kept else b"full"
    granularity = ("--granularity-ns", str(capabilities.time_granularity_ns))
    ran = run_copy(source, target, listed(*(name.encode() for name in cases)), *granularity)
    assert ran.returncode == 0, ran.stderr
    assert {name: (target / name).read_bytes() for name in cases} == expected


LINKS = RewrittenLinks(source=b"/mnt/gl", target=b"/srv/bee/of it")
TEXTS = {
    b"/mnt/gl": b"/srv/bee/of it",
    b"/mnt/gl/": b"/srv/bee/of it/",
    b"/mnt/gl/home/a": b"/srv/bee/of it/home/a",
    b"/mnt/gl//a/./b": b"/srv/bee/of it//a/./b",
    b"/mnt/gl/..a/b../...": b"/srv/bee/of it/..a/b../...",
    b"/mnt/gl/\xff\n'": b"/srv/bee/of it/\xff\n'",
    b"/mnt/glx/a": b"/mnt/glx/a",
    b"/mnt/g": b"/mnt/g",
    b"//mnt/gl/a": b"//mnt/gl/a",
    b"mnt/gl/a": b"mnt/gl/a",
    b"/mnt/gl/../other": b"/mnt/gl/../other",
    b"/mnt/gl/a/..": b"/mnt/gl/a/..",
    b"/srv/bee/of it/a": b"/srv/bee/of it/a",
    b"../gl": b"../gl",
}
"""Texts of symlinks on the source, and on the target."""


def test_a_rewritten_symlink_is_a_copy_and_no_other(database: duckdb.DuckDBPyConnection) -> None:
    capabilities = TargetCapabilities(rewritten_links=LINKS)
    assert {text: expected_link(text, LINKS) for text in TEXTS} == TEXTS
    assert {text: expected_link(text, None) for text in TEXTS} == {text: text for text in TEXTS}
    for text, (there, question) in product(
        TEXTS, [(there, same_content_sql("a.", "b.", links=LINKS)) for there in {*TEXTS, *TEXTS.values()}]
    ):
        link, other = (entry(type=EntryType.SYMLINK, symlink_target=one) for one in (text, there))
        same = TEXTS[text] == there
        assert is_copy(link, other, capabilities) is same, (text, there)
        assert answers(database, link, other, question) == (same,), (text, there)
        compared = compare(link, other, capabilities)
        assert [one.kind.value for one in compared.differences] == ([] if same else ["symlink-target"])
        assert [one.kind.value for one in compared.losses] == (["symlink-rewritten"] if same and text != there else [])


@pytest.mark.needs_root
def test_the_compiled_copy_rewrites_symlinks_as_comparisons_expect(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    texts = {f"{number}": text for number, text in enumerate(TEXTS)}
    for name, text in texts.items():
        os.symlink(text, os.fsencode(source / name))  # noqa: PTH211 - as below
    links = ("--links-from", os.fsdecode(LINKS.source), "--links-to", os.fsdecode(LINKS.target))
    inodes = set()
    for _ in range(2):
        ran = run_copy(source, target, listed(*(name.encode() for name in texts)), *links)
        assert (ran.returncode, ran.stderr) == (0, b"")
        # A Path would be normalised.
        found = {name: os.fsencode(os.readlink(target / name)) for name in texts}  # noqa: PTH115
        assert found == {name: TEXTS[text] for name, text in texts.items()}
        inodes.add(tuple((target / name).lstat().st_ino for name in texts))
    assert len(inodes) == 1
