"""What proves that a path of the source is on the target."""

from dataclasses import dataclass

from migrator.domain.entry import EntryType


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
