"""Options that several verbs share, and what they take: sizes and shares in words, as in site.toml."""

import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

import click

from migrator.config.quantities import parse_duration, parse_share, parse_size
from migrator.domain.errors import UsageError
from migrator.domain.paths import show
from migrator.domain.plan import Plan
from migrator.domain.tree import UserTree
from migrator.domain.units import format_duration, format_size

_LARGEST_BYTES = 2**63 - 1
"""No file system holds more, and the ledger keeps sizes in 64 bits."""

_USERS_ALONE = "--user excludes --user-batch and --all: give one of them"


class Figure(click.FloatRange):
    """A number within a range; what is no number is none, though it has a name (`nan`)."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number", param, ctx)
        return number


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


class Duration(click.ParamType[float]):
    """A duration in words, at least so many seconds."""

    name = "duration"

    def __init__(self, least_s: float = 0.0) -> None:
        self._least_s = least_s

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            duration_s = value if isinstance(value, float) else parse_duration(str(value))
        except UsageError as error:
            self.fail(_in_words(error), param, ctx)
        if duration_s < self._least_s:
            self.fail(f"{value} is too short: the least is {format_duration(self._least_s)}", param, ctx)
        return duration_s


SIZE = Size()
SIZE_NOT_ZERO = Size(least_bytes=1)
SHARE = Share()


plan_option = click.option("--plan", "plan_name", metavar="NAME", help="Plan (default: the newest).")


def batches(function: Callable[..., None]) -> Callable[..., None]:
    """Which batches of which plan: `--user-batch` or `--all`, and `--plan`."""
    function = plan_option(function)
    function = click.option(
        "--all",
        "every",
        is_flag=True,
        callback=_either_or,
        help="All batches of the plan, in sequence.",
    )(function)
    return click.option(
        "--user-batch",
        "numbers",
        type=int,
        multiple=True,
        metavar="N",
        is_eager=True,
        help="Batch of the plan; repeatable.",
    )(function)


def users(function: Callable[..., None]) -> Callable[..., None]:
    """Whose trees: `--user`, beside `batches`, which it excludes."""
    return click.option(
        "--user",
        "users",
        multiple=True,
        metavar="NAME",
        callback=_users_alone,
        help="Trees of this user, in any batch; repeatable; excludes --user-batch and --all.",
    )(function)


def chosen_trees(plan: Plan, users: Sequence[str]) -> Mapping[int, tuple[UserTree, ...]]:
    """The trees that are meant by `--user`, by the number of their batch, in the plan's order. Raises UsageError."""
    wanted = set(users)
    existing = {tree.user for batch in plan.batches for tree in batch.trees}
    unknown = [user for user in dict.fromkeys(users) if user not in existing]
    if unknown:
        near = [match for user in unknown for match in get_close_matches(user, existing, n=2, cutoff=0.6)]
        raise UsageError(
            f"plan {plan.name} has no tree of {', '.join(map(_shown, unknown))}",
            hint=f"did you mean {' or '.join(map(_shown, dict.fromkeys(near)))}?"
            if near
            else f"see whom it has: `migrator status --plan {plan.name}`",
        )
    found = {batch.number: tuple(tree for tree in batch.trees if tree.user in wanted) for batch in plan.batches}
    return {number: trees for number, trees in found.items() if trees}


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
    if every and ctx.params.get("users"):
        raise click.UsageError(_USERS_ALONE, ctx)
    return every


def _users_alone(ctx: click.Context, _param: click.Parameter, users: tuple[str, ...]) -> tuple[str, ...]:
    # Of two options the one that is parsed later sees the other: `_either_or` does the same.
    if users and (ctx.params.get("numbers") or ctx.params.get("every")):
        raise click.UsageError(_USERS_ALONE, ctx)
    return users


def _shown(user: str) -> str:
    return show(user.encode("utf-8", "surrogateescape"))


def _in_words(error: UsageError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
