"""The layout of directories on BeeGFS: which rule is for which, that every directory gets its own, also after a kill, and
what differs on the target.
"""

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.beegfs.model import DirectorySettings, LaidOut, LayoutRule, StripeSettings
from migrator.beegfs.rules_layout import describe_layout_rule, size_rules, tree_settings
from migrator.catalog.files import ClosedCatalogs
from migrator.catalog.ports import Scratch
from migrator.core.entry import UserTree
from migrator.core.errors import Refused, ToolFailed
from migrator.core.paths import parent
from migrator.fs.model import SurpriseKind
from migrator.fs.writing import MountedTarget
from migrator.plan import store
from migrator.plan.layout import layout_problems
from migrator.plan.model import Plan, Surprise, TreeUsage
from migrator.plan.rules_surprises import layout_surprises
from migrator.plan.store import CatalogQueryFiles
from migrator.transfer.layouts import lay_out
from tests.support.catalogs import directory, invented, write_catalog
from tests.support.making import made

TREE = b"home/a\xff"
WIDE, POOLED, TWO = StripeSettings(targets=8), StripeSettings(targets=3, pool="fast"), StripeSettings(targets=2)
HUGE = LayoutRule(stripe=WIDE, larger_than_bytes=1000)
LARGE = LayoutRule(stripe=POOLED, larger_than_bytes=100)
HOMES = LayoutRule(stripe=TWO, trees=("home/*",))
ROOT = StripeSettings(targets=4, chunk_bytes=1 << 19)


def test_the_first_rule_that_fits_counts() -> None:
    elsewhere = LayoutRule(stripe=WIDE, trees=("work/*", "home/b"))
    rules = (HUGE, elsewhere, LARGE, HOMES, LayoutRule(stripe=WIDE, larger_than_bytes=1))
    assert (size_rules(rules, TREE), tree_settings(rules, TREE)) == ((HUGE, LARGE), TWO)
    assert (size_rules(rules, b"home/b"), tree_settings(rules, b"home/b")) == ((HUGE,), WIDE)
    assert tree_settings(rules, b"home/a/b") is None
    assert (
        describe_layout_rule(LARGE)
        == "directories of files above 100 B: new files over 3 storage targets in storage pool fast"
    )


@dataclass
class Target(MountedTarget):
    """A directory whose subdirectories inherit settings when they are made, and the command that sets them."""

    top: Path
    given: dict[bytes, StripeSettings] = field(default_factory=dict)
    fails_at: int | None = None
    calls: list[Sequence[bytes]] = field(default_factory=list)
    looked: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(bytes(self.top))
        self.make(b"home")
        self.given[b"home"] = ROOT

    def make(self, path: bytes) -> None:
        there = self.top / path.decode("utf-8", "surrogateescape")
        if path and path not in self.given:
            self.make(parent(path))
            there.mkdir(exist_ok=True)
            self.given[path] = self.given.get(parent(path), ROOT)

    def make_directory(self, path: bytes) -> bool:
        whole = super().make_directory(path)
        if whole:
            self.make(path)
        return whole

    async def directory(self, path: bytes) -> DirectorySettings:
        self.looked.append(path.removeprefix(self.root + b"/"))
        return DirectorySettings(stripe=ROOT, storage_pool=1)

    async def set_stripe(self, paths: Sequence[bytes], stripe: StripeSettings) -> None:
        if len(self.calls) == self.fails_at:
            self.fails_at = None
            raise ToolFailed("no answer")
        self.calls.append(paths)
        for path in paths:
            below = path.removeprefix(self.root + b"/")
            before = self.given[below]
            self.given[below] = StripeSettings(
                targets=stripe.targets or before.targets,
                chunk_bytes=stripe.chunk_bytes or before.chunk_bytes,
                pool=stripe.pool or before.pool,
            )

    def lay_out(
        self,
        rules: Sequence[LayoutRule],
        layouts: Callable[[str, Any], Mapping[bytes, Sequence[LaidOut]]],
        trees: Sequence[bytes] = (TREE,),
    ) -> list[str]:
        async def blocking(work: Callable[[], bool], *, timeout_s: float) -> bool:
            return work()

        said: list[str] = []
        world = SimpleNamespace(target=self, storage=self, layouts=layouts, blocking=blocking)
        invocation: Any = SimpleNamespace(
            world=world,
            request=SimpleNamespace(layout=tuple(rules), stall_timeout_s=9.0),
            report=lambda *words: said.append(words[-1]),
        )
        asyncio.run(lay_out(invocation, "catalog-1", trees))
        return said


_PATHS = st.lists(st.sampled_from([b"x", b"y\n", b"z\xfe"]), max_size=3).map(b"/".join)
_SIZES = st.lists(st.sampled_from([0, 1, 50, 101, 900, 1001, 5000]), max_size=4)


@settings(max_examples=15, deadline=None)
@given(
    st.dictionaries(_PATHS, _SIZES, max_size=9),
    st.sampled_from([(HUGE, LARGE, HOMES), (LARGE,), (HUGE, HOMES), (HOMES,)]),
    st.none() | st.integers(0, 4),
)
def test_every_directory_gets_the_layout_of_its_own_files(
    below: Mapping[bytes, Sequence[int]], rules: Sequence[LayoutRule], fails_at: int | None
) -> None:
    held = {b"/".join((TREE, path)) if path else TREE: sizes for path, sizes in below.items()}
    for path in list(held):
        while (path := parent(path)).startswith(TREE):
            held.setdefault(path, [])
    held.setdefault(TREE, [])
    entries = [directory(b"home"), *(directory(path) for path in sorted(held))]
    for path, sizes in held.items():
        entries += [invented(b"%s/f%d" % (path, number), size_bytes=size) for number, size in enumerate(sizes)]
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        record = write_catalog(here, entries, [TREE])
        catalogs = CatalogQueryFiles(ClosedCatalogs(here, lambda _: record), scratch=Scratch(here / "tmp"), threads=1)

        def layouts(_: str, asked: Mapping[bytes, Sequence[LayoutRule]]) -> Mapping[bytes, Sequence[LaidOut]]:
            with catalogs.open("catalog-1") as queries:
                return queries.laid_out(asked)

        (here / "target").mkdir()
        target = Target(here / "target", fails_at=fails_at)
        target.make(TREE)
        target.given[TREE] = base = StripeSettings(
            targets=2 if HOMES in rules else 4, chunk_bytes=ROOT.chunk_bytes, pool=None
        )
        try:
            target.lay_out(rules, layouts)
        except Refused:
            target.lay_out(rules, layouts)  # as the same command does
        for path in sorted(held):
            target.make(path)
        sized = size_rules(rules, TREE)
        classed = {
            path: next(
                (
                    one
                    for one in sized
                    if 2 * sum(size for size in sizes if size > (one.larger_than_bytes or 0)) > sum(sizes)
                ),
                None,
            )
            for path, sizes in held.items()
        }
        for path, rule in classed.items():
            assert target.given[path].targets == (rule.stripe.targets if rule else base.targets), path
            # Who has no rule below a directory in another pool goes back to the pool of the tree.
            assert (target.given[path].pool == "fast") == (rule is not None and rule.stripe.pool == "fast")
        with catalogs.open("catalog-1") as queries:
            found = queries.layout_surprises({TREE: sized} if sized else {})
        assert {one.detail: one.count for one in found} == {
            describe_layout_rule(one): list(classed.values()).count(one) for one in sized if one in classed.values()
        }


def test_only_the_directories_with_the_most_bytes_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_LAID_OUT", 2)
    entries = [directory(TREE)]
    for number in range(4):
        entries += [directory(TREE + b"/%d" % number), invented(TREE + b"/%d/f" % number, size_bytes=5000 + number)]
    record = write_catalog(tmp_path, entries, [TREE])
    catalogs = CatalogQueryFiles(ClosedCatalogs(tmp_path, lambda _: record), scratch=Scratch(tmp_path / "tmp"))
    with catalogs.open("catalog-1") as queries:
        assert [one.path for one in queries.laid_out({TREE: (HUGE,)})[TREE]] == [TREE + b"/2", TREE + b"/3"]


def test_directories_with_files_keep_their_settings_and_nothing_is_asked_without_a_rule(tmp_path: Path) -> None:
    target = Target(tmp_path)
    for name in (b"old", b"new"):
        target.make(TREE + b"/" + name)
    (tmp_path / "home" / "a\udcff" / "old" / "file").touch()
    laid_out = [LaidOut(path=TREE + b"/" + name, rule=HUGE) for name in (b"new", b"old")]
    assert target.lay_out([HUGE], lambda _, __: {TREE: laid_out}) == [
        "the layout of 1 directory in home/a\\xff is set",
    ]
    assert target.calls == [[target.root + b"/" + TREE + b"/new"]]

    def asked(*_: object) -> Mapping[bytes, Sequence[LaidOut]]:
        raise AssertionError("a catalog is read")

    assert target.lay_out([HOMES], asked) == []


def test_a_file_or_symlink_in_the_way_does_not_stop_the_run(tmp_path: Path) -> None:
    """The seed pass of a later plan replaces it; the directory then inherits."""
    target = Target(tmp_path)
    target.make(TREE)
    there = tmp_path / "home" / "a\udcff"
    (there / "file").touch()
    (there / "symlink").symlink_to("/tmp")
    laid_out = [
        LaidOut(path=TREE + b"/" + name, rule=HUGE)
        for name in (b"file", b"file/deep", b"new", b"symlink", b"symlink/deep")
    ]
    target.lay_out([HUGE], lambda _, __: {TREE: laid_out})
    assert target.calls == [[target.root + b"/" + TREE + b"/new"]]
    assert sorted(path.name for path in there.iterdir()) == ["file", "new", "symlink"]


def test_trees_share_commands(tmp_path: Path) -> None:
    """And a directory without a rule gets the settings that its tree inherited."""
    target = Target(tmp_path)
    trees = [b"home/u%d" % number for number in range(9)]
    laid_out = {
        tree: [LaidOut(path=tree + b"/big", rule=HUGE), LaidOut(path=tree + b"/big/small", rule=None)] for tree in trees
    }
    said = target.lay_out([HUGE], lambda _, __: laid_out, trees)
    assert [len(paths) for paths in target.calls] == [9, 9]
    assert target.looked == [b"home"]
    assert said == [f"the layout of 2 directories in home/u{number} is set" for number in range(9)]
    assert {target.given[tree + b"/big/small"] for tree in trees} == {ROOT}


def test_a_directory_that_no_command_can_name_does_not_stop_the_run(tmp_path: Path) -> None:
    """A path of 4096 bytes or more is in no command, and inherits."""
    target = Target(tmp_path)
    deep = b"/".join([TREE, *[b"d" * 250] * 17])
    laid_out = [LaidOut(path=path, rule=HUGE) for path in (TREE + b"/new", deep)]
    target.lay_out([HUGE], lambda _, __: {TREE: laid_out})
    assert target.calls == [[target.root + b"/" + TREE + b"/new"]]


class Storage:
    """Directories by absolute path."""

    def __init__(self, found: Mapping[bytes, DirectorySettings]) -> None:
        self.found = found
        self.asked: list[int] = []

    async def pools(self) -> Mapping[str, int]:
        return {"fast": 2, "2": 2}

    async def directory(self, path: bytes) -> DirectorySettings:
        if path not in self.found:
            raise ToolFailed("no answer")
        return self.found[path]

    async def directories(self, paths: Sequence[bytes]) -> Sequence[DirectorySettings]:
        self.asked.append(len(paths))
        return [await self.directory(path) for path in paths]


def test_directories_with_another_layout_are_named() -> None:
    big = made(
        Surprise, kind=SurpriseKind.LAYOUT, tree=TREE, detail=describe_layout_rule(LARGE), examples=(TREE + b"/big",)
    )
    of_tree = tuple(
        layout_surprises([made(TreeUsage, tree=UserTree(path=one, user="u")) for one in (TREE, b"work/b")], [HOMES])
    )
    plan = made(Plan, surprises=(big, *of_tree))
    good = {
        b"/t/" + TREE: DirectorySettings(stripe=StripeSettings(targets=2, chunk_bytes=9), storage_pool=1),
        b"/t/" + TREE + b"/big": DirectorySettings(stripe=StripeSettings(targets=3, chunk_bytes=9), storage_pool=2),
    }

    def problems(found: Mapping[bytes, DirectorySettings], *rules: LayoutRule) -> Sequence[str]:
        storage: Any = Storage(found)
        return asyncio.run(layout_problems(plan, [TREE], rules, storage, b"/t"))

    assert problems(good, LARGE, HOMES) == []
    assert problems({}) == ()  # the rules are others now
    swapped = dict(zip(good, reversed(good.values()), strict=True))
    first, second = problems(swapped, LARGE, HOMES)
    assert first.startswith("new files in home/a\\xff are spread over 3 storage targets in chunks of 9 B, not over 2 ")
    assert "in storage pool 1, not over 3 storage targets in storage pool fast" in second
    (unknown,) = problems({}, HOMES)
    assert "unknown: home/a\\xff: no answer" in unknown


def test_many_directories_are_asked_about_at_once() -> None:
    """Thousands of users have as many directories: one command for each would take hours."""
    trees = [b"home/u%d" % number for number in range(250)]
    plan = made(
        Plan,
        surprises=tuple(
            layout_surprises([made(TreeUsage, tree=UserTree(path=one, user="u")) for one in trees], [HOMES])
        ),
    )
    good = DirectorySettings(stripe=StripeSettings(targets=2, chunk_bytes=9), storage_pool=1)
    storage: Any = Storage(dict.fromkeys([b"/t/" + one for one in trees], good))
    assert asyncio.run(layout_problems(plan, trees, [HOMES], storage, b"/t")) == []
    assert storage.asked == [100, 100, 50]
    storage.found[b"/t/home/u7"] = DirectorySettings(stripe=StripeSettings(targets=3, chunk_bytes=9), storage_pool=1)
    (problem,) = asyncio.run(layout_problems(plan, trees, [HOMES], storage, b"/t"))
    assert problem.startswith("new files in home/u7 are spread over 3 storage targets")
