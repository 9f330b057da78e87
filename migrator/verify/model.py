"""Verifications as values, and the rules for carrying over digests from earlier ones. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import Entry, EntryType
from migrator.core.errors import ExitCode
from migrator.core.units import NS_PER_S

# --- Records


class DifferenceKind(StrEnum):
    """The kind of difference between source and target at one path."""

    MISSING = "missing"
    EXTRA = "extra"
    TYPE = "type"
    SIZE = "size"
    CONTENT = "content"
    MTIME = "mtime"
    OWNER = "owner"
    MODE = "mode"
    SYMLINK_TARGET = "symlink-target"
    DEVICE = "device"
    ACL = "acl"
    XATTR = "xattr"
    HARD_LINKS = "hard-links"
    SPARSENESS = "sparseness"
    UNREADABLE = "unreadable"
    CHANGED = "changed-while-read"
    UNPROVEN = "unproven"


class Difference(Struct, frozen=True, kw_only=True):
    """One difference at one path, with both sides described."""

    path: bytes
    kind: DifferenceKind
    source: str
    target: str


class DigestPolicy(Struct, frozen=True, kw_only=True):
    """The files whose content is compared: `share` of them (1.0: all), selected by a seeded hash of the path."""

    algorithm: str
    share: float
    seed: int


class SideFacts(Struct, frozen=True, kw_only=True):
    """Attributes of a file on one side when it was listed. Every change of content changes one of them."""

    ino: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int


class ContentReading(Struct, frozen=True, kw_only=True):
    """The verification that read the content, and the clock of each side before its sync, which came before any content
    was read. None: unknown.
    """

    verification: int
    source_clock_ns: int | None
    target_clock_ns: int | None


class ReadContent(Struct, frozen=True, kw_only=True):
    """A file whose content was read on both sides and was equal: the attributes of both sides then, and the digest."""

    source: SideFacts
    target: SideFacts
    digest: bytes
    reading: ContentReading


class VerificationRecord(Struct, frozen=True, kw_only=True):
    """The result of one verification. It is `whole` if both sides were read without error and the source was healthy.

    `expected` counts, by kind, losses that the target is known to have; they are reported, but are no differences.

    `paths` counts all compared paths, `files` the regular files among them, `equal_paths` those without a difference. A
    file with several names counts once in `size_bytes` and `digested_bytes`. `differences_file` lists all differences;
    `examples` are the first of each kind, and are not kept in the ledger.

    `trees` are the covered user trees; empty: the whole batch. This verification read the content of `digested_files`
    on both sides. The content of `carried_files` was read by an earlier one, with no change since on either side, or in
    an archive. All of it was equal.
    """

    id: int
    plan: str
    batch: int
    started_at_s: float
    finished_at_s: float | None
    policy: DigestPolicy
    paths: int
    size_bytes: int
    digested_files: int
    digested_bytes: int
    proven_gone: int
    differences: Mapping[str, int]
    expected: Mapping[str, int]
    whole: bool
    reasons: tuple[str, ...]
    manifest: str | None
    manifest_digest: str | None
    files: int = 0
    equal_paths: int = 0
    differences_file: str | None = None
    differences_digest: str | None = None
    trees: tuple[bytes, ...] = ()
    carried_files: int = 0
    carried_bytes: int = 0
    examples: tuple[Difference, ...] = ()

    @property
    def percent_content(self) -> float | None:
        """Percent of the bytes whose content is proven equal, and not only their attributes; None if there are no
        bytes.

        Rounded down to one digit, so 100 means all of them.
        """
        if self.size_bytes <= 0:
            return None
        return min(self.proven_bytes * 1000 // self.size_bytes, 1000) / 10

    @property
    def proven_bytes(self) -> int:
        """Bytes whose content is proven equal, by this verification or an earlier one."""
        return self.digested_bytes + self.carried_bytes

    def covers(self, tree: bytes) -> bool:
        """Whether the verification compared this tree of its batch."""
        return not self.trees or tree in self.trees

    @property
    def exit_code(self) -> ExitCode:
        """REFUSED if it is not whole, because it then proves nothing. ATTENTION if it is whole and found differences; expected
        losses do not count.
        """
        if not self.whole:
            return ExitCode.REFUSED
        return ExitCode.ATTENTION if self.differences else ExitCode.DONE


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
    """Whether both sides of a path still have the content that was read and found equal."""
    reading = earlier.reading
    return (
        _is_the_same(earlier.source, source)
        and _is_the_same(earlier.target, target)
        and _lasts(earlier.source, reading.source_clock_ns)
        and _lasts(earlier.target, reading.target_clock_ns)
    )


def facts_of(entry: Entry) -> SideFacts:
    """The attributes that must stay the same for the content to count as read."""
    return SideFacts(ino=entry.ino, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns, ctime_ns=entry.ctime_ns)


def earlier_verifications(records: Iterable[VerificationRecord], policy: DigestPolicy) -> Sequence[VerificationRecord]:
    """The verifications whose manifests may be used, the best first: the newest of those that read at least the present
    share. A verification that is not whole proves nothing.
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
