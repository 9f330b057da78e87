"""What the user has not changed on the target is read there again before a tree is freed: by hosts, as for a verification."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from migrator.catalog.model import ContentReading
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import work_through
from migrator.fs.model import DigestPolicy
from migrator.purge import model
from migrator.purge.call import PurgeCall
from migrator.purge.judge import PathJudge, TreeFindings
from migrator.purge.proofs import IndexedProofs
from migrator.purge.survey import progress_shown
from migrator.transfer.governor import governed
from migrator.verify.content import HOSTS_ALGORITHM, ContentReader, Readers

if TYPE_CHECKING:
    from migrator.catalog.manifest import ReadingParts


@dataclass(slots=True, kw_only=True)
class Rereading:
    """Reads the files that a survey has noted in `proofs`. What hosts have read is in `parts`, so a call that is killed resumes;
    within a day, because disks may lose later what was read. `verification` is the one that the proofs come from.

    Files that no host reads, or that differ there, are read through the mount, which decides. Call `run` once.
    """

    call: PurgeCall
    proofs: IndexedProofs
    parts: "ReadingParts"
    verification: int
    _content: ContentReader | None = field(init=False, default=None)
    _files: int = field(init=False, default=0)

    async def run(self, judge: PathJudge, *, user: str, files: int) -> TreeFindings:
        """Read them all; returns what is not as it was verified. Raises Refused, and OSError if results cannot be written."""
        found, ports = TreeFindings(), self.call.ports
        async with progress_shown(
            self.call, found, self._read, user=user, step="reading the target again", total=files
        ):
            if ports.readers is not None:
                async with ports.readers() as readers:
                    await self._by_hosts(readers, user)
            await self._through_the_mount(judge, found)
        return found

    def _read(self) -> int:
        return self._files + (0 if self._content is None else self._content.read_files)

    async def _by_hosts(self, readers: Readers, user: str) -> None:
        ports = self.call.ports
        await asyncio.to_thread(self.parts.forget_if_old, ports.clock.now_s())

        def say(kind: EventKind, severity: Severity, message: str) -> None:
            self.call.emit(kind, severity, user, message)

        self._content = ContentReader(
            readers=readers,
            parts=self.parts,
            reading=ContentReading(verification=self.verification, source_clock_ns=None, target_clock_ns=None),
            policy=DigestPolicy(algorithm=HOSTS_ALGORITHM, share=1.0, seed=0),
            clock=ports.clock,
            report=say,
            of_target=True,
        )
        governor = governed(
            readers.governing,
            readers.lanes,
            run_id=None,
            clock=ports.clock,
            report=partial(say, EventKind.STREAMS_SET),
        )
        async with governor as self._content.governor:
            await self._content.read(self.proofs.groups(HOSTS_ALGORITHM))
        await asyncio.to_thread(lambda: self.proofs.take_readings(self.parts.files(), ports.scratch))

    async def _through_the_mount(self, judge: PathJudge, found: TreeFindings) -> None:
        def read(proof: model.Proof) -> None:
            judge.read_again(proof, found)
            self._files += 1

        await work_through(self.proofs.not_read_again(), read, workers=self.call.request.workers)
