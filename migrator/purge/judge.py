"""Judges paths of a tree by their proofs and both sides, and counts what is found."""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from migrator.core.entry import Entry, EntryType
from migrator.core.paths import is_beneath, parent, show
from migrator.core.units import NS_PER_S
from migrator.cutover.model import CutoverRecord, PurgeSum
from migrator.fs.model import TargetCapabilities
from migrator.fs.ports import FileSystem
from migrator.fs.rules_equality import FileState
from migrator.purge import model
from migrator.purge.call import PurgeCall
from migrator.purge.model import PathVerdict, TreeLocation
from migrator.purge.proofs import IndexedProofs
from migrator.purge.rules import judge_archive, judge_source, judge_target
from migrator.reap.model import is_listed
from migrator.reap.rules import Releases

# The paths found in a tree.


_NOTHING = PurgeSum(names=0, inodes=0, size_bytes=0)


@dataclass(slots=True, kw_only=True)
class TreeFindings:
    """Counts and findings of a tree. Threads change it while they hold its `lock`. `sum` is the result of a survey."""

    sum: PurgeSum = _NOTHING
    outside: int = 0
    read_again: int = 0
    unchanged: int = 0
    unchanged_bytes: int = 0
    changed: int = 0
    gone: int = 0
    gone_bytes: int = 0
    removed: int = 0
    open_paths: int = 0
    skipped: int = 0
    released: int = 0
    findings: list[model.PurgeFinding] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def listed(self) -> tuple[model.PurgeFinding, ...]:
        return tuple(sorted(self.findings, key=lambda finding: finding.path))

    def keep(self, path: bytes, words: str) -> None:
        with self.lock:
            self.open_paths += 1
            if len(self.findings) < model.FINDINGS_KEPT:
                self.findings.append(model.PurgeFinding(path=path, words=words))

    def add_target(self, read: "TreeFindings") -> None:
        """Add what was found when the target was read again."""
        self.changed, self.gone, self.gone_bytes = (
            self.changed + read.changed,
            self.gone + read.gone,
            self.gone_bytes + read.gone_bytes,
        )
        self.open_paths += read.open_paths
        self.findings += read.findings[: model.FINDINGS_KEPT - len(self.findings)]

    def add(self, names: int, inodes: int, size_bytes: int) -> None:
        """Count existing paths."""
        with self.lock:
            names, inodes = names + self.sum.names, inodes + self.sum.inodes
            self.sum = PurgeSum(names=names, inodes=inodes, size_bytes=size_bytes + self.sum.size_bytes)


# Judging one path. Blocking; thread-safe.


_REMEMBERED = 100_000
_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)

_Content = tuple[int, int, int, bytes, bool]
"""Inode, size, mtime and digest of a file whose content is known to be the verified one, and whether it is marked: then only
reading shows it.
"""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class PathJudge:
    """Judges the paths of one tree at its location `placed`, by its `proofs`.

    A file that its user has not changed on the target counts only with content that was read there again: a survey (`surveys`)
    notes it in the proofs, and everything later reads it through the mount unless it is what it was when it was last read.

    The content of `marked` paths, as the user knows them, is read again on the source, through the mount: what was proven may
    be that of one copy. A path without a proof may be removed if the plan skipped it and it was released by name. The user could enter the
    target after the cutover, and possibly again after a rollback that was given up: later changes there count as the
    user's.
    """

    def __init__(
        self,
        call: PurgeCall,
        record: CutoverRecord,
        placed: TreeLocation,
        proofs: IndexedProofs,
        marked: Collection[bytes],
        *,
        surveys: bool = False,
    ) -> None:
        ports, let_in_s, again_s = call.ports, record.let_in_s, record.works_there_since_s
        if let_in_s is None or again_s is None:
            raise ValueError(f"the user of {show(record.tree.path)} was not let in")
        self._placed = placed
        self._marked = marked
        self._source = ports.source
        self._target = ports.target
        self._proofs = proofs
        self._capabilities = call.site.capabilities or TargetCapabilities()
        self._let_in_ns = int(let_in_s * NS_PER_S)
        self._let_in_again_ns = int(again_s * NS_PER_S)
        trusted = ports.source.trusted_ctimes and ports.target.trusted_ctimes
        # Such a file may have changed unseen since it was verified, on either side.
        self._reread = not trusted
        self._surveys = surveys
        self._wanted = call.request.reread
        self._releases = Releases(ports.ledger.releases.of_trees((placed.tree,)))
        self._lock = threading.Lock()
        self._known: OrderedDict[_Content, None] = OrderedDict()
        self._above: OrderedDict[bytes, int] = OrderedDict()

    def may_go(self, entry: Entry, path: bytes, proof: model.Proof | None, found: TreeFindings) -> bool:
        """True if a path may be removed. Counts it, or records why it stays. `entry` has its current path, `path` is
        the one by which the user knew it.
        """
        if proof is None and (released := self._released(entry, path)) is not None:
            with found.lock:
                found.released += released
                found.skipped += not released
            if not released:
                found.keep(path, "was skipped by the plan, and exists on the source only: it was not released")
            return released
        verdict = self._on_source(entry, proof)
        if verdict.judgement is model.Judgement.READ:
            with found.lock:
                found.read_again += 1
            self._proofs.note_read(path, entry.ino, entry.ctime_ns)
        if proof is not None and verdict.judgement is not model.Judgement.OPEN:
            verdict = self._on_target(proof, found)
            with found.lock:
                found.changed += verdict.judgement is model.Judgement.CHANGED
                if verdict.judgement is model.Judgement.GONE:
                    found.gone += 1
                    found.gone_bytes += entry.size_bytes // entry.nlink if entry.type is EntryType.FILE else 0
        if verdict.judgement is model.Judgement.OPEN:
            found.keep(path, verdict.words)
            return False
        return proof is not None

    def count_removed(self, proof: model.Proof, found: TreeFindings, *, names: int) -> None:
        """Count a path as gone that an earlier call has removed from the source, if its user has removed it on the target.
        `names` is the number of names of its file in the tree.
        """
        if self._on_target(proof, None).judgement is not model.Judgement.GONE:
            return
        with found.lock:
            found.gone += 1
            found.gone_bytes += proof.size_bytes // names if proof.type is EntryType.FILE else 0

    def _released(self, entry: Entry, path: bytes) -> bool | None:
        """True if a path that the plan skips, unchanged since its reap list, was released by name; None for any other
        path.
        """
        row = self._proofs.skipped(path) if entry.type is EntryType.FILE else None
        if row is None or not is_listed(row, entry):
            return None
        return self._releases.has(self._placed.tree, path)

    def _on_source(self, entry: Entry, proof: model.Proof | None) -> PathVerdict:
        """Compare the source's path with its proof; reads its content if necessary."""
        verdict = judge_source(entry, proof, top=entry.path == self._placed.at, closed_uid=os.geteuid())
        if verdict.judgement is model.Judgement.OPEN or proof is None or entry.type is not EntryType.FILE:
            return verdict
        is_marked = proof.path in self._marked
        if proof.digest is None or proof.algorithm is None:
            if is_marked:
                return model.stays("has a copy that Gluster marks, and its content was not compared")
            return verdict
        known = (entry.ino, entry.size_bytes, entry.mtime_ns, proof.digest, is_marked)
        if verdict.judgement is model.Judgement.READ or self._reread or is_marked:
            if known in self._known:
                return model.COVERED
            verdict = self._read(self._source, entry.path, proof, "the source")
            if verdict.judgement is model.Judgement.OPEN:
                return verdict
        # Removing one name of a file changes the ctime of the others.
        if entry.nlink > 1:
            self._remember(self._known, [known], None)
        return verdict

    def read_again(self, proof: model.Proof, found: TreeFindings) -> None:
        """Read a file that a survey has noted, through the mount, unless its user has changed it since."""
        verdict = self._on_target(proof, found)
        with found.lock:
            found.changed += verdict.judgement is model.Judgement.CHANGED
            if verdict.judgement is model.Judgement.GONE:
                found.gone += 1
                found.gone_bytes += proof.size_bytes
        if verdict.judgement is model.Judgement.OPEN:
            found.keep(proof.path, verdict.words)

    def _on_target(self, proof: model.Proof, found: TreeFindings | None) -> PathVerdict:
        """The state of a path on the target. Without `found`, no content is read or noted."""
        try:
            if proof.archive is not None:
                return judge_archive(proof, self._target.look(proof.archive.path))
            target = self._look(proof.path)
            verdict = judge_target(
                proof,
                target,
                above_ctime_ns=self._changed_above(proof.path) if target is None else None,
                let_in_ns=self._let_in_again_ns if proof.later else self._let_in_ns,
                capabilities=self._capabilities,
            )
        except OSError as error:
            return model.stays(f"cannot be read on the target: {failure_reason(error)}")
        if found is None or target is None or verdict is not model.COVERED or proof.type is not EntryType.FILE:
            return verdict
        if self._surveys and not self._reread:
            with found.lock:
                found.unchanged += 1
                found.unchanged_bytes += target.content_bytes
            if self._wanted:
                self._proofs.note_unchanged((proof.path,))
        elif self._reread or (self._wanted and self._proofs.read_again(proof.path) != FileState.of(target)):
            verdict = self._read(self._target, proof.path, proof, "the target")
            if verdict is model.READ:
                self._proofs.note_read_again([(proof.path, FileState.of(target))])
        return verdict

    def _read(self, side: FileSystem, path: bytes, proof: model.Proof, where: str) -> PathVerdict:
        try:
            digest = side.digest(path, proof.algorithm or "")
        except (OSError, ValueError) as error:
            return model.stays(f"cannot be read on {where}: {failure_reason(error)}")
        if digest.changed:
            return model.stays(f"changed while it was read on {where}")
        return (
            model.READ
            if digest.value == proof.digest
            else model.stays(f"has another content on {where} than was verified")
        )

    def _look(self, path: bytes) -> Entry | None:
        try:
            return self._target.look(path)
        except OSError as error:
            # A path component is no directory, so the path is missing; the ctime of that component shows since when.
            if error.errno in _NO_DIRECTORY:
                return None
            raise

    def _changed_above(self, path: bytes) -> int | None:
        """The ctime of the nearest existing path above; None if there is none in the tree. Raises OSError."""
        above = parent(path)
        missing: list[bytes] = []
        while is_beneath(above, self._placed.tree):
            ctime_ns = self._above.get(above)
            if ctime_ns is None and (entry := self._look(above)) is not None:
                ctime_ns = entry.ctime_ns
            if ctime_ns is not None:
                self._remember(self._above, [*missing, above], ctime_ns)
                return ctime_ns
            missing.append(above)
            above = parent(above)
        return None

    def _remember(self, known: OrderedDict[_Key, _Value], keys: Sequence[_Key], value: _Value) -> None:
        with self._lock:
            known.update((key, value) for key in keys)
            while len(known) > _REMEMBERED:
                known.popitem(last=False)


def failure_reason(error: Exception) -> str:
    """Why a path could not be read or removed, for people."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
