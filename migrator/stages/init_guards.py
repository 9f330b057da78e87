"""What `init` refuses, before it has written anything: a refused `init` leaves nothing behind."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from migrator.config.site import Site
from migrator.decide.site_guards import kind_problem, same_place_problem
from migrator.decide.site_places import misplaced, one_device_problem, unmounted_problem
from migrator.domain.errors import MigratorError, Refused, UsageError
from migrator.domain.mounts import Mount, mount_of
from migrator.domain.paths import show
from migrator.domain.site import SENTINEL_NAME, MountIdentity
from migrator.ports.filesystem import FileSystem


def refuse_misplaced(site: Site) -> None:
    """Raise UsageError where the state or the plans would lie in what is migrated, or in what it is migrated to."""
    # Of a plain file system the program has its root; of one that is shared by others, nothing of it is its own.
    target = site.target.root if site.target.kind == "posix" else site.target.mount
    roots = [
        (side, os.path.realpath(os.fsencode(root)))
        for side, root in (("source", site.source.mount), ("target", target))
    ]
    directories = [
        (key, os.path.realpath(os.fsencode(directory)))
        for key, directory in (("state_dir", site.site.state_dir), ("plans_dir", site.site.plans_dir))
    ]
    if problem := misplaced(directories, roots):
        raise UsageError(
            problem,
            cause="what the program knows would be migrated, or overwritten, together with users' files",
            hint="keep both on a local disk: `--state-dir DIR` or [site] state_dir; plans lie beside site.toml, or in [site] "
            "plans_dir",
        )


def check_new_site(site: Site, *, source: FileSystem, target: FileSystem, mounts: Sequence[Mount]) -> None:
    """Everything that a first `init` refuses, looked at without a trace. Raises Refused, or MigratorError for a target
    that cannot be written.
    """
    source_now = look(source, site.source.kind, "the source")
    refuse_empty_source(source)
    if site.target.path and not os.path.lexists(site.target.root):
        _look_at_mount(site, mounts)
        return
    target_now = look(target, site.target.kind, "the target")
    if problem := same_place_problem(source_now, target_now):
        raise Refused(problem, hint="put [source] mount and [target] mount right in site.toml")
    refuse_foreign_target(target, target_now)
    if target.capacity().read_only:
        raise target_not_writable(target.root, OSError(errno.EROFS, os.strerror(errno.EROFS)))


def notes_on_places(
    site: Site, mounts: Sequence[Mount], *, source: MountIdentity, target: MountIdentity
) -> tuple[str, ...]:
    """Sentences about a side that is no mount of its own, and about two sides on one file system."""
    sides = (("the source", site.source.kind, site.source.mount), ("the target", site.target.kind, site.target.mount))
    problems = [
        unmounted_problem(where, kind, os.path.realpath(os.fsencode(root)), mounts) for where, kind, root in sides
    ]
    return tuple(problem for problem in (*problems, one_device_problem(source, target)) if problem)


def _look_at_mount(site: Site, mounts: Sequence[Mount]) -> None:
    """`init` makes [target] path, but only on the file system that it belongs to."""
    place = os.path.realpath(os.fsencode(site.target.mount))
    mount = mount_of(mounts, place)
    if not Path(os.fsdecode(place)).is_dir() or mount is None:
        raise Refused(
            f"the target cannot be read: {show(place)} is no directory",
            cause="it is not mounted, or site.toml names another place",
            hint="mount it, or put site.toml right",
        )
    identity = MountIdentity(
        filesystem=mount.filesystem,
        mounted_from=os.fsdecode(mount.source),
        device=None,
        fsid=None,
        root_ino=0,
        sentinel=None,
    )
    if problem := kind_problem(identity, site.target.kind, where="the target"):
        raise Refused(problem, hint=f"mount it at {show(place)}, or put site.toml right")


def look(filesystem: FileSystem, kind: str, where: str) -> MountIdentity:
    """What is mounted there. Raises Refused where it cannot be read, or is of another kind than site.toml names."""
    try:
        identity = filesystem.identity()
    except OSError as error:
        raise Refused(
            f"{where} cannot be read: {show(filesystem.root)}: {error.strerror}",
            cause="it is not mounted, or site.toml names another place",
            hint="mount it, or put site.toml right",
        ) from None
    if problem := kind_problem(identity, kind, where=where):
        raise Refused(problem, hint=f"mount it at {show(filesystem.root)}, or put site.toml right")
    return identity


def refuse_foreign_target(target: FileSystem, identity: MountIdentity) -> None:
    """Raise Refused where the target carries a sentinel."""
    if identity.sentinel is None:
        return
    raise Refused(
        f"the target belongs to another migration: {show(target.root)} holds its sentinel ({identity.sentinel})",
        cause="two migrations are given the same target, or the ledger of this one was lost",
        hint="give this one a target of its own ([target] path), or bring its state directory back from the backup; "
        f"only if that migration is given up for good, remove {show(target.root + b'/' + SENTINEL_NAME)}",
    )


def refuse_empty_source(source: FileSystem) -> None:
    """Raise Refused where the source shows nothing at all."""
    for block in source.read_directory(b"", block_entries=1):
        if block.entries or block.problems:
            return
    raise Refused(
        f"the source is empty: {show(source.root)}",
        cause="the file system is not mounted: this is the directory below it",
        hint="mount it; if it is mounted and empty, there is nothing to migrate",
    )


def target_not_writable(root: bytes, error: OSError) -> MigratorError:
    """The error of a target that does not let itself be written."""
    return MigratorError(
        f"the target cannot be written: {show(root)}: {error.strerror}",
        cause="it is mounted read-only, or this user may not write there",
        hint="mount it for writing, and run this as root",
    )
