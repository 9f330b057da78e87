"""A call of `brick drain` or `brick stop`: what is asked, and what it came to."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.brick_list import BrickRoom
from migrator.domain.drain_preflight import RetainedSource
from migrator.domain.drain_standing import DrainStanding
from migrator.domain.errors import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequest:
    """Which bricks, and how. `commit` False ends with the audit. `confirm` is the word that allows wiping. Files that are
    open on the bricks are no reason against where `accept_open_files` says so, nor sources that were to be purged first
    where `accept_retained` does. `recover`: what is left on the bricks is brought
    back through the mount, once in the call.
    """

    bricks: tuple[str, ...]
    pid: int
    dry_run: bool = False
    commit: bool = True
    confirm: str | None = None
    accept_open_files: bool = False
    accept_retained: bool = False
    recover: bool = False
    poll_s: float = 30.0
    stall_s: float = 6 * 3600.0
    heartbeat_interval_s: float = 5.0


class DrainEnding(StrEnum):
    """What became of it. `waits`: it ends here unless more is asked for. `halted`: nothing was touched by the last step, a
    guard or a look speaks against going on. `stuck`: a step failed.
    """

    PLANNED = "planned"
    DONE = "done"
    WAITS = "waits"
    TAKEN_BACK = "taken-back"
    HALTED = "halted"
    STUCK = "stuck"


_EXIT_CODES = {DrainEnding.HALTED: ExitCode.REFUSED, DrainEnding.STUCK: ExitCode.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCheck:
    """What the guards before a drain look at; None is what is not known. `rooms` are those of the bricks that stay, by
    name; `used_bytes` and `used_inodes` are taken on the leaving bricks. `catalog` is the one that `files`, `size_bytes`,
    `largest_bytes` and `linked_symlinks` are from, and `retained`: what users who work on the target still have there. `problems` are the reasons against a start.
    """

    problems: tuple[str, ...]
    used_bytes: int | None
    used_inodes: int | None
    rooms: Mapping[str, BrickRoom] | None
    min_free_disk: str | None
    versions: Mapping[str, str | None] | None
    open_files: int | None
    catalog: str | None
    catalog_at_s: float | None
    files: int | None
    size_bytes: int | None
    largest_bytes: int | None
    linked_symlinks: tuple[bytes, ...] | None
    retained: tuple[RetainedSource, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSummary:
    """The result. `back`: it was to be taken back. `reasons` speak against going on; `left_behind` are the first paths that
    an audit found on the bricks, `left_file` the list of all. `confirm` is the word that allows wiping. `check` is set where the guards were looked at.
    """

    volume: str
    bricks: tuple[str, ...]
    back: bool
    dry_run: bool
    ending: DrainEnding
    words: str
    hint: str = ""
    reasons: tuple[str, ...] = ()
    left_behind: tuple[bytes, ...] = ()
    left_file: str | None = None
    confirm: str | None = None
    standing: DrainStanding | None = None
    check: DrainCheck | None = None

    @property
    def exit_code(self) -> ExitCode:
        """What the shell sees. A dry run that finds reasons is refused as the drain would be."""
        return _EXIT_CODES.get(self.ending, ExitCode.DONE)
