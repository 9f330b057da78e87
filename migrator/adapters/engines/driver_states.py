"""The directories of drivers below the state directory: `PASS/CHUNK/` holds a driver's own run state and logs."""

import shutil
from contextlib import suppress
from pathlib import Path

from migrator.adapters.durable import replacing, sync

_NOTE = "boot"
_KEPT = "log"


class DriverDirectories:
    """One directory for each tree of a pass, closed to others."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def directory(self, pass_id: int, chunk: int) -> Path:
        """The directory, made where it was missing. Raises OSError."""
        path = self._above(pass_id, chunk) / "run"
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    def read_boot(self, pass_id: int, chunk: int) -> str | None:
        """The boot in which a driver wrote what need not have reached the target's disks."""
        try:
            return (self._above(pass_id, chunk) / _NOTE).read_text("ascii").strip()
        except FileNotFoundError:
            return None

    def note_boot(self, pass_id: int, chunk: int, boot_id: str) -> None:
        """Note it durably."""
        above = self._above(pass_id, chunk)
        above.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(above / _NOTE) as stream:
            stream.write(boot_id.encode("ascii") + b"\n")
        sync(self._root)

    def clear(self, pass_id: int, chunk: int, *, keep_logs: bool) -> None:
        """Take the note back and remove the run; its logs stay where they are wanted."""
        above = self._above(pass_id, chunk)
        if above.exists():
            (above / _NOTE).unlink(missing_ok=True)
            if keep_logs:
                self._remove_all_but_logs(above / "run")
            else:
                shutil.rmtree(above)
        with suppress(OSError):
            above.parent.rmdir()

    def _remove_all_but_logs(self, run: Path) -> None:
        for path in run.iterdir() if run.exists() else ():
            if path.is_dir() and path.name not in (_KEPT, ".pfp2"):
                shutil.rmtree(path)

    def _above(self, pass_id: int, chunk: int) -> Path:
        return self._root / f"pass-{pass_id:06d}" / f"chunk-{chunk:06d}"
