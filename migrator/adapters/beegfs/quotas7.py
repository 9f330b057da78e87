"""Quotas by `beegfs-ctl --getquota --csv` of version 7, whose form is that of its sources."""

import re
from collections.abc import Collection, Mapping

from migrator.domain.errors import ToolFailed
from migrator.domain.quota import UserQuota

AT_ONCE = 500
"""So many users are asked for in one call."""

_HEAD = "name,id,size,hard,files,hard"
_POOL = re.compile(r"Quota information for storage pool .* \(ID: \d+\):")
_COLUMNS = 5
_UNLIMITED = (1 << 64) - 1


def words(uids: Collection[int], pool: int | None) -> tuple[str, ...]:
    """What is asked; `pool` None: the only storage pool."""
    listed = ",".join(str(uid) for uid in sorted(uids))
    # The list is found as the word that is no option.
    of_pool = () if pool is None else (f"--storagepoolid={pool}",)
    return ("--getquota", "--uid", "--list", listed, "--csv", *of_pool)


def parse_quotas(output: bytes, uids: Collection[int]) -> Mapping[int, UserQuota]:
    """Of these users; one whose numbers no server could tell is left out. Raises ToolFailed."""
    lines = [line for line in output.decode("utf-8", "replace").split("\n") if line.strip()]
    tables = [number for number, line in enumerate(lines) if line == _HEAD]
    if len(tables) != 1 or any(not _POOL.fullmatch(line) for line in lines[: tables[0]]):
        raise ToolFailed("`beegfs-ctl --getquota` has another form than is known, or tells of several storage pools")
    found = {}
    for line in lines[tables[0] + 1 :]:
        quota = _quota(line)
        if quota.uid in uids:
            found[quota.uid] = quota
    return found


def _quota(line: str) -> UserQuota:
    # A name may hold anything; the columns after it do not.
    columns = line.rsplit(",", _COLUMNS)
    if len(columns) != _COLUMNS + 1:
        raise ToolFailed(f"`beegfs-ctl --getquota` told something that is no quota: {line!r}")
    _, uid, used, limit, files, files_limit = columns
    number = _parsed(uid, line)
    if number is None:
        raise ToolFailed(f"`beegfs-ctl --getquota` told of nobody: {line!r}")
    return UserQuota(
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
