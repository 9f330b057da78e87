"""`beegfs-ctl` of BeeGFS 7: its questions and its tables for people."""

import re
from collections.abc import Collection, Mapping

from migrator.beegfs import model
from migrator.core.errors import ToolFailed

# The questions, and the tables for people, since version 7 has no other output.
#
# The columns are those of BeeGFS 7's documentation and sources; a table with other columns is refused. Room is rounded to a tenth
# of a GiB and of a million inodes, so half a step is subtracted.


ROOM = ("--pools", "--spaceinfo")
STORAGE_POOLS = "--storagepools"
REACHABLE = "--reachable"
"""With `--listnodes`: whether each server answers one datagram, for 3 s by default, however many do not."""
SERVER_DOWN = b"[ERROR from"
"""On standard error if a server did not answer; its target then has 0.0GiB, and the exit code is not 0."""

_REACHED = re.compile(rb"^\S+ \[ID: (\d+)\]$|^ *Reachable: <(yes|no)>$", re.MULTILINE)
_STATE_HEAD = ("TargetID", "Reachability", "Consistency")
_STORAGE_POOL_HEAD = ("St.", "Pool")
_ROOM_HEAD = ("Cap.", "Pool", "Total", "Free", "%", "ITotal", "IFree", "%")
_NODE_HEAD = ("NodeID",)
_GIB, _MILLION = 1 << 30, 1_000_000
_SIZE = re.compile(r"(\d+\.\d)GiB")
_COUNT = re.compile(r"(\d+\.\d)M")
_PERCENT = re.compile(r"\d+%")
_REACHABILITY = {state.value: state for state in model.Reachability}
_CONSISTENCY = {state.value: state for state in model.Consistency} | {"resyncing": model.Consistency.NEEDS_RESYNC}
_POOLS = {pool.value: pool for pool in model.CapacityPool}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_TARGETS = re.compile(r"^\+ Number of storage targets: desired: (\d+)(?:;.*)?$", re.MULTILINE)
_CHUNK = re.compile(r"^\+ Chunksize: (\d+)([KMG]?)$", re.MULTILINE)
_POOL = re.compile(r"^\+ Storage Pool: (\d+)(?: .*)?$", re.MULTILINE)


def parse_targets(output: bytes, kind: model.TargetKind, *, with_room: bool) -> tuple[model.StorageTarget, ...]:
    """The table of `--listtargets --state` for one kind, with or without `ROOM` (and the storage pools of storage
    targets). Raises ToolFailed.
    """
    lines = [line.split() for line in output.decode("utf-8", "replace").split("\n") if line.strip()]
    with_storage_pool = with_room and kind is model.TargetKind.STORAGE
    head = (
        *_STATE_HEAD,
        *(_STORAGE_POOL_HEAD if with_storage_pool else ()),
        *(_ROOM_HEAD if with_room else ()),
        *_NODE_HEAD,
    )
    if len(lines) < 2 or tuple(lines[0]) != head or not all(set(word) == {"="} for word in lines[1]):
        raise ToolFailed(
            f"`beegfs-ctl --listtargets` has other columns than are known: {' '.join(lines[0][:12])!r}"
            if lines
            else "an answer of `beegfs-ctl` is empty"
        )
    if len(lines) == 2:
        raise ToolFailed(f"`beegfs-ctl --listtargets` names no {kind.value} target")
    return tuple(_target(words, kind, with_room=with_room, with_pool=with_storage_pool) for words in lines[2:])


def parse_directory(output: bytes) -> model.DirectoryFacts:
    """`--getentryinfo` of a directory. Raises ToolFailed."""
    text = output.decode("utf-8", "replace")
    targets, chunk, pool = _TARGETS.search(text), _CHUNK.search(text), _POOL.search(text)
    if targets is None or chunk is None:
        raise ToolFailed("`beegfs-ctl --getentryinfo` told no stripe pattern")
    return model.DirectoryFacts(
        stripe=model.StripeSettings(
            targets=int(targets.group(1)), chunk_bytes=int(chunk.group(1)) * _UNITS[chunk.group(2)]
        ),
        storage_pool=int(pool.group(1)) if pool else None,
    )


def unreached(output: bytes) -> frozenset[str]:
    """The numbers of the servers that `--listnodes --reachable` has not reached; what cannot be read names none."""
    found: set[str] = set()
    node = ""
    for line in _REACHED.finditer(output):
        if line.group(1) is not None:
            node = line.group(1).decode("ascii")
        elif line.group(2) == b"no" and node:
            found.add(node)
    return frozenset(found)


def _target(words: list[str], kind: model.TargetKind, *, with_room: bool, with_pool: bool) -> model.StorageTarget:
    row = " ".join(words)
    rest = list(words)
    try:
        number = int(rest.pop(0))
        # A target that the management service knows no state of has one word in the place of both.
        states = [rest.pop(0)]
        states += ["<invalid_value>"] if states == ["<invalid_value>"] else [rest.pop(0)]
        storage_pool = rest.pop(0) if with_pool else ""
        room = [rest.pop(0) for _ in range(7)] if with_room else []
        (node,) = rest
    except (ValueError, IndexError) as error:
        raise ToolFailed(f"`beegfs-ctl --listtargets` told something that is no target: {row!r}") from error
    found = model.StorageTarget(
        kind=kind,
        number=number,
        name=str(number),
        node=node,
        reachability=_REACHABILITY.get(states[0]),
        consistency=_CONSISTENCY.get(states[1]),
        storage_pool=int(storage_pool) if storage_pool.isdigit() else None,
    )
    return _with_room(found, room, row) if with_room else found


def _with_room(target: model.StorageTarget, room: list[str], row: str) -> model.StorageTarget:
    pool, total, free, percent, inodes, inodes_free, inodes_percent = room
    sizes = [_SIZE.fullmatch(word) for word in (total, free)]
    counts = [_COUNT.fullmatch(word) for word in (inodes, inodes_free)]
    if not all((*sizes, *counts, _PERCENT.fullmatch(percent), _PERCENT.fullmatch(inodes_percent))):
        raise ToolFailed(f"`beegfs-ctl --listtargets` told room in a form that is not known: {row!r}")
    total_bytes, free_bytes = (_lower(word.group(1), _GIB) for word in sizes if word)
    total_inodes, free_inodes = (_lower(word.group(1), _MILLION) for word in counts if word)
    # Nobody has a target of no bytes: its server did not answer. Some file systems count no inodes.
    answers, counts_inodes = total != "0.0GiB", inodes != "0.0M"
    return model.StorageTarget(
        kind=target.kind,
        number=target.number,
        name=target.name,
        node=target.node,
        reachability=target.reachability,
        consistency=target.consistency,
        pool=_POOLS.get(pool),
        storage_pool=target.storage_pool,
        answers=answers,
        total_bytes=total_bytes if answers else None,
        free_bytes=free_bytes if answers else None,
        total_inodes=total_inodes if answers and counts_inodes else None,
        free_inodes=free_inodes if answers and counts_inodes else None,
    )


def _lower(text: str, unit: int) -> int:
    """The least that is rounded to this number of tenths."""
    tenths = int(text.replace(".", ""))
    return max((2 * tenths - 1) * unit // 20, 0)


# Quotas by `beegfs-ctl --getquota --csv`. The format is taken from its sources.


AT_ONCE = 500
"""So many users are asked for in one call."""

_HEAD = "name,id,size,hard,files,hard"
_QUOTAS7_POOL = re.compile(r"Quota information for storage pool .* \(ID: \d+\):")
_COLUMNS = 5
_UNLIMITED = (1 << 64) - 1


def words(uids: Collection[int], pool: int | None) -> tuple[str, ...]:
    """The command; `pool` None: the only storage pool."""
    listed = ",".join(str(uid) for uid in sorted(uids))
    # The list is found as the word that is no option.
    of_pool = () if pool is None else (f"--storagepoolid={pool}",)
    return ("--getquota", "--uid", "--list", listed, "--csv", *of_pool)


def parse_quotas(output: bytes, uids: Collection[int]) -> Mapping[int, model.UserQuota]:
    """Of these users; one whose numbers no server could tell is left out. Raises ToolFailed."""
    lines = [line for line in output.decode("utf-8", "replace").split("\n") if line.strip()]
    tables = [number for number, line in enumerate(lines) if line == _HEAD]
    if len(tables) != 1 or any(not _QUOTAS7_POOL.fullmatch(line) for line in lines[: tables[0]]):
        raise ToolFailed("`beegfs-ctl --getquota` has another form than is known, or tells of several storage pools")
    found = {}
    for line in lines[tables[0] + 1 :]:
        quota = _quota(line)
        if quota.uid in uids:
            found[quota.uid] = quota
    return found


def _quota(line: str) -> model.UserQuota:
    # A name may hold anything; the columns after it do not.
    columns = line.rsplit(",", _COLUMNS)
    if len(columns) != _COLUMNS + 1:
        raise ToolFailed(f"`beegfs-ctl --getquota` told something that is no quota: {line!r}")
    _, uid, used, limit, files, files_limit = columns
    number = _parsed(uid, line)
    if number is None:
        raise ToolFailed(f"`beegfs-ctl --getquota` told of nobody: {line!r}")
    return model.UserQuota(
        uid=number,
        used_bytes=_parsed(used, line) or 0,
        # Where some servers cannot count them a plus follows.
        used_chunk_files=_parsed(files.removesuffix("+"), line),
        limit_bytes=_parsed(limit, line),
        limit_chunk_files=_parsed(files_limit, line),
    )


def _parsed(word: str, line: str) -> int | None:
    if word in ("unlimited", "-"):
        return None
    if not word.isascii() or not word.isdigit():
        raise ToolFailed(f"`beegfs-ctl --getquota` told {word!r} where a number was to be: {line!r}")
    return None if int(word) >= _UNLIMITED else int(word)
