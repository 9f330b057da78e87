"""Counting what a verification finds, from many threads, and handing it to the manifest."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.decide.expectations import Loss
from migrator.domain.archives import ArchivedMember
from migrator.domain.entry import Entry, EntryType
from migrator.domain.paths import show
from migrator.domain.scan import ScanProblem
from migrator.domain.verification import ContentReading, Difference, DifferenceKind
from migrator.ports.manifest import LinkedPath, ManifestDraft, VerifiedPath


class LinkedBytes:
    """Bytes of files, each counted once however many names it has: every name adds its part of the size.

    Exact where all names of a file are counted, and never more than that. Memory is flat.
    """

    def __init__(self) -> None:
        self._by_names: Counter[int] = Counter()

    def add(self, entry: Entry) -> None:
        """One name of a file."""
        self._by_names[max(entry.nlink, 1)] += entry.size_bytes

    @property
    def size_bytes(self) -> int:
        """The sum so far."""
        return sum(size_bytes // names for names, size_bytes in self._by_names.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The digest of content that both sides have, who really read it, and whether that was an earlier verification."""

    digest: bytes
    reading: ContentReading
    carried: bool = False


class Tally:
    """The counters of one verification. Thread-safe; each method may be called by any worker."""

    def __init__(self, draft: ManifestDraft) -> None:
        self._draft = draft
        self._lock = threading.Lock()
        self.paths = 0
        self.files = 0
        self.digested_files = 0
        self.carried_files = 0
        self._compared = LinkedBytes()
        self._digested = LinkedBytes()
        self._proven = LinkedBytes()
        self.proven_gone = 0
        self.unread = 0
        self.differences: Counter[str] = Counter()
        self.expected: Counter[str] = Counter()

    @property
    def size_bytes(self) -> int:
        """What the compared files hold; one with several names counts once."""
        with self._lock:
            return self._compared.size_bytes

    @property
    def digested_bytes(self) -> int:
        """What those of them hold whose content was read on both sides and is equal."""
        with self._lock:
            return self._digested.size_bytes

    @property
    def carried_bytes(self) -> int:
        """What those hold whose content an earlier verification had read."""
        with self._lock:
            # Not summed up by itself, so that both together are exact, also where names of one file were proven apart.
            return self._proven.size_bytes - self._digested.size_bytes

    @property
    def difference_count(self) -> int:
        """How many differences there are so far."""
        with self._lock:
            return self.differences.total()

    def compared(
        self,
        source: Entry,
        differences: Sequence[Difference],
        losses: Sequence[Loss],
        *,
        target: Entry,
        content: Content | None = None,
        link: LinkedPath | None = None,
    ) -> None:
        """One path was compared to its end; what has no difference goes into the manifest."""
        self._count(source, differences, losses)
        if content is not None:
            self._count_content(source, content)
        verified = VerifiedPath(
            source=source,
            target=target,
            digest=None if content is None else content.digest,
            reading=None if content is None else content.reading,
        )
        self._draft.add(
            verified=() if differences else (verified,),
            differences=differences,
            losses=losses,
            links=() if link is None else (link,),
        )

    def missing(self, source: Entry, loss: Loss | None, link: LinkedPath | None) -> None:
        """A path is not on the target: expected where the target cannot have it, a difference otherwise."""
        losses = () if loss is None else (loss,)
        difference = Difference(path=source.path, kind=DifferenceKind.MISSING, source=source.type.value, target="none")
        differences = () if losses else (difference,)
        self._count(source, differences, losses)
        self._draft.add(differences=differences, losses=losses, links=() if link is None else (link,))

    def archived(self, source: Entry, loss: Loss, member: ArchivedMember, link: LinkedPath | None) -> None:
        """A path is not at its place on the target, but in an archive that was read back: the manifest says in which."""
        self._count(source, (), (loss,))
        self._draft.add(
            verified=(VerifiedPath(source=source, target=None, archived=member),),
            losses=(loss,),
            links=() if link is None else (link,),
        )

    def found(self, difference: Difference) -> None:
        """A difference that is about no path of the source, or that came up later."""
        with self._lock:
            self.differences[difference.kind.value] += 1
        self._draft.add(differences=(difference,))

    def lost(self, loss: Loss) -> None:
        """An expected loss that came up later."""
        with self._lock:
            self.expected[loss.kind.value] += 1
        self._draft.add(losses=(loss,))

    def unreadable(self, problem: ScanProblem, *, on_source: bool) -> None:
        """A path could not be read on one side: the verification is not whole."""
        words = f"{problem.operation}: {problem.reason}"
        with self._lock:
            self.unread += 1
        self.found(
            Difference(
                path=problem.path,
                kind=DifferenceKind.UNREADABLE,
                source=words if on_source else "not compared",
                target="not compared" if on_source else words,
            )
        )

    def gone(self, count: int = 1) -> None:
        """Paths that an earlier catalog saw are proven to be no more."""
        with self._lock:
            self.proven_gone += count

    def _count_content(self, source: Entry, content: Content) -> None:
        with self._lock:
            self._proven.add(source)
            if content.carried:
                self.carried_files += 1
            else:
                self.digested_files += 1
                self._digested.add(source)

    def _count(self, source: Entry, differences: Sequence[Difference], losses: Sequence[Loss]) -> None:
        with self._lock:
            self.paths += 1
            if source.type is EntryType.FILE:
                self.files += 1
                self._compared.add(source)
            self.differences.update(difference.kind.value for difference in differences)
            self.unread += sum(difference.kind is DifferenceKind.UNREADABLE for difference in differences)
            self.expected.update(loss.kind.value for loss in losses)


def error_problem(path: bytes, operation: str, error: OSError) -> ScanProblem:
    """An error of the kernel at a path, as a problem."""
    reason = error.strerror or show(str(error).encode("utf-8", "surrogateescape"))
    return ScanProblem(path=path, operation=operation, errno=error.errno, reason=reason)
