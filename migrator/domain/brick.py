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
class VolumeState:
    """What a look at the volume saw. `tasks` are unfinished or uncommitted ones (`Rebalance`, `Remove brick`)."""

    volume: str
    volume_id: str
    type: str
    started: bool
    bricks: tuple[Brick, ...]
    options: tuple[tuple[str, str], ...]
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """Whether what the source shows can be trusted to be all of it.

    `problems` is empty when healthy; each is a sentence. `fingerprint` changes when the brick list or an option
    changes, so that a look before and one after a pass can be compared. `state` is None where there is no Gluster.
    """

    problems: tuple[str, ...]
    fingerprint: str
    state: VolumeState | None = None
