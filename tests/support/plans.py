"""A small plan, for tests of what keeps and shows plans."""

from migrator.core.entry import UserTree
from migrator.core.units import DAY_S
from migrator.fs.model import Capacity, SurpriseKind
from migrator.plan import model as plan
from migrator.plan.rules import LinkSpan, SpanMember
from tests.support.making import made


def usage(
    tree: UserTree | bytes, size_bytes: int = 0, files: int = 0, *, directories: int = 0, age_s: float = 0.0
) -> plan.TreeUsage:
    """What a tree holds: nothing of it is older than 30 days. `age_s` is the median."""
    if isinstance(tree, bytes):
        tree = UserTree(path=tree, user=tree.decode())
    ages = (
        plan.AgeBucket(label="30 d", max_age_s=30 * DAY_S, files=files, size_bytes=size_bytes),
        plan.AgeBucket(label="older", max_age_s=None, files=0, size_bytes=0),
    )
    return made(
        plan.TreeUsage,
        tree=tree,
        files=files,
        directories=directories,
        size_bytes=size_bytes,
        allocated_bytes=size_bytes,
        largest_bytes=size_bytes,
        largest_path=tree.path + b"/largest",
        by_mtime=ages,
        by_atime=ages,
        median_age_s=age_s,
    )


def span(*trees: bytes | None, size_bytes: int = 1) -> LinkSpan:
    """A link group with names in these trees (None: outside of all)."""
    members = tuple(SpanMember(tree=tree, names=1, examples=()) for tree in trees)
    return LinkSpan(members=members, groups=1, size_bytes=size_bytes)


def small_plan(name: str = "plan", *, trees: tuple[UserTree, ...] = ()) -> plan.Plan:
    """Two batches of one tree each: the first given tree and the second."""
    first, second = trees or (UserTree(path=b"home/alice", user="alice"), UserTree(path=b"home/bob", user="bob"))
    return plan.Plan(
        name=name,
        site="rehearsal",
        site_id="5e1f",
        created_at_s=100.0,
        order=plan.Order.HEAVIEST,
        catalog="catalog-1",
        scan_id=1,
        catalog_whole=True,
        size_bytes=1500,
        files=15,
        directories=6,
        ranking=(usage(first, 1000, 10, directories=3), usage(second, 500, 5, directories=3)),
        outside=None,
        batches=tuple(
            plan.Batch(
                number=number,
                trees=(tree,),
                size_bytes=size_bytes,
                files=files,
                directories=3,
                chunks=2,
                chunk_list=f"{name}.chunks/batch-{number:04}.parquet",
                chunk_list_digest="d",
                forecast_s=60.0 / number,
                fits=True,
            )
            for number, tree, size_bytes, files in ((1, first, 1000, 10), (2, second, 500, 5))
        ),
        surprises=(
            plan.Surprise(
                kind=SurpriseKind.LOSS_ACL,
                tree=first.path,
                count=2,
                size_bytes=10,
                detail="ACLs with more than 400 entries",
                examples=(first.path + b"/a", first.path + b"/b"),
            ),
        ),
        cost=plan.TransferCost(s_per_file=0.01, s_per_byte=1e-8, streams=4, basis="assumed"),
        forecast_s=90.0,
        target=Capacity(total_bytes=10_000, free_bytes=9_000, total_inodes=None, free_inodes=None),
        problems=(),
        emptying=(plan.EmptyingCurve(order=plan.Order.HEAVIEST, reached_s=(60.0, 60.0, 90.0, 90.0, 90.0)),),
    )
