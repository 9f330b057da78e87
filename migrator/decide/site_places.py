"""Whether the places that a site names are what they are taken for. Pure: from facts to findings and sentences."""

from collections.abc import Collection, Iterable, Sequence

from migrator.decide.site_guards import kind_problem
from migrator.domain.finding import Finding, failure, ok, warning
from migrator.domain.mounts import Mount, mount_of
from migrator.domain.paths import is_beneath, show
from migrator.domain.site import MountIdentity
from migrator.domain.units import several

_GLUSTER = "fuse.glusterfs"
_SHOWN = 3


def misplaced(directories: Iterable[tuple[str, bytes]], roots: Iterable[tuple[str, bytes]]) -> str | None:
    """A sentence where a directory of the program (by its key) lies in one of the file systems (by side) that it reads
    or writes. All paths are absolute and without symlinks.
    """
    sides = tuple(roots)
    for key, directory in directories:
        for side, root in sides:
            if is_beneath(directory, root.rstrip(b"/")):
                return f"[site] {key} {show(directory)} lies on the {side} ({show(root)})"
    return None


def unmounted_problem(where: str, kind: str, root: bytes, mounts: Sequence[Mount]) -> str | None:
    """A sentence where a place of kind `posix` is a plain directory: then nothing shows whether anything is mounted.

    For the other kinds the type of the file system tells. `root` is absolute and without symlinks.
    """
    mount = mount_of(mounts, root)
    if kind != "posix" or mount is None or mount.point == root:
        return None
    source = show(mount.source)
    return (
        f"{where} is no mount point: {show(root)} is a directory of {mount.filesystem} from {source}, mounted at "
        f"{show(mount.point)}; if a file system of its own belongs there, it is not mounted"
    )


def one_device_problem(source: MountIdentity, target: MountIdentity) -> str | None:
    """A sentence where both sides lie on one local file system."""
    if source.device is None or source.device != target.device:
        return None
    return f"source and target are on one file system ({target.filesystem} from {target.mounted_from})"


def check_places(
    sides: Iterable[tuple[str, str, bytes]],
    mounts: Sequence[Mount],
    source: MountIdentity | None,
    target: MountIdentity | None,
) -> list[Finding]:
    """Are source and target mounts, and not one file system? `sides`: name, kind, root."""
    findings = [
        warning(f"{side} place", problem, "mount it; where a plain directory is meant, as in a lab, all is well")
        for side, kind, root in sides
        if (problem := unmounted_problem(f"the {side}", kind, root, mounts))
    ]
    if source is not None and target is not None and (problem := one_device_problem(source, target)):
        findings.append(
            warning("target place", problem, "if the target is to be another one, mount it; in a lab all is well")
        )
    return findings


def unusable_source(kind: str, volume: str | None, identity: MountIdentity | None) -> Finding | None:
    """Why the health of the source is not asked for: it is not mounted, or another volume is than site.toml names.

    The health of a volume says nothing about what another one, or a bare directory, shows.
    """
    check = "source health"
    if identity is None:
        return failure(check, "not known: the source cannot be read", "mend what is told of the source mount first")
    if kind_problem(identity, kind, where="the source"):
        fix = "mount the source first" + (f": volume {volume}" if volume else "")
        return failure(check, "not known: the source is not mounted", fix)
    if kind != "gluster" or volume is None or identity.filesystem != _GLUSTER:
        return None
    mounted = mounted_volume(identity.mounted_from)
    if mounted == volume:
        return None
    return failure(
        check,
        f"[source] volume is {volume}, but the mount is of {mounted} ({identity.mounted_from})",
        f'put [source] volume = "{mounted}" into site.toml, or mount volume {volume}',
    )


def mounted_volume(mounted_from: str) -> str:
    """`gl1:/vol1/below` is volume `vol1`."""
    return mounted_from.rpartition(":")[2].strip("/").partition("/")[0]


def check_globs(matches: Iterable[tuple[str, int]], problem: str, fix: str, trees: int) -> list[Finding]:
    """Does every glob of [users] trees match a directory, and do they make user trees? `problem` says why they do not,
    with its fix; empty where they do. `trees` counts the user trees.
    """
    check = "user trees"
    findings = [
        failure(
            check,
            f"[users] trees: {glob!r} matches no directory of the source",
            "put it right in site.toml: globs are relative to the source's mount, as in `home/*`; or take it out",
        )
        for glob, count in matches
        if count == 0
    ]
    if findings:
        return findings
    if problem:
        return [failure(check, problem, fix)]
    return [ok(check, f"{several(trees, 'user tree')}")]


def check_catalog_trees(catalog: str, scanned: Collection[bytes], now: Collection[bytes]) -> Finding | None:
    """Has the latest catalog the user trees that [users] makes now? Plans are made from catalogs."""
    lacking, gone = sorted(set(now) - set(scanned)), sorted(set(scanned) - set(now))
    if not lacking and not gone:
        return None
    said = [
        f"{words} {', '.join(map(show, paths[:_SHOWN]))}{', ...' if len(paths) > _SHOWN else ''}"
        for words, paths in (("it has not", lacking), ("it has besides", gone))
        if paths
    ]
    return warning(
        "user trees",
        f"catalog {catalog} was made with other user trees than [users] gives now: {'; '.join(said)}",
        "run `migrator scan`: a plan takes the trees of its catalog",
    )
