"""A Gluster volume as glusterd describes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Brick:
    """One brick: `name` is `host:/path` as glusterd writes it; `online` is None when status did not list it."""

    name: str
    host: str
    path: bytes
    online: bool | None
    arbiter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickHeal:
    """What a brick waits to have healed: `entries` is None where that could not be told; `status` is Gluster's word."""

    brick: str
    status: str
    entries: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeState:
    """What a look at the volume saw. `tasks` are unfinished or uncommitted ones (`Rebalance`, `Remove brick`);
    `task_ids` are those of every task that is listed, ended ones too: another id means that one was begun meanwhile.

    `heals` and `peers_down` are None where they were not asked for: only who reads the bricks needs them. `heals` is
    empty on volumes that keep every file once.
    """

    volume: str
    volume_id: str
    type: str
    started: bool
    bricks: tuple[Brick, ...]
    options: tuple[tuple[str, str], ...]
    tasks: tuple[str, ...]
    replica_count: int = 1
    disperse_count: int = 0
    stripe_count: int = 1
    task_ids: tuple[str, ...] = ()
    heals: tuple[BrickHeal, ...] | None = None
    peers_down: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """Whether what the source shows can be trusted to be all of it.

    `problems` is empty when healthy; each is a sentence. `fingerprint` changes when the brick list or an option
    changes, so that a look before and one after a pass can be compared. `state` is None where there is no Gluster.
    """

    problems: tuple[str, ...]
    fingerprint: str
    state: VolumeState | None = None
