"""What a lab has left behind on this machine."""

import os
from pathlib import Path

from migrator.hosts.proc import carriers
from migrator.lab.machine import loops_beneath, mounts_beneath
from migrator.lab.model import LabSpec


def remains_of(directory: Path, token: str | None) -> list[str]:
    """Everything that is left: files, mounts, loop devices, namespaces, processes. Empty after a good `down`."""
    real = os.path.realpath(os.fsencode(directory))
    prefix = LabSpec(directory=real).name_prefix
    found = [f"file {entry}" for entry in directory.parent.iterdir() if directory.name in entry.name]
    found += [f"mount {mounted.point!r}" for mounted in mounts_beneath(real)]
    found += [f"loop {device}" for device in loops_beneath(real)]
    namespaces = Path("/run/netns")
    if namespaces.is_dir():
        found += [f"namespace {entry.name}" for entry in namespaces.iterdir() if entry.name.startswith(prefix)]
    if token is not None:
        found += [f"process {identity.pid}" for identity in carriers([token]).get(token, ())]
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                arguments = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if real + b"/" in arguments:
                found.append(f"process {process.name}: {arguments!r}")
    return found
