"""Which rsync this is, and what it can do."""

import re
import shutil
from dataclasses import dataclass

from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show
from migrator.ports.processes import Command, Processes

MINIMUM_VERSION = (3, 2, 3)
"""Nanosecond comparison, filters for attributes, `--stderr`, xxh128, and roles in messages are all there."""

_VERSION = re.compile(rb"rsync +version v?([0-9]+)\.([0-9]+)\.([0-9]+)")
_OPTION = re.compile(rb"^ *(--[a-z0-9-]+)", re.MULTILINE)
_NEEDED_ABILITIES = (b"hardlinks", b"symlinks", b"symtimes", b"ACLs", b"xattrs", b"64-bit files")
_ASK_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RsyncFeatures:
    """`lacks` names abilities that this build was made without; `confine_root`: knows `--confine-root` (3.5)."""

    version: tuple[int, int, int]
    confine_root: bool
    lacks: tuple[str, ...] = ()

    @property
    def version_text(self) -> str:
        """As rsync writes it."""
        return ".".join(str(number) for number in self.version)

    def problem(self) -> str | None:
        """Why it cannot be used; None where it can."""
        if self.version < MINIMUM_VERSION:
            minimum = ".".join(str(number) for number in MINIMUM_VERSION)
            return f"rsync {self.version_text} is too old: {minimum} is needed"
        if self.lacks:
            return f"rsync {self.version_text} was built without {', '.join(self.lacks)}"
        return None


def parse_features(version_output: bytes, help_output: bytes) -> RsyncFeatures:
    """From `rsync --version` and `rsync --help`. Raises ValueError where it is something else's output."""
    match = _VERSION.search(version_output)
    if match is None:
        raise ValueError("not the output of rsync --version")
    capabilities = version_output.partition(b"Capabilities:")[2].partition(b"Optimizations:")[0]
    abilities = {word.strip() for word in re.split(rb"[,\n]", capabilities)}
    return RsyncFeatures(
        version=(int(match[1]), int(match[2]), int(match[3])),
        confine_root=b"--confine-root" in _OPTION.findall(help_output),
        lacks=tuple(ability.decode("ascii") for ability in _NEEDED_ABILITIES if ability not in abilities),
    )


def locate(name: str = "rsync") -> bytes:
    """The absolute path of the program. Raises ToolFailed."""
    found = shutil.which(name)
    if found is None:
        raise ToolFailed(
            f"{name} was not found", cause="it is not installed on this host", hint="install it: apt install rsync"
        )
    return found.encode("utf-8", "surrogateescape")


async def ask(processes: Processes, program: bytes) -> RsyncFeatures:
    """Ask the program itself. Raises ToolFailed."""
    version = await processes.run(Command(argv=(program, b"--version"), timeout_s=_ASK_TIMEOUT_S))
    usage = await processes.run(Command(argv=(program, b"--help"), timeout_s=_ASK_TIMEOUT_S))
    if version.exit_code != 0:
        raise ToolFailed(f"{show(program)} --version fails: {show(version.stderr)}")
    try:
        return parse_features(version.stdout, usage.stdout)
    except ValueError as error:
        raise ToolFailed(f"{show(program)} is no rsync: {error}") from error
