"""Options that several verbs share, and what they take: sizes and shares in words, as in site.toml."""

from collections.abc import Callable, Sequence

import click

from migrator.config.quantities import parse_share, parse_size
from migrator.domain.errors import UsageError
from migrator.domain.plan import Plan
from migrator.domain.units import format_size

_LARGEST_BYTES = 2**63 - 1
"""No file system holds more, and the ledger keeps sizes in 64 bits."""


class Size(click.ParamType[int]):
    """A size in words, at least so many bytes."""

    name = "size"

    def __init__(self, least_bytes: int = 0) -> None:
        self._least_bytes = least_bytes

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            size_bytes = value if isinstance(value, int) else parse_size(str(value))
        except UsageError as error:
            self.fail(_in_words(error), param, ctx)
        if size_bytes < self._least_bytes:
            self.fail(f"{value} is too small: the least is {format_size(self._least_bytes)}", param, ctx)
        if size_bytes > _LARGEST_BYTES:
            self.fail(f"{value} is more than any file system holds", param, ctx)
        return size_bytes


class Share(click.ParamType[float]):
    """A share between 0 and 1: `0.05` or `5%`."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_share(value if isinstance(value, int | float) else str(value))
        except UsageError as error:
            self.fail(_in_words(error), param, ctx)


SIZE = Size()
SIZE_NOT_ZERO = Size(least_bytes=1)
SHARE = Share()


plan_option = click.option("--plan", "plan_name", metavar="NAME", help="The plan (default: the latest).")


def batches(function: Callable[..., None]) -> Callable[..., None]:
    """Which batches of which plan: `--user-batch` or `--all`, and `--plan`."""
    function = plan_option(function)
    function = click.option(
        "--all",
        "every",
        is_flag=True,
        callback=_either_or,
        help="All batches of the plan, one after the other; not together with --user-batch.",
    )(function)
    return click.option(
        "--user-batch",
        "numbers",
        type=int,
        multiple=True,
        metavar="N",
        is_eager=True,
        help="A batch of the plan; repeatable.",
    )(function)


def chosen_batches(plan: Plan, numbers: Sequence[int], *, every: bool) -> tuple[int, ...]:
    """The batches that are meant by `--user-batch` and `--all`. Raises UsageError."""
    existing = tuple(batch.number for batch in plan.batches)
    if every:
        return existing
    if not numbers:
        raise UsageError("which batches?", hint="give --user-batch N (it may be repeated), or --all")
    unknown = [number for number in numbers if number not in existing]
    if unknown:
        raise UsageError(
            f"plan {plan.name} has no batch {', '.join(map(str, unknown))}",
            hint=f"it has batches {existing[0]} to {existing[-1]}: see `migrator status`"
            if existing
            else "it has no batches at all",
        )
    return tuple(numbers)


def _either_or(ctx: click.Context, _param: click.Parameter, every: bool) -> bool:
    if every and ctx.params.get("numbers"):
        raise click.UsageError("--all and --user-batch exclude each other: give one of them", ctx)
    return every


def _in_words(error: UsageError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
