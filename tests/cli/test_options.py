"""What options take, and that every mistake in one is a usage error: exit code 2 and words, before anything is read."""

import click
import pytest
from click.testing import CliRunner

from migrator.cli.call import SHARE, SIZE, SIZE_NOT_ZERO, batches, chosen_trees, users
from migrator.cli.main import main
from migrator.core.entry import UserTree
from migrator.core.errors import UsageError
from tests.support.plans import small_plan


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--all", "--bwlimit", "foo"], '"foo" is no size'),
        (["run", "--all", "--bwlimit", "3 bananas"], "bananas"),
        (["run", "--all", "--bwlimit", "0"], "too small"),
        (["run", "--all", "--bwlimit", "-1"], "is no size"),
        (["run", "--all", "--jobs", "0"], "0"),
        (["plan", "-s", "0"], "too small"),
        (["plan", "-s", "0.1B"], "too small"),
        (["plan", "-s", "999999999999PiB"], "more than any file system holds"),
        (["plan", "-f", "0"], "0"),
        (["verify", "--all", "--sample", "105%"], "no share"),
        (["verify", "--all", "--sample", "nan"], "no share"),
        (["verify", "--all", "--sample", "most"], "no share"),
        (["status", "--watch", "--interval", "10ms"], "too short"),
        (["status", "--watch", "--interval", "2"], "no unit"),
        (["status", "--watch", "--interval", "soon"], "soon"),
        (["status", "--watch", "--json"], "--watch excludes --json"),
        (["lab", "up", "--brick-size", "large"], '"large" is no size'),
        (["run", "--all", "--user-batch", "1"], "exclude each other"),
        (["run", "--user-batch", "1", "--all"], "exclude each other"),
        (["verify", "--user-batch", "1", "--user-batch", "2", "--all"], "exclude each other"),
        (["brick", "add", "gl1:/b", "--to", "source", "--take-back"], "in its place"),
        (["brick", "add", "gl1:/b", "--to", "source", "--instead-of", "gl2:/b", "--once-more"], "in its place"),
        (["brick", "add", "gl1:/b", "--to", "target", "--instead-of", "gl1:/b"], "bricks of the source"),
    ],
)
def test_a_mistake_is_a_usage_error(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["--site", "/nowhere/site.toml", *arguments])
    assert done.exit_code == 2, done.output
    assert says in done.output
    assert "no site file" not in done.output


def test_shares_and_sizes() -> None:
    for text, share in (("5%", 0.05), ("0.05", 0.05), ("0", 0.0), ("1", 1.0), ("100 %", 1.0)):
        assert SHARE.convert(text, None, None) == pytest.approx(share)
    assert SIZE.convert("0", None, None) == 0
    assert SIZE_NOT_ZERO.convert("4GiB", None, None) == 4 << 30
    assert SIZE_NOT_ZERO.convert("9223372036854775807", None, None) == 2**63 - 1


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [([], ((), False)), (["--all"], ((), True)), (["--user-batch", "2", "--user-batch", "1"], ((2, 1), False))],
)
def test_batches_are_chosen_one_way_or_the_other(arguments: list[str], chosen: tuple[tuple[int, ...], bool]) -> None:
    seen: list[tuple[tuple[int, ...], bool]] = []

    @click.command()
    @batches
    def command(numbers: tuple[int, ...], *, every: bool, plan_name: str | None) -> None:
        seen.append((numbers, every))

    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert seen == [chosen]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--user", "alice", "--user-batch", "1"],
        ["--user-batch", "1", "--user", "alice"],
        ["--user", "alice", "--all"],
        ["--all", "--user", "alice"],
    ],
)
def test_users_are_chosen_instead_of_batches(arguments: list[str]) -> None:
    @click.command()
    @batches
    @users
    def command(**_options: object) -> None:
        click.echo("ran")

    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert "--user excludes" in done.output
    assert CliRunner().invoke(command, ["--user", "alice", "--user", "bob"]).output == "ran\n"


def test_the_trees_of_users_are_found_in_whatever_batch() -> None:
    alice, again = UserTree(path=b"home/alice", user="alice"), UserTree(path=b"work/alice", user="alice")
    plan = small_plan(trees=(alice, again))
    assert chosen_trees(plan, ["alice"]) == {1: (alice,), 2: (again,)}
    bob = UserTree(path=b"home/bob", user="bob")
    assert chosen_trees(small_plan(trees=(alice, bob)), ["bob", "bob"]) == {2: (bob,)}


@pytest.mark.parametrize(
    ("names", "says", "hint"),
    [
        (["alcie"], "no tree of alcie", "did you mean alice?"),
        (["alice", "bobb", "x"], "no tree of bobb, x", "did you mean bob?"),
        (["nobody"], "no tree of nobody", "migrator status"),
        (["\x1b[2J"], "no tree of ", "migrator status"),
    ],
)
def test_whom_the_plan_does_not_have(names: list[str], says: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen_trees(small_plan(), names)
    assert says in caught.value.message
    assert hint in (caught.value.hint or "")
    assert "\x1b" not in caught.value.message
