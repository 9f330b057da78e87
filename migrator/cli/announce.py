"""`announce`: users are told ahead when they will be moved."""

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click

from migrator import bootstrap
from migrator.adapters.output.announce_document import announce_document
from migrator.adapters.output.progress import open_progress
from migrator.cli.context import open_site, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.cli.options import batches, chosen_batches, chosen_trees, users
from migrator.cli.present import present
from migrator.domain.errors import ExitCode
from migrator.domain.plan import Plan
from migrator.domain.tree import UserTree
from migrator.stages.announce import AnnounceRequest, AnnounceWorld, announce
from migrator.stages.run import latest_plan


class Moment(click.ParamType[float]):
    """A time: `2030-01-31 19:00`, in UTC where no offset is given."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time: give it as in '2030-01-31 19:00' or '2030-01-31 19:00+01:00'", param, ctx)


@click.command("announce")
@batches
@users
@click.option(
    "--begins",
    "begins_at_s",
    type=Moment(),
    required=True,
    metavar="TIME",
    help="Begin of the move, e.g. '2030-01-31 19:00'; UTC unless it ends with an offset such as +01:00.",
)
@click.option("--again", is_flag=True, help="Also tell users who were told the same time before.")
@click.option("-n", "--dry-run", is_flag=True, help="Print what would be announced; call no hook.")
@verb
def announce_command(
    invocation: Invocation,
    *,
    numbers: Sequence[int],
    every: bool,
    users: Sequence[str],
    plan_name: str | None,
    begins_at_s: float,
    again: bool,
    dry_run: bool,
) -> ExitCode:
    """Announce the move to users: calls the hooks of post-announce.d for each."""
    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    with wiring.ledger(read_only=dry_run) as ledger, open_progress(sys.stderr, wiring.clock) as shown:
        known = ledger.site.read()
        plan, _ = wiring.plans(known.site_id if known else None).read(plan_name or latest_plan(ledger))
        request = AnnounceRequest(
            plan=plan.name,
            trees=_trees(plan, numbers, users, every=every),
            begins_at_s=begins_at_s,
            source_root=wiring.source_root,
            target_root=wiring.target_root,
            link=site.cutover.link if site.cutover.switch == "symlink" else None,
            pid=os.getpid(),
            dry_run=dry_run,
            again=again,
        )
        world = AnnounceWorld(
            ledger=ledger,
            hooks=wiring.hooks(),
            locks=wiring.locks(),
            files=wiring.run_files(),
            progress=shown,
            clock=wiring.clock,
            blocking=wiring.blocking(),
            tokens=bootstrap.new_token,
        )
        summary = run_to_end(
            announce(request, world), when_interrupted="the same command tells those that were not told"
        )
    present(invocation, summary, announce_document)
    return summary.exit_code


def _trees(
    plan: Plan, numbers: Sequence[int], users: Sequence[str], *, every: bool
) -> Mapping[int, Sequence[UserTree]]:
    if users:
        return chosen_trees(plan, users)
    wanted = chosen_batches(plan, numbers, every=every)
    return {batch.number: batch.trees for batch in plan.batches if batch.number in wanted}
