"""Whether the current mounts are those that `init` recorded."""

from migrator.fs.model import MountIdentity
from migrator.fs.ports import FileSystem
from migrator.ledger.model import SiteRecord
from migrator.site.rules_guards import mount_problems


def current_identity(filesystem: FileSystem) -> MountIdentity | None:
    """The current identity; None if it cannot be read. Blocks."""
    try:
        return filesystem.identity()
    except OSError:
        return None


def mounts_not_recorded(site: SiteRecord, source: FileSystem, target: FileSystem) -> tuple[str, ...]:
    """The differences of source or target from the recorded mount; empty if there are none. Blocks."""
    return (
        *mount_problems(site.source, current_identity(source), where="the source"),
        *mount_problems(site.target, current_identity(target), where="the target"),
    )
