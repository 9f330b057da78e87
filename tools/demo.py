"""`make demo`: a whole migration on a rehearsal lab, in two parts.

First users are moved, with the program killed once on the way. Then, on a real cluster, the source is emptied: users' trees
are purged, and brick after brick is drained, wiped, and given to the target, until the last one is retired with the volume.

A real GlusterFS cluster where this machine can run one (root, glusterd, FUSE, loop devices), plain directories
otherwise. Prints every command before it runs it; leaves the report in `build/demo/` and, without `--keep`, nothing else.
"""

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from migrator.lab.machine import why_no_cluster

REPOSITORY = Path(__file__).resolve().parent.parent
MIGRATOR = Path(sys.executable).with_name("migrator")
KILL_AFTER_BYTES = 8 * 1024 * 1024


def migrator(site: Path | None, *arguments: str, allowed: tuple[int, ...] = (0,)) -> int:
    """Run one command of the program, shown first, and stop the demo where it ends in an unexpected way."""
    command = [str(MIGRATOR), *(("--site", str(site)) if site else ()), *arguments]
    print(f"\n$ {shlex.join(['migrator', *command[1:]])}", flush=True)
    code = subprocess.run(command, check=False).returncode
    if code not in allowed:
        sys.exit(f"demo: the command ended with {code}; with `make demo DEMO=--keep` the lab stays up for a look")
    return code


def run_and_kill(site: Path, batch: int, target: Path) -> None:
    """Start a batch, and `kill -9` the program once some data has arrived."""
    command = [str(MIGRATOR), "--site", str(site), "run", "--user-batch", str(batch)]
    print(f"\n$ {shlex.join(['migrator', *command[1:]])}    # and kill -9 in the middle of it", flush=True)
    before = shutil.disk_usage(target).used
    process = subprocess.Popen(command)
    while process.poll() is None and shutil.disk_usage(target).used - before < KILL_AFTER_BYTES:
        time.sleep(0.05)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()
        print("demo: killed with SIGKILL; the same command goes on where it was")
    else:
        print(f"demo: the batch had ended (exit code {process.returncode}) before it could be killed")


def answer(site: Path, *arguments: str) -> dict[str, Any]:
    """What a command says with --json; a refusal too."""
    command = [str(MIGRATOR), "--site", str(site), *arguments, "--json"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def prepare(site: Path, lab: Path) -> None:
    """What the site decides: sources of users who have moved need not be kept here, and `shared` moves as one tree more."""
    text = site.read_text()
    text = text.replace('trees = ["home/*"]', 'trees = ["home/*", "shared"]')
    site.write_text(text.replace("[cutover]\n", '[cutover]\nretain = "0s"\n'))
    link, tree = lab / "home" / "shared", lab / "source" / "shared"
    link.symlink_to(tree)
    print(f"\n$ ln -s {tree} {link}    # what everybody works by, and what a cutover exchanges")
    print('demo: site.toml has [users] trees = ["home/*", "shared"] and [cutover] retain = "0s" now')


def free_sources(site: Path, *users: str) -> None:
    """Purge the sources of users who are moved, by the checksum of what a dry run showed."""
    migrator(site, "purge", *users, "--dry-run")
    migrator(site, "purge", *users, "--confirm", answer(site, "purge", *users, "--dry-run")["checksum"][:12])


def give_bricks(site: Path, bricks: Sequence[str]) -> None:
    """Clear bricks, one after the other, and give their disks to the target."""
    for brick in bricks:
        migrator(site, "scan", "--via", "bricks")  # the drain before moved files between bricks
        word = answer(site, "brick", "drain", "--dry-run", brick)["confirm"]
        migrator(site, "brick", "drain", brick, "--confirm", word)
        migrator(site, "brick", "add", brick, "--to", "target")


def show_what_is_open(lab: Path) -> None:
    """Let bricks show at once what clients open: a freeze looks for who still writes there (docs/cutover.md)."""
    command = [str(lab / "bin" / "gluster"), "volume", "set", "vol1", "performance.open-behind", "off"]
    print(f"\n$ {shlex.join(command)}", flush=True)
    subprocess.run(command, check=True)


def move_users(site: Path, lab: Path, kind: str) -> None:
    """The first part: from nothing to the first users who work on the target."""
    migrator(site, "init")
    migrator(site, "doctor", allowed=(0, 3))
    migrator(site, "scan")
    migrator(site, "plan", "--name", "demo")
    migrator(site, "run", "--user-batch", "1", "--dry-run")
    run_and_kill(site, 1, lab / "target")
    migrator(site, "run", "--user-batch", "1")
    migrator(site, "run", "--user-batch", "1")
    migrator(site, "verify", "--user-batch", "1")
    migrator(site, "run", "--all")
    migrator(site, "verify", "--all")
    # Where this is a container, not all processes of the machine can be read: plain directories cannot be frozen then.
    if kind == "gluster":
        show_what_is_open(lab)
        migrator(site, "cutover", "--user-batch", "1", "--dry-run")
        migrator(site, "cutover", "--user-batch", "1")
        migrator(site, "status")


def empty_the_source(site: Path, lab: Path) -> None:
    """The second part: from the first users who are moved to a volume that is retired."""
    listed = answer(site, "brick", "list")
    bricks = [brick["name"] for brick in listed["bricks"]]
    first = len(bricks) // 3
    free_sources(site, "--user-batch", "1")
    give_bricks(site, bricks[:first])
    migrator(site, "cutover", "--all")
    free_sources(site, "--all")
    notice = "home/NOTICE"
    print(
        f"\n$ mv {lab}/source/{notice} {lab}/target/{notice}    # it lies in no user tree: that is the admin's to move"
    )
    shutil.move(lab / "source" / notice, lab / "target" / notice)
    give_bricks(site, bricks[first:-1])
    migrator(site, "brick", "status")
    # It says what the newest catalog says: that one is older than the last drain.
    migrator(site, "brick", "retire", "--dry-run", allowed=(0, 4))
    migrator(site, "brick", "retire", "--confirm", listed["volume"])
    print(f"\n$ df -h {lab}/target    # what was the source is the target's room", flush=True)
    subprocess.run(["df", "-h", str(lab / "target")], check=True)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/migrator-demo"), help="where the lab lives")
    parser.add_argument("--kind", choices=("gluster", "posix"), help="which lab (default: what this machine can run)")
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    options = parser.parse_args()
    obstacle = why_no_cluster()
    kind = options.kind or ("posix" if obstacle else "gluster")
    if obstacle and kind == "posix":
        print(f"demo: no GlusterFS cluster can run here ({obstacle}): this is the demo on plain directories")
    site = options.dir / "site.toml"
    report = REPOSITORY / "build" / "demo"
    started = time.monotonic()
    small = ("--brick-size", "1GiB", "--target-size", "1GiB") if kind == "gluster" else ()
    migrator(None, "lab", "up", "--dir", str(options.dir), "--kind", kind, *small)
    try:
        if kind == "gluster":
            prepare(site, options.dir)
        move_users(site, options.dir, kind)
        if kind == "gluster":
            empty_the_source(site, options.dir)
            migrator(site, "status")
        report.mkdir(parents=True, exist_ok=True)
        migrator(site, "report", "--output", str(report))
    finally:
        if options.keep:
            print(f"demo: the lab is up; site.toml: {site}; remove it with: migrator lab down --dir {options.dir}")
        else:
            migrator(None, "lab", "down", "--dir", str(options.dir))
    print(f"\ndemo: done in {time.monotonic() - started:.0f} s; the report for a browser: {report / 'report.html'}")


if __name__ == "__main__":
    main()
