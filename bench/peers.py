"""What people use today, as they call it. All of it ends with the same sync of the target, inside its time."""

import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.lab import BenchLab
from bench.timing import call, shell

Copy = Callable[[], dict[str, float]]

DSYNC = "dsync -np 4"
"""Of mpifileutils; measured where it is installed."""


def left_out(*programs: str) -> dict[str, str]:
    """The peers among these that this machine does not have."""
    return {program: "not installed" for program in programs if shutil.which(program) is None}


def sync_target(lab: BenchLab) -> None:
    call(["sync", "--file-system", lab.target])


def _synced(lab: BenchLab, work: Callable[[], object]) -> Copy:
    def copy() -> dict[str, float]:
        work()
        sync_target(lab)
        return {}

    return copy


def through_the_mount(lab: BenchLab, group: str) -> Mapping[str, tuple[str, Copy]]:
    """Copies of a directory of the volume through its mount; each with the program it needs."""
    source, target = lab.source / group, lab.target / group
    inside = shlex.quote(str(source)), shlex.quote(str(target))
    tars = f"tar -C {inside[0]} -cf - . | tar -C {inside[1]} -xpf -"
    return {
        "rsync -a": ("rsync", rsync(lab, group, "-a")),
        "rsync -aHAX": ("rsync", rsync(lab, group, "-aHAX")),
        "fpsync -n 4": ("fpsync", fpsync(lab, group)),
        "parsyncfp2 --NP=4": ("parsyncfp2", parsyncfp2(lab, group)),
        "msrsync3 -p 4": (
            "msrsync3",
            _synced(lab, lambda: call(["msrsync3", "-p", "4", f"{source}/", f"{target}/"])),
        ),
        "tar to tar": ("tar", _synced(lab, lambda: shell(tars))),
        DSYNC: ("dsync", dsync(lab, group)),
    }


def rsync(lab: BenchLab, group: str, *options: str) -> Copy:
    return _synced(lab, lambda: call(["rsync", *options, f"{lab.source / group}/", f"{lab.target / group}/"]))


def dsync(lab: BenchLab, group: str) -> Copy:
    started = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4", "dsync", "--quiet"]
    return _synced(lab, lambda: call([*started, lab.source / group, lab.target / group]))


def fpsync(lab: BenchLab, group: str) -> Copy:
    def work() -> None:
        own = lab.work / "fpsync"
        shutil.rmtree(own, ignore_errors=True)
        call(["fpsync", "-n", "4", "-t", own, f"{lab.source / group}/", f"{lab.target / group}/"])

    return _synced(lab, work)


def parsyncfp2(lab: BenchLab, group: str) -> Copy:
    start = (lab.source / group).parent
    argv = ["parsyncfp2", "--NP=4", "--nowait", "--verbose=1", f"--startdir={start}", Path(group).name]
    return _synced(lab, lambda: call([*argv, str((lab.target / group).parent)]))


def tars_from_the_bricks(lab: BenchLab, group: str) -> Copy:
    """By hand, for reference: a tar a brick, all at once, without the link-to files."""
    target = shlex.quote(str(lab.target / group))
    return _all_at_once(
        lab,
        lambda: [
            f"(cd {shlex.quote(str(brick / group))}; find . ! '(' -type f -perm 1000 -size 0 ')' -print0"
            f" | tar --null --no-recursion -T - -cf - | tar -C {target} -xpf -)"
            for brick in lab.bricks
        ],
    )


def cps_from_the_bricks(lab: BenchLab, group: str) -> Copy:
    """Parallel plain `cp` from the bricks, one a file, all at once; directories are there already."""
    return _all_at_once(
        lab,
        lambda: [
            f"cp {shlex.quote(str(file))} {shlex.quote(str(lab.target / group / path))}"
            for path, file in lab.data_files(group)
        ],
    )


def _all_at_once(lab: BenchLab, commands: Callable[[], list[str]]) -> Copy:
    def work() -> None:
        started = "; ".join(f"{command} & pids+=($!)" for command in commands())
        shell(f'pids=(); {started}; for pid in "${{pids[@]}}"; do wait "$pid"; done')

    return _synced(lab, work)
