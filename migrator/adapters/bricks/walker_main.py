"""The Python walker as a program: its options, its worker processes, its first and its last frame."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from typing import BinaryIO, NoReturn

from migrator.adapters.bricks.walker import Shares, Task, Walker, ways_to
from migrator.adapters.bricks.walker_frames import BLOCK_ROWS, END, HELLO, Output, die, write_whole
from migrator.adapters.bricks.walker_root import hello, mounts_beneath

SHARES_OF_A_WORKER = 16
"""So many directories a worker are found before the work is shared out, so that unequal ones even out."""


def read_trees(stream: BinaryIO) -> dict[bytes, int]:
    """The user trees with their numbers, from NUL-terminated names."""
    data = stream.read()
    if data and not data.endswith(b"\0"):
        usage("the user trees on stdin do not end with NUL: they are not whole")
    return {path: number for number, path in enumerate(data.split(b"\0")[:-1])}


def usage(what: str) -> NoReturn:
    """Say what is wrong with the call, and end."""
    sys.stderr.write(f"migrator walker: {what}\n")
    sys.exit(2)


def share_out(shares: Shares, tasks: Sequence[Task], workers: int) -> list[bytes]:
    """Fork workers that take one task after the other; returns the counts of each."""
    next_read, next_write = os.pipe()
    children = []
    for _ in range(workers):
        counts_read, counts_write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(next_write)
            try:
                walker = Walker(shares)
                while token := os.read(next_read, 4):
                    walker.walk(tasks[int.from_bytes(token, "little")])
                walker.finish()
                write_whole(counts_write, walker.totals.packed())
            except BaseException as error:  # noqa: BLE001 -- whatever it is, the parent's work must not go on here
                die(f"a worker failed: {error!r}")
            os._exit(0)
        os.close(counts_write)
        children.append((child, counts_read))
    os.close(next_read)
    try:
        for number in range(len(tasks)):
            os.write(next_write, number.to_bytes(4, "little"))
    except BrokenPipeError:
        pass  # all workers have ended: their exit codes tell
    os.close(next_write)
    counts = []
    for child, counts_read in children:
        with open(counts_read, "rb") as stream:
            counts.append(stream.read())
        if os.waitpid(child, 0)[1] != 0:
            die("a worker ended early")
    return counts


def main() -> int:
    """Walk a brick as the words of the call say; returns the exit code: 2 for a wrong call, 3 where the root is no brick's."""
    parser = argparse.ArgumentParser(prog="walker", allow_abbrev=False)
    parser.add_argument("command", choices=["walk"])
    parser.add_argument("--brick", required=True)
    parser.add_argument("--times", required=True, choices=["mdata", "file"])
    parser.add_argument("--only-trees", action="store_true")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--block-rows", type=int, default=BLOCK_ROWS)
    options = parser.parse_args()
    if options.workers < 1 or options.block_rows < 1:
        usage("--workers and --block-rows are numbers from 1 on")
    trees = read_trees(sys.stdin.buffer)
    brick = os.fsencode(options.brick)
    try:
        root = os.open(brick, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        mounts = mounts_beneath(brick)
    except OSError as error:
        die(f"cannot open the brick {options.brick}: {error.strerror}")
    with tempfile.TemporaryFile() as lock:
        output = Output(lock.fileno())
        payload, is_brick = hello(root)
        output.write(HELLO, payload)
        if not is_brick:
            sys.stderr.write(f"migrator walker: {options.brick} is not a brick's root: is its file system mounted?\n")
            return 3
        shares = Shares(
            root=root,
            output=output,
            trees=trees,
            ways=ways_to(trees) if options.only_trees else None,
            mounts=mounts,
            times_from_mdata=options.times == "mdata",
            block_rows=options.block_rows,
            own=options.own,
        )
        walker = Walker(shares)
        tasks = deque([Task(b"", -1)])
        wanted = options.workers * SHARES_OF_A_WORKER if options.workers > 1 else 1
        while tasks and len(tasks) < wanted:
            tasks.extend(walker.read(tasks.popleft()))
        if options.workers > 1 and tasks:
            for counts in share_out(shares, tasks, options.workers):
                walker.totals.add(counts)
        else:
            for task in tasks:
                walker.walk(task)
        walker.finish()
        output.write(END, walker.totals.packed())
    return 0
