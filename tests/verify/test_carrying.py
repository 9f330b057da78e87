"""Which content need not be read again: only what nobody can have changed since it was read."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.catalog.model import ContentReading, ReadContent, VerificationRecord, earlier_verifications
from migrator.core.entry import Entry
from migrator.fs.model import DigestPolicy
from migrator.fs.rules_equality import FileState
from migrator.verify import model as verify
from tests.support.entries import entry
from tests.support.records import verification

CLOCK_NS = 2_000_000_000_000_000_000
OLD_NS = CLOCK_NS - verify.CTIME_MARGIN_NS
SOURCE = entry(ctime_ns=OLD_NS, ino=7)
TARGET = entry(ctime_ns=OLD_NS - 1, ino=2**63)
READING = ContentReading(verification=3, source_clock_ns=CLOCK_NS, target_clock_ns=CLOCK_NS)


def read(source: Entry = SOURCE, target: Entry = TARGET, reading: ContentReading = READING) -> ReadContent:
    return ReadContent(source=FileState.of(source), target=FileState.of(target), digest=b"d", reading=reading)


@dataclass
class Disk:
    """A file of a side whose clock ticks coarsely: everything that changes it gives it the ctime of the tick."""

    tick_ns: int
    now_ns: int = 10**15
    content: int = 0
    ino: int = 1
    size_bytes: int = 10
    mtime_ns: int = 5
    ctime_ns: int = 0

    def clock_ns(self) -> int:
        return self.now_ns - self.now_ns % self.tick_ns

    def change(self, way: str) -> None:
        match way:
            case "write":
                self.content += 1
                self.mtime_ns = self.clock_ns()
            case "write and put mtime back" | "replace by the same inode number":
                self.content += 1
            case "truncate":
                self.content += 1
                self.size_bytes -= 1
            case "replace":
                self.content += 1
                self.ino += 1
            case _:
                assert way == "chmod"
        self.ctime_ns = self.clock_ns()

    def entry(self) -> Entry:
        return entry(ino=self.ino, size_bytes=self.size_bytes, mtime_ns=self.mtime_ns, ctime_ns=self.ctime_ns)


WAYS = ["write", "write and put mtime back", "truncate", "replace", "replace by the same inode number", "chmod"]
PAUSES_NS = st.sampled_from(
    [0, 1, 10**6, verify.CTIME_MARGIN_NS - 1, verify.CTIME_MARGIN_NS, verify.CTIME_MARGIN_NS + 1, 10**10]
)
TICKS_NS = st.sampled_from([1, 4 * 10**6, 10**9, verify.CTIME_MARGIN_NS])
CHANGES = st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from(WAYS), PAUSES_NS), max_size=3)


@given(before=CHANGES, waits=PAUSES_NS, listed=CHANGES, after=CHANGES, ticks=st.tuples(TICKS_NS, TICKS_NS))
def test_content_that_changed_after_it_was_read_is_never_carried_over(
    before: list[tuple[int, str, int]],
    waits: int,
    listed: list[tuple[int, str, int]],
    after: list[tuple[int, str, int]],
    ticks: tuple[int, int],
) -> None:
    disks = [Disk(tick_ns=tick, now_ns=10**15 + number * 10**13) for number, tick in enumerate(ticks)]

    def happen(changes: list[tuple[int, str, int]]) -> None:
        for side, way, pause_ns in changes:
            for disk in disks:
                disk.now_ns += pause_ns
            disks[side].change(way)

    happen(before)
    for disk in disks:
        disk.now_ns += waits
    # The source's clock is this machine's, which is finer than the file system's; the target's is asked.
    reading = ContentReading(verification=1, source_clock_ns=disks[0].now_ns, target_clock_ns=disks[1].clock_ns())
    sides = [disk.entry() for disk in disks]
    # Between the look at the sides and the reading of their content they may change, too.
    happen(listed)
    contents = [disk.content for disk in disks]
    known = read(sides[0], sides[1], reading)
    happen(after)
    carried = verify.is_carried_over(known, disks[0].entry(), disks[1].entry())
    if carried:
        assert [disk.content for disk in disks] == contents
    if not listed and not after and min(waits - tick for tick in ticks) >= verify.CTIME_MARGIN_NS:
        assert carried


def record(number: int, **changes: object) -> VerificationRecord:
    return verification(**({"id": number, "manifest": f"{number}.parquet"} | changes))


def test_the_newest_manifest_that_holds_as_much_as_is_wanted_is_asked_first() -> None:
    sample = DigestPolicy(algorithm="xxh3_128", share=0.05, seed=1)
    records = [
        record(1),
        record(2, differences={"content": 3}),
        record(3, policy=sample),
        record(4, whole=False),
        record(5, policy=DigestPolicy(algorithm="sha256", share=1.0, seed=1)),
        record(6, policy=replace(sample, share=0.0)),
        record(7, manifest=None),
        record(8, finished_at_s=None),
    ]
    everything = DigestPolicy(algorithm="xxh3_128", share=1.0, seed=1)
    assert [one.id for one in earlier_verifications(records, everything)] == [2, 1, 3]
    assert [one.id for one in earlier_verifications(records, sample)] == [3, 2, 1]
