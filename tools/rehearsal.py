"""`make rehearsal`: bricks are drained, wiped and added again on real clusters, while users write, rename and link.

One lab after the other: distribute, 2 x 3 copies, 2 x (2 + 1) with arbiters. On each, the last subvolume is drained and
committed, the hooks make new file systems, and its bricks join the volume again, with a rebalance. Every file is read before
and afterwards, and what a writer knows to have written meanwhile. Prints every command of the program, and a table at the end;
exit code 1 where a byte is missing. Needs root and GlusterFS; takes some minutes for each lab.
"""

import argparse
import errno
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.core.paths import percent_unescape
from migrator.lab.machine import why_no_cluster
from tools.known_writer import Writer
from tools.tree_contents import by_name, differences, everything, read_journal, shut

Document = dict[str, Any]
"""What a verb prints with `--json`; its keys are tested where the program is tested."""

MIGRATOR = Path(sys.executable).with_name("migrator")
LAYOUTS = ("distribute", "distributed-replicate", "distributed-arbiter")
SETTINGS = '\n[drain]\nthrottle = "normal"\npoll = "1s"\n'
_TIMES, _SHOWN = 4, 8
_PAUSE_S = 0.2
_SETTLES_S = 10.0
_CHURN_PER_S = 2.0
"""What users do must be less than Gluster moves on this machine."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one layout came to."""

    layout: str
    files: int
    moved_files: int
    moved_bytes: int
    drain_s: float
    add_s: float
    again: int
    churned: int
    written: int
    refused: int
    lost: int
    different: int
    listed: int
    complaints: tuple[str, ...]


@dataclass(frozen=True)
class Rehearsal:
    """The program at work on one lab."""

    directory: Path

    def command(self, *arguments: str) -> list[str]:
        return [str(MIGRATOR), "--site", str(self.directory / "site.toml"), *arguments]

    def kill_in(self, states: Sequence[str], *arguments: str) -> bool:
        """One command, killed hard as soon as the ledger has one of these states. False: it came to its end before."""
        print(f"$ {shlex.join(['migrator', *arguments])}", flush=True)
        null = subprocess.DEVNULL
        process = subprocess.Popen([*self.command(*arguments), "--json"], stdin=null, stdout=null)
        while process.poll() is None:
            status = [*self.command("brick", "status"), "--json"]
            told = subprocess.run(status, check=False, stdout=subprocess.PIPE, stdin=null)
            if told.returncode == 0 and any(f'"state": "{state}"'.encode() in told.stdout for state in states):
                process.kill()
                process.wait()
                print("rehearsal: killed", flush=True)
                return True
            time.sleep(_PAUSE_S)
        return False

    @contextmanager
    def fresh_mount(self) -> Iterator[Path]:
        """The volume, mounted by a client that knows nothing yet."""
        state, point = json.loads((self.directory / "lab.json").read_text()), self.directory / "fresh"
        point.mkdir(exist_ok=True)
        client = state["hosts"][0]["namespace"].rpartition("-")[0] + "-c"
        mount = ["mount", "-t", "glusterfs", "-o", f"acl,log-file={self.directory}/fresh.log"]
        volume = f"{state['hosts'][0]['address']}:/{state['spec']['volume']}"
        subprocess.run(["nsenter", f"--net=/run/netns/{client}", "--", *mount, volume, str(point)], check=True)
        try:
            yield point
        finally:
            subprocess.run(["umount", str(point)], check=True)

    def json(self, *arguments: str, allowed: Sequence[int] = (0,)) -> Document:
        """One command, shown first; ends the rehearsal where its exit code is another one."""
        print(f"$ {shlex.join(['migrator', *arguments])}", flush=True)
        done = subprocess.run(
            [*self.command(*arguments), "--json"], check=False, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        if done.returncode not in allowed:
            sys.exit(f"rehearsal: the command ended with {done.returncode}: {os.fsdecode(done.stdout)}")
        document: Document = json.loads(done.stdout)
        return document

    @contextmanager
    def churn(self, trees: Sequence[str], journal: Path, *, per_s: float) -> Iterator[dict[str, Any]]:
        """Users at work for the length of the block; afterwards the dictionary says what they did."""
        words = [str(MIGRATOR), "lab", "churn", "--dir", str(self.directory), "--journal", str(journal), "--json"]
        words += [word for tree in trees for word in ("--tree", tree)]
        process = subprocess.Popen([*words, "--rate", str(per_s)], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        did: dict[str, Any] = {}
        try:
            yield did
        finally:
            process.terminate()
            out, _ = process.communicate()
            if process.returncode != 0:
                sys.exit(f"rehearsal: the churn ended with {process.returncode}")
            did.update(json.loads(out))

    def drain(self, bricks: Sequence[str], word: str) -> tuple[Document, int]:
        """Until they are wiped; the last document, and how often the command was given again: what users rename or delete
        in the very moment in which Gluster moves it can count as a failure, and a drain with one is not committed.
        """
        words = ("brick", "drain", *bricks, "--accept-open-files", "--confirm", word)
        self.kill_in(("started", "draining"), *words)
        for again in range(_TIMES):
            drained = self.json(*words, allowed=(0, 4))
            if drained["exit_code"] == 0 or drained["standing"]["state"] != "failed":
                return drained, again
            print(f"rehearsal: {drained['words']}", flush=True)
            print("".join(f"    {line}\n" for line in self.failed_moves()[-_SHOWN:]), end="", flush=True)
        return drained, _TIMES

    def add(self, bricks: Sequence[str]) -> Document:
        """Until the volume is balanced; the last document. What users rename or delete while it is moved counts as a failure here
        too: then the command is given again. Where the program says that Gluster's own process has to be ended first, it is.
        """
        words = ("brick", "add", *bricks, "--to", "source")
        stop = ("volume", "rebalance", "vol1", "stop")
        self.kill_in(("layout", "laid-out", "balancing"), *words)
        for _ in range(_TIMES):
            added = self.json(*words, allowed=(0, 4))
            stuck = " ".join(stop) in json.dumps(added)
            if added["exit_code"] == 0 or (added["state"] != "failed" and not stuck):
                break
            print(f"rehearsal: {added['words']}", flush=True)
            if stuck:
                subprocess.run([str(self.directory / "bin" / "gluster"), *stop], check=True, stdout=subprocess.DEVNULL)
        return added

    def failed_moves(self) -> list[str]:
        """What Gluster says of files that it could not move."""
        logs = (self.directory / "hosts").glob("*/log/*-rebalance.log")
        lines = [line for log in logs for line in log.read_text(errors="replace").split("\n")]
        return [line for line in lines if " E [" in line]

    def prepare(self) -> tuple[str, ...]:
        """A site with a whole catalog, and the bricks of the last subvolume. The lab has the hook that wipes them."""
        with (self.directory / "site.toml").open("a") as site:
            site.write(SETTINGS)
        self.json("init")
        self.json("scan", "--via", "bricks")
        bricks = self.json("brick", "list")["bricks"]
        last = max(brick["subvolume"] for brick in bricks)
        if last < len(bricks):
            # By itself GlusterFS looks every ten minutes for what waits to be healed between copies.
            heal = ("volume", "set", "vol1", "cluster.heal-timeout", "5")
            subprocess.run([str(self.directory / "bin" / "gluster"), *heal], check=True, stdout=subprocess.DEVNULL)
        return tuple(brick["name"] for brick in bricks if brick["subvolume"] == last)

    def unlink_symlinks(self, bricks: Sequence[str]) -> str:
        """What the guards want; the word that allows to wipe."""
        drain = ("brick", "drain", "--accept-open-files", "--dry-run", *bricks)
        first = self.json(*drain, allowed=(0, 4))
        for name in first["check"]["linked_symlinks"]:
            path = self.directory / "source" / name
            new = path.with_name(path.name + ".new")
            subprocess.run(["cp", "-P", "--preserve=timestamps,ownership", "--", path, new], check=True)
            new.rename(path)
        word: str = self.json(*drain)["confirm"]
        return word


def rehearse(layout: str, directory: Path, *, churn_per_s: float = _CHURN_PER_S) -> Line:
    """One lab that is up already. `churn_per_s`: how often users do something there."""
    at, source = Rehearsal(directory), directory / "source"
    bricks = at.prepare()
    trees = json.loads((directory / "lab.json").read_text())["trees"]
    journal, working = directory / "churn.jsonl", b"home/writer"
    word = at.unlink_symlinks(bricks)
    before = everything(source)
    users = at.churn(trees[: len(trees) // 2], journal, per_s=churn_per_s)
    with users as churned, Writer(source / "home" / "writer") as writer:
        began_s = time.monotonic()
        drained, again = at.drain(bricks, word)
        drained_s = time.monotonic()
        between = everything(source)
        if differences(before, between, read_journal(os.fsencode(journal)), working):
            # Right after a commit, a mount showed a directory as root's with mode 0000 (GlusterFS 10.3, once in six rehearsals).
            time.sleep(_SETTLES_S)
            between = everything(source)
        added = at.add(bricks)
        added_s = time.monotonic()
    with at.fresh_mount() as fresh:
        named = by_name(fresh, before.keys() | writer.paths(working))
        after = everything(fresh)
    touched = read_journal(os.fsencode(journal))
    seen = {"drained": between, "added": after, "by name": named, "users' mount": everything(source)}
    wrong = {when: differences(before, one, touched, working) for when, one in seen.items()}
    # What the program tells people to look at, with the command that puts it right.
    listed = {percent_unescape(one["path"]): one["command"] for one in added["directories"]}
    wrong = {when: [path for path in paths if path not in listed] for when, paths in wrong.items()}
    different = sorted({path for paths in wrong.values() for path in paths})
    lost = writer.lost()
    closed = sorted(set(shut(after)) - set(shut(before)) - listed.keys())
    complaints = list(_complaints(at, bricks, writer, drained, added))
    complaints += [
        f"different ({when}): {os.fsdecode(path)!r}: {before.get(path)} -> {seen[when].get(path)}"
        for when, paths in wrong.items()
        for path in paths
    ]
    complaints += [f"not found by name: {os.fsdecode(path)!r}" for path in sorted(writer.paths(working) - named.keys())]
    complaints += [f"nobody may enter: {os.fsdecode(path)!r}" for path in closed]
    complaints += [f"not as written: {name}" for name in lost]
    return Line(
        layout=layout,
        files=len(before),
        moved_files=drained["standing"]["moved_files"],
        moved_bytes=drained["standing"]["moved_bytes"],
        drain_s=drained_s - began_s,
        add_s=added_s - drained_s,
        again=again,
        churned=sum(churned["operations"].values()),
        written=len(writer.contents),
        refused=len(writer.errors),
        lost=len(lost),
        different=len({*different, *closed}),
        listed=len(listed),
        complaints=tuple(complaints),
    )


def _complaints(
    at: Rehearsal, bricks: Sequence[str], writer: Writer, drained: Document, added: Document
) -> Iterator[str]:
    """What is not as it has to be, apart from files."""
    standing = drained["standing"]
    if (drained["ending"], standing["state"]) != ("done", "wiped"):
        yield f"the drain ended otherwise: {drained['words']}"
    if (added["ending"], added["state"]) != ("done", "settled"):
        yield f"the addition ended otherwise: {added['words']}"
    states = {brick["name"]: brick["state"] for brick in at.json("brick", "list")["bricks"]}
    for name in bricks:
        if states.get(name) != "up":
            yield f"{name} is {states.get(name, 'not in the volume')}"
    # In the moment of a commit clients still ask the bricks that have gone (GlusterFS 10.3).
    for error in writer.errors:
        if error.errno != errno.ENOTCONN:
            yield f"the writer was refused: {error}"


def print_table(lines: Sequence[Line]) -> None:
    """For people."""
    heads = (
        "layout",
        "paths",
        "moved",
        "MiB",
        "drain s",
        "add s",
        "again",
        "churned",
        "written",
        "refused",
        "different",
        "listed",
        "lost",
    )
    rows: list[tuple[str, ...]] = [heads]
    for line in lines:
        figures = (line.again, line.churned, line.written, line.refused, line.different, line.listed, line.lost)
        moved = (line.files, line.moved_files, round(line.moved_bytes / 2**20), round(line.drain_s), round(line.add_s))
        rows.append((line.layout, *(f"{figure:,}" for figure in (*moved, *figures))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    print()
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  ".join(cells))
    for line in lines:
        for complaint in line.complaints:
            print(f"{line.layout}: {complaint}")


def main() -> None:
    """Run the rehearsal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/migrator-rehearsal"), help="where the lab lives")
    parser.add_argument("--layout", choices=LAYOUTS, action="append", help="only this one (repeatable)")
    parser.add_argument("--files", type=int, default=600, help="ordinary files of all users (default: 600)")
    parser.add_argument("--data", default="60MiB", help="their bytes (default: 60MiB)")
    parser.add_argument("--users", type=int, default=8, help="how many users the lab has (default: 8)")
    parser.add_argument("--keep", action="store_true", help="leave the lab of one layout up")
    options = parser.parse_args()
    if options.keep and len(options.layout or LAYOUTS) > 1:
        parser.error("--keep goes with one --layout")
    if obstacle := why_no_cluster():
        sys.exit(f"rehearsal: no GlusterFS cluster can run here: {obstacle}")
    lines: list[Line] = []
    for layout in options.layout or LAYOUTS:
        print(f"\nrehearsal: {layout}", flush=True)
        lab = ["--dir", str(options.dir), "--type", layout, "--files", str(options.files), "--data", options.data]
        lab += ["--users", str(options.users)]
        subprocess.run([str(MIGRATOR), "lab", "up", *lab], check=True, stdout=subprocess.DEVNULL)
        try:
            lines.append(rehearse(layout, options.dir))
        finally:
            if not options.keep:
                subprocess.run([str(MIGRATOR), "lab", "down", "--dir", str(options.dir)], check=True)
    print_table(lines)
    sys.exit(1 if any(line.complaints for line in lines) else 0)


if __name__ == "__main__":
    main()
