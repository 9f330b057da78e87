"""Freeing the source of moved users: requests, proofs, outcomes. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from migrator.core.entry import EntryType, UserTree
from migrator.core.errors import ExitCode
from migrator.cutover.model import CutoverRecord, PurgeSum

# ---
# Purging: freeing the source of user trees whose users work on the target.


PURGE_NAME = b".migrator-purge"
"""The directory in the source's root where trees lie while they are purged. It is root's alone, and no data: no scan
lists it."""

TREE_NAME = b"tree"
"""What a tree is called in its place there."""

CONFIRM_CHARACTERS = 12
"""How much of a plan's checksum has to be given."""

FINDINGS_KEPT = 1000
"""How many findings of a tree are listed; the others are counted."""


def purge_place(cutover: CutoverRecord) -> bytes:
    """The place of one attempt, relative to the source's root. After a crash it says whose tree lies in it; no attempt of
    another ledger has the same.
    """
    return b"%s/cutover-%s" % (PURGE_NAME, cutover.own_name.encode("ascii"))


class Choice(StrEnum):
    """What is done with a tree: `later` has to be kept longer, `not-moved` has a user who does not work on the target."""

    PURGE = "purge"
    GO_ON = "go-on"
    PURGED = "purged"
    LATER = "later"
    NOT_MOVED = "not-moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What is done with one tree, and why. `due_at_s`: from then on its source may be freed."""

    tree: UserTree
    choice: Choice
    words: str
    due_at_s: float | None = None


class Position(StrEnum):
    """Where a tree lies on the source: at its path, in its place of the purge, at both, or at neither."""

    IN_PLACE = "in-place"
    CLOSED = "closed"
    BOTH = "both"
    GONE = "gone"


class LeadsTo(StrEnum):
    """Where the path of the user leads; `untold` where a hook switches it, and nothing here can tell."""

    TARGET = "target"
    SOURCE = "source"
    ELSEWHERE = "elsewhere"
    UNTOLD = "untold"


class Judgement(StrEnum):
    """What is known of a path of the source: the target has it (`covered`), it has where the content is read again and found
    to be the one that was verified (`read`), or it is not known to have it.
    """

    COVERED = "covered"
    READ = "read"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A judgement, with a sentence where the path stays."""

    judgement: Judgement
    words: str = ""


COVERED = Verdict(judgement=Judgement.COVERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeFinding:
    """A path of the source that has to stay, and why. Relative to the source's root, as the user knew it."""

    path: bytes
    words: str


class TreeOutcome(StrEnum):
    """How a tree fared: `kept`: something of it stays in the closed directory."""

    PURGED = "purged"
    WOULD_PURGE = "would-purge"
    KEPT = "kept"
    REFUSED = "refused"
    LATER = "later"
    DONE_BEFORE = "done-before"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePurge:
    """What became of one tree.

    `sum` is what it holds, or held. `read_again` counts files whose content was read on the source, because their ctime or
    inode is another one or because that was asked for. `changed` and `gone` count names that the user has changed or
    removed on the target since. `outside` are files that have names outside the tree: these stay. `findings` are the first
    of `open_paths` paths that are not known to be on the target; `kept_in` is where they lie, None where nothing was moved.
    """

    tree: UserTree
    outcome: TreeOutcome
    words: str = ""
    reasons: tuple[str, ...] = ()
    sum: PurgeSum | None = None
    removed: int = 0
    read_again: int = 0
    changed: int = 0
    gone: int = 0
    outside: int = 0
    open_paths: int = 0
    findings: tuple[PurgeFinding, ...] = ()
    kept_in: bytes | None = None
    due_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeSummary:
    """What a purge did, or would do. `checksum` is that of the plan: of what is to be freed and by which proofs."""

    run_id: int | None
    dry_run: bool
    checksum: str
    trees: tuple[TreePurge, ...]

    @property
    def exit_code(self) -> ExitCode:
        """What the shell sees: a refusal counts more than what is kept."""
        outcomes = {tree.outcome for tree in self.trees}
        if TreeOutcome.REFUSED in outcomes:
            return ExitCode.REFUSED
        return ExitCode.ATTENTION if TreeOutcome.KEPT in outcomes else ExitCode.DONE


# ---
# What proves that a path of the source is on the target.


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A file of the target that holds the content of others; `path` is relative to the target's root. `size_bytes` is what
    it had when it was read back, None where the ledger does not have it as one that counts.
    """

    path: bytes
    size_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A path that was verified: the facts of the source then, and the digest that its content had on both sides (None where
    it was not read). `ino` is None where the manifest does not have it.

    `archive`: the content lies in there, and not under its own path on the target. `later`: it was verified after a rollback
    had begun that was given up, and not by the cutover.
    """

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
    digest: bytes | None
    algorithm: str | None
    ino: int | None = None
    archive: Archive | None = None
    later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSum:
    """What a manifest says of one tree: names, regular files, and how many of these have no digest."""

    names: int
    files: int
    without_digest: int
