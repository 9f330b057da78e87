"""Which bricks the client process behind a FUSE mount is connected to, from the mount's own `.meta` directory.

glusterd can see every brick up while this machine's client has lost one: the mount then shows fewer files, and no error.
`.meta` is answered by the client itself (the meta translator, in every client since GlusterFS 3.6) and is not listed.
"""

import os
import re
from collections.abc import Sequence

from migrator.adapters.filesystems.beneath import Root
from migrator.domain.brick import Brick

_GRAPHS = b".meta/graphs"
_CLIENT = re.compile(rb".+-client-\d+")
_READ_BYTES = 65536


def connections(root: bytes) -> dict[str, bool]:
    """By brick name whether the mount's client is connected to it. Raises OSError where the mount does not tell."""
    found: dict[str, bool] = {}
    with Root(root) as opened:
        with opened.directory(_GRAPHS) as fd:
            # The graph in use is named by a symlink; older ones stay listed until nothing uses them.
            graph = _GRAPHS + b"/" + os.readlink(b"active", dir_fd=fd)
        with opened.directory(graph) as fd:
            clients = [name for name in map(os.fsencode, os.listdir(fd)) if _CLIENT.fullmatch(name)]
        for client in clients:
            facts = graph + b"/" + client
            host = _read(opened, facts + b"/options/remote-host").strip()
            path = _read(opened, facts + b"/options/remote-subvolume").strip()
            name = (host + b":" + path).decode("utf-8", "backslashreplace")
            found[name] = b"\nconnected = 1\n" in b"\n" + _read(opened, facts + b"/private") + b"\n"
    return found


def connection_problems(bricks: Sequence[Brick], connected: dict[str, bool]) -> tuple[str, ...]:
    """Sentences for the bricks of the volume that this mount's client does not reach."""
    return tuple(
        f"this mount's client is not connected to brick {brick.name}: it silently shows fewer files"
        if brick.name in connected
        else f"this mount's client does not know brick {brick.name}: mount the volume anew"
        for brick in bricks
        if not connected.get(brick.name, False)
    )


def _read(root: Root, path: bytes) -> bytes:
    fd = root.open(path, os.O_RDONLY)
    try:
        return os.read(fd, _READ_BYTES)
    finally:
        os.close(fd)
