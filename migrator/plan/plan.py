"""`plan`: make a plan from a catalog, and write its document and chunk lists. Changes neither source nor target."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from migrator.beegfs.model import LayoutRule, StorageTarget, TreeOwner
from migrator.beegfs.rules import metadata_problems, quota_findings
from migrator.beegfs.rules_layout import size_rules, unused_rules
from migrator.beegfs.tool import QuotaReading
from migrator.catalog.model import CatalogRecord
from migrator.catalog.rules_packing import ChunkLimits, PackedChunk, pack
from migrator.core.clock import Clock
from migrator.core.entry import UserTree
from migrator.core.errors import Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import RSYNC_PATH_LIMIT_BYTES, show
from migrator.core.units import DAY_S, first_of, format_size, several
from migrator.fs.kinds.table import KINDS
from migrator.fs.model import Capacity, Need, RewrittenLinks, TargetCapabilities
from migrator.fs.rules_owners import taken_ids
from migrator.ledger.model import SiteRecord
from migrator.plan import rules_surprises
from migrator.plan.document import PlanFiles
from migrator.plan.losses import LossQuery, lost_atimes
from migrator.plan.model import Accounts, Batch, CleanUpKind, Order, Plan, Surprise, TransferCost, TreeUsage, Usages
from migrator.plan.rules import BatchLimits, LinkSpan, batch_trees, emptying_curves, rank, settled_trees, without_trees
from migrator.plan.rules_clean_up import clean_ups
from migrator.plan.rules_forecast import choose_cost, copy_s, inodes_known, room_problems, still_needed, which_fit
from migrator.plan.rules_needs import metadata_forecast, owner_needs
from migrator.plan.schedule.rules import schedule_problems
from migrator.plan.schedule.schedule import PlanScheduling, schedule_for_plan
from migrator.reap.model import PlanReap
from migrator.reap.rules import choose_rules, reaps, require_atime, savings
from migrator.site.config import Site
from migrator.site.model import DRIVERS, ReapAction, copies_ranges
from migrator.site.rules_guards import capacity_problems

if TYPE_CHECKING:
    from migrator.plan.chunk_lists import ChunkListFiles
    from migrator.plan.records import PlanLedger
    from migrator.plan.store import CatalogQueries, CatalogQueryFiles
    from migrator.reap.store import ReapListFiles

# --- The catalog, and its trees that are still to be planned


FRESH_S = 7 * DAY_S
"""So long after its end a catalog is new enough to plan from: delta passes carry later changes."""


def choose_catalog(wanted: str | None, ledger: "PlanLedger") -> str:
    """Return the requested catalog, or the newest finished one. Raises Refused, UsageError."""
    if wanted is not None:
        return wanted
    latest = ledger.scans.latest()
    if latest is not None:
        return latest.name
    if ledger.scans.unfinished() is not None:
        raise Refused(
            "the only catalog is half written",
            cause="its scan was interrupted or is still running",
            hint="run `migrator scan` to resume it",
        )
    raise UsageError("there is no catalog to plan from", cause="nothing was scanned yet", hint="run `migrator scan`")


def needs_scan(ledger: "PlanLedger", selected_by: Sequence[str], *, now_s: float) -> bool:
    """True if there is no catalog of the whole source to plan from, or only one that is too old, or whose user trees were
    chosen by other settings of [users] than `selected_by`.
    """
    latest = ledger.scans.latest()
    if latest is None or latest.finished_at_s is None or now_s - latest.finished_at_s > FRESH_S:
        return True
    return bool(latest.selected_by) and latest.selected_by != tuple(selected_by)


def require_usable(catalog: CatalogRecord, site: SiteRecord) -> None:
    """Raise Refused if the catalog is of another site, or of some trees only."""
    if catalog.site_id != site.site_id:
        raise Refused(
            f"catalog {catalog.name!r} is of another site",
            cause="the state directory was copied, or `init` was run anew",
            hint="run `migrator scan`",
        )
    if catalog.scope:
        raise Refused(
            f"catalog {catalog.name!r} covers {several(len(catalog.scope), 'user tree')} and not the whole source",
            cause="it was made by a delta pass, which scans the trees of its batch alone",
            hint="leave --catalog out for the latest one of the whole source, or run `migrator scan`",
        )


def moved_trees(catalog: CatalogRecord, ledger: "PlanLedger") -> frozenset[bytes]:
    """The trees of a catalog whose users work on the target. Raises UsageError if there are no others, Refused if one overlaps them."""
    paths = [tree.path for tree in catalog.trees]
    if not paths and not ledger.plans.names():
        raise UsageError(
            f"catalog {catalog.name!r} has no user tree",
            cause="no directory matched [users] trees when it was scanned",
            hint="correct [users] trees in site.toml and run `migrator scan` again",
        )
    ledger.cutovers.require_apart(paths)
    moved = settled_trees({path: record for path in paths if (record := ledger.cutovers.latest(path)) is not None})
    if moved.issuperset(paths):
        raise UsageError(
            "there is nothing left to plan: the users of all trees work on the target",
            hint="see `migrator status`; after a rollback a tree can be planned again",
        )
    return moved


def trees_apart(catalog: CatalogRecord, moved: Collection[bytes]) -> tuple[UserTree, ...]:
    """The trees that are still to be planned, and that the scan could not read everywhere. Raises Refused if there are no others."""
    left = [tree for tree in catalog.trees if tree.path not in moved]
    apart = tuple(tree for tree in left if tree.path in catalog.set_apart)
    if len(apart) == len(left):
        raise Refused(
            f"no user tree of catalog {catalog.name!r} could be read everywhere: {'; '.join(catalog.reasons)}",
            hint="run `migrator scan` again",
        )
    return apart


# --- Quotas of users on the target


AskLimits = Callable[[Collection[int]], QuotaReading]
"""Returns the limits of users by uid."""


def quota_problems(
    ask: AskLimits | None,
    owners: Sequence[TreeOwner],
    ranking: Sequence[TreeUsage],
    *,
    arrived: Mapping[bytes, Need],
    reap: PlanReap | None,
    meant: bool,
) -> tuple[str, ...]:
    """Sentences about users who would exceed or approach their limits on the target. `arrived` is the usage copied by
    earlier plans, by tree. `meant`: the source limits directories, so unknown limits of the target are a problem.
    """
    left: dict[bytes, Need] = {}
    for usage in ranking:
        there = arrived.get(usage.tree.path, Need())
        left[usage.tree.path] = Need(
            size_bytes=max(usage.size_bytes - there.size_bytes, 0), inodes=max(usage.files - there.inodes, 0)
        )
    needs = owner_needs(owners, ranking, left, reap=reap)
    look = QuotaReading() if ask is None else ask([one.uid for one in needs])
    if look.failure:
        return (f"the users' limits on the target are unknown: {look.failure}",) if meant else ()
    words = quota_findings(needs, look.quotas, spread=look.spread)
    return (*words.problems, *words.warnings)


# --- Accounts of owners


AskAccounts = Callable[[Collection[int], Collection[int]], Accounts]
"""Returns what this host knows of uids and gids."""


def _owner_surprises(
    ask: AskAccounts, queries: "CatalogQueries", site: Site, scheduling: PlanScheduling | None
) -> tuple[Surprise, ...]:
    volume = None if scheduling is None else scheduling.volume
    options = {} if volume is None else dict(volume.state.options)
    limits = rules_surprises.group_limits(KINDS[site.source.kind], options, KINDS[site.target.kind])
    accounts = ask(*queries.owner_ids())
    noted = rules_surprises.note_owners(accounts, limits)
    return (*rules_surprises.unknown_accounts(accounts), *queries.owner_surprises(noted))


def _require_unused_ids(site: Site, queries: "CatalogQueries") -> None:
    """Refuse if the target's number of one owner is that of another on the source, who would keep it. Raises Refused."""
    if not site.users.owners:
        return
    uids, gids = queries.owner_ids()
    for key, pairs, in_use in (("uid_map", site.users.uid_map, uids), ("gid_map", site.users.gid_map, gids)):
        if taken := taken_ids(pairs, in_use):
            raise Refused(
                f"[users] {key} gives numbers to others that paths of the source have: {first_of([str(one) for one in taken], 10)}",
                cause="files of two owners would belong to one on the target, and a rollback could not distinguish them",
                hint=f"list these numbers in {key} too, each with its own number on the target",
            )


# --- Reaping


class PlanReaping(Struct, frozen=True, kw_only=True):
    """The reap lists, and why the source keeps no reliable atime (None: it does)."""

    lists: "ReapListFiles"
    atime_problem: str | None = None


def reap_for_plan(
    name: str,
    queries: "CatalogQueries",
    reaping: PlanReaping,
    *,
    site: Site,
    trees: Collection[bytes],
    cost: TransferCost,
    now_s: float,
) -> PlanReap | None:
    """Select the files to reap in these trees and write the reap list; `queries` then leave them out of chunks. None
    if no rule of these trees has a condition.

    Raises UsageError for a rule that names no known user or tree, Refused if a rule cannot be applied here.
    """
    every = choose_rules(site.reap.policy, queries.record.trees)
    rules = [rule for rule in every if rule.tree.path in trees]
    if not rules:
        return None
    require_atime(rules, reaping.atime_problem)
    if reaps(rules):
        _require_possible(queries.record, site.transfer.engine)
    selection = queries.reap(rules, now_s=now_s)
    found = tuple(selection.trees())
    reap_list, digest = reaping.lists.write(name, selection.rows()) if reaps(rules) else (None, None)
    return PlanReap(
        reap_list=reap_list,
        digest=digest,
        trees=found,
        saved=savings((tree for tree in found if tree.action is not ReapAction.LIST), cost),
        listed=savings((tree for tree in found if tree.action is ReapAction.LIST), cost),
    )


def _require_possible(catalog: CatalogRecord, engine: str) -> None:
    if not (catalog.whole or catalog.set_apart):
        raise Refused(
            f"nothing can be reaped by catalog {catalog.name!r}: it is not whole",
            cause="an unreadable file may be one by which a user opts out",
            hint='run `migrator scan` when the source is healthy, or set [reap] action = "list"',
        )
    if engine in DRIVERS:
        raise Refused(
            f'nothing can be reaped with [transfer] engine = "{engine}"',
            cause="it copies whole trees, with what is to be archived or skipped",
            hint='choose another engine, or set [reap] action = "list"',
        )


# --- Batches and chunk lists


def write_batches(
    name: str,
    queries: "CatalogQueries",
    lists: "ChunkListFiles",
    parts: Sequence[Sequence[TreeUsage]],
    cost: TransferCost,
    *,
    site: Site,
    capacity: Capacity,
    arrived: Mapping[bytes, Need],
) -> tuple[tuple[Batch, ...], tuple[str, ...]]:
    """Write the chunk lists of a plan; return its batches, and problems with the room for them. `capacity` is the
    current room of the target; `arrived` is the usage copied by earlier plans, by tree.
    """
    transfer = site.transfer
    limits = ChunkLimits(
        max_bytes=transfer.chunk_size_bytes,
        max_files=transfer.chunk_files,
        range_size_bytes=transfer.range_size_bytes if copies_ranges(transfer.engine) else None,
    )
    packed = pack(
        queries.listings([[usage.tree.path for usage in part] for part in parts]),
        limits,
        bricks=sorted(walk.brick for walk in queries.record.bricks),
    )
    written = [lists.write(name, number, chunks) for number, chunks in _by_batch(packed, batches=len(parts))]
    needs = [
        # The roots of the trees are in no chunk, but each is a directory on the target.
        _beyond(Need(size_bytes=found.size_bytes, inodes=found.files + found.directories + len(part)), part, arrived)
        for found, part in zip(written, parts, strict=True)
    ]
    fits, problems = _room(needs, site=site, capacity=capacity)
    batches = tuple(
        Batch(
            number=number,
            trees=tuple(usage.tree for usage in part),
            forecast_s=copy_s(found.files + found.directories, found.size_bytes, cost),
            fits=fit,
            **asdict(found),
        )
        for number, (part, found, fit) in enumerate(zip(parts, written, fits, strict=True), start=1)
    )
    return batches, problems


def _room(needs: Sequence[Need], *, site: Site, capacity: Capacity) -> tuple[tuple[bool, ...], tuple[str, ...]]:
    reserve_bytes = site.transfer.reserve_bytes
    inodes_free = site.target.inodes_free
    fits = which_fit(needs, capacity, inodes_free=inodes_free, reserve_bytes=reserve_bytes)
    need_inodes = sum(need.inodes for need in needs)
    unknown = not inodes_known(capacity, inodes_free)
    lacks = capacity_problems(
        capacity,
        sum(need.size_bytes for need in needs),
        need_inodes,
        # Unknown inodes were accepted: they are a problem of their own below, not a lack of room.
        need_inodes if unknown else inodes_free,
        reserve_bytes,
    )
    accepted = (
        (f"the target was not checked for room for {several(need_inodes, 'file')}, as requested",) if unknown else ()
    )
    return fits, (*room_problems(needs, fits, lacks), *accepted)


def _beyond(need: Need, part: Sequence[TreeUsage], arrived: Mapping[bytes, Need]) -> Need:
    """The need of a batch beyond the files that earlier plans copied of its trees: new copies replace these."""
    by_tree = {
        usage.tree.path: Need(size_bytes=usage.size_bytes, inodes=usage.files + usage.directories) for usage in part
    }
    every, left = still_needed(by_tree, {}), still_needed(by_tree, arrived)
    return Need(
        # Never below 0: files that an earlier plan copied may be reaped now.
        size_bytes=max(need.size_bytes - (every.size_bytes - left.size_bytes), 0),
        inodes=max(need.inodes - (every.inodes - left.inodes), 0),
    )


def _by_batch(chunks: Iterable[PackedChunk], *, batches: int) -> Iterator[tuple[int, Iterable[PackedChunk]]]:
    """The chunks of every batch, including empty ones. Consume each before the next."""
    groups = groupby(chunks, key=lambda chunk: chunk.batch)
    waiting = next(groups, None)
    for number in range(1, batches + 1):
        if waiting is not None and waiting[0] == number:
            yield number, waiting[1]
            waiting = next(groups, None)
        else:
            yield number, ()


# --- The plan


_TINY_DIRECTORIES = 3
"""The maximum number of directories of one tree that its notice lists."""


class PlanRequest(Struct, frozen=True, kw_only=True):
    """`name` None: the next free one; `catalog` None: the newest finished one."""

    name: str | None = None
    catalog: str | None = None
    order: Order = Order.HEAVIEST
    accept_unknown_inodes: bool = False
    activate: bool = False


class PlanDifference(Struct, frozen=True, kw_only=True):
    """A plan against the one that was active before."""

    active: str
    """Name of that plan."""
    new: tuple[bytes, ...]
    """User trees that only the new plan has."""
    gone: tuple[bytes, ...]
    """User trees that only the earlier plan has."""
    other_batch: tuple[bytes, ...]
    """User trees that are in other batches."""
    size_bytes: int
    """Bytes that the new plan has more."""
    files: int
    """Files that the new plan has more."""


class PlanResult(Struct, frozen=True, kw_only=True):
    """A plan as written: `plan`."""

    plan: Plan
    """The plan's document."""
    path: str
    """Its path."""
    checksum: str
    """Its checksum."""
    left_out: tuple[bytes, ...] = ()
    """User trees of the catalog that are in no batch, because their users work on the target."""
    active: bool = True
    """Verbs work by it; otherwise it is a draft."""
    difference: PlanDifference | None = None
    """What differs from the plan that was active before, if there was one."""


def check_request(
    request: PlanRequest, *, site: Site, documents: PlanFiles, ledger: "PlanLedger", capacity: Capacity
) -> str:
    """Return the name of the plan, before anything is scanned or queried for it. Raises UsageError if the name is taken,
    Refused if the target's free inodes are unknown and not accepted as such.
    """
    _require_inodes(capacity, site.target.inodes_free, request)
    # The ledger may have plans whose documents were deleted.
    name = documents.next_name(taken=ledger.plans.names()) if request.name is None else request.name
    documents.require_free(name)
    return name


def make_plan(
    request: PlanRequest,
    *,
    site: Site,
    catalogs: "CatalogQueryFiles",
    documents: PlanFiles,
    lists: "ChunkListFiles",
    ledger: "PlanLedger",
    quotas: Sequence[tuple[bytes, int]],
    capacity: Capacity,
    clock: Clock,
    reaping: PlanReaping | None = None,
    scheduling: PlanScheduling | None = None,
    limits: AskLimits | None = None,
    targets: Sequence[StorageTarget] = (),
    accounts: AskAccounts | None = None,
) -> PlanResult:
    """Make a plan, write its chunk lists and its document, and record it.

    `quotas` are the limits of the source's directories, `capacity` is the current room of the target. A plan is written
    even if the target has no room for all batches, or for any: the migration may free room later. Such batches have
    `fits` False and are named in `problems`; `run` refuses them. `limits` returns the limits of users on the target by
    uid; a user who would exceed theirs is a problem too. `targets` are BeeGFS's, for the forecast of inodes. Without
    `accounts` owners are not checked, without `reaping` [reap] is ignored, without `scheduling` there is no
    conversion schedule. Trees whose users work on the target are left out. The plan is a draft unless it is the first
    one, or the request activates it.

    Raises UsageError if there is no site, no scan or no user tree, or the name is taken; Refused if the catalog is half
    written or of another site, or the target's free inodes are unknown and not accepted as such.
    """
    record = ledger.site.required()
    name = check_request(request, site=site, documents=documents, ledger=ledger, capacity=capacity)
    now_s = clock.now_s()
    arrived = ledger.passes.arrived(before_plan=name)
    chosen = choose_catalog(request.catalog, ledger)
    with catalogs.open(chosen) as queries:
        catalog = queries.record
        require_usable(catalog, record)
        _require_unused_ids(site, queries)
        moved = moved_trees(catalog, ledger)
        apart = trees_apart(catalog, moved)
        left_out = moved.union(tree.path for tree in apart)
        usages = queries.usages(now_s=now_s)
        spans = without_trees(queries.link_spans(), left_out)
        ranking = tuple(rank([one for one in usages.trees if one.tree.path not in left_out], request.order))
        cost = choose_cost(ledger.samples.measured_cost(), site.transfer.jobs)
        limits_of_batches = BatchLimits(
            max_bytes=site.batch.max_bytes, max_files=site.batch.max_files, max_users=site.batch.max_users
        )
        parts = batch_trees(ranking, spans, limits_of_batches)
        surprises = _surprises(
            record.capabilities,
            queries,
            usages=usages,
            spans=spans,
            parts=parts,
            quotas=quotas,
            source_root=bytes(site.source.mount),
            links=site.rewritten_links,
            layout=site.target.layout_rules,
            of_owners=() if accounts is None else _owner_surprises(accounts, queries, site, scheduling),
            other_losses=lost_atimes(None if reaping is None else reaping.atime_problem, record.capabilities)
            if site.transfer.atimes
            else (),
        )
        reap = None
        if reaping is not None:
            trees = {usage.tree.path for usage in ranking}
            reap = reap_for_plan(name, queries, reaping, site=site, trees=trees, cost=cost, now_s=now_s)
        batches, room = write_batches(name, queries, lists, parts, cost, site=site, capacity=capacity, arrived=arrived)
        schedule = None
        if scheduling is not None:
            schedule = schedule_for_plan(
                queries,
                scheduling,
                ledger,
                site=site,
                ranking=ranking,
                batches=batches,
                cost=cost,
                reap=reap,
                arrived=arrived,
                settled={tree: settled for tree in moved if (settled := ledger.cutovers.latest(tree)) is not None},
                capacity=capacity,
                now_s=now_s,
            )
        offers = tuple(clean_ups(ranking, request.order, cost, reap))
        packed = {offer.tree for offer in offers if offer.kind is CleanUpKind.TINY}
        tiny = tuple(queries.tiny_directories(packed, most=_TINY_DIRECTORIES))
        owners = tuple(one for one in queries.owners() if one.tree not in left_out)
        metadata = metadata_forecast(targets, ranking, arrived)
        directories = queries.largest_directories() if metadata else {}
        largest = max(
            (one for tree, one in directories.items() if tree not in left_out), key=itemgetter(1), default=None
        )
    plan = Plan(
        name=name,
        site=record.name,
        site_id=record.site_id,
        created_at_s=now_s,
        order=request.order,
        catalog=catalog.name,
        scan_id=catalog.scan_id,
        catalog_whole=catalog.whole,
        size_bytes=_bytes_once(ranking, spans),
        files=sum(usage.files for usage in ranking),
        directories=sum(usage.directories for usage in ranking),
        ranking=ranking,
        outside=usages.outside,
        batches=batches,
        surprises=surprises,
        cost=cost,
        forecast_s=sum(batch.forecast_s for batch in batches),
        target=capacity,
        problems=(
            *_catalog_problems(catalog, record, ledger, apart),
            *room,
            *quota_problems(limits, owners, ranking, arrived=arrived, reap=reap, meant=bool(quotas)),
            *metadata_problems(metadata, largest),
            *schedule_problems(schedule, now_s),
            *unused_rules(site.target.layout, [usage.tree.path for usage in usages.trees]),
        ),
        emptying=emptying_curves(ranking, cost),
        reap=reap,
        schedule=schedule,
        owners=owners,
        set_apart=apart,
        metadata=metadata,
        clean_ups=offers,
        tiny=tiny,
    )
    path, checksum = documents.write(plan)
    before = ledger.plans.active()
    ledger.plans.record(plan, path=path, checksum=checksum)
    severity = Severity.WARNING if set(plan.problems) - {_UNKNOWN_CAPABILITIES} else Severity.INFO
    ledger.events.note(clock.now_s(), EventKind.PLAN_WRITTEN, severity, f"plan {name}", _written(plan))
    if request.activate:
        ledger.plans.activate(name, clock.now_s())
    return PlanResult(
        plan=plan,
        path=path,
        checksum=checksum,
        left_out=tuple(sorted(moved)),
        active=request.activate or before is None,
        difference=None if before is None else _difference(ledger, before.name, name),
    )


def activate_plan(name: str, *, documents: PlanFiles, ledger: "PlanLedger", clock: Clock) -> PlanResult:
    """Make a recorded plan the active one. May be called again. Raises UsageError if there is no such plan, Refused if
    its document is not the recorded one.
    """
    record, before = ledger.plans.read(name), ledger.plans.active()
    plan, checksum = documents.read(name)
    if record is None or record.checksum != checksum:
        raise Refused(
            f"plan {name} is not in the ledger as its document has it",
            cause="it was made for another ledger, or an older ledger was restored",
            hint="make a new plan: `migrator plan --activate`",
        )
    ledger.plans.activate(name, clock.now_s())
    return PlanResult(
        plan=plan,
        path=record.path,
        checksum=checksum,
        difference=None if before is None or before.name == name else _difference(ledger, before.name, name),
    )


def _difference(ledger: "PlanLedger", active: str, name: str) -> PlanDifference:
    before = {tree.tree.path: tree for tree in ledger.plans.trees(active)}
    after = {tree.tree.path: tree for tree in ledger.plans.trees(name)}
    return PlanDifference(
        active=active,
        new=tuple(sorted(after.keys() - before.keys())),
        gone=tuple(sorted(before.keys() - after.keys())),
        other_batch=tuple(
            sorted(path for path in after.keys() & before.keys() if after[path].batch != before[path].batch)
        ),
        size_bytes=sum(tree.size_bytes for tree in after.values()) - sum(tree.size_bytes for tree in before.values()),
        files=sum(tree.files for tree in after.values()) - sum(tree.files for tree in before.values()),
    )


def _require_inodes(capacity: Capacity, inodes_free: int | None, request: PlanRequest) -> None:
    if inodes_known(capacity, inodes_free) or request.accept_unknown_inodes:
        return
    raise Refused(
        "the free inodes of the target are unknown: its file system reports 0 inodes",
        cause="BeeGFS and some others do not count inodes in statfs",
        hint="set [target] inodes_free (BeeGFS: `beegfs target list --capacity`, the metadata targets), "
        "or plan with --accept-unknown-inodes",
    )


def _surprises(
    known: TargetCapabilities | None,
    queries: "CatalogQueries",
    *,
    usages: Usages,
    spans: Sequence[LinkSpan],
    parts: Sequence[Sequence[TreeUsage]],
    quotas: Sequence[tuple[bytes, int]],
    source_root: bytes,
    links: RewrittenLinks | None,
    layout: Sequence[LayoutRule],
    of_owners: Sequence[Surprise],
    other_losses: Sequence[LossQuery],
) -> tuple[Surprise, ...]:
    trees = frozenset(usage.tree.path for usage in usages.trees)
    batch_of = {usage.tree.path: number for number, part in enumerate(parts, start=1) for usage in part}
    sized = {tree: found for tree in trees if (found := size_rules(layout, tree))}
    # If the target was not probed, the plan reports that as a problem instead of assumed losses.
    longest = RSYNC_PATH_LIMIT_BYTES - len(source_root) - 1
    findings = queries.findings(known, long_path_bytes=longest, other_losses=other_losses)
    return rules_surprises.sort_surprises(
        (
            *rules_surprises.link_surprises(spans, batch_of),
            *rules_surprises.symlink_surprises(queries.symlinks(), trees, source_root, links=links),
            *rules_surprises.quota_surprises(quotas, trees),
            *rules_surprises.layout_surprises(usages.trees, layout),
            *(queries.layout_surprises(sized) if sized else ()),
            *rules_surprises.outside_surprises(usages.outside, usages.outside_examples),
            *findings,
            *of_owners,
        )
    )


_UNKNOWN_CAPABILITIES = "the capabilities of the target are unknown, so losses are not listed: run `migrator doctor`"
"""No incident: every site begins so, and the first run probes the target."""


def _catalog_problems(
    catalog: CatalogRecord, site: SiteRecord, ledger: "PlanLedger", apart: Collection[UserTree]
) -> Iterator[str]:
    reasons = "; ".join(catalog.reasons) or "no reason is recorded"
    if apart:
        named = ", ".join(show(tree.path) for tree in apart)
        yield f"set apart, in no batch of this plan: {named}: {reasons}; run `migrator scan`, then `migrator plan --activate`"
    if not (catalog.whole or catalog.set_apart):
        yield f"the catalog is not whole, so this plan may miss files: {reasons}"
    yield from (f"found on the bricks: {finding}" for finding in catalog.findings)
    newer = ledger.scans.unfinished()
    if newer is not None and newer.scan_id > catalog.scan_id:
        yield f"a newer scan ({newer.name}) is not finished; this plan rests on {catalog.name}"
    if site.capabilities is None:
        yield _UNKNOWN_CAPABILITIES


def _bytes_once(ranking: Sequence[TreeUsage], spans: Sequence[LinkSpan]) -> int:
    """Bytes of all trees; a link group that spans several trees counts once."""
    again = sum(span.size_bytes * (len(span.trees - {None}) - 1) for span in spans)
    return sum(usage.size_bytes for usage in ranking) - again


def _written(plan: Plan) -> str:
    more = len(plan.problems) - 1
    problems = f". {plan.problems[0]}" if plan.problems else ""
    return (
        f"{several(len(plan.batches), 'batch', 'batches')} of {several(len(plan.ranking), 'user tree')}, {several(plan.files, 'file')}, "
        f"{format_size(plan.size_bytes)}; {plan.order} first: {show(plan.ranking[0].tree.path)}{problems}"
        + (f" (and {several(more, 'other problem')})" if more > 0 else "")
    )
