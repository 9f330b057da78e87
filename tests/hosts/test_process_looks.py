"""Whether a process is still the one that was at work."""

import os
import subprocess
import sys
import time

from migrator.hosts.proc import was_at_work


def test_this_process_is_at_work_now_and_was_not_long_before_it_began() -> None:
    assert was_at_work(os.getpid(), time.time())
    assert not was_at_work(os.getpid(), 1_000_000_000.0)


def test_a_killed_process_is_gone_before_and_after_it_is_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        at_s = time.time()
        assert was_at_work(child.pid, at_s)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not was_at_work(child.pid, at_s)
    finally:
        child.kill()
        child.communicate()
    assert not was_at_work(child.pid, at_s)
