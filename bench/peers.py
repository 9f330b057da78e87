"""What people use today, as they call it. All of it ends with the same sync of the target, inside its time."""

import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.lab import BenchLab
from bench.timing import call, shell

Copy = Callable[[], dict[str, float]]


def left_out(*programs: str) -> dict[str, str]:
    """The peers among these that this machine does not have."""
    return {program: "not installed" for program in programs if shutil.which(program) is None}


def sync_target(lab: BenchLab) -> None:
    call(["sync", "--file-system", lab.target])


def through_the_mount(lab: BenchLab, group: str) -> Mapping[str, tuple[str, Copy]]:
    """Copies of a directory of the volume through its mount; each with the program it needs."""
    source, target = lab.source / group, lab.target / group
    inside = shlex.quote(str(source)), shlex.quote(str(target))

    def by(*argv: str | Path) -> Copy:
        def copy() -> dict[str, float]:
            call(argv)
            sync_target(lab)
            return {}

        return copy

    def by_tar() -> dict[str, float]:
        shell(f"tar -C {inside[0]} -cf - . | tar -C {inside[1]} -xpf -")
        sync_target(lab)
        return {}

    return {
        "rsync -a": ("rsync", by("rsync", "-a", f"{source}/", f"{target}/")),
        "rsync -aHAX": ("rsync", by("rsync", "-aHAX", f"{source}/", f"{target}/")),
        "fpsync -n 4": ("fpsync", fpsync(lab, group)),
        "parsyncfp2 --NP=4": ("parsyncfp2", parsyncfp2(lab, group)),
        "cp -a": ("cp", by("cp", "-a", f"{source}/.", f"{target}/")),
        "tar to tar": ("tar", by_tar),
    }


def rsync(lab: BenchLab, group: str, *options: str) -> Copy:
    def copy() -> dict[str, float]:
        call(["rsync", *options, f"{lab.source / group}/", f"{lab.target / group}/"])
        sync_target(lab)
        return {}

    return copy


def fpsync(lab: BenchLab, group: str) -> Copy:
    def copy() -> dict[str, float]:
        own = lab.work / "fpsync"
        shutil.rmtree(own, ignore_errors=True)
        call(["fpsync", "-n", "4", "-t", own, f"{lab.source / group}/", f"{lab.target / group}/"])
        sync_target(lab)
        return {}

    return copy


def parsyncfp2(lab: BenchLab, group: str) -> Copy:
    def copy() -> dict[str, float]:
        start = (lab.source / group).parent
        argv = ["parsyncfp2", "--NP=4", "--nowait", "--verbose=1", f"--startdir={start}", Path(group).name]
        call([*argv, str((lab.target / group).parent)])
        sync_target(lab)
        return {}

    return copy


def tars_from_the_bricks(lab: BenchLab, group: str) -> Copy:
    """By hand, for reference: a tar a brick, all at once, without the link-to files."""

    def copy() -> dict[str, float]:
        target = shlex.quote(str(lab.target / group))
        pipes = [
            f"(cd {shlex.quote(str(brick / group))}; find . ! '(' -type f -perm 1000 -size 0 ')' -print0"
            f" | tar --null --no-recursion -T - -cf - | tar -C {target} -xpf -) & pids+=($!)"
            for brick in lab.bricks
        ]
        shell("pids=(); " + "; ".join(pipes) + '; for pid in "${pids[@]}"; do wait "$pid"; done')
        sync_target(lab)
        return {}

    return copy


def cps_from_the_bricks(lab: BenchLab, group: str) -> Copy:
    """Parallel plain `cp` from the bricks, one a file, all at once; directories are there already."""

    def copy() -> dict[str, float]:
        copies = [
            f"cp {shlex.quote(str(file))} {shlex.quote(str(lab.target / group / path))} & pids+=($!)"
            for path, file in lab.data_files(group)
        ]
        shell("pids=(); " + "; ".join(copies) + '; for pid in "${pids[@]}"; do wait "$pid"; done')
        sync_target(lab)
        return {}

    return copy
