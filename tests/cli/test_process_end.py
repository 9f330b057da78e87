"""How the process ends: with its exit code, and with all that is to be done at its end."""

import subprocess
import sys

import pytest

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


def test_the_exit_code_is_that_of_the_verb() -> None:
    for words, code in ((["--version"], 0), (["no-such-verb"], 2), (["--site", "/nowhere/site.toml", "status"], 2)):
        shown = subprocess.run([sys.executable, "-m", "migrator", *words], capture_output=True, check=False)
        assert shown.returncode == code, words


def test_what_was_registered_is_done_and_what_was_written_arrives() -> None:
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
def test_who_interrupts_while_libraries_are_loaded_is_told_that_nothing_was_begun(module: str) -> None:
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
    assert "nothing was started" in shown.stderr
    assert "Traceback" not in shown.stderr
