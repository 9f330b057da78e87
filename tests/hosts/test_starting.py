"""The starter of programs keeps its contract on this machine and on hosts with the oldest Python."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import migrator
from migrator.hosts.far_procfs import process_stat
from tests.support.pythons import python39
from tests.support.waiting import DEADLINE_S, wait_for

SET_UP = f"""
import functools, json, os, signal, sys
sys.path.append({str(Path(migrator.__file__).parents[1])!r})
from migrator.hosts import far_process
ENVIRONMENT = {{b"PATH": os.environb[b"PATH"]}}

def start(*argv, **options):
    options = {{"with_input": False, "dies_with_parent": False, **options}}
    return far_process.Program(argv, options.pop("environment", ENVIRONMENT), **options)

def output_of(fd):
    os.set_blocking(fd, True)
    return os.read(fd, 1 << 16).decode()
"""


@pytest.fixture(params=["own", "3.9"])
def python(request: pytest.FixtureRequest) -> str:
    return sys.executable if request.param == "own" else python39()


def starting(python: str, script: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [python, "-I", "-S", "-B", "-c", SET_UP + script, *arguments], stdout=subprocess.PIPE, encoding="utf-8"
    )


def printed(python: str, script: str, *arguments: str) -> dict[str, Any]:
    with starting(python, script, *arguments) as run:
        output, _ = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 0
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.mark.parametrize("dies_with_parent", [False, True])
def test_a_program_inherits_no_session_signal_descriptor_or_variable(python: str, *, dies_with_parent: bool) -> None:
    script = """
other = os.open("/dev/null", os.O_RDONLY)
os.set_inheritable(other, True)
script = b"umask; env; ls /proc/self/fd | wc -l; sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status; echo e >&2; cat"
program = start(b"sh", b"-c", script, with_input=True, umask=0o27, dies_with_parent=sys.argv[1] == "True")
os.write(program.input, b"input")
far_process.close(program.input)
session = os.getsid(program.pid)
program.wait()
with open("/proc/self/status") as status:
    own = next(int(line.split()[1], 16) for line in status if line.startswith("SigIgn:"))
print(json.dumps({"same": session == program.pid, "exit": program.exit_code, "own": own,
    "out": output_of(program.output).split(), "err": output_of(program.errors).split()}))
"""
    found = printed(python, script, str(dies_with_parent))
    # A shell's background job ignores some; Python ignores two more, for itself.
    by_python = sum(1 << number - 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))
    inherited = found.pop("own") & ~by_python
    # `ls` itself opens one more than standard input, output and error.
    *variables, descriptors, ignored, read = found.pop("out")
    assert found == {"same": True, "exit": 0, "err": ["e"]}
    assert variables[0] == "0027"
    assert {variable.partition("=")[0] for variable in variables[1:]} <= {"PATH", "PWD", "SHLVL", "_", "OLDPWD"}
    assert (descriptors, int(ignored, 16), read) == ("4", inherited, "input")


@pytest.mark.parametrize("dies_with_parent", [False, True])
def test_an_execve_that_fails_is_an_error_and_leaves_no_descriptor(
    python: str, tmp_path: Path, *, dies_with_parent: bool
) -> None:
    (tmp_path / "file").write_text("no program")
    (tmp_path / "program").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "program").chmod(0o700)
    script = """
directory, dies = os.fsencode(sys.argv[1]), sys.argv[2] == "True"
before, errors = os.listdir("/proc/self/fd"), []
for name in (b"missing", directory + b"/missing", directory + b"/file", directory + b"/file/inner"):
    try:
        start(name, with_input=True, dies_with_parent=dies)
    except OSError as error:
        errors.append(error.errno)
after = os.listdir("/proc/self/fd")
# Places of PATH that are missing, or are no directories, are passed over.
path = b":".join([directory + b"/missing", directory + b"/file", directory])
program = start(b"program", environment={b"PATH": path}, dies_with_parent=dies)
program.wait()
print(json.dumps({"errors": errors, "left": len(after) - len(before), "exit": program.exit_code}))
"""
    assert printed(python, script, str(tmp_path), str(dies_with_parent)) == {
        "errors": [errno.ENOENT, errno.ENOENT, errno.EACCES, errno.ENOTDIR],
        "left": 0,
        "exit": 3,
    }


@pytest.mark.parametrize(
    ("shell", "code"),
    [
        ("echo up; sleep 1000 & wait", -signal.SIGTERM),
        ("trap '' TERM; echo up; sleep 1000 & while :; do wait; done", -signal.SIGKILL),
        ("setsid sh -c 'trap \"\" TERM; echo up; sleep 1000' & wait", -signal.SIGTERM),
        ("trap 'sleep 1000 & exit 5' TERM; echo up; while :; do sleep 0.01; done", 5),
    ],
    ids=["TERM is enough", "TERM is ignored", "in another session", "starts another one at TERM"],
)
def test_an_end_takes_term_grace_and_kill_to_every_process_of_the_session_or_with_the_token(
    python: str, shell: str, code: int
) -> None:
    script = """
token = b"%032x" % int.from_bytes(os.urandom(16), "big")
environment = {**ENVIRONMENT, far_process.procfs.TOKEN_VARIABLE: token}
program = start(b"sh", b"-c", os.fsencode(sys.argv[1]), environment=environment)
output_of(program.output)
ending = far_process.Termination(functools.partial(program.processes, token=token), 0.5)
while ending.result is None:
    ending.step(far_process.procfs.ProcessTable())
left = program.processes(far_process.procfs.ProcessTable(), token)
print(json.dumps({"ended": ending.result, "left": len(left), "reaped": program.reap(), "exit": program.exit_code}))
"""
    assert printed(python, script, shell) == {"ended": True, "left": 0, "reaped": True, "exit": code}


@pytest.mark.parametrize("dies_with_parent", [False, True])
def test_a_program_outlives_a_killed_starter_unless_it_dies_with_it(python: str, *, dies_with_parent: bool) -> None:
    script = """
program = start(b"sleep", b"1000", dies_with_parent=sys.argv[1] == "True")
print(program.pid, program.start_ticks, flush=True)
program.wait()
"""
    with starting(python, script, str(dies_with_parent)) as run:
        assert run.stdout is not None
        pid, start_ticks = map(int, run.stdout.readline().split())
        run.kill()

    def lives() -> bool:
        look = process_stat(pid)
        return look is not None and look.start_ticks == start_ticks and not look.ended

    if dies_with_parent:
        wait_for(lambda: not lives())
    else:
        assert lives()
        os.kill(pid, signal.SIGKILL)
