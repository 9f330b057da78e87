"""`verify`: compare both sides and write the manifest."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from migrator import app
from migrator.app.hosts import beside_probes, connecting
from migrator.app.verification import reading_hosts, verification
from migrator.catalog.model import VerificationRecord
from migrator.cli import call
from migrator.cli.global_options import GlobalOptions
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode
from migrator.core.events import Event, EventKind, Severity
from migrator.core.progress import Progress
from migrator.fs.model import DigestPolicy
from migrator.fs.ports import SourceFileSystem
from migrator.hosts.site import SiteHosts
from migrator.ledger.locks import VOLUME, of_tree
from migrator.plan.layout import layout_problems
from migrator.plan.limits import limit_problems
from migrator.plan.model import Plan
from migrator.plan.rules import movable_trees
from migrator.report.view_records import verification_document
from migrator.transfer.bases import active_plan, newest_cutovers

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger

SAMPLE_SEED = 1
"""The paths and this seed decide which files a sample includes. The manifest records it."""


@click.command("verify")
@call.choices
@click.option(
    "--carry",
    is_flag=True,
    help="Skip content that an earlier verification read and that is unchanged on both sides.",
)
@click.option(
    "--reread",
    is_flag=True,
    help="Also read source files whose content was digested while it was copied.",
)
@click.option(
    "--sample",
    type=call.SHARE,
    metavar="SHARE",
    help="Share of files whose content is read, e.g. 5% (default: site.toml).",
)
@click.option(
    "-j",
    "--jobs",
    "--np",
    "jobs",
    type=click.IntRange(1, 256),
    help="Workers, and streams on each host (default: site.toml).",
)
@call.verb
def verify_command(
    global_options: GlobalOptions,
    *,
    choice: call.Choice,
    carry: bool,
    reread: bool,
    sample: float | None,
    jobs: int | None,
) -> ExitCode:
    """Compare both sides including content, and write the manifest of what arrived.

    Only a verification of the whole batch marks it verified; --user never does. Cut-over users are left out; --user NAME compares
    one after an aborted rollback, as proof for `purge`.

    Brick servers and nodes that move data read the content. Content that `direct` streams digested while they copied it, and
    that has not changed since on the source, is read on the target only. An interrupted verification compares its batch anew,
    but content that hosts have read within a day is not read again.
    """
    wiring = call.open_wiring(global_options)
    policy = DigestPolicy(
        algorithm=wiring.site.verify.digest,
        share=wiring.site.verify.sample if sample is None else sample,
        seed=SAMPLE_SEED,
    )

    async def verified(shown: Progress) -> Sequence[VerificationRecord]:
        with wiring.source() as source:
            async with connecting(wiring.site, source) as hosts:
                # The ledger is loaded while the hosts are being connected.
                with await asyncio.to_thread(wiring.ledger) as ledger:
                    return await beside_probes(wiring, ledger, compared(shown, source, hosts, ledger))

    async def compared(
        shown: Progress, source: SourceFileSystem, hosts: SiteHosts, ledger: "MigrationLedger"
    ) -> Sequence[VerificationRecord]:
        plan = call.open_plan(wiring, ledger, choice.plan_name or active_plan(ledger))
        carried = await _verify_carried(wiring, ledger, choice.users, shown, policy) if choice.users else {}
        records, chosen = list(carried.values()), _without(carried, plan, choice)
        checked: set[bytes] = set()
        with wiring.target(ledger.site.read()) as target:
            reading = reading_hosts(
                wiring, source, target, hosts=hosts, ledger=ledger, progress=shown, jobs=jobs, reread=reread
            )
            async with reading as readers:
                for number, wanted in chosen.items():
                    meant = [tree for batch in plan.batches if batch.number == number for tree in batch.trees]
                    meant = [tree for tree in meant if not wanted or tree.path in wanted]
                    left = _not_moved(ledger, meant, shown, at_s=wiring.clock.now_s(), batch=number)
                    with _locked(wiring, left):
                        # None of these users is moved from here on.
                        left = _not_moved(ledger, left, shown, at_s=wiring.clock.now_s(), batch=number)
                        if not left:
                            continue
                        checked |= {tree.path for tree in left}
                        work = verification(
                            wiring,
                            source,
                            target,
                            plan=plan,
                            batch=number,
                            trees=wanted if left == meant else tuple(tree.path for tree in left),
                            policy=policy,
                            carry=carry,
                            ledger=ledger,
                            progress=shown,
                        )
                        work.readers = readers
                        work.storage, work.workers = wiring.storage_targets(), jobs or work.workers
                        records.append(await work.run())
        await _tell_what_differs(wiring, ledger, plan, checked, shown)
        return records

    records = call.run_shown(wiring, verified, when_interrupted="run the command again: it compares this batch anew")
    call.present_all(global_options, records, verification_document)
    return max((record.exit_code for record in records), default=ExitCode.DONE)


async def _tell_what_differs(
    wiring: app.Wiring, ledger: "MigrationLedger", plan: Plan, trees: Collection[bytes], shown: Progress
) -> None:
    """Report what the target was to be given beside files and does not have: limits of users, and the layout of these trees."""
    storage, rules = wiring.storage_targets(), wiring.site.target.layout_rules
    layout = await layout_problems(plan, trees, rules, storage, wiring.target_root)
    for words in (*await limit_problems(ledger, storage), *layout):
        event = Event(
            at_s=wiring.clock.now_s(),
            kind=EventKind.TARGET_DIFFERS,
            severity=Severity.WARNING,
            subject="target",
            message=words,
        )
        ledger.events.add(event)
        shown.event(event)


async def _verify_carried(
    wiring: app.Wiring, ledger: "MigrationLedger", users: Sequence[str], shown: Progress, policy: DigestPolicy
) -> Mapping[UserTree, VerificationRecord]:
    """Compare the trees of those of these users who work on the target with the kept source, after an aborted rollback."""
    # Imported late, with all of a rollback: few verifications are of one.
    from migrator.app.cutover import rollback_sites, rollbacks  # noqa: PLC0415
    from migrator.cutover.rollback import carried_cutovers  # noqa: PLC0415

    made: dict[UserTree, VerificationRecord] = {}
    for record in carried_cutovers(ledger, rollback_sites(wiring), users):
        with _locked(wiring, (record.tree,)):
            found = await rollbacks(wiring, ledger, progress=shown, policy=policy).compare(record)
        # The rollback's own ledger has another plan and batch for it.
        made[record.tree] = replace(found, plan=record.plan, batch=record.batch, trees=(record.tree.path,))
    return made


def _without(carried: Collection[UserTree], plan: Plan, choice: call.Choice) -> Mapping[int, tuple[bytes, ...]]:
    """The chosen batches with the chosen trees of each (none: all of them), without those compared for a purge, which an earlier
    plan may have moved. Raises UsageError.
    """
    if not choice.users:
        return dict.fromkeys(choice.batches(plan), ())
    done, users_done = {tree.path for tree in carried}, {tree.user for tree in carried}
    planned = {tree.user for batch in plan.batches for tree in batch.trees}
    left = [name for name in choice.users if name not in users_done or name in planned]
    found = call.chosen_trees(plan, left) if left else {}
    some = {number: tuple(tree.path for tree in trees if tree.path not in done) for number, trees in found.items()}
    return {number: trees for number, trees in some.items() if trees}


def _locked(wiring: app.Wiring, trees: Sequence[UserTree]) -> AbstractContextManager[None]:
    """The lock of a verification of these trees."""
    return wiring.locks().hold("verify", *(of_tree(tree.path) for tree in trees), shared=(VOLUME,))


def _not_moved(
    ledger: "MigrationLedger", trees: Sequence[UserTree], shown: Progress, *, at_s: float, batch: int
) -> Sequence[UserTree]:
    """The trees without those of users who work on the target or are being cut over: differences are expected there. Reports
    these users.
    """
    left, moved = movable_trees(trees, newest_cutovers(ledger.cutovers, (tree.path for tree in trees)))
    if moved:
        users = ", ".join(tree.user for tree in moved)
        shown.event(
            Event(
                at_s=at_s,
                kind=EventKind.TREES_LEFT_ALONE,
                severity=Severity.INFO,
                subject=f"batch {batch}",
                message=f"not compared: {users}: they work on the target already, or their cutover is in progress",
            )
        )
    return left
