"""What cannot go on, and what it waits for: said before somebody asks. Pure."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from migrator.decide.strange_files import REMEDY, strange_words
from migrator.domain.errors import EXIT_CODE_MEANINGS, ExitCode
from migrator.domain.ledger_sums import PlanFacts
from migrator.domain.report import BatchFacts, Blocker, RunFacts, RunLife, ScanFacts
from migrator.domain.scan import StrangeFiles
from migrator.domain.states import BatchState, ChunkState
from migrator.domain.units import format_count, format_duration, several
from migrator.domain.verification import DifferenceKind, VerificationRecord

_GOES_ON = (ExitCode.DONE, ExitCode.ATTENTION)
_UNDONE_BY = {"brick-drain": "brick-stop", "cutover": "rollback", "rollback": "cutover"}
"""What somebody has taken back since is not to be given again."""
_MAY_PASS = (DifferenceKind.CHANGED, DifferenceKind.UNREADABLE, DifferenceKind.UNPROVEN)


def blockers(
    *,
    site: str | None,
    scan: ScanFacts | None,
    plan: PlanFacts | None,
    batches: Sequence[BatchFacts],
    runs: Sequence[RunFacts],
    strange: Sequence[StrangeFiles] = (),
) -> tuple[Blocker, ...]:
    """Everything that waits for somebody, in the order of the flow. `strange` is what the newest scan of the bricks found there that
    was put there past Gluster.
    """
    if site is None:
        return (Blocker(subject="everything", on="the site is not set up", hint="migrator init"),)
    found = [*_scan(scan, plan), *_strange(strange)]
    if plan is not None:
        for batch in batches:
            found.extend(_batch(batch))
    found.extend(_runs(runs))
    return tuple(found)


def _scan(scan: ScanFacts | None, plan: PlanFacts | None) -> Iterator[Blocker]:
    if scan is None:
        yield Blocker(subject="plan", on="there is no catalog of the source", hint="migrator scan")
        return
    if scan.finished_at_s is None:
        yield Blocker(subject="plan", on=f"the scan {scan.name} has not ended", hint="migrator scan (it goes on)")
    elif not scan.whole:
        reasons = "; ".join(scan.reasons[:3]) or "no reason was recorded"
        more = f"; and {len(scan.reasons) - 3} more" if len(scan.reasons) > 3 else ""
        yield Blocker(
            subject="everything that deletes or switches",
            on=f"the scan {scan.name} is not whole: {reasons}{more}",
            hint="put that right, then migrator scan",
        )
    if plan is None and scan.finished_at_s is not None:
        yield Blocker(subject="run", on="there is no plan", hint="migrator plan")


def _strange(found: Sequence[StrangeFiles]) -> Iterator[Blocker]:
    for one in found:
        yield Blocker(
            subject=f"drains and additions: {one.brick}",
            on=f"{strange_words(one)}, and clients that ask for such a name can hang",
            hint=f"{REMEDY}; then migrator scan --via bricks",
        )


def _batch(batch: BatchFacts) -> Iterator[Blocker]:
    subject = f"batch {batch.number}"
    failed = batch.chunks.get(ChunkState.FAILED, 0)
    if failed:
        yield Blocker(
            subject=subject,
            on=f"{several(failed, 'chunk')} failed each time",
            hint=f"see the files that need attention, then migrator run --user-batch {batch.number}",
        )
    if batch.attention.bad:
        yield Blocker(
            subject=subject,
            on=f"{several(batch.attention.bad, 'file')} could not be copied",
            hint=f"put their reasons right, then migrator run --user-batch {batch.number}",
        )
    match batch.state:
        case BatchState.PLANNED | BatchState.SEEDING | BatchState.VERIFIED:
            pass
        case BatchState.SEEDED | BatchState.CONVERGING:
            yield from _verification(batch, subject)
        case _:
            assert_never(batch.state)


def _verification(batch: BatchFacts, subject: str) -> Iterator[Blocker]:
    hint = f"migrator verify --user-batch {batch.number}"
    verification = batch.verification
    if verification is None:
        yield Blocker(subject=f"{subject}: cutover", on="it is copied and not verified", hint=hint)
        return
    differences = sum(verification.differences.values())
    if differences:
        kinds = ", ".join(f"{format_count(count)} {kind}" for kind, count in verification.differences.items() if count)
        yield Blocker(
            subject=f"{subject}: cutover",
            on=f"the verification found {several(differences, 'difference')} ({kinds})",
            hint=after_differences(verification),
        )
    if not verification.whole:
        reasons = "; ".join(verification.reasons[:3]) or "no reason was recorded"
        yield Blocker(subject=f"{subject}: cutover", on=f"the verification is not whole: {reasons}", hint=hint)


def after_differences(verification: VerificationRecord) -> str:
    """What to do about the differences that a verification found; empty where there are none.

    A delta pass brings what users changed since, and takes away what they deleted. It goes by what changed on the source,
    so what was changed on the target itself takes a new plan. What is on the target alone is taken away by it as well, as far
    as this program has brought it there.
    """
    counts = {kind: count for kind, count in verification.differences.items() if count}
    again = sum(counts.pop(kind.value, 0) for kind in _MAY_PASS)
    steps = []
    if counts:
        recopy = ""
        if content := counts.get(DifferenceKind.CONTENT.value, 0):
            recopy = f" with --recopy ({several(content, 'file differs', 'files differ')} in content, not in size)"
        steps.append(
            f"for what users changed since: `migrator run --user-batch {verification.batch}` makes a delta pass, then verify "
            "again"
        )
        if counts.keys() - {DifferenceKind.EXTRA.value}:
            steps.append(
                "what is still missing or differs then was changed on the target itself: `migrator scan`, `migrator plan`, "
                f"`migrator run`{recopy} and `migrator verify` by the new plan"
            )
        if extra := counts.get(DifferenceKind.EXTRA.value, 0):
            steps.append(
                f"{several(extra, 'path is', 'paths are')} on the target only: what is still there then was not brought by this "
                "program, or a guard speaks against it (see what `run` says), and nothing takes it away"
            )
    if again:
        steps.append(
            f"for what changed or could not be read meanwhile: migrator verify --user-batch {verification.batch}"
        )
    return "; ".join(steps)


def _runs(runs: Sequence[RunFacts]) -> Iterator[Blocker]:
    newest: dict[str, RunFacts] = {}
    for run in runs:
        newest.setdefault(run.verb, run)
    for run in newest.values():
        undone = newest.get(_UNDONE_BY.get(run.verb, ""))
        if undone is not None and undone.started_at_s > run.started_at_s and undone.exit_code in _GOES_ON:
            continue
        verb = run.verb.split()[0] if run.verb.split() else run.verb
        if run.life is RunLife.KILLED:
            yield Blocker(
                subject=verb,
                on=f"process {run.pid} was killed: it is gone and did not say how it ended",
                hint=f"the same command again: it goes on where it was; its log is in {run.directory}",
            )
        elif run.life is RunLife.SILENT:
            yield Blocker(
                subject=verb,
                on=f"process {run.pid} has given no sign of life for {format_duration(run.silent_s)}: killed, or it hangs",
                hint=f"make sure that it has ended, then the same command again; its log is in {run.directory}",
            )
        elif run.life is RunLife.ENDED and run.exit_code is not None and run.exit_code not in _GOES_ON:
            known = run.exit_code in set(ExitCode)
            meaning = EXIT_CODE_MEANINGS[ExitCode(run.exit_code)] if known else "unknown"
            yield Blocker(
                subject=verb,
                on=f"it ended with exit code {run.exit_code} ({meaning})",
                hint=f"see the events and the log in {run.directory}, then the same command again",
            )
