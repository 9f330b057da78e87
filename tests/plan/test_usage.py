"""`plan --usage`: Robinhood's reports and its database as a ranking, and a report beside it."""

import json
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.core.errors import MigratorError, UsageError
from migrator.plan import usage
from migrator.plan.model import Order, UserUsage
from tests.support.cli_site import Site

FIXTURES = Path(__file__).parents[1] / "fixtures" / "robinhood"
SIZES = list(usage.SIZE_RANGES)


def ranked(source: Path | str, order: Order = Order.HEAVIEST) -> tuple[UserUsage, ...]:
    return usage.read_usage(str(source), order, now_s=1.0).users


ALICE = UserUsage(user="alice", files=7, directories=3, size_bytes=2_000_143, used_bytes=2_048_000)
BOB = UserUsage(user="bob", files=2, directories=0, size_bytes=123_912, used_bytes=126_976)
PROFILES = {"alice": [2, 2, 1, 1, 0, 1, 0, 0, 0, 0], "bob": [0, 0, 1, 0, 1, 0, 0, 0, 0, 0]}


def with_sizes(one: UserUsage) -> UserUsage:
    return replace(one, by_size=dict(zip(usage.SIZE_RANGES.values(), PROFILES[one.user], strict=True)))


def test_a_report_of_users_is_summed_over_groups_and_types_without_the_bytes_of_directories() -> None:
    alice, bob, unknown = ranked(FIXTURES / "user-info.csv")
    assert (alice, bob) == (with_sizes(ALICE), with_sizes(BOB))
    assert (unknown.user, unknown.size_bytes) == ("unknown", 123)
    assert ranked(FIXTURES / "user-info.csv", Order.SMALLEST)[0] == unknown


def test_a_report_of_top_users_is_partial() -> None:
    found = usage.read_usage(str(FIXTURES / "top-users.csv"), Order.MOST_FILES, now_s=1.0)
    assert found.partial
    assert found.users == (replace(ALICE, files=5, directories=0, size_bytes=2_000_123), BOB)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("      user,", "      User,", "no header"),
        ("123912", "118 KB", "line 6: volume is '118 KB', no number"),
        ("123912", "9" * 5000, "line 6: volume is .*, no number"),
        (" 126976,", "", "line 6: 18 columns, and 19 in the header"),
        ("Using", "filter path: /scratch/a\nUsing", "line 1: it counts only a part"),
    ],
)
def test_truncated_usage_reports_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (FIXTURES / "user-info.csv").read_text()
    assert old in text
    file = tmp_path / "report.csv"
    file.write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=said):
        ranked(file)


def database(file: Path, *, accounting: bool) -> str:
    """The schema of Robinhood, with the entries of the report."""
    entries = [("alice", "file", size) for size in (0, 0, 100, 23, 2_000_000)]
    entries += (
        [("alice", "symlink", 10)] * 2 + [("alice", "dir", 4096)] * 3 + [("bob", "file", 456), ("bob", "file", 123_456)]
    )
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE ENTRIES (id, uid, gid, type, size BIGINT, blocks BIGINT)")
        rows = [(number, *entry, 8) for number, entry in enumerate(entries)]
        connection.executemany("INSERT INTO ENTRIES (id, uid, type, size, blocks) VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("INSERT INTO ENTRIES (id, type) VALUES (99, 'file')")
        if accounting:
            sizes = ", ".join(f"sz{size} BIGINT" for size in SIZES)
            connection.execute(
                f"CREATE TABLE ACCT_STAT (uid, gid, type, size BIGINT, blocks BIGINT, count BIGINT, {sizes})"
            )
            ranges = ["size = 0", *(f"size >= {1 << 5 * n} AND size < {1 << 5 * (n + 1)}" for n in range(9))]
            sums = ", ".join(f"sum({one})" for one in ranges)
            connection.execute(
                f"INSERT INTO ACCT_STAT SELECT uid, gid, type, sum(size), sum(blocks), count(*), {sums} FROM ENTRIES GROUP BY 1, 2, 3"
            )
            connection.execute("DELETE FROM ENTRIES")
    connection.close()
    return f"sqlite:///{file}"


@pytest.mark.parametrize("accounting", [True, False])
def test_the_database_says_the_same_with_and_without_accounting(tmp_path: Path, accounting: bool) -> None:
    alice, bob, unknown = ranked(database(tmp_path / "robinhood.db", accounting=accounting))
    assert (alice.user, alice.files, alice.directories, alice.size_bytes) == ("alice", 7, 3, 2_000_143)
    assert list(alice.by_size.values()) == [2, 3, 1, 0, 0, 1, 0, 0, 0, 0]
    assert (alice.used_bytes, bob.by_size) == (7 * 8 * 512, with_sizes(BOB).by_size)
    assert (unknown.user, unknown.files, unknown.size_bytes, unknown.used_bytes) == ("unknown", 1, 0, 0)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("mysql+pymysql://rbh:secret@h/rbh", "driver of the database is not installed|cannot be read"),
        ("sqlite:///:memory:?isolation_level=secret", "cannot be read"),
        ("nosql://rbh:secret@h/rbh", "no address of a database"),
        ("sqlite:////nowhere/rbh.db", "cannot be read: unable to open"),
        ("/nowhere/report.csv", "cannot be read: No such file"),
    ],
)
def test_database_errors_omit_the_password(source: str, said: str) -> None:
    with pytest.raises(MigratorError, match=said) as caught:
        ranked(source)
    assert "secret" not in f"{caught.value.message} {caught.value.hint}"
    with pytest.raises(UsageError, match="coldest"):
        ranked(source, Order.COLDEST)


def test_a_ranking_needs_no_catalog_and_a_report_has_it_beside_the_scan(tmp_path: Path) -> None:
    site = Site(tmp_path, tmp_path / "source", tmp_path / "target")
    for user in ("alice", "carol"):
        (site.source / "home" / user).mkdir(parents=True)
        (site.source / "home" / user / "file").write_bytes(bytes(1000))
    site.target.mkdir()
    site.write()
    site.works("init")
    words = ("plan", "--usage", str(FIXTURES / "user-info.csv"))
    assert "alice" in site.call(*words).stdout
    site.fails(2, *words, "--activate", says=("makes no plan",))
    assert json.loads(site.call(*words, "--order", "most-files", "--json").stdout)["users"][0]["user"] == "alice"
    assert list((tmp_path / "plans").glob("*")) == []
    for verb in ("scan", "plan"):
        site.works(verb)
    report = json.loads(site.call("report", "--json").stdout)
    seen = {one["user"]: (one["counted_bytes"], one["scanned_bytes"]) for one in report["usage_differences"]}
    assert seen == {"alice": (2_000_143, 1000), "bob": (123_912, None), "unknown": (123, None), "carol": (None, 1000)}
    assert "Users by Robinhood and by the scan" in site.call("report", "--details").stdout
    (tmp_path / "state" / usage.USAGE_NAME).write_text("{}")
    site.fails(2, "report", says=("usage.json cannot be read",))
