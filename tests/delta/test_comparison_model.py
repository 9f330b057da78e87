"""Whatever happens to some trees: what a comparison lists makes the target the same again, and sends nothing else."""

import copy
import shutil
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.catalog.ports import Scratch
from migrator.core.entry import EntryType
from migrator.delta.model import ChangeKind
from migrator.delta.store import Comparisons
from tests.delta.changing_trees import Source, Step, Target, change
from tests.support.catalogs import closed_catalogs, write_catalog

TREES = (b"home/a", b"home/b")
_OPERATIONS = (
    *("file", "directory", "directory", "symlink", "remove", "link", "write", "write_back", "mode"),
    *("rename", "rename", "rename", "exchange", "time_back"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(_OPERATIONS), st.integers(0, 40), st.integers(0, 40), st.integers(0, 4)), max_size=30
)
SEED_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["file", "file", "directory", "directory", "symlink", "link", "time_back"]),
        st.integers(0, 40),
        st.integers(0, 40),
        st.integers(0, 4),
    ),
    max_size=30,
)


def show_hidden_writes(before: Source, after: Source) -> None:
    """Give a time to writes that nobody can see: to a file that was also renamed, with size and mtime put back. A rename
    changes ctime by itself.
    """
    olds = {inode.number: (path, inode) for path, inode in before.names.items()}
    for path, inode in after.names.items():
        old_path, old = olds.get(inode.number, (path, inode))
        if path != old_path and (inode.size_bytes, inode.mtime_ns) == (old.size_bytes, old.mtime_ns):
            inode.mtime_ns += inode.content - old.content


def unchanged_but_sent(before: Source, after: Source, target: Target, unsettled: Sequence[bytes]) -> list[bytes]:
    """Files with one name that are sent although nothing was done to them."""
    found = []
    for path in target.sent:
        inode = after.names[path]
        if inode.type is EntryType.DIRECTORY or after.nlink(inode) > 1 or path in unsettled:
            continue
        was = before.names.get(path)
        if was is not None and (was.number, was.ctime_ns) == (inode.number, inode.ctime_ns):
            found.append(path)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=SEED_STEPS,
    steps=STEPS,
    gfids=st.sampled_from([(False, False), (True, True), (False, True), (True, False)]),
    doubt=st.sets(st.integers(0, 40), max_size=3),
    doubtful_tree=st.booleans(),
)
def test_applying_a_comparison_makes_the_target_the_same(
    tmp_path: Path,
    *,
    seed: list[Step],
    steps: list[Step],
    gfids: tuple[bool, bool],
    doubt: set[int],
    doubtful_tree: bool,
) -> None:
    source = Source(TREES)
    for step in seed:
        change(source, step)
    before, target = copy.deepcopy(source), Target(source)
    paths = sorted(set(source.names) - set(TREES))
    unsettled = sorted({paths[index % len(paths)] for index in doubt}) if paths else []
    unsettled_trees = TREES[1:] if doubtful_tree else ()
    for path, held in target.names.items():
        if path in unsettled or any(path.startswith(tree + b"/") for tree in unsettled_trees):
            held.content, held.mode = -5, 0
    for step in steps:
        change(source, step)
    show_hidden_writes(before, source)

    shutil.rmtree(tmp_path / "catalogs", ignore_errors=True)
    for name, state, gfid in (("base", before, gfids[0]), ("now", source, gfids[1])):
        write_catalog(tmp_path / "catalogs", state.entries(gfids=gfid), TREES, name=name)
    comparisons = Comparisons(closed_catalogs(tmp_path / "catalogs"), scratch=Scratch(tmp_path / "tmp"), threads=1)
    with comparisons.open(
        "base", "now", trees=TREES, unsettled=unsettled, unsettled_trees=unsettled_trees
    ) as comparison:
        renames, gone = list(comparison.renames()), list(comparison.gone())
        listings = list(comparison.listings([TREES]))
        changes = comparison.changes

    target.move(renames, gone)
    target.receive(source, listings)
    assert target.differences(source) == []
    assert len(target.sent) == len(set(target.sent))
    assert changes.tally(ChangeKind.RENAMED).paths == len(renames)
    assert changes.tally(ChangeKind.VANISHED).paths == sum(one.names for one in gone)
    if not doubtful_tree:
        # What lay in a directory that moved, or that was renamed besides, is under another path or was changed.
        assert unchanged_but_sent(before, source, target, unsettled) == []
    if before.entries() == source.entries() and not unsettled and not doubtful_tree:
        assert changes.nothing
        assert not listings
