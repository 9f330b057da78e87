"""`beegfs-ctl` of BeeGFS 7: its queries and its tables."""

import re
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from migrator.beegfs import model
from migrator.beegfs.rules import client_host
from migrator.beegfs.version8 import CONSISTENCY, POOLS, REACHABILITY, UNITS
from migrator.core.errors import ToolFailed

# The queries and the tables, which are version 7's only output.
#
# The columns are those of BeeGFS 7's documentation and sources; a table with other columns is refused. Room is rounded
# to a tenth of a GiB and of a million inodes, so half a step is subtracted.


ROOM = ("--pools", "--spaceinfo")
STORAGE_POOLS = "--storagepools"
REACHABLE = "--reachable"
"""With `--listnodes`: whether each server answers one datagram within 3 s (the default), regardless of the number of
servers that do not."""
SERVER_DOWN = b"[ERROR from"
"""On standard error if a server did not answer; its target then has 0.0GiB, and the exit code is not 0."""

_REACHED = re.compile(rb"^\S+ \[ID: (\d+)\]$|^ *Reachable: <(yes|no)>$", re.MULTILINE)
_STATE_HEAD = ("TargetID", "Reachability", "Consistency")
_STORAGE_POOL_HEAD = ("St.", "Pool")
_ROOM_HEAD = ("Cap.", "Pool", "Total", "Free", "%", "ITotal", "IFree", "%")
_NODE_HEAD = ("NodeID",)
_GIB, _MILLION = 1 << 30, 1_000_000
_STATES = r"\s*(?P<number>\d+)\s+(?:<invalid_value>|(?P<reachability>\S+)\s+(?P<consistency>\S+))"
"""If the management service does not know a target's state, one word replaces both columns."""
_STORAGE_POOL = r"\s+(?P<storage_pool>\S+)"
_ROOM = (
    r"\s+(?P<pool>\S+)\s+(?P<total>\d+\.\d)GiB\s+(?P<free>\d+\.\d)GiB\s+\d+%"
    r"\s+(?P<inodes>\d+\.\d)M\s+(?P<free_inodes>\d+\.\d)M\s+\d+%"
)
_NODE = r"\s+(?P<node>\S+)\s*"
_CONSISTENCY = CONSISTENCY | {"resyncing": model.Consistency.NEEDS_RESYNC}
_TARGETS = re.compile(r"^\+ Number of storage targets: desired: (\d+)(?:;.*)?$", re.MULTILINE)
_CHUNK = re.compile(r"^\+ Chunksize: (\d+)([KMG]?)$", re.MULTILINE)
_POOL = re.compile(r"^\+ Storage Pool: (\d+)(?: .*)?$", re.MULTILINE)


def parse_targets(output: bytes, kind: model.TargetKind, *, with_room: bool) -> tuple[model.StorageTarget, ...]:
    """The table of `--listtargets --state` for one kind, with or without `ROOM` (and the storage pools of storage
    targets). Raises ToolFailed.
    """
    lines = [line for line in output.decode("utf-8", "replace").split("\n") if line.strip()]
    with_storage_pool = with_room and kind is model.TargetKind.STORAGE
    head = (
        *_STATE_HEAD,
        *(_STORAGE_POOL_HEAD if with_storage_pool else ()),
        *(_ROOM_HEAD if with_room else ()),
        *_NODE_HEAD,
    )
    if len(lines) < 2 or tuple(lines[0].split()) != head or set(lines[1]) != {"=", " "}:
        raise ToolFailed(f"`beegfs-ctl --listtargets` has other columns than are known: {''.join(lines[:1])!r}")
    if len(lines) == 2:
        raise ToolFailed(f"`beegfs-ctl --listtargets` names no {kind.value} target")
    row = _STATES + (_STORAGE_POOL if with_storage_pool else "") + (_ROOM if with_room else "") + _NODE
    found = []
    for line in lines[2:]:
        match = re.fullmatch(row, line)
        if match is None:
            raise ToolFailed(f"`beegfs-ctl --listtargets` printed a line in an unknown form: {line!r}")
        found.append(_target(match.groupdict(""), kind))
    return tuple(found)


def parse_directory(output: bytes) -> model.DirectorySettings:
    """`--getentryinfo` of a directory. Raises ToolFailed."""
    text = output.decode("utf-8", "replace")
    targets, chunk, pool = _TARGETS.search(text), _CHUNK.search(text), _POOL.search(text)
    if targets is None or chunk is None:
        raise ToolFailed("`beegfs-ctl --getentryinfo` printed no stripe pattern")
    return model.DirectorySettings(
        stripe=model.StripeSettings(
            targets=int(targets.group(1)), chunk_bytes=int(chunk.group(1)) * UNITS[chunk.group(2)]
        ),
        storage_pool=int(pool.group(1)) if pool else None,
    )


def stripe_arguments(stripe: model.StripeSettings, now: model.StripeSettings, pool: int | None) -> tuple[str, ...]:
    """The arguments that set these settings of a directory. Number and size are both required."""
    numbers = (f"--chunksize={stripe.chunk_bytes or now.chunk_bytes}", f"--numtargets={stripe.targets or now.targets}")
    return ("--setpattern", *numbers, *(() if pool is None else (f"--storagepoolid={pool}",)))


def parse_clients(output: bytes) -> tuple[str, ...]:
    """The host names in `--listnodes --nodetype=client` (`5FC-6B006D0C-HOST [ID: 7]`). Raises ToolFailed."""
    lines = output.decode("utf-8", "replace").split("\n")
    found = tuple(client_host(line.partition(" [ID:")[0]) for line in lines if " [ID:" in line)
    if not found:
        raise ToolFailed("`beegfs-ctl --listnodes` names no client")
    return found


def unreached(output: bytes) -> frozenset[str]:
    """The numbers of the servers that `--listnodes --reachable` reports as unreachable; unparseable lines are skipped."""
    found: set[str] = set()
    node = ""
    for line in _REACHED.finditer(output):
        if line.group(1) is not None:
            node = line.group(1).decode("ascii")
        elif line.group(2) == b"no" and node:
            found.add(node)
    return frozenset(found)


def _target(row: Mapping[str, str], kind: model.TargetKind) -> model.StorageTarget:
    storage_pool = row.get("storage_pool", "")
    found = model.StorageTarget(
        kind=kind,
        number=int(row["number"]),
        name=row["number"],
        node=row["node"],
        reachability=REACHABILITY.get(row["reachability"]),
        consistency=_CONSISTENCY.get(row["consistency"]),
        pool=POOLS.get(row.get("pool", "")),
        storage_pool=int(storage_pool) if storage_pool.isdigit() else None,
        # No target has 0 bytes: its server did not answer.
        answers=row["total"] != "0.0" if "total" in row else None,
    )
    if not found.answers:
        return found
    # Some file systems do not count inodes.
    counts_inodes = row["inodes"] != "0.0"
    return replace(
        found,
        total_bytes=_lower(row["total"], _GIB),
        free_bytes=_lower(row["free"], _GIB),
        total_inodes=_lower(row["inodes"], _MILLION) if counts_inodes else None,
        free_inodes=_lower(row["free_inodes"], _MILLION) if counts_inodes else None,
    )


def _lower(text: str, unit: int) -> int:
    """The smallest number that is rounded to this number of tenths."""
    tenths = int(text.replace(".", ""))
    return max((2 * tenths - 1) * unit // 20, 0)


# Quotas by `beegfs-ctl --getquota --csv`. The format is taken from its sources.


QUOTA = ("--getquota", "--uid", "0")
AT_ONCE = 500
"""The most users in one call."""

_HEAD = "name,id,size,hard,files,hard"
_QUOTAS7_POOL = re.compile(r"Quota information for storage pool .* \(ID: \d+\):")
_FIGURE = r"\d+|unlimited|-"
_QUOTA = re.compile(
    rf".*,(?P<uid>\d+),(?P<used>{_FIGURE}),(?P<limit>{_FIGURE}),(?P<files>{_FIGURE})\+?,(?P<files_limit>{_FIGURE})",
    re.ASCII,
)
"""A name may contain any character, the later columns may not. A plus follows the files if some servers cannot count
them."""
_UNLIMITED = (1 << 64) - 1


def words(uids: Collection[int], pool: int | None) -> tuple[str, ...]:
    """The arguments; `pool` None: the only storage pool."""
    listed = ",".join(str(uid) for uid in sorted(uids))
    # beegfs-ctl takes the only non-option argument as the list.
    of_pool = () if pool is None else (f"--storagepoolid={pool}",)
    return ("--getquota", "--uid", "--list", listed, "--csv", *of_pool)


def limit_arguments(
    uids: Collection[int], size_bytes: int, chunk_files: int | None, pool: int | None
) -> tuple[str, ...]:
    """The arguments that set one limit of bytes. The other limit has to be named too: "unlimited" if there is none."""
    of_pool = () if pool is None else (f"--storagepoolid={pool}",)
    count = "unlimited" if chunk_files is None else chunk_files
    listed = ",".join(map(str, uids))
    limits = (f"--sizelimit={size_bytes}", f"--inodelimit={count}")
    return ("--setquota", "--uid", "--list", listed, *limits, *of_pool)


def parse_quotas(output: bytes, uids: Collection[int]) -> Mapping[int, model.UserQuota]:
    """The quotas of these users, without users whose numbers no server reports. Raises ToolFailed."""
    lines = [line for line in output.decode("utf-8", "replace").split("\n") if line.strip()]
    tables = [number for number, line in enumerate(lines) if line == _HEAD]
    if len(tables) != 1 or any(not _QUOTAS7_POOL.fullmatch(line) for line in lines[: tables[0]]):
        raise ToolFailed("`beegfs-ctl --getquota` printed an unknown form, or several storage pools")
    found = {}
    for line in lines[tables[0] + 1 :]:
        row = _QUOTA.fullmatch(line)
        if row is None:
            raise ToolFailed(f"`beegfs-ctl --getquota` printed a line that is not a quota: {line!r}")
        if (uid := int(row["uid"])) in uids:
            found[uid] = model.UserQuota(
                uid=uid,
                used_bytes=_parsed(row["used"]) or 0,
                counted=row["used"] != "-",
                used_chunk_files=_parsed(row["files"]),
                limit_bytes=_parsed(row["limit"]),
                limit_chunk_files=_parsed(row["files_limit"]),
            )
    return found


def _parsed(word: str) -> int | None:
    if word in ("unlimited", "-"):
        return None
    return None if int(word) >= _UNLIMITED else int(word)
