"""Requests, proofs and outcomes of a purge of moved users' source trees. Pure."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from migrator.catalog.model import VerificationRecord
from migrator.core.entry import EntryType, UserTree
from migrator.core.errors import ExitCode
from migrator.core.paths import join
from migrator.cutover.model import CutoverRecord, PurgeSum
from migrator.fs.model import PURGE_NAME

TREE_NAME = b"tree"
"""The name of a tree in its place there."""

CONFIRM_CHARACTERS = 12
"""The minimum length of the checksum that confirms a purge."""

ARCHIVES_NAME = "archives"
"""The directory of the state directory's temporary files in which hooks answer which archives hold a tree."""

FINDINGS_KEPT = 1000
"""The maximum number of findings listed for a tree; further ones are only counted."""


def purge_place(cutover: CutoverRecord) -> bytes:
    """The place of one attempt, relative to the source's root. After a crash it identifies the tree in it, because
    attempts in other ledgers have other places.
    """
    return b"%s/cutover-%s" % (PURGE_NAME, cutover.own_name.encode("ascii"))


class PurgeRequest(Struct, frozen=True, kw_only=True):
    """The request for a purge. `confirm` is the checksum from the command line. `named`: the user was named, so a tree
    that may not be purged is refused instead of left for later.

    `reread`: before a tree is freed, the content that its user has not changed on the target is read there again.

    `vouched`: the freeze hook vouches for writers that cannot be seen. `wants_backup`: a backup of the target must be
    recorded that began after the user's thaw. So many archives of the site must hold a tree (`require_archive`). `names_per_s` limits removals; the rate falls
    while probes exceed `max_latency_s` (None: no limit).
    """

    trees: Sequence[UserTree]
    pid: int
    named: bool = False
    confirm: str | None = None
    dry_run: bool = False
    reread: bool = True
    vouched: bool = False
    wants_backup: bool = False
    require_archive: int = 0
    retain_s: int
    max_shrink: float
    names_per_s: int
    max_latency_s: float | None = None
    workers: int = 4


class TreeLocation(Struct, frozen=True, kw_only=True):
    """A tree and its location: `at` is its path, or its name in its place of the purge. `begun`: an earlier call may have removed
    a part of it.
    """

    tree: bytes
    at: bytes
    begun: bool = False

    @property
    def moved(self) -> bool:
        """True if the tree is in its place of the purge."""
        return self.at != self.tree

    def known_as(self, path: bytes) -> bytes:
        """The path by which the user knew a path below `at`."""
        return join(self.tree, path[len(self.at) + 1 :]) if len(path) > len(self.at) else self.tree


class PurgeItem(Struct, frozen=True, kw_only=True):
    """A tree of a purge: its newest cutover and its proofs.

    The proofs are the verification of that cutover, and the verifications of what a rollback carried to the source
    before it was given up, oldest first (None: nothing was carried).
    """

    record: CutoverRecord
    proof: VerificationRecord | None
    carried: tuple[VerificationRecord, ...] | None = None


class Position(StrEnum):
    """Location of a tree on the source: its own path, its place of the purge, both, or neither."""

    IN_PLACE = "in-place"
    CLOSED = "closed"
    BOTH = "both"
    GONE = "gone"


class Judgement(StrEnum):
    """Whether a path of the source is on the target. `covered`: yes. `read`: yes, and its content on the source was
    read again and has the verified digest. `changed`, `gone`: it was there, and its user changed or removed it later.
    `open`: unknown, so it stays.
    """

    COVERED = "covered"
    READ = "read"
    CHANGED = "changed"
    GONE = "gone"
    OPEN = "open"


class PathVerdict(Struct, frozen=True, kw_only=True):
    """A judgement, and the reason if the path stays."""

    judgement: Judgement
    words: str = ""


COVERED, READ, CHANGED, GONE = (
    PathVerdict(judgement=one) for one in (Judgement.COVERED, Judgement.READ, Judgement.CHANGED, Judgement.GONE)
)


def stays(words: str) -> PathVerdict:
    """The verdict on a path that may not be removed."""
    return PathVerdict(judgement=Judgement.OPEN, words=words)


class PurgeFinding(Struct, frozen=True, kw_only=True):
    """A path of the source that stays."""

    path: bytes
    """Its path as the user knew it, relative to the source's root."""
    words: str
    """The reason."""


class PurgeOutcome(StrEnum):
    """The outcome of one tree. `kept`: some of its paths stay in the closed directory."""

    PURGED = "purged"
    WOULD_PURGE = "would-purge"
    KEPT = "kept"
    REFUSED = "refused"
    LATER = "later"
    DONE_BEFORE = "done-before"


class Reread(Struct, frozen=True, kw_only=True):
    """What the user has not changed on the target: its content is read there again before the tree is freed."""

    files: int
    """Number of these files."""
    size_bytes: int
    """Their bytes."""
    expected_s: float
    """Duration of the reading, at the rate of verifications."""
    proven_at_s: float | None
    """When the oldest proof was made; None: unknown."""
    age_s: float | None
    """Age of the oldest proof."""
    wanted: bool = True
    """False with `[cutover] reread = "never"`."""


class TreePurge(Struct, frozen=True, kw_only=True):
    """The result for one tree."""

    tree: UserTree
    outcome: PurgeOutcome
    """The outcome."""
    words: str = ""
    reasons: tuple[str, ...] = ()
    sum: PurgeSum | None = None
    """What the tree holds or held."""
    removed: int = 0
    """Names that were removed."""
    read_again: int = 0
    """Files whose content was read on the source, because their ctime or inode changed."""
    reread: Reread | None = None
    """What is read again on the target; None before that is known."""
    changed: int = 0
    """Names that the user changed on the target after the move."""
    gone: int = 0
    """Names that the user removed on the target after the move."""
    outside: int = 0
    """Files with names outside the tree, which stay."""
    open_paths: int = 0
    """Number of paths that are not known to be on the target."""
    findings: tuple[PurgeFinding, ...] = ()
    """The first 1,000 of them."""
    kept_in: bytes | None = None
    """Directory with the remaining paths; None if nothing was moved."""
    due_at_s: float | None = None
    """End of its retention, if that is not over."""
    archives: tuple[str, ...] = ()
    """Archives of the site that are proven to hold the tree."""


class PurgeSummary(Struct, frozen=True, kw_only=True):
    """The result of a purge or of its dry run."""

    run_id: int | None
    """Number of the run; None for a dry run."""
    dry_run: bool
    checksum: str
    """Checksum of the trees to be freed and their proofs, for `--confirm`."""
    require_archive: int = 0
    """Number of archives that each tree needs."""
    trees: tuple[TreePurge, ...]
    """The result for each tree."""

    @property
    def exit_code(self) -> ExitCode:
        """A refusal outranks kept paths."""
        outcomes = {tree.outcome for tree in self.trees}
        if PurgeOutcome.REFUSED in outcomes:
            return ExitCode.REFUSED
        return ExitCode.ATTENTION if PurgeOutcome.KEPT in outcomes else ExitCode.DONE


# Proofs


class Archive(Struct, frozen=True, kw_only=True):
    """A file of the target that holds the content of other files; `path` is relative to the target's root. `size_bytes`
    is its size when it was read back, None if the ledger has no proof of it.
    """

    path: bytes
    size_bytes: int | None


class PathFacts(Struct, frozen=True, kw_only=True):
    """A path with its metadata on the source."""

    path: bytes
    type: EntryType
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    uid: int
    gid: int
    mode: int
    symlink_target: bytes | None
    rdev: int
    xattr_digest: bytes | None


class Proof(PathFacts, frozen=True, kw_only=True):
    """A verified path: its metadata at that time, and the digest of its content on both sides (None if it was not
    read). `ino` is None if the manifest lacks it.

    `archive` is the archive that has the content; the target then has nothing at the path itself. `later`: the proof
    comes from a verification after the start of a rollback that was given up, not from the cutover.
    """

    digest: bytes | None
    algorithm: str | None
    ino: int | None = None
    archive: Archive | None = None
    later: bool = False


class ManifestSum(Struct, frozen=True, kw_only=True):
    """Totals of one tree in a manifest: names, regular files without a digest, and the target's clock when the first content was
    read (None: unknown).
    """

    names: int
    without_digest: int
    oldest_ns: int | None = None


# Archives of the site: tape, or another file system


class SecondCopy(Struct, frozen=True, kw_only=True):
    """An archive of the site with all files of a tree: the digests that it computed of what it stored are those of the
    manifests.
    """

    tree: bytes
    name: str
    """Name of the archive."""
    place: str
    """Its place, in the words of the hook."""
    manifests: str
    """Digests of the manifests' files; after another verification the record no longer counts."""
    algorithm: str
    """The digest of its list."""
    files: int
    """Proven files."""
    size_bytes: int
    """Bytes of these files."""
    extra: int
    """Files that only the archive has."""
    list_digest: str
    """Digest of the list that was compared."""
    at_s: float
    """When that was compared."""


class Compared(Struct, frozen=True, kw_only=True):
    """The regular files of a tree by the digests of an archive: `files` are equal. `examples` are of files that are
    `missing` or `different` there.
    """

    files: int
    size_bytes: int
    missing: int
    different: int
    extra: int
    examples: tuple[bytes, ...]
