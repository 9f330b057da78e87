"""Volume health, options, known faults of versions, subvolumes, throttles. Pure."""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from migrator.fs.model import MountIdentity
from migrator.gluster.faults import KNOWN_FAULTS, KnownFault, Version
from migrator.gluster.model import Brick, BrickRules, ChangedOption, DiskFacts, GlusterFault, VolumeState

# Which bricks together hold every file of a volume once.


def subvolumes(state: VolumeState) -> tuple[tuple[Brick, ...], ...]:
    """The bricks in groups that hold the same files: Gluster lists the copies of a set one after the other.

    Raises ValueError if the list does not divide into whole sets.
    """
    size = max(state.replica_count, 1) * max(state.stripe_count, 1) * max(state.disperse_count, 1)
    if len(state.bricks) % size:
        raise ValueError(f"{len(state.bricks)} bricks do not divide into sets of {size}")
    return tuple(state.bricks[start : start + size] for start in range(0, len(state.bricks), size))


def copies(state: VolumeState | None) -> Mapping[str, tuple[str, ...]]:
    """For each brick of a replica set, those with the same files, itself included: an arbiter has no content. Empty without
    `features.ctime`: the copies of a file then have different times.
    """
    if state is None or state.replica_count < 2 or not brick_rules(state).times_from_mdata:
        return {}
    sets = [[brick.name for brick in bricks if not brick.arbiter] for bricks in subvolumes(state)]
    return {name: tuple(names) for names in sets for name in names}


def choose_bricks(
    state: VolumeState, unreachable: Mapping[str, str], reachable: Collection[str]
) -> tuple[tuple[Brick, ...], tuple[str, ...]]:
    """One brick of every subvolume that is up and on a reachable host, never an arbiter, which has no content. The
    bricks are spread as evenly as possible over the hosts; the same input gives the same choice. Also returns a
    sentence for each subvolume without a readable brick.

    `unreachable` has the reason for each known host that was not reached.
    """
    chosen: dict[int, Brick] = {}
    problems: list[str] = []
    load: Counter[str] = Counter()
    sets = subvolumes(state)
    usable = {
        number: tuple(brick for brick in bricks if not brick.arbiter and brick.online and brick.host in reachable)
        for number, bricks in enumerate(sets)
    }
    # The subvolumes with the fewest candidates first: the others then even out the load.
    for number in sorted(usable, key=lambda number: (len(usable[number]), number)):
        if not usable[number]:
            problems.append(_problem(sets[number], unreachable, reachable))
            continue
        brick = min(usable[number], key=lambda brick: (load[brick.host], usable[number].index(brick)))
        load[brick.host] += 1
        chosen[number] = brick
    return tuple(chosen[number] for number in sorted(chosen)), tuple(problems)


def _problem(bricks: tuple[Brick, ...], unreachable: Mapping[str, str], reachable: Collection[str]) -> str:
    shown = " or ".join(brick.name for brick in bricks if not brick.arbiter)
    reasons: list[str] = []
    for brick in bricks:
        if brick.arbiter:
            continue
        if brick.host in unreachable:
            reasons.append(unreachable[brick.host])
        elif brick.host not in reachable:
            reasons.append(f'site.toml has no [source.hosts."{brick.host}"]')
        elif brick.online is not True:
            reasons.append(f"brick {brick.name} is down")
    return f"no host reads {shown}: {'; '.join(dict.fromkeys(reasons)) or 'it has only arbiters'}"


# Whether a volume, or a mount, shows all of its files.


_NOT_SHOWN = ("performance.", "cluster.rebal-throttle")
"""Options that do not change the files that the mount shows, and that drains change while passes copy."""


def volume_problems(state: VolumeState) -> tuple[str, ...]:
    """Sentences for every condition under which the mount shows fewer files than exist, without an error.

    A brick that the status does not list is as bad as one that is down: the glusterd of its host does not respond.
    Tasks are no problem here: copies may run while files move, but no file may be treated as deleted.
    """
    problems: list[str] = []
    if not state.started:
        problems.append(f"volume {state.volume} is not started")
    if not state.bricks:
        problems.append(f"volume {state.volume} has no bricks")
    unknown = "may be down: its state is unknown"
    problems += [
        f"brick {brick.name} {'is down' if brick.online is False else unknown}"
        for brick in state.bricks
        if not brick.online
    ]
    return tuple(problems)


def volume_fingerprint(state: VolumeState) -> str:
    """Changes with the brick list and its order, with an option, and with the volume itself."""
    digest = hashlib.blake2b(digest_size=16)
    facts = [state.volume, state.volume_id, state.type, str(state.started)]
    facts += [f"{brick.name} {brick.arbiter}" for brick in state.bricks]
    facts += [f"{option}={value}" for option, value in sorted(state.options) if not option.startswith(_NOT_SHOWN)]
    for fact in facts:
        raw = fact.encode("utf-8", "surrogateescape")
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return digest.hexdigest()


def without_bricks(state: VolumeState, names: Collection[str]) -> VolumeState:
    """The volume after a drain of these bricks. Its type changes when a single subvolume is left."""
    kept = tuple(brick for brick in state.bricks if brick.name not in names)
    single = len(kept) <= max(state.replica_count, 1)
    return replace(state, bricks=kept, type=state.type.removeprefix("Distributed-") if single else state.type)


def drained(state: VolumeState, names: Collection[str]) -> VolumeState:
    """The volume after a whole drain of these bricks, which begins with look-ups on all bricks."""
    options = dict(state.options)
    if is_on(options, LOOKUP_OPTION, default=True) is not False:
        options[LOOKUP_OPTION] = "off"
    return replace(without_bricks(state, names), options=tuple(options.items()))


def wrong_volume_problem(identity: MountIdentity, volume: str) -> str | None:
    """A sentence if the mount is not one of this volume: the health of one volume proves nothing about another."""
    mounted = identity.mounted_from.rpartition(":")[2].strip("/").partition("/")[0]
    if identity.filesystem == "fuse.glusterfs" and mounted == volume:
        return None
    shown = f"{identity.filesystem or 'unknown file system'} from {identity.mounted_from or 'nowhere'}"
    return f"the source is not a mount of volume {volume}: {shown}"


# Which options leave plain files under their own names on the bricks.
#
# An unknown option may change the content of a brick: such a volume is read through the mount.


LOOKUP_OPTION = "cluster.lookup-optimize"
"""On by default: clients look up a name only on the brick selected by the layout of its directory."""

_TRUE = frozenset({"on", "yes", "true", "enable", "1"})
_FALSE = frozenset({"off", "no", "false", "disable", "0"})

_HARMLESS_PREFIXES = (
    *(
        "auth.",
        "changelog.",
        "client.",
        "config.",
        "diagnostics.",
        "geo-replication.",
        "glusterd.",
        "locks.",
        "network.",
    ),
    *("nfs.", "performance.", "rebalance.", "server.", "ssl.", "transport.", "user."),
)
"""Options of connections, caches, daemons and logs: none of them changes what a brick stores."""

_HARMLESS = frozenset(
    [
        "cluster.background-self-heal-count",
        "cluster.brick-graceful-cleanup",
        "cluster.brick-multiplex",
        "cluster.choose-local",
        "cluster.consistent-metadata",
        "cluster.daemon-log-level",
        "cluster.data-change-log",
        "cluster.data-self-heal",
        "cluster.data-self-heal-algorithm",
        "cluster.disperse-self-heal-daemon",
        "cluster.eager-lock",
        "cluster.enable-shared-storage",
        "cluster.ensure-durability",
        "cluster.entry-change-log",
        "cluster.entry-self-heal",
        "cluster.extra-hash-regex",
        "cluster.favorite-child-policy",
        "cluster.force-migration",
        "cluster.full-lock",
        "cluster.granular-entry-heal",
        "cluster.halo-enabled",
        "cluster.halo-max-latency",
        "cluster.halo-max-replicas",
        "cluster.halo-min-replicas",
        "cluster.halo-nfsd-max-latency",
        "cluster.halo-shd-max-latency",
        "cluster.heal-timeout",
        "cluster.heal-wait-queue-length",
        "cluster.lock-migration",
        "cluster.locking-scheme",
        "cluster.lookup-optimize",
        "cluster.lookup-unhashed",
        "cluster.max-bricks-per-process",
        "cluster.metadata-change-log",
        "cluster.metadata-self-heal",
        "cluster.min-free-disk",
        "cluster.min-free-inodes",
        "cluster.op-version",
        "cluster.optimistic-change-log",
        "cluster.post-op-delay-secs",
        "cluster.quorum-count",
        "cluster.quorum-reads",
        "cluster.quorum-type",
        "cluster.randomize-hash-range-by-gfid",
        "cluster.read-hash-mode",
        "cluster.read-subvolume",
        "cluster.read-subvolume-index",
        "cluster.readdir-optimize",
        "cluster.rebal-throttle",
        "cluster.rebalance-stats",
        "cluster.rsync-hash-regex",
        "cluster.self-heal-daemon",
        "cluster.self-heal-readdir-size",
        "cluster.self-heal-window-size",
        "cluster.server-quorum-ratio",
        "cluster.server-quorum-type",
        "cluster.shd-max-threads",
        "cluster.shd-wait-qlength",
        "cluster.subvols-per-directory",
        "cluster.use-anonymous-inode",
        "cluster.use-compound-fops",
        "cluster.weighted-rebalance",
        "ctime.noatime",
        "dht.force-readdirp",
        "features.acl",
        "features.alert-time",
        "features.auto-commit-period",
        "features.barrier",
        "features.barrier-timeout",
        "features.bitrot",
        "features.cache-invalidation",
        "features.cache-invalidation-timeout",
        "features.ctime",
        "features.default-retention-period",
        "features.default-soft-limit",
        "features.enforce-mandatory-lock",
        "features.expiry-time",
        "features.hard-timeout",
        "features.inode-quota",
        "features.lease-lock-recall-timeout",
        "features.leases",
        "features.locks-monkey-unlocking",
        "features.locks-notify-contention",
        "features.locks-notify-contention-delay",
        "features.locks-revocation-clear-all",
        "features.locks-revocation-max-blocked",
        "features.locks-revocation-secs",
        "features.quota",
        "features.quota-deem-statfs",
        "features.quota-timeout",
        "features.read-only",
        "features.retention-mode",
        "features.scrub",
        "features.scrub-freq",
        "features.scrub-throttle",
        "features.sdfs",
        "features.selinux",
        "features.shard-block-size",
        "features.shard-deletion-rate",
        "features.shard-lru-limit",
        "features.show-snapshot-directory",
        "features.signer-threads",
        "features.snapshot-directory",
        "features.soft-timeout",
        "features.timeout",
        "features.uss",
        "features.worm-files-deletable",
        "ganesha.enable",
        "nfs-ganesha",
        "storage.batch-fsync-delay-usec",
        "storage.batch-fsync-mode",
        "storage.build-pgfid",
        "storage.create-directory-mask",
        "storage.create-mask",
        "storage.fips-mode-rchecksum",
        "storage.force-create-mode",
        "storage.force-directory-mode",
        "storage.gfid2path",
        "storage.gfid2path-separator",
        "storage.health-check-interval",
        "storage.health-check-timeout",
        "storage.linux-aio",
        "storage.linux-io_uring",
        "storage.max-hardlinks",
        "storage.node-uuid-pathinfo",
        "storage.owner-gid",
        "storage.owner-uid",
        "storage.reserve",
        "storage.reserve-size",
    ]
)
"""Options of translators that read or write bricks, one by one: the next version's may be another translator's."""

_HARMFUL_PREFIXES = ("network.compression",)
"""Exceptions from the harmless prefixes: they change content."""

_SENTENCES = {
    "features.shard": "the volume is sharded: a brick holds pieces of files",
    "features.encryption": "the volume is encrypted: a brick holds no readable content",
}


def option_reasons(options: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Sentences for the options that forbid reading the bricks; options that are off forbid nothing."""
    return tuple(
        _SENTENCES.get(name, f"the effect of option {name} ({value}) on a brick is unknown")
        for name, value in options
        if value.lower() not in _FALSE and not _is_harmless(name)
    )


CTIME_OPTION = "features.ctime"


def brick_rules(state: VolumeState) -> BrickRules:
    """The rules of a volume's bricks. Without `features.ctime` the attribute with the times is stale."""
    return BrickRules(
        times_from_mdata=is_on(dict(state.options), CTIME_OPTION, default=True) is not False,
        distributed=len(state.bricks) > max(state.replica_count, 1),
        replicated=state.replica_count > 1,
    )


def is_on(options: Mapping[str, str], name: str, *, default: bool) -> bool | None:
    """True if a switch is on; None if its value is not that of a switch."""
    value = options.get(name)
    if value is None:
        return default
    if value.lower() in _TRUE:
        return True
    return False if value.lower() in _FALSE else None


TRASH_OPTION = "features.trash"


def freeing_problems(state: VolumeState) -> tuple[str, ...]:
    """The reason why removing files does not free the volume; an unknown value of the option counts as on."""
    if is_on(dict(state.options), TRASH_OPTION, default=False) is False:
        return ()
    return (
        f"{TRASH_OPTION} is on: volume {state.volume} moves removed files to its trash directory, and nothing is freed; "
        f"switch it off with `gluster volume set {state.volume} {TRASH_OPTION} off`",
    )


def _is_harmless(name: str) -> bool:
    if name.startswith(_HARMFUL_PREFIXES):
        return False
    return name in _HARMLESS or name.startswith(_HARMLESS_PREFIXES)


# Known faults of GlusterFS versions that matter for drains, additions and scans of bricks.


def _applies(known: KnownFault, state: VolumeState) -> bool:
    """True if a volume of this layout and with these options has it. An unknown value of the option counts as both."""
    on = is_on(dict(state.options), LOOKUP_OPTION, default=True)
    if known.lookup_optimize is not None and on is not None and on is not known.lookup_optimize:
        return False
    return not known.distributed or len(state.bricks) > max(state.replica_count, state.disperse_count, 1)


def version_in(output: bytes) -> str | None:
    """The version in the output of `gluster --version`, as in `10.3`; None if there is none."""
    found = re.match(rb"glusterfs (\d+(?:\.\d+)+)", output)
    return None if found is None else found[1].decode("ascii")


def parse_version(text: str) -> Version | None:
    """The numbers of `glusterfs 10.3` or `10.3-5`; None if there are none."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return None if found is None else tuple(int(part) for part in found[0].split("."))


def known_faults(version: str | None) -> tuple[GlusterFault, ...]:
    """The faults of a version, those that stop a drain first. An unknown version has all of them."""
    numbers = None if version is None else parse_version(version)
    found = [known for known in KNOWN_FAULTS if numbers is None or _has(known, numbers)]
    return tuple(
        GlusterFault(
            versions=_versions(known),
            fault=known.fault,
            advice=known.advice,
            stops_drain=known.stops_drain,
            reference=known.reference,
        )
        for known in sorted(found, key=lambda known: not known.stops_drain)
    )


def faults_of_volume(state: VolumeState, versions: Collection[str | None]) -> tuple[GlusterFault, ...]:
    """The faults of any of several versions that apply to the volume, each once, those that stop a drain first."""
    applying = {known.fault for known in KNOWN_FAULTS if _applies(known, state)}
    found = dict.fromkeys(fault for version in versions for fault in known_faults(version) if fault.fault in applying)
    return tuple(sorted(found, key=lambda fault: not fault.stops_drain))


def version_problems(
    versions: Mapping[str, str | None] | None, hosts: Collection[str], *, otherwise: str = ""
) -> Iterator[str]:
    """Sentences for the hosts whose version is unknown, or loses files when they move between bricks. `otherwise` is
    added to each sentence: what can be done nevertheless.
    """
    if not versions:
        yield f"the version of GlusterFS on the hosts, and so its faults, are unknown{otherwise}"
        return
    for host in sorted({*hosts, *versions}):
        version = versions.get(host)
        if version is None or parse_version(version) is None:
            yield f"the version of GlusterFS on {host}, and so its faults, are unknown{otherwise}"
            continue
        for fault in known_faults(version):
            if fault.stops_drain:
                yield f"GlusterFS {version} on {host}: {fault.fault} ({fault.reference}); {fault.advice}{otherwise}"


def _has(known: KnownFault, version: Version) -> bool:
    return (known.since is None or version >= known.since) and (known.until is None or version < known.until)


def _versions(known: KnownFault) -> str:
    words = []
    if known.since is not None:
        words.append(f"from {_shown(known.since)}")
    if known.until is not None:
        words.append(f"before {_shown(known.until)}")
    return ", ".join(words) or "all that are known"


def _shown(version: Version) -> str:
    return ".".join(map(str, version))


# Options that this program changes, above all `cluster.rebal-throttle`: the new value, and the value before.


SLOWEST_FIRST = ("lazy", "normal", "aggressive")
"""The values of `cluster.rebal-throttle`."""


def slowed(value: str, down: int) -> str:
    """The value this many steps down, at most the slowest."""
    return SLOWEST_FIRST[max(SLOWEST_FIRST.index(value) - down, 0)]


def steps_below(value: str) -> int:
    """The number of steps from a value down to the slowest."""
    return SLOWEST_FIRST.index(value)


def still_changed(options: Iterable[ChangedOption], state: VolumeState) -> tuple[str, ...]:
    """Options that still have a value that this program has set. An option that another program has changed since is
    left alone.
    """
    now = dict(state.options)
    return tuple(
        option.name
        for option in options
        if (value := now.get(option.name)) is not None and value != option.before and value in option.given
    )


def value_before(name: str, state: VolumeState, left: Sequence[ChangedOption]) -> str | None:
    """The value of an option without this program: the present one (None: not set), or, if a killed process left it
    changed, the one before the change.
    """
    value = dict(state.options).get(name)
    for option in left:
        if option.name == name and name in still_changed((option,), state):
            return option.before
    return value


# Failures of a drain that users cause.


FEW = 10
_FEW_SHARE = 0.001


def are_few(failures: int, *, moved_files: int) -> bool:
    """True if so few moves failed that a failing disk or a full file system is unlikely. A file that a user renames or
    deletes between Gluster's listing and its move also fails (seen on GlusterFS 10.3: `Migrate file failed: ...
    lookup failed`).
    """
    return failures <= FEW + _FEW_SHARE * moved_files


# Disks of bricks.


def disk_problems(disks: Mapping[str, DiskFacts]) -> tuple[str, ...]:
    """Reasons why the disks of these bricks may not be wiped or given away: anything else on a disk is one."""
    return tuple(problem for one in disks.values() if (problem := _disk_problem(one)))


def _disk_problem(disk: DiskFacts) -> str:
    if disk.unread:
        return f"the disk of {disk.name} is unknown: {disk.unread}"
    if not disk.mount:
        return f"{disk.name} is on the file system of the root directory: its own is not mounted, or it has none"
    if disk.unexplained:
        return f"the disk of {disk.name} holds more than that: {'; '.join(disk.unexplained)}"
    return ""
