"""Verifications as values, and the rules for carrying over digests from earlier ones. Pure."""

from migrator.catalog.model import ReadContent
from migrator.core.entry import Entry, EntryType
from migrator.core.units import NS_PER_S
from migrator.fs.rules_equality import FileState

# --- Records


# --- Carrying over digests: whether the content of a file must be read again
#
# Every change of content gives a file a new ctime, and only the kernel sets ctimes. So a file with the same inode, size, mtime and
# ctime as when it was read still has the same content, on two conditions:
#
# - Clocks behind ctimes are coarse (milliseconds to two seconds), and those of a volume's clients differ slightly. A change right
#   after the reading could get the recorded ctime again. So the recorded ctime must be at least `CTIME_MARGIN_NS` before the reading.
# - A write to mapped memory changes the ctime only at the first write to a clean page. So the side must have been synced between the
#   ctime and the reading.
#
# Both are checked against the side's own clock, read before that sync. If that time is unknown, or in any other doubt, the content
# is read again.


CTIME_MARGIN_NS = 2 * NS_PER_S


def is_carried_over(earlier: ReadContent, source: Entry, target: Entry) -> bool:
    """True if both sides of a path still have the content that was read and found equal."""
    reading = earlier.reading
    return (
        _is_unchanged(earlier.source, source)
        and _is_unchanged(earlier.target, target)
        and _lasts(earlier.source, reading.source_clock_ns)
        and _lasts(earlier.target, reading.target_clock_ns)
    )


def _is_unchanged(earlier: FileState, now: Entry) -> bool:
    return now.type is EntryType.FILE and earlier == FileState.of(now)


def _lasts(facts: FileState, clock_ns: int | None) -> bool:
    return clock_ns is not None and facts.ctime_ns + CTIME_MARGIN_NS <= clock_ns
