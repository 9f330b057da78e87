"""`plan --usage`: a ranking of users by what Robinhood counted, before the first scan; a report compares it with the plan.

The formats are those of Robinhood 3 (github.com/cea-hpc/robinhood: `display_report` and `report_usergroup_info` of
src/robinhood, tables ACCT_STAT and ENTRIES of src/list_mgr).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.core import documents
from migrator.core.durable import write_durably
from migrator.core.entry import BLOCK_BYTES
from migrator.core.errors import MigratorError, ToolFailed, UsageError
from migrator.plan.model import Order, Plan, UsageDifference, UsageRanking, UserUsage

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

USAGE_NAME = "usage.json"
"""The newest ranking, in the state directory."""
SIZE_RANGES = {
    "0": "0", "1": "1~31", "32": "32~1K-", "1K": "1K~31K", "32K": "32K~1M-", "1M": "1M~31M", "32M": "32M~1G-",
    "1G": "1G~31G", "32G": "32G~1T-", "1T": "+1T",
}  # fmt: skip
"""The size ranges of files: the end of the column's name in ACCT_STAT, and the title in reports."""
_DIRECTORY = "dir"
_ASK = "make it with `rbh-report --csv -u '*' --szprof`"


def read_usage(source: str, order: Order, *, now_s: float) -> UsageRanking:
    """Rank the users of a file of `rbh-report --csv`, or of Robinhood's database by its URL. Raises UsageError, and
    ToolFailed if the database cannot be read.
    """
    if order is Order.COLDEST:
        raise UsageError("Robinhood's sums have no ages: --order coldest needs a scan", hint="give another order")
    partial = False
    if "://" in source:
        source, users = _read_database(source)
    else:
        with UsageError.of_files(f"{source} cannot be read", hint=_ASK):
            content = Path(source).read_bytes()
        users, partial = read_report_csv(content, source)
    if not users:
        raise UsageError(f"{source} names no user", hint=_ASK)
    keys = {
        Order.HEAVIEST: lambda one: (-one.size_bytes, -one.files, one.user),
        Order.SMALLEST: lambda one: (one.size_bytes, one.files, one.user),
        Order.MOST_FILES: lambda one: (-one.files, -one.size_bytes, one.user),
    }
    ranked = tuple(sorted(users, key=keys[order]))
    return UsageRanking(source=source, at_s=now_s, order=order, partial=partial, users=ranked)


def read_report_csv(content: bytes, source: str) -> tuple[list[UserUsage], bool]:
    """The users of `--user-info` or `--top-users`, with or without `--szprof`, and whether they are only some. Raises
    UsageError for anything else: a number in the wrong column would rank wrongly.
    """
    header: list[str] = []
    rows: list[Mapping[str, str]] = []
    for number, line in enumerate(content.decode("utf-8", "backslashreplace").split("\n"), 1):
        cells = [cell.strip() for cell in line.split(",")]
        if not header:
            if line.startswith("filter "):
                raise UsageError(f"{source}, line {number}: it counts only a part: {line.strip()}", hint=_ASK)
            header = cells if {"user", "count", "volume"} <= set(cells) else []
        elif line.startswith("Total:"):
            break
        elif line.strip():
            if len(cells) != len(header):
                problem = f"{len(cells)} columns, and {len(header)} in the header"
                raise UsageError(f"{source}, line {number}: {problem}", hint=_ASK)
            rows.append(dict(zip(header, cells, strict=True)) | {"line": str(number)})
    if not header:
        raise UsageError(f"{source} has no header with user, count and volume", hint=f"{_ASK}, without --no-header")
    return _summed(rows, source), "rank" in header


def _summed(rows: Iterable[Mapping[str, str]], source: str) -> list[UserUsage]:
    """One value for each user, of rows by type, group or project."""
    sums: dict[str, dict[str, int]] = {}
    for row in rows:
        found = sums.setdefault(row["user"], {})
        # A report without types (`--top-users`) counts files alone.
        is_directory = row.get("type", "file") == _DIRECTORY
        counts = {"directories": "count"} if is_directory else {"files": "count", "bytes": "volume", "used": "spc_used"}
        counts |= {} if is_directory else {title: title for title in SIZE_RANGES.values()}
        for name, column in counts.items():
            if column in row:
                if not re.fullmatch(r"[0-9]{1,20}", row[column]):
                    raise UsageError(f"{source}, line {row['line']}: {column} is {row[column]!r}, no number", hint=_ASK)
                found[name] = found.get(name, 0) + int(row[column])
    return [
        UserUsage(
            user=user,
            files=found.get("files", 0),
            directories=found.get("directories", 0),
            size_bytes=found.get("bytes", 0),
            used_bytes=found.get("used"),
            by_size={title: found[title] for title in SIZE_RANGES.values() if title in found},
        )
        for user, found in sums.items()
    ]


# --- The database


def _read_database(address: str) -> tuple[str, list[UserUsage]]:
    """The database's URL without its password, and the users. Reads in one transaction that cannot write."""
    # Imported late: only this option needs it.
    from sqlalchemy import create_engine  # noqa: PLC0415
    from sqlalchemy.engine import make_url  # noqa: PLC0415
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError  # noqa: PLC0415

    hint = "name it as mysql+pymysql://USER@HOST/DATABASE?read_default_file=/root/.my.cnf"
    try:
        url = make_url(address)
        shown = url.set(query={}).render_as_string(hide_password=True)
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError, ValueError, TypeError) as error:
        raise UsageError("this is no address of a database that can be read", hint=hint) from error
    except ImportError as error:
        raise UsageError(
            f"the driver of the database is not installed: {error.name}",
            hint="`pip install PyMySQL` where migrator is installed, or use a file of rbh-report --csv",
        ) from error
    try:
        return shown, _summed(_database_rows(engine), shown)
    except (SQLAlchemyError, OSError, RuntimeError, TypeError, ValueError) as error:
        # Drivers raise more than SQLAlchemy wraps: for options of the URL, or a way to log in that needs another package.
        cause = str(getattr(error, "orig", None) or error).split("\n", maxsplit=1)[0]
        raise ToolFailed(f"{shown} cannot be read: {cause}", hint=hint) from error
    finally:
        engine.dispose()


def _database_rows(engine: "Engine") -> list[Mapping[str, str]]:
    with engine.connect() as connection:
        if engine.dialect.name in ("mysql", "mariadb"):
            connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
            connection.commit()
        return [
            # Sums are decimals in MySQL; a name is null if Robinhood does not know it.
            {name: _text(value) or "0" for name, value in row.items()}
            | {"user": _text(row["user"]) or "unknown", "line": "0"}
            for row in _sums(connection)
        ]


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value or "")


def _sums(connection: "Connection") -> Sequence[Mapping[str, object]]:
    """Sums by user and type: from the accounting table, or from all entries if accounting is off."""
    from sqlalchemy import Integer, case, cast, column, func, inspect, select, table  # noqa: PLC0415

    sizes = list(SIZE_RANGES)
    has_sums = inspect(connection).has_table("ACCT_STAT")
    names = ["uid", "type", "size", "blocks", *(["count", *(f"sz{size}" for size in sizes)] if has_sums else [])]
    source = table("ACCT_STAT" if has_sums else "ENTRIES", *map(column, names))
    row = source.c
    bounds = [0, *(1 << 5 * number for number in range(len(sizes) - 1)), (1 << 63) - 1]
    if has_sums:
        counts = [func.sum(row[f"sz{size}"]) for size in sizes]
    else:
        counts = [func.sum(case(((row.size >= low) & (row.size < high), 1), else_=0)) for low, high in pairwise(bounds)]
    query = select(
        row.uid.label("user"),
        row.type.label("type"),
        (func.sum(row["count"]) if has_sums else func.count()).label("count"),
        func.sum(row.size).label("volume"),
        cast(func.sum(row.blocks) * BLOCK_BYTES, Integer).label("spc_used"),
        *(count.label(title) for count, title in zip(counts, SIZE_RANGES.values(), strict=True)),
    ).group_by(row.uid, row.type)
    return [dict(found) for found in connection.execute(query).mappings()]


# --- Kept for reports


def keep_usage(ranking: UsageRanking, state_dir: Path) -> None:
    """Keep the ranking for reports, in the place of an earlier one."""
    with MigratorError.of_files(f"the ranking cannot be kept in {state_dir}"):
        write_durably(state_dir / USAGE_NAME, documents.encode(ranking, indent=1).encode())


def kept_usage(state_dir: Path) -> UsageRanking | None:
    """The ranking that was kept; None if there is none. Raises UsageError."""
    file = state_dir / USAGE_NAME
    try:
        found: UsageRanking = documents.decode(UsageRanking, json.loads(file.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{file} cannot be read", hint="remove it, or make it again with plan --usage") from error
    return found


def compare_usage(ranking: UsageRanking, plan: Plan | None) -> tuple[UsageDifference, ...]:
    """Every user of the ranking, in its order, beside what the scan behind the plan found in the user's trees; then users
    that only the scan has.
    """
    scanned: dict[str, tuple[int, int]] = {}
    for tree in plan.ranking if plan else ():
        files, size_bytes = scanned.get(tree.tree.user, (0, 0))
        scanned[tree.tree.user] = (files + tree.files, size_bytes + tree.size_bytes)
    counted = {one.user: one for one in ranking.users}
    others = sorted(scanned.keys() - counted.keys(), key=lambda user: (-scanned[user][1], user))
    return tuple(
        UsageDifference(
            user=user,
            counted_files=counted[user].files if user in counted else None,
            counted_bytes=counted[user].size_bytes if user in counted else None,
            scanned_files=scanned[user][0] if user in scanned else None,
            scanned_bytes=scanned[user][1] if user in scanned else None,
        )
        for user in (*counted, *others)
    )
