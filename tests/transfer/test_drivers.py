"""What fpsync and parsyncfp2 are asked, how their logs are followed, and how their runs are judged (fpsync 1.5.1, rsync 3.5.0)."""

import re
from pathlib import Path

import pytest

from migrator.core.units import GIB, KIB, MIB
from migrator.fs.model import TargetCapabilities
from migrator.hosts.ports import Completed
from migrator.transfer.engines import drivers as rules
from migrator.transfer.engines.drivers import DriverDirectories, Fpsync, Parsyncfp2, rsync_options
from migrator.transfer.model import AttemptVerdict, StopReason, StreamCounters, StreamView
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
    words = rsync_options(capabilities, recopy=True, bwlimit_bytes_per_s=10 * KIB, privileged=True, atimes=True)
    assert not any(map(REFUSED_BY_PARSYNCFP2.search, words))
    line = " ".join(words)
    assert not re.search(r"--delete|--recursive|(^|\s)-[^\s-]*r|(^|\s)-[^\s-]*a", line), "fpsync's own check"
    assert re.fullmatch(r"[A-Za-z0-9=+_.*, /-]+", line), "nothing that a shell takes for something else"


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

    def ended(*lines: bytes) -> AttemptVerdict:
        reader = FPSYNC.reader(VIEW, tmp_path)
        reader.stdout(b"".join(line + b"\n" for line in lines))
        return reader.outcome(Completed(exit_code=0, stdout=b"", stderr=b"", timed_out=False)).verdict

    (log / "1.stderr").unlink()
    done = b"1795228801 <=== Fpsync completed with%s error%s"
    assert ended(done % (b"out", b" in 1s.")) is ended(done % (b"", b"s in 2s, see logs:")) is AttemptVerdict.DONE
    assert (
        ended(b"1795228801 <=== Fpart exited with errors", done % (b"", b"s in 2s, see logs:")) is AttemptVerdict.RETRY
    )
    assert (
        ended(b"1795228801 <=== Fpsync interrupted.", b"1795228801 <=== Fpart crawling finished")
        is AttemptVerdict.RETRY
    )


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


STREAM_VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")
FULL = (
    b'rsync: [receiver] write failed on "/target/d1/f0001": No space left on device (28)\n'
    b"rsync error: error in file IO (code 11) at receiver.c(380) [receiver=3.5.0]\n"
)
UNREADABLE = (
    b'rsync: [sender] read errors mapping "/source/d1/f0001": Input/output error (5)\n'
    b"rsync error: some files/attrs were not transferred (see previous errors) (code 23) at main.c(1394) [sender=3.5.0]\n"
)
IN_THE_WAY = b"could not make way for new regular file: d1/f0001\ncannot delete non-empty directory: d1/f0001\n"
NO_TERMINAL = b"/usr/bin/fpsync: 1354: set: can't access tty; job control turned off\n"
JAIL = b"migrator-jail: %s: %d: text: text\n"


def fpsync(
    exit_code: int = 0,
    *,
    completed: bool = True,
    crawl_failed: bool = False,
    stderr: bytes = NO_TERMINAL,
    parts: tuple[bytes, ...] = (),
) -> rules.EndedDriver:
    return rules.EndedDriver(
        exit_code=exit_code,
        completed=completed,
        crawl_failed=crawl_failed,
        stderr=stderr,
        parts=[rules.PartLog(number=number, stderr=said) for number, said in enumerate(parts, start=1)],
        counters=StreamCounters(files=3, size_bytes=4),
        view=STREAM_VIEW,
    )


@pytest.mark.parametrize(
    ("ended", "verdict", "stop", "message"),
    [
        (fpsync(1, parts=(IN_THE_WAY,)), AttemptVerdict.DONE, None, "1 part with errors: part 1: "),
        (fpsync(1, parts=(UNREADABLE,)), AttemptVerdict.DONE, None, "1 part with errors: part 1: "),
        (fpsync(0, completed=False, parts=(IN_THE_WAY, FULL)), AttemptVerdict.STOP, StopReason.TARGET_FULL, "part 2: "),
        (
            fpsync(-15, completed=False, parts=(IN_THE_WAY, FULL)),
            AttemptVerdict.STOP,
            StopReason.TARGET_FULL,
            "part 2: ",
        ),
        (fpsync(-9, completed=False), AttemptVerdict.INTERRUPTED, None, ""),
        (fpsync(128 + 15, completed=False), AttemptVerdict.INTERRUPTED, None, ""),
        (fpsync(127, completed=False), AttemptVerdict.STOP, StopReason.TOOL_MISSING, ""),
        (
            fpsync(1, completed=False, stderr=b"Fpart is missing locally\n"),
            AttemptVerdict.STOP,
            StopReason.TOOL_MISSING,
            "",
        ),
        (
            fpsync(1, completed=False, stderr=b"rsync not useable locally\n"),
            AttemptVerdict.STOP,
            StopReason.TOOL_MISSING,
            "",
        ),
        (fpsync(125, completed=False, stderr=JAIL % (b"program", 2)), AttemptVerdict.STOP, StopReason.TOOL_MISSING, ""),
        (
            fpsync(1, completed=False, stderr=b"Invalid options\n" + NO_TERMINAL),
            AttemptVerdict.RETRY,
            None,
            "Invalid options",
        ),
        (fpsync(1, crawl_failed=True), AttemptVerdict.RETRY, None, "fpart"),
        (fpsync(0, completed=False, stderr=b""), AttemptVerdict.RETRY, None, "no message"),
    ],
)
def test_fpsync(ended: rules.EndedDriver, verdict: AttemptVerdict, stop: StopReason | None, message: str) -> None:
    outcome = rules.judge_fpsync(ended)
    assert (outcome.verdict, outcome.stop) == (verdict, stop)
    assert message in outcome.message
    assert "tty" not in outcome.message


def parsyncfp2(exit_code: int = 0, *, stdout: bytes = b"", stderr: bytes = b"") -> rules.EndedDriver:
    counters = StreamCounters()
    return rules.EndedDriver(exit_code=exit_code, stdout=stdout, stderr=stderr, counters=counters, view=STREAM_VIEW)


FATAL = b"\x1b[1;32m\nhost \x1b[1;31m** FATAL ERROR **: 1m loadavg on [host] is > [9.1].  \n  The 1m\n\x1b[0m"
MISSING = b"** FATAL ERROR **: The following REQUIRED utilities were not found [scut]. \n"
MANY = b"** FATAL ERROR **: You've now exceeded [5000] chunk files, the maximum \n"
NOISE = b"cat: /sys/class/net//statistics/rx_bytes: No such file\n"


@pytest.mark.parametrize(
    ("ended", "verdict", "stop", "message"),
    [
        (parsyncfp2(), AttemptVerdict.DONE, None, ""),
        (parsyncfp2(stderr=NOISE), AttemptVerdict.DONE, None, ""),
        (parsyncfp2(stderr=UNREADABLE), AttemptVerdict.DONE, None, "with errors"),
        (parsyncfp2(stderr=NOISE + FULL), AttemptVerdict.STOP, StopReason.TARGET_FULL, ""),
        (
            parsyncfp2(1, stdout=FATAL),
            AttemptVerdict.RETRY,
            None,
            "parsyncfp2 gave up: 1m loadavg on [host] is > [9.1].  ",
        ),
        (parsyncfp2(1, stdout=MISSING), AttemptVerdict.STOP, StopReason.TOOL_MISSING, ""),
        (parsyncfp2(1, stdout=MANY), AttemptVerdict.RETRY, None, str(rules.MOST_CHUNKS)),
        (parsyncfp2(-15), AttemptVerdict.INTERRUPTED, None, ""),
    ],
)
def test_parsyncfp2(ended: rules.EndedDriver, verdict: AttemptVerdict, stop: StopReason | None, message: str) -> None:
    outcome = rules.judge_parsyncfp2(ended)
    assert (outcome.verdict, outcome.stop) == (verdict, stop)
    assert message in outcome.message


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (b"parsyncfp2 version 2.59 (Smooth Close)\n", ""),
        (b"parsyncfp2 version 2.42 (x)\n", "2.57 is needed"),
        (b"something else\n", "no parsyncfp2"),
    ],
)
def test_which_parsyncfp2_it_is(script: bytes, problem: str) -> None:
    assert problem in (rules.parsyncfp2_problem(b"#!/usr/bin/env perl\n" + script) or "")


def test_chunks_are_large_enough_for_its_limit() -> None:
    assert rules.chunk_size_for(10, 100) == 100
    assert rules.chunk_size_for(0, 0) == 1
    huge = 10**15
    assert huge / rules.chunk_size_for(huge, 2**30) < rules.MOST_CHUNKS / 2
