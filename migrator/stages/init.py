"""`init`: a commented site.toml, and then the record of both file systems that every later guard compares with.

The intent goes into the ledger before a sentinel is written, so that a crash at any point leaves something that the
same command completes, and never a sentinel that nobody knows.
"""

import errno
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.config.load import parse_site
from migrator.config.render import DEFAULT_TREES, SiteDraft, render_site
from migrator.config.site import Site
from migrator.decide.site_draft import ProposedSite, propose_site
from migrator.decide.site_guards import mount_problems, same_place_problem
from migrator.domain.errors import MigratorError, Refused, UsageError
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.mounts import Mount
from migrator.domain.paths import show
from migrator.domain.site import MountIdentity
from migrator.ports.clock import Clock
from migrator.ports.filesystem import FileSystem
from migrator.ports.ledger import Ledger
from migrator.ports.site import SiteRecord
from migrator.stages.init_guards import (
    look,
    notes_on_places,
    refuse_empty_source,
    refuse_foreign_target,
    refuse_misplaced,
    target_not_writable,
)
from migrator.stages.sentinel import leave_sentinel, remove_unfinished_sentinel

_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
_SITE_ID = re.compile(r"[0-9a-zA-Z._-]{8,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    """What the user named on the command line; None: find out."""

    source_mount: Path | None = None
    target_mount: Path | None = None
    trees: tuple[str, ...] = ()
    name: str | None = None
    state_dir: Path | None = None
    volume: str | None = None
    gluster: str | None = None
    inodes_free: int | None = None

    @property
    def names_anything(self) -> bool:
        """Whether anything was named."""
        return self != InitRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class InitResult:
    """What `init` did. `created` is True the first time; `done` and `notes` are sentences."""

    site_id: str
    created: bool
    source: MountIdentity
    target: MountIdentity
    done: tuple[str, ...]
    notes: tuple[str, ...]


def draft_site(request: InitRequest, mounts: Sequence[Mount]) -> SiteDraft:
    """The content of a new site.toml, from what was named and what is mounted. Raises UsageError."""
    proposed = propose_site(mounts, source=_real(request.source_mount), target=_real(request.target_mount))
    _refuse_other_volume(request, proposed)
    return SiteDraft(
        name=request.name or proposed.name,
        source_kind=proposed.source_kind,
        source_mount=Path(os.fsdecode(proposed.source_mount)),
        volume=request.volume or proposed.volume,
        gluster=request.gluster,
        target_kind=proposed.target_kind,
        target_mount=Path(os.fsdecode(proposed.target_mount)),
        target_path=os.fsdecode(proposed.target_path),
        trees=request.trees or DEFAULT_TREES,
        state_dir=request.state_dir,
        inodes_free=request.inodes_free,
    )


def site_of(draft: SiteDraft, file: Path) -> Site:
    """The site that a draft describes, before it is written. Raises UsageError for mistakes (source and target in one
    another, a state directory in either).
    """
    site = parse_site(render_site(draft), file)
    refuse_misplaced(site)
    return site


def write_site_file(file: Path, draft: SiteDraft) -> None:
    """Write a new site.toml; one that is there is never overwritten. Raises UsageError, also for a draft with mistakes,
    before anything is written.
    """
    site_of(draft, file)
    text = render_site(draft)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise UsageError(
            f"{file} is there already; init does not overwrite it",
            hint="edit it, then run `migrator init` without options: it completes what is missing",
        ) from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def make_state_directory(site: Site) -> None:
    """Make the state directory, root's alone; before the ledger is opened. May be called again. Raises UsageError, also
    for one that lies on the source or on the target.
    """
    refuse_misplaced(site)
    try:
        site.site.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        site.site.state_dir.chmod(0o700)
    except OSError as error:
        raise UsageError(
            f"the state directory {site.site.state_dir} cannot be made: {error.strerror}",
            hint="put [site] state_dir right in site.toml",
        ) from None


def record_site(
    site: Site,
    *,
    source: FileSystem,
    target: FileSystem,
    ledger: Ledger,
    clock: Clock,
    new_site_id: Callable[[], str],
    mounts: Sequence[Mount] = (),
) -> InitResult:
    """Record both file systems and leave the sentinels; called again, it completes what is missing.

    Called again after a device got another number (a reboot), it records that, as long as the sentinel is right.
    `new_site_id` gives a random id of 8 to 64 letters, digits, `.`, `_`, `-`; `mounts` are this machine's, for the notes. Raises Refused where a file system is
    not the one that it should be, and MigratorError where the target cannot be written.
    """
    done: list[str] = []
    source_now = look(source, site.source.kind, "the source")
    _make_target_root(site, done)
    target_now = look(target, site.target.kind, "the target")
    if problem := same_place_problem(source_now, target_now):
        raise Refused(problem, hint="put [source] mount and [target] mount right in site.toml")
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
    if _complete(target, target_now, record.site_id):
        done.append("left the sentinel on the target")
    notes = [*_complete_source(source, source_now, record.site_id, done)]
    source_now, target_now = source.identity(), target.identity()
    notes += notes_on_places(site, mounts, source=source_now, target=target_now)
    if (source_now, target_now) != (record.source, record.target):
        ledger.site.update_identities(source_now, target_now)
        if not created:
            done.append("recorded both file systems anew")
    if created:
        ledger.events.add(
            Event(
                at_s=clock.now_s(),
                kind=EventKind.SITE_CREATED,
                severity=Severity.INFO,
                subject=site.site.name,
                message=f"source {_described(source_now)}, target {_described(target_now)}",
            )
        )
    return InitResult(
        site_id=record.site_id,
        created=created,
        source=source_now,
        target=target_now,
        done=tuple(done),
        notes=tuple(notes),
    )


def _real(path: Path | None) -> bytes | None:
    return None if path is None else os.fsencode(os.path.realpath(path))


def _refuse_other_volume(request: InitRequest, proposed: ProposedSite) -> None:
    """A volume that was named and is not what is mounted: most likely nothing is mounted there."""
    if request.volume is None or request.volume == proposed.volume:
        return
    found = f"volume {proposed.volume} is mounted there" if proposed.volume else "no GlusterFS volume is mounted there"
    raise UsageError(
        f"--volume {request.volume} is named, but {show(proposed.source_mount)} is not a mount of it: {found}",
        hint="mount the volume there, or name the place where it is mounted: --source-mount DIR",
    )


def _described(identity: MountIdentity) -> str:
    return f"{identity.filesystem} from {show(os.fsencode(identity.mounted_from))}"


def _make_target_root(site: Site, done: list[str]) -> None:
    if not site.target.path:
        return
    try:
        site.target.root.mkdir(mode=0o755, parents=True)
        done.append(f"made {show(os.fsencode(site.target.root))}")
    except FileExistsError:
        return
    except OSError as error:
        raise target_not_writable(os.fsencode(site.target.root), error) from None


def _intend(name: str, site_id: str, at_s: float, *, source: MountIdentity, target: MountIdentity) -> SiteRecord:
    if not _SITE_ID.fullmatch(site_id):
        raise ValueError("a site id holds 8 to 64 letters, digits, '.', '_' and '-'")
    return SiteRecord(
        site_id=site_id,
        name=name,
        created_at_s=at_s,
        # A source may carry the sentinel of another migration: then that one is the mark it is known by.
        source=source if source.sentinel is not None else replace(source, sentinel=site_id),
        target=replace(target, sentinel=site_id),
        capabilities=None,
        capabilities_probed_at_s=None,
    )


def _refuse_other(recorded: MountIdentity, current: MountIdentity, site_id: str, where: str) -> None:
    """Refuse what is not the recorded file system. The right sentinel proves it, whatever numbers changed; without one,
    everything else must be the same, or an empty directory would be recorded in the place of the data.
    """
    if current.sentinel is not None and current.sentinel == recorded.sentinel:
        return
    sentinel = current.sentinel
    if _is_unfinished(current.sentinel, site_id):
        sentinel = recorded.sentinel
    elif current.sentinel is None:
        recorded = replace(recorded, sentinel=None)
    problems = mount_problems(recorded, replace(current, sentinel=sentinel), where=where)
    if problems:
        raise Refused(
            "; ".join(problems),
            cause="something else is mounted than what this site was set up with",
            hint="mount the right one; a new migration needs a state directory of its own",
        )


def _is_unfinished(sentinel: str | None, site_id: str) -> bool:
    """A crash in the middle of its one write left it empty, or cut short."""
    return sentinel is not None and sentinel != site_id and site_id.startswith(sentinel)


def _complete(filesystem: FileSystem, identity: MountIdentity, site_id: str) -> bool:
    """Leave the sentinel where it is missing; False where it was there. Raises MigratorError where it cannot be."""
    try:
        return _leave(filesystem, identity, site_id)
    except OSError as error:
        raise target_not_writable(filesystem.root, error) from None


def _complete_source(filesystem: FileSystem, identity: MountIdentity, site_id: str, done: list[str]) -> Sequence[str]:
    if (
        identity.sentinel is not None
        and identity.sentinel != site_id
        and not _is_unfinished(identity.sentinel, site_id)
    ):
        return (f"the source carries the sentinel of another migration ({identity.sentinel}): it is known by that one",)
    try:
        if _leave(filesystem, identity, site_id):
            done.append("left the sentinel on the source")
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise MigratorError(
                f"the sentinel cannot be left on the source: {show(filesystem.root)}: {error.strerror}",
                hint="look at the file system; `migrator init` again completes what is missing",
            ) from None
        return (
            f"the source cannot be written ({error.strerror}): it is recorded without a sentinel, "
            "by its file system, device and root alone",
        )
    return ()


def _leave(filesystem: FileSystem, identity: MountIdentity, site_id: str) -> bool:
    if identity.sentinel == site_id:
        return False
    if _is_unfinished(identity.sentinel, site_id):
        remove_unfinished_sentinel(filesystem.root)
    leave_sentinel(filesystem.root, site_id)
    return True
