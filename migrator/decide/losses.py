"""What a target cannot keep, in words: for the plan, before anything moves.

Which paths are concerned, the catalog's queries count; what becomes of one path, `expectations` and `compare` judge.
"""

from migrator.domain.paths import show
from migrator.domain.plan import SurpriseKind
from migrator.domain.site import TargetCapabilities
from migrator.domain.units import NS_PER_S, format_count, format_size


def loss_details(capabilities: TargetCapabilities) -> dict[SurpriseKind, str]:
    """What happens to the paths of each kind of loss. A kind that is not in the answer cannot occur on this target."""
    details: dict[SurpriseKind, str] = {}
    if capabilities.time_granularity_ns > 1:
        details[SurpriseKind.LOSS_TIME] = f"times are cut to {_granularity(capabilities.time_granularity_ns)}"
    if not capabilities.makes_devices:
        details[SurpriseKind.LOSS_DEVICE_NODE] = "the target makes no device nodes: they will be missing"
    elif not capabilities.keeps_device_numbers:
        details[SurpriseKind.LOSS_DEVICE] = "device nodes lose their numbers, and so their use"
    if not capabilities.makes_fifos:
        details[SurpriseKind.LOSS_FIFO] = "the target makes no FIFOs: they will be missing"
    if not capabilities.makes_sockets:
        details[SurpriseKind.LOSS_SOCKET] = "the target makes no sockets: they will be missing"
    details[SurpriseKind.LOSS_SYMLINK_TARGET] = (
        f"symlinks to more than {format_count(capabilities.max_symlink_target_bytes)} bytes of path: "
        "the target cannot read them, they will be missing"
    )
    details[SurpriseKind.LOSS_SYMLINK_MODE] = (
        f"symlinks show mode {capabilities.symlink_mode:04o} there; the mode of a symlink means nothing"
    )
    if not capabilities.keeps_symlink_owner:
        details[SurpriseKind.LOSS_SYMLINK_OWNER] = "symlinks lose their owner"
    if not capabilities.keeps_symlink_times:
        details[SurpriseKind.LOSS_SYMLINK_TIME] = "symlinks lose their times"
    details[SurpriseKind.LOSS_XATTR_SIZE] = (
        f"extended attributes of more than {format_size(capabilities.max_xattr_value_bytes)} are left out"
    )
    kept = [
        name
        for name, keeps in (
            ("user.*", capabilities.keeps_user_xattrs),
            ("security.*", capabilities.keeps_security_xattrs),
        )
        if keeps
    ]
    details[SurpriseKind.LOSS_XATTR_NAMESPACE] = (
        f"extended attributes other than {' and '.join(kept)} are left out (file capabilities are security.*)"
        if kept
        else "extended attributes are left out (file capabilities among them)"
    )
    details[SurpriseKind.LOSS_ACL] = (
        f"ACLs of more than {format_count(capabilities.max_acl_entries)} entries are left out"
        if capabilities.keeps_acls
        else "ACLs are left out"
    )
    if not capabilities.keeps_hard_links:
        details[SurpriseKind.LOSS_HARD_LINK] = "the target has no hard links: every name becomes a file of its own"
    if not capabilities.keeps_sparse:
        details[SurpriseKind.LOSS_SPARSENESS] = "holes in sparse files are filled: they take their full size"
    reserved = ", ".join(show(name) for name in capabilities.reserved_names)
    details[SurpriseKind.LOSS_NAME] = (
        f"names of more than {capabilities.max_name_bytes} bytes"
        f"{f', and those that the target reserves ({reserved})' if reserved else ''}, cannot be there"
    )
    return details


def _granularity(granularity_ns: int) -> str:
    if granularity_ns == NS_PER_S:
        return "whole seconds"
    return f"steps of {granularity_ns / NS_PER_S:g} s"
