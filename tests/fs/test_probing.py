"""Probes: on a directory of a real file system, and in the ledger."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.probe import ENTRIES, PROBE_NAME, Probe, ProbeSide, ProbeTimes
from migrator.core.units import HOUR_S
from migrator.fs.model import SENTINEL_NAME
from migrator.fs.probing import DirectoryProber
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.ledger.measures import ALL_KEPT_S, KEPT_S

TIMES = ProbeTimes(create_s=0.01, write_s=0.02, sync_s=0.03, stat_s=0.04, unlink_s=0.05, readdir_s=0.06)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "mount"
    found.mkdir()
    (found / os.fsdecode(SENTINEL_NAME)).write_text("site one\n")
    return found


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "state" / "ledger.db", create=True) as found:
        yield found


def prober(root: Path) -> DirectoryProber:
    return DirectoryProber(os.fsencode(root), time.monotonic)


def own(root: Path) -> Path:
    return root / os.fsdecode(PROBE_NAME)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_only_the_entries_stay_and_they_are_made_once(root: Path) -> None:
    for number in range(3):
        prober(root).probe(number)
    inodes = {path.name: path.stat().st_ino for path in own(root).iterdir()}
    prober(root).probe(ENTRIES + 1)

    assert len(inodes) == ENTRIES + 1
    assert {path.name: path.stat().st_ino for path in own(root).iterdir()} == inodes
    assert own(root).stat().st_mode & 0o777 == 0o700


def test_what_a_killed_process_has_left_is_taken_over(root: Path) -> None:
    own(root).mkdir(mode=0o700)
    for name in ("probe-05", "entry-00", "entry-01"):
        (own(root) / name).write_text("left")

    prober(root).probe(5)

    assert sum(path.name.startswith("entry-") for path in own(root).iterdir()) == ENTRIES
    assert not (own(root) / "probe-05").exists()
    (own(root) / "probe-09").write_text("left")
    prober(root).clean()
    assert not own(root).exists()


def test_a_directory_without_a_sentinel_is_left_alone(root: Path) -> None:
    (root / os.fsdecode(SENTINEL_NAME)).unlink()

    for call in (lambda: prober(root).probe(0), prober(root).clean):
        with pytest.raises(OSError, match="sentinel"):
            call()

    assert names(root) == []


def test_a_symlink_and_a_directory_that_others_may_write_to_are_refused(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    own(root).symlink_to(elsewhere)
    for call in (lambda: prober(root).probe(0), prober(root).clean):
        with pytest.raises(OSError, match="directory"):
            call()
    assert list(elsewhere.iterdir()) == []

    own(root).unlink()
    own(root).mkdir()
    own(root).chmod(0o777)
    (own(root) / "probe-00").write_text("somebody's")
    for call in (lambda: prober(root).probe(0), prober(root).clean):
        with pytest.raises(OSError, match="not its own"):
            call()
    assert [path.name for path in own(root).iterdir()] == ["probe-00"]


def test_old_probes_are_thinned_out_and_removed_at_last(ledger: Ledger) -> None:
    now_s = 100.0 * KEPT_S
    for side in ProbeSide:
        for age_s in (KEPT_S + HOUR_S, *(ALL_KEPT_S + 2 * HOUR_S + minute * 60.0 for minute in range(59))):
            ledger.probes.add(Probe(side=side, at_s=now_s - age_s, times=TIMES))
    for number in range(20):
        ledger.probes.add(Probe(side=ProbeSide.SOURCE, at_s=now_s + number, times=TIMES))

    left = ledger.probes.since(ProbeSide.SOURCE, 0.0)

    assert len([one for one in left if one.at_s >= now_s]) == 20
    old = [one for one in left if one.at_s < now_s]
    assert 1 <= len(old) <= 2
    assert min(one.at_s for one in old) >= now_s - KEPT_S
    assert 1 <= len(ledger.probes.since(ProbeSide.TARGET, 0.0)) <= 2


def test_what_was_kept_since_is_told_by_number_whatever_the_clock_was_set_to(ledger: Ledger) -> None:
    assert ledger.probes.last() == 0
    early = Probe(side=ProbeSide.TARGET, at_s=5000.0, times=TIMES)
    ledger.probes.add(early)
    begin = ledger.probes.last()
    assert list(ledger.probes.after(begin)) == []
    later = [Probe(side=side, at_s=100.0, times=TIMES) for side in ProbeSide]
    for probe in later:
        ledger.probes.add(probe)
    found = ledger.probes.after(begin)
    assert [probe for _, probe in found] == later
    assert [number for number, _ in found] == sorted(number for number, _ in found)
    assert ledger.probes.last() == found[-1][0]
    assert [probe for _, probe in ledger.probes.after(0)] == [early, *later]
