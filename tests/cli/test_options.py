"""What options take, and that every mistake in one is a usage error: exit code 2 and words, before anything is read."""

import pytest
from click.testing import CliRunner

from migrator.cli.brick import BrickName
from migrator.cli.call import chosen_trees
from migrator.cli.main import main
from migrator.core.entry import UserTree
from migrator.core.errors import UsageError
from tests.support.plans import small_plan


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--all", "--bwlimit", "foo"], '"foo" is no size'),
        (["run", "--all", "--bwlimit", "0"], "too small"),
        (["run", "--all", "--bwlimit", "999999999999PiB"], "too large"),
        (["verify", "--all", "--sample", "105%"], "no share"),
        (["status", "--watch", "--interval", "10ms"], "too small"),
        (["status", "--watch", "--json"], "--watch excludes --json"),
        (["lab", "up", "--brick-size", "large"], '"large" is no size'),
        (["run", "--all", "--user-batch", "1"], "exclude each other"),
        (["run", "--user", "alice", "--user-batch", "1"], "exclude each other"),
        (["verify", "--all", "--user", "alice"], "exclude each other"),
        (["brick", "add", "gl1:/b", "--to", "source", "--take-back"], "in its place"),
        (["brick", "add", "gl1:/b", "--to", "target", "--instead-of", "gl1:/b"], "bricks of the source"),
    ],
)
def test_a_mistake_is_a_usage_error(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["--site", "/nowhere/site.toml", *arguments])
    assert done.exit_code == 2, done.output
    assert says in done.output
    assert "no site file" not in done.output


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


@pytest.mark.parametrize("path", ["/srv/b1/data", "//srv/b1/data/", "/srv//b1/./data", "/srv/b2/../b1/data"])
def test_all_spellings_of_a_brick_are_one_name(path: str) -> None:
    assert BrickName().convert(f"gl1:{path}", None, None) == "gl1:/srv/b1/data"


@pytest.mark.parametrize("name", ["gl1", "gl1:srv", "/srv/b1"])
def test_what_is_no_brick_name_stays_as_it_is(name: str) -> None:
    assert BrickName().convert(name, None, None) == name
