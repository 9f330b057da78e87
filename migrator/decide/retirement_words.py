"""What a retirement of the source volume came to, in words. Pure."""

from datetime import UTC, datetime

from migrator.domain.retirement import (
    CoverFound,
    PathSum,
    RetireEnding,
    RetirementRecord,
    RetirementSummary,
)
from migrator.domain.units import format_size, several

NOTHING_DELETED = (
    "nothing of it is deleted: `gluster volume delete` is left to you, and `gluster volume start` takes this back"
)


def in_words(found: PathSum) -> str:
    """So many paths, with the verb that follows them."""
    size = format_size(found.size_bytes)
    return several(found.paths, f"path ({size}) is", f"paths ({size}) are")


def would_be_done(volume: str, cover: CoverFound) -> RetirementSummary:
    """A dry run that nothing speaks against."""
    return RetirementSummary(
        volume=volume,
        dry_run=True,
        ending=RetireEnding.PLANNED,
        words=f"everything is proven to be on the target, by the catalog {cover.catalog}: the volume would be stopped",
        hint=f"to retire it, say --confirm {volume}: the source is scanned anew then, before it is stopped",
        cover=cover,
    )


def done(record: RetirementRecord, cover: CoverFound) -> RetirementSummary:
    """The volume was stopped by this call."""
    return RetirementSummary(
        volume=record.volume,
        dry_run=False,
        ending=RetireEnding.DONE,
        words=f"volume {record.volume} is retired: it is stopped, and everything in it is proven to be on the target",
        hint=NOTHING_DELETED,
        cover=cover,
        retirement=record,
    )


def done_before(record: RetirementRecord, *, dry_run: bool) -> RetirementSummary:
    """The volume was stopped before."""
    at_s = record.intended_at_s if record.ended_at_s is None else record.ended_at_s
    return RetirementSummary(
        volume=record.volume,
        dry_run=dry_run,
        ending=RetireEnding.DONE_BEFORE,
        words=f"volume {record.volume} is retired since {datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M} UTC",
        hint=NOTHING_DELETED,
        retirement=record,
    )


def halted(
    volume: str,
    words: str,
    *,
    dry_run: bool,
    reasons: tuple[str, ...] = (),
    hint: str = "put that right, then run the same command again",
    cover: CoverFound | None = None,
) -> RetirementSummary:
    """Something speaks against it."""
    return RetirementSummary(
        volume=volume,
        dry_run=dry_run,
        ending=RetireEnding.HALTED,
        words=words,
        hint=hint,
        reasons=reasons,
        cover=cover,
    )


def uncovered(volume: str, cover: CoverFound, *, dry_run: bool, reasons: tuple[str, ...]) -> RetirementSummary:
    """There are paths that no manifest covers. `reasons` say which manifests do not count."""
    total = PathSum(
        paths=sum(one.paths for one in cover.uncovered.values()),
        size_bytes=sum(one.size_bytes for one in cover.uncovered.values()),
    )
    hint = (
        "move them with a user tree ([users] trees in site.toml, then scan, plan, run, cutover), purge trees whose users "
        "were moved, or remove by hand what nobody needs; then run the same command again"
    )
    return halted(
        volume,
        f"{in_words(total)} not proven to be on the target: nothing was touched",
        dry_run=dry_run,
        reasons=reasons,
        hint=hint,
        cover=cover,
    )
