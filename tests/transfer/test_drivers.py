"""What fpsync and parsyncfp2 are asked, how their logs are followed, and when a run can be gone on with."""

import re
from pathlib import Path

import pytest

from migrator.core.units import GIB, KIB, MIB
from migrator.fs.model import TargetCapabilities
from migrator.hosts.ports import Completed
from migrator.transfer.engines.drivers import (
    DriverDirectories,
    Fpsync,
    Parsyncfp2,
    rsync_words,
)
from migrator.transfer.model import StopReason, StreamCounters, Verdict
from migrator.transfer.ports import DriverView, DriverWork

REFUSED_BY_PARSYNCFP2 = re.compile(r"-[a-zA-Z]+[vh]|-[vh]|--del")
"""Its own checks of rsync's options are crude: anywhere in a word, so that `--archive` and `--hard-links` are refused as too noisy."""

VIEW = DriverView(source_tree=b"/source", target_tree=b"/target", work=b"/work")
FPSYNC = Fpsync([b"/usr/bin/fpsync", b"/usr/bin/fpart", b"/usr/bin/rsync"], privileged=True)
PARSYNCFP2 = Parsyncfp2([b"/opt/pfp/parsyncfp2", b"/opt/pfp/scut"], privileged=True)
RUN = "1795228800-10811"


def work(*, bwlimit: int | None = None, recopy: bool = False) -> DriverWork:
    return DriverWork(
        size_bytes=GIB,
        jobs=4,
        part_files=5000,
        part_bytes=64 * MIB,
        capabilities=TargetCapabilities(),
        bwlimit_bytes_per_s=bwlimit,
        recopy=recopy,
    )


@pytest.mark.parametrize("keeps", [True, False])
def test_options_pass_the_checks_of_both_and_need_no_quotes(keeps: bool) -> None:
    capabilities = TargetCapabilities(
        keeps_acls=keeps,
        keeps_user_xattrs=keeps,
        keeps_hard_links=keeps,
        makes_devices=keeps,
        syncfs_reaches_disks=keeps,
    )
    words = rsync_words(capabilities, recopy=True, bwlimit_bytes_per_s=10 * KIB, privileged=True)
    assert not any(map(REFUSED_BY_PARSYNCFP2.search, words))
    line = " ".join(words)
    assert not re.search(r"--delete|--recursive|(^|\s)-[^\s-]*r|(^|\s)-[^\s-]*a", line), "fpsync's own check"
    assert re.fullmatch(r"[A-Za-z0-9=+_.*, -]+", line), "nothing that a shell takes for something else"


def test_fpsync_is_followed_by_the_logs_of_its_parts(tmp_path: Path) -> None:
    log = tmp_path / "log" / RUN
    log.mkdir(parents=True)
    reader = FPSYNC.reader(VIEW, tmp_path)
    reader.stdout(b"1 => [QMGR] Starting job /work/work/%s/1 (local)\n1 => [QMGR] Start" % RUN.encode())
    reader.stdout(b"ing job /work/work/%s/2 (local)\n" % RUN.encode())
    (log / "1.stdout").write_bytes(b"\r          500  50%  284.54MB/s    0:00:00 (xfr#1, to-chk=4/7)\r")
    (log / "2.stdout").write_bytes(b"\r           70  50%  284.54MB/s    0:00:00 (xfr#2, to-chk=4/7)\r")
    assert reader.counters == StreamCounters(files=3, size_bytes=570)
    with (log / "1.stdout").open("ab") as file:
        file.write(b"Number of regular files transferred: 9\nTotal transferred file size: 1,000 bytes\n")
    (log / "1.stderr").write_bytes(b'rsync: [receiver] write failed on "/target/f": No space left on device (28)\n')
    reader.stdout(b"2 <= [QMGR] Job 10950:1:local finished\n")
    assert reader.counters == StreamCounters(files=11, size_bytes=1070)
    assert reader.trouble is not None
    assert reader.trouble[0] is StopReason.TARGET_FULL
    assert b"No space left" in reader.stderr_tail

    def ended(*lines: bytes) -> Verdict:
        reader = FPSYNC.reader(VIEW, tmp_path)
        reader.stdout(b"".join(line + b"\n" for line in lines))
        return reader.outcome(Completed(exit_code=0, stdout=b"", stderr=b"", timed_out=False)).verdict

    (log / "1.stderr").unlink()
    done = b"1795228801 <=== Fpsync completed with%s error%s"
    assert ended(done % (b"out", b" in 1s.")) is ended(done % (b"", b"s in 2s, see logs:")) is Verdict.DONE
    assert ended(b"1795228801 <=== Fpart exited with errors", done % (b"", b"s in 2s, see logs:")) is Verdict.RETRY
    assert ended(b"1795228801 <=== Fpsync interrupted.", b"1795228801 <=== Fpart crawling finished") is Verdict.RETRY


def test_parsyncfp2_is_followed_by_the_logs_of_its_rsyncs(tmp_path: Path) -> None:
    (tmp_path / ".pfp2").mkdir()
    reader = PARSYNCFP2.reader(VIEW, tmp_path)
    assert reader.counters == StreamCounters()
    log = tmp_path / ".pfp2" / "rsync-log-now_1"
    log.write_bytes(b"2026/11/21 02:40:00 [7] building file list\n2026/11/21 02:40:00 [7] >f+++++++++_1000\n")
    with log.open("ab") as file:
        file.write(b"2026/11/21 02:40:00 [7] cd+++++++++_4096\n2026/11/21 02:40:00 [7] cL+++++++++_7\n2026/11")
    assert reader.counters == StreamCounters(files=2, size_bytes=1000)
    assert reader.counters == StreamCounters(files=2, size_bytes=1000)
    reader.stderr(b'rsync: [receiver] write failed on "/target/f": No space left on dev')
    assert reader.trouble is None
    reader.stderr(b"ice (28)\n")
    assert reader.trouble is not None


def test_their_limits_are_shares() -> None:
    by_fpsync = FPSYNC.command(work(bwlimit=8 * MIB), VIEW).argv
    assert b"--bwlimit=2048" in by_fpsync[by_fpsync.index(b"-o") + 1].split(), "each of its four rsyncs takes as much"
    by_parsyncfp2 = PARSYNCFP2.command(work(bwlimit=8 * MIB), VIEW).argv
    assert b"--maxbw=8192" in by_parsyncfp2
    assert not any(b"bwlimit" in word for word in by_parsyncfp2), "it divides by itself"


@pytest.mark.parametrize("driver", [FPSYNC, PARSYNCFP2])
def test_paths_that_a_shell_would_not_take_as_they_are_are_refused(driver: Fpsync | Parsyncfp2) -> None:
    assert driver.refusal(VIEW) is None
    for path in (b"/home/a b", b"/home/$(id)", b"/home/it's", b"/home/\xff", b"/home/new\nline", b"home"):
        assert driver.refusal(DriverView(source_tree=path, target_tree=b"/target", work=b"/work")) is not None


def test_the_directory_of_a_driver(tmp_path: Path) -> None:
    states = DriverDirectories(tmp_path / "drivers")
    run = states.fresh(1, 2)
    for name in ("parts", "log", ".pfp2"):
        (run / name).mkdir()
    states.clear(1, 2, keep_logs=True)
    assert sorted(path.name for path in run.iterdir()) == [".pfp2", "log"]
    assert list(states.fresh(1, 2).iterdir()) == [], "nothing of an earlier run is used"
    states.clear(1, 2, keep_logs=False)
    states.clear(1, 2, keep_logs=False)
    assert list((tmp_path / "drivers").iterdir()) == []
