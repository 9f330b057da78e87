"""Other clients of a lab's volume."""

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster.handle import LabHandle
from tests.support.waiting import wait_for


@contextmanager
def another_client(lab: LabHandle, directory: Path) -> Iterator[None]:
    """The volume is mounted a second time, elsewhere, by somebody."""
    directory.mkdir()
    before = connected(lab)
    place = f"{lab.state.hosts[0].address}:/{lab.state.spec.volume}"
    words = ("mount", "-t", "glusterfs", place, str(directory))
    subprocess.run(["nsenter", f"--net=/run/netns/{lab.state.client_namespace}", "--", *words], check=True)
    own: set[tuple[str, str]] = set()

    def is_seen() -> bool:
        own.update(connected(lab) - before)
        return {brick for brick, _ in own} == {brick for brick, _ in before}

    try:
        wait_for(is_seen, "every brick sees the other client")
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)
    # Its process ends by itself, and bricks hear of that when it has.
    wait_for(lambda: not connected(lab) & own, "the other client has gone")


def connected(lab: LabHandle) -> set[tuple[str, str]]:
    """The clients of every brick, by brick and by address with port."""
    said = ET.fromstring(lab.gluster("--xml", "volume", "status", lab.state.spec.volume, "clients"))
    return {
        (f"{node.findtext('hostname')}:{node.findtext('path')}", client.findtext("hostname") or "")
        for node in said.iter("node")
        for client in node.iter("client")
    }
