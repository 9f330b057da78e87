"""`plan`: decide who moves when, and whether it fits."""

import asyncio
import functools
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from migrator import app
from migrator.app.hosts import probe_for_schedule
from migrator.beegfs.tool import QuotaReading, StorageReading, StorageTargets, read_quotas, read_storage
from migrator.cli.call import details_option, open_wiring, present, run_to_end, verb
from migrator.cli.completion import complete_plans
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode, UsageError
from migrator.core.paths import show
from migrator.core.units import several
from migrator.fs.ports import SourceFileSystem
from migrator.plan.accounts import read_accounts
from migrator.plan.limits import recreate_limits
from migrator.plan.model import Order
from migrator.plan.plan import (
    PlanReaping,
    PlanRequest,
    PlanResult,
    activate_plan,
    check_request,
    make_plan,
    needs_scan,
)
from migrator.plan.rules_what_if import AskedSizes, size_up
from migrator.plan.schedule.schedule import PlanScheduling
from migrator.plan.usage import keep_usage, read_usage
from migrator.plan.view import limits_document, sizing_document, usage_document
from migrator.site.quantities import parse_rate, parse_size
from migrator.transfer.bases import active_plan

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger
    from migrator.plan.store import CatalogQueryFiles
    from migrator.render.document import Document


_OF_WHAT_IF = ("bytes", "files", "streams", "rate")
_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9])?)([kMG]?)", re.ASCII)
_TIMES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}


@click.command("plan")
@click.option(
    "--order",
    type=click.Choice([order.value for order in Order]),
    default=Order.HEAVIEST.value,
    show_default=True,
    help="Order of the users; with `smallest`, users who clean up move earlier.",
)
@click.option("--name", metavar="NAME", help="Name of the plan (default: next free plan-NNNN).")
@click.option("--catalog", metavar="NAME", help="Catalog to plan from (default: newest finished one).")
@click.option("--no-scan", is_flag=True, help="Plan from the newest catalog, however old it is.")
@click.option(
    "--activate",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    shell_complete=complete_plans,
    help="Make the new plan the active one, or the plan NAME without making another.",
)
@click.option("--accept-unknown-inodes", is_flag=True, help="Plan although the target's free inodes are unknown.")
@click.option("--quotas", is_flag=True, help="Show the source's limits as limits of owners on BeeGFS; make no plan.")
@click.option("--confirm", is_flag=True, help="With --quotas: set each limit once the owner's users are cut over.")
@click.option(
    "--usage",
    metavar="FILE|URL",
    help="Rank users by Robinhood's figures (rbh-report --csv, or the URL of its database); make no plan.",
)
@click.option(
    "--what-if",
    metavar="SIZES",
    help="Time and disk space for these sizes (bytes=340TB,files=100M; also streams=8,rate=5GB/s); make no plan.",
)
@details_option
@verb
def plan_command(
    global_options: GlobalOptions,
    *,
    order: str,
    name: str | None,
    catalog: str | None,
    no_scan: bool,
    activate: str | None,
    accept_unknown_inodes: bool,
    quotas: bool,
    confirm: bool,
    usage: str | None,
    what_if: str | None,
    details: bool,
) -> ExitCode:
    """Rank users, make batches and chunks, check the target, forecast; write plans/NAME.json.

    The first plan is active: verbs work by it. A later one is a draft until it is activated. Scans the source first if there
    is no catalog of the last 7 days, or [users] has changed since.
    """
    if what_if is not None:
        if quotas or usage is not None or activate is not None or name is not None or catalog is not None or no_scan:
            raise UsageError("--what-if cannot be combined with other options: it makes no plan")
        return _size_up(global_options, what_if)
    if usage is not None:
        if quotas or activate is not None or name is not None or catalog is not None or no_scan:
            raise UsageError("--usage can be combined with --order only: it makes no plan")
        wiring = open_wiring(global_options)
        ranking = read_usage(usage, Order(order), now_s=wiring.clock.now_s())
        keep_usage(ranking, wiring.site.site.state_dir)
        return present(global_options, ranking, usage_document)
    if quotas:
        return _show_limits(global_options, confirm=confirm)
    if confirm:
        raise UsageError("--confirm needs --quotas")
    if activate:
        _activate(global_options, activate, details=details)
        return ExitCode.DONE
    wiring = open_wiring(global_options)
    site = wiring.site
    request = PlanRequest(
        name=name,
        catalog=catalog,
        order=Order(order),
        accept_unknown_inodes=accept_unknown_inodes,
        activate=activate is not None,
    )
    if catalog is None and not no_scan:
        _scan_if_needed(wiring, request)
    locks = wiring.locks().hold("plan", "plan")
    with wiring.ledger() as ledger, locks, wiring.source() as source, wiring.target() as target:
        again, asked = "run the command again", wiring.storage_targets()
        limited, catalogs, storage, scheduling, atime_problem = run_to_end(
            _read_inputs(source, wiring, ledger, asked), when_interrupted=again
        )

        def limits(uids: Collection[int]) -> QuotaReading:
            return run_to_end(read_quotas(asked, wiring.target_root, uids), when_interrupted=again)

        result = make_plan(
            request,
            site=site,
            catalogs=catalogs,
            documents=wiring.plans(ledger.site.read()),
            lists=wiring.chunk_lists(),
            ledger=ledger,
            quotas=limited,
            capacity=storage.room(target.capacity()),
            clock=wiring.clock,
            limits=limits,
            targets=storage.targets,
            reaping=PlanReaping(lists=wiring.reap_lists(), atime_problem=atime_problem),
            scheduling=scheduling,
            accounts=functools.partial(read_accounts, now_s=wiring.clock.now_s()),
        )
    _present(global_options, result, details=details)
    if result.left_out and not global_options.as_json:
        trees = several(len(result.left_out), "user tree is", "user trees are")
        click.echo(f"{trees} omitted, because the users work on the target: {', '.join(map(show, result.left_out))}.")
    return ExitCode.DONE


def _scan_if_needed(wiring: app.Wiring, request: PlanRequest) -> None:
    """Scan the source if there is no fresh catalog. A request that would be refused afterwards is refused before."""
    # Loaded here because other plans do not need it.
    from migrator.app.scan import scan_request  # noqa: PLC0415

    with wiring.ledger() as ledger, wiring.target() as target:
        if not needs_scan(ledger, scan_request(wiring.site).selected_by, now_s=wiring.clock.now_s()):
            return
        storage = run_to_end(read_storage(wiring.storage_targets()), when_interrupted="run the command again")
        check_request(
            request,
            site=wiring.site,
            documents=wiring.plans(ledger.site.required()),
            ledger=ledger,
            capacity=storage.room(target.capacity()),
        )
    # Loaded here because few plans need it.
    from migrator.cli.scan import scan_source  # noqa: PLC0415

    scan_source(wiring, resumed_by="plan")


def _size_up(global_options: GlobalOptions, text: str) -> ExitCode:
    wiring = open_wiring(global_options)
    asked = parse_what_if(text, streams=wiring.site.transfer.jobs)
    with wiring.ledger(read_only=True) as ledger:
        return present(global_options, size_up(asked, ledger.samples.measured_cost()), sizing_document)


def parse_what_if(text: str, *, streams: int) -> AskedSizes:
    """The sizes of `--what-if`; `streams` is the number of each host unless it is given. Raises UsageError."""
    given: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in _OF_WHAT_IF or not value or key in given:
            raise UsageError(
                f"--what-if: {part!r} is not a size", hint="give bytes=340TB,files=100M,streams=8,rate=5GB/s"
            )
        given[key] = value
    if missing := [key for key in ("bytes", "files") if key not in given]:
        raise UsageError(f"--what-if: {' and '.join(missing)} missing", hint="write both, as in bytes=340TB,files=100M")
    number = _COUNT.fullmatch(given["files"])
    own_streams = given.get("streams", str(streams))
    if number is None or not own_streams.isascii() or not own_streams.isdigit() or int(own_streams) < 1:
        raise UsageError("--what-if: files and streams must be numbers", hint="write 100000000, 100M or 1e8")
    return AskedSizes(
        size_bytes=parse_size(given["bytes"]),
        files=round(float(number[1]) * _TIMES[number[2]]),
        streams=int(own_streams),
        rate_bytes_per_s=parse_rate(given["rate"]) if "rate" in given else 0,
    )


def _show_limits(global_options: GlobalOptions, *, confirm: bool) -> ExitCode:
    wiring = open_wiring(global_options)
    storage = wiring.storage_targets()
    if storage is None:
        raise UsageError(
            "--quotas needs a BeeGFS target",
            hint="set the limits that `migrator plan` lists, with the target's own tools",
        )
    with wiring.ledger(read_only=not confirm) as ledger:
        active_plan(ledger)
        plans = [wiring.plan(ledger, name) for name in ledger.plans.activated()]
        work = recreate_limits(ledger, plans, storage, confirm=confirm)
        return present(global_options, run_to_end(work, when_interrupted="run the command again"), limits_document)


def _activate(global_options: GlobalOptions, name: str, *, details: bool) -> None:
    wiring = open_wiring(global_options)
    with wiring.ledger() as ledger:
        documents = wiring.plans(ledger.site.read())
        result = activate_plan(name, documents=documents, ledger=ledger, clock=wiring.clock)
    _present(global_options, result, details=details)


def _present(global_options: GlobalOptions, result: PlanResult, *, details: bool) -> None:
    from migrator.plan.view import describe_plan_state  # noqa: PLC0415 - see _as_document

    # The same command would make another plan.
    more = "" if details else f"migrator report --plan {result.plan.name} --details"
    present(global_options, result, _as_document, more=more)
    if not global_options.as_json:
        click.echo(f"\nWritten to {result.path} (checksum {result.checksum[:16]}).\n{describe_plan_state(result)}")


async def _read_inputs(
    source: SourceFileSystem, wiring: app.Wiring, ledger: "MigrationLedger", asked: StorageTargets | None
) -> tuple[Sequence[tuple[bytes, int]], "CatalogQueryFiles", StorageReading, PlanScheduling | None, str | None]:
    """The facts of a plan. The libraries of the catalog reader are loaded while the gluster command runs."""
    quotas, catalogs = await asyncio.gather(source.quotas(), asyncio.to_thread(wiring.catalog_queries, ledger))
    storage, scheduling = await read_storage(asked), await probe_for_schedule(source)
    return quotas, catalogs, storage, scheduling, await wiring.atime_problem(source)


def _as_document(result: PlanResult) -> "Document":
    # Views are loaded inside functions, here and in other verbs, so that --json does not wait for them.
    from migrator.plan.view import plan_document  # noqa: PLC0415

    return plan_document(result.plan)
