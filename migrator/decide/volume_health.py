"""Whether a Gluster volume, or a mount, shows all that it holds. Pure."""

import hashlib

from migrator.domain.brick import VolumeState
from migrator.domain.site import MountIdentity

_PERFORMANCE = "performance."


def volume_problems(state: VolumeState) -> tuple[str, ...]:
    """Sentences for everything that makes the mount show less than there is, without any error of its own.

    A brick that the status does not list is as bad as one that is down: its host's glusterd does not answer. Tasks are
    no problem here: copies may go on while files move, only nothing may be decided to be gone.
    """
    problems: list[str] = []
    if not state.started:
        problems.append(f"volume {state.volume} is not started")
    if not state.bricks:
        problems.append(f"volume {state.volume} has no bricks")
    for brick in state.bricks:
        match brick.online:
            case True:
                continue
            case False:
                problems.append(f"brick {brick.name} is down")
            case None:
                problems.append(f"brick {brick.name} may be down: its state is not known")
    return tuple(problems)


def volume_fingerprint(state: VolumeState) -> str:
    """Changes with the brick list (its order too), with an option, and with the volume itself. Options of performance
    change nothing of what is shown, and a drain sets one by itself when it begins.
    """
    digest = hashlib.blake2b(digest_size=16)
    facts = [state.volume, state.volume_id, state.type, str(state.started)]
    facts += [f"{brick.name} {brick.arbiter}" for brick in state.bricks]
    facts += [f"{option}={value}" for option, value in sorted(state.options) if not option.startswith(_PERFORMANCE)]
    for fact in facts:
        raw = fact.encode("utf-8", "surrogateescape")
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return digest.hexdigest()


def mount_fingerprint(identity: MountIdentity) -> str:
    """For a source without bricks: changes when something else is mounted."""
    digest = hashlib.blake2b(digest_size=16)
    facts = (
        identity.filesystem,
        identity.mounted_from,
        identity.device,
        identity.fsid,
        identity.root_ino,
        identity.sentinel,
    )
    digest.update(repr(facts).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def wrong_volume_problem(identity: MountIdentity, volume: str) -> str | None:
    """A sentence where the mount is no mount of this volume: the health of a volume says nothing about another's."""
    mounted = identity.mounted_from.rpartition(":")[2].strip("/").partition("/")[0]
    if identity.filesystem == "fuse.glusterfs" and mounted == volume:
        return None
    shown = f"{identity.filesystem or 'unknown file system'} from {identity.mounted_from or 'nowhere'}"
    return f"the source is not a mount of volume {volume}: {shown}"
