"""`init`: a commented site.toml, the sentinels, and the record that later guards compare with."""

import errno
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.clock import Clock
from migrator.core.durable import replacing
from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.fs.beneath import held
from migrator.fs.kinds.table import KINDS, PLAIN, kind_at
from migrator.fs.model import SENTINEL_NAME, Mount, MountIdentity, mount_of
from migrator.fs.ports import FileSystem
from migrator.ledger.model import SiteRecord
from migrator.site import rules_guards
from migrator.site.config import Site
from migrator.site.load import parse_site
from migrator.site.render import DEFAULT_TREES, SiteDraft, render_site

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger

# The proposal for a new site.toml, from the mounts of this machine and the options


_GLUSTER, _BEEGFS = KINDS["gluster"].types, KINDS["beegfs"].types


def draft_site(
    mounts: Sequence[Mount],
    *,
    source_mount: Path | None = None,
    target_mount: Path | None = None,
    trees: tuple[str, ...] = (),
    state_dir: Path | None = None,
) -> SiteDraft:
    """The content of a new site.toml. Source and target are as named, or else the only Gluster and BeeGFS mounts.

    Raises UsageError if a side is not named and has no candidate, or several, and if another volume is named.
    """
    source = _real(source_mount) or _only(mounts, _GLUSTER, "source", "GlusterFS")
    target = _real(target_mount) or _only(mounts, _BEEGFS, "target", "BeeGFS")
    on_source, on_target = mount_of(mounts, source), mount_of(mounts, target)
    volume = None
    if on_source and on_source.filesystem in _GLUSTER:
        volume = rules_guards.mounted_volume(on_source.source.decode("ascii", "replace")) or None
    source_kind, target_kind = (kind_at(mounts, place) for place in (source, target))
    mount, path = target, b""
    if on_target and on_target.filesystem in _BEEGFS:
        mount = on_target.point
        path = target[len(mount.rstrip(b"/")) :].strip(b"/")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{volume or show(source.rpartition(b'/')[2])}-to-{target_kind}").lstrip(
        "._-"
    )
    return SiteDraft(
        name=name,
        source_kind=source_kind if volume or source_kind != "gluster" else "posix",
        source_mount=Path(os.fsdecode(source)),
        volume=volume,
        target_kind=target_kind,
        target_mount=Path(os.fsdecode(mount)),
        target_path=os.fsdecode(path),
        trees=trees or DEFAULT_TREES,
        state_dir=state_dir,
    )


def _real(path: Path | None) -> bytes | None:
    return None if path is None else os.fsencode(os.path.realpath(path))


def _only(mounts: Sequence[Mount], kinds: tuple[str, ...], side: str, name: str) -> bytes:
    found = [mount for mount in mounts if mount.filesystem in kinds]
    if len(found) == 1:
        return found[0].point
    option = f"--{side}-mount DIR"
    if not found:
        raise UsageError(
            f"no {name} file system is mounted on this machine for the {side}",
            cause="it is not mounted, or it is of another kind",
            hint=f"mount it, or name the {side}: {option}",
        )
    listed = ", ".join(f"{show(mount.point)} ({show(mount.source)})" for mount in found)
    raise UsageError(f"more than one {name} file system could be the {side}: {listed}", hint=f"name one: {option}")


# Sentinels: the file in the root of each file system that identifies it


def leave_sentinel(root: bytes, site_id: str, *, unfinished: bool = False) -> None:
    """Write the sentinel, durable on return; first remove one that a crash of this site left `unfinished`. Raises
    OSError; FileExistsError if there is one.
    """
    with held(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
        if unfinished:
            os.unlink(SENTINEL_NAME, dir_fd=directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with held(os.open(SENTINEL_NAME, flags, 0o600, dir_fd=directory)) as file:
            try:
                os.write(file, f"{site_id}\n".encode("ascii"))
                os.fsync(file)
            except OSError:
                # Of a full file system: an empty file would identify nothing.
                with suppress(OSError):
                    os.unlink(SENTINEL_NAME, dir_fd=directory)
                raise
        os.fsync(directory)


# Refusals, before anything is written: a refused `init` leaves no trace


def refuse_misplaced(site: Site) -> None:
    """Raise UsageError if the state or the plans would be on the source or on the target."""
    # On a plain file system only the root of the trees is reserved; elsewhere the state must not be anywhere on the mount.
    target = site.target.root if site.target.kind in PLAIN else site.target.mount
    roots = [
        (side, os.path.realpath(os.fsencode(root)))
        for side, root in (("source", site.source.mount), ("target", target))
    ]
    directories = [
        (key, os.path.realpath(os.fsencode(directory)))
        for key, directory in (("state_dir", site.site.state_dir), ("plans_dir", site.site.plans_dir))
    ]
    if problem := rules_guards.misplaced(directories, roots):
        raise UsageError(
            problem,
            cause="migrator would migrate or overwrite its own files together with those of users",
            hint="keep both on a local disk: `--state-dir DIR` or [site] state_dir; plans lie beside site.toml, or in [site] "
            "plans_dir",
        )


def check_new_site(site: Site, *, source: FileSystem, target: FileSystem, mounts: Sequence[Mount]) -> None:
    """Check all that a first `init` requires, without changing anything. Raises Refused, or MigratorError if the
    target is read-only.
    """
    source_now = read_identity(source, site.source.kind, "the source")
    refuse_empty_source(source)
    if site.target.path and not os.path.lexists(site.target.root):
        _look_at_mount(site, mounts)
        return
    target_now = read_identity(target, site.target.kind, "the target")
    if problem := rules_guards.same_place_problem(source_now, target_now):
        raise Refused(problem, hint="correct [source] mount and [target] mount in site.toml")
    refuse_foreign_target(target, target_now)
    if target.capacity().read_only:
        raise target_not_writable(target.root, OSError(errno.EROFS, os.strerror(errno.EROFS)))


def notes_on_places(
    site: Site, mounts: Sequence[Mount], *, source: MountIdentity, target: MountIdentity
) -> tuple[str, ...]:
    """Sentences about sides that are not mount points, and about two sides on one file system."""
    sides = (("source", site.source.kind, site.source.mount), ("target", site.target.kind, site.target.mount))
    real = [(side, kind, os.path.realpath(os.fsencode(root))) for side, kind, root in sides]
    return tuple(finding.message for finding in rules_guards.check_places(real, mounts, source, target))


def _look_at_mount(site: Site, mounts: Sequence[Mount]) -> None:
    """`init` creates [target] path, but only on a file system of the right kind."""
    place = os.path.realpath(os.fsencode(site.target.mount))
    mount = mount_of(mounts, place)
    if not Path(os.fsdecode(place)).is_dir() or mount is None:
        raise _not_readable("the target", place, "is no directory")
    if problem := rules_guards.kind_problem(mount.filesystem, show(mount.source), site.target.kind, where="the target"):
        raise Refused(problem, hint=f"mount it at {show(place)}, or correct site.toml")


def _not_readable(where: str, place: bytes, why: str) -> Refused:
    return Refused(
        f"{where} cannot be read: {show(place)}: {why}",
        cause="it is not mounted, or site.toml names another place",
        hint="mount it, or correct site.toml",
    )


def read_identity(filesystem: FileSystem, kind: str, where: str) -> MountIdentity:
    """The identity of a mounted file system. Raises Refused if it cannot be read, or is not of the kind in site.toml."""
    try:
        identity = filesystem.identity()
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0:
            raise Refused(
                f"{where} cannot be read by this user: {show(filesystem.root)}: {error.strerror}",
                cause="only root can read and write the files of all users",
                hint="run the same command as root",
            ) from None
        raise _not_readable(where, filesystem.root, str(error.strerror)) from None
    if problem := rules_guards.kind_problem(identity.filesystem, identity.mounted_from, kind, where=where):
        raise Refused(problem, hint=f"mount it at {show(filesystem.root)}, or correct site.toml")
    return identity


def refuse_foreign_target(target: FileSystem, identity: MountIdentity) -> None:
    """Raise Refused if the target has a sentinel."""
    if identity.sentinel is None:
        return
    raise Refused(
        f"the target belongs to another migration: {show(target.root)} holds its sentinel ({identity.sentinel})",
        cause="two migrations use the same target, or the ledger of this one was lost",
        hint="give this one a target of its own ([target] path), or bring its state directory back from the backup; "
        f"only if that migration is given up for good, remove {show(target.root + b'/' + SENTINEL_NAME)}",
    )


def refuse_empty_source(source: FileSystem) -> None:
    """Raise Refused if the source's root is empty."""
    for block in source.read_directory(b"", block_entries=1):
        if block.entries or block.problems:
            return
    raise Refused(
        f"the source is empty: {show(source.root)}",
        cause="the file system is not mounted: this is its mount point",
        hint="mount it; if it is mounted and empty, there is nothing to migrate",
    )


def target_not_writable(root: bytes, error: OSError) -> MigratorError:
    """The error of a target that cannot be written."""
    return MigratorError(
        f"the target cannot be written: {show(root)}: {error.strerror}",
        cause="it is mounted read-only, or this user has no write permission",
        hint="mount it for writing, and run the command as root",
    )


# The steps of `init`
#
# The intent is in the ledger before a sentinel is written. After a crash at any point the same command completes, and
# no sentinel is unknown to the ledger.


_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT)
"""Sites migrate because they are full, so a full source is used as one that is mounted read-only."""


class InitResult(Struct, frozen=True, kw_only=True):
    """The result of `init`."""

    site_id: str
    """Id of the migration."""
    created: bool
    """It was created by this call."""
    source: MountIdentity
    """The file system of the source."""
    target: MountIdentity
    """The file system of the target."""
    done: tuple[str, ...]
    """What was done, in sentences."""
    notes: tuple[str, ...]
    """Remarks, in sentences."""


def site_of(draft: SiteDraft, file: Path) -> Site:
    """The site of a draft, before it is written. Raises UsageError for mistakes (source and target within each other,
    a state directory in either).
    """
    site = parse_site(render_site(draft), file)
    refuse_misplaced(site)
    return site


def write_site_file(file: Path, draft: SiteDraft) -> None:
    """Write a new site.toml; an existing one is never overwritten. Raises UsageError, for mistakes in the draft
    before anything is written.
    """
    site_of(draft, file)
    text = render_site(draft)
    try:
        with replacing(file, exclusive=True) as stream:
            stream.write(text.encode())
    except FileExistsError:
        raise UsageError(
            f"{file} already exists; init does not overwrite it",
            hint="edit it, then run `migrator init` without options to complete the setup",
        ) from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


def make_state_directory(site: Site) -> None:
    """Create the state directory, accessible to root only, before the ledger is opened. May be called again. Raises
    UsageError, also if it is on the source or the target.
    """
    refuse_misplaced(site)
    directory, hint = site.site.state_dir, "correct [site] state_dir in site.toml"
    with UsageError.of_files(f"cannot create the state directory {directory}", hint=hint):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)


def record_site(
    site: Site,
    *,
    source: FileSystem,
    target: FileSystem,
    ledger: "Ledger",
    clock: Clock,
    new_site_id: Callable[[], str],
    make_journal: Callable[[], bool],
    mounts: Sequence[Mount] = (),
) -> InitResult:
    """Record both file systems and write the sentinels; a repeated call adds the missing ones.

    If a device number changed (after a reboot) and the sentinel is right, the new number is recorded. `new_site_id`
    returns a random UUID; `make_journal` makes the journal if it is missing, and returns whether it was; `mounts` are
    this machine's, for the notes. Raises Refused if a file system is not the expected one, and MigratorError if the
    target cannot be written.
    """
    done: list[str] = []
    source_now = read_identity(source, site.source.kind, "the source")
    _make_target_root(site, done)
    target_now = read_identity(target, site.target.kind, "the target")
    if problem := rules_guards.same_place_problem(source_now, target_now):
        raise Refused(problem, hint="correct [source] mount and [target] mount in site.toml")
    record = ledger.site.read()
    created = record is None
    if record is None:
        refuse_foreign_target(target, target_now)
        refuse_empty_source(source)
        record = _intend(site.site.name, new_site_id(), clock.now_s(), source=source_now, target=target_now)
        ledger.site.create(record)
        done.append("created the ledger")
    else:
        _refuse_other(record.source, source_now, record.site_id, "the source")
        _refuse_other(record.target, target_now, record.site_id, "the target")
    try:
        if _leave(target, target_now, record.site_id):
            done.append("wrote the sentinel on the target")
        if make_journal():
            done.append("created the journal on the target")
    except OSError as error:
        raise target_not_writable(target.root, error) from None
    notes = [*_complete_source(source, source_now, record.site_id, done)]
    source_now, target_now = source.identity(), target.identity()
    notes += notes_on_places(site, mounts, source=source_now, target=target_now)
    if (source_now, target_now) != (record.source, record.target):
        ledger.site.update_identities(source_now, target_now)
        if not created:
            done.append("recorded both file systems again")
    if created:
        message = f"source {_described(source_now)}, target {_described(target_now)}"
        ledger.events.note(clock.now_s(), EventKind.SITE_CREATED, Severity.INFO, site.site.name, message)
    return InitResult(
        site_id=record.site_id,
        created=created,
        source=source_now,
        target=target_now,
        done=tuple(done),
        notes=tuple(notes),
    )


def _described(identity: MountIdentity) -> str:
    return f"{identity.filesystem} from {show(os.fsencode(identity.mounted_from))}"


def _make_target_root(site: Site, done: list[str]) -> None:
    if not site.target.path:
        return
    place = site.target.mount
    for part in Path(site.target.path).parts:
        place /= part
        try:
            place.mkdir(mode=0o700)
            place.chmod(0o755)  # users pass through it, whatever the umask is
        except FileExistsError:
            continue
        except OSError as error:
            raise target_not_writable(os.fsencode(place), error) from None
        done.append(f"made {show(os.fsencode(place))}")


def _intend(name: str, site_id: str, at_s: float, *, source: MountIdentity, target: MountIdentity) -> SiteRecord:
    return SiteRecord(
        site_id=site_id,
        name=name,
        created_at_s=at_s,
        # A source may carry the sentinel of another migration, which then identifies it.
        source=source if source.sentinel is not None else replace(source, sentinel=site_id),
        target=replace(target, sentinel=site_id),
        capabilities=None,
        capabilities_probed_at_s=None,
    )


def _refuse_other(recorded: MountIdentity, current: MountIdentity, site_id: str, where: str) -> None:
    """Refuse another file system than the recorded one. The right sentinel identifies it, whatever numbers changed;
    without a sentinel all else must be equal, or an empty directory could be recorded as the data.
    """
    if current.sentinel is not None and current.sentinel == recorded.sentinel:
        return
    sentinel = current.sentinel
    if _is_unfinished(current.sentinel, site_id):
        sentinel = recorded.sentinel
    elif current.sentinel is None:
        recorded = replace(recorded, sentinel=None)
    problems = rules_guards.mount_problems(recorded, replace(current, sentinel=sentinel), where=where)
    if problems:
        raise Refused(
            "; ".join(problems),
            cause="the mounted file systems are not those of this site",
            hint="mount the recorded file system; a new migration needs its own state directory",
        )


def _is_unfinished(sentinel: str | None, site_id: str) -> bool:
    """True if the sentinel is empty or truncated, as after a crash during its only write."""
    return sentinel is not None and sentinel != site_id and site_id.startswith(sentinel)


def _complete_source(filesystem: FileSystem, identity: MountIdentity, site_id: str, done: list[str]) -> Sequence[str]:
    if identity.sentinel not in (None, site_id) and not _is_unfinished(identity.sentinel, site_id):
        return (
            f"the source carries the sentinel of another migration ({identity.sentinel}): it is identified by that sentinel",
        )
    try:
        if _leave(filesystem, identity, site_id):
            done.append("wrote the sentinel on the source")
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise MigratorError(
                f"cannot write the sentinel on the source: {show(filesystem.root)}: {error.strerror}",
                hint="check the file system, then run `migrator init` again",
            ) from None
        return (
            f"the source cannot be written ({error.strerror}): it is recorded without a sentinel, "
            "by its file system, device and root alone; `migrator init` again writes the sentinel once the source is writable",
        )
    return ()


def _leave(filesystem: FileSystem, identity: MountIdentity, site_id: str) -> bool:
    """Leave the sentinel if it is missing; False if it was there. Raises OSError."""
    if identity.sentinel == site_id:
        return False
    leave_sentinel(filesystem.root, site_id, unfinished=_is_unfinished(identity.sentinel, site_id))
    return True
