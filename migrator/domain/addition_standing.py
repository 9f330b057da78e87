"""How far an addition of bricks is, as its record and its samples tell it. Times in seconds since the epoch."""

from dataclasses import dataclass

from migrator.domain.addition import AdditionSide, AdditionState
from migrator.domain.directory_owners import ListedDirectory
from migrator.domain.drain_standing import DrainStanding


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionStanding:
    """One attempt to add bricks. `size_bytes` is what the new bricks have together. `moved_files` and `moved_bytes` are what
    Gluster has counted, over the fix-layout and all rebalances; `lookups`, `failures` and `skipped` those of the last
    task. `files` are how many a rebalance will look at, a file of a replica set once for each copy. The rates are of the
    last half hour that was looked at, `left_s` how long it still takes by them. What is not known is None: of a fix-layout
    Gluster counts nothing. `looked_at_s` is when Gluster was asked last. `directories` wait for people.
    """

    id: int
    side: AdditionSide
    volume: str
    bricks: tuple[str, ...]
    instead_of: str | None
    attempt: int
    state: AdditionState
    since_s: float
    size_bytes: int | None
    files: int | None
    lookups: int
    moved_files: int
    moved_bytes: int
    failures: int
    skipped: int
    files_per_s: float | None
    bytes_per_s: float | None
    left_s: float | None
    looked_at_s: float | None
    failure: str
    directories: tuple[ListedDirectory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickStandings:
    """Everything that changes which bricks there are: the newest attempt at each, oldest first."""

    drains: tuple[DrainStanding, ...]
    additions: tuple[AdditionStanding, ...]
