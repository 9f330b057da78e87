"""How the program starts, what its options take, and how the process ends."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from migrator.cli.brick import BrickName
from migrator.cli.call import chosen_trees
from migrator.cli.main import main
from migrator.core.entry import UserTree
from migrator.core.errors import UsageError
from tests.support.plans import small_plan

_LEAVE = "from migrator.__main__ import leave\n"
_ENDS = "end of the interpreter"
_TOLD_BY_THE_INTERPRETER = f"""
class Told:
    def __del__(self):
        print({_ENDS!r})
told = Told()
"""


def ended(script: str) -> "subprocess.CompletedProcess[str]":
    """What a process came to that ran this."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_exit_handlers_run_and_output_arrives() -> None:
    script = f"""{_LEAVE}{_TOLD_BY_THE_INTERPRETER}
import atexit, sys
atexit.register(print, "registered")
print("written")
leave(3)
"""
    shown = ended(script)
    assert (shown.returncode, shown.stdout, shown.stderr) == (3, "written\nregistered\n", "")


def test_a_thread_that_has_to_be_waited_for_is_waited_for() -> None:
    script = f"""{_LEAVE}{_TOLD_BY_THE_INTERPRETER}
import threading
go = threading.Event()
def work():
    go.wait()
    print("worked")
threading.Thread(target=work).start()
leave(3)
go.set()
"""
    shown = ended(script)
    assert (shown.returncode, shown.stdout) == (0, f"worked\n{_ENDS}\n")


@pytest.mark.parametrize("module", ["migrator.cli.scan", "migrator.cli.main"])
def test_interrupt_while_libraries_load_starts_no_work(module: str) -> None:
    script = f"""
import sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
sys.argv = ["migrator", "scan"]
from migrator.__main__ import program
program()
"""
    shown = ended(script)
    assert (shown.returncode, shown.stdout) == (130, "")
    assert shown.stderr.splitlines()[0] == "migrator: interrupted"
    assert "no work was started" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "list", "--site", "site.toml"], ("--site goes before the verb", "migrator bench list")),
        (["stauts"], ("status",)),
    ],
)
def test_a_mistyped_command_is_answered_with_the_right_one(words: list[str], said: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", "migrator", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(one in done.stderr for one in said)


def test_help_has_every_verb_in_the_order_of_a_migration_and_cuts_no_words_off() -> None:
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    lines = shown.partition("Verbs, in the order in which a migration needs them:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == list(main.load())
    assert not any("..." in line for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--all", "--bwlimit", "foo"], '"foo" is not a size'),
        (["run", "--all", "--bwlimit", "0"], "too small"),
        (["tune", "--max-load", "nan"], "nan is not a number"),
        (["run", "--all", "--bwlimit", "999999999999PiB"], "too large"),
        (["verify", "--all", "--sample", "105%"], "not a share"),
        (["status", "--watch", "--interval", "10ms"], "too small"),
        (["status", "--watch", "--json"], "--watch excludes --json"),
        (["lab", "up", "--brick-size", "large"], '"large" is not a size'),
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
def test_other_words_are_not_brick_names(name: str) -> None:
    assert BrickName().convert(name, None, None) == name
