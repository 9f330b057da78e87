"""What the ledger keeps of chunks, of the attempts at them, and of files that did not arrive.

Synchronous, short transactions; times in seconds since the epoch.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.plan import Chunk
from migrator.domain.site import Need
from migrator.domain.states import ChunkState
from migrator.domain.transfer import (
    AttemptRecord,
    ChunkRecord,
    FileProblem,
    FileProblemKind,
    ProcessIdentity,
    StreamCounters,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTotals:
    """Sums over the chunks of a pass that count (split ones do not, their halves do)."""

    chunks: Mapping[ChunkState, int]
    done_files: int
    done_bytes: int
    files: int
    size_bytes: int


class ChunkRecords(Protocol):
    """The chunks of passes: which wait, and what became of each."""

    def chunk(self, chunk_id: int) -> ChunkRecord:
        """One chunk. Raises LedgerCorrupt where there is none."""

    def retry_failed(self, pass_id: int, *, but_trees: Collection[bytes] = ()) -> int:
        """Let the failed chunks of a pass wait again, but for those of some trees; returns how many there were. Their
        tries start anew.

        With them wait the chunks of directories' times in the same trees: what comes into a directory changes them.
        """

    def to_retry(self, pass_id: int, *, but_trees: Collection[bytes] = ()) -> Sequence[ChunkRecord]:
        """The chunks that `retry_failed` would let wait again, in order of number."""

    def pending(
        self,
        pass_id: int,
        kind: str,
        limit: int,
        *,
        bricks: Collection[str | None] | None = None,
        but_trees: Collection[bytes] = (),
    ) -> Sequence[ChunkRecord]:
        """Chunks of one kind that wait, the largest first; with `bricks` only those of these bricks (None among them:
        those of no brick), and none of `but_trees`.
        """

    def bricks(self, pass_id: int) -> frozenset[str | None]:
        """Where the chunks of a pass are to be read (None: through the mount), those that are done too."""

    def failed(self, pass_id: int) -> Sequence[ChunkRecord]:
        """Chunks that failed, of all kinds, in order of number."""

    def totals(self, pass_id: int) -> PassTotals:
        """How many chunks of all kinds are in which state; files and bytes of those that hold files or links."""

    def arrived(self, *, before_plan: str) -> Mapping[bytes, Need]:
        """What plans other than this one have brought to the target, by tree: the most that any one pass of them did."""

    def split(self, chunk_id: int, halves: Sequence[tuple[Chunk, str]]) -> Sequence[ChunkRecord]:
        """Replace a running chunk by its halves (with their list paths; their numbers are given out by the ledger,
        unique in the pass), in one transaction.
        """

    def next_chunk_number(self, pass_id: int) -> int:
        """The first number that no chunk of the pass has."""

    def add_trees(self, pass_id: int, trees: Mapping[bytes, Need]) -> Sequence[ChunkRecord]:
        """One chunk of the whole tree for each tree, in the order given; those that the pass has already stay."""


class AttemptRecords(Protocol):
    """Attempts at chunks, written down before their processes start."""

    def intend(self, *, chunk_id: int, token: str, host: str, engine: str, argv: Sequence[str], at_s: float) -> int:
        """Write down an attempt before its process starts; the chunk becomes running. Returns the attempt's id."""

    def started(self, attempt_id: int, process: ProcessIdentity) -> None:
        """The process of an attempt lives. Raises LedgerCorrupt where the attempt has ended."""

    def finish(
        self,
        attempt_id: int,
        *,
        at_s: float,
        state: str,
        exit_code: int | None,
        counters: StreamCounters,
        stderr_tail: bytes,
        chunk_state: ChunkState,
        problems: Sequence[FileProblem],
    ) -> None:
        """The result of an attempt, of its chunk and of its files, in one transaction."""

    def unfinished_attempts(self, pass_id: int | None = None) -> Sequence[AttemptRecord]:
        """Attempts that a crash left intended or running."""

    def attempts_of_chunk(self, chunk_id: int) -> Sequence[AttemptRecord]:
        """Every attempt at a chunk, oldest first."""

    def sent_since(self, pass_id: int, attempt_id: int) -> StreamCounters:
        """What the attempts after this one have brought, those at whole trees aside."""


class ProblemRecords(Protocol):
    """Files of passes that did not arrive as they should."""

    def attention(self, pass_id: int, kind: FileProblemKind = FileProblemKind.BAD) -> Sequence[FileProblem]:
        """The bad files of a pass that no later attempt brought over, or those of another kind."""

    def vanished_count(self, pass_id: int) -> int:
        """How many listed files were gone when their turn came."""

    def problem_counts(self, pass_id: int) -> Mapping[FileProblemKind, int]:
        """How many files of a pass have which problem now; kinds without any are left out."""

    def note(self, pass_id: int, problems: Sequence[FileProblem], at_s: float) -> None:
        """What a pass found out of files outside its chunks: what it could not rename, so that the next one sends it."""

    def clear_attention(self, pass_id: int, paths: Sequence[bytes]) -> None:
        """These files need no attention any more; those that needed none are passed over."""
