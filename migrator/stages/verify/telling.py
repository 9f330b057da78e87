"""What people are told of a verification: how far it is, what it found, and what the shell sees."""

from migrator.domain.errors import ExitCode
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.plan import Batch
from migrator.domain.progress import VerifyProgress
from migrator.domain.units import format_count, format_size, several
from migrator.domain.verification import VerificationRecord
from migrator.ports.clock import Clock
from migrator.ports.ledger import Ledger
from migrator.ports.manifest import Examples
from migrator.ports.progress import Progress
from migrator.stages.verify.tally import Tally

_SHOW_EVERY_S = 0.5


def exit_code(record: VerificationRecord) -> ExitCode:
    """What the shell sees. A verification that is not whole proves nothing, whatever it found: refused. One that is
    whole and found differences has files that need attention; expected losses are none.
    """
    if not record.whole:
        return ExitCode.REFUSED
    return ExitCode.ATTENTION if record.differences else ExitCode.DONE


class Telling:
    """Events and progress of one verification, from when this is made."""

    def __init__(self, ledger: Ledger, progress: Progress, clock: Clock, *, batch: int) -> None:
        self._ledger = ledger
        self._progress = progress
        self._clock = clock
        self._subject = f"batch {batch}"
        self._began_s = clock.monotonic_s()

    def event(self, kind: EventKind, severity: Severity, message: str) -> None:
        """Say something, and keep it."""
        event = Event(at_s=self._clock.now_s(), kind=kind, severity=severity, subject=self._subject, message=message)
        self._ledger.events.add(event)
        self._progress.event(event)

    def began(self, batch: Batch) -> None:
        """Something is read from now on."""
        of = f"{several(_path_count(batch), 'path')} of {several(len(batch.trees), 'user tree')}"
        self.event(EventKind.VERIFY_STARTED, Severity.INFO, f"comparing {of}")

    async def show_again_and_again(self, batch: Batch, tally: Tally) -> None:
        """How far it is, until it is cancelled."""
        while True:
            self.show(batch, tally)
            await self._clock.sleep(_SHOW_EVERY_S)

    def show(self, batch: Batch, tally: Tally) -> None:
        """How far it is."""
        # The plan counts what lies in the trees; what users added since is no more than a whole either.
        paths, size_bytes = tally.paths, tally.size_bytes
        self._progress.show(
            VerifyProgress(
                batch=batch.number,
                elapsed_s=self._clock.monotonic_s() - self._began_s,
                paths=paths,
                total_paths=max(_path_count(batch), paths),
                size_bytes=size_bytes,
                total_bytes=max(batch.size_bytes, size_bytes),
                differences=tally.difference_count,
                digested_bytes=tally.digested_bytes,
                carried_bytes=tally.carried_bytes,
            )
        )

    def result(self, record: VerificationRecord, examples: Examples) -> None:
        """What was found, kind by kind with an example, and the sum of it."""
        for difference in examples.differences:
            count = record.differences.get(difference.kind.value, 0)
            words = f"{format_count(count)} x {difference.kind.value}, as {show(difference.path)}"
            detail = f"source {difference.source}, target {difference.target}"
            self.event(EventKind.FILE_BAD, Severity.WARNING, f"{words} ({detail})")
        for loss in examples.losses:
            count = record.expected.get(loss.kind.value, 0)
            words = f"{format_count(count)} x {loss.kind.value}, as {show(loss.path)} ({loss.detail})"
            self.event(EventKind.VERIFY_FINISHED, Severity.INFO, f"the target cannot keep, as expected: {words}")
        severity = Severity.INFO if exit_code(record) is ExitCode.DONE else Severity.WARNING
        self.event(EventKind.VERIFY_FINISHED, severity, _summary(record))


def _path_count(batch: Batch) -> int:
    """What a verification compares: also the trees' own directories, which a plan does not count."""
    return batch.files + batch.directories + len(batch.trees)


def _summary(record: VerificationRecord) -> str:
    content = f"content of {format_size(record.digested_bytes)} of {format_size(record.size_bytes)} read"
    if record.carried_files:
        content += f", that of {format_size(record.carried_bytes)} had been read before and has not changed since"
    checked = f"{several(record.paths, 'path')} compared, {content}"
    arrived = f"{format_count(record.equal_paths)} are equal and in the manifest"
    if not record.whole:
        return f"{checked}; not whole: {'; '.join(record.reasons)}"
    total = sum(record.differences.values())
    return f"{checked}; {arrived}; {several(total, 'difference')}" if total else f"{checked}; {arrived}; all equal"
