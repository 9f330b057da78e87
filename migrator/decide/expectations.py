"""What a target of given capabilities will show of a file that was copied to it as well as can be.

The planner asks it before anything moves, the copy by descriptor while it moves, the verification afterwards: one
answer for all three, so that what was announced is what is expected.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from migrator.domain.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType, acl_entries
from migrator.domain.paths import show
from migrator.domain.plan import SurpriseKind
from migrator.domain.site import TargetCapabilities
from migrator.domain.verification import DigestPolicy

TEMPORARY_PREFIX = b".migrator-tmp-"
"""How the copy by descriptor names a file that is not complete; what is left of it after a crash is an extra path."""

KERNEL_LABELS = frozenset({b"security.selinux", b"security.ima", b"security.evm"})
"""Attributes that a kernel gives to files by its own policy: a copy has those of its own system."""

_ACLS = (ACL_ACCESS, ACL_DEFAULT)
_SAMPLE_RANGE = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One thing of one path that the target is known not to keep; `detail` is for people."""

    path: bytes
    kind: SurpriseKind
    detail: str


def floored_time_ns(time_ns: int, capabilities: TargetCapabilities) -> int:
    """The time that the target shows: floored to its granularity, also before 1970 (-1.5 s becomes -2 s)."""
    granularity_ns = max(capabilities.time_granularity_ns, 1)
    return time_ns // granularity_ns * granularity_ns


def xattr_loss(name: bytes, value: bytes, capabilities: TargetCapabilities) -> SurpriseKind | None:
    """Why the target cannot keep one extended attribute; None where it can.

    `trusted.*` is the file system's own and is never carried, whatever the target could keep; of `system.*` only the
    two POSIX ACLs are.
    """
    if name in _ACLS:
        kept = capabilities.keeps_acls and acl_entries(value) <= capabilities.max_acl_entries
        return None if kept else SurpriseKind.LOSS_ACL
    if name in KERNEL_LABELS:
        return SurpriseKind.LOSS_XATTR_NAMESPACE
    if name.startswith(b"user."):
        keeps = capabilities.keeps_user_xattrs
    elif name.startswith(b"security."):
        keeps = capabilities.keeps_security_xattrs
    else:
        keeps = False
    if not keeps:
        return SurpriseKind.LOSS_XATTR_NAMESPACE
    return SurpriseKind.LOSS_XATTR_SIZE if len(value) > capabilities.max_xattr_value_bytes else None


def kept_xattrs(xattrs: Mapping[bytes, bytes], capabilities: TargetCapabilities) -> dict[bytes, bytes]:
    """The attributes that are carried to the target, ACLs among them."""
    return {name: value for name, value in xattrs.items() if xattr_loss(name, value, capabilities) is None}


def absence(source: Entry, capabilities: TargetCapabilities) -> Loss | None:
    """Why a path cannot be on the target at all (or cannot be read back there); None where it must be there."""
    for component in source.path.split(b"/"):
        if len(component) > capabilities.max_name_bytes:
            detail = f"a name of {len(component)} bytes, where the target allows {capabilities.max_name_bytes}"
            return Loss(path=source.path, kind=SurpriseKind.LOSS_NAME, detail=detail)
        if component in capabilities.reserved_names:
            detail = f"the target reserves the name {show(component)}"
            return Loss(path=source.path, kind=SurpriseKind.LOSS_NAME, detail=detail)
    match source.type:
        case EntryType.SYMLINK:
            length = len(source.symlink_target or b"")
            if length > capabilities.max_symlink_target_bytes:
                limit = capabilities.max_symlink_target_bytes
                detail = f"a link to {length} bytes of path, where the target can read {limit}"
                return Loss(path=source.path, kind=SurpriseKind.LOSS_SYMLINK_TARGET, detail=detail)
        case EntryType.FIFO if not capabilities.makes_fifos:
            return Loss(path=source.path, kind=SurpriseKind.LOSS_FIFO, detail="the target makes no FIFOs")
        case EntryType.SOCKET if not capabilities.makes_sockets:
            return Loss(path=source.path, kind=SurpriseKind.LOSS_SOCKET, detail="the target makes no sockets")
        case EntryType.BLOCK | EntryType.CHARACTER if not capabilities.makes_devices:
            detail = "the target makes no device nodes"
            return Loss(path=source.path, kind=SurpriseKind.LOSS_DEVICE_NODE, detail=detail)
        case _:
            pass
    return None


def is_sampled(path: bytes, policy: DigestPolicy) -> bool:
    """Whether a file's content is compared: the same path and seed give the same answer on every machine."""
    if policy.share >= 1.0:
        return True
    seed = policy.seed.to_bytes(16, "big", signed=True)
    value = int.from_bytes(hashlib.blake2b(path, digest_size=8, key=seed).digest(), "big")
    return value < policy.share * _SAMPLE_RANGE
