"""Which known faults a version of GlusterFS has, as far as they matter to whoever drains, adds or reads bricks. Pure.

`#N` is the number of the report at github.com/gluster/glusterfs.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from migrator.domain.brick_list import GlusterFault

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A fault of the versions from `since` (None: from the beginning) up to, and without, `until` (None: of all)."""

    fault: str
    advice: str
    since: Version | None = None
    until: Version | None = None
    stops_drain: bool = False
    reference: str = ""


_KNOWN = (
    _Known(
        fault="a rebalance, and so a drain, deletes data files where link-to files exist",
        advice="upgrade every server to 11.1 or later before any drain or rebalance",
        since=(11, 0),
        until=(11, 1),
        stops_drain=True,
        reference="#4148",
    ),
    _Known(
        fault="files were lost in a rebalance",
        advice="upgrade before any drain or rebalance",
        until=(6, 9),
        stops_drain=True,
        reference="#885",
    ),
    _Known(
        fault="`remove-brick commit` is accepted although files failed or were skipped",
        advice="never commit by hand: `migrator` commits only with no failure, nothing skipped, and an empty brick",
        until=(9, 0),
    ),
    _Known(
        fault="a drain says `completed` although it could not move every file",
        advice="look at failures and skipped, and at the brick itself, before a commit; never use `force`",
        reference="#2350",
    ),
    _Known(
        fault="symlinks that are hard-linked cannot be moved: one failure each",
        advice="list them before a drain, and give each name a symlink of its own",
    ),
    _Known(
        fault="a rebalance never moves hard-linked files: it skips them",
        advice="expect skipped files after a rebalance; a drain does move them",
        reference="#1530",
    ),
    _Known(
        fault="the estimate that Gluster gives for a rebalance is wrong",
        advice="use the one of `migrator`, which is worked out from what was moved",
        reference="#1507",
    ),
    _Known(
        fault="after a reboot, a crash or a replaced brick the status of a rebalance or drain may be wrong",
        advice="do not believe a status that nothing confirms: the brick itself is looked at",
        reference="#1339, #1815, #3458, #1717",
    ),
    _Known(
        fault="a drain that was stopped begins from the start when it is begun again",
        advice="do not stop a drain that goes on: slow it down with `cluster.rebal-throttle`",
        reference="#608",
    ),
    _Known(
        fault="files appear twice after a rebalance, a rename, or where a link-to file is stale",
        advice="a scan of the bricks finds such paths and asks the mount about them",
        reference="#3309, #2568, #3436",
    ),
    _Known(
        fault="after a rebalance files may be listed and yet not be found by their name, while `cluster.lookup-optimize` is on",
        advice="`migrator` sets `cluster.lookup-optimize` to `off` before a drain or an addition, and leaves it so; where bricks were "
        "drained or added by hand, set it yourself: what was not found is found again at once",
        reference="#973, #118, #1918",
    ),
    _Known(
        fault="a client hangs that asks for a file which was put on a brick past Gluster, while `cluster.lookup-optimize` is off",
        advice="never write to bricks; `migrator scan --via bricks` finds such files, and no drain or addition begins over them",
        reference="#3688",
    ),
    _Known(
        fault="directories that are looked up while new bricks get theirs may become root's, with mode 0000, or get another mode",
        advice="add bricks while few users work; `brick add` gives directories back what they had, and lists what it cannot tell "
        "from what users did",
    ),
    _Known(
        fault="hard-linked files keep a mark of a drain that touched them, and the next drain of their brick fails on them",
        advice="`brick drain` looks for such marks before it begins, and tells the command that takes them off",
    ),
    _Known(
        fault="a move that failed leaves the bits S and T on the mode of the file",
        advice="after a drain or rebalance that failed, `find BRICK -type f -perm -3000` names such files; once nothing moves any more, "
        "`chmod` through the mount takes them off",
        reference="#1625",
    ),
    _Known(
        fault="clients are up to three times slower while a fix-layout goes on",
        advice="add bricks while few users work; the probes tell what users feel",
        reference="#1623",
    ),
    _Known(
        fault="files of mode `---------T+` become visible after a fix-layout",
        advice="scan again after it; they are link-to files, not data",
        reference="#4122",
    ),
    _Known(
        fault="a lock that is left behind by a drain can hang the fix-layout after it",
        advice="watch the fix-layout; where it stands still, restart the brick processes of that subvolume one by one",
        reference="PR 4755",
    ),
    _Known(
        fault="clients get ESTALE during a rebalance, and renames fail right after a commit",
        advice="drain while few users work, and tell them",
        reference="#4216, #1811",
    ),
    _Known(
        fault="with one distribute brick down the mount shows fewer files, and no error",
        advice="check that every brick is up before and after each copy; `migrator` does",
        reference="#1729",
    ),
    _Known(
        fault="directories are not seen after `add-brick` until their layout is put right",
        advice="run a fix-layout right after `add-brick`",
        reference="#1513",
    ),
    _Known(
        fault="a brick that is added again with old data on it doubles directories",
        advice="always make a new file system before `add-brick`",
        reference="#2514",
    ),
)


def parse_version(text: str) -> Version | None:
    """The numbers of `glusterfs 10.3` or `10.3-5`; None where there are none."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return None if found is None else tuple(int(part) for part in found[0].split("."))


def known_faults(version: str | None) -> tuple[GlusterFault, ...]:
    """The faults of a version, those that stop a drain first. A version that is not known has them all."""
    numbers = None if version is None else parse_version(version)
    found = [known for known in _KNOWN if numbers is None or _has(known, numbers)]
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


def faults_of_all(versions: Collection[str | None]) -> tuple[GlusterFault, ...]:
    """The faults that any of several versions has, each once, those that stop a drain first."""
    found = dict.fromkeys(fault for version in versions for fault in known_faults(version))
    return tuple(sorted(found, key=lambda fault: not fault.stops_drain))


def version_problems(
    versions: Mapping[str, str | None] | None, hosts: Collection[str], *, otherwise: str = ""
) -> Iterator[str]:
    """Why files are not to be moved between bricks on these hosts, by the version of each: one that loses files, or that is not
    known. `otherwise` ends every sentence with what can be done all the same.
    """
    if not versions:
        yield f"the version of GlusterFS on the hosts is not known, so its faults are not{otherwise}"
        return
    for host in sorted({*hosts, *versions}):
        version = versions.get(host)
        if version is None or parse_version(version) is None:
            yield f"the version of GlusterFS on {host} is not known, so its faults are not{otherwise}"
            continue
        for fault in known_faults(version):
            if fault.stops_drain:
                yield f"GlusterFS {version} on {host}: {fault.fault} ({fault.reference}); {fault.advice}{otherwise}"


def _has(known: _Known, version: Version) -> bool:
    return (known.since is None or version >= known.since) and (known.until is None or version < known.until)


def _versions(known: _Known) -> str:
    words = []
    if known.since is not None:
        words.append(f"from {_shown(known.since)}")
    if known.until is not None:
        words.append(f"before {_shown(known.until)}")
    return ", ".join(words) or "all that are known"


def _shown(version: Version) -> str:
    return ".".join(map(str, version))
