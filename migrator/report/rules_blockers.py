"""Everything that waits for an operator: blockers, and the ordinary next steps. Pure."""

from collections.abc import Collection, Iterator, Sequence

from migrator.catalog.model import CatalogRecord, StrangeFiles, VerificationRecord
from migrator.core.blocker import Blocker
from migrator.core.errors import EXIT_CODE_MEANINGS, ExitCode
from migrator.core.paths import show
from migrator.core.states import BatchState, ChunkState
from migrator.core.units import (
    first_of,
    format_count,
    format_duration,
    several,
)
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.fs.model import DifferenceKind
from migrator.report import model
from migrator.report.rules import newest_runs
from migrator.scan.rules import REMEDY, describe_strange_files

# --- Blockers


_FINISHED = (ExitCode.DONE, ExitCode.ATTENTION)
_UNDONE_BY = {"brick-drain": "brick-stop", "cutover": "rollback", "rollback": "cutover"}
"""A failed command does not have to be repeated if its opposite finished later."""
_MAY_PASS = (DifferenceKind.CHANGED, DifferenceKind.UNREADABLE, DifferenceKind.UNPROVEN)
_Found = Iterator[tuple[str, str, str]]


def blockers(
    *,
    scan: CatalogRecord | None,
    plan: model.PlanFacts | None,
    batches: Sequence[model.BatchStatus],
    runs: Sequence[model.RunStatus],
    scanning: bool = False,
    strange: Sequence[StrangeFiles] = (),
    set_apart: Sequence[bytes] = (),
    returned: Sequence[bytes] = (),
    over: Collection[int] = (),
) -> tuple[Blocker, ...]:
    """Everything that failed or was interrupted and waits for an operator, in the order of the work. `scanning`: a scan
    is at work. `strange` has the files on bricks that bypassed Gluster, by the newest scan of the bricks; `set_apart`
    the trees that are in no batch because the scan of the plan could not read them; `returned` those that are in none
    because their users were rolled back after the plan was made; `over` the batches whose verification no longer counts
    (`verified_otherwise`).
    """
    found = [*_scan(scan, plan, set_apart, returned, scanning=scanning), *_strange(strange)]
    found += [one for batch in batches if plan is not None for one in _batch(batch, over=batch.number in over)]
    found += _runs(runs)
    return tuple(Blocker(subject=subject, on=on, hint=hint) for subject, on, hint in found)


def _scan(
    scan: CatalogRecord | None,
    plan: model.PlanFacts | None,
    set_apart: Sequence[bytes],
    returned: Sequence[bytes],
    *,
    scanning: bool,
) -> _Found:
    if plan is not None and set_apart:
        on = f"in no batch of {plan.name}: the scan could not read all of it"
        yield f"set apart: {_named(set_apart)}", on, "migrator scan, then migrator plan --activate"
    if plan is not None and returned:
        on = f"in no batch of {plan.name}: their users were rolled back after the plan was made"
        yield f"rolled back: {_named(returned)}", on, "migrator scan, then migrator plan --activate"
    if scan is None:
        return
    if scan.finished_at_s is None:
        if not scanning:
            yield "plan", f"the scan {scan.name} has not ended", "migrator scan (it resumes)"
    elif not scan.whole:
        subject = f"a new plan for {_named(scan.set_apart)}" if scan.set_apart else "delete, purge and switch"
        on = f"the scan {scan.name} is not whole: {_shown(scan.reasons)}"
        yield subject, on, "fix this, then migrator scan"


def _named(trees: Sequence[bytes]) -> str:
    return first_of(list(map(show, trees)), 3)


def _shown(reasons: Sequence[str]) -> str:
    return first_of(reasons, 3, mark=";") or "no reason was recorded"


def _strange(found: Sequence[StrangeFiles]) -> _Found:
    for one in found:
        on = f"{describe_strange_files(one)}, and clients that look up such a name can hang"
        yield f"drains and additions: {one.brick}", on, f"{REMEDY}; then migrator scan --via bricks"


def _batch(batch: model.BatchStatus, *, over: bool) -> _Found:
    subject = f"batch {batch.number} ({first_of(batch.users, 3)})" if batch.users else f"batch {batch.number}"
    again = f"migrator run --user-batch {batch.number}"
    failed, bad = batch.chunks.get(ChunkState.FAILED, 0), batch.attention.bad
    if (failed or bad) and not over:
        what = f"{several(bad, 'file')} failed" if bad else f"{several(failed, 'chunk')} failed at every attempt"
        yield subject, what, f"see the files that need attention, then {again}"
    if batch.verification is not None and batch.state in (BatchState.SEEDED, BatchState.CONVERGING) and not over:
        for on, hint in _verification(batch.number, batch.verification):
            yield f"{subject}: cutover", on, hint


def _verification(batch: int, verification: VerificationRecord) -> Iterator[tuple[str, str]]:
    if differences := sum(verification.differences.values()):
        kinds = ", ".join(f"{format_count(count)} {kind}" for kind, count in verification.differences.items() if count)
        on = f"the verification found {several(differences, 'difference')} ({kinds})"
        yield on, after_differences(verification)
    if not verification.whole:
        again = f"migrator verify --user-batch {batch}"
        yield f"the verification is not whole: {_shown(verification.reasons)}", again


def after_differences(verification: VerificationRecord) -> str:
    """The next steps after a verification with differences; empty without any. A delta pass resends files that
    differed, copies files that users changed since, and removes files that they deleted, if this program had copied
    them.
    """
    counts = {kind: count for kind, count in verification.differences.items() if count}
    again = sum(counts.pop(kind.value, 0) for kind in _MAY_PASS)
    steps = []
    if counts:
        steps.append(
            f"`migrator run --user-batch {verification.batch}` copies the differences and later changes; then verify again"
        )
        if extra := counts.get(DifferenceKind.EXTRA.value, 0):
            steps.append(
                f"{several(extra, 'path is', 'paths are')} on the target only: `run` removes those that migrator copied, unless a "
                "guard refuses it (see its output), and no others"
            )
    if again:
        steps.append(
            f"for what changed or could not be read meanwhile: migrator verify --user-batch {verification.batch}"
        )
    return "; ".join(steps)


def _runs(runs: Sequence[model.RunStatus]) -> _Found:
    newest = newest_runs(runs)
    by_verb = {run.verb: run for run in reversed(newest)}
    for run in newest:
        undone = by_verb.get(_UNDONE_BY.get(run.verb, ""))
        if undone is not None and undone.started_at_s > run.started_at_s and undone.exit_code in _FINISHED:
            continue
        hint = f"run the same command again: it resumes; the log is in {run.directory}"
        if run.life is model.RunLife.KILLED:
            on = f"process {run.pid} was killed: it is gone and recorded no end"
        elif run.life is model.RunLife.SILENT:
            on = f"process {run.pid} has had no heartbeat for {format_duration(run.silent_s)}: it hangs"
            hint = f"end it, then {hint}"
        elif run.life is model.RunLife.ENDED and run.exit_code is not None and run.exit_code not in _FINISHED:
            known = run.exit_code in set(ExitCode)
            meaning = EXIT_CODE_MEANINGS[ExitCode(run.exit_code)] if known else "unknown"
            on = f"it ended with exit code {run.exit_code} ({meaning})"
            hint = f"see the events and the log in {run.directory}, then run the same command again"
        else:
            continue
        yield run.verb.partition(" ")[0], on, hint


# --- The ordinary next steps: nothing is wrong


_COPYING = (BatchState.PLANNED, BatchState.SEEDING)
_COPIED = (BatchState.SEEDED, BatchState.CONVERGING)


def next_steps(
    *,
    site: str | None,
    scan: CatalogRecord | None,
    plan: model.PlanFacts | None,
    batches: Sequence[model.BatchStatus],
    trees: Sequence[model.TreeStatus],
    cutovers: Sequence[CutoverRecord],
    busy: Collection[str],
    over: Collection[int] = (),
) -> tuple[model.NextStep, ...]:
    """The next step of everything that waits for one, in the order of the work. `busy` are the verbs that are at work or
    blocked, `over` the batches that need no verification of their own (`verified_otherwise`).
    """
    if site is None:
        found = [("everything", "the site is not set up", "migrator init")]
    elif plan is not None:
        found = [*_of_batches(plan, batches, trees, over), *_of_kept(trees, cutovers)]
    elif scan is None and "scan" not in busy:
        found = [("source", "it was not scanned, and there is no plan", "migrator plan")]  # which scans first
    elif scan is not None and scan.finished_at_s is not None:
        found = [("source", "there is no plan", "migrator plan")]
    else:
        found = []
    return tuple(
        model.NextStep(subject=subject, state=state, hint=hint)
        for subject, state, hint in found
        if hint.split()[1] not in busy
    )


def next_command(steps: Sequence[model.NextStep], verb: str) -> str | None:
    """The one command to give after a verb that has succeeded: the first step that is another verb's, or else the first."""
    others = [one.hint for one in steps if one.hint.split()[1] != verb]
    return next(iter((*others, *(one.hint for one in steps))), None)


def _of_kept(trees: Sequence[model.TreeStatus], cutovers: Sequence[CutoverRecord]) -> _Found:
    kept = {one.tree.path for one in cutovers if one.state is CutoverState.RETAINED}
    users = {tree.tree.user for tree in trees if tree.state is model.TreeState.MOVED and tree.tree.path in kept}
    if users:
        words = several(len(users), "moved user", "moved users")
        yield words, "the retention of the source has not ended", "migrator purge --all --dry-run"


def _is_clean(verification: VerificationRecord) -> bool:
    return verification.whole and not any(verification.differences.values())


def _of_batches(
    plan: model.PlanFacts,
    batches: Sequence[model.BatchStatus],
    trees: Sequence[model.TreeStatus],
    over: Collection[int],
) -> _Found:
    open_batches = [one for one in batches if one.number not in over]
    to_copy = [one.number for one in open_batches if one.state in _COPYING]
    to_verify = [
        one.number
        for one in open_batches
        if one.state in _COPIED
        and (one.verification is None or _is_clean(one.verification))  # otherwise it is a blocker
        and not one.attention.bad
        and not one.chunks.get(ChunkState.FAILED)
    ]
    verified = {tree.batch for tree in trees if tree.plan == plan.name and tree.state is model.TreeState.VERIFIED}
    for numbers, state, verb, more in (
        (to_copy, "not copied yet", "run", ""),
        (to_verify, "copied, not verified", "verify", ""),
        (sorted(verified), "verified, not cut over", "cutover", " --dry-run"),
    ):
        if numbers:
            names = f"{'batch' if len(numbers) == 1 else 'batches'} {first_of([str(number) for number in numbers], 3)}"
            which = f"--user-batch {numbers[0]}" if len(numbers) == 1 else "--all"
            yield names, state, f"migrator {verb} {which}{more}"
