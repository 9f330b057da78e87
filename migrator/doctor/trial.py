"""Writing to the target as a run does: closed trees, then directories, files and links with all attributes, by the program
of its streams.
"""

import errno
import os
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import ListedPath
from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.events import Finding, failure, ok
from migrator.core.paths import join, show
from migrator.core.states import ChunkKind
from migrator.core.tasks import Blocking
from migrator.fs.acl import GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, build_acl
from migrator.fs.beneath import Root, remove_tree
from migrator.fs.model import TargetCapabilities
from migrator.fs.ports import TargetFileSystem
from migrator.fs.rules import TEMPORARY_PREFIX, compare, kept_xattrs
from migrator.fs.writing import set_xattrs
from migrator.hosts.ports import Processes
from migrator.native.program import native_program
from migrator.transfer.engines.direct import DirectEngine
from migrator.transfer.model import AttemptVerdict, StreamView
from migrator.transfer.ports import ChunkWork

_CHECK = "target writing"
_DIRECTORY = b"directory"
_FILES = (b"directory/file", b"directory/link")
_FOREIGN_ID = 1
_CHUNKS = tuple(
    (kind, [ListedPath(path=name, size_bytes=0) for name in names])
    for kind, names in (
        (ChunkKind.DIRECTORIES, (_DIRECTORY,)),
        (ChunkKind.FILES, _FILES),
        (ChunkKind.DIRECTORY_TIMES, (_DIRECTORY,)),
    )
)
_TIMEOUT_S = 300.0
_TAGS = ((USER_OBJ, 7), (USER, 5), (GROUP_OBJ, 5), (MASK, 7), (OTHER, 0))
_ACL = build_acl(tuple(AclEntry(tag=tag, id=_FOREIGN_ID, permissions=bits) for tag, bits in _TAGS))


class Trial(Struct, frozen=True, kw_only=True):
    """The ports of a trial on the recorded target."""

    target: TargetFileSystem
    capabilities: TargetCapabilities
    processes: Processes
    blocking: Blocking
    euid: int

    async def check(self) -> Finding:
        """Check that a run can write. All is made in a directory of its own in the target's root, and removed afterwards."""
        place = TEMPORARY_PREFIX + b"trial-" + secrets.token_hex(8).encode()
        problems = []
        for work in (partial(self._write, place), partial(self._remove, place)):
            try:
                await work()
            except MigratorError as error:
                problems.append(error.message)
        if problems:
            fix = "see the logs of the target's client and servers; a run would fail in the same way"
            return failure(_CHECK, "; ".join(problems), fix)
        return ok(_CHECK, "directories, files and links, with ACLs and attributes, as by a run")

    async def _write(self, place: bytes) -> None:
        """Raises MigratorError, which names what failed."""
        target, source, copy = self.target, join(place, b"from"), join(place, b"to")
        for tree in (source, copy):
            await self._step("creating a private directory, as of a user tree", partial(target.make_parents, tree, ()))
        engine = DirectEngine(program=native_program().path, privileged=self.euid == 0, name_seed=secrets.randbits(63))
        view = StreamView(source_tree=join(target.root, source), target_tree=join(target.root, copy))
        top = Path(os.fsdecode(view.source_tree))
        steps = (
            ("creating files with ACLs and attributes", self._make),
            ("removing ACLs and attributes", self._change),
        )
        for what, work in steps:
            await self._step(what, partial(work, top))
            for kind, names in _CHUNKS:
                await self._copy(engine, view, kind, names)
            await self._step("syncing", target.sync)
            await self._step("reading back", partial(self._compare, source, copy))

    async def _copy(self, engine: DirectEngine, view: StreamView, kind: ChunkKind, names: Sequence[ListedPath]) -> None:
        from migrator.plan.chunk_lists import ListedPaths  # noqa: PLC0415 - pyarrow, for a trial alone

        work = ChunkWork(kind=kind, tree=b"", paths=ListedPaths.of(names), capabilities=self.capabilities, recopy=True)
        command = replace(engine.command(work, view), timeout_s=_TIMEOUT_S)
        completed, reader = await self.processes.run(command), engine.reader(work, view)
        reader.stdout(completed.stdout)
        reader.stderr(completed.stderr)
        outcome = reader.outcome(completed)
        suspects = [f"{show(one.path)}: {one.reason}" for one in outcome.suspects]
        if suspects or outcome.verdict is not AttemptVerdict.DONE:
            raise ToolFailed("; ".join(suspects) or outcome.message)

    def _make(self, tree: Path) -> None:
        directory, file, link = (tree / os.fsdecode(name) for name in (_DIRECTORY, *_FILES))
        directory.mkdir(0o700)
        file.write_bytes(b"written by a trial")
        link.symlink_to("file")
        for path, acls in ((directory, (ACL_ACCESS, ACL_DEFAULT)), (file, (ACL_ACCESS,))):
            xattrs = {b"user.migrator": b"x", **dict.fromkeys(acls, _ACL)}
            set_xattrs(os.fsencode(path), kept_xattrs(xattrs, self.capabilities))
            if self.euid == 0:
                os.chown(path, _FOREIGN_ID, _FOREIGN_ID)

    def _change(self, tree: Path) -> None:
        for name in (_DIRECTORY, _FILES[0]):
            set_xattrs(os.fsencode(tree / os.fsdecode(name)), {})
        (tree / os.fsdecode(_FILES[0])).write_bytes(b"changed")

    def _compare(self, source: bytes, copy: bytes) -> None:
        for name in (_DIRECTORY, *_FILES):
            before, after = (self.target.look(join(tree, name)) for tree in (source, copy))
            if before is None or after is None:
                raise ToolFailed(f"{show(name)} is missing after it was written")
            if found := compare(before, after, self.capabilities).differences:
                changes = "; ".join(
                    f"{one.kind.value}: {one.source}, and {one.target} after it was written" for one in found
                )
                raise ToolFailed(f"{show(name)}: {changes}")

    async def _step(self, what: str, work: Callable[[], object]) -> None:
        try:
            await self.blocking(work, timeout_s=_TIMEOUT_S)
        except TimeoutError:
            raise ToolFailed(f"{what}: no answer within {_TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise ToolFailed(f"{what}: {error.strerror or error}") from error

    async def _remove(self, place: bytes) -> None:
        def remove() -> None:
            with Root(self.target.root) as root:
                if problems := remove_tree(root, place, frozenset()).problems:
                    raise OSError(errno.EIO, "; ".join(problems))

        await self._step("removing the probe files", remove)
