"""Planning with real catalogs, plan files and ledger, and the states of batches."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as change

from migrator.app.ledger import MigrationLedger
from migrator.beegfs.model import LayoutRule, StorageTarget, StripeSettings, TargetKind, UserQuota
from migrator.beegfs.tool import QuotaReading
from migrator.catalog.files import ClosedCatalogs, read_record, write_record
from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import Scratch
from migrator.core.entry import Entry
from migrator.core.errors import Refused, UsageError
from migrator.core.events import Severity
from migrator.core.states import BATCH_TRANSITIONS, BatchState, PassKind
from migrator.fs.model import Capacity, MountIdentity, SurpriseKind, TargetCapabilities
from migrator.plan.chunk_lists import ChunkListFiles
from migrator.plan.document import PlanFiles
from migrator.plan.model import Account, Accounts, Order, Plan
from migrator.plan.plan import AskAccounts, AskLimits, PlanRequest, PlanResult, make_plan
from migrator.plan.rules import after_delta, after_verification, unverified
from migrator.plan.schedule.schedule import PlanScheduling
from migrator.plan.store import CatalogQueryFiles
from migrator.site import config
from tests.support.beegfs_like import BEEGFS_CAPABILITIES
from tests.support.catalogs import SITE_ID, directory, invented, symlink, write_catalog
from tests.support.fakes import VirtualClock
from tests.support.making import made
from tests.support.records import site_record

MIB = 1024**2
ALICE, BOB, CAROL = TREES = (b"home/alice", b"home/bob", b"home/carol")
ROOMY = Capacity(total_bytes=2**50, free_bytes=2**50, total_inodes=10**9, free_inodes=10**9)
IDENTITY = MountIdentity(filesystem="xfs", mounted_from="/dev/x", device=1, fsid=1, root_ino=1, sentinel="s")


def entries() -> list[Entry]:
    """Alice is the heaviest, bob has many files, carol little; a link group lies in alice's and carol's tree."""
    found = [directory(b"home"), *(directory(tree) for tree in TREES)]
    found.append(directory(ALICE + b"/deep"))
    found += [invented(b"%s/deep/%d" % (ALICE, number), size_bytes=30 * MIB) for number in range(10)]
    found.append(invented(ALICE + b"/shared\xff", size_bytes=8, ino=5, nlink=3))
    found.append(invented(ALICE + b"/shared again", size_bytes=8, ino=5, nlink=3))
    found += [invented(b"%s/%d\n" % (BOB, number), size_bytes=100, mtime_ns=1) for number in range(200)]
    found.append(symlink(BOB + b"/to alice", b"../alice/deep"))
    found.append(invented(CAROL + b"/shared", size_bytes=8, ino=5, nlink=3))
    found.append(invented(b"stray", size_bytes=77))
    return found


@dataclass
class World:
    """A site in a temporary directory."""

    root: Path
    ledger: MigrationLedger
    lists: ChunkListFiles
    documents: PlanFiles
    site: config.Site

    def scanned(
        self,
        found: Sequence[Entry],
        *,
        name: str = "catalog-1",
        whole: bool = True,
        bricks: Sequence[str] = (),
        scope: tuple[bytes, ...] = (),
    ) -> CatalogRecord:
        scan_id = self.ledger.scans.start(catalog=name, via="mount", at_s=1000.0, scope=scope)
        record = write_catalog(self.root / "catalogs", found, TREES, name=name, whole=whole, bricks=bricks, scope=scope)
        record = replace(record, scan_id=scan_id)
        self.ledger.scans.finish(record)
        return record

    def init(self, capabilities: TargetCapabilities | None = TargetCapabilities()) -> None:  # noqa: B008 - a frozen value
        self.ledger.site.create(site_record(IDENTITY, site_id=SITE_ID))
        if capabilities is not None:
            self.ledger.site.record_capabilities(capabilities, 2.0)

    def plan(
        self,
        request: PlanRequest | None = None,
        *,
        capacity: Capacity = ROOMY,
        quotas: Sequence[tuple[bytes, int]] = (),
        limits: AskLimits | None = None,
        scheduling: PlanScheduling | None = None,
        targets: Sequence[StorageTarget] = (),
        accounts: AskAccounts | None = None,
    ) -> PlanResult:
        return make_plan(
            request or PlanRequest(),
            site=self.site,
            catalogs=CatalogQueryFiles(
                ClosedCatalogs(self.root / "catalogs", self.ledger.scans.named), scratch=Scratch(self.root / "tmp")
            ),
            documents=self.documents,
            lists=self.lists,
            ledger=self.ledger,
            quotas=quotas,
            capacity=capacity,
            clock=VirtualClock(),
            limits=limits,
            scheduling=scheduling,
            targets=targets,
            accounts=accounts,
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    ledger = MigrationLedger.open(tmp_path / "ledger.db", create=True)
    site = config.Site(
        file=tmp_path / "site.toml",
        site=config.SiteSection(
            name="r", state_dir=tmp_path, plans_dir=tmp_path / "plans", hooks_dir=tmp_path / "hooks"
        ),
        source=config.SourceSection(kind="posix", mount=Path("/mnt/gluster")),
        target=config.TargetSection(kind="posix", mount=Path("/mnt/target")),
        users=config.UsersSection(trees=("home/*",)),
        batch=config.BatchSection(max_bytes=2**40, max_files=10_000, max_users=1),
        transfer=config.TransferSection(chunk_size_bytes=100 * MIB, chunk_files=50, reserve_bytes=0),
    )
    yield World(
        root=tmp_path,
        ledger=ledger,
        lists=ChunkListFiles(site.site.plans_dir, splits_dir=tmp_path / "splits", passes_dir=tmp_path / "passes"),
        documents=PlanFiles(site.site.plans_dir, site_id=SITE_ID),
        site=site,
    )
    ledger.close()


@pytest.fixture
def ready(world: World) -> World:
    world.init()
    world.scanned(entries())
    return world


def of_kind(plan: Plan, kind: SurpriseKind) -> dict[bytes | None, int]:
    return {found.tree: found.count for found in plan.surprises if found.kind is kind}


def test_the_chunk_lists_are_as_the_site_says_and_the_same_for_the_same_catalog(ready: World) -> None:
    plan = ready.plan().plan
    for batch in plan.batches:
        chunks = list(ready.lists.chunks(batch.chunk_list))
        assert len(chunks) == batch.chunks
        assert all(chunk.files <= 50 and chunk.size_bytes <= 100 * MIB for chunk in chunks)
        assert ready.lists.digest(batch.chunk_list) == batch.chunk_list_digest
    again = ready.plan().plan
    assert [one.chunk_list_digest for one in again.batches] == [one.chunk_list_digest for one in plan.batches]


@pytest.mark.guarantee("target-losses")
def test_losses_on_the_target_are_listed_per_tree(world: World) -> None:
    world.init(BEEGFS_CAPABILITIES)
    world.scanned(entries())
    plan = world.plan(PlanRequest(order=Order.SMALLEST)).plan
    assert of_kind(plan, SurpriseKind.LOSS_TIME) == {BOB: 200}
    assert [usage.tree.path for usage in plan.ranking] == [CAROL, BOB, ALICE]


UNKNOWN = replace(ROOMY, total_inodes=None, free_inodes=None)


def test_unknown_inodes_are_refused_unless_accepted_or_configured(ready: World) -> None:
    with pytest.raises(Refused, match="free inodes of the target are unknown") as caught:
        ready.plan(capacity=UNKNOWN)
    assert "inodes_free" in caught.value.hint
    assert "--accept-unknown-inodes" in caught.value.hint
    assert not (ready.root / "plans").exists()

    accepted = ready.plan(PlanRequest(accept_unknown_inodes=True), capacity=UNKNOWN).plan
    assert all(batch.fits for batch in accepted.batches)
    assert any("was not checked" in problem for problem in accepted.problems)
    # Inodes from the configuration are believed where the file system is silent.
    ready.site = change(ready.site, target=change(ready.site.target, inodes_free=14))
    assert [batch.fits for batch in ready.plan(capacity=UNKNOWN).plan.batches] == [True, False, False]


def test_a_newer_scan_under_way_is_said_and_a_half_written_catalog_is_refused(ready: World) -> None:
    ready.ledger.scans.start(catalog="catalog-2", via="mount", at_s=2000.0)
    assert any("catalog-2" in problem for problem in ready.plan().plan.problems)
    (ready.root / "catalogs" / "catalog-1" / "catalog.json").unlink()
    with pytest.raises(Refused, match="half written"):
        ready.plan()


def test_a_scan_of_some_trees_alone_is_no_catalog_to_plan_from(ready: World) -> None:
    problems = ready.plan().plan.problems
    ready.scanned([], name="catalog-2", scope=(TREES[0],))
    ready.ledger.scans.start(catalog="catalog-3", via="mount", at_s=3000.0, scope=(TREES[0],))
    plan = ready.plan().plan
    assert (plan.catalog, plan.problems) == ("catalog-1", problems)
    with pytest.raises(Refused, match="covers 1 user tree"):
        ready.plan(PlanRequest(catalog="catalog-2"))


def test_without_a_site_a_scan_or_with_a_catalog_of_another_site_there_is_no_plan(world: World) -> None:
    with pytest.raises(UsageError, match="no ledger entry"):
        world.plan()
    world.init()
    with pytest.raises(UsageError, match="no catalog"):
        world.plan()
    record = world.scanned(entries())
    file = world.root / "catalogs" / record.name / "catalog.json"
    _, parts = read_record(file)
    foreign = write_record(file, replace(record, site_id="another"), parts)
    with pytest.raises(Refused, match="the ledger knows"):
        world.plan()
    world.ledger.scans.finish(foreign)
    with pytest.raises(Refused, match="another site"):
        world.plan()


def test_a_directory_with_more_entries_than_a_metadata_target_has_inodes_is_a_problem(ready: World) -> None:
    target = made(StorageTarget, kind=TargetKind.METADATA, name="meta_1", node="m1", total_inodes=10**6)
    found = ready.plan(targets=[replace(target, free_inodes=free) for free in (199, 10**6)]).plan
    assert [(one.name, one.free_inodes) for one in found.metadata] == [("meta_1", 199), ("meta_1", 10**6)]
    (problem,) = found.problems
    assert problem.startswith("home/bob has 201 entries, which lie on one metadata target")


def test_the_layout_of_trees_and_of_directories_of_large_files_is_reported(ready: World) -> None:
    large = LayoutRule(stripe=StripeSettings(targets=8), larger_than_bytes=20 * MIB)
    homes = LayoutRule(stripe=StripeSettings(targets=2), trees=("home/[ab]*",))
    nowhere = LayoutRule(stripe=StripeSettings(targets=2), trees=("work/*",))
    ready.site = change(ready.site, target=change(ready.site.target, layout=(large, nowhere, homes)))
    plan = ready.plan().plan
    assert [(one.tree, one.count, one.examples) for one in plan.surprises if one.kind is SurpriseKind.LAYOUT] == [
        (ALICE, 1, (ALICE + b"/deep",)),
        (ALICE, 1, (ALICE,)),
        (BOB, 1, (BOB,)),
    ]
    assert plan.problems == ("[[target.layout]] trees = ['work/*'] matches no user tree",)


def test_owners_are_listed_by_tree_and_kind(world: World) -> None:
    world.init()
    world.site = change(world.site, source=change(world.site.source, kind="nfs"))
    mine = [invented(b"%s/%d\xff" % (ALICE, number), size_bytes=2, gid=9) for number in range(7)]
    gone = [invented(BOB + b"/a", size_bytes=3, uid=7, gid=9), invented(BOB + b"/b", size_bytes=4, uid=8)]
    world.scanned([*(directory(path) for path in (b"home", *TREES)), *mine, *gone, invented(b"stray", uid=99)])

    def accounts(uids: Collection[int], gids: Collection[int]) -> Accounts:
        assert (uids, gids) == ({7, 8, 1000}, {9, 100})
        users = {1000: Account(name="ann", groups=17, shell="/bin/sh")}
        return Accounts(users=users, no_user=frozenset({7, 8}), no_group=frozenset({9}))

    plan = world.plan(accounts=accounts).plan
    found = [(one.kind, one.tree, one.count, one.size_bytes) for one in plan.surprises if one.tree is not None]
    assert [one for one in found if one[0] is not SurpriseKind.MANY_GROUPS] == [
        (SurpriseKind.NO_USER, BOB, 2, 7),
        (SurpriseKind.NO_GROUP, ALICE, 7, 14),
        (SurpriseKind.NO_GROUP, BOB, 1, 3),
    ]
    (many,) = (one for one in plan.surprises if (one.kind, one.tree) == (SurpriseKind.MANY_GROUPS, ALICE))
    assert (many.count, many.examples[:2], len(many.examples)) == (8, (ALICE, ALICE + b"/0\xff"), 5)
    assert many.detail.endswith("(NFS on the source: 16): ann (17 groups)")
    assert not plan.problems


def test_users_beyond_their_limit_on_the_target_are_named(ready: World) -> None:
    asked: list[int] = []

    def limits(uids: Collection[int]) -> QuotaReading:
        asked.extend(uids)
        return QuotaReading(quotas={uid: UserQuota(uid=uid, used_bytes=MIB, limit_bytes=300 * MIB) for uid in uids})

    plan = ready.plan(limits=limits).plan
    assert set(asked) == {one.uid for one in plan.owners} != set()
    (problem,) = plan.problems
    assert f"uid {asked[0]}" in problem
    assert "hard limit" in problem
    assert all(batch.fits for batch in plan.batches)


@pytest.mark.parametrize("meant", [True, False])
def test_limits_that_cannot_be_asked_are_a_problem_where_the_source_has_some(ready: World, meant: bool) -> None:
    plan = ready.plan(limits=lambda _: QuotaReading(failure="no answer"), quotas=[(ALICE, MIB)] if meant else []).plan
    assert ["no answer" in problem for problem in plan.problems] == [True] * meant


PLANNED, SEEDING, SEEDED, CONVERGING, VERIFIED = BatchState
SEED, MORE = (PassKind.SEED,), (PassKind.SEED, PassKind.FINAL)


@pytest.mark.parametrize(
    ("now", "after"),
    [
        (PLANNED, [PLANNED] * 5),
        (SEEDING, [SEEDING] * 5),
        (SEEDED, [CONVERGING, CONVERGING, SEEDED, SEEDED, VERIFIED]),
        (CONVERGING, [CONVERGING, CONVERGING, CONVERGING, CONVERGING, VERIFIED]),
        (VERIFIED, [VERIFIED, CONVERGING, SEEDED, CONVERGING, VERIFIED]),
    ],
)
def test_state_changes_after_a_pass_or_a_verification(now: BatchState, after: list[BatchState]) -> None:
    assert after == [
        after_delta(now, sent=False),
        after_delta(now, sent=True),
        after_verification(now, SEED, proven=False),
        after_verification(now, MORE, proven=False),
        after_verification(now, MORE, proven=True),
    ]
    assert set(after) <= {now, *BATCH_TRANSITIONS[now]}
    assert (unverified(MORE), unverified(())) == (CONVERGING, SEEDED)


@pytest.mark.parametrize(("whole", "severity"), [(True, Severity.INFO), (False, Severity.WARNING)])
def test_a_plan_before_the_first_probe_of_the_target_is_no_incident(
    world: World, *, whole: bool, severity: Severity
) -> None:
    world.init(capabilities=None)
    world.scanned(entries(), whole=whole)
    problems = world.plan().plan.problems
    (event,) = world.ledger.events.latest(9)
    assert (len(problems), event.severity) == (1 if whole else 2, severity)
