"""Archives of the site that have to hold a tree before it is purged: hooks make them, and their digests are compared."""

import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from migrator.core.durable import file_digest
from migrator.core.paths import show
from migrator.core.units import several
from migrator.purge import model
from migrator.purge.proofs import IndexedProofs
from migrator.purge.rules import digest_record

_MANIFEST = "manifest"
"""Not named as the list of an archive, so that no archive can be proven by it."""
_PLACE_CHARACTERS = 1000
_PIECE_BYTES = 1 << 20
_RECORD_BYTES = 1 << 16
_ANSWER = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\.archive")


class Answers(Struct, frozen=True, kw_only=True):
    """The directory in which `pre-purge` hooks say which archives hold a tree.

    It has the digests of the manifests (`manifest`), and a file `NAME.proven` for each archive that counts. A
    hook writes `NAME.digests`, and then `NAME.archive` with the archive's place, and removes `NAME.proven` if the archive is
    lost. Only root can enter it. Blocking; all methods raise OSError and may be called again.
    """

    directory: Path
    tree: bytes
    manifests: str

    def offer(self, proofs: IndexedProofs, proven: Sequence[model.SecondCopy]) -> None:
        """Prepare the directory for hooks. What a job of an earlier call writes there stays."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        wanted = {self._proven(one) for one in proven}
        for stale in set(self.directory.glob("*.proven")) - wanted:
            stale.unlink()
        for place in wanted:
            place.touch()
        with open(self.directory / _MANIFEST, "wb") as stream:
            for path, digest in proofs.digests():
                stream.write(b"%s  %s\0" % (digest.hex().encode("ascii"), path[len(self.tree) + 1 :]))

    def lost(self, proven: Sequence[model.SecondCopy]) -> list[model.SecondCopy]:
        """The archives that no longer count, by the hooks or by a job of an earlier call; none before the first `offer`."""
        offered = proven if (self.directory / _MANIFEST).exists() else ()
        return [one for one in offered if not self._proven(one).exists()]

    def taken(self, proofs: IndexedProofs, *, now_s: float) -> tuple[list[model.SecondCopy], list[str]]:
        """The archives that hold every file by their digests, and why others do not.

        The answers of the latter are removed, those of the former by `recorded`: a kill in between loses none.
        """
        whole: list[model.SecondCopy] = []
        problems: list[str] = []
        for place in sorted(self.directory.glob("*.archive")) if self.directory.is_dir() else ():
            answer = _ANSWER.fullmatch(place.name)
            if answer is None:
                problems.append(f"{show(os.fsencode(place.name))} is no name of an archive")
                continue
            try:
                found = self._compared(answer[1], proofs, now_s)
            except (OSError, ValueError) as error:
                found = f"its answer cannot be read: {getattr(error, 'strerror', None) or error}"
            if isinstance(found, str):
                problems.append(f"the archive {answer[1]} does not count: {found}")
                with suppress(OSError):
                    place.unlink()
            else:
                whole.append(found)
        return whole, problems

    def recorded(self, copies: Sequence[model.SecondCopy]) -> None:
        """Remove answers that are in the ledger now."""
        for one in copies:
            self._proven(one).touch()
            (self.directory / f"{one.name}.archive").unlink(missing_ok=True)

    def close(self) -> None:
        """Remove it with all answers."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _proven(self, copy: model.SecondCopy) -> Path:
        return self.directory / f"{copy.name}.proven"

    def _compared(self, name: str, proofs: IndexedProofs, now_s: float) -> model.SecondCopy | str:
        with _opened(self.directory / f"{name}.archive") as stream:
            text = stream.read(4 * _PLACE_CHARACTERS).decode("utf-8", "backslashreplace").strip()
        if not text.isprintable() or not 0 < len(text) <= _PLACE_CHARACTERS:
            return f"{name}.archive does not name its place in one line"
        file = self.directory / f"{name}.digests"
        with _opened(file) as stream:
            found = proofs.compare(digest_record(record, self.tree) for record in _records(stream))
        if found.missing or found.different:
            return (
                f"{several(found.missing, 'file')} of the manifest {'is' if found.missing == 1 else 'are'} missing in its list, and "
                f"{several(found.different, 'file')} {'differs' if found.different == 1 else 'differ'}, such as "
                f"{', '.join(map(show, found.examples))}"
            )
        return model.SecondCopy(
            tree=self.tree,
            name=name,
            place=text,
            manifests=self.manifests,
            algorithm=", ".join(proofs.algorithms()),
            files=found.files,
            size_bytes=found.size_bytes,
            extra=found.extra,
            list_digest=file_digest(file),
            at_s=now_s,
        )


def _opened(file: Path) -> BinaryIO:
    """A regular file. Raises OSError, and ValueError for anything else."""
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ValueError(f"{file.name} is not a regular file")
    return open(fd, "rb")


def _records(stream: BinaryIO) -> Iterator[bytes]:
    rest = b""
    while piece := stream.read(_PIECE_BYTES):
        *whole, rest = (rest + piece).split(b"\0")
        if len(rest) > _RECORD_BYTES:
            break
        yield from whole
    if rest:
        raise ValueError("the list does not end with a NUL character, or a record of it is too long")
