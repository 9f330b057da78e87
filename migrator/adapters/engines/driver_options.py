"""What drivers hand on to their rsyncs, as words without blanks, quotes and dollars: scripts paste them into shells."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.decide.expectations import KERNEL_LABELS
from migrator.domain.site import TargetCapabilities
from migrator.domain.units import KIB

_PLAIN_PATH = re.compile(rb"/[A-Za-z0-9._/+@%-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RsyncWords:
    """The options of one driver run. `noisy` are those that parsyncfp2 takes for a wish to be verbose."""

    plain: Sequence[str]
    noisy: Sequence[str]


def rsync_words(
    capabilities: TargetCapabilities, *, recopy: bool, bwlimit_bytes_per_s: int | None, privileged: bool
) -> RsyncWords:
    """As for the chunks of files that follow, in short letters: both drivers refuse some long names.

    Without `-r` and `-a`, since lists name every path; attributes of directories are left to the chunks that follow,
    so that a tree's root stays closed. Files are sent whole.
    """
    plain = ["-lptgo", "--numeric-ids", "-W", "-O", "--no-implied-dirs", "--stderr=client"]
    noisy: list[str] = []
    if capabilities.keeps_hard_links:
        plain.append("-H")
    if capabilities.keeps_sparse:
        plain.append("-S")
    if capabilities.time_granularity_ns == 1:
        plain.append("--modify-window=-1")
    if not capabilities.keeps_symlink_times:
        plain.append("-J")
    if privileged and capabilities.makes_devices and capabilities.makes_fifos and capabilities.makes_sockets:
        plain.append("-D")
    if recopy:
        plain.append("-I")
    if not capabilities.syncfs_reaches_disks:
        plain.append("--fsync")
    if not privileged:
        noisy.append("--chmod=Du+rwx")
    if bwlimit_bytes_per_s is not None:
        plain.append(f"--bwlimit={max(bwlimit_bytes_per_s // KIB, 1)}")
    return RsyncWords(plain=(*plain, *_attributes(capabilities)), noisy=tuple(noisy))


def is_plain(path: bytes) -> bool:
    """Whether a path can stand in a shell's script as it is."""
    return _PLAIN_PATH.fullmatch(path) is not None


def _attributes(capabilities: TargetCapabilities) -> Sequence[str]:
    """As the rsync engine's, with an underscore for the blank between a rule and its pattern."""
    words: list[str] = []
    if capabilities.keeps_acls:
        words.append("-A")
    if not (capabilities.keeps_user_xattrs or capabilities.keeps_security_xattrs):
        return words
    words += ["-X", "--filter=-x_trusted.**", "--filter=-x_system.**"]
    if capabilities.keeps_user_xattrs:
        words.append("--filter=+x_user.**")
    if capabilities.keeps_security_xattrs:
        words += [f"--filter=-x_{label.decode('ascii')}" for label in sorted(KERNEL_LABELS)]
        words.append("--filter=+x_security.**")
    words.append("--filter=-x_**")
    return words


def search_path(programs: Sequence[bytes]) -> str:
    """PATH for a driver: where its programs lie, and the usual places."""
    own = [os.fsdecode(os.path.dirname(program)) for program in programs]
    return ":".join(dict.fromkeys([*own, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]))
