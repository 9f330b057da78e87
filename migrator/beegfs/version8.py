"""`beegfs` of BeeGFS 8: its queries and its answers in JSON."""

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from migrator.beegfs import model
from migrator.beegfs.rules import client_host
from migrator.core.errors import ToolFailed

# The queries, and the answers as lines of JSON (tested with recordings of 8.2.2 and 8.3.1).


# Beyond --page-size rows, `json` prints several lists; ndjson stays the same.
AS_LINES = ("--output", "ndjson")
LIST = ("target", "list", "--state", "--capacity", "--raw", "--columns", "all", *AS_LINES)
CLIENTS = ("node", "list", "--node-type", "client", *AS_LINES)
QUOTA = ("quota", "list-usage", "--uids", "0", *AS_LINES)
LICENCE = ("license", "--output", "json")
UNAVAILABLE = b"code = Unavailable"
"""On standard error if the management service cannot be reached: a restart takes it some seconds."""
UNLICENSED = b"unable to verify licensed status"
"""8.3.1 ends with 1 after a complete answer if the management service has no licence library."""

_KINDS = {2: model.TargetKind.METADATA, 3: model.TargetKind.STORAGE}
POOLS = {pool.value: pool for pool in model.CapacityPool}
REACHABILITY = {state.value: state for state in model.Reachability}
CONSISTENCY = {state.value: state for state in model.Consistency}
_AGO = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(\d+)s ago")
_DIGITS = re.compile(r"\d+")
_STRIPE = re.compile(r"[A-Za-z0-9 ]+ \((\d+)x(\d+)([KMG]?)\)")
_STORAGE_POOL = re.compile(r"s:(\d+)")
_POOL_NUMBER = re.compile(r".* \((\d+)\)")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


Row = TypeVar("Row")


class _Id(msgspec.Struct):
    num_id: int
    node_type: int = 0


class _TargetRow(msgspec.Struct):
    id: _Id
    alias: str
    node: str
    reachability: str
    consistency: str
    cap_pool: str
    storage_pool: str
    last_contact: str
    space: str
    space_free: str
    inodes: str
    inodes_free: str


class _NodeRow(msgspec.Struct):
    alias: str


class _PoolName(msgspec.Struct):
    id: _Id
    alias: str


class _EntryRow(msgspec.Struct):
    stripe_pattern: str
    storage_pool: str


def parse_targets(output: bytes) -> tuple[model.StorageTarget, ...]:
    """Every target of `target list`. Raises ToolFailed if the answer is malformed."""
    return tuple(_target(row) for row in _rows(output, _TargetRow))


def parse_directories(output: bytes) -> list[model.DirectorySettings]:
    """The directories of `entry info`, in its order. Raises ToolFailed."""
    return [_directory(row) for row in _rows(output, _EntryRow)]


def _directory(row: _EntryRow) -> model.DirectorySettings:
    stripe = _STRIPE.fullmatch(row.stripe_pattern)
    if stripe is None:
        raise ToolFailed(f"`beegfs entry info` printed an unknown stripe pattern: {row.stripe_pattern!r}")
    pool = _POOL_NUMBER.fullmatch(row.storage_pool)
    return model.DirectorySettings(
        stripe=model.StripeSettings(
            targets=int(stripe.group(1)), chunk_bytes=int(stripe.group(2)) * UNITS[stripe.group(3)]
        ),
        storage_pool=int(pool.group(1)) if pool else None,
    )


def stripe_arguments(stripe: model.StripeSettings, pool: int | None) -> tuple[str, ...]:
    """The arguments that set these settings of directories; others stay."""
    given = (("--num-targets", stripe.targets), ("--chunk-size", stripe.chunk_bytes), ("--pool", pool))
    return ("entry", "set", *(str(word) for flag in given if flag[1] is not None for word in flag))


def parse_pools(output: bytes) -> Mapping[str, int]:
    """The storage pools of `pool list`, by name and by number. Raises ToolFailed."""
    rows = _rows(output, _PoolName)
    return {name: row.id.num_id for row in rows for name in (str(row.id.num_id), row.alias)}


def parse_clients(output: bytes) -> tuple[str, ...]:
    """The host names in `node list`, from the names that clients report (`c5FC-6B006D0C-HOST`). Raises ToolFailed."""
    return tuple(client_host(row.alias) for row in _rows(output, _NodeRow))


def _rows(output: bytes, kind: type[Row]) -> list[Row]:
    """The objects, one per line. Raises ToolFailed, also if there are none."""
    try:
        found = msgspec.json.Decoder(kind, strict=False).decode_lines(output)
    except msgspec.DecodeError as error:
        raise ToolFailed(f"an answer of `beegfs` is cut off or has another form than is known: {error}") from error
    if not found:
        raise ToolFailed("an answer of `beegfs` is empty")
    return found


def _target(row: _TargetRow) -> model.StorageTarget:
    kind = _KINDS.get(row.id.node_type)
    if kind is None:
        raise ToolFailed(f"`beegfs target list` printed an alias that is not a target: {row.alias!r}")
    pool = _STORAGE_POOL.fullmatch(row.storage_pool)
    return model.StorageTarget(
        kind=kind,
        number=row.id.num_id,
        name=row.alias,
        node=row.node,
        reachability=REACHABILITY.get(row.reachability),
        consistency=CONSISTENCY.get(row.consistency),
        pool=POOLS.get(row.cap_pool.lower()),
        storage_pool=int(pool.group(1)) if pool else None,
        last_contact_s=_ago_s(row.last_contact),
        total_bytes=_count(row.space),
        free_bytes=_count(row.space_free),
        total_inodes=_count(row.inodes),
        free_inodes=_count(row.inodes_free),
    )


def _count(value: str) -> int | None:
    """A number in digits (`--raw`). A text without digits means unknown; one with more than digits was rounded."""
    if _DIGITS.fullmatch(value):
        return int(value)
    if any(letter.isdigit() for letter in value):
        raise ToolFailed(f"`beegfs target list` printed a rounded number: {value!r}")
    return None


def _ago_s(text: str) -> float | None:
    if found := _AGO.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return float(hours * 3600 + minutes * 60 + seconds)
    return None


# Quotas by `beegfs quota`. The format of the answers is taken from its sources: only refusals were recorded, since
# quotas need a licence.
#
# `list-usage` alone knows the effective limits, but omits users without recorded usage: for them the limits that were
# set count, or else the defaults of the pool.


USAGE = ("quota", "list-usage", "--uids", "all", "--raw", *AS_LINES)
LIMITS = ("quota", "list-limits", "--uids", "all", "--raw", *AS_LINES)
DEFAULTS = ("quota", "list-defaults", "--raw", *AS_LINES)
ABSENT = (b"Feature Quota unavailable", b"Quota support is not enabled")
"""On standard error if quotas are unavailable: no licence, or not enabled."""

_UNLIMITED = (1 << 63) - 1
_NONE = frozenset(("", "-", "?", "∞"))


class _PoolRow(msgspec.Struct):
    """A storage pool, with the limits of users without limits of their own."""

    id: _Id
    alias: str
    user_space_limit: str
    user_inode_limit: str


class _QuotaRow(msgspec.Struct):
    id: int
    pool: str
    type: str
    space: str
    inode: str


def parse_quotas(
    usage: bytes, limits: bytes, defaults: bytes, pool: int | None, uids: Collection[int]
) -> Mapping[int, model.UserQuota]:
    """The quotas of these users in one storage pool, by its number; None: in the only one. Raises ToolFailed."""
    pools = [row for row in _rows(defaults, _PoolRow) if pool in (None, row.id.num_id)]
    if len(pools) != 1:
        raise ToolFailed("the storage pool of the target's directory is unknown, and so are its limits")
    name, limit_bytes = pools[0].alias, _parsed(pools[0].user_space_limit)
    limit_chunk_files = _parsed(pools[0].user_inode_limit)
    found = {
        uid: model.UserQuota(uid=uid, used_chunk_files=0, limit_bytes=limit_bytes, limit_chunk_files=limit_chunk_files)
        for uid in uids
    }
    for row in _users(limits, name, uids):
        before = found[row.id]
        # A user without a limit of their own has the pool's.
        found[row.id] = replace(
            before,
            limit_bytes=before.limit_bytes if row.space == "-" else _parsed(row.space),
            limit_chunk_files=before.limit_chunk_files if row.inode == "-" else _parsed(row.inode),
            exempt=row.space != "-" and _parsed(row.space) is None,
        )
    for row in _users(usage, name, uids):
        before = found[row.id]
        space, _, space_limit = row.space.partition("/")
        inodes, _, inodes_limit = row.inode.partition("/")
        # A limit that is not listed here keeps its set value.
        found[row.id] = replace(
            before,
            used_bytes=_parsed(space) or 0,
            counted=space not in _NONE,
            used_chunk_files=_parsed(inodes),
            limit_bytes=before.limit_bytes if space_limit in ("", "?") else _parsed(space_limit),
            limit_chunk_files=before.limit_chunk_files if inodes_limit in ("", "?") else _parsed(inodes_limit),
        )
    return found


def pool_number(defaults: bytes, pool: int | None) -> int | None:
    """The number of a storage pool; `pool` None: of the only one, or None if there are several."""
    found = [row.id.num_id for row in _rows(defaults, _PoolRow) if pool in (None, row.id.num_id)]
    return found[0] if len(found) == 1 else None


def limit_arguments(uids: Collection[int], size_bytes: int, pool: int | None) -> tuple[str, ...]:
    """The arguments that set one limit of bytes."""
    listed = ",".join(map(str, uids))
    return ("quota", "set-limits", f"s:{pool}", "--uid", listed, "--space", str(size_bytes))


def _users(output: bytes, pool: str, uids: Collection[int]) -> list[_QuotaRow]:
    rows = _rows(output, _QuotaRow) if output.strip() else []
    return [row for row in rows if row.type == "user" and row.pool == pool and row.id in uids]


def _parsed(word: str) -> int | None:
    """A number in digits (`--raw`); None if there is none."""
    if word in _NONE:
        return None
    if not word.isascii() or not word.isdigit():
        raise ToolFailed(f"`beegfs quota` printed {word!r} instead of a number")
    number = int(word)
    return None if number >= _UNLIMITED else number
