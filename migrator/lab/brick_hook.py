"""The hooks of a lab's bricks: copies of this script in the lab's `hooks` replace a site's own hooks.

`pre-wipe` makes a new file system for a brick that is out of the volume. `pre-attach` of an addition to the target
takes the brick's disk from its host and enlarges the target by its size.

Imports nothing of the program. The lab's directory is the parent of `hooks`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def _same_namespace(pid: int, namespace: str) -> bool:
    """Whether a process is in the named network namespace: its pid may have been reused."""
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), os.stat(f"/run/netns/{namespace}"))
    except OSError:
        return False


def _run(*command: str) -> str:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    return done.stdout.strip()


class Lab:
    """One lab, from its record."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._record: dict[str, Any] = json.loads((directory / "lab.json").read_text())

    def brick(self, name: str) -> dict[str, Any]:
        """Raises StopIteration for another name."""
        return next(one for one in self._record["bricks"] if name == one["name"])

    def make_file_system(self, brick: dict[str, Any]) -> None:
        """Make a new, empty file system on the brick's disk, and mount it on its host."""
        point, inside = self._place(brick)
        if self._is_mounted(point, inside):
            _run(*inside, "umount", point)
        _run("mkfs.xfs", "-q", "-f", "-i", "size=512", brick["image"])
        _run(*inside, "mount", "-t", "xfs", "-o", "loop", brick["image"], point)
        print(f"{brick['name']} has a new file system")

    def give(self, brick: dict[str, Any]) -> None:
        """Enlarge the target by the brick's disk. May be called again: the recorded size prevents a second growth."""
        point, inside = self._place(brick)
        if self._is_mounted(point, inside):
            if _run(*inside, "find", point, "-mindepth", "1", "-print", "-quit"):
                raise SystemExit(f"{brick['name']} is not empty: it is not given away")
            _run(*inside, "umount", point)
        image, target = self._directory / "target.img", self._directory / "target"
        now_bytes = image.stat().st_size
        size_bytes = self._promised(brick["name"], now_bytes + Path(brick["image"]).stat().st_size)
        if now_bytes < size_bytes:
            os.truncate(image, size_bytes)
        device = _run("findmnt", "-n", "-o", "SOURCE", "--mountpoint", str(target))
        _run("losetup", "--set-capacity", device)
        _run("xfs_growfs", str(target))
        print(f"the target has the disk of {brick['name']}, too")

    def _promised(self, name: str, size_bytes: int) -> int:
        """The size of the target with this brick; recorded before it grows."""
        path = self._directory / "given.json"
        given: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        if name not in given:
            given[name] = size_bytes
            new = path.with_suffix(".new")
            with new.open("w", encoding="ascii") as file:
                json.dump(given, file)
                file.flush()
                os.fsync(file.fileno())
            new.rename(path)
        return given[name]

    def _place(self, brick: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        """The mount point of the brick's file system, and the prefix of commands on its host."""
        host = self._record["hosts"][brick["host"] - 1]
        if host["holder_pid"] is None or not _same_namespace(host["holder_pid"], host["namespace"]):
            raise SystemExit("this lab is not up")
        point = os.path.dirname(brick["name"].partition(":")[2])
        return point, ("nsenter", "--target", str(host["holder_pid"]), "--mount", "--")

    @staticmethod
    def _is_mounted(point: str, inside: tuple[str, ...]) -> bool:
        return subprocess.run((*inside, "mountpoint", "-q", point), check=False).returncode == 0


def main() -> None:
    """Do the work of the stage for every named brick."""
    sys.stdin.read()  # read the unused document, or the writer would get a closed pipe
    lab = Lab(Path(__file__).resolve().parents[2])
    for name in os.environ["MIGRATOR_BRICK"].split(","):
        if os.environ["MIGRATOR_STAGE"] == "pre-wipe":
            lab.make_file_system(lab.brick(name))
        elif os.environ["MIGRATOR_SIDE"] == "target":
            lab.give(lab.brick(name))


if __name__ == "__main__":
    main()
