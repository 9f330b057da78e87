"""Judging one path by its proof and by looks at both sides. Blocking; thread-safe."""

import errno
import threading
from collections import OrderedDict

from migrator.decide.purge_proof import Stand, TargetVerdict, judge_archive, judge_source, judge_target
from migrator.domain.entry import Entry, EntryType
from migrator.domain.paths import is_beneath, parent
from migrator.domain.purge import COVERED, Judgement, Verdict
from migrator.domain.purge_proof import Proof
from migrator.domain.site import TargetCapabilities
from migrator.domain.units import NS_PER_S
from migrator.ports.filesystem import FileSystem
from migrator.stages.purge.context import Placed

_REMEMBERED = 100_000
_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)

_Content = tuple[int, int, int, bytes]
"""Inode, size, mtime and digest: of which file it is known that its content is the one that was verified."""


class Judge:
    """Judges the paths of one tree. `reread`: the content of every file is read, on the target too where it stands as it was
    verified. `closed_uid` is the owner of directories that this program closes. `let_in_s`: when the user was let in after the
    cutover, `let_in_again_s` when it was after a rollback that was given up.
    """

    def __init__(
        self,
        placed: Placed,
        source: FileSystem,
        target: FileSystem,
        *,
        capabilities: TargetCapabilities,
        let_in_s: float,
        let_in_again_s: float,
        closed_uid: int,
        reread: bool = False,
    ) -> None:
        self._placed = placed
        self._source = source
        self._target = target
        self._capabilities = capabilities
        self._let_in_ns = int(let_in_s * NS_PER_S)
        self._let_in_again_ns = int(let_in_again_s * NS_PER_S)
        self._closed_uid = closed_uid if placed.moved else None
        self._reread = reread
        self._lock = threading.Lock()
        self._known: OrderedDict[_Content, None] = OrderedDict()
        self._above: OrderedDict[bytes, int | None] = OrderedDict()

    def on_source(self, entry: Entry, proof: Proof | None) -> Verdict:
        """Whether the source's path is what was verified; its content is read where that takes it. `entry` is where it lies
        now.
        """
        verdict = judge_source(entry, proof, top=entry.path == self._placed.at, closed_uid=self._closed_uid)
        if verdict.judgement is Judgement.OPEN or proof is None or entry.type is not EntryType.FILE:
            return verdict
        if proof.digest is None or proof.algorithm is None:
            return verdict
        known = (entry.ino, entry.size_bytes, entry.mtime_ns, proof.digest)
        if verdict.judgement is Judgement.READ or self._reread:
            if self._is_known(known):
                return COVERED
            verdict = self._read(self._source, entry.path, proof, "the source")
            if verdict.judgement is Judgement.OPEN:
                return verdict
        # Each name that is removed gives the others of its group another ctime.
        if entry.nlink > 1:
            self._keep(known)
        return verdict

    def on_target(self, proof: Proof) -> TargetVerdict:
        """How a path stands on the target."""
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
            return TargetVerdict(stand=Stand.LOST, words=f"cannot be looked at on the target: {_reason(error)}")
        if self._reread and verdict.stand is Stand.SAME and proof.type is EntryType.FILE:
            read = self._read(self._target, proof.path, proof, "the target")
            if read.judgement is Judgement.OPEN:
                return TargetVerdict(stand=Stand.LOST, words=read.words)
        return verdict

    def _read(self, side: FileSystem, path: bytes, proof: Proof, where: str) -> Verdict:
        try:
            digest = side.digest(path, proof.algorithm or "")
        except (OSError, ValueError) as error:
            why = _reason(error) if isinstance(error, OSError) else str(error)
            return Verdict(judgement=Judgement.OPEN, words=f"cannot be read on {where}: {why}")
        if digest.changed:
            return Verdict(judgement=Judgement.OPEN, words=f"changed while it was read on {where}")
        if digest.value != proof.digest:
            return Verdict(judgement=Judgement.OPEN, words=f"has another content on {where} than was verified")
        return Verdict(judgement=Judgement.READ)

    def _look(self, path: bytes) -> Entry | None:
        try:
            return self._target.look(path)
        except OSError as error:
            # What should be a directory above it is none: the path is not there, and what is in its way says since when.
            if error.errno in _NO_DIRECTORY:
                return None
            raise

    def _changed_above(self, path: bytes) -> int | None:
        """When the nearest thing above a path that is there was changed. Raises OSError."""
        above = parent(path)
        missing: list[bytes] = []
        while is_beneath(above, self._placed.tree):
            with self._lock:
                known = above in self._above
                ctime_ns = self._above.get(above)
            if not known:
                entry = self._look(above)
                ctime_ns = None if entry is None else entry.ctime_ns
            if ctime_ns is not None:
                self._keep_above([*missing, above], ctime_ns)
                return ctime_ns
            missing.append(above)
            above = parent(above)
        return None

    def _keep_above(self, paths: list[bytes], ctime_ns: int) -> None:
        with self._lock:
            for path in paths:
                self._above[path] = ctime_ns
            while len(self._above) > _REMEMBERED:
                self._above.popitem(last=False)

    def _is_known(self, content: _Content) -> bool:
        with self._lock:
            return content in self._known

    def _keep(self, content: _Content) -> None:
        with self._lock:
            self._known[content] = None
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
