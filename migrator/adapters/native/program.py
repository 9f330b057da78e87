"""Where the compiled program is, and for which machines; or why there is none."""

import os
import platform
import struct
from dataclasses import dataclass
from pathlib import Path

PROGRAM_NAME = "migrator-native"
_MISSING_NOTE = "migrator-native.missing"
"""Left by the build where it could not compile: why not."""

_ELF_HEAD_BYTES = 20
_MACHINES = {3: "i686", 21: "ppc64le", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""ELF's numbers of machines, in the words of `uname -m`; big-endian machines are not among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeProgram:
    """The compiled program. `architecture` is what `uname -m` says on machines that can run it."""

    path: bytes
    architecture: str

    def content(self) -> bytes:
        """The program itself, to be placed on a host. Raises OSError."""
        with open(self.path, "rb") as file:
            return file.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoNativeProgram:
    """There is none, and why: a sentence with the next step."""

    reason: str


def native_program(directory: Path | None = None) -> NativeProgram | NoNativeProgram:
    """The program that the installation built, next to this module unless a test names another directory."""
    place = directory or Path(__file__).parent
    path = os.fsencode(place / PROGRAM_NAME)
    try:
        with open(path, "rb") as file:
            head = file.read(_ELF_HEAD_BYTES)
    except OSError as error:
        return NoNativeProgram(reason=_why_missing(place, error))
    if len(head) < _ELF_HEAD_BYTES or head[:4] != b"\x7fELF" or not os.access(path, os.X_OK):
        return NoNativeProgram(reason=f"{os.fsdecode(path)} is not a program; install migrator again")
    (machine,) = struct.unpack_from("<H", head, 18)
    return NativeProgram(path=path, architecture=_MACHINES.get(machine, platform.machine()))


def _why_missing(place: Path, error: OSError) -> str:
    if not isinstance(error, FileNotFoundError):
        return f"the compiled program cannot be read: {error.strerror}"
    try:
        why = (place / _MISSING_NOTE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        why = ""
    return f"the compiled program was not built{f' ({why})' if why else ''}: install gcc and install migrator again"
