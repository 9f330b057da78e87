"""A volume of three copies, one brick of which gets a new disk in its place, simulated. It shares no code with the decision."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from migrator.core.errors import ToolFailed
from migrator.core.units import GIB
from migrator.gluster.model import BrickHeal, NewPlace, VolumeState
from tests.support.volumes import brick, volume

OWN, SECOND, THIRD = "gl1:/srv/b/data", "gl2:/srv/b/data", "gl3:/srv/b/data"
ALL = (OWN, SECOND, THIRD)
VOLUME_ID = "76-01"
FILES = 6


@dataclass(slots=True)
class Disk:
    """A file system, and what lies in the brick's directory on it. `missed`: so many entries were changed while it was away."""

    identity: str
    marked: bool = False
    files: int = 0
    missed: int = 0


@dataclass(slots=True)
class ReplicaVolume:
    """Everything there is. The brick's process runs exactly as long as it may: it dies with the marks on its disk. `crawls`: so
    many times more is found to be healed before anything is.
    """

    disk: Disk | None = field(default_factory=lambda: Disk("old", marked=True, files=FILES))
    up: bool = True
    drawer: list[Disk] = field(default_factory=list)
    others_up: bool = True
    blamed: dict[str, int] = field(default_factory=dict)
    reached: bool = True
    options: dict[str, str] = field(default_factory=dict)
    healing: bool = True
    crawls: int = 0
    breaks: bool = False
    put_ins: int = 0
    made: int = 0
    inside: tuple[str, ...] = ALL
    shielded: bool = False

    # What Gluster does.

    def take_offline(self) -> None:
        self.up = False

    def put_in(self, *, marked: bool) -> None:
        if self.up:
            raise ToolFailed("Source brick must be stopped. Please use reset-brick <dst-brick> start.")
        if self.disk is None:
            raise ToolFailed("The brick is being created in the root partition.")
        if self.disk.marked and not marked:
            raise ToolFailed("Brick not available. It may be containing or be contained by an existing brick.")
        assert not self.disk.files, "by force anything would be taken into the volume"
        assert not any(self.blamed.get(name) for name in (SECOND, THIRD)), "nobody has what it held"
        assert self.others_up
        self.disk.marked = True
        if self.breaks:
            # The place is marked before the other hosts are asked.
            raise ToolFailed("a host did not answer")
        self.put_ins += 1
        self.disk.missed = FILES
        self.up = True

    def serve(self) -> None:
        """A brick's process starts where the marks of the volume are."""
        self.up = self.disk is not None and self.disk.marked

    def heals(self) -> None:
        if self.crawls and self.disk is not None and self.disk.missed:
            self.crawls -= 1
            self.disk.missed += 1
        elif self.healing and self.up and self.disk is not None and self.disk.missed:
            self.disk.missed -= 1
            self.disk.files = min(self.disk.files + 1, FILES)

    def users_write(self) -> None:
        for disk in (self.disk, *self.drawer):
            if disk is not None and disk.identity == "old" and not (self.up and disk is self.disk):
                disk.missed += 1

    def reboots(self) -> None:
        """glusterd starts whatever can be started."""
        self.serve()

    # What people and their hooks do.

    def exchange(self) -> None:
        """Another disk with a new file system is mounted in the place."""
        assert not self.up, "a file system was made on a brick that is in use"
        if self.disk is not None and not self.disk.marked:
            # It is mounted, and empty already.
            return
        assert not any(self.blamed.get(name) for name in (SECOND, THIRD)), "nobody has what it held"
        if self.disk is not None:
            self.drawer.append(self.disk)
        self.made += 1
        self.disk = Disk(f"new-{self.made}")

    def put_old_disk_back(self) -> None:
        assert not self.up
        old = next(disk for disk in self.drawer if disk.identity == "old")
        self.drawer.remove(old)
        if self.disk is not None:
            self.drawer.append(self.disk)
        self.disk = old

    # What the program sees.

    def state(self) -> VolumeState:
        online = {OWN: self.up, SECOND: self.others_up, THIRD: True}
        waits = self.disk.missed if self.up and self.disk is not None else 0
        heals = tuple(
            BrickHeal(
                brick=name,
                status="Connected" if online[name] else "Transport endpoint is not connected",
                entries=(waits if name != OWN else 0) if online[name] else None,
            )
            for name in ALL
        )
        return volume(
            *(brick(name, online=online[name]) for name in ALL),
            volume_id=VOLUME_ID,
            type="Replicate",
            options=tuple(self.options.items()),
            replica_count=3,
            peers_down=(),
            heals=heals,
        )

    def place(self) -> NewPlace:
        if not self.reached:
            return NewPlace(name=OWN, unread="host gl1 cannot be reached")
        if self.disk is None:
            return NewPlace(name=OWN, mount="/", own=False, filesystem="ext4")
        empty = NewPlace(
            name=OWN,
            mount="/srv/b",
            own=True,
            filesystem="xfs",
            total_bytes=40 * GIB,
            filesystem_id=self.disk.identity,
            served_by=(77,) if self.up else (),
        )
        if not self.disk.marked:
            return empty
        entries = ("home",) if self.disk.files else ()
        marks = {"exists": True, "volume_id": "7601", "gfid": "01", "has_gluster_directory": True}
        return replace(empty, entries=entries, **marks)
