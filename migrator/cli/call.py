"""What all verbs share: the site, options, errors, output."""

import asyncio
import errno
import functools
import getpass
import json
import math
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct

from migrator.app import Wiring
from migrator.cli import signals
from migrator.cli.completion import complete_batches, complete_plans, complete_users
from migrator.cli.global_options import GlobalOptions
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode, Interrupted, MigratorError, UsageError
from migrator.core.paths import show
from migrator.core.progress import Progress
from migrator.core.tasks import DaemonExecutor
from migrator.core.units import format_duration, format_size
from migrator.core.version import version_and_commit
from migrator.plan.model import Plan
from migrator.render.log import MESSAGES
from migrator.render.progress import open_progress
from migrator.render.text import to_json
from migrator.site.config import Site
from migrator.site.load import load_site
from migrator.site.quantities import parse_duration, parse_share, parse_size

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger
    from migrator.cutover.records import TreesByBatch
    from migrator.render.document import Document


def who() -> str:
    """The user who runs this command, with the user behind sudo. Raises UsageError."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError) as error:
        raise UsageError(f"the user who runs this command is unknown: {error}", hint="set LOGNAME") from None
    before = os.environ.get("SUDO_USER")
    return f"{name} (sudo by {before})" if before else name


# --- Running a verb, and reporting its errors


Result = TypeVar("Result")
TransferPorts = TypeVar("TransferPorts")


def report_error(error: MigratorError) -> None:
    """Write an error to standard error: what happened, the usual cause, what to do next."""
    MESSAGES.error("migrator: %s", error.message, extra={"cause": error.cause, "hint": error.hint})


def print_error(error: MigratorError, *, as_json: bool) -> None:
    """As `report_error`, or as JSON to standard output."""
    if as_json:
        document = {
            "error": {"message": error.message, "cause": error.cause, "hint": error.hint},
            "exit_code": int(error.exit_code),
        }
        try:
            click.echo(json.dumps(document, indent=1))
        except OSError:
            report_error(error)
    else:
        report_error(error)


RESUMES = "the same command resumes"


def run_to_end(work: Coroutine[Any, Any, Result], *, when_interrupted: str = RESUMES) -> Result:
    """Run one stage. The first signal that ends programs cancels it; it stops cleanly, and Interrupted is raised."""

    async def supervised() -> Result:
        loop = asyncio.get_running_loop()
        # Threads that hang on a file system must not block the end of the program.
        loop.set_default_executor(DaemonExecutor())
        task = asyncio.ensure_future(work)
        with signals.stopped_by_signals(task.cancel):
            try:
                return await task
            except asyncio.CancelledError:
                raise Interrupted("interrupted", hint=when_interrupted) from None

    return asyncio.run(supervised())


def run_shown(
    wiring: Wiring, work: Callable[[Progress], Coroutine[Any, Any, Result]], *, when_interrupted: str = RESUMES
) -> Result:
    """As `run_to_end`, with the live view on standard error. It has ended when this returns: it would overwrite output."""
    with open_progress(sys.stderr, wiring.clock) as shown:
        return run_to_end(work(shown), when_interrupted=when_interrupted)


def run_stage(
    wiring: Wiring,
    opened: Callable[[Progress], AbstractAsyncContextManager[TransferPorts]],
    stage: Callable[[TransferPorts], Coroutine[Any, Any, Result]],
    *,
    when_interrupted: str = RESUMES,
) -> Result:
    """As `run_shown`, for a stage that works with the ports which `opened` yields."""

    async def work(shown: Progress) -> Result:
        async with opened(shown) as world:
            return await stage(world)

    return run_shown(wiring, work, when_interrupted=when_interrupted)


_MACHINE_ERRORS = {
    errno.EACCES: "migrator does not run as root, or the file system denies access",
    errno.EPERM: "migrator does not run as root, or the file system denies access",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "a quota is exhausted",
    errno.EROFS: "the file system is read-only: see dmesg",
    errno.EIO: "a disk or file system reports errors: see dmesg",
    errno.EMFILE: "a limit of this process (ulimit -n)",
    errno.ENOMEM: "the machine has too little memory",
}


def _of_the_machine(error: Exception) -> MigratorError | None:
    """An error that the machine is the cause of, for people; None for a defect of the program."""
    if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
        where = show(os.fsencode(error.filename)) if error.filename else "the output or a file of the state directory"
        hint = "fix it, then run the same command again"
        return MigratorError(f"{where}: {error.strerror}", cause=_MACHINE_ERRORS[error.errno], hint=hint)
    # Also of SQLite. DuckDB's, also through pyarrow; loading either only to name its class takes longer than most verbs.
    if any(
        words in str(error) for words in ("Out of Memory Error", "No space left on device", "database or disk is full")
    ):
        return MigratorError(
            "a query over catalogs or manifests ran out of memory or of temporary disk space",
            cause="[site] memory is too low, or the disk of the state directory is full",
            hint="raise [site] memory in site.toml, or free space on that disk, then run the same command again",
        )
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return MigratorError("cannot start more threads", cause="a limit of this user or its control group (ulimit -u)")
    return None


def _defect(global_options: GlobalOptions) -> MigratorError:
    """A defect of the program, with its traceback in a file that can be sent to the maintainers."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="migrator-crash-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as report:
        report.write(
            f"migrator {version_and_commit()}\nargv: {sys.argv!r}\nsite: {global_options.site_file}\n\n{traceback.format_exc()}"
        )
    return MigratorError(
        "internal error of migrator",
        cause=f"details are in {report.name}",
        hint="run the same command again; if the error returns, send that file to the maintainers",
    )


class Choice(Struct, frozen=True, kw_only=True):
    """What the options of `choices` choose."""

    plan_name: str | None
    numbers: tuple[int, ...]
    every: bool
    users: tuple[str, ...]

    def __post_init__(self) -> None:
        if sum(map(bool, (self.numbers, self.every, self.users))) > 1:
            raise UsageError("--user, --user-batch and --all exclude each other", hint="use one of them")

    def trees(self, plan: Plan) -> Mapping[int, tuple[UserTree, ...]]:
        """The chosen trees by batch number. Raises UsageError."""
        if self.users:
            return chosen_trees(plan, self.users)
        wanted = self.batches(plan)
        return {batch.number: batch.trees for batch in plan.batches if batch.number in wanted}

    def batches(self, plan: Plan) -> tuple[int, ...]:
        """The batches chosen by number, or all. Raises UsageError."""
        existing = tuple(batch.number for batch in plan.batches)
        if self.every:
            return existing
        if not self.numbers:
            raise UsageError("no batch is named", hint="use --user-batch N (repeatable) or --all")
        if unknown := [number for number in self.numbers if number not in existing]:
            raise UsageError(
                f"plan {plan.name} has no batch {', '.join(map(str, unknown))}",
                hint=f"it has batches {existing[0]} to {existing[-1]}: see `migrator status`"
                if existing
                else "the plan has no batches",
            )
        return self.numbers


def verb(function: Callable[..., ExitCode]) -> Callable[..., None]:
    """Turn a function that takes the global options and its own and returns an exit code into a verb.

    Adds `--json`, gives the options of `choices` as one `choice`, and turns errors into messages and exit codes, never
    tracebacks.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @click.pass_obj
    @functools.wraps(function)
    def command(global_options: GlobalOptions, /, *, as_json: bool, **options: object) -> None:
        global_options.as_json = as_json
        try:
            with signals.handled():
                if "every" in options:
                    names = ("plan_name", "numbers", "every", "users")
                    options["choice"] = Choice(**{name: options.pop(name) for name in names})  # type: ignore[arg-type]
                code = function(global_options, **options)
                if code is ExitCode.DONE and not as_json and not options.get("dry_run"):
                    _print_next(global_options)
        except MigratorError as error:
            print_error(error, as_json=as_json)
            code = error.exit_code
        except KeyboardInterrupt:
            print_error(Interrupted("interrupted"), as_json=as_json)
            code = ExitCode.INTERRUPTED
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - the one place that reports a defect
            print_error(_of_the_machine(error) or _defect(global_options), as_json=as_json)
            code = ExitCode.FAILED
        raise click.exceptions.Exit(int(code))

    return command


_FOLLOWED = frozenset({"init", "scan", "plan", "run", "verify", "cutover", "purge"})
"""The verbs that end with the next command."""


def _print_next(global_options: GlobalOptions) -> None:
    """Print the command that follows, as `status` knows it. The verb has succeeded, whether this can be read or not."""
    if (verb := click.get_current_context().info_name or "") not in _FOLLOWED:
        return
    # Loaded here because other verbs do not need them.
    from migrator.report.rules_blockers import next_command  # noqa: PLC0415
    from migrator.report.status import read_status  # noqa: PLC0415

    with suppress(MigratorError, OSError):
        wiring = open_wiring(global_options)
        with wiring.ledger(read_only=True) as ledger:
            status = read_status(ledger, now_s=wiring.clock.now_s(), holders=wiring.locks().holders)
        if not status.frozen and (command := next_command(status.next_steps, verb)) is not None:
            click.echo(f"Next: {command}")


def open_wiring(global_options: GlobalOptions) -> Wiring:
    """The implementations for the site that site.toml describes. Raises UsageError with every mistake in it."""
    return Wiring(open_site(global_options))


def open_site(global_options: GlobalOptions) -> Site:
    """The site that site.toml describes. Raises UsageError with every mistake in it."""
    return load_site(global_options.site_file)


# --- Shared options and their types: sizes, shares and durations as in site.toml


class Figure(click.FloatRange):
    """A finite number within a range; `nan` is refused."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


_LARGEST_BYTES = 2**63 - 1
"""The ledger keeps sizes in 64 bits, and no file system holds more."""


class Quantity(click.ParamType[float]):
    """A size, share or duration as in site.toml: `parse` raises UsageError, `shown` is for the bounds in messages."""

    def __init__(
        self,
        name: str,
        parse: Callable[[str], float],
        shown: Callable[[float], str] = str,
        *,
        least: float = 0.0,
        most: float = math.inf,
    ) -> None:
        self.name = name
        self._parse, self._shown = parse, shown
        self._least, self._most = least, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            found = value if isinstance(value, int | float) else self._parse(str(value))
        except UsageError as error:
            self.fail(f"{error.message} ({error.hint})" if error.hint else error.message, param, ctx)
        if found < self._least:
            self.fail(f"{value} is too small: the minimum is {self._shown(self._least)}", param, ctx)
        if found > self._most:
            self.fail(f"{value} is too large: the maximum is {self._shown(self._most)}", param, ctx)
        return found


def duration(least_s: float) -> Quantity:
    """A duration such as `90s`."""
    return Quantity("duration", parse_duration, format_duration, least=least_s)


SIZE = Quantity("size", parse_size, format_size, most=_LARGEST_BYTES)
SIZE_NOT_ZERO = Quantity("size", parse_size, format_size, least=1, most=_LARGEST_BYTES)
SHARE = Quantity("share", parse_share)


def open_plan(wiring: Wiring, ledger: "MigrationLedger", name: str) -> Plan:
    """A plan that the verb works by, named on standard error. Raises UsageError, and Refused if it is of another site
    or was changed.
    """
    plan = wiring.plan(ledger, name)
    name_plans(ledger, (name,))
    return plan


def name_plans(ledger: "MigrationLedger", names: Iterable[str]) -> None:
    """Name the plans that a verb works by."""
    active = ledger.plans.active()
    for name in names:
        which = "the active one" if active is not None and active.name == name else "not the active one"
        MESSAGES.info("plan: %s, %s", name, which)


plan_option = click.option(
    "--plan", "plan_name", metavar="NAME", shell_complete=complete_plans, help="Plan (default: the active one)."
)


def choices(function: Callable[..., None]) -> Callable[..., None]:
    """Which trees of which plan: `--user-batch`, `--all` or `--user`, and `--plan`. They come as one `choice`."""
    for option in (
        click.option(
            "--user",
            "users",
            multiple=True,
            metavar="NAME",
            shell_complete=complete_users,
            help="Trees of this user, in any batch; repeatable; excludes --user-batch and --all.",
        ),
        plan_option,
        click.option("--all", "every", is_flag=True, help="All batches of the plan, in sequence."),
        click.option(
            "--user-batch",
            "numbers",
            type=int,
            multiple=True,
            metavar="N",
            shell_complete=complete_batches,
            help="Batch of the plan; repeatable.",
        ),
    ):
        function = option(function)
    return function


def chosen_trees(plan: Plan, users: Sequence[str]) -> Mapping[int, tuple[UserTree, ...]]:
    """The trees chosen by `--user`, by batch number, in the plan's order. Raises UsageError."""
    wanted = set(users)
    existing = {tree.user for batch in plan.batches for tree in batch.trees}
    unknown = [user for user in dict.fromkeys(users) if user not in existing]
    if apart := [tree for tree in plan.set_apart if tree.user in unknown]:
        raise UsageError(
            f"set apart in plan {plan.name}: {', '.join(show(tree.path) for tree in apart)}: the scan could not read it everywhere",
            hint="run `migrator scan`, then `migrator plan --activate`",
        )
    if unknown:
        near = [match for user in unknown for match in get_close_matches(user, existing, n=2, cutoff=0.6)]
        raise UsageError(
            f"plan {plan.name} has no tree of {', '.join(map(_shown, unknown))}",
            hint=f"did you mean {' or '.join(map(_shown, dict.fromkeys(near)))}?"
            if near
            else f"see its users: `migrator status --details --plan {plan.name}`",
        )
    found = {batch.number: tuple(tree for tree in batch.trees if tree.user in wanted) for batch in plan.batches}
    return {number: trees for number, trees in found.items() if trees}


def trees_of_users(
    ledger: "MigrationLedger", plan: Plan, users: Sequence[str], *, moved_first: bool = False
) -> "Mapping[str, TreesByBatch]":
    """The trees of these users, by plan: those that were moved or are being moved in the plan of their cutover, because
    later plans omit them, and the others in `plan`; with `moved_first` the others only of users without a moved tree.
    Raises UsageError.
    """
    found = {name: dict(trees) for name, trees in ledger.cutovers.by_plan(users).items()}
    moved = {tree.path: tree.user for by_batch in found.values() for trees in by_batch.values() for tree in trees}
    planned = {tree.user for batch in plan.batches for tree in batch.trees}
    optional = set(moved.values()) - (set() if moved_first else planned)
    others = [user for user in users if user not in optional]
    for batch, trees in (chosen_trees(plan, others) if others else {}).items():
        if left := tuple(tree for tree in trees if tree.path not in moved):
            by_batch = found.setdefault(plan.name, {})
            by_batch[batch] = (*by_batch.get(batch, ()), *left)
    return found


def trees_moved(ledger: "MigrationLedger", plan: Plan, choice: Choice) -> "Mapping[str, TreesByBatch]":
    """The chosen trees for a verb on users who were moved, by plan. `--user` and `--all` also choose those that an earlier plan
    has moved, which later plans omit, unless a plan is named. Raises UsageError.
    """
    if choice.plan_name is not None or choice.numbers:
        return {plan.name: choice.trees(plan)}
    if choice.users:
        return trees_of_users(ledger, plan, choice.users, moved_first=True)
    planned, earlier = choice.trees(plan), dict(ledger.cutovers.by_plan(None))
    moved = {tree.path for by_batch in earlier.values() for trees in by_batch.values() for tree in trees}
    found = dict(earlier.pop(plan.name, {}))
    for number, trees in planned.items():
        if left := tuple(tree for tree in trees if tree.path not in moved):
            found[number] = (*found.get(number, ()), *left)
    return {**earlier, plan.name: found} if found else earlier


def _shown(user: str) -> str:
    return show(user.encode("utf-8", "surrogateescape"))


# --- Output as JSON or tables


Value = TypeVar("Value")

details_option = click.option("--details", is_flag=True, help="Print all details, not only the first screen.")


def present(
    global_options: GlobalOptions, value: Value, document_of: "Callable[[Value], Document]", *, more: str = ""
) -> ExitCode:
    """Print a result on standard output as JSON or as its document, and return its exit code. With `more`, the command
    that shows the rest, only the first page of the document.
    """
    code: ExitCode = getattr(value, "exit_code", ExitCode.DONE)
    if global_options.as_json:
        click.echo(to_json(value), nl=False)
        return code
    document = document_of(value)
    if more:
        from migrator.render.document import first_page  # noqa: PLC0415

        document = first_page(document, more)
    _print(global_options, document)
    return code


def present_all(
    global_options: GlobalOptions, values: Sequence[Value], document_of: "Callable[[Value], Document]"
) -> None:
    """Print several results: one JSON list, or their documents one below the other. `document_of` as for `present`."""
    if global_options.as_json:
        click.echo(to_json(values), nl=False)
        return
    for value in values:
        _print(global_options, document_of(value))


def _print(global_options: GlobalOptions, document: "Document") -> None:
    # Loaded here because scripts, which use JSON, must not wait for rich.
    from rich.console import Console  # noqa: PLC0415

    from migrator.render.terminal import print_document  # noqa: PLC0415

    console = Console(width=global_options.width, highlight=False, soft_wrap=False)
    print_document(console, document)
