"""Write plans/sample.json anew: the plan of an invented site, in the form that this version writes (`make docs`)."""

from pathlib import Path

from msgspec.structs import replace

from migrator.beegfs.model import TreeOwner
from migrator.core.entry import UserTree
from migrator.core.units import DAY_S, GIB, TIB, YEAR_S
from migrator.fs.model import Capacity, SurpriseKind
from migrator.plan import model as plan
from migrator.plan.document import write_document
from migrator.plan.rules_forecast import Growth
from migrator.plan.schedule.model import (
    CopyTally,
    DrainCopying,
    PlacedContent,
    Schedule,
    ScheduledBatch,
    ScheduledSubvolume,
    ScheduleInput,
)
from migrator.plan.schedule.rules import assumptions, make_schedule
from migrator.plan.schedule.rules_drains import assumed_drain_cost, slower_in_drains
from migrator.plan.schedule.rules_habits import Habits

SAMPLE = Path(__file__).resolve().parent.parent / "plans" / "sample.json"
CREATED_AT_S = 1_767_225_600.0

ALICE = UserTree(path=b"home/alice", user="alice")
BOB = UserTree(path=b"home/bob", user="bob")
CAROL = UserTree(path=b"home/carol \xe9t\xe9", user="carol")


def usage(tree: UserTree, size_bytes: int, files: int) -> plan.TreeUsage:
    """One user tree, half of it older than a year."""
    half_files, half_bytes = files // 2, size_bytes // 2
    ages = (
        plan.AgeBucket(label="30 d", max_age_s=30 * DAY_S, files=files // 5, size_bytes=size_bytes // 4),
        plan.AgeBucket(
            label="1 y",
            max_age_s=YEAR_S,
            files=files - half_files - files // 5,
            size_bytes=half_bytes - size_bytes // 4,
        ),
        plan.AgeBucket(label="older", max_age_s=None, files=half_files, size_bytes=size_bytes - half_bytes),
    )
    return plan.TreeUsage(
        tree=tree,
        files=files,
        directories=files // 20,
        size_bytes=size_bytes,
        allocated_bytes=size_bytes,
        tiny_files=files // 3,
        largest_bytes=size_bytes // 10,
        largest_path=tree.path + b"/runs/2025/checkpoint.h5",
        link_groups=files // 1000,
        symlinks=files // 500,
        specials=0,
        by_mtime=ages,
        by_atime=ages,
        median_age_s=float(YEAR_S),
    )


RANKING = (usage(ALICE, 12 * TIB, 9_000_000), usage(BOB, 5 * TIB, 2_500_000), usage(CAROL, 300 * GIB, 40_000))
COST = plan.TransferCost(
    s_per_file=0.002, s_per_byte=1 / (120 * 10**6), streams=4, basis="assumed: 500 files/s and 120 MB/s per stream"
)


def forecast_s(usages: tuple[plan.TreeUsage, ...]) -> float:
    """How long these take with all streams."""
    files, size_bytes = sum(one.files for one in usages), sum(one.size_bytes for one in usages)
    return round((files * COST.s_per_file + size_bytes * COST.s_per_byte) / COST.streams, 1)


def batch(number: int, usages: tuple[plan.TreeUsage, ...]) -> plan.Batch:
    """One batch of these trees."""
    return plan.Batch(
        number=number,
        trees=tuple(one.tree for one in usages),
        size_bytes=sum(one.size_bytes for one in usages),
        files=sum(one.files for one in usages),
        directories=sum(one.directories for one in usages),
        chunks=sum(max(one.size_bytes // (4 * GIB), one.files // 5000) + 2 for one in usages),
        chunk_list=f"sample.chunks/batch-{number:04d}.parquet",
        chunk_list_digest=f"{number:032x}",
        forecast_s=forecast_s(usages),
        fits=True,
    )


BRICKS = 4
NO_FILES = PlacedContent(size_bytes=(0,) * BRICKS, files=(0,) * BRICKS)


def spread(one: plan.Batch) -> PlacedContent:
    """A batch as Gluster spreads it: evenly."""
    return PlacedContent(size_bytes=(one.size_bytes // BRICKS,) * BRICKS, files=(one.files // BRICKS,) * BRICKS)


def schedule(batches: tuple[plan.Batch, ...]) -> Schedule:
    """Two servers with two bricks each; what is cleared is added to the target."""
    size_bytes, drains = 6 * TIB, assumed_drain_cost()
    used_bytes = sum(one.size_bytes for one in batches) // BRICKS
    facts = ScheduleInput(
        subvolumes=tuple(
            ScheduledSubvolume(
                number=number + 1,
                bricks=(f"gl{number // 2 + 1}:/data/brick{number % 2 + 1}",),
                hosts=(f"gl{number // 2 + 1}",),
                total_bytes=size_bytes,
                free_bytes=size_bytes - used_bytes,
                added_bytes=size_bytes,
            )
            for number in range(BRICKS)
        ),
        batches=tuple(
            ScheduledBatch(
                number=one.number,
                placed=spread(one),
                target_bytes=one.size_bytes,
                target_inodes=one.files + one.directories,
                copy_days=one.forecast_s / DAY_S,
            )
            for one in batches
        ),
        kept=(),
        outside=NO_FILES,
        target_total_bytes=500 * TIB,
        target_free_bytes=480 * TIB,
        target_inodes_free=None,
        max_fill=0.9,
        reserve_bytes=0,
        growth_bytes_per_day=20.0 * GIB,
        retain_days=30.0,
        trash_keep_days=14.0,
        purge_days_per_file=1.0 / (1000 * DAY_S),
        drain_days_per_byte=drains.s_per_byte / DAY_S,
        drain_days_per_file=drains.s_per_file / DAY_S,
        handover_days=1.0,
    )
    growth = Growth(
        bytes_per_day=facts.growth_bytes_per_day, basis="[capacity] growth; too little was measured here yet"
    )
    nothing = DrainCopying(in_drains=CopyTally(), outside=CopyTally())
    slower = slower_in_drains(nothing, COST)
    words = assumptions(facts, copying=COST, slower=slower, drains=drains, growth=growth, reaped={}, habits=Habits())
    made = make_schedule(facts, assumptions=tuple(words))
    return replace(made, growth_basis=growth.basis)


def sample_plan() -> plan.Plan:
    """Three users in two batches, heaviest first."""
    batches = (batch(1, RANKING[:1]), batch(2, RANKING[1:]))
    first_s, whole_s = batches[0].forecast_s, batches[0].forecast_s + batches[1].forecast_s
    second_s = forecast_s(RANKING[:2])
    return plan.Plan(
        name="sample",
        site="gl-to-beegfs",
        site_id="00000000-0000-4000-8000-000000000000",
        created_at_s=CREATED_AT_S,
        order=plan.Order.HEAVIEST,
        catalog="catalog-000001",
        scan_id=1,
        catalog_whole=True,
        size_bytes=sum(one.size_bytes for one in RANKING),
        files=sum(one.files for one in RANKING),
        directories=sum(one.directories for one in RANKING),
        ranking=RANKING,
        outside=None,
        batches=batches,
        surprises=(
            plan.Surprise(
                kind=SurpriseKind.SYMLINK_INTO_SOURCE,
                tree=BOB.path,
                count=12,
                size_bytes=0,
                detail="absolute symlinks into the source's mount: they lead to the old place",
                examples=(BOB.path + b"/data",),
            ),
            plan.Surprise(
                kind=SurpriseKind.LOSS_TIME,
                tree=ALICE.path,
                count=8_999_000,
                size_bytes=12 * TIB,
                detail="times are cut to whole seconds",
                examples=(ALICE.path + b"/runs/2025/checkpoint.h5",),
            ),
        ),
        cost=COST,
        forecast_s=whole_s,
        target=Capacity(total_bytes=500 * TIB, free_bytes=480 * TIB, total_inodes=None, free_inodes=None),
        problems=(),
        emptying=(
            plan.EmptyingCurve(order=plan.Order.HEAVIEST, reached_s=(first_s, first_s, second_s, second_s, whole_s)),
        ),
        schedule=schedule(batches),
        owners=tuple(
            TreeOwner(tree=one.tree.path, uid=uid, size_bytes=one.size_bytes, files=one.files - one.symlinks)
            for uid, one in enumerate(RANKING, start=20_001)
        ),
    )


if __name__ == "__main__":
    SAMPLE.write_text(write_document(sample_plan())[0], encoding="utf-8")
