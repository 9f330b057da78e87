"""Whether the content of a file has to be read again, or is what an earlier verification read. Pure.

Whatever changes the content of a file gives it a new ctime, and nobody but the kernel sets a ctime. So a file whose
inode, size, mtime and ctime are what they were when its content was read holds what it held then, if two things are
seen to:

- the clock that ctimes come from is coarse (from milliseconds to two seconds), and those of the clients of a volume differ a
  little. A change right after the reading could get the very ctime that was recorded. So the recorded ctime has to lie
  `CTIME_MARGIN_NS` before the reading.
- who writes to mapped memory gets a new ctime only with the first write to a page that is clean. So the side has to have
  been synced between that moment and the reading.

Both are seen to by comparing with what the side's own clock showed before that sync. Where it is not known what that was,
the content is read again; that is what every doubt comes to.
"""

from collections.abc import Iterable, Sequence

from migrator.domain.entry import Entry, EntryType
from migrator.domain.units import NS_PER_S
from migrator.domain.verification import DigestPolicy, ReadContent, SideFacts, VerificationRecord

CTIME_MARGIN_NS = 2 * NS_PER_S


def is_carried_over(earlier: ReadContent, source: Entry, target: Entry) -> bool:
    """Whether both sides of a path hold what they held when their content was read and found to be equal."""
    reading = earlier.reading
    return (
        _is_the_same(earlier.source, source)
        and _is_the_same(earlier.target, target)
        and _lasts(earlier.source, reading.source_clock_ns)
        and _lasts(earlier.target, reading.target_clock_ns)
    )


def facts_of(entry: Entry) -> SideFacts:
    """What must not change while its content is to count as read."""
    return SideFacts(ino=entry.ino, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns, ctime_ns=entry.ctime_ns)


def earlier_verifications(records: Iterable[VerificationRecord], policy: DigestPolicy) -> Sequence[VerificationRecord]:
    """Those whose manifests may be asked, the best first: the newest of those that read as large a share as is wanted
    now. One that is not whole proves nothing.
    """
    usable = [
        record
        for record in records
        if record.whole
        and record.finished_at_s is not None
        and record.manifest is not None
        and record.manifest_digest is not None
        and record.policy.algorithm == policy.algorithm
        and record.policy.share > 0.0
    ]
    return sorted(usable, key=lambda record: (min(record.policy.share, policy.share), record.id), reverse=True)


def _is_the_same(earlier: SideFacts, now: Entry) -> bool:
    return now.type is EntryType.FILE and earlier == facts_of(now)


def _lasts(facts: SideFacts, clock_ns: int | None) -> bool:
    return clock_ns is not None and facts.ctime_ns + CTIME_MARGIN_NS <= clock_ns
