"""What a lab is derived from, its odd files, the lab of plain directories, and users at work."""

import asyncio
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.core.clock import SystemClock
from migrator.core.errors import Refused, UsageError
from migrator.hosts.process import LocalProcesses
from migrator.lab.churn import ChurnSummary, lab_churn
from migrator.lab.down import aside_name, lab_down
from migrator.lab.model import LabKind, LabPhase, LabSpec, LabState, OddFiles, OddKind
from migrator.lab.record import read_record
from migrator.lab.up import lab_up
from tests.support.snapshots import snapshot
from tools.tree_contents import read_journal

SPEC = LabSpec(
    directory=b"", kind=LabKind.POSIX, users=4, files=200, data_bytes=2_000_000, reference_time_s=1_750_000_000
)


def bring_up(directory: Path, **fields: int) -> LabState:
    spec = replace(SPEC, directory=os.fsencode(directory), **fields)
    return asyncio.run(lab_up(spec, LocalProcesses(), SystemClock()))


def take_down(directory: Path) -> bool:
    return asyncio.run(lab_down(os.fsencode(directory), LocalProcesses(), SystemClock()))


def churn(state: LabState, journal: Path, operations: int) -> ChurnSummary:
    """Users work on all trees until `operations` are done."""

    async def work() -> ChurnSummary:
        return await lab_churn(
            state.source,
            state.trees,
            journal=os.fsencode(journal),
            rate_per_s=1e6,
            seed=1,
            clock=SystemClock(),
            stop=asyncio.Event(),
            operations=operations,
        )

    return asyncio.run(work())


def comparable(state: LabState) -> dict[bytes, object]:
    """Everything on the source that a copy must keep; of the names of one file how many there are."""
    found = snapshot(state.source)
    return {
        path: (*facts[:7], *(len(fact) if isinstance(fact, tuple) else fact for fact in facts[7:]))
        for path, facts in found.items()
    }


def covered_differences(before: Mapping[bytes, object], after: Mapping[bytes, object], journal: Path) -> set[bytes]:
    """The paths that differ; the journal covers all of them."""
    touched = read_journal(os.fsencode(journal))
    different = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert {path for path in different if not touched.covers(path)} == set()
    return different


def test_up_and_down(scratch: Path) -> None:
    state = bring_up(scratch / "lab")
    assert len(state.trees) == 4
    assert state.phase is LabPhase.UP
    assert read_record(state.spec.directory) == state
    document = tomllib.loads(Path(os.fsdecode(state.site_file)).read_text())
    assert document["source"] == {"kind": "posix", "mount": os.fsdecode(state.source)}
    found = snapshot(state.source)
    assert {
        b"home/" + path.split(b"/")[1] for path in found if path.count(b"/") > 1 and path.startswith(b"home")
    } == set(state.trees)
    assert b"shared/reference.dat" in found
    assert max(map(len, found)) > 5000
    if os.geteuid() == 0:
        assert {found[tree][1] for tree in state.trees} == {20001, 20002, 20003, 20004}
    assert take_down(scratch / "lab")
    assert list(scratch.iterdir()) == []
    assert not take_down(scratch / "lab")


def test_directories_without_a_lab_are_not_removed(scratch: Path) -> None:
    (scratch / "data").mkdir()
    (scratch / "data" / "thesis").write_text("x")
    with pytest.raises(Refused, match="is no lab"):
        take_down(scratch / "data")
    with pytest.raises(Refused, match="not empty"):
        bring_up(scratch / "data")
    for record in ('{"format": "another"}', "{}", "[]", "x"):
        (scratch / "data" / "lab.json").write_text(record)
        with pytest.raises(Refused, match="cannot be read"):
            take_down(scratch / "data")
    assert (scratch / "data" / "thesis").exists()
    with pytest.raises(UsageError, match="users"):
        bring_up(scratch / "lab", users=0)
    with pytest.raises(UsageError, match="blanks"):
        bring_up(scratch / "a lab")
    assert [path.name for path in scratch.iterdir()] == ["data"]


def test_down_of_a_moved_lab_and_after_a_crash(scratch: Path) -> None:
    bring_up(scratch / "lab", files=5)
    (scratch / "lab").rename(scratch / "moved")
    with pytest.raises(Refused, match="was made as"):
        take_down(scratch / "moved")
    # `down` was killed while it removed the directory, an earlier `up` before its directory was in place.
    (scratch / "moved").rename(os.fsdecode(aside_name(os.fsencode(scratch / "lab"), "abc")))
    Path(os.fsdecode(aside_name(os.fsencode(scratch / "lab"), "def"))).mkdir()
    assert not take_down(scratch / "lab")
    assert list(scratch.iterdir()) == []


def test_the_journal_of_a_churn_names_all_that_differs(scratch: Path) -> None:
    journals = []
    for name in ("one", "two"):
        state, journal = bring_up(scratch / name), scratch / f"{name}.journal"
        before = comparable(state)
        summary = churn(state, journal, 600)
        journals.append(journal.read_bytes())
    assert journals[0] == journals[1], "equal seeds"
    assert len(covered_differences(before, comparable(state), journal)) > 200
    assert sum(summary.operations.values()) == 600
    assert summary.refused < 60
    done = {kind for kind, count in summary.operations.items() if count}
    assert {"create", "write", "replace", "rename", "link", "delete", "chmod"} <= done
    assert {"make-directory", "rename-directory"} <= done
    # A journal that named everything would pass the test above, too.
    touched = read_journal(os.fsencode(journal))
    assert len([path for path in before if touched.covers(path)]) < len(before) * 0.9


@pytest.mark.needs_root
def test_every_kind_is_really_there(odd_tree: tuple[Path, OddFiles]) -> None:
    tree, made = odd_tree
    assert made.skipped == {}
    facts = snapshot(os.fsencode(tree))
    assert set(made.paths) == set(OddKind)
    assert all(set(paths) <= set(facts) for paths in made.paths.values())
    assert max(map(len, facts)) > 5000
    assert not [path for path, fact in facts.items() if fact[0] == stat.filemode(stat.S_IFREG | 0o1000)]
