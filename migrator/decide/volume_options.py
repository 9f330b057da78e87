"""Which options of a Gluster volume leave a brick holding plain files under their own names. Pure.

An option that is not known here may change what a brick holds, so its volume is read through the mount.
"""

from collections.abc import Iterable, Mapping

LOOKUP_OPTION = "cluster.lookup-optimize"
"""On by default: clients ask for a name only where the layout of its directory has it."""

_TRUE = frozenset({"on", "yes", "true", "enable", "1"})
_FALSE = frozenset({"off", "no", "false", "disable", "0"})

_HARMLESS_PREFIXES = (
    "auth.",
    "changelog.",
    "client.",
    "cluster.",
    "config.",
    "diagnostics.",
    "geo-replication.",
    "glusterd.",
    "locks.",
    "network.",
    "nfs.",
    "performance.",
    "rebalance.",
    "server.",
    "ssl.",
    "storage.",
    "transport.",
    "user.",
)
_HARMLESS = frozenset(
    {
        "ctime.noatime",
        "dht.force-readdirp",
        "features.acl",
        "features.barrier",
        "features.barrier-timeout",
        "features.bitrot",
        "features.cache-invalidation",
        "features.cache-invalidation-timeout",
        "features.ctime",
        "features.default-soft-limit",
        "features.alert-time",
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
        "features.read-only",
        "features.scrub",
        "features.scrub-freq",
        "features.scrub-throttle",
        "features.selinux",
        "features.shard-block-size",
        "features.shard-deletion-rate",
        "features.shard-lru-limit",
        "features.signer-threads",
        "features.soft-timeout",
        "features.timeout",
        "features.uss",
        "ganesha.enable",
        "nfs-ganesha",
    }
)
_HARMFUL_PREFIXES = (
    "cluster.dht-xattr-name",
    "cluster.local-volume-name",
    "cluster.nufa",
    "cluster.stripe",
    "cluster.switch",
    "cluster.tier",
    "encryption.",
    "features.encryption",
    "network.compression",
)
"""Of the harmless prefixes those that are not: they rename what marks a link-to file, or change names or content."""

_SENTENCES = {
    "features.shard": "the volume is sharded: a brick holds pieces of files",
    "features.encryption": "the volume is encrypted: a brick holds no readable content",
}


def option_reasons(options: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Sentences for the options that forbid to read the bricks; what is switched off forbids nothing."""
    return tuple(
        _SENTENCES.get(name, f"what option {name} ({value}) does to a brick is not known")
        for name, value in options
        if value.lower() not in _FALSE and not _is_harmless(name)
    )


def is_on(options: Mapping[str, str], name: str, *, default: bool) -> bool | None:
    """Whether a switch is on; None where its value is no switch's."""
    value = options.get(name)
    if value is None:
        return default
    if value.lower() in _TRUE:
        return True
    return False if value.lower() in _FALSE else None


def _is_harmless(name: str) -> bool:
    if name.startswith(_HARMFUL_PREFIXES):
        return False
    return name in _HARMLESS or name.startswith(_HARMLESS_PREFIXES)
