"""Events, which operators see and the ledger keeps, and the findings of preflight checks."""

from enum import StrEnum

from msgspec import Struct


class EventKind(StrEnum):
    """The kinds of events."""

    SITE_CREATED = "site-created"
    SCAN_STARTED = "scan-started"
    SCAN_FINISHED = "scan-finished"
    SCAN_INTERRUPTED = "scan-interrupted"
    SOURCE_UNHEALTHY = "source-unhealthy"
    PLAN_WRITTEN = "plan-written"
    RUN_STARTED = "run-started"
    RUN_FINISHED = "run-finished"
    RUN_INTERRUPTED = "run-interrupted"
    BATCH_REFUSED = "batch-refused"
    TREES_LEFT_ALONE = "trees-left-alone"
    TREES_SET_APART = "trees-set-apart"
    PASS_STARTED = "pass-started"
    PASS_MOVED = "pass-moved"
    PASS_FINISHED = "pass-finished"
    PASS_JUDGED = "pass-judged"
    TRASH_EXPIRED = "trash-expired"
    POOL_STOPPED = "pool-stopped"
    CHUNK_RETRIED = "chunk-retried"
    CHUNK_SPLIT = "chunk-split"
    CHUNK_FAILED = "chunk-failed"
    ORPHAN_ENDED = "orphan-ended"
    FILE_BAD = "file-bad"
    VERIFY_STARTED = "verify-started"
    VERIFY_FINISHED = "verify-finished"
    PURGE_STARTED = "purge-started"
    PURGE_FINISHED = "purge-finished"
    PURGE_KEPT = "purge-kept"
    GUARD_REFUSED = "guard-refused"
    HOST_LOST = "host-lost"
    HOST_FOUND = "host-found"
    BRICKS_UNFIT = "bricks-unfit"
    BRICKS_FIT = "bricks-fit"
    TREE_DRIVEN = "tree-driven"
    TREE_STRIPED = "tree-striped"
    STORAGE_LOST = "storage-lost"
    STORAGE_BACK = "storage-back"
    CAPABILITIES_PROBED = "capabilities-probed"
    CUTOVER_STARTED = "cutover-started"
    CUTOVER_STEP = "cutover-step"
    CUTOVER_FAILED = "cutover-failed"
    CUTOVER_REVERTING = "cutover-reverting"
    CUTOVER_GIVEN_UP = "cutover-given-up"
    CUTOVER_HALTED = "cutover-halted"
    CUTOVER_FINISHED = "cutover-finished"
    TREE_COMPARED = "tree-compared"
    COMPARISON_FAILED = "comparison-failed"
    DRAIN_STEP = "drain-step"
    DRAIN_FAILED = "drain-failed"
    DRAIN_HALTED = "drain-halted"
    DRAIN_FINISHED = "drain-finished"
    DRAIN_DOUBTED = "drain-doubted"
    ADDITION_STEP = "addition-step"
    ADDITION_FAILED = "addition-failed"
    ADDITION_HALTED = "addition-halted"
    ADDITION_FINISHED = "addition-finished"
    RETIREMENT_STARTED = "retirement-started"
    RETIREMENT_FINISHED = "retirement-finished"
    RETIREMENT_GIVEN_UP = "retirement-given-up"
    RETIREMENT_HALTED = "retirement-halted"
    QUOTA_NEAR = "quota-near"
    QUOTA_LIMIT = "quota-limit"
    TARGET_DIFFERS = "target-differs"
    THROTTLE_SET = "throttle-set"
    STREAMS_SET = "streams-set"
    LEDGER_HELD = "ledger-held"
    LIMITS_SET = "limits-set"
    OPTION_SET = "option-set"
    BACKUP_REPORTED = "backup-reported"
    HOOK_CALLED = "hook-called"
    HOOK_SKIPPED = "hook-skipped"
    HOOK_REFUSED = "hook-refused"
    HOOK_FAILED = "hook-failed"
    HOOK_INTERRUPTED = "hook-interrupted"
    USER_NOTIFIED = "user-notified"
    FILES_ARCHIVED = "files-archived"
    ARCHIVE_VOID = "archive-void"
    FILES_RESTORED = "files-restored"
    BENCHMARK_RUN = "benchmark-run"
    BENCHMARK_FAILED = "benchmark-failed"
    BENCHMARK_LEFT = "benchmark-left"


class Severity(StrEnum):
    """How much an event matters to an operator."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Event(Struct, frozen=True, kw_only=True):
    """One entry of the migration's log."""

    at_s: float
    """When it happened."""
    kind: EventKind
    """Its kind."""
    severity: Severity
    """How much it matters."""
    subject: str
    """The batch, chunk, tree or file."""
    message: str


class FindingStatus(StrEnum):
    """A migration may begin with warnings, but not with failures."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


class Finding(Struct, frozen=True, kw_only=True):
    """One result of a preflight check."""

    check: str
    """Name of the check."""
    status: FindingStatus
    """Its result."""
    message: str
    fix: str = ""
    """The remedy; empty if none is needed."""


def ok(check: str, message: str) -> Finding:
    """A passed check."""
    return Finding(check=check, status=FindingStatus.OK, message=message)


def warning(check: str, message: str, fix: str) -> Finding:
    """A finding to consider before the migration begins."""
    return Finding(check=check, status=FindingStatus.WARNING, message=message, fix=fix)


def failure(check: str, message: str, fix: str) -> Finding:
    """A finding to repair before the migration begins."""
    return Finding(check=check, status=FindingStatus.FAILURE, message=message, fix=fix)
